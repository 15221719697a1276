//! Locks of files, in the form in which an interface requests them.

pub use shoal_proto::{LockKind, LockOwner, LockRange};

/// A call for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockCall {
    /// The owner: a number that the interface chooses for a process or an open file.
    pub owner: LockOwner,
    /// The bytes.
    pub range: LockRange,
    /// The kind.
    pub kind: LockKind,
    /// Wait while another owner is in the way.
    pub wait: bool,
    /// The process, for callers that ask for the holder of a lock.
    pub pid: u32,
}

/// A lock in the way of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldLock {
    /// The bytes.
    pub range: LockRange,
    /// The kind.
    pub kind: LockKind,
    /// The process that took it; 0: one of another client.
    pub pid: u32,
}
