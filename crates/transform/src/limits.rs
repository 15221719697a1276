//! All limits of containers.

/// Bytes of one writer's index log that are read, at most.
pub const INDEX_LOG_BYTES_MAX: u64 = 1 << 32;
/// Logs that a cut names, at most.
pub const CUT_LOGS_MAX: usize = 1 << 16;
/// Records that an index keeps one by one, at most, when it is read. Those that are covered do not count.
pub const SINGLE_RECORDS_MAX: u64 = 1 << 26;
/// As many of them, and nothing more is written: several processes may write, each beside others that it does
/// not see.
pub const WRITTEN_SINGLY_MAX: u64 = SINGLE_RECORDS_MAX / 2;
/// Limits of a container's records that one mount keeps: tests have lower ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordLimits {
    /// See [`WRITTEN_SINGLY_MAX`].
    pub(crate) written_singly: u64,
    /// See [`FOLD_PARTS_MAX`].
    pub(crate) folded: usize,
}

impl Default for RecordLimits {
    fn default() -> RecordLimits {
        RecordLimits { written_singly: WRITTEN_SINGLY_MAX, folded: FOLD_PARTS_MAX }
    }
}

/// Bytes that one read of a log fetches, at most, where it joins several pieces, and one append where it
/// joins several regions.
pub const GROUP_BYTES_MAX: u64 = 4 << 20;
/// Places of a log that one read fetches, at most.
pub const GROUPS_AT_ONCE: usize = 1024;
/// Pieces of a read that are gathered at once, and regions of a write that go to a log by one append.
pub const RUNS_AT_ONCE: usize = 1 << 16;
/// Logs of one container that are open for reading at the same time, at most.
pub const READERS_MAX: usize = 128;
/// Containers in the bin that a process looks at when it opens the directory.
pub const LEFTOVERS_LOOKED_AT_MAX: usize = 256;
/// Folders of logs in a container.
pub const FOLDERS: u32 = 32;
/// Containers whose state is kept after their last close.
pub const IDLE_STATES_MAX: usize = 256;
/// Directories known to be containers or not.
pub const KINDS_KNOWN_MAX: usize = 65_536;
/// Logs read at the same time at an open.
pub const LOADS_AT_ONCE: usize = 16;
/// Bytes read of an index log at once.
pub const LOAD_BYTES: usize = 1 << 20;
/// The last writer that closes flattens the index, where there are so many logs more than at the last time.
pub const FLATTEN_LOGS_MIN: usize = 16;
/// Bytes of a flattened index, at most.
pub const FLAT_BYTES_MAX: u64 = 64 << 20;
/// Closed logs from which on the last writer that closes makes one of them, if they are small.
pub const FOLD_LOGS_MIN: usize = 12;
/// Bytes of a log up to which it counts as small.
pub const FOLD_LOG_BYTES: u64 = 256 << 10;
/// Stored bytes from which on they are folded, where two thirds of them are dead.
pub const FOLD_STORED_MIN: u64 = 16 << 20;
/// Bytes of a file up to which it is folded at a close.
pub const FOLD_LIVE_MAX: u64 = 256 << 20;
/// Parts of a file that are folded, at most.
pub const FOLD_PARTS_MAX: usize = 65_536;
/// Bytes of index records that all members of a group together send in one round of an open.
pub const ROUND_BYTES_MAX: usize = 16 << 20;
/// Bytes that each member sends in such a round, at least.
pub const ROUND_PART_MIN: usize = 4 << 10;
/// Bytes of a member's index log up to which a close by all members flattens the index.
pub const FLATTEN_LOG_BYTES_MAX: u64 = 64 << 10;
/// Directories with a layout that is followed which are open at the same time, beside those in use.
pub const DOMAINS_OPEN_MAX: usize = 64;
/// Such directories that a process knows.
pub const FOLLOWED_ROOTS_MAX: usize = 65_536;
/// Objects in them that a process knows.
pub const FOLLOWED_OBJECTS_MAX: usize = 262_144;
