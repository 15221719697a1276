//! The context of a handler: one group of operations, run synchronously over the shard's view.
//!
//! A handler is a plain function `fn(&mut Ctx, …) -> Result<Answer, Stopped>`. It reads rows through the
//! context, which sees the group's own changes first; it changes rows directly where everything is on this
//! server for certain (chmod, xattrs, writes), and by *actions* ([`Ctx::act`]) where other servers may be
//! concerned. It requests missing facts by returning [`Stopped`]: the executor fetches them and **runs the
//! handler again from its start**; so a handler has no effect but through its context, and no `await` can
//! split a transaction.

use crate::data::change_counts::{self, ChangeCounts};
use crate::data::pools::Pools;
use crate::meta::keys;
use crate::meta::rows::{Datafile, Dirent, Inode, RowValue};
use crate::net::session::Sessions;
use crate::request::locks::{Locks, Mode};
use crate::shard::Identity;
use bytes::Bytes;
use shoal_proto::{
    Action, Answer, Attr, ChangeCount, ClientId, Entry, Generation, Handle, Kind, Move, Name, Rights,
    ServerId, Shards, Status, StreamFacts, Time, TxId,
};
use shoal_store::{Changes, Follow, Lsn, Miss, Needs, Scan, StreamChange, StreamInfo, Strength, View};
use std::cell::RefCell;
use std::collections::BTreeMap;

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

/// A fact that a plan may need from another server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FactKey {
    /// Attributes of an object.
    Attr(Handle),
    /// One entry of a directory, as this server has it: the directory's own, or a shard's.
    Entry(ServerId, Handle, Name),
    /// Facts of a datafile's stream.
    Stream(Handle),
}

/// A fact, as it was when asked (a transaction's actions say what they expect, so an old fact does no harm).
#[derive(Clone, Debug)]
pub enum Fact {
    /// Attributes, or that the object is gone.
    Attr(Result<Attr, Status>),
    /// The entry, or why not.
    Entry(Result<Option<Entry>, Status>),
    /// Asked for an entry: another shard of the directory has its place.
    Shards(Shards),
    /// A stream's facts.
    Stream(Result<StreamFacts, Status>),
}

/// The facts fetched for one request so far.
#[derive(Default, Debug)]
pub struct Facts {
    /// By key.
    pub known: BTreeMap<FactKey, Fact>,
    /// Handles drawn from servers for this request (each run takes them from the first).
    pub drawn: BTreeMap<ServerId, Vec<Handle>>,
    /// Servers whose turn it was to get a new directory (each run takes them from the first).
    pub places: Vec<ServerId>,
    /// Bulk work done for this request, by operation's index in its group and stream.
    pub done: BTreeMap<(usize, Handle), Result<crate::data::Done, Status>>,
    /// Turns of laid-out files, held to the group's end.
    pub turns: Vec<crate::data::Turn>,
    /// The group wrote something outside its batch: it continues at that operation, and does not run those
    /// before it again.
    pub resume: Option<Resume>,
    /// An earlier plan was given up: usually right assumptions are now checked by asking.
    pub tried: bool,
}

/// A group at the operation that it stopped at. Those before it changed nothing.
#[derive(Debug)]
pub struct Resume {
    /// The operation's index.
    pub at: usize,
    /// Answers of those before it.
    pub answers: Vec<Answer>,
    /// The object that the last of them named.
    pub current: Option<(Handle, Rights)>,
    /// The state that they saw.
    pub seen: Lsn,
}

/// Inodes that a run remembers: those read last.
const INODES_KEPT: usize = 8;

