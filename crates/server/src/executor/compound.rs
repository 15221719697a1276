//! A compound on its way: a state machine without any `await`.
//!
//! [`Compound::go`] runs group after group until all are done or something must be waited for; the fast path (all in
//! memory) is one call of it from the connection's loop. What is to be waited for is a [`Wait`], and
//! [`drive`](super::drive) passes it.
//!
//! ```text
//!   a group:  kept reply? ─▶ space ─▶ handlers ─▶ finish ─┬─ local:  apply (changes + kept reply, one batch) ─▶ target
//!                ▲             ▲          ▲               └─ over servers: Wait::Transaction
//!                └─────────────┴──────────┴── Wait: load, lock, fact, draw, bulk, admission: then from `handlers` again
//! ```
//! **Invariant: between the run of the handlers and the batch (or the transaction's local locks) nothing else runs.**

use super::{Wait, direct};
use crate::batches::{self, Touch};
use crate::counters::add;
use crate::ctx::{Ctx, Facts, Halt, Outcome};
use crate::gate::Target;
use crate::keys;
use crate::pools;
use crate::rows::{Kept, RowValue};
use crate::session::{Running, Session, Slotless};
use crate::shard::Shard;
use crate::tx::{Plan, Undecided};
use bytes::Bytes;
use futures_util::FutureExt;
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Instant, Work};
use shoal_proto::codec::{Codec, Writer};
use shoal_proto::{
    Action, Allocation, Answer, Blob, ClientId, Durability, Group, GroupReply, Op, ServerId, SlotUse, Status,
    Time, limits,
};
use shoal_store::{Admission, Ask, Changes, Loaded, Lsn, Needs, Strength, View};
use std::rc::Rc;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// The client.
    pub client: ClientId,
    /// A peer server.
    pub peer: Option<ServerId>,
    /// This server itself.
    pub own: bool,
}

/// The answer to a compound as it is collected: groups already encoded, bulk data beside.
#[derive(Default)]
pub struct Collected {
    /// Encoded [`GroupReply`]s.
    pub groups: Writer,
    /// How many.
    pub count: usize,
    /// Bulk data.
    pub bulk: Vec<Bytes>,
    bulk_bytes: usize,
    /// What the reply waits for.
    pub target: Target,
    /// What would be lost together with what was done, if that was done before a start of this server.
    pub loss: Option<u64>,
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

    // The present group.
    at: usize,
    /// Where its part of the bulk data begins.
    bulk_at: usize,
    runs: u32,
    retry_looked_up: bool,
    /// Which operation the last run stopped at.
    pub(super) halted_at: usize,
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
    Halted(usize, Halt, Needs),
    Done(Vec<Answer>, Vec<Bytes>, Outcome, Lsn),
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
            at: 0,
            bulk_at: 0,
            runs: 0,
            retry_looked_up: false,
            halted_at: 0,
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

    /// Those who wait for it.
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

    /// Whether nobody waits any more and nothing of the present group was done outside its batch.
    pub fn is_discarded(&self) -> bool {
        !self.asker.own && self.facts.done.is_empty() && self.running.is_abandoned()
    }

    /// The operations of the present group.
    pub fn ops(&self) -> &[Op] {
        self.groups.get(self.at).map_or(&[], |g| &g.ops)
    }

    fn changes(&self) -> bool {
        self.ops().iter().any(Op::changes)
    }

