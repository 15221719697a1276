//! Counts of the calls through `Env`. They show the costs of the hot path: tests assert them, and `shoal
//! status --counters` prints them. Each call is counted where it is made, so the counts are exact.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Running counts since the environment was made. Shared by the environment's threads; relaxed
        /// atomics.
        #[derive(Default, Debug)]
        pub struct Counters { $($(#[$doc])* pub $name: AtomicU64,)* }

        /// The counts at one moment.
        #[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
        pub struct CounterSnapshot { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// Read all counts.
            pub fn snapshot(&self) -> CounterSnapshot {
                CounterSnapshot { $($name: self.$name.load(Relaxed),)* }
            }
        }

        impl CounterSnapshot {
            /// The difference since `earlier`.
            pub fn since(&self, earlier: &CounterSnapshot) -> CounterSnapshot {
                CounterSnapshot { $($name: self.$name.wrapping_sub(earlier.$name),)* }
            }

            /// Names and values, in order, for printing.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Reads of sockets that returned bytes (`recv`).
    socket_reads,
    /// Bytes read from sockets.
    socket_read_bytes,
    /// Writes to sockets that wrote bytes (`writev`).
    socket_writes,
    /// Bytes written to sockets.
    socket_write_bytes,
    /// Requested reads of files.
    file_reads,
    /// Bytes read from files.
    file_read_bytes,
    /// Requested writes to files.
    file_writes,
    /// Those of them that the thread which polls the environment made itself: no other thread was called.
    file_writes_inline,
    /// Bytes written to files.
    file_write_bytes,
    /// Writes made durable: `fdatasync` and `fsync` calls, and `O_DSYNC` writes.
    syncs,
    /// Other file calls: open, create, truncate, allocate, rename, remove, list.
    file_calls,
    /// Closures run off the shard's thread.
    offloads,
    /// Bytes copied from buffer to buffer above the kernel (the kernel's own copies are in the bytes
    /// above): frames taken from a shared buffer, contents gathered and scattered, records entered into the
    /// journal. Encoding a message or a row from its fields is no copy.
    copied_bytes,
}

impl Counters {
    /// Add `n` to a count.
    pub fn add(count: &AtomicU64, n: u64) {
        count.fetch_add(n, Relaxed);
    }
}
