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
//! `getrusage(2)`), a preempted one does not (`ru_nivcsw`). In two cases time alone decides: some sandboxes
//! leave the count at 0 for ever, and a write above [`STALL_ALWAYS`] held the thread too long, whatever the
//! reason (a host that gives a virtual machine no processor, a kernel that spins).

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The pool makes longer writes: copying them would hold the thread too long.
const BYTES_MAX: usize = 64 << 10;
/// A write that took so long has stalled, if the thread slept in it.
const STALL: Duration = Duration::from_micros(500);
/// A write that took so long has stalled, slept or not: the longest that other work waits for one write.
const STALL_ALWAYS: Duration = Duration::from_millis(10);
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
    /// How often the thread slept so far; 0 where the kernel does not say.
    fn sleeps(&self) -> u64;
}

/// Those of the kernel.
struct Kernel;

impl Account for Kernel {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleeps(&self) -> u64 {
        // SAFETY: all fields are integers, for which zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is this function's own, and as long as the kernel's structure.
        let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
        if result == 0 { u64::try_from(usage.ru_nvcsw).unwrap_or(0) } else { 0 }
    }
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
        let took = account.now().duration_since(began);
        // The accounts are looked at a second time only where they matter.
        let slept_in_it = || match account.sleeps() {
            0 => true,
            sleeps => sleeps > slept,
        };
        if took >= STALL_ALWAYS || took >= STALL && slept_in_it() {
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
            Book::with(7)
        }

        /// The thread slept so often before.
        fn with(sleeps: u64) -> Book {
            Book { now: Cell::new(Instant::now()), sleeps: Cell::new(sleeps) }
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
        book.write(&inline, STALL_ALWAYS - Duration::from_nanos(1), 0);
        assert!(inline.takes(1), "preempted, for however long below the limit");
        book.write(&inline, STALL - Duration::from_nanos(1), 3);
        assert!(inline.takes(1), "a short wait for a lock");
    }

    #[test]
    fn a_write_that_held_the_thread_for_too_long_has_stalled_slept_or_not() {
        let (inline, book) = (Inline::default(), Book::new());
        book.write(&inline, STALL_ALWAYS, 0);
        assert!(!inline.takes(1));
    }

    #[test]
    fn where_the_kernel_counts_no_sleeps_time_alone_decides() {
        let (inline, book) = (Inline::default(), Book::with(0));
        book.write(&inline, STALL - Duration::from_nanos(1), 0);
        assert!(inline.takes(1));
        book.write(&inline, STALL, 0);
        assert!(!inline.takes(1));
        // The first sleep of a thread is one.
        let (inline, book) = (Inline::default(), Book::with(0));
        book.write(&inline, STALL, 1);
        assert!(!inline.takes(1));
    }

    #[test]
    fn the_kernel_tells_a_sleep_from_work() {
        let inline = Inline::default();
        inline.run(|| std::thread::sleep(STALL));
        assert!(!inline.takes(1));
        let before = Kernel.sleeps();
        let until = Instant::now() + 4 * STALL;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        assert_eq!(Kernel.sleeps(), before, "preempted or not, it did not sleep");
    }
}
