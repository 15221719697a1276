//! Decides which writes are made by the thread that polls the environment.
//!
//! A small write to the page cache is a copy of a few microseconds; to hand it to another thread and to be
//! woken by that thread costs some tens of microseconds. But the kernel may delay any write: too many dirty
//! pages, or a commit of the local file system's journal. So writes are made inline **until one stalls**;
//! after that the pool makes them for a while, and the thread is free for other work. A write that is
//! durable on return (`O_DSYNC`) or bypasses the page cache always waits, so the pool always makes it.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The pool makes longer writes: copying them would hold the thread too long.
const BYTES_MAX: usize = 64 << 10;
/// A write that took so long has stalled.
const STALL: Duration = Duration::from_micros(500);
/// Writes that the pool makes after a stall.
const WRITES_AFTER_STALL: u32 = 64;

/// Decides for one environment. See the module.
#[derive(Default)]
pub(super) struct Inline {
    for_the_pool: Cell<u32>,
}

impl Inline {
    /// Whether to make a write of `bytes` to the page cache here.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        let left = self.for_the_pool.get();
        self.for_the_pool.set(left.saturating_sub(1));
        left == 0 && bytes <= BYTES_MAX
    }

    /// Make it, and note whether it stalled.
    pub(super) fn run<T>(&self, write: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = write();
        if began.elapsed() >= STALL {
            self.for_the_pool.set(WRITES_AFTER_STALL);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_writes_are_made_here_until_one_stalls_and_after_a_while_again() {
        let inline = Inline::default();
        assert!(inline.takes(BYTES_MAX));
        assert!(!inline.takes(BYTES_MAX + 1));
        inline.run(|| std::thread::sleep(STALL));
        assert!((0..WRITES_AFTER_STALL).all(|_| !inline.takes(1)));
        assert!(inline.takes(1));
    }
}
