//! A compound on its way: a state machine. Its function [`Compound::go`] cannot await.
//!
//! `go` runs group after group until all are done, or until the compound must wait. On the fast path
//! everything is in memory: the connection's loop calls `go` once, and the compound is done. Otherwise `go`
//! returns a [`Wait`], which names the event to wait for. [`drive`](super::drive) awaits this event, and then
//! calls `go` again.
//!
//! ```text
//!   a group:  kept reply? ─▶ space ─▶ handlers ─▶ finish ─┬─ local:  apply (changes + kept reply, one batch) ─▶ target
//!                ▲             ▲          ▲               └─ over servers: Wait::Transaction
//!                └─────────────┴──────────┴── any other Wait: then again from the first step not yet done
//! ```
//! **Invariant: between the run of the handlers and the batch (or the transaction's local locks) nothing else
//! runs** (held by the compiler: `go`, which cannot await).

mod audited;
mod notice;
mod reply;
mod space;

use super::Wait;
use crate::audit::Noted;
use crate::counters::add;
use crate::data::precreated::{self, Touch};
use crate::meta::lingering;
use crate::net::connection::MountUse;
use crate::net::session::{Running, Session, Slotless};
use crate::ops::{self, Alters};
use crate::request::ctx::{Ctx, Facts, Outcome, Resume, Stopped};
use crate::request::reply_gate::Target;
use crate::request::run_loaded::run_loaded;
use crate::shard::Shard;
use crate::txn::{Plan, Undecided};
use bytes::Bytes;
use futures_util::FutureExt;
use notice::Notice;
pub use reply::{Collected, decode_replies, encode_reply};
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Instant, Work};
use shoal_proto::message::{VERSION_OF_FOLLOWED_LAYOUTS, VERSIONS};
use shoal_proto::{
    Action, Answer, ClientId, Durability, Group, KeyLimits, MountKeyId, Op, ServerId, SlotUse, Status, Time,
    TxId,
};
use shoal_store::{Admission, Loaded, Lsn, Needs, StoreError, Strength, View};
use space::ask_for;
use std::rc::Rc;

/// The requester.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// The client.
    pub client: ClientId,
    /// A peer server.
    pub peer: Option<ServerId>,
    /// This server itself.
    pub own: bool,
    /// A client that proved that it may manage.
    pub manages: bool,
    /// The mount key of a client.
    pub mount: Option<MountUse>,
    /// The version of the protocol that its connection speaks.
    pub version: u16,
}

impl Asker {
    /// This server, for a client.
    pub fn own(client: ClientId) -> Asker {
        Asker { client, peer: None, own: true, manages: false, mount: None, version: VERSIONS.1 }
    }

    /// The mount key that the capabilities of its requests are bound to.
    pub fn key(self) -> MountKeyId {
        self.mount.map_or(MountKeyId::FIRST, |key| key.id)
    }

    /// The limits of that key.
    pub fn limits(self) -> KeyLimits {
        self.mount.map_or(KeyLimits::default(), |key| key.limits)
    }

    /// The peer server, for operations of which only peers have a part.
    ///
    /// # Errors
    /// `Forbidden`.
    pub fn must_be_peer(self) -> Result<ServerId, Status> {
        self.peer.ok_or(Status::Forbidden)
    }

    /// Only a transaction's coordinator prepares and finishes it.
    ///
    /// # Errors
    /// `Forbidden`.
    pub fn must_coordinate(self, tx: TxId) -> Result<(), Status> {
        if self.peer == Some(tx.coordinator()) { Ok(()) } else { Err(Status::Forbidden) }
    }
}

/// A compound under way. See the module's page.
pub struct Compound {
    pub(super) shard: Rc<Shard>,
    pub(super) asker: Asker,
    groups: Vec<Group>,
    bulk: Bytes,
    /// When the asker no longer waits.
    pub deadline: Instant,
    pub(super) durability: Durability,
    pub(super) place: Option<(Rc<Session>, SlotUse)>,
    slotless: Option<Slotless>,
    pub(super) running: Rc<Running>,
    retry: bool,
    kept_groups: u16,
    pub(super) waited_for_found: bool,
    pub(super) collected: Collected,
    /// The last line of the audit log that the reply waits for.
    pub(super) noted: Option<Noted>,
    /// The asker may ask the present group.
    is_permitted: bool,

