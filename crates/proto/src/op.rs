//! The operations: requests of a client, a peer or an administrator, and their answers. One operation has
//! one name.
//!
//! Handles may be [`Handle::CURRENT`]: the object that the last operation of the same group looked up, made
//! or opened.

use crate::attr::{Attr, Kind, Move, SetAttr, StreamFacts};
use crate::capability::{Capability, Rights};
use crate::cluster::{ClusterMap, Roles};
use crate::layout::{Layout, Share, Template};
use crate::locks::{LockClaim, LockHolder, LockKind, LockOwner, LockRange, LockState};
use crate::shards::{PlaceKey, Shards};
use crate::tx::{Action, Decision};
use crate::wire::{Blob, Many, Name, Text, wire_choice, wire_enum, wire_struct};
use crate::{ChangeCount, ClientId, Generation, Handle, Status, TxId, limits};
use shoal_pattern::Pattern;

/// Target of a symbolic link, or a path.
pub type PathBytes = Blob<{ limits::PATH_BYTES_MAX }>;
/// Name of an extended attribute.
pub type XattrName = Blob<{ limits::XATTR_NAME_BYTES_MAX }>;
/// Value of an extended attribute.
pub type XattrValue = Blob<{ limits::XATTR_VALUE_BYTES_MAX }>;
/// A key or value of the store's rows, for fsck.
pub type RowBytes = Blob<{ limits::ROW_BYTES_MAX }>;

wire_struct! {
    /// Owner and mode of a new object.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Owner {
        /// Permission bits, the umask already applied.
        pub mode: u32,
        /// Owner.
        pub uid: u32,
        /// Group (a set-group-id directory's group overrides it).
        pub gid: u32,
    }
}

wire_struct! {
    /// Handles of possibly removed objects that the client holds open: they become orphans of its session
    /// instead of being removed.
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct Held {
        /// The handles, if they are few.
        pub handles: Many<Handle, { limits::HELD_MAX }>,
        /// The handles are too many to list: treat any as held (the client releases those it does not
        /// hold).
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
    /// A region of packed bytes of a pattern; the request moves one server's share of it.
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
        /// Share of the pattern that this stream holds.
        pub share: Share,
    }
}

wire_struct! {
    /// An entry of a directory.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct Entry {
        /// Its name.
        pub name: Name,
        /// The object it leads to.
        pub handle: Handle,
        /// The object's kind.
        pub kind: Kind,
        /// Its place: the 63-bit keyed hash of the name. Other changes of the directory do not change it.
        pub place: u64,
        /// Attributes, if requested and on this server.
        pub attr: Option<Attr>,
    }
}

wire_struct! {
    /// The position from which a listing continues: after (place, name).
    #[derive(Clone, PartialEq, Eq, Debug, Default)]
    pub struct Place {
        /// The hash.
        pub hash: u64,
        /// The name (empty: after all names of that hash).
        pub name: Blob<{ limits::NAME_BYTES_MAX }>,
    }
}

/// The terms of an operation: all that clients and servers both know of it, besides its fields.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// It changes something, and so needs a slot of the session.
    pub changes: bool,
    /// Only a peer server may send it.
    pub is_peers: bool,
    /// Only servers, and clients that hold the admin key, may send it.
    pub is_management: bool,
    /// The request states an expectation.
    pub expects: bool,
    /// The entry it is about, if the entry's place decides which shard of the directory gets the request.
    pub entry: Option<(Handle, &'a Name)>,
    /// The objects that it changes, as far as an fsync of them must find that the change was lost.
    pub changed: [Option<Handle>; 2],
}

const READ: Terms<'static> = Terms {
    changes: false,
    is_peers: false,
    is_management: false,
    expects: false,
    entry: None,
    changed: [None, None],
};
/// A change that needs no slot: idempotent by its content (a transaction's id, a handle that is never used
/// twice, a sequence, an epoch, a count).
const IDEMPOTENT: Terms<'static> = READ;
const CHANGE: Terms<'static> = Terms { changes: true, ..READ };