    fn group(&mut self) -> Option<Wait> {
        if self.runs == 0 {
            for op in self.ops() {
                self.shard.counters.op(op);
                self.shard.env.work(Work::Change, u64::from(op.changes()));
            }
            self.shard.env.work(Work::Operation, self.ops().len() as u64);
            if let Err(status) = self.permit() {
                self.end_group(Err(status), Vec::new(), Vec::new());
                return None;
            }
        }
        if self.retry && !self.retry_looked_up && !mutant::is(Mutant::RetryTwice) {
            match self.kept() {
                // It may be the answer of a transaction, which leaves when all its servers have it: who got it before that
                // would not see his own change there. Which one it was is not kept, so all are waited for.
                Ok(Some(_)) if !self.waited_for_found && !self.shard.book.has_finished_found() => {
                    return Some(Wait::Found);
                }
                Ok(Some((reply, loss, seen))) => {
                    add(&self.shard.counters.kept, 1);
                    // The record outlives a power cut, the bytes written beside it perhaps not: the next fsync must see it.
                    if loss != 0 {
                        self.collected.loss = Some(loss);
                    }
                    self.collect(reply.into(), Vec::new());
                    // Where data is durable at reply, what was done is among what is applied, and perhaps not durable yet.
                    self.depend(seen, Some((self.shard.collection.applied(), Strength::Weak)));
                    self.next_group();
                    return None;
                }
                Ok(None) => self.retry_looked_up = true,
                Err(needs) => return Some(Wait::Load(needs)),
            }
        }
        if let [op] = self.ops()
            && direct::is_direct(op)
        {
            return Some(Wait::Direct);
        }
        if self.changes() && self.admission.is_none() {
            let ask = ask_for(self.ops());
            match self.shard.collection.admit(ask).now_or_never() {
                Some(Ok(admission)) => self.admission = Some(admission),
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
                self.end_group(Err(status), answers, Vec::new());
                None
            }
            Ran::Halted(index, halt, needs) => {
                self.halted_at = index;
                Some(self.halted(halt, needs))
            }
            Ran::Done(answers, bulk, outcome, seen) => self.done(answers, bulk, outcome, seen),
        }
    }

    /// Whether this asker may ask this.
    fn permit(&self) -> Result<(), Status> {
        let Asker { peer, own, .. } = self.asker;
        // A repair may end what no server coordinates; [`super::direct`] sees to it that it does no more.
        let repairs = |op: &Op| match op {
            Op::Finish { tx, .. } => super::direct::is_of_nobody(&self.shard, *tx),
            _ => false,
        };
        if self.ops().iter().any(|op| op.is_peers() && !repairs(op)) && peer.is_none() && !own {
            return Err(Status::Forbidden);
        }
        // As PVFS: a request is one thing.
        let is_client = peer.is_none() && !own;
        if is_client && !self.shard.identity().map.switches.compound && self.ops().len() > 1 {
            return Err(Status::NotSupported);
        }
        // A peer's write (its part of an append) goes to a place that was given to nobody else: it may be done twice.
        let slotless = self.place.is_none() && is_client;
        if slotless && self.changes() {
            return Err(Status::BadMessage);
        }
        Ok(())
    }

    /// The kept reply of the present group.
    fn kept(&self) -> Result<Option<(Bytes, u64, Lsn)>, Needs> {
        let Some((session, slot_use)) = &self.place else { return Ok(None) };
        let key = keys::kept(session.id, slot_use.slot, self.at as u8);
        let view = View::new(&self.shard.collection, &self.loaded);
        let Ok(row) = view.get(&key) else { return Err(view.into_needs()) };
        let kept = row.and_then(|row| Kept::from_row(&row).ok());
        Ok(kept.filter(|k| k.sequence == slot_use.sequence).map(|k| (k.reply.0, k.loss, view.depends_on())))
    }

    /// A group that makes something nearly always takes one handle of this server: have it ready.
    fn predraw(&mut self) {
        let makes = |op: &Op| {
            matches!(
                op,
                Op::Create { .. }
                    | Op::Mknod { .. }
                    | Op::Symlink { .. }
                    | Op::Mkdir { .. }
                    | Op::Createmeta { .. }
                    | Op::Createdata { .. }
                    | Op::Rmdirent { .. }
            )
        };
        let count = self.ops().iter().filter(|op| makes(op)).count();
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
        let view = View::new(&shard.collection, &self.loaded);
        let now = Time(shard.env.wall().0);
        let own = self.own.as_ref().map(Undecided::tx);
        let bulk = self.group_bulk();
        let (facts, lent, client) = (&self.facts, &shard.pools, self.asker.client);
        let mut ctx = Ctx::new(view, &identity, &shard.locks, facts, lent, own, now, client, bulk);
        let mut answers = Vec::with_capacity(self.ops().len());
        let halt = run_ops(&mut ctx, self.ops(), &mut answers);
        self.copied(ctx.copied);
        match halt {
            None => {}
            Some(Halt::Status(status)) => return Ran::Failed(status, answers, ctx.view().depends_on()),
            Some(Halt::Split(split)) => {
                let (dir, shards) = *split;
                answers.push(Answer::Split { dir, shards, key: identity.place_key });
                return Ran::Failed(Status::Split, answers, ctx.view().depends_on());
            }
            Some(halt) => return Ran::Halted(answers.len(), halt, ctx.into_needs()),
        }
        match ctx.finish() {
            Ok(outcome) => {
                let seen = ctx.view().depends_on();
                Ran::Done(answers, std::mem::take(&mut ctx.bulk_out), outcome, seen)
            }
            Err(Halt::Status(status)) => Ran::Failed(status, Vec::new(), ctx.view().depends_on()),
            Err(halt) => Ran::Halted(0, halt, ctx.into_needs()),
        }
    }