/// One run of one group.
pub struct Ctx<'a> {
    view: View<'a>,
    /// The id of this server.
    pub identity: &'a Identity,
    locks: &'a Locks,
    facts: &'a Facts,
    pools: &'a Pools,
    sessions: &'a Sessions,
    counts: &'a ChangeCounts,
    /// The transaction whose own locks do not stop it.
    own: Option<TxId>,
    /// The moment of this run, for file times.
    pub now: Time,
    /// The client that asks.
    pub client: ClientId,
    /// Which operation of the group runs (set by the dispatcher).
    pub op_index: usize,
    /// The request's bulk data not taken yet by an operation of this group.
    bulk_in: Bytes,
    /// The reply's bulk data so far.
    pub bulk_out: Vec<Bytes>,
    /// Bytes of data copied by this run, for the environment's counters.
    pub copied: usize,
    /// The object the last operation named ([`Handle::CURRENT`]), and the rights of its open in this group.
    pub current: Option<(Handle, Rights)>,
    rows: BTreeMap<Bytes, Option<Bytes>>,
    /// Inodes as they were read last: an operation and its callees read the same few repeatedly.
    inodes: RefCell<Vec<(Handle, Inode)>>,
    streams: BTreeMap<Handle, Option<(StreamInfo, Bytes)>>,
    /// The newest move of the change counts of streams that this group changes.
    moved: BTreeMap<Handle, Move>,
    changes: Changes,
    /// Something else than data and attributes was changed.
    is_strong: bool,
    /// Attributes were changed.
    is_deferred: bool,
    /// Data was changed.
    is_weak: bool,
    local: Vec<Action>,
    remote: BTreeMap<ServerId, Vec<Action>>,
    drawn: BTreeMap<ServerId, usize>,
    placed: usize,
    to_split: Option<Handle>,
}

/// The result of a group.
pub struct Outcome {
    /// Changes of this server's rows.
    pub changes: Changes,
    /// Actions of this server, to be applied at the moment of decision. Empty unless `remote` has any, or
    /// they hold the rename lock (the plan rests on facts of other servers): then all of the group's effects
    /// are actions.
    pub local: Vec<Action>,
    /// Actions of other servers.
    pub remote: BTreeMap<ServerId, Vec<Action>>,
    /// A directory that has grown so large that it is to be split.
    pub to_split: Option<Handle>,
}