    // The present group.
    at: usize,
    /// Where its part of the bulk data begins.
    bulk_at: usize,
    runs: u32,
    retry_looked_up: bool,
    /// Where the last run stopped.
    pub(super) stopped: Option<Resume>,
    /// Transactions of this group that were given up so far.
    pub tries: u32,
    pub(super) loaded: Loaded,
    pub(super) facts: Facts,
    /// A transaction already begun (it holds the rename lock): its locks do not stop the handlers.
    pub(super) own: Option<Undecided>,
    pub(super) admission: Option<Admission>,
}

enum Ran {
    Failed(Status, Vec<Answer>, Lsn),
    Halted(Stopped, Needs, Resume),
    Done(Vec<Answer>, Vec<Bytes>, Outcome, Seen),
}

/// The newest changes that a run saw.
#[derive(Clone, Copy)]
struct Seen {
    /// Of others, or all that its answers must not show before they are durable.
    others: Lsn,
    /// The asker's own deferred ones ([`crate::meta::deferred`]).
    own: Lsn,
}

impl Seen {
    fn of(view: &View<'_>, before: Lsn) -> Seen {
        Seen { others: view.depends_on().max(before), own: view.excused() }
    }

    fn all(self) -> Lsn {
        self.others.max(self.own)
    }
}

impl Compound {
    /// A compound to run.
    pub fn new(
        shard: &Rc<Shard>,
        asker: Asker,
        groups: Vec<Group>,
        bulk: Bytes,
        deadline: Instant,
    ) -> Compound {
        Compound {
            shard: shard.clone(),
            asker,
            groups,
            bulk,
            deadline,
            durability: Durability::Usual,
            place: None,
            slotless: None,
            running: Rc::default(),
            retry: false,
            kept_groups: 0,
            waited_for_found: false,
            collected: Collected::default(),
            noted: None,
            is_permitted: true,
            at: 0,
            bulk_at: 0,
            runs: 0,
            retry_looked_up: false,
            stopped: None,
            tries: 0,
            loaded: Loaded::default(),
            facts: Facts::default(),
            own: None,
            admission: None,
        }
    }

    /// Give it the slot it claimed.
    pub fn in_slot(
        mut self,
        session: Rc<Session>,
        slot_use: SlotUse,
        retry: bool,
        kept_groups: u16,
    ) -> Compound {
        self.place = Some((session, slot_use));
        self.retry = retry;
        self.kept_groups = kept_groups;
        self
    }

    /// Its reply is to be so durable.
    pub fn with_durability(mut self, durability: Durability) -> Compound {
        self.durability = durability;
        self
    }

    /// A change that takes no slot (a peer's).
    pub fn without_slot(mut self, slotless: Slotless) -> Compound {
        self.slotless = Some(slotless);
        self
    }

    /// Those that wait for it.
    pub fn for_waiters(mut self, running: Rc<Running>) -> Compound {
        self.running = running;
        self
    }

    /// Its shard.
    pub(crate) fn shard(&self) -> &Rc<Shard> {
        &self.shard
    }

    /// Run until all groups are done (`None`) or something must be waited for.
    pub fn go(&mut self) -> Option<Wait> {
        while self.at < self.groups.len() {
            if self.is_discarded() {
                return Some(Wait::Discarded);
            }
            if let Some(wait) = self.group() {
                return Some(wait);
            }
        }
        None
    }

    /// Whether no client waits any more and nothing of the present group was written outside its batch.
    pub fn is_discarded(&self) -> bool {
        !self.asker.own && self.facts.resume.is_none() && self.running.is_abandoned()
    }

    /// The operations of the present group.
    pub fn ops(&self) -> &[Op] {
        self.groups.get(self.at).map_or(&[], |g| &g.ops)
    }

    /// Whether an operation is alone in a client's request: a read may then be answered by pieces, and the
    /// data of a write, which has a slot, be pulled.
    fn is_alone(&self) -> bool {
        let Asker { peer, own, .. } = self.asker;
        self.groups.len() == 1 && self.ops().len() == 1 && peer.is_none() && !own
    }

