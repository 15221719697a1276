//! The operations: what a client, a peer or an administrator may ask, and what is answered. One operation has one name.
//!
//! Handles may be [`Handle::CURRENT`]: the object that the last operation of the same group looked up, made or opened.

use crate::attr::{Attr, Kind, SetAttr, StreamFacts};
use crate::capability::{Capability, Rights};
use crate::cluster::{ClusterMap, Roles};
use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::layout::{Layout, Share, Template};
use crate::tx::{Action, Decision};
use crate::wire::{Blob, Many, Name, Text, wire_enum, wire_struct};
use crate::{Generation, Handle, Status, TxId, limits};
use shoal_pattern::Pattern;

/// Target of a symbolic link, or a path.
pub type PathBytes = Blob<{ limits::PATH_BYTES_MAX }>;
/// Name of an extended attribute.
pub type XattrName = Blob<{ limits::XATTR_NAME_BYTES_MAX }>;
/// Value of an extended attribute.
pub type XattrValue = Blob<{ limits::XATTR_VALUE_BYTES_MAX }>;
/// A key or value of the store's rows, for fsck.
pub type RowBytes = Blob<{ 2 * limits::XATTR_VALUE_BYTES_MAX }>;

wire_struct! {
    /// Who makes a new object, and how it is to look.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Owner {
        /// Permission bits, the umask already applied.
        pub mode: u32,
        /// Owner.
        pub uid: u32,
        /// Group (a set-group-id directory's group takes its place).
        pub gid: u32,
    }
}

wire_struct! {
    /// Which handles of possibly removed objects the client holds open: they become orphans of its session instead of
    /// being removed.
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct Held {
        /// The handles, if they are few.
        pub handles: Many<Handle, { limits::HELD_MAX }>,
        /// They are not few: treat any as held (the client releases what it does not hold).
        pub any: bool,
    }
}

impl Held {
    /// Whether `handle` is (or may be) held.
    pub fn holds(&self, handle: Handle) -> bool {
        self.any || self.handles.contains(&handle)
    }
}

wire_struct! {
    /// A region of packed bytes of a pattern, of which one server's share is moved.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Transfer {
        /// The stream: a stuffed metafile or a datafile.
        pub stream: Handle,
        /// The generation the client knows.
        pub generation: Generation,
        /// The right to do it; `None` only on the current object, opened with the right in the same group.
        pub capability: Option<Capability>,
        /// The file pattern, in the file's logical bytes.
        pub pattern: Pattern,
        /// First packed byte of the window.
        pub window_from: u64,
        /// Packed bytes of the window.
        pub window_len: u64,
        /// Which share of it this stream holds.
        pub share: Share,
    }
}

wire_struct! {
    /// An entry of a directory.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Entry {
        /// Its name.
        pub name: Name,
        /// What it leads to.
        pub handle: Handle,
        /// The kind of that.
        pub kind: Kind,
        /// Its place: the 63-bit keyed hash of the name. Keeps its meaning whatever else changes.
        pub place: u64,
        /// Attributes, if asked for and on this server.
        pub attr: Option<Attr>,
    }
}

wire_struct! {
    /// Where a listing goes on: behind (place, name).
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct Place {
        /// The hash.
        pub hash: u64,
        /// The name (empty: behind all of that hash).
        pub name: Blob<{ limits::NAME_BYTES_MAX }>,
    }
}

