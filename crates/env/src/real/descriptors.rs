//! Chooses the numbers of file descriptors in the process of a foreign program.
//!
//! A library in a foreign program has descriptors beside those of the program. Programs choose low numbers
//! themselves (a shell with `exec 3>file`), and would close or replace the library's descriptors. So the
//! library calls [`keep_from`] with a lowest number. The users' files that the library opens then get this
//! number or a higher one. Our own programs leave the number at 0, which costs nothing.
//!
//! **A thread of another library has descriptors of its own choice.** Such a thread calls
//! [`begin_own_thread`] first. The library in a foreign program sets with [`keep_threads`] the action of that
//! call: it has the thread's descriptors made at numbers that are ours.

use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::io::fcntl_dupfd_cloexec;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

static FROM: AtomicI32 = AtomicI32::new(0);
static BEGIN: OnceLock<Begin> = OnceLock::new();

/// The beginning of a thread.
pub type Begin = fn();

/// From now on, open users' files at numbers from `first` on.
pub fn keep_from(first: i32) {
    FROM.store(first, Ordering::Relaxed);
}

/// From now on, each thread that calls [`begin_own_thread`] begins with this.
pub fn keep_threads(begin: Begin) {
    let _ = BEGIN.set(begin);
}

/// The beginning of a thread of ours that opens descriptors past this crate.
pub fn begin_own_thread() {
    if let Some(begin) = BEGIN.get() {
        begin();
    }
}

/// The same file at a number that is ours. Where none is free there it keeps its own.
pub(super) fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    let first = FROM.load(Ordering::Relaxed);
    if fd.as_raw_fd() >= first {
        return fd;
    }
    fcntl_dupfd_cloexec(&fd, first).unwrap_or(fd)
}
