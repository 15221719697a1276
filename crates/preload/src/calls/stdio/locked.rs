//! The lock of a stream.

use libc::{FILE, c_int};
use std::time::Duration;

unsafe extern "C" {
    fn flockfile(stream: *mut FILE);
    fn ftrylockfile(stream: *mut FILE) -> c_int;
    fn funlockfile(stream: *mut FILE);
}

/// `dup2` waits so long for a stream: another thread may wait in a write to it, for this very thread.
const WAIT_MS: u32 = 1000;

/// A stream's lock, of the C library; a thread may have it several times.
pub struct Locked(*mut FILE);

impl Locked {
    /// Have it.
    ///
    /// # Safety
    /// It is a stream, until this is dropped.
    pub unsafe fn new(stream: *mut FILE) -> Locked {
        // SAFETY: as the caller promises.
        unsafe { flockfile(stream) };
        Locked(stream)
    }

    /// The same, unless another thread has it for long.
    ///
    /// # Safety
    /// As [`Locked::new`].
    pub unsafe fn soon(stream: *mut FILE) -> Option<Locked> {
        // SAFETY: as the caller promises.
        let is_had = || unsafe { ftrylockfile(stream) == 0 };
        let had = (0..WAIT_MS).any(|tries| {
            if tries > 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            is_had()
        });
        had.then(|| Locked(stream))
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: this thread has it.
        unsafe { funlockfile(self.0) };
    }
}