wire_enum! {
    /// An operation.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Op {
        // Namespace.
        /// Walk `path` from `dir` as far as this server can; the last object reached becomes current.
        Lookup = 1 "lookup" { dir: Handle, path: Many<Name, { limits::PATH_COMPONENTS_MAX }>, },
        /// Attributes.
        Getattr = 2 "getattr" { object: Handle, },
        /// Change attributes.
        Setattr = 3 "setattr" { object: Handle, set: SetAttr, },
        /// Make a regular file and open it with `open`; becomes current.
        Create = 4 "create" {
            dir: Handle, name: Name, owner: Owner,
            /// Fail if the name exists.
            exclusive: bool,
            open: Rights,
            template: Option<Template>,
        },
        /// Make a FIFO, socket or device (or a regular file without opening it).
        Mknod = 5 "mknod" { dir: Handle, name: Name, owner: Owner, kind: Kind, rdev: u64, },
        /// Make a symbolic link.
        Symlink = 6 "symlink" { dir: Handle, name: Name, owner: Owner, target: PathBytes, },
        /// Make a directory.
        Mkdir = 7 "mkdir" { dir: Handle, name: Name, owner: Owner, },
        /// Remove an entry that is no directory.
        Unlink = 8 "unlink" { dir: Handle, name: Name, held: Held, },
        /// Remove an empty directory.
        Rmdir = 9 "rmdir" { dir: Handle, name: Name, },
        /// Move an entry. Sent to the server of `to_dir`.
        Rename = 10 "rename" {
            from_dir: Handle, from_name: Name, to_dir: Handle, to_name: Name,
            /// Fail if the target exists (`RENAME_NOREPLACE`).
            no_replace: bool,
            /// Swap the two entries (`RENAME_EXCHANGE`).
            exchange: bool,
            held: Held,
        },
        /// A further name for a file. Sent to the server of `dir`.
        Link = 11 "link" { object: Handle, dir: Handle, name: Name, },
        /// Target of a symbolic link.
        Readlink = 12 "readlink" { object: Handle, },
        /// Entries of a directory behind a place.
        Readdir = 13 "readdir" {
            dir: Handle, after: Option<Place>,
            /// Bytes of entries at most.
            bytes_max: u32,
            /// With attributes (readdirplus).
            plus: bool,
        },
        /// Value of an extended attribute.
        Getxattr = 14 "getxattr" { object: Handle, name: XattrName, },
        /// Set an extended attribute.
        Setxattr = 15 "setxattr" {
            object: Handle, name: XattrName, value: XattrValue,
            /// Fail if it exists.
            create: bool,
            /// Fail if it does not.
            replace: bool,
        },
        /// Names of the extended attributes.
        Listxattr = 16 "listxattr" { object: Handle, },
        /// Remove an extended attribute.
        Removexattr = 17 "removexattr" { object: Handle, name: XattrName, },
        /// Check that the object is there and get a capability; becomes current.
        Open = 18 "open" { object: Handle, rights: Rights, },
        /// The client holds an orphan no longer: remove it.
        Release = 19 "release" { object: Handle, },
        /// Space of this server's part of the file system.
        Statfs = 20 "statfs" { },
        /// Set the template of a directory's new files, or of an empty file.
        Setlayout = 21 "setlayout" { object: Handle, template: Template, },

        // Data.
        /// Read; the data comes as bulk.
        Read = 30 "read" { transfer: Transfer, },
        /// Write `len` bytes of the request's bulk, in order.
        Write = 31 "write" { transfer: Transfer, len: u32, },
        /// Append `len` bytes of the request's bulk at the end of the file. Sent to the metafile's server.
        Append = 32 "append" { object: Handle, capability: Option<Capability>, len: u32, },
        /// Set the size. Sent to the metafile's server. Without a capability: by the path (`truncate(2)`), checked by the
        /// caller.
        Truncate = 33 "truncate" { object: Handle, size: u64, kill_privileges: bool, },
        /// Reserve space or make a hole in one stream.
        Allocate = 34 "allocate" {
            stream: Handle, generation: Generation, capability: Option<Capability>,
            /// First physical byte.
            from: u64,
            /// Bytes.
            len: u64,
            mode: Allocation,
        },
        /// Make a stream durable.
        Fsync = 35 "fsync" { stream: Handle, },
        /// Facts of streams.
        Streamstat = 36 "streamstat" { stream: Handle, },
        /// Lay a stuffed file out over its datafiles (idempotent). Sent to the metafile's server.
        Unstuff = 37 "unstuff" { object: Handle, },

        // Between servers.
        /// Draw handles of the server's own (never used twice; those not used are lost).
        Draw = 50 "draw" { count: u16, },
        /// Read one entry of a directory, with its directory's attributes (a fact for planning).
        Entry = 51 "entry" { dir: Handle, name: Name, },
        /// Validate and durably lock.
        Prepare = 52 "prepare" { tx: TxId, actions: Many<Action, { limits::ACTIONS_MAX }>, },
        /// Carry out, or forget, what was prepared.
        Finish = 53 "finish" { tx: TxId, decision: Decision, },
        /// What was decided? (asked by a participant in doubt)
        Outcome = 54 "outcome" { tx: TxId, },
        /// Remove datafiles whose file is gone.
        Reap = 55 "reap" { owner: Handle, datafiles: Many<Handle, { limits::HANDLES_MAX }>, },

        // Management.
        /// Nothing: measures the way.
        Ping = 70 "ping" { },
        /// The cluster's map.
        Map = 71 "map" { },
        /// Take a newer map.
        Setmap = 72 "setmap" { map: ClusterMap, },
        /// Add a server to the running file system. Sent to server 0.
        Addserver = 73 "addserver" { addresses: Many<Text, 8>, roles: Roles, },
        /// State and counts of this server, as JSON.
        Status = 74 "status" { },
        /// Rows of the store behind a key, for fsck.
        Rows = 75 "rows" {
            prefix: RowBytes, after: RowBytes,
            /// Rows at most.
            limit: u32,
        },
        /// A repair found by fsck: actions carried out as one local transaction.
        Repair = 76 "repair" { actions: Many<Action, { limits::ACTIONS_MAX }>, },
        /// Change the sync modes of this server's part: (metadata, data), as their words.
        Setsync = 77 "setsync" { metadata: Text, data: Text, },
        /// Make everything applied so far durable.
        Sync = 78 "sync" { },
    }
}

/// What [`Op::Allocate`] does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocation {
    /// Reserve; the size may grow.
    Extend,
    /// Reserve; the size stays.
    KeepSize,
    /// Make a hole; the size stays.
    Punch,
    /// Zero; the size may grow.
    Zero,
    /// Zero; the size stays.
    ZeroKeepSize,
}

