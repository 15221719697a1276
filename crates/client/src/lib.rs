//! The client: it walks paths, caches names and attributes, distributes data over servers, and transfers
//! it. It consists of a core without I/O and of drivers for the core.
//!
//! Read it in this order: [`Options`] and [`Client`] (the interface), `core` (requests, deadlines,
//! retries), `session` (slots, exactly-once execution), `driver` (sockets), `ops/` (each operation in a
//! file), `transfer/` (data), `cache`.
//!
//! **Invariants.** Every wait has a deadline, every retry a bound ([`Options::timeout`]; test:
//! `a_server_that_never_answers_ends_at_the_deadline`). Every error names server, operation and object
//! ([`Error`]). A change is executed exactly once, whatever happens to the connection (test:
//! `a_change_whose_reply_was_lost_goes_again_with_its_slot_and_sequence_and_is_done_once`). A negative cache
//! entry never answers an open (test: `a_negative_entry_answers_a_walk_but_never_an_open_or_a_lookup`), and
//! every open sends a request to the file's server (test:
//! `an_open_asks_the_server_even_if_everything_is_cached`). A name may lead to its former object for the
//! cache time.

mod cache;
mod call;
mod client;
mod core;
mod counters;
mod driver;
#[cfg(test)]
mod fake;
mod file;
mod held;
mod inodes;
mod locks;
mod map;
mod ops;
mod options;
mod pages;
mod refusal;
mod session;
mod shards;
#[cfg(test)]
mod tests;
mod timers;
mod transfer;
mod vfs;
mod world;

pub use client::Client;
pub use counters::ClientCounters;
pub use file::OpenFile;
pub use ops::{
    Contents, DirStream, FileWrite, LOST_AND_FOUND, NOT_LOST_AND_FOUND, OfServers, StreamCounts,
    UnorderedDirStream, Which,
};
pub use options::{Options, TIMEOUT};
pub use shoal_vfs::{Error, ForkedFile, HeldLock, LockCall, NewFile, RenameFlags, Space};