impl<'a> Ctx<'a> {
    /// A context for one run.
    #[expect(clippy::too_many_arguments, reason = "all that a run depends on, said in one place")]
    pub fn new(
        view: View<'a>,
        identity: &'a Identity,
        locks: &'a Locks,
        facts: &'a Facts,
        pools: &'a Pools,
        sessions: &'a Sessions,
        counts: &'a ChangeCounts,
        own: Option<TxId>,
        now: Time,
        client: ClientId,
        bulk_in: Bytes,
    ) -> Ctx<'a> {
        Ctx {
            view,
            identity,
            locks,
            facts,
            pools,
            sessions,
            counts,
            own,
            now,
            client,
            op_index: 0,
            bulk_in,
            bulk_out: Vec::new(),
            copied: 0,
            current: None,
            rows: BTreeMap::new(),
            inodes: RefCell::default(),
            streams: BTreeMap::new(),
            moved: BTreeMap::new(),
            changes: Changes::default(),
            is_strong: false,
            is_deferred: false,
            is_weak: false,
            local: Vec::new(),
            remote: BTreeMap::new(),
            drawn: BTreeMap::new(),
            placed: 0,
            to_split: None,
        }
    }

    /// The view, for its missed rows and the dependencies of the reply.
    pub fn view(&self) -> &View<'a> {
        &self.view
    }

    /// The datafiles that may be taken from the pools.
    pub fn pools(&self) -> &'a Pools {
        self.pools
    }

    /// The rows that the view missed.
    pub fn into_needs(self) -> Needs {
        self.view.into_needs()
    }

    /// The handle meant: the current object for [`Handle::CURRENT`].
    pub fn object(&self, handle: Handle) -> Result<Handle, Stopped> {
        match handle {
            Handle::CURRENT => self.current.map(|(object, _)| object).ok_or(Stopped::Status(Status::Invalid)),
            handle => Ok(handle),
        }
    }

    /// Whether the run is part of a transaction that has begun.
    pub fn is_in_transaction(&self) -> bool {
        self.own.is_some()
    }

    // Reading.

    /// A row, with this group's changes; stops at another transaction's exclusive lock.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>, Stopped> {
        self.must_be_readable(key)?;
        match self.rows.get(key) {
            Some(row) => Ok(row.clone()),
            None => Ok(self.view.get(key)?),
        }
    }

    /// A decoded row; one that cannot be decoded is damage: `Io`.
    pub fn row<T: RowValue>(&self, key: &[u8]) -> Result<Option<T>, Stopped> {
        self.must_be_readable(key)?;
        let decoded = match self.rows.get(key) {
            Some(row) => row.as_ref().map(|row| T::from_row(row)),
            None => self.view.row(key, T::from_row)?,
        };
        decoded.transpose().map_err(|error| {
            tracing::error!(?key, %error, "a row cannot be decoded");
            Stopped::Status(Status::Io)
        })
    }

    fn must_be_readable(&self, key: &[u8]) -> Result<(), Stopped> {
        match !self.locks.is_empty() && self.locks.stops(key, Mode::Shared, self.own) {
            true => Err(Stopped::Locked(Bytes::copy_from_slice(key))),
            false => Ok(()),
        }
    }

    /// Stops at another transaction's lock on a stream. Its part on other servers may be done, so that the
    /// file's streams do not fit each other until it is done here.
    pub fn stream_must_be_readable(&self, stream: Handle) -> Result<(), Stopped> {
        if self.locks.is_empty() {
            return Ok(());
        }
        self.must_be_readable(&keys::inode(stream))?;
        self.must_be_readable(&keys::datafile(stream))
    }

    /// An object of this server that must exist: `WrongServer` if it is another's, `Stale` if it is gone.
    pub fn inode(&self, handle: Handle) -> Result<Inode, Stopped> {
        let known = self.inodes.borrow().iter().find(|(of, _)| *of == handle).map(|(_, inode)| inode.clone());
        if let Some(inode) = known {
            self.must_be_readable(&keys::inode_read(handle))?;
            return Ok(inode);
        }
        let inode = self.inode_once(handle)?;
        let mut inodes = self.inodes.borrow_mut();
        inodes.truncate(INODES_KEPT - 1);
        inodes.insert(0, (handle, inode.clone()));
        Ok(inode)
    }

    /// As [`Ctx::inode`], of an object that is requested once: it is not kept.
    pub fn inode_once(&self, handle: Handle) -> Result<Inode, Stopped> {
        if handle.server() != self.identity.id {
            return Err(Stopped::Status(Status::WrongServer));
        }
        self.row(&keys::inode_read(handle))?.ok_or(Stopped::Status(Status::Stale))
    }

    /// A directory that must exist: this server's own, or its shard of another's.
    pub fn directory(&self, handle: Handle) -> Result<Inode, Stopped> {
        if handle.server() != self.identity.id {
            return self.shard(handle)?.ok_or(Stopped::Status(Status::WrongServer));
        }
        let inode = self.inode(handle)?;
        if inode.kind != Kind::Directory {
            return Err(Stopped::Status(Status::NotDirectory));
        }
        Ok(inode)
    }

    /// This server's shard of another server's directory, if it has one.
    fn shard(&self, dir: Handle) -> Result<Option<Inode>, Stopped> {
        if self.identity.splits_at().is_none() {
            return Ok(None);
        }
        Ok(self.row::<Inode>(&keys::inode(dir))?.filter(|inode| inode.shards.is_split()))
    }

    /// The directory of an entry, which must be on this server as far as `name` is concerned.
    ///
    /// # Errors
    /// [`Stopped::Split`]: the name's place is another shard's.
    pub fn directory_of(&self, dir: Handle, name: &Name) -> Result<Inode, Stopped> {
        let inode = self.directory(dir)?;
        self.must_hold(dir, &inode, name)?;
        Ok(inode)
    }

    /// As [`Ctx::directory_of`], of a directory that was read already.
    pub fn must_hold(&self, dir: Handle, inode: &Inode, name: &Name) -> Result<(), Stopped> {
        match self.holds(inode, name) {
            true => Ok(()),
            false => Err(Stopped::Split(Box::new((dir, inode.shards.clone())))),
        }
    }

    /// Whether this server holds the place of a name.
    pub fn holds(&self, inode: &Inode, name: &Name) -> bool {
        !inode.shards.is_split()
            || inode.shards.server_of(self.identity.place_of(name.as_bytes())) == Some(self.identity.id)
    }

    /// This directory has grown to where it is to be split.
    pub fn wants_split(&mut self, dir: Handle) {
        self.to_split = Some(dir);
    }

    /// To begin a generation of a laid-out file: appends to it are over, and none begins before this group
    /// has ended.
    pub fn must_have_turn(&self, file: Handle) -> Result<(), Stopped> {
        match self.facts.turns.iter().any(|turn| turn.file == file) {
            true => Ok(()),
            false => Err(Stopped::Turn(file)),
        }
    }

    /// Whether a plan for this request was given up before.
    pub fn was_tried(&self) -> bool {
        self.facts.tried
    }

    /// An entry of a directory of this server.
    pub fn entry(&self, dir: Handle, name: &Name) -> Result<Option<Dirent>, Stopped> {
        self.row(&self.entry_key(dir, name))
    }

    /// The key of an entry.
    pub fn entry_key(&self, dir: Handle, name: &Name) -> Bytes {
        keys::entry(dir, self.identity.place_of(name.as_bytes()), name.as_bytes())
    }

    /// Rows of a range, without this group's changes (listings are groups of their own).
    pub fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize) -> Result<Scan, Stopped> {
        Ok(self.view.scan(prefix, after, limit)?)
    }

    /// The same; where they must be loaded, the objects that they lead to are loaded with them.
    pub fn scan_following(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
        follow: &Follow,
    ) -> Result<Scan, Stopped> {
        Ok(self.view.scan_following(prefix, after, limit, Some(follow))?)
    }

    /// Keys under a prefix that this group itself put (`true`) or removed: a scan does not show them.
    pub fn own_under(&self, prefix: &[u8]) -> impl Iterator<Item = (&Bytes, bool)> {
        let from = Bytes::copy_from_slice(prefix);
        let rows = self.rows.range(from.clone()..).take_while(move |(key, _)| key.starts_with(&from));
        rows.map(|(key, value)| (key, value.is_some()))
    }

    /// Facts of a stream, with this group's changes.
    pub fn stream(&self, handle: Handle) -> Result<Option<StreamInfo>, Stopped> {
        match self.streams.get(&handle) {
            Some(state) => Ok(state.as_ref().map(|(info, _)| *info)),
            None => Ok(self.view.stream(handle)?),
        }
    }

    /// The change count of a stream of this server, with this group's changes.
    pub fn count_of(&self, stream: Handle) -> ChangeCount {
        self.moved.get(&stream).map_or_else(|| self.counts.of(stream), |moved| moved.to)
    }

    /// The same of an object, if it is a file of this server.
    pub fn count_in(&self, attr: &Attr) -> ChangeCount {
        match attr.kind == Kind::File && attr.handle.server() == self.identity.id {
            true => self.count_of(attr.handle),
            false => ChangeCount::NONE,
        }
    }

    /// The effect of this group's newest change of a stream on its change count.
    pub fn move_of(&self, stream: Handle) -> Option<Move> {
        self.moved.get(&stream).copied()
    }

    /// Facts of a stream of this server as the wire has them.
    pub fn facts_of(&self, stream: Handle, info: &StreamInfo) -> StreamFacts {
        crate::meta::inode::facts_of(info, self.count_of(stream))
    }

    /// Content of a small stream, with this group's changes; may be shorter than its size.
    pub fn small_content(&self, handle: Handle) -> Result<Bytes, Stopped> {
        match self.streams.get(&handle) {
            Some(Some((_, content))) => Ok(content.clone()),
            Some(None) => Ok(Bytes::new()),
            None => Ok(self.view.small_content(handle)?),
        }
    }

    /// The owner of a stream's handle for capability checks: the metafile itself, or the datafile's owner.
    pub fn owner_of(&self, stream: Handle) -> Result<Handle, Stopped> {
        if let Some(row) = self.row::<Datafile>(&keys::datafile(stream))? {
            return Ok(row.owner);
        }
        self.inode(stream).map(|_| stream)
    }

    /// Attributes of an object of this server, as the wire has them.
    pub fn attr(&self, handle: Handle) -> Result<Attr, Stopped> {
        let inode = self.inode(handle)?;
        let stream = if inode.kind == Kind::File { self.stream(handle)? } else { None };
        Ok(crate::meta::inode::attr_of(handle, &inode, stream))
    }

    /// Attributes of an object of this server, as an answer.
    pub fn attr_answer(&self, handle: Handle) -> Result<Answer, Stopped> {
        let attr = self.attr(handle)?;
        let count = self.count_in(&attr);
        Ok(Answer::Attr { attr, count })
    }

    /// Attributes of this server's part of an object: of a split directory those of its shard.
    pub fn attr_here(&self, handle: Handle) -> Result<Attr, Stopped> {
        if handle.server() == self.identity.id {
            return self.attr(handle);
        }
        Ok(crate::meta::inode::attr_of(handle, &self.directory(handle)?, None))
    }

    /// The next `len` bytes of the request's bulk data.
    pub fn take_bulk(&mut self, len: usize) -> Result<Bytes, Stopped> {
        if len > self.bulk_in.len() {
            return Err(Stopped::Status(Status::BadMessage));
        }
        Ok(self.bulk_in.split_to(len))
    }

    /// The store's result for the running operation on `stream`, if it was asked already ([`Stopped::Bulk`]).
    pub fn done(&self, stream: Handle) -> Option<Result<crate::data::Done, Status>> {
        self.facts.done.get(&(self.op_index, stream)).cloned()
    }

    /// Whether this group changed nothing so far: bulk work is done only then, since it is done before the
    /// group's end.
    pub fn is_unchanged(&self) -> bool {
        self.changes.is_empty() && self.local.is_empty() && self.remote.is_empty()
    }

    // Other servers.

    /// Attributes of an object of any server.
    pub fn fact_attr(&self, handle: Handle) -> Result<Attr, Stopped> {
        if handle.server() == self.identity.id {
            return self.attr(handle);
        }
        match self.facts.known.get(&FactKey::Attr(handle)) {
            Some(Fact::Attr(fact)) => fact.clone().map_err(Stopped::Status),
            _ => Err(Stopped::Fact(FactKey::Attr(handle))),
        }
    }

    /// An entry of a directory of any server, and the server that holds its place.
    pub fn fact_entry(&self, dir: Handle, name: &Name) -> Result<(ServerId, Option<Dirent>), Stopped> {
        let (me, place) = (self.identity.id, self.identity.place_of(name.as_bytes()));
        let here = if dir.server() == me { Some(self.directory(dir)?) } else { self.shard(dir)? };
        let mut at = match here {
            Some(inode) if self.holds(&inode, name) => return Ok((me, self.entry(dir, name)?)),
            Some(inode) => inode.shards.server_of(place).unwrap_or(me),
            None => dir.server(),
        };
        loop {
            let key = FactKey::Entry(at, dir, name.clone());
            match self.facts.known.get(&key) {
                Some(Fact::Entry(fact)) => {
                    let entry = fact.clone().map_err(Stopped::Status)?;
                    return Ok((at, entry.map(|e| Dirent { handle: e.handle, kind: e.kind })));
                }
                Some(Fact::Shards(shards)) => match shards.server_of(place) {
                    Some(next) if next != at && next != me => at = next,
                    _ => return Err(Stopped::Status(Status::Changed)),
                },
                _ => return Err(Stopped::Fact(key)),
            }
        }
    }

    /// The shards of a directory of any server that is to be removed. Of another server's it is asked only
    /// when a plan that took it for whole was given up: nearly all are, and whether one is its server checks.
    pub fn fact_shards(&self, dir: Handle) -> Result<Shards, Stopped> {
        if dir.server() != self.identity.id && !self.was_tried() {
            return Ok(Shards::WHOLE);
        }
        Ok(self.fact_attr(dir)?.shards)
    }

    /// Facts of a stream of any server.
    pub fn fact_stream(&self, stream: Handle) -> Result<StreamFacts, Stopped> {
        if stream.server() == self.identity.id {
            let info = self.stream(stream)?.ok_or(Stopped::Status(Status::Stale))?;
            return Ok(self.facts_of(stream, &info));
        }
        match self.facts.known.get(&FactKey::Stream(stream)) {
            Some(Fact::Stream(fact)) => (*fact).map_err(Stopped::Status),
            _ => Err(Stopped::Fact(FactKey::Stream(stream))),
        }
    }

    /// A handle never used before, of any server.
    pub fn draw(&mut self, server: ServerId) -> Result<Handle, Stopped> {
        let at = self.drawn.entry(server).or_default();
        let handle = self.facts.drawn.get(&server).and_then(|pool| pool.get(*at)).copied();
        *at += 1;
        handle.ok_or(Stopped::Draw(server))
    }

    /// The server that the next directory of this group goes to.
    pub fn turn_of_directory(&mut self) -> ServerId {
        let server = self.facts.places.get(self.placed).copied();
        debug_assert!(server.is_some(), "a turn is taken for each directory of a group before it runs");
        self.placed += 1;
        server.unwrap_or(self.identity.id)
    }

    // The open files by client.

    /// The requesting client opens this file. If a file is made on another server, the client reports the
    /// open to that one.
    pub fn opened(&self, object: Handle) {
        if object.server() == self.identity.id {
            self.sessions.openers.opened(object, self.client);
        }
    }

    /// The asking client has this file open, still.
    pub fn held_open(&self, object: Handle) {
        self.sessions.openers.held(object, self.client);
    }

    /// Whether another client than this one may have the file open.
    pub fn may_be_open_elsewhere(&self, object: Handle, client: ClientId) -> bool {
        self.sessions.has_another_client(client) && self.sessions.openers.may_be_elsewhere(object, client)
    }

    // Changing.

    /// Put a row of this server.
    pub fn put<T: RowValue>(&mut self, key: Bytes, value: &T) -> Result<(), Stopped> {
        self.put_raw(key, Some(value.to_row()))
    }

    /// Remove a row of this server.
    pub fn remove(&mut self, key: Bytes) -> Result<(), Stopped> {
        self.put_raw(key, None)
    }

    /// Put or remove a row, as bytes. Stops at another transaction's exclusive lock.
    pub fn put_raw(&mut self, key: Bytes, value: Option<Bytes>) -> Result<(), Stopped> {
        if !self.locks.is_empty() && self.locks.stops(&key, Mode::Shared, self.own) {
            return Err(Stopped::Locked(key));
        }
        self.inodes.get_mut().retain(|(of, _)| keys::inode_read(*of) != key[..]);
        self.rows.insert(key.clone(), value.clone());
        self.changes.rows.push((key, value));
        self.is_strong = true;
        Ok(())
    }

    /// Whether a lock, even a shared one, stops the removal of this key's object.
    pub fn must_be_unlocked(&self, key: &[u8]) -> Result<(), Stopped> {
        if self.locks.stops(key, Mode::Exclusive, self.own) {
            return Err(Stopped::Locked(Bytes::copy_from_slice(key)));
        }
        Ok(())
    }

    /// Change a stream of this server.
    pub fn change_stream(&mut self, handle: Handle, change: StreamChange) -> Result<(), Stopped> {
        let info = self.stream(handle)?;
        let keeps_content = matches!(change, StreamChange::Resize { .. } | StreamChange::Advance { .. });
        let content = match info {
            Some(info) if info.small && keeps_content => self.small_content(handle)?,
            _ => Bytes::new(),
        };
        let next = crate::meta::inode::stream_after(info, &content, &change);
        self.streams.insert(handle, next);
        if change_counts::moves(&change, info.map(|info| info.size)) {
            self.moved.insert(handle, Move { from: self.count_of(handle), to: self.counts.draw() });
        }
        self.changes.streams.push((handle, change));
        self.is_strong = true;
        Ok(())
    }

    /// Change a stream by a data write: as long as a group does nothing else, its reply does not wait for the
    /// sync unless the data mode says so.
    pub fn write_stream(&mut self, handle: Handle, change: StreamChange) -> Result<(), Stopped> {
        self.weakly(|ctx| ctx.change_stream(handle, change))
    }

    /// Change something that need be no more durable than the data that is written with it.
    pub fn weakly(&mut self, change: impl FnOnce(&mut Self) -> Result<(), Stopped>) -> Result<(), Stopped> {
        let strong = self.is_strong;
        change(self)?;
        self.is_strong = strong;
        self.is_weak = true;
        Ok(())
    }

    /// Change attributes alone: as long as a group does nothing else, its own answer does not wait for a
    /// sync.
    pub fn deferring(
        &mut self,
        change: impl FnOnce(&mut Self) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        let strong = self.is_strong;
        change(self)?;
        self.is_strong = strong;
        self.is_deferred = true;
        Ok(())
    }

    /// Plan an action on the server of the object it concerns (`RenameLock`: server 0). All actions of a
    /// group are one transaction.
    pub fn act(&mut self, server: ServerId, action: Action) {
        if server == self.identity.id {
            self.local.push(action);
        } else {
            self.remote.entry(server).or_default().push(action);
        }
    }

    /// Actions on other servers were planned: the group is a transaction over servers.
    pub fn is_distributed(&self) -> bool {
        !self.remote.is_empty()
    }

    /// End the run. Where only this server is concerned, its actions are applied now and become changes; else
    /// direct changes and actions must not be mixed. The change counts move: the changes are applied before
    /// any other request runs.
    pub fn finish(&mut self) -> Result<Outcome, Stopped> {
        if self.remote.is_empty() && !self.local.contains(&Action::RenameLock {}) {
            for action in std::mem::take(&mut self.local) {
                crate::txn::actions::apply(self, &action)?;
            }
        } else if !self.changes.is_empty() {
            return Err(Stopped::Status(Status::NotSupported));
        }
        self.moved.iter().for_each(|(&stream, moved)| self.counts.set(stream, moved.to));
        self.changes.strength = match (self.is_strong, self.is_deferred, self.is_weak) {
            (false, false, _) => Strength::Weak,
            (false, true, false) => Strength::Deferred,
            _ => Strength::Strong,
        };
        let changes = std::mem::take(&mut self.changes);
        let (local, remote) = (std::mem::take(&mut self.local), std::mem::take(&mut self.remote));
        Ok(Outcome { changes, local, remote, to_split: self.to_split.take() })
    }

    /// The generation of a file's streams, as carried by data requests.
    pub fn generation(&self, handle: Handle) -> Result<Generation, Stopped> {
        Ok(Generation(self.stream(handle)?.map_or(0, |info| info.generation)))
    }
}
