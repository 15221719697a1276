//! The end of a process by `exit`: what would end with it is published.
//!
//! A file in a bucket is there when it is closed or synced. All its files are closed within [`EXIT_MAX`],
//! those that are opened again by writes at the end, too. Other file systems keep what a write returned.

use super::{LOCKED, Mount, Open, Session};
use crate::config;
use crate::guard::{self, say};
use crate::table;
use libc::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Time for all publications at exit, those of later writes too.
const EXIT_MAX: Duration = Duration::from_secs(60);
/// Time for the end of locks at `_exit`.
const END_S_MAX: u32 = 10;
/// When that time has passed.
static EXIT_UNTIL: OnceLock<Instant> = OnceLock::new();
/// The process is in `exit`.
static IS_EXITING: AtomicBool = AtomicBool::new(false);

/// Closes under way.
static CLOSES: AtomicUsize = AtomicUsize::new(0);

/// A close is under way until this is dropped.
pub(super) struct Closing;

impl Closing {
    pub(super) fn new() -> Closing {
        CLOSES.fetch_add(1, Ordering::AcqRel);
        Closing
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        CLOSES.fetch_sub(1, Ordering::AcqRel);
    }
}

/// In a child: the closes were the parent's.
pub fn forget_closes() {
    super::forget_lease();
    CLOSES.store(0, Ordering::Release);
}

/// Whether what is written to a file system may end with the process: until its file is closed or synced.
pub(super) fn ends_here(mount: usize) -> bool {
    let over = config::get().and_then(|config| config.overs.get(mount));
    over.is_some_and(|over| !over.outlives_its_process())
}

/// The end of all publications.
fn until() -> Instant {
    *EXIT_UNTIL.get_or_init(|| Instant::now() + EXIT_MAX)
}

/// Whether the process is in `exit`.
pub(super) fn is_exiting() -> bool {
    IS_EXITING.load(Ordering::Relaxed)
}

impl Session {
    /// The process ends: close its files where their bytes would end with it. Their descriptions stay, and a
    /// write after this opens one again.
    pub fn publish(&mut self) {
        let ends = |open: &Open| ends_here(open.record.mount as usize);
        for (at, mount) in self.mounts.iter().enumerate() {
            if let Mount::Planted(tree) = mount
                && ends_here(at)
            {
                tree.limit(Some(until()));
            }
        }
        for open in self.opens.iter_mut().flatten().filter(|open| ends(open)) {
            if open.record.state.load(Ordering::Relaxed) == 0
                && let Some(file) = open.file.take()
                && let Err(error) = file.close()
            {
                let path = String::from_utf8_lossy(&open.record.path()).into_owned();
                say(&format!("{path} lost what was written since its last close or fsync: {error}"));
            }
        }
    }
}

/// The process ends by `_exit`: give its locks back, within [`END_S_MAX`]. A handler of a signal may have
/// interrupted the program's allocator, and then this would wait for ever.
pub fn give_back_at_end() {
    if !LOCKED.load(Ordering::Relaxed) || guard::is_inside() {
        return;
    }
    // SAFETY: the process ends, by the signal if need be.
    unsafe {
        let mut alarms = std::mem::MaybeUninit::uninit();
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::alarm(END_S_MAX);
        libc::sigemptyset(alarms.as_mut_ptr());
        libc::sigaddset(alarms.as_mut_ptr(), libc::SIGALRM);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, alarms.as_ptr(), std::ptr::null_mut());
    }
    let _ = guard::call(|session| {
        session.give_back();
        Ok(())
    });
}

/// The process ends by `exit`: give its locks back, and publish what would end with it.
pub fn publish_at_exit() {
    if LOCKED.load(Ordering::Relaxed) {
        // The C library would write them after this, and another process may have the lock by then.
        // SAFETY: all streams.
        unsafe { libc::fflush(std::ptr::null_mut()) };
        let _ = guard::call(|session| {
            session.give_back();
            Ok(())
        });
    }
    let may_lose = |config: &config::Config| config.overs.iter().any(|over| !over.outlives_its_process());
    if !config::get().is_some_and(may_lose) {
        return;
    }
    IS_EXITING.store(true, Ordering::Relaxed);
    // A process without a virtual descriptor has written nothing, and needs no session.
    let has_files = table::virtual_ones(0, c_int::MAX).next().is_some();
    if has_files || CLOSES.load(Ordering::Acquire) > 0 {
        let published = guard::call(|session| {
            session.publish();
            session.wait_for_closes(until().saturating_duration_since(Instant::now()))
        });
        if let Err(number) = published {
            let why = std::io::Error::from_raw_os_error(number);
            say(&format!("files in buckets lost what was written since their last close or fsync: {why}"));
        }
    }
}