    /// A datafile made ahead of need is touched, as weakly as the data that is then written to it. If it was touched
    /// meanwhile, or another's lock is in the way, the handler sees that when it runs again.
    pub(super) async fn touch(&mut self, touch: &Touch) -> Result<(), Status> {
        let shard = self.shard.clone();
        loop {
            let identity = shard.identity();
            let view = View::new(&shard.collection, &self.loaded);
            let now = Time(shard.env.wall().0);
            let (facts, lent, client) = (&self.facts, &shard.pools, self.asker.client);
            let mut ctx =
                Ctx::new(view, &identity, &shard.locks, facts, lent, None, now, client, Bytes::new());
            let touched = match batches::is_for(&ctx, touch.datafile, touch.owner) {
                Ok(true) => ctx.weakly(|ctx| batches::touch(ctx, touch)),
                Ok(false) => return Ok(()),
                Err(halt) => Err(halt),
            };
            match touched.and_then(|()| ctx.finish()) {
                Ok(outcome) => {
                    let (seen, strength) = (ctx.view().depends_on(), outcome.changes.strength);
                    let applied = shard.collection.apply_over(outcome.changes, &self.loaded);
                    let lsn = applied.map_err(crate::data::status_of)?;
                    self.depend(seen, Some((lsn, strength)));
                    return Ok(());
                }
                Err(Halt::Miss) => {
                    let needs = ctx.into_needs();
                    let loading = shard.collection.load(needs, std::mem::take(&mut self.loaded));
                    self.loaded = loading.await.map_err(crate::data::status_of)?;
                }
                Err(Halt::Status(status)) => return Err(status),
                Err(_) => return Ok(()),
            }
        }
    }

    fn copied(&self, bytes: usize) {
        shoal_env::Counters::add(&self.shard.env.counters().copied_bytes, bytes as u64);
    }

    /// The present group's part of the request's bulk data: what its operations say, behind that of the groups before.
    fn group_bulk(&self) -> Bytes {
        if self.bulk.is_empty() {
            return Bytes::new();
        }
        let from = self.bulk_at.min(self.bulk.len());
        let to = (from + bulk_of(self.ops())).min(self.bulk.len());
        self.bulk.slice(from..to)
    }

    fn halted(&mut self, halt: Halt, needs: Needs) -> Wait {
        match halt {
            Halt::Miss => Wait::Load(needs),
            Halt::Locked => Wait::Locked(self.shard.locks.changed().wait()),
            Halt::Fact(key) => Wait::Fact(key),
            Halt::Draw(server) => Wait::Draw(server),
            Halt::Pool(server, upto) => Wait::Pool(self.shard.pools.shortage(server, upto)),
            Halt::Touch(touch) => Wait::Touch(touch),
            Halt::Bulk(bulk) => Wait::Bulk(bulk),
            Halt::Turn(file) => Wait::Turn(file),
            // Ended already.
            Halt::Status(_) | Halt::Split(_) => Wait::Discarded,
        }
    }