impl Codec for Allocation {
    fn encode(&self, w: &mut Writer) {
        w.put_u8(match self {
            Allocation::Extend => 1,
            Allocation::KeepSize => 2,
            Allocation::Punch => 3,
            Allocation::Zero => 4,
            Allocation::ZeroKeepSize => 5,
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.get_u8()? {
            1 => Allocation::Extend,
            2 => Allocation::KeepSize,
            3 => Allocation::Punch,
            4 => Allocation::Zero,
            5 => Allocation::ZeroKeepSize,
            _ => return Err(DecodeError::Invalid("allocation")),
        })
    }
}

wire_enum! {
    /// The answer to one operation.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Answer {
        /// Done, nothing to say.
        Done = 1 "done" { },
        /// To lookup: how many components were resolved, and what was reached. Fewer than asked: go on at the server of
        /// `handle` (a directory of another server), or follow the symbolic link `attr` is of.
        Looked = 2 "looked" {
            resolved: u16, handle: Handle, kind: Kind,
            /// Its attributes, if it is on this server.
            attr: Option<Attr>,
        },
        /// Attributes.
        Attr = 3 "attr" { attr: Attr, },
        /// A new (or found) object, opened.
        Made = 4 "made" { attr: Attr, capability: Option<Capability>, created: bool, },
        /// A target or value.
        Bytes = 5 "bytes" { bytes: XattrValue, },
        /// Entries; `end` at the end of the directory.
        Entries = 6 "entries" { entries: Many<Entry, { limits::READDIR_ENTRIES_MAX }>, end: bool, },
        /// What was removed: the last name of an object that is kept as an orphan because it is held.
        Removed = 7 "removed" { handle: Handle, kind: Kind, orphaned: bool, },
        /// Data of `len` bytes in the reply's bulk, in order; the stream's facts at that moment.
        Data = 8 "data" { len: u32, facts: StreamFacts, },
        /// Facts of a stream after a change.
        Facts = 9 "facts" { facts: StreamFacts, },
        /// Where an append went (first logical byte), and the size after it.
        Appended = 10 "appended" { offset: u64, size: u64, },
        /// Durable.
        Synced = 11 "synced" { },
        /// The layout.
        Laid = 12 "laid" { layout: Layout, },
        /// Space in bytes, objects held.
        Space = 13 "space" { total: u64, available: u64, objects: u64, },
        /// Handles.
        Handles = 14 "handles" { handles: Many<Handle, { limits::HANDLES_MAX }>, },
        /// To entry: the directory's attributes, and what the name leads to, if anything.
        Fact = 15 "fact" { dir: Attr, entry: Option<Entry>, },
        /// What was decided; `None`: not yet.
        Decided = 16 "decided" { decision: Option<Decision>, },
        /// The map.
        Map = 17 "map" { map: ClusterMap, },
        /// JSON text as bytes.
        Json = 18 "json" { json: RowBytes, },
        /// Rows.
        Rows = 19 "rows" { rows: Many<Row, 4096>, end: bool, },
    }
}

wire_struct! {
    /// A row of the store.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Row {
        /// Key.
        pub key: RowBytes,
        /// Value.
        pub value: RowBytes,
    }
}

impl Op {
    /// Whether it changes something and so needs a slot of the session.
    pub fn changes(&self) -> bool {
        match self {
            Op::Lookup { .. }
            | Op::Getattr { .. }
            | Op::Readlink { .. }
            | Op::Readdir { .. }
            | Op::Getxattr { .. }
            | Op::Listxattr { .. }
            | Op::Open { .. }
            | Op::Statfs {}
            | Op::Read { .. }
            | Op::Fsync { .. }
            | Op::Streamstat { .. }
            | Op::Draw { .. }
            | Op::Entry { .. }
            | Op::Outcome { .. }
            | Op::Ping {}
            | Op::Map {}
            | Op::Status {}
            | Op::Rows { .. }
            | Op::Sync {} => false,
            // Idempotent by what they say: a transaction's id, a handle that is never used twice, an epoch.
            Op::Prepare { .. }
            | Op::Finish { .. }
            | Op::Reap { .. }
            | Op::Setmap { .. }
            | Op::Setsync { .. } => false,
            Op::Setattr { .. }
            | Op::Create { .. }
            | Op::Mknod { .. }
            | Op::Symlink { .. }
            | Op::Mkdir { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::Link { .. }
            | Op::Setxattr { .. }
            | Op::Removexattr { .. }
            | Op::Release { .. }
            | Op::Setlayout { .. }
            | Op::Write { .. }
            | Op::Append { .. }
            | Op::Allocate { .. }
            | Op::Truncate { .. }
            | Op::Unstuff { .. }
            | Op::Addserver { .. }
            | Op::Repair { .. } => true,
        }
    }

    /// Whether only a peer server may ask it.
    pub fn is_peers(&self) -> bool {
        matches!(
            self,
            Op::Draw { .. }
                | Op::Prepare { .. }
                | Op::Finish { .. }
                | Op::Outcome { .. }
                | Op::Reap { .. }
                | Op::Setmap { .. }
        )
    }
}

/// The result of one operation of a group.
pub type OpResult = Result<Answer, Status>;