    fn changes(&self) -> bool {
        self.ops().iter().any(Op::changes)
    }

    /// Whether a client changes nothing but attributes by it: its answer may show what that client changed so
    /// before.
    fn is_of_attributes(&self) -> bool {
        self.place.is_some()
            && self.asker.peer.is_none()
            && self.ops().iter().all(|op| ops::of(op).alters == Alters::Attributes)
    }

    fn group(&mut self) -> Option<Wait> {
        if self.runs == 0 {
            let map = self.shard.identity().map.clone();
            for op in self.ops() {
                self.shard.counters.op(op);
                self.shard.env.work(Work::Change, u64::from(op.changes()));
                let cost = (ops::of(op).cost)(op, &map);
                self.shard.env.work(Work::Object, cost.objects);
                self.shard.env.work(Work::Removal, cost.removals);
            }
            self.shard.env.work(Work::Operation, self.ops().len() as u64);
            if let Err(status) = self.permit() {
                self.is_permitted = false;
                self.end_group(Err(status), Vec::new(), Vec::new());
                return None;
            }
        }
        if self.retry && !self.retry_looked_up && !mutant::is(Mutant::RetryTwice) {
            match self.kept() {
                // It may be the answer of a transaction, which leaves when all its servers have finished: a
                // client that received it earlier might not see its own change there. The transaction's id is
                // not kept, so the reply waits for all of them.
                Ok(Some(_)) if !self.waited_for_found && !self.shard.book.has_finished_found() => {
                    return Some(Wait::Found);
                }
                Ok(Some((reply, loss, seen))) => {
                    add(&self.shard.counters.kept, 1);
                    // The record outlives a power cut, the bytes written beside it perhaps not: the next
                    // fsync must see it.
                    // Of several groups the first to be done knows the oldest one.
                    self.collected.loss = self.collected.loss.take().or(loss);
                    self.note_kept(&reply);
                    self.collect(reply.into(), Vec::new());
                    let made = self.collected.made;
                    let done = match self.is_of_attributes() {
                        true => (seen.own, Strength::Deferred),
                        // Where data is durable at reply, the write is among the applied changes, and perhaps
                        // not durable yet.
                        false => (self.shard.collection.applied(), Strength::Weak),
                    };
                    self.depend(seen.others, Some(done));
                    if !self.ops().iter().any(|op| ops::of(op).alters == Alters::Data) {
                        self.collected.made = made.max(seen.all());
                    }
                    self.next_group();
                    return None;
                }
                Ok(None) => self.retry_looked_up = true,
                Err(needs) => return Some(Wait::Load(needs)),
            }
        }
        if let [op] = self.ops()
            && ops::of(op).is_direct()
        {
            return Some(Wait::Direct);
        }
        if self.changes() && self.admission.is_none() {
            let mut ask = ask_for(self.ops());
            // Its bytes are there: it has to wait for room, but a full disk is no answer any more.
            ask.frees |= !self.facts.done.is_empty();
            match self.shard.collection.admit(ask).now_or_never() {
                Some(Ok(admission)) => self.admission = Some(admission),
                // Removed files may give way.
                Some(Err(StoreError::NoSpace { .. })) if !ask.frees => return Some(Wait::Admit(ask)),
                Some(Err(error)) => {
                    self.end_group(Err(crate::data::status_of(error)), Vec::new(), Vec::new());
                    return None;
                }
                None => return Some(Wait::Admit(ask)),
            }
        }
        self.predraw();
        self.runs += 1;
        if self.runs > 1 {
            add(&self.shard.counters.reruns, 1);
        }
        match self.run() {
            // The plan was made from facts that are old by now. Those of the asker do not become newer here.
            Ran::Failed(Status::Changed, ..) if !self.ops().iter().any(Op::expects) => Some(Wait::Backoff),
            Ran::Failed(status, answers, seen) => {
                let before = if self.changes() { self.shard.collection.apply_failed() } else { Lsn(0) };
                self.depend(seen.max(before), None);
                if self.facts.resume.is_some() {
                    self.keep_failure(status, &answers);
                }
                self.end_group(Err(status), answers, Vec::new());
                None
            }
            Ran::Halted(halt, needs, stopped) => {
                if matches!(halt, Stopped::Bulk(_)) && !self.may_write_at(&stopped) {
                    self.end_group(Err(Status::NotSupported), stopped.answers, Vec::new());
                    return None;
                }
                self.stopped = Some(stopped);
                Some(self.halted(halt, needs))
            }
            Ran::Done(answers, bulk, outcome, seen) => self.done(answers, bulk, outcome, seen),
        }
    }

