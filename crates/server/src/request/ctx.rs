//! The context of a handler: one group of operations, run synchronously over the shard's view.
//!
//! A handler is a plain function `fn(&mut Ctx, …) -> Result<Answer, Stopped>`. It reads rows through the
//! context, which sees the group's own changes first; it changes rows directly where everything is on this
//! server for certain (chmod, xattrs, writes), and by *actions* ([`Ctx::act`]) where other servers may be
//! concerned. It requests missing facts by returning [`Stopped`]: the executor fetches them and **runs the
//! handler again from its start**; so a handler has no effect but through its context, and no `await` can
//! split a transaction.
//!
//! The methods of the context are in three files: `reads` has the rows and streams of this server, `facts`
//! all that was fetched for the request, `changes` the changes and plans of the run.

mod changes;
mod facts;
mod reads;

pub use changes::Outcome;
pub use facts::{Fact, FactKey, Facts, Resume};

use crate::data::change_counts::ChangeCounts;
use crate::data::pools::Pools;
use crate::meta::rows::Inode;
use crate::net::session::Sessions;
use crate::request::locks::Locks;
use crate::shard::Identity;
use bytes::Bytes;
use shoal_proto::{ClientId, Handle, KeyLimits, MountKeyId, Rights, ServerId, Shards, Status, Time, TxId};
use shoal_store::{Miss, Needs, View};
use std::cell::RefCell;

/// Why a handler stopped.
#[derive(Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Rows must be loaded first (the view knows which).
    Miss,
    /// A transaction's lock on this key is in the way: run again when it is released.
    Locked(Bytes),
    /// A fact of another server is needed.
    Fact(FactKey),
    /// Handles of a server are needed (this one's: its durable range must grow).
    Draw(ServerId),
    /// A datafile of a server is needed, and may not be taken from its pool until so many are lent.
    Pool(ServerId, u64),
    /// A datafile that was made ahead of need must be there before bulk data can be written to it.
    Touch(Box<crate::data::precreated::Touch>),
    /// Bulk data must be moved by the store before the answer is known.
    Bulk(Box<crate::data::Bulk>),
    /// No append to this laid-out file may be under way until the group has ended.
    Turn(Handle),
    /// The operation's end: the directory is split, and the entry belongs to another server.
    Split(Box<(Handle, Shards)>),
    /// The operation's end: an error.
    Status(Status),
}

impl Stopped {
    /// The status that ends a run for which nothing is awaited.
    pub fn status(self) -> Status {
        match self {
            Stopped::Status(status) => status,
            Stopped::Locked(_) => Status::Busy,
            _ => Status::NotSupported,
        }
    }
}

impl From<Miss> for Stopped {
    fn from(_: Miss) -> Stopped {
        Stopped::Miss
    }
}

impl From<Status> for Stopped {
    fn from(status: Status) -> Stopped {
        Stopped::Status(status)
    }
}

/// The parts of a shard that a run reads besides its rows.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The shard's identity.
    pub identity: &'a Identity,
    /// Keys locked by transactions.
    pub locks: &'a Locks,
    /// The datafiles that may be taken from the pools.
    pub pools: &'a Pools,
    /// The sessions, and the files that their clients have open.
    pub sessions: &'a Sessions,
    /// The change counts of its streams.
    pub counts: &'a ChangeCounts,
}

/// One run of one group.
pub struct Ctx<'a> {
    view: View<'a>,
    /// The id of this server.
    pub identity: &'a Identity,
    around: Surroundings<'a>,
    facts: &'a Facts,
    /// The transaction whose own locks do not stop it.
    own: Option<TxId>,
    /// The moment of this run, for file times.
    pub now: Time,
    /// The client that asks.
    pub client: ClientId,
    /// The mount key that its capabilities are bound to.
    pub key: MountKeyId,
    /// The limits of that key.
    pub limits: KeyLimits,
    /// Whether the program that asks knows layouts that clients follow: directories with one are refused to
    /// others.
    pub knows_followed: bool,
    /// Which operation of the group runs (set by the dispatcher).
    pub op_index: usize,
    /// It is all of a client's request, and its answer's data may come before it, by pieces.
    pub may_send_pieces: bool,
    /// It is all of a client's request in a slot, and its data may be pulled.
    pub may_pull: bool,
    /// The request's bulk data not taken yet by an operation of this group.
    bulk_in: Bytes,
    /// The reply's bulk data so far.
    pub bulk_out: Vec<Bytes>,
    /// Bytes of data copied by this run, for the environment's counters.
    pub copied: usize,
    /// The object the last operation named ([`Handle::CURRENT`]), and the rights of its open in this group.
    pub current: Option<(Handle, Rights)>,
    /// Inodes as they were read last: an operation and its callees read the same few repeatedly.
    inodes: RefCell<Vec<(Handle, Inode)>>,
    taken: facts::Taken,
    made: changes::Made,
}

impl<'a> Ctx<'a> {
    /// A context for one run: for no client, in no transaction, without bulk data.
    pub fn new(view: View<'a>, around: Surroundings<'a>, facts: &'a Facts, now: Time) -> Ctx<'a> {
        Ctx {
            view,
            identity: around.identity,
            around,
            facts,
            own: None,
            now,
            client: ClientId::default(),
            key: MountKeyId::FIRST,
            limits: KeyLimits::default(),
            knows_followed: true,
            op_index: 0,
            may_send_pieces: false,
            may_pull: false,
            bulk_in: Bytes::new(),
            bulk_out: Vec::new(),
            copied: 0,
            current: None,
            inodes: RefCell::default(),
            taken: facts::Taken::default(),
            made: changes::Made::default(),
        }
    }

    /// The same for a client, with the request's bulk data.
    #[must_use]
    pub fn for_client(self, client: ClientId, bulk_in: Bytes) -> Ctx<'a> {
        Ctx { client, bulk_in, ..self }
    }

    /// The same for a client that was let in by this mount key.
    #[must_use]
    pub fn of_key(self, key: MountKeyId, limits: KeyLimits) -> Ctx<'a> {
        Ctx { key, limits, ..self }
    }

    /// The same as a part of a transaction that has begun, if it is one: its own locks do not stop it.
    #[must_use]
    pub fn in_transaction(self, own: Option<TxId>) -> Ctx<'a> {
        Ctx { own, ..self }
    }

    /// The view, for its missed rows and the dependencies of the reply.
    pub fn view(&self) -> &View<'a> {
        &self.view
    }

    /// The datafiles that may be taken from the pools.
    pub fn pools(&self) -> &'a Pools {
        self.around.pools
    }

    /// The rows that the view missed.
    pub fn into_needs(self) -> Needs {
        self.view.into_needs()
    }

    /// The next `len` bytes of the request's bulk data.
    pub fn take_bulk(&mut self, len: usize) -> Result<Bytes, Stopped> {
        if len > self.bulk_in.len() {
            return Err(Stopped::Status(Status::BadMessage));
        }
        Ok(self.bulk_in.split_to(len))
    }
}
