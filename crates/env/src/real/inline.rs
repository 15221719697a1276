//! Decides which writes are made by the thread that polls the environment.
//!
//! A small write to the page cache is a copy of a few microseconds; to hand it to another thread and to be
//! woken by that thread costs some tens of microseconds. But the kernel may delay any write: too many dirty
//! pages, or a commit of the local file system's journal. So writes are made inline **until one stalls**;
//! after that the pool makes them for a while, and the thread is free for other work. A write that is
//! durable on return (`O_DSYNC`) or bypasses the page cache always waits, so the pool always makes it.
//!
//! **A write has stalled if it took long and its thread slept in it.** On a busy machine a write also takes
//! long because the kernel gave its processor to another thread. That is no stall: a thread of the pool
//! would wait for a processor as well, and the hand-over would be paid on top. The kernel counts the two
//! apart for each thread: a thread that sleeps gives its processor away by itself (`ru_nvcsw` of
//! `getrusage(2)`), a preempted one does not (`ru_nivcsw`).

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The pool makes longer writes: copying them would hold the thread too long.
const BYTES_MAX: usize = 64 << 10;
/// A write that took so long has stalled, if the thread slept in it.
const STALL: Duration = Duration::from_micros(500);
/// Writes that the pool makes after a stall.
const WRITES_AFTER_STALL: u32 = 64;

/// Decides for one environment. See the module.
#[derive(Default)]
pub(super) struct Inline {
    for_the_pool: Cell<u32>,
}

/// The accounts of the calling thread.
trait Account {
    /// A clock that never goes backwards.
    fn now(&self) -> Instant;
    /// How often the thread slept so far.
    fn sleeps(&self) -> u64;
}

/// Those of the kernel.
struct Kernel;

impl Account for Kernel {
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Where the kernel gives none, each call counts as a sleep: then a write that takes long has stalled.
    fn sleeps(&self) -> u64 {
        sleeps_of_this_thread().unwrap_or_else(|| NOT_GIVEN.with(|calls| calls.replace(calls.get() + 1)))
    }
}

thread_local! {
    static NOT_GIVEN: Cell<u64> = const { Cell::new(0) };
}

fn sleeps_of_this_thread() -> Option<u64> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is this function's own, and as long as the kernel's structure.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    (result == 0).then(|| u64::try_from(usage.ru_nvcsw).unwrap_or(0))
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
        self.run_by(&Kernel, write)
    }

    fn run_by<T>(&self, account: &impl Account, write: impl FnOnce() -> T) -> T {
        let (began, slept) = (account.now(), account.sleeps());
        let done = write();
        // The accounts are looked at a second time only where they matter.
        if account.now().duration_since(began) >= STALL && account.sleeps() > slept {
            self.for_the_pool.set(WRITES_AFTER_STALL);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accounts that a test keeps.
    struct Book {
        now: Cell<Instant>,
        sleeps: Cell<u64>,
    }

    impl Account for Book {
        fn now(&self) -> Instant {
            self.now.get()
        }

        fn sleeps(&self) -> u64 {
            self.sleeps.get()
        }
    }

    impl Book {
        fn new() -> Book {
            Book { now: Cell::new(Instant::now()), sleeps: Cell::new(7) }
        }

        /// A write that takes so long, and in which the thread sleeps so often.
        fn write(&self, inline: &Inline, takes: Duration, sleeps: u64) {
            inline.run_by(self, || {
                self.now.set(self.now.get() + takes);
                self.sleeps.set(self.sleeps.get() + sleeps);
            });
        }
    }

    #[test]
    fn small_writes_are_made_here_until_one_stalls_and_after_a_while_again() {
        let (inline, book) = (Inline::default(), Book::new());
        assert!(inline.takes(BYTES_MAX));
        assert!(!inline.takes(BYTES_MAX + 1));
        book.write(&inline, STALL, 1);
        assert!((0..WRITES_AFTER_STALL).all(|_| !inline.takes(1)));
        assert!(inline.takes(1));
    }

    #[test]
    fn a_write_that_lost_its_processor_or_slept_a_moment_has_not_stalled() {
        let (inline, book) = (Inline::default(), Book::new());
        book.write(&inline, 100 * STALL, 0);
        assert!(inline.takes(1), "preempted, for however long");
        book.write(&inline, STALL - Duration::from_nanos(1), 3);
        assert!(inline.takes(1), "a short wait for a lock");
    }

    #[test]
    fn the_kernel_tells_a_sleep_from_work() {
        let inline = Inline::default();
        inline.run(|| std::thread::sleep(STALL));
        assert!(!inline.takes(1));
        let before = sleeps_of_this_thread().unwrap();
        let until = Instant::now() + 4 * STALL;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        assert_eq!(sleeps_of_this_thread(), Some(before), "preempted or not, it did not sleep");
    }
}