    /// Whether an operation may write outside the group's batch. It must be the last one, and the reply that
    /// is kept with it must have room: from its first byte on nothing may end the group but its result.
    fn may_write_at(&self, stopped: &Resume) -> bool {
        let is_write = self.ops().get(stopped.at).is_some_and(Op::changes);
        let is_last = stopped.at + 1 == self.ops().len();
        !is_write || (is_last && reply::has_room_to_keep(&stopped.answers))
    }

    /// Whether this asker may ask this.
    fn permit(&self) -> Result<(), Status> {
        let Asker { peer, own, manages, mount, .. } = self.asker;
        let identity = self.shard.identity();
        if mount.is_some_and(|of| identity.map.mount_key(of.id).is_some_and(|key| key.revoked)) {
            return Err(Status::KeyRevoked);
        }
        let is_for_client = |op: &Op| match op.is_peers() {
            true => manages && (ops::of(op).is_repair)(&self.shard, op),
            false => manages || !op.is_management(),
        };
        if peer.is_none() && !own && !self.ops().iter().all(is_for_client) {
            return Err(Status::Forbidden);
        }
        if let Some(of) = mount {
            self.ops().iter().try_for_each(|op| of.limits.permits(op))?;
        }
        if peer.is_some() && !self.shard.admits() {
            return Err(Status::Unavailable);
        }
        // As PVFS: a request is one operation.
        let is_client = peer.is_none() && !own;
        if is_client && !self.shard.identity().map.switches.compound && self.ops().len() > 1 {
            return Err(Status::NotSupported);
        }
        // A peer's write (its part of an append) goes to a place that was given to no other append: it may be
        // done twice.
        let slotless = self.place.is_none() && is_client;
        if slotless && self.changes() {
            return Err(Status::BadMessage);
        }
        Ok(())
    }

    /// A group that makes something nearly always takes one handle of this server: have it ready. And a turn
    /// for each directory: however often the group runs, it keeps that.
    fn predraw(&mut self) {
        let directories = self.ops().iter().filter(|op| ops::of(op).makes_directory).count();
        while self.facts.places.len() < directories {
            self.facts.places.push(self.shard.next_place());
        }
        let count: usize = self.ops().iter().map(|op| ops::of(op).draws).sum();
        let own = self.shard.id();
        if count > 0 && self.facts.drawn.get(&own).is_none_or(|drawn| drawn.len() < count) {
            let drawn = self.facts.drawn.entry(own).or_default();
            while drawn.len() < count
                && let Some(handle) = self.shard.handles.take()
            {
                drawn.push(handle);
            }
        }
    }

