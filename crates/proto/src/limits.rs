//! Every limit of the wire, in one place. Compile-time assertions hold the relations between them.

/// Longest name of a directory entry, in bytes (POSIX `NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path, and longest target of a symbolic link, in bytes (POSIX `PATH_MAX` less its NUL).
pub const PATH_BYTES_MAX: usize = 4095;
/// Most components resolved by one lookup.
pub const PATH_COMPONENTS_MAX: usize = PATH_BYTES_MAX / 2 + 1;
/// Longest name of an extended attribute.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Longest value of an extended attribute.
pub const XATTR_VALUE_BYTES_MAX: usize = 65_536;
/// Most extended attributes of one object, in bytes of their names as `listxattr` gives them.
pub const XATTR_LIST_BYTES_MAX: usize = 65_536;
/// Most hard links of a file.
pub const LINKS_MAX: u32 = 65_000;
/// Largest file, in bytes.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Groups of one compound.
pub const GROUPS_MAX: usize = 128;
/// Operations of one group.
pub const GROUP_OPS_MAX: usize = 8;
/// Data that rides in the request or reply itself.
pub const EAGER_BYTES_MAX: usize = 16 * 1024;
/// Data of one chunk of a flow.
pub const FLOW_CHUNK_BYTES: usize = 256 * 1024;
/// Chunks of one flow under way at once.
pub const FLOW_CHUNKS_MAX: usize = 8;
/// Data one connection may have under way (its credit).
pub const CREDIT_BYTES: usize = FLOW_CHUNK_BYTES * FLOW_CHUNKS_MAX;
/// Largest body of a frame (without bulk data).
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// Largest bulk data of a frame.
pub const BULK_BYTES_MAX: usize = 1024 * 1024;
/// Pieces (records, rows, strips) that a server visits in one transfer's pattern to find its share.
pub const TRANSFER_STEPS_MAX: u64 = 4 * 1024 * 1024;
/// Packed bytes of one transfer that is answered by pieces.
pub const TRANSFER_BYTES_MAX: u64 = 1 << 40;
/// Slots of one session.
pub const SLOTS_MAX: u16 = 256;
/// Sessions of one client on one server. A client has one; it begins a further one after it lost the first,
/// or the reply to its handshake.
pub const CLIENT_SESSIONS_MAX: usize = 16;
/// Largest reply of one group that is kept with a session's slot for a retry.
pub const KEPT_REPLY_BYTES_MAX: usize = 4096;
/// Requests of one connection that a server reads before it replies to the first.
pub const REQUESTS_UNDER_WAY_MAX: usize = 1024;
/// Bytes of directory entries in one reply.
pub const READDIR_BYTES_MAX: usize = 512 * 1024;
/// Entries in one reply.
pub const READDIR_ENTRIES_MAX: usize = 16_384;
/// Servers of one file system.
pub const SERVERS_MAX: usize = 1024;
/// Above the position of every journal: a larger position on the wire is refused.
pub const POSITION_MAX: u64 = 1 << 56;
/// Stores of one server that were given up for good.
pub const RETIRED_MAX: usize = 64;
/// Handles that one store may give.
pub const STORE_HANDLES: u64 = 1 << 40;
/// Datafiles of one file.
pub const WIDTH_MAX: usize = 256;
/// Subfiles of one forked file: one transaction makes all of them.
pub const SUBFILES_MAX: usize = 512;
/// Handles that a client names as held open, with an unlink or rename.
pub const HELD_MAX: usize = 256;
/// Mount keys with names, revoked ones included.
pub const MOUNT_KEYS_MAX: usize = 1024;
/// Bytes of a mount key's name.
pub const KEY_NAME_BYTES_MAX: usize = 64;
/// Ranges of locks that one client may hold or wait for on one server.
pub const CLIENT_LOCKS_MAX: usize = 16_384;
/// Locks that one message claims again after a restart of their server.
pub const LOCK_CLAIMS_MAX: usize = 256;
/// How long a server may keep the reply to a request for a lock, in milliseconds.
pub const LOCK_WAIT_MS_MAX: u32 = 30_000;
/// Actions of one participant of a transaction.
pub const ACTIONS_MAX: usize = 1024;
/// Transactions that a participant remembers as carried out; at a sixteenth of it, it asks their
/// coordinators at once.
pub const ENDED_MAX: usize = 65_536;
/// Handles drawn or reaped by one message.
pub const HANDLES_MAX: usize = 1024;
/// Precreated datafiles of one message: their bits are one row of their server's.
pub const BATCH_MAX: usize = 1024;
/// Most entries with which a directory may be split: one transaction moves all of them.
pub const SPLIT_ENTRIES_MAX: usize = 16_384;
/// Most bytes of the entries that one shard gets by a split: a message's body, and a row that `fsck` can
/// read.
pub const SHARD_BYTES_MAX: usize = 768 * 1024;
/// Largest key or value of the store's rows in a message.
pub const ROW_BYTES_MAX: usize = SHARD_BYTES_MAX + 64 * 1024;
/// Smallest and largest strip, in bytes.
pub const STRIP_BYTES_MIN: u64 = 4096;
/// See [`STRIP_BYTES_MIN`].
pub const STRIP_BYTES_MAX: u64 = 1 << 30;

const _: () = assert!(EAGER_BYTES_MAX <= FLOW_CHUNK_BYTES && FLOW_CHUNK_BYTES <= BULK_BYTES_MAX);
const _: () = assert!(
    GROUPS_MAX * EAGER_BYTES_MAX <= 2 * BULK_BYTES_MAX,
    "a compound of eager writes is cut in two at worst"
);
const _: () = assert!((RETIRED_MAX as u64 + 1) * STORE_HANDLES <= crate::Handle::COUNTER_MAX + 1);
const _: () = assert!(READDIR_BYTES_MAX <= BODY_BYTES_MAX);
const _: () =
    assert!(SHARD_BYTES_MAX < ROW_BYTES_MAX && ROW_BYTES_MAX + KEPT_REPLY_BYTES_MAX < BODY_BYTES_MAX);
const _: () = assert!(2 * XATTR_VALUE_BYTES_MAX <= ROW_BYTES_MAX);
const _: () = assert!(XATTR_VALUE_BYTES_MAX < BODY_BYTES_MAX);
const _: () = assert!(WIDTH_MAX <= SERVERS_MAX);
const _: () = assert!(SUBFILES_MAX < ACTIONS_MAX && SUBFILES_MAX <= SPLIT_ENTRIES_MAX);
