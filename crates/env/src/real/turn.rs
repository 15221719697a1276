//! The right to drive a world (an event loop of `shoal_env`), or to use a state that threads share. It is a
//! lock with a deadline, one word wide, that a forked child can reset.
//!
//! ```text
//!   0 free ── take ──▶ 1 taken ── a thread waits ──▶ 2 taken, wanted ── give ──▶ 0, and one thread is woken
//! ```

use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const WANTED: u32 = 2;
/// Looks before a thread sleeps: a turn is had for some microseconds.
const LOOKS: usize = 100;

/// See the module.
#[derive(Default)]
pub struct Turn(AtomicU32);

impl Turn {
    /// A turn that is free.
    pub const fn new() -> Turn {
        Turn(AtomicU32::new(FREE))
    }

    /// Take it if it is free; whether that succeeded.
    pub fn take_now(&self) -> bool {
        self.0.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Take it if it is free soon; whether that succeeded.
    fn take_soon(&self) -> bool {
        (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            self.0.load(Ordering::Relaxed) == FREE && self.take_now()
        })
    }

    /// Take it within `patience`; whether that succeeded. A thread that has it must not take it again.
    pub fn take(&self, patience: Duration) -> bool {
        if self.take_now() || self.take_soon() {
            return true;
        }
        let until = Instant::now() + patience;
        while self.0.swap(WANTED, Ordering::Acquire) != FREE {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let left = futex::Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            // Woken, timed out, interrupted or changed meanwhile: the word says which.
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, WANTED, Some(&left));
        }
        true
    }

    /// Take it again, in the midst of a call that gave it away: each call that has it meanwhile ends by its
    /// own deadline.
    pub fn take_back(&self) {
        if self.take_now() || self.take_soon() {
            return;
        }
        while self.0.swap(WANTED, Ordering::Acquire) != FREE {
            let _ = futex::wait(&self.0, futex::Flags::PRIVATE, WANTED, None);
        }
    }

    /// Give it away. The thread has it.
    pub fn give(&self) {
        if self.0.swap(FREE, Ordering::Release) == WANTED {
            let _ = futex::wake(&self.0, futex::Flags::PRIVATE, 1);
        }
    }

    /// In a forked child: no other thread is there that could have it or wait for it.
    pub fn reset(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}