    fn done(&mut self, answers: Vec<Answer>, bulk: Vec<Bytes>, outcome: Outcome, seen: Lsn) -> Option<Wait> {
        if let Some(dir) = outcome.to_split {
            self.shard.splits.want(dir);
        }
        if !(outcome.remote.is_empty() && outcome.local.is_empty()) {
            return self.plan(answers, outcome, seen);
        }
        let mut changes = outcome.changes;
        let is_kept = self.changes() && !(changes.is_empty() && self.facts.done.is_empty());
        if is_kept && let Err(status) = self.keep_reply(&mut changes, &answers, &bulk) {
            self.end_group(Err(status), Vec::new(), Vec::new());
            return None;
        }
        self.depend(seen, None);
        if changes.is_empty() {
            self.end_group(Ok(()), answers, bulk);
            return None;
        }
        let strength = changes.strength;
        let notice = Notice::of(&changes, &answers);
        match self.shard.collection.apply_over(changes, &self.loaded) {
            Ok(lsn) => {
                self.depend(Lsn(0), Some((lsn, strength)));
                if !notice.pools.is_empty() {
                    // Other servers' datafiles are this file's now: as durable as the commit of a transaction.
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

    /// Add the row that keeps this group's reply for a retry (and remove those of the slot's former compound that it
    /// does not overwrite).
    pub(crate) fn keep_reply(
        &mut self,
        changes: &mut Changes,
        answers: &[Answer],
        bulk: &[Bytes],
    ) -> Result<(), Status> {
        let Some((session, slot_use)) = &self.place else { return Ok(()) };
        if !bulk.is_empty() {
            return Err(Status::NotSupported);
        }
        let reply = encode_reply(Status::Ok, answers);
        if reply.len() > limits::KEPT_REPLY_BYTES_MAX {
            return Err(Status::OverLimit);
        }
        let loss = if self.facts.done.is_empty() { 0 } else { self.shard.loss() };
        let kept = Kept { sequence: slot_use.sequence, reply: Blob(reply.into()), loss };
        changes.put(keys::kept(session.id, slot_use.slot, self.at as u8), kept.to_row());
        let groups = self.groups.len();
        if usize::from(self.kept_groups) > groups {
            for group in groups..usize::from(self.kept_groups) {
                changes.remove(keys::kept(session.id, slot_use.slot, group as u8));
            }
            session.trimmed(slot_use.slot, groups);
            self.kept_groups = 0;
        }
        Ok(())
    }

    /// The group is a transaction over servers: take the local locks at once, so that the plan stays true here.
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

    /// What the reply waits for.
    pub(crate) fn depend(&mut self, seen: Lsn, made: Option<(Lsn, Strength)>) {
        let modes = self.shard.collection.sync_modes();
        let target = Target::of(modes, self.durability, seen, made);
        self.collected.target = self.collected.target.and(target);
    }

    /// The present group has ended.
    pub(crate) fn end_group(&mut self, result: Result<(), Status>, answers: Vec<Answer>, bulk: Vec<Bytes>) {
        let bulk_bytes: usize = bulk.iter().map(Bytes::len).sum();
        let entries = |answer: &Answer| match answer {
            Answer::Entries { entries, .. } => entries.len() as u64,
            _ => 0,
        };
        self.shard.env.work(Work::Entry, answers.iter().map(entries).sum());
        let reply = encode_reply(result.err().unwrap_or(Status::Ok), &answers);
        // Room is kept for the replies of groups that change something: those are never refused after the fact.
        let kept_room = (limits::KEPT_REPLY_BYTES_MAX + 8) * self.groups.len();
        let fits = (reply.len() <= limits::KEPT_REPLY_BYTES_MAX
            || self.collected.groups.len() + reply.len() + kept_room <= limits::BODY_BYTES_MAX - 64)
            && self.collected.bulk_bytes + bulk_bytes <= limits::BULK_BYTES_MAX;
        if fits {
            self.collected.bulk_bytes += bulk_bytes;
            self.collect(reply, bulk);
        } else {
            self.collect(encode_reply(Status::OverLimit, &[]), Vec::new());
        }
        add(&self.shard.counters.groups, 1);
        self.next_group();
    }

    fn collect(&mut self, reply: Vec<u8>, bulk: Vec<Bytes>) {
        if self.collected.count == 0 {
            // The first, mostly the only one: its buffer is the one to collect in.
            self.collected.groups = Writer::from_vec(reply);
        } else {
            self.copied(reply.len());
            self.collected.groups.put_raw(&reply);
        }
        self.collected.count += 1;
        self.collected.bulk.extend(bulk);
    }

    fn next_group(&mut self) {
        self.bulk_at += bulk_of(self.ops());
        self.at += 1;
        self.runs = 0;
        self.tries = 0;
        self.retry_looked_up = false;
        self.own = None;
        self.admission = None;
        self.facts = Facts::default();
        self.loaded = Loaded::default();
    }
}

/// Run operations in order, until one halts.
fn run_ops(ctx: &mut Ctx<'_>, ops: &[Op], answers: &mut Vec<Answer>) -> Option<Halt> {
    for (index, op) in ops.iter().enumerate() {
        ctx.op_index = index;
        match crate::ops::run(ctx, op) {
            Ok(answer) => answers.push(answer),
            Err(halt) => return Some(halt),
        }
    }
    None
}

/// Encode a group's reply.
pub fn encode_reply(status: Status, answers: &[Answer]) -> Vec<u8> {
    let mut w = Writer::with_capacity(192);
    status.encode(&mut w);
    w.put_list(answers);
    w.into_vec()
}

/// Decode the replies of a compound (for those the server asked itself).
pub fn decode_replies(collected: &Collected) -> Vec<GroupReply> {
    let mut r = shoal_proto::codec::Reader::new(collected.groups.as_slice());
    (0..collected.count).map_while(|_| GroupReply::decode(&mut r).ok()).collect()
}

/// What the shard must be told of a batch that was applied.
struct Notice {
    reaps: bool,
    /// The pools' rows.
    pools: Vec<(Bytes, Option<Bytes>)>,
    map: Option<shoal_proto::ClusterMap>,
}

impl Notice {
    fn of(changes: &Changes, answers: &[Answer]) -> Notice {
        let is_reap = |(key, value): &(Bytes, Option<Bytes>)| {
            value.is_some() && key.first() == Some(&(keys::Table::Reap as u8))
        };
        let map_row = keys::config("map");
        let changed = changes.rows.iter().any(|(key, _)| *key == map_row);
        let map_of = |answer: &Answer| match answer {
            Answer::Map { map } => Some(map.clone()),
            _ => None,
        };
        let map = if changed { answers.iter().rev().find_map(map_of) } else { None };
        let pools = changes.rows.iter().filter(|(key, _)| pools::is_pool(key)).cloned().collect();
        Notice { reaps: changes.rows.iter().any(is_reap), pools, map }
    }

    fn give(self, shard: &Rc<Shard>) {
        if self.reaps {
            shard.reap_rows.wake_all();
        }
        if !self.pools.is_empty() {
            shard.pools.taken(&shard.counters, &self.pools);
        }
        if let Some(map) = self.map {
            shard.adopt_map(map);
            crate::ops::setmap::push_to_all(shard);
        }
        if shard.handles.is_low() {
            shard.grow_handles();
        }
    }
}

/// Bytes of bulk data that operations say they take.
fn bulk_of(ops: &[Op]) -> usize {
    ops.iter()
        .map(|op| match op {
            Op::Write { len, .. } | Op::Append { len, .. } => *len as usize,
            _ => 0,
        })
        .sum()
}

/// What a full disk must not refuse: how else would it become less full? What only looks goes along with it.
fn frees(op: &Op) -> bool {
    !op.changes()
        || matches!(
            op,
            Op::Unlink { .. }
                | Op::Rmdir { .. }
                | Op::Release { .. }
                | Op::Rmdirent { .. }
                | Op::Removemeta { .. }
                | Op::Removedata { .. }
                | Op::Settle { .. }
                | Op::Discard { .. }
                | Op::Removexattr { .. }
                | Op::Truncate { .. }
                | Op::Allocate { mode: Allocation::Punch, .. }
        )
}

/// Space to ask for before a group runs: generous, and given back when it has ended.
fn ask_for(ops: &[Op]) -> Ask {
    let mut ask =
        Ask { journal_bytes: 1024 + limits::KEPT_REPLY_BYTES_MAX as u64, stream_bytes: 0, frees: true };
    for op in ops {
        ask.journal_bytes += 2048;
        match op {
            // The whole content of a small stream goes along, however little of it is written.
            Op::Write { .. } | Op::Append { .. } => ask.journal_bytes += Changes::SMALL_MAX as u64,
            Op::Setxattr { value, .. } => ask.journal_bytes += value.len() as u64,
            // A row of each pool that gives a datafile.
            Op::Unstuff { .. } | Op::Create { .. } | Op::Mknod { .. } => {
                ask.journal_bytes += 128 * limits::WIDTH_MAX as u64;
            }
            Op::Repair { actions } => ask.journal_bytes += 2048 * actions.len() as u64,
            // The rows that go, at their longest.
            Op::Split { entries, .. } => ask.journal_bytes += 320 * u64::from(*entries),
            Op::Addserver { .. } => ask.journal_bytes += 256 * limits::SERVERS_MAX as u64,
            _ => {}
        }
        ask.frees &= frees(op);
    }
    ask
}
