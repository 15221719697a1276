//! The operations: what a client, a peer or an administrator may ask, and what is answered. One operation has one name.
//!
//! Handles may be [`Handle::CURRENT`]: the object that the last operation of the same group looked up, made or opened.

use crate::attr::{Attr, Kind, Move, SetAttr, StreamFacts};
use crate::capability::{Capability, Rights};
use crate::cluster::{ClusterMap, Roles};
use crate::layout::{Layout, Share, Template};
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
            /// Bytes of entries, and of contents that come along, at most.
            bytes_max: u32,
            /// With attributes (readdirplus).
            plus: bool,
            /// With the contents of small files of at most so many bytes, where the attributes come along; 0: none.
            data_max: u32,
            /// The asker knows the directory's shards: entries of the asked server's shard, to its end.
            in_shard: bool,
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
        /// The client has these objects open, still. What is kept of them without a name is then kept for this client too.
        Hold = 22 "hold" { objects: Many<Handle, { limits::HELD_MAX }>, },
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
        Fsync = 35 "fsync" {
            stream: Handle,
            /// Of a metafile: the generation that the client knows. Another one is `StaleLayout`, because the file's data may
            /// lie in datafiles that the client does not know. 0: not compared (datafiles, directories).
            generation: Generation,
        },
        /// Facts of streams.
        Streamstat = 36 "streamstat" { stream: Handle, },
        /// Lay a stuffed file out over its datafiles (idempotent). Sent to the metafile's server.
        Unstuff = 37 "unstuff" { object: Handle, },

        // Driven by the client, one thing a message, where the switch `compound` is off.
        /// Make a metafile that has no name yet: an orphan of the session until it is entered at (`dir`, `name`). The paper's
        /// augmented create: with its first strip, or with datafiles that lie ready.
        Createmeta = 40 "createmeta" {
            dir: Handle, name: Name, owner: Owner, open: Rights, template: Template,
        },
        /// Make a datafile for a metafile: an orphan of the session until the metafile lists it.
        Createdata = 41 "createdata" { owner: Handle, },
        /// A metafile that has no name yet lists its datafiles.
        Laydata = 42 "laydata" { object: Handle, datafiles: Many<Handle, { limits::WIDTH_MAX }>, },
        /// Enter an object into a directory.
        Crdirent = 43 "crdirent" { dir: Handle, name: Name, object: Handle, kind: Kind, },
        /// Take an entry out of its directory: its object has a link too many until it is removed or settled.
        Rmdirent = 44 "rmdirent" { dir: Handle, name: Name, },
        /// Remove an object whose one name was taken away (`held`: keep it as an orphan of the client).
        Removemeta = 45 "removemeta" { object: Handle, held: bool, },
        /// Remove a datafile of a metafile that was removed.
        Removedata = 46 "removedata" { owner: Handle, datafile: Handle, },
        /// Count the link that a taken entry was, in one transaction with the end of its row. Sent to the entry's server.
        Settle = 47 "settle" {
            object: Handle, ticket: Handle,
            /// Keep the object as an orphan of the client, if the link was its last.
            held: bool,
        },

        // Between servers.
        /// Draw handles of the server's own (never used twice; those not used are lost).
        Draw = 50 "draw" { count: u16, },
        /// Read one entry of a directory (a fact for planning).
        Entry = 51 "entry" { dir: Handle, name: Name, },
        /// Validate and durably lock. `participants`: the servers that have a part in the transaction, but for its coordinator;
        /// none: there are more actions to come.
        Prepare = 52 "prepare" {
            tx: TxId, actions: Many<Action, { limits::ACTIONS_MAX }>,
            participants: Many<crate::ServerId, { limits::SERVERS_MAX }>,
        },
        /// Carry out, or forget, what was prepared.
        Finish = 53 "finish" { tx: TxId, decision: Decision, },
        /// What was decided? (asked by a participant in doubt)
        Outcome = 54 "outcome" { tx: TxId, },
        /// Remove datafiles whose files are gone.
        Reap = 55 "reap" { dead: Many<Dead, { limits::HANDLES_MAX }>, },
        /// Make datafiles ahead of need, for the asking server's pool. The sequence grows by one with each batch that it has
        /// stored; the last one asked again is the same batch.
        Batchcreate = 56 "batchcreate" {
            /// The pool: drawn at random when it begins.
            pool: u64,
            sequence: u64,
            /// Datafiles wished for; it may become fewer.
            count: u16,
        },
        /// Was `object` entered at (`dir`, `name`)? `refuse`: if not, it never will be.
        Vouchentry = 58 "vouchentry" {
            dir: Handle, name: Name, object: Handle, client: ClientId, refuse: bool,
        },
        /// Does the metafile list the datafile? `refuse`: if not, it never will.
        Vouchdata = 59 "vouchdata" { owner: Handle, datafile: Handle, refuse: bool, },
        /// Remove what was made and will never be entered or listed.
        Discard = 60 "discard" { object: Handle, },
        /// Split a directory over the metadata servers. Asked by its own server of itself.
        Split = 61 "split" {
            dir: Handle,
            /// What it was counted to have.
            entries: u32,
        },

        // Management.
        /// Nothing: measures the way.
        Ping = 70 "ping" { },
        /// The cluster's map.
        Map = 71 "map" { },
        /// Take a newer map.
        Setmap = 72 "setmap" { map: ClusterMap, },
        /// Add a server to the running file system. Sent to server 0.
        Addserver = 73 "addserver" { addresses: Many<Text, 8>, roles: Roles, },
        /// A server is at these addresses from now on; `moved`: how often they were changed then. The answer is the map in which
        /// that stands.
        Moveserver = 93 "moveserver" { server: crate::ServerId, addresses: Many<Text, 8>, moved: u32, },
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
        Setsync = 77 "setsync" { metadata: Text, data: Text, coalescing: Text, },
        /// Make everything applied so far durable.
        Sync = 78 "sync" { },
        /// The stores of these servers were given up, and `map` names what takes their place. What this server's pools hold of
        /// them is retired.
        Renew = 90 "renew" { servers: Many<crate::ServerId, { limits::SERVERS_MAX }>, map: ClusterMap, },
        /// A server is short of space: remove what lost its last name and is kept for those that may have it open, the oldest
        /// first, until so many bytes are free.
        Yield = 92 "yield" { bytes: u64, },
        /// A server says how far its store is durable, so that an older copy of it is known for one.
        Remember = 91 "remember" { position: u64, },
    }
}

