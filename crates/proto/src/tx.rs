//! The actions of which a transaction over several servers consists, in their wire form. The module `txn`
//! of the crate `server` plans and runs the transactions.
//!
//! A coordinator plans a transaction as lists of *actions*, one list a server. *Prepare* validates each
//! action against the participant's present state and durably locks the keys it touches; *finish* carries
//! it out or discards it. Each action states the state that it expects, so that a plan made from older
//! facts fails with `Changed` and does no harm.
//!
//! ```text
//!   coordinator                participants
//!   plan, lock own keys
//!   ── prepare(tx, actions) ──▶ validate, lock, journal "prepared"
//!   ◀────────── ok ───────────
//!   journal "committed" + own changes       ◀─ the moment of decision
//!   reply to the client
//!   ── finish(tx, commit) ────▶ carry out, unlock, journal
//!   ◀────────── ok ───────────
//!   journal: forget tx
//! ```
//! Presumed abort: a coordinator that knows nothing of a transaction answers *abort*.

use crate::attr::{Attr, Kind, SetAttr, Time};
use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::layout::{Layout, Template};
use crate::op::RowBytes;
use crate::shards::{ShardEntry, Shards};
use crate::wire::{Many, Name, wire_choice, wire_enum};
use crate::{Generation, Handle, ServerId, limits};

wire_choice! {
    /// The decision about a transaction.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
    pub enum Decision {
        /// Carry it out.
        Commit = 1,
        /// Forget it.
        Abort = 0,
    }
}

/// A client, across its sessions with all servers: drawn at random when it starts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ClientId(pub [u8; 16]);

impl ClientId {
    /// No client's id: stands for all clients that may have a removed object open.
    pub const ANYONE: ClientId = ClientId([0; 16]);
}

impl Codec for ClientId {
    fn encode(&self, w: &mut Writer) {
        w.put_raw(&self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(ClientId(r.get_array()?))
    }
}

wire_enum! {
    /// One action of a participant.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Action {
        /// Put an entry into a directory.
        EntryPut = 1 "entry put" {
            /// The directory's server, or that of the shard that holds the name's place.
            shard: ServerId,
            dir: Handle, name: Name, handle: Handle, kind: Kind,
            /// The object the entry must lead to now (`None`: it must not exist).
            expect: Option<Handle>,
            /// Change of the directory's count of subdirectories.
            subdirs: i32,
            time: Time,
        },
        /// Remove an entry of a directory.
        EntryRemove = 2 "entry remove" {
            /// As in `EntryPut`.
            shard: ServerId,
            dir: Handle, name: Name,
            /// The object it must lead to now.
            expect: Handle,
            subdirs: i32,
            time: Time,
        },
        /// Make an object on this server (its handle drawn from this server before).
        ObjectCreate = 3 "object create" { attr: Attr, },
        /// Make a datafile.
        DatafileCreate = 4 "datafile create" { datafile: Handle, owner: Handle, generation: Generation, },
        /// Remove a directory, or one of its shards, that must be empty.
        DirectoryRemove = 5 "directory remove" {
            shard: ServerId, dir: Handle,
            /// It must be split, or must not be.
            split: bool,
        },
        /// Change an object's count of links. At zero it is removed, or kept: for the requesting `client`,
        /// if it holds the object open (`held`), and for a while if another client may hold it.
        Links = 6 "links" { object: Handle, delta: i32, time: Time, client: ClientId, held: bool, },
        /// Set an object's time of change; it must exist.
        Touch = 7 "touch" { object: Handle, time: Time, },
        /// A directory has another parent.
        Reparent = 8 "reparent" {
            dir: Handle,
            /// The parent it must have now.
            expect: Handle,
            parent: Handle,
            time: Time,
        },
        /// Hold the collection's one rename lock (server 0).
        RenameLock = 9 "rename lock" { },
        /// A metafile is laid out over its datafiles, from a generation on.
        LayoutSet = 10 "layout set" { object: Handle, expect: Generation, layout: Layout, time: Time, },
        /// A stream begins a generation; `size`: its new size.
        StreamAdvance = 11 "stream advance" {
            stream: Handle,
            /// The metafile that the stream belongs to.
            owner: Handle,
            /// The generation it must have now. A precreated datafile has none until it is first named, and
            /// matches any.
            expect: Generation,
            generation: Generation,
            size: Option<u64>,
            /// Count as a write at this time.
            written_at: Option<Time>,
        },
        /// A metafile's attributes follow (sizes and explicit times of striped files).
        AttrSet = 12 "attr set" { attr: Attr, expect: Generation, },
        /// Remove an object and all it has, whatever its links (repair).
        ObjectRemove = 13 "object remove" { object: Handle, },
        /// Set the count of links (repair).
        LinksSet = 14 "links set" { object: Handle, nlink: u32, },
        /// Remove a datafile that no file owns (repair, reaping).
        DatafileRemove = 15 "datafile remove" { datafile: Handle, owner: Handle, },
        /// Remove a row with exactly this content, whatever its meaning (repair).
        RowRemove = 16 "row remove" { server: ServerId, key: RowBytes, expect: RowBytes, },
        /// Make a file of a stream without an owner (repair).
        StreamAdopt = 17 "stream adopt" { attr: Attr, },
        /// Make an empty stream for a file or datafile that has none (repair).
        StreamCreate = 18 "stream create" { stream: Handle, generation: Generation, },
        /// Make a datafile of a stream without an owner (repair).
        DatafileAdopt = 19 "datafile adopt" { datafile: Handle, owner: Handle, },
        /// Precreated datafiles for a server's pool must not be used any more (repair).
        Retire = 20 "retire" { pool: ServerId, first: Handle, count: u16, },
        /// Make a shard of a directory with the entries of its range, and the directory's attributes.
        ShardCreate = 21 "shard create" {
            shard: ServerId, attr: Attr,
            entries: Many<ShardEntry, { limits::SPLIT_ENTRIES_MAX }>,
        },
        /// The directory is split: its own server keeps the entries of its own range.
        ShardKeep = 22 "shard keep" { shard: ServerId, dir: Handle, shards: Shards, },
        /// Change attributes of a split directory, alike on all its shards.
        ShardSet = 23 "shard set" {
            shard: ServerId, dir: Handle, set: SetAttr,
            template: Option<Template>,
            time: Time,
        },
        /// Make a directory that has these entries: a forked file, with its subfiles.
        ForkedCreate = 25 "forked create" {
            attr: Attr,
            entries: Many<ShardEntry, { limits::SUBFILES_MAX }>,
        },
        /// Remove a forked file with the entries of all its subfiles, which the same transaction removes.
        ForkedRemove = 26 "forked remove" {
            file: Handle,
            /// All its subfiles.
            subfiles: Many<Handle, { limits::SUBFILES_MAX }>,
        },
        /// Set the count of a directory's shard (repair).
        ShardCount = 24 "shard count" {
            shard: ServerId, dir: Handle,
            /// Its time of change now: nothing was done in it since it was counted.
            expect: Time,
            nlink: u32,
            entries: u32,
        },
    }
}