    fn run(&self) -> Ran {
        let shard = &self.shard;
        let identity = shard.identity();
        let excuse = |lsn| shard.deferred.of(lsn, self.asker.client);
        let mut view = View::new(&shard.collection, &self.loaded);
        if self.is_of_attributes() {
            view = view.excusing(&excuse);
        }
        let now = Time(shard.env.wall().0);
        let mut ctx = Ctx::new(view, shard.surroundings(&identity), &self.facts, now)
            .for_client(self.asker.client, self.group_bulk())
            .of_key(self.asker.key(), self.asker.limits())
            .in_transaction(self.own.as_ref().map(Undecided::tx));
        ctx.may_send_pieces = self.is_alone() && self.place.is_none();
        ctx.may_pull = self.is_alone() && self.place.is_some();
        let mut answers = Vec::with_capacity(self.ops().len());
        let (mut from, mut before) = (0, Lsn(0));
        if let Some(resume) = &self.facts.resume {
            answers.extend_from_slice(&resume.answers);
            (from, before, ctx.current) = (resume.at, resume.seen, resume.current);
        }
        ctx.knows_followed = self.asker.version >= VERSION_OF_FOLLOWED_LAYOUTS;
        let halt = run_ops(&mut ctx, self.ops(), from, &mut answers);
        self.copied(ctx.copied);
        let seen = Seen::of(ctx.view(), before).all();
        match halt {
            None => {}
            Some(Stopped::Status(status)) => return Ran::Failed(status, answers, seen),
            Some(Stopped::Split(split)) => {
                let (dir, shards) = *split;
                answers.push(Answer::Split { dir, shards, key: identity.place_key });
                return Ran::Failed(Status::Split, answers, seen);
            }
            Some(halt) => {
                let stopped = Resume { at: answers.len(), answers, current: ctx.current, seen };
                return Ran::Halted(halt, ctx.into_needs(), stopped);
            }
        }
        match ctx.finish() {
            Ok(outcome) => {
                let seen = Seen::of(ctx.view(), before);
                Ran::Done(answers, std::mem::take(&mut ctx.bulk_out), outcome, seen)
            }
            Err(Stopped::Status(status)) => {
                Ran::Failed(status, Vec::new(), Seen::of(ctx.view(), before).all())
            }
            Err(halt) => {
                let stopped = Resume { at: 0, answers: Vec::new(), current: None, seen };
                Ran::Halted(halt, ctx.into_needs(), stopped)
            }
        }
    }