wire_choice! {
    /// What [`Op::Allocate`] does.
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
    /// What a server says of something that another one keeps for a client that is making a file.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Vouched {
        /// It belongs where it was to go.
        Stands = 1,
        /// Neither yet, nor was it promised that it never will.
        NotYet = 2,
        /// It does not, and never will.
        Never = 3,
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
        /// Entries; `end` at the end of the directory. If contents were asked for: how many bytes of each entry's are in the
        /// reply's bulk, in order; `None` where they did not come along.
        Entries = 6 "entries" {
            entries: Many<Entry, { limits::READDIR_ENTRIES_MAX }>, end: bool,
            contents: Many<Option<u32>, { limits::READDIR_ENTRIES_MAX }>,
        },
        /// What was removed: the last name of an object that is kept as an orphan because it is held.
        Removed = 7 "removed" { handle: Handle, kind: Kind, orphaned: bool, },
        /// Data of `len` bytes in the reply's bulk, in order; the stream's facts at that moment.
        Data = 8 "data" { len: u32, facts: StreamFacts, },
        /// Facts of a stream, after a change. `moves`: what a write did to the stream's change count, in order: one move, or one
        /// before its first byte and one after its last.
        Facts = 9 "facts" { facts: StreamFacts, moves: Many<Move, 2>, },
        /// Where an append went (first logical byte), and the size after it.
        Appended = 10 "appended" { offset: u64, size: u64, },
        /// Durable.
        Synced = 11 "synced" { },
        /// The layout.
        Laid = 12 "laid" { layout: Layout, },
        /// Those of the objects that have no name any more, and are kept for the client.
        Holding = 34 "holding" { removed: Many<Handle, { limits::HELD_MAX }>, },
        /// Bytes of the objects that were removed.
        Yielded = 35 "yielded" { bytes: u64, },
        /// Space in bytes, objects held; servers that name the same `disk` share it (0: not known).
        Space = 13 "space" { total: u64, available: u64, objects: u64, disk: u64, },
        /// Handles.
        Handles = 14 "handles" { handles: Many<Handle, { limits::HANDLES_MAX }>, },
        /// To entry: what the name leads to, if anything.
        Fact = 15 "fact" { entry: Option<Entry>, },
        /// What was decided; `None`: not yet.
        Decided = 16 "decided" { decision: Option<Decision>, },
        /// The map.
        Map = 17 "map" { map: ClusterMap, },
        /// JSON text as bytes.
        Json = 18 "json" { json: RowBytes, },
        /// Rows.
        Rows = 19 "rows" { rows: Many<Row, 4096>, end: bool, },
        /// Datafiles made ahead of need: `count` handles from `first` on.
        Batch = 20 "batch" { first: Handle, count: u16, },
        /// An entry was taken away: what it led to, and what names the link until that is removed or settled.
        Unnamed = 30 "unnamed" { handle: Handle, kind: Kind, ticket: Handle, },
        /// To removemeta: the datafiles to be removed too; or it has, or had, further names: settle the link instead.
        Parted = 31 "parted" {
            datafiles: Many<Handle, { limits::WIDTH_MAX }>,
            orphaned: bool,
            linked: bool,
        },
        /// To what one server asks of another.
        Vouched = 32 "vouched" { vouched: Vouched, },
        /// Behind the status `split`, and to a split: the directory's shards, and what places names in them.
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
    /// A datafile to be removed, and whose it was: a metafile, or for one that no file ever had the pool it lay in
    /// ([`Handle::pool_of`]).
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
            // Idempotent by what they say: a transaction's id, a handle that is never used twice, a sequence, an epoch, a count.
            Op::Prepare { .. }
            | Op::Finish { .. }
            | Op::Reap { .. }
            | Op::Batchcreate { .. }
            | Op::Vouchentry { .. }
            | Op::Vouchdata { .. }
            | Op::Setmap { .. }
            | Op::Renew { .. }
            | Op::Moveserver { .. }
            | Op::Yield { .. }
            | Op::Remember { .. }
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
            | Op::Hold { .. }
            | Op::Setlayout { .. }
            | Op::Write { .. }
            | Op::Append { .. }
            | Op::Allocate { .. }
            | Op::Truncate { .. }
            | Op::Unstuff { .. }
            | Op::Createmeta { .. }
            | Op::Createdata { .. }
            | Op::Laydata { .. }
            | Op::Crdirent { .. }
            | Op::Rmdirent { .. }
            | Op::Removemeta { .. }
            | Op::Removedata { .. }
            | Op::Settle { .. }
            | Op::Discard { .. }
            | Op::Split { .. }
            | Op::Addserver { .. }
            | Op::Repair { .. } => true,
        }
    }

    /// The entry it is about, as far as its place decides which shard of the directory is asked.
    pub fn entry(&self) -> Option<(Handle, &Name)> {
        match self {
            Op::Lookup { dir, path } => path.first().map(|name| (*dir, name)),
            Op::Create { dir, name, .. }
            | Op::Mknod { dir, name, .. }
            | Op::Symlink { dir, name, .. }
            | Op::Mkdir { dir, name, .. }
            | Op::Unlink { dir, name, .. }
            | Op::Rmdir { dir, name }
            | Op::Rename { to_dir: dir, to_name: name, .. }
            | Op::Link { dir, name, .. }
            | Op::Entry { dir, name } => Some((*dir, name)),
            _ => None,
        }
    }

    /// Whether it changes bytes of a file: no more durable than the modes say of data.
    pub fn is_data(&self) -> bool {
        matches!(self, Op::Write { .. } | Op::Append { .. } | Op::Allocate { .. })
    }

    /// Whether the asker says what he expects: when that is [`Changed`](crate::Status::Changed) it is so however often he asks.
    pub fn expects(&self) -> bool {
        matches!(self, Op::Repair { .. })
    }

    /// Whether it changes attributes alone: no name, no size, no data.
    pub fn is_of_attributes(&self) -> bool {
        matches!(self, Op::Setattr { .. } | Op::Setxattr { .. } | Op::Removexattr { .. })
    }

    /// Whether it is a step of what a client drives itself: refused where compounds do it in one.
    pub fn is_stepwise(&self) -> bool {
        matches!(
            self,
            Op::Createmeta { .. }
                | Op::Createdata { .. }
                | Op::Laydata { .. }
                | Op::Crdirent { .. }
                | Op::Rmdirent { .. }
                | Op::Removemeta { .. }
                | Op::Removedata { .. }
                | Op::Settle { .. }
        )
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
                | Op::Batchcreate { .. }
                | Op::Vouchentry { .. }
                | Op::Vouchdata { .. }
                | Op::Discard { .. }
                | Op::Split { .. }
                | Op::Setmap { .. }
                | Op::Yield { .. }
                | Op::Remember { .. }
        )
    }
}

/// The result of one operation of a group.
pub type OpResult = Result<Answer, Status>;
