//! The facts that were fetched for a request, and the list of the facts that are still missing. Facts are
//! answers of other servers, handles, turns, and results of bulk work.

use super::{Ctx, Stopped};
use crate::meta::rows::Dirent;
use shoal_proto::{Answer, Attr, Entry, Handle, Name, Rights, ServerId, Shards, Status, StreamFacts};
use shoal_store::Lsn;
use std::collections::BTreeMap;

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

/// The facts that a run has taken so far, each once.
#[derive(Default)]
pub(super) struct Taken {
    /// Handles, by server.
    drawn: BTreeMap<ServerId, usize>,
    /// Turns of directories.
    places: usize,
}

impl Ctx<'_> {
    /// Whether a plan for this request was given up before.
    pub fn was_tried(&self) -> bool {
        self.facts.tried
    }

    /// To begin a generation of a laid-out file: appends to it are over, and none begins before this group
    /// has ended.
    pub fn must_have_turn(&self, file: Handle) -> Result<(), Stopped> {
        match self.facts.turns.iter().any(|turn| turn.file == file) {
            true => Ok(()),
            false => Err(Stopped::Turn(file)),
        }
    }

    /// The store's result for the running operation on `stream`, if it was asked already ([`Stopped::Bulk`]).
    pub fn done(&self, stream: Handle) -> Option<Result<crate::data::Done, Status>> {
        self.facts.done.get(&(self.op_index, stream)).cloned()
    }

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
        let at = self.taken.drawn.entry(server).or_default();
        let handle = self.facts.drawn.get(&server).and_then(|pool| pool.get(*at)).copied();
        *at += 1;
        handle.ok_or(Stopped::Draw(server))
    }

    /// The server that the next directory of this group goes to.
    pub fn turn_of_directory(&mut self) -> ServerId {
        let server = self.facts.places.get(self.taken.places).copied();
        debug_assert!(server.is_some(), "a turn is taken for each directory of a group before it runs");
        self.taken.places += 1;
        server.unwrap_or(self.identity.id)
    }
}