    /// A datafile made ahead of need is touched, as weakly as the data that is then written to it. If it was
    /// touched meanwhile, or another's lock is in the way, the handler sees that when it runs again.
    pub(super) async fn touch(&mut self, touch: &Touch) -> Result<(), Status> {
        let shard = self.shard.clone();
        let touching = run_loaded(&shard, None, &mut self.loaded, |ctx| {
            if !precreated::is_for(ctx, touch.datafile, touch.owner)? {
                return Ok(None);
            }
            ctx.weakly(|ctx| precreated::touch(ctx, touch))?;
            let changes = ctx.finish()?.changes;
            Ok(Some((ctx.view().depends_on(), changes)))
        });
        match touching.await.map_err(crate::data::status_of)? {
            Ok(Some((seen, changes))) => {
                let strength = changes.strength;
                let applied = shard.collection.apply_over(changes, &self.loaded);
                let lsn = applied.map_err(crate::data::status_of)?;
                self.depend(seen, Some((lsn, strength)));
                Ok(())
            }
            Err(Stopped::Status(status)) => Err(status),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    fn copied(&self, bytes: usize) {
        shoal_env::Counters::add(&self.shard.env.counters().copied_bytes, bytes as u64);
    }

    /// The present group's part of the request's bulk data: the lengths that its operations state, after that
    /// of the groups before.
    fn group_bulk(&self) -> Bytes {
        if self.bulk.is_empty() {
            return Bytes::new();
        }
        let done = self.facts.resume.as_ref().map_or(0, |resume| bulk_of(&self.ops()[..resume.at]));
        let from = (self.bulk_at + done).min(self.bulk.len());
        let to = (self.bulk_at + bulk_of(self.ops())).min(self.bulk.len());
        self.bulk.slice(from..to)
    }

    fn halted(&mut self, halt: Stopped, needs: Needs) -> Wait {
        match halt {
            Stopped::Miss => Wait::Load(needs),
            Stopped::Locked(key) => Wait::Locked(self.shard.locks.released(&key)),
            Stopped::Fact(key) => Wait::Fact(key),
            Stopped::Draw(server) => Wait::Draw(server),
            Stopped::Pool(server, upto) => Wait::Pool(self.shard.pools.shortage(server, upto)),
            Stopped::Touch(touch) => Wait::Touch(touch),
            Stopped::Bulk(bulk) => Wait::Bulk(bulk),
            Stopped::Turn(file) => Wait::Turn(file),
            // Ended already.
            Stopped::Status(_) | Stopped::Split(_) => Wait::Discarded,
        }
    }

    fn done(&mut self, answers: Vec<Answer>, bulk: Vec<Bytes>, outcome: Outcome, seen: Seen) -> Option<Wait> {
        if let Some(dir) = outcome.to_split {
            self.shard.splits.want(dir);
        }
        if !(outcome.remote.is_empty() && outcome.local.is_empty()) {
            return self.plan(answers, outcome, seen.all());
        }
        let mut changes = outcome.changes;
        let is_kept = self.changes() && !(changes.is_empty() && self.facts.done.is_empty());
        if is_kept && let Err(status) = self.keep_reply(&mut changes, &answers, &bulk) {
            self.end_group(Err(status), Vec::new(), Vec::new());
            return None;
        }
        self.depend(seen.others, None);
        self.show_own(seen.own);
        if changes.is_empty() {
            self.end_group(Ok(()), answers, bulk);
            return None;
        }
        let strength = changes.strength;
        let notice = Notice::of(&changes, &answers);
        self.shard.lingering.take_in(&changes, || lingering::until(&self.shard));
        match self.shard.collection.apply_over(changes, &self.loaded) {
            Ok(lsn) => {
                self.depend(Lsn(0), Some((lsn, strength)));
                if strength == Strength::Deferred {
                    self.shard.deferred.made(lsn, self.asker.client, seen.others);
                }
                if !notice.pools.is_empty() || self.ops().iter().any(|op| ops::of(op).is_step) {
                    // Other servers' datafiles are this file's now, or this is a step of a change over
                    // several servers: as durable as the commit of a transaction.
                    let modes = self.shard.collection.sync_modes();
                    let made = Some((lsn, Strength::Strong));
                    let target = Target::of(modes, Durability::Durable, Lsn(0), made);
                    self.collected.target = self.collected.target.and(target);
                }
                notice.give(&self.shard);
                self.end_group(Ok(()), answers, bulk);
            }
            Err(error) => self.end_group(Err(crate::data::status_of(error)), Vec::new(), Vec::new()),
        }
        None
    }

    /// The group is a transaction over servers: take the local locks at once, so that the plan stays true
    /// here.
    fn plan(&mut self, answers: Vec<Answer>, outcome: Outcome, seen: Lsn) -> Option<Wait> {
        let is_rename_lock = |a: &Action| matches!(a, Action::RenameLock {});
        let wants_rename_lock =
            outcome.local.iter().chain(outcome.remote.values().flatten()).any(is_rename_lock);
        if wants_rename_lock && self.own.is_none() {
            return Some(Wait::RenameLock);
        }
        let undecided = match self.own.take() {
            Some(undecided) => undecided,
            None => match Undecided::begin(&self.shard) {
                Some(undecided) => undecided,
                None => return Some(Wait::Draw(self.shard.id())),
            },
        };
        match Plan::lock(undecided, answers, outcome, seen) {
            Some(plan) => Some(Wait::Transaction(Box::new(plan))),
            None => Some(Wait::Backoff),
        }
    }

    fn next_group(&mut self) {
        self.bulk_at += bulk_of(self.ops());
        self.at += 1;
        self.runs = 0;
        self.is_permitted = true;
        self.tries = 0;
        self.retry_looked_up = false;
        self.own = None;
        self.admission = None;
        self.facts = Facts::default();
        self.stopped = None;
        self.loaded = Loaded::default();
    }
}

/// Run operations in order from the one at `from` on, until one halts. A client that does not know layouts
/// that clients follow could not read the answer: it is refused.
fn run_ops(ctx: &mut Ctx<'_>, ops: &[Op], from: usize, answers: &mut Vec<Answer>) -> Option<Stopped> {
    for (index, op) in ops.iter().enumerate().skip(from) {
        ctx.op_index = index;
        match ops::run(ctx, op) {
            Ok(mut answer) => {
                if !ctx.knows_followed && !answer.leave_out_followed() {
                    return Some(Stopped::Status(Status::NotSupported));
                }
                answers.push(answer);
            }
            Err(halt) => return Some(halt),
        }
    }
    None
}

/// Bytes of bulk data that operations say they take.
fn bulk_of(ops: &[Op]) -> usize {
    ops.iter().map(|op| (ops::of(op).takes_bytes)(op)).sum()
}
