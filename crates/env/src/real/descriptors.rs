//! Numbers of descriptors, where the process is not ours.
//!
//! A library in a foreign program opens files beside it. Programs use low numbers by choice (`exec 3>file` of
//! a shell), and would close or replace ours. So such a library has users' files opened at numbers from
//! [`keep_from`] on; a program of ours leaves it at 0, and pays nothing.

use rustix::fd::{AsRawFd as _, OwnedFd};
use rustix::io::fcntl_dupfd_cloexec;
use std::sync::atomic::{AtomicI32, Ordering};

static FROM: AtomicI32 = AtomicI32::new(0);

/// From now on, open users' files at numbers from `first` on.
pub fn keep_from(first: i32) {
    FROM.store(first, Ordering::Relaxed);
}

/// The same file at a number that is ours. Where none is free there it keeps its own.
pub(super) fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    let first = FROM.load(Ordering::Relaxed);
    if fd.as_raw_fd() >= first {
        return fd;
    }
    fcntl_dupfd_cloexec(&fd, first).unwrap_or(fd)
}