impl<'a> Terms<'a> {
    fn between_servers(self) -> Terms<'a> {
        Terms { is_peers: true, ..self }
    }

    fn for_management(self) -> Terms<'a> {
        Terms { is_management: true, ..self }
    }

    fn expecting(self) -> Terms<'a> {
        Terms { expects: true, ..self }
    }

    fn of_entry(self, entry: Option<(Handle, &'a Name)>) -> Terms<'a> {
        Terms { entry, ..self }
    }

    fn of(self, object: Handle) -> Terms<'a> {
        Terms { changed: [Some(object), None], ..self }
    }

    /// The files of many groups; a change through an open file is noted where that is known.
    fn of_current(self, object: Handle) -> Terms<'a> {
        Terms { changed: [(object == Handle::CURRENT).then_some(object), None], ..self }
    }

    fn at(self, dir: Handle, name: &'a Name) -> Terms<'a> {
        self.of(dir).of_entry(Some((dir, name)))
    }

    fn also_of(self, from: Handle) -> Terms<'a> {
        let [to, _] = self.changed;
        Terms { changed: [Some(from), to.filter(|to| *to != from)], ..self }
    }
}

/// The enum of operations: a [`wire_enum!`] in which the terms of each follow its fields.
macro_rules! operations {
    ($(#[$doc:meta])* pub enum $name:ident {
        $($(#[$vdoc:meta])* $variant:ident = $tag:literal $word:literal {
            $($(#[$fdoc:meta])* $field:ident: $ty:ty,)*
        } => $terms:expr,)*
    }) => {
        wire_enum! {
            $(#[$doc])*
            pub enum $name {
                $($(#[$vdoc])* $variant = $tag $word { $($(#[$fdoc])* $field: $ty,)* },)*
            }
        }

        impl $name {
            /// Its terms.
            #[inline]
            #[allow(unused_variables, reason = "the terms of most depend on few of their fields")]
            pub fn terms(&self) -> Terms<'_> {
                match self { $($name::$variant { $($field,)* } => $terms,)* }
            }
        }
    };
}

operations! {
    /// An operation. After its fields come its [terms](Terms).
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Op {
        // Namespace.
        /// Walk `path` from `dir` as far as this server can; the last object reached becomes current.
        Lookup = 1 "lookup" {
            dir: Handle, path: Many<Name, { limits::PATH_COMPONENTS_MAX }>,
        } => READ.of_entry(path.first().map(|name| (*dir, name))),
        /// Attributes.
        Getattr = 2 "getattr" { object: Handle, } => READ,
        /// Change attributes.
        Setattr = 3 "setattr" { object: Handle, set: SetAttr, } => CHANGE.of(*object),
        /// Make a regular file and open it with `open`; becomes current.
        Create = 4 "create" {
            dir: Handle, name: Name, owner: Owner,
            /// Fail if the name exists.
            exclusive: bool,
            open: Rights,
            template: Option<Template>,
        } => CHANGE.at(*dir, name),
        /// Make a FIFO, socket or device (or a regular file without opening it).
        Mknod = 5 "mknod" {
            dir: Handle, name: Name, owner: Owner, kind: Kind, rdev: u64,
        } => CHANGE.at(*dir, name),
        /// Make a symbolic link.
        Symlink = 6 "symlink" {
            dir: Handle, name: Name, owner: Owner, target: PathBytes,
        } => CHANGE.at(*dir, name),
        /// Make a directory.
        Mkdir = 7 "mkdir" { dir: Handle, name: Name, owner: Owner, } => CHANGE.at(*dir, name),
        /// Remove an entry that is no directory.
        Unlink = 8 "unlink" { dir: Handle, name: Name, held: Held, } => CHANGE.at(*dir, name),
        /// Remove an empty directory.
        Rmdir = 9 "rmdir" { dir: Handle, name: Name, } => CHANGE.at(*dir, name),
        /// Move an entry. Sent to the server of `to_dir`.
        Rename = 10 "rename" {
            from_dir: Handle, from_name: Name, to_dir: Handle, to_name: Name,
            /// Fail if the target exists (`RENAME_NOREPLACE`).
            no_replace: bool,
            /// Swap the two entries (`RENAME_EXCHANGE`).
            exchange: bool,
            held: Held,
        } => CHANGE.at(*to_dir, to_name).also_of(*from_dir),
        /// A further name for a file. Sent to the server of `dir`.
        Link = 11 "link" { object: Handle, dir: Handle, name: Name, } => CHANGE.at(*dir, name),
        /// Target of a symbolic link.
        Readlink = 12 "readlink" { object: Handle, } => READ,
        /// Entries of a directory after a position.
        Readdir = 13 "readdir" {
            dir: Handle, after: Option<Place>,
            /// Most bytes of entries, and of their contents.
            bytes_max: u32,
            /// With attributes (readdirplus).
            plus: bool,
            /// With the contents of small files of at most so many bytes, if the reply has attributes; 0:
            /// none.
            data_max: u32,
            /// The client knows the directory's shards: return entries of this server's shard, to its end.
            in_shard: bool,
        } => READ,
        /// Value of an extended attribute.
        Getxattr = 14 "getxattr" { object: Handle, name: XattrName, } => READ,
        /// Set an extended attribute.
        Setxattr = 15 "setxattr" {
            object: Handle, name: XattrName, value: XattrValue,
            /// Fail if it exists.
            create: bool,
            /// Fail if it does not.
            replace: bool,
        } => CHANGE.of(*object),
        /// Names of the extended attributes.
        Listxattr = 16 "listxattr" { object: Handle, } => READ,
        /// Remove an extended attribute.
        Removexattr = 17 "removexattr" { object: Handle, name: XattrName, } => CHANGE.of(*object),
        /// Check that the object is there and get a capability; becomes current.
        Open = 18 "open" { object: Handle, rights: Rights, } => READ,
        /// The client no longer holds an orphan: remove it.
        Release = 19 "release" { object: Handle, } => CHANGE,
        /// The client still has these objects open. Objects without a name are kept for this client too.
        Hold = 22 "hold" { objects: Many<Handle, { limits::HELD_MAX }>, } => CHANGE,
        /// Space of this server's part of the file system.
        Statfs = 20 "statfs" { } => READ,
        /// Set the template of a directory's new files, or of an empty file.
        Setlayout = 21 "setlayout" { object: Handle, template: Template, } => CHANGE.of(*object),
        /// Make a forked file: the directory, and in one transaction with it all its subfiles.
        Mkforked = 28 "mkforked" {
            dir: Handle, name: Name, owner: Owner,
            /// How many subfiles.
            subfiles: u16,
            /// Their servers, in turn; none: all that hold metadata and data, beginning at any.
            servers: Many<crate::ServerId, { limits::SUBFILES_MAX }>,
            /// Replace the empty directory of this name.
            replace: bool,
        } => CHANGE.at(*dir, name),
        /// Remove a forked file with all its subfiles, none of which may have forks. Sent to the server of
        /// the file. Since version 6.
        Rmforked = 29 "rmforked" {
            dir: Handle, name: Name,
            /// The file that the name must lead to.
            object: Handle,
        } => CHANGE.of(*object).also_of(*dir),

        // Locks. They need no slot: a request that is repeated finds what it left.
        /// Lock a range of a file, or ask again for the lock of the same `call`.
        Lock = 23 "lock" {
            object: Handle, owner: LockOwner, range: LockRange, kind: LockKind, pid: u32,
            /// Numbers the client's calls for locks: a call that waits keeps its place in the queue.
            call: u64,
            /// Wait in the queue while another owner is in the way; else refuse.
            wait: bool,
            /// How long the reply may be kept; the place in the queue is kept longer.
            wait_ms: u32,
        } => READ,
        /// Give a range back, and what the owner waits for there stays.
        Unlock = 24 "unlock" { object: Handle, owner: LockOwner, range: LockRange, } => READ,
        /// The first lock in the way of this one.
        Getlk = 25 "getlk" {
            object: Handle, owner: LockOwner, range: LockRange, kind: LockKind,
        } => READ,
        /// After a new connection: the client has these locks. `last`: it has no others here.
        Reclaim = 26 "reclaim" {
            claims: Many<LockClaim, { limits::LOCK_CLAIMS_MAX }>, last: bool,
        } => READ,
        /// The call waits no longer: leave the queue. The lock may have been granted before that.
        Unwait = 27 "unwait" {
            object: Handle, owner: LockOwner, range: LockRange, kind: LockKind, call: u64,
        } => READ,

        // Data.
        /// Read; the data comes as bulk.
        Read = 30 "read" { transfer: Transfer, } => READ,
        /// Write `len` bytes of the request's bulk, in order.
        Write = 31 "write" { transfer: Transfer, len: u32, } => CHANGE.of_current(transfer.stream),
        /// Append `len` bytes of the request's bulk at the end of the file. Sent to the metafile's server.
        Append = 32 "append" {
            object: Handle, capability: Option<Capability>, len: u32,
            /// The client knows that the file is laid out over servers.
            laid_out: bool,
        } => CHANGE,
        /// Set the size. Sent to the metafile's server. Without a capability: by the path (`truncate(2)`),
        /// checked by the caller.
        Truncate = 33 "truncate" { object: Handle, size: u64, kill_privileges: bool, } => CHANGE.of(*object),
        /// Reserve space or make a hole in one stream.
        Allocate = 34 "allocate" {
            stream: Handle, generation: Generation, capability: Option<Capability>,
            /// First physical byte.
            from: u64,
            /// Bytes.
            len: u64,
            mode: Allocation,
        } => CHANGE,
        /// Make a stream durable.
        Fsync = 35 "fsync" {
            stream: Handle,
            /// Of a metafile: the generation that the client knows. Another one is `StaleLayout`, because
            /// the file's data may lie in datafiles that the client does not know. 0: not compared
            /// (datafiles, directories).
            generation: Generation,
        } => READ,
        /// Facts of streams.
        Streamstat = 36 "streamstat" { stream: Handle, } => READ,
        /// Drop what the server has of a stream in memory and on its disk too: blocks, and the kernel's
        /// pages. Since version 6.
        Dropcache = 38 "dropcache" { stream: Handle, } => READ,
        /// Lay a stuffed file out over its datafiles (idempotent). Sent to the metafile's server.
        Unstuff = 37 "unstuff" { object: Handle, } => CHANGE.of(*object),

        // Steps of operations that the client drives itself, one a message, if the switch `compound` is
        // off.
        /// Make a metafile without a name: an orphan of the session until it is entered at (`dir`, `name`).
        /// The paper's augmented create: with its first strip, or with precreated datafiles.
        Createmeta = 40 "createmeta" {
            dir: Handle, name: Name, owner: Owner, open: Rights, template: Template,
        } => CHANGE,
        /// Make a datafile for a metafile: an orphan of the session until the metafile lists it.
        Createdata = 41 "createdata" { owner: Handle, } => CHANGE,
        /// A metafile without a name lists its datafiles.
        Laydata = 42 "laydata" { object: Handle, datafiles: Many<Handle, { limits::WIDTH_MAX }>, } => CHANGE,
        /// Enter an object into a directory.
        Crdirent = 43 "crdirent" { dir: Handle, name: Name, object: Handle, kind: Kind, } => CHANGE.of(*dir),
        /// Take an entry out of its directory: its object has a link too many until it is removed or
        /// settled.
        Rmdirent = 44 "rmdirent" { dir: Handle, name: Name, } => CHANGE.of(*dir),
        /// Remove an object whose only name was removed (`held`: keep it as an orphan of the client).
        Removemeta = 45 "removemeta" { object: Handle, held: bool, } => CHANGE,
        /// Remove a datafile of a metafile that was removed.
        Removedata = 46 "removedata" { owner: Handle, datafile: Handle, } => CHANGE,
        /// Subtract the link of a removed entry, in one transaction with the end of its row. Sent to the
        /// entry's server.
        Settle = 47 "settle" {
            object: Handle, ticket: Handle,
            /// Keep the object as an orphan of the client, if the link was its last.
            held: bool,
        } => CHANGE,

        // Between servers.
        /// Draw handles of the server's own (never used twice; unused ones are lost).
        Draw = 50 "draw" { count: u16, } => READ.between_servers(),
        /// Read one entry of a directory (a fact for planning).
        Entry = 51 "entry" { dir: Handle, name: Name, } => READ.of_entry(Some((*dir, name))),
        /// Validate and durably lock. `participants`: the servers with a part in the transaction, except
        /// its coordinator; none: more actions follow.
        Prepare = 52 "prepare" {
            tx: TxId, actions: Many<Action, { limits::ACTIONS_MAX }>,
            participants: Many<crate::ServerId, { limits::SERVERS_MAX }>,
        } => IDEMPOTENT.between_servers(),
        /// Carry out, or discard, the prepared actions.
        Finish = 53 "finish" { tx: TxId, decision: Decision, } => IDEMPOTENT.between_servers(),
        /// Request the decision (from a participant in doubt).
        Outcome = 54 "outcome" { tx: TxId, } => READ.between_servers(),
        /// Remove datafiles whose files are gone.
        Reap = 55 "reap" { dead: Many<Dead, { limits::HANDLES_MAX }>, } => IDEMPOTENT.between_servers(),
        /// Precreate datafiles for the requesting server's pool. The sequence grows by one with each batch
        /// that the requester has stored; a repeated sequence returns the same batch.
        Batchcreate = 56 "batchcreate" {
            /// The pool: drawn at random when it begins.
            pool: u64,
            sequence: u64,
            /// Datafiles requested; the batch may have fewer.
            count: u16,
        } => IDEMPOTENT.between_servers(),
        /// Was `object` entered at (`dir`, `name`)? `refuse`: if not, it never will be.
        Vouchentry = 58 "vouchentry" {
            dir: Handle, name: Name, object: Handle, client: ClientId, refuse: bool,
        } => IDEMPOTENT.between_servers(),
        /// Does the metafile list the datafile? `refuse`: if not, it never will.
        Vouchdata = 59 "vouchdata" {
            owner: Handle, datafile: Handle, refuse: bool,
        } => IDEMPOTENT.between_servers(),
        /// Remove an object that was made and will never be entered or listed.
        Discard = 60 "discard" { object: Handle, } => CHANGE.between_servers(),
        /// Begin a generation of a laid-out file on all its servers: a lock of it was lost, and what was
        /// written under it must not arrive later. A server sends this to itself.
        Fence = 62 "fence" { object: Handle, } => CHANGE.between_servers(),
        /// Split a directory over the metadata servers. Its own server sends this to itself.
        Split = 61 "split" {
            dir: Handle,
            /// The counted number of its entries.
            entries: u32,
        } => CHANGE.between_servers(),

        // Management.
        /// Nothing: measures the round trip.
        Ping = 70 "ping" { } => READ,
        /// The cluster's map.
        Map = 71 "map" { } => READ,
        /// Take a newer map.
        Setmap = 72 "setmap" { map: ClusterMap, } => IDEMPOTENT.between_servers(),
        /// Add a server to the running file system. Sent to server 0.
        Addserver = 73 "addserver" { addresses: Many<Text, 8>, roles: Roles, } => CHANGE.for_management(),
        /// New addresses of a server; `moved`: the count of changes that these addresses have. The answer
        /// is the map with them.
        Moveserver = 93 "moveserver" {
            server: crate::ServerId, addresses: Many<Text, 8>, moved: u32,
        } => IDEMPOTENT.for_management(),
        /// Let a mount key in from now on, or never again (`revoked`). The answer is the map with it.
        Setkey = 94 "setkey" { key: crate::MountKey, } => IDEMPOTENT.for_management(),
        /// State and counts of this server, as JSON.
        Status = 74 "status" { } => READ,
        /// Rows of the store after a key, for fsck.
        Rows = 75 "rows" {
            prefix: RowBytes, after: RowBytes,
            /// Most rows.
            limit: u32,
        } => READ.for_management(),
        /// A repair found by fsck: actions carried out as one local transaction.
        Repair = 76 "repair" { actions: Many<Action, { limits::ACTIONS_MAX }>, } => CHANGE.expecting().for_management(),
        /// Change the sync modes of this server's part: (metadata, data), as their words.
        Setsync = 77 "setsync" { metadata: Text, data: Text, coalescing: Text, } => IDEMPOTENT.for_management(),
        /// Which of these streams have lost the file with their bytes. Since version 6.
        Checkfiles = 79 "checkfiles" { streams: Many<Handle, { limits::HANDLES_MAX }>, } => READ.for_management(),
        /// Make everything applied so far durable.
        Sync = 78 "sync" { } => READ,
        /// The stores of these servers were given up, and `map` names their successors. This server retires
        /// the datafiles of them in its pools.
        Renew = 90 "renew" {
            servers: Many<crate::ServerId, { limits::SERVERS_MAX }>, map: ClusterMap,
        } => IDEMPOTENT.for_management(),
        /// A server is short of space: remove lingering objects, the oldest first, until so many bytes are
        /// free.
        Yield = 92 "yield" { bytes: u64, } => IDEMPOTENT.between_servers(),
        /// A server reports how far its store is durable, so that its fellows recognise an older copy of
        /// it.
        Remember = 91 "remember" { position: u64, } => IDEMPOTENT.between_servers(),
    }
}

wire_choice! {
    /// The kind of an [`Op::Allocate`].
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Allocation {
        /// Reserve; the size may grow.
        Extend = 1,
        /// Reserve; the size stays.
        KeepSize = 2,
        /// Make a hole; the size stays.
        Punch = 3,
        /// Zero; the size may grow.
        Zero = 4,
        /// Zero; the size stays.
        ZeroKeepSize = 5,
    }
}

wire_choice! {
    /// A server's reply about a part of an unfinished file that another server keeps for a client.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Vouched {
        /// It is in its place.
        Stands = 1,
        /// It is not in its place yet, and it was not promised that it never will be.
        NotYet = 2,
        /// It is not, and never will be.
        Never = 3,
    }
}

wire_enum! {
    /// The answer to one operation.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Answer {
        /// Done; no result.
        Done = 1 "done" { },
        /// To lookup: the number of components resolved, and the object reached. Fewer than requested:
        /// continue at the server of `handle` (a directory of another server), or follow the symbolic link
        /// of `attr`.
        Looked = 2 "looked" {
            resolved: u16, handle: Handle, kind: Kind,
            /// Its attributes, if it is on this server.
            attr: Option<Attr>,
        },
        /// Attributes.
        Attr = 3 "attr" {
            attr: Attr,
            /// Of a file's own stream, or none.
            count: ChangeCount,
        },
        /// A new (or found) object, opened.
        Made = 4 "made" {
            attr: Attr, capability: Option<Capability>, created: bool,
            /// Of a file's own stream, or none.
            count: ChangeCount,
        },
        /// A target or value.
        Bytes = 5 "bytes" { bytes: XattrValue, },
        /// Entries; `end` at the end of the directory. If contents were requested: how many bytes of each
        /// entry's are in the reply's bulk, in order; `None` if they are not in it.
        Entries = 6 "entries" {
            entries: Many<Entry, { limits::READDIR_ENTRIES_MAX }>, end: bool,
            contents: Many<Option<u32>, { limits::READDIR_ENTRIES_MAX }>,
        },
        /// The removed entry's object; `orphaned`: it was the object's last name, and the object is kept as
        /// an orphan because it is held.
        Removed = 7 "removed" { handle: Handle, kind: Kind, orphaned: bool, },
        /// Data of `len` bytes in the reply's bulk, in order; the stream's facts at that moment.
        Data = 8 "data" { len: u32, facts: StreamFacts, },
        /// To a long read: its data came before, by pieces, which cover the transfer's packed bytes up to
        /// `upto`. The rest of the share is after the end of the stream.
        Sent = 39 "sent" { upto: u64, facts: StreamFacts, },
        /// Facts of a stream, after a change. `moves`: the changes of the stream's change count by a write,
        /// in order: one, or one before its first byte and one after its last.
        Facts = 9 "facts" { facts: StreamFacts, moves: Many<Move, 2>, },
        /// First logical byte of an append, and the size after it.
        Appended = 10 "appended" { offset: u64, size: u64, },
        /// Durable.
        Synced = 11 "synced" { },
        /// The layout.
        Laid = 12 "laid" { layout: Layout, },
        /// The objects among them that have no name any more, and are kept for the client.
        Holding = 34 "holding" { removed: Many<Handle, { limits::HELD_MAX }>, },
        /// Bytes of the objects that were removed.
        Yielded = 35 "yielded" { bytes: u64, },
        /// The state of a request for a lock.
        Locked = 36 "locked" { state: LockState, },
        /// The first lock in the way, if any.
        Holder = 37 "holder" { holder: Option<LockHolder>, },
        /// To reclaim: the places of those claims that were refused.
        Claimed = 38 "claimed" { refused: Many<u16, { limits::LOCK_CLAIMS_MAX }>, },
        /// Space in bytes, objects held; servers that name the same `disk` share it (0: not known).
        Space = 13 "space" { total: u64, available: u64, objects: u64, disk: u64, },
        /// Handles.
        Handles = 14 "handles" { handles: Many<Handle, { limits::HANDLES_MAX }>, },
        /// To entry: the object the name leads to, if any.
        Fact = 15 "fact" { entry: Option<Entry>, },
        /// The decision; `None`: not yet.
        Decided = 16 "decided" { decision: Option<Decision>, },
        /// The map.
        Map = 17 "map" { map: ClusterMap, },
        /// JSON text as bytes.
        Json = 18 "json" { json: RowBytes, },
        /// Rows.
        Rows = 19 "rows" { rows: Many<Row, 4096>, end: bool, },
        /// Precreated datafiles: `count` handles from `first` on.
        Batch = 20 "batch" { first: Handle, count: u16, },
        /// A removed entry: the object it led to, and the ticket that names the link until the object is
        /// removed or the link settled.
        Unnamed = 30 "unnamed" { handle: Handle, kind: Kind, ticket: Handle, },
        /// To removemeta: the datafiles to be removed too; or it has, or had, further names: settle the
        /// link instead.
        Parted = 31 "parted" {
            datafiles: Many<Handle, { limits::WIDTH_MAX }>,
            orphaned: bool,
            linked: bool,
        },
        /// To the questions between servers about unfinished files.
        Vouched = 32 "vouched" { vouched: Vouched, },
        /// After the status `split`, and to a split: the directory's shards, and the key that places names
        /// in them.
        Split = 33 "split" { dir: Handle, shards: Shards, key: PlaceKey, },
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

wire_struct! {
    /// A datafile to be removed, and its owner: a metafile, or for one that no file ever had the pool it
    /// lay in ([`Handle::pool_of`]).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Dead {
        /// The datafile.
        pub datafile: Handle,
        /// Its owner.
        pub owner: Handle,
    }
}

impl Op {
    /// Whether it changes something and so needs a slot of the session.
    #[inline]
    pub fn changes(&self) -> bool {
        self.terms().changes
    }

    /// The entry it is about, if the entry's place decides which shard of the directory gets the request.
    #[inline]
    pub fn entry(&self) -> Option<(Handle, &Name)> {
        self.terms().entry
    }

    /// Whether the request states an expectation: then [`Changed`](crate::Status::Changed) is final, and a
    /// retry returns it again.
    #[inline]
    pub fn expects(&self) -> bool {
        self.terms().expects
    }

    /// Whether only servers, and clients that hold the admin key, may send it.
    #[inline]
    pub fn is_management(&self) -> bool {
        self.terms().is_management
    }

    /// Whether it changes nothing that others see: also the holder of a read-only key may send it. An
    /// operation that needs a slot is not, with the exception of those by which a client says which files it
    /// has open; nor is one that opens a file for writing, or takes a lock that keeps others out. Operations
    /// of servers and administrators are not either: some change much, and need no slot.
    pub fn is_for_readers(&self) -> bool {
        match self {
            Op::Hold { .. } | Op::Release { .. } => true,
            Op::Open { rights, .. } => Rights::READ.contains(*rights),
            Op::Lock { kind, .. } => *kind == LockKind::Shared,
            Op::Reclaim { claims, .. } => claims.iter().all(|claim| claim.kind == LockKind::Shared),
            _ => !self.changes() && !self.is_peers() && !self.is_management(),
        }
    }

    /// Whether only a peer server may send it.
    #[inline]
    pub fn is_peers(&self) -> bool {
        self.terms().is_peers
    }
}

impl Answer {
    /// Leave out what a program cannot read that does not know layouts that clients follow: attributes of
    /// directories with one. `false`: without those it is no answer.
    pub fn leave_out_followed(&mut self) -> bool {
        let is_followed = |attr: &Attr| attr.template.dist.is_followed();
        match self {
            Answer::Attr { attr, .. } | Answer::Made { attr, .. } => !is_followed(attr),
            Answer::Looked { attr, .. } => !attr.as_ref().is_some_and(is_followed),
            Answer::Entries { entries, .. } => {
                for entry in &mut entries.0 {
                    entry.attr.take_if(|attr| is_followed(attr));
                }
                true
            }
            _ => true,
        }
    }
}

/// The result of one operation of a group.
pub type OpResult = Result<Answer, Status>;
