//! The small words of the face.

/// How a rename treats its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RenameFlags {
    /// Fail if the target exists (`RENAME_NOREPLACE`).
    pub no_replace: bool,
    /// Swap the two entries (`RENAME_EXCHANGE`).
    pub exchange: bool,
}

/// Space of the file system, summed over the disks of its servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statfs {
    /// Bytes in all.
    pub total: u64,
    /// Bytes available.
    pub available: u64,
    /// Objects held.
    pub objects: u64,
}
