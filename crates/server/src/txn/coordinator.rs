//! The coordinator's side of a transaction: see [`crate::txn`].

use super::durable;
use crate::counters::add;
use crate::data::status_of;
use crate::meta::keys;
use crate::meta::lingering;
use crate::meta::rows::{RowValue, Tx, TxState};
use crate::request::ctx::Outcome;
use crate::request::executor::Compound;
use crate::request::locks::Mode;
use crate::request::run_loaded::run_loaded;
use crate::shard::{Shard, apply_own};
use crate::txn::actions;
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Instant, crash_point};
use shoal_proto::{Action, Answer, Decision, Handle, Op, ServerId, Status, TxId};
use shoal_store::{Changes, Loaded, Lsn, StoreError, Strength};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// One prepare waits no longer: then the transaction is given up and tried again.
pub(super) const PREPARE_TIMEOUT: Duration = Duration::from_secs(5);
/// Telling an abort is a courtesy (a participant in doubt asks): it is waited for no longer than this.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Finishing is tried for ever, with pauses up to this.
const FINISH_PAUSE_MAX: Duration = Duration::from_secs(2);

/// A transaction begun and not decided. Dropped, it is aborted: its local locks are released, and the servers
/// that were asked to prepare are informed.
pub struct Undecided {
    shard: Rc<Shard>,
    tx: TxId,
    asked: Vec<ServerId>,
    armed: bool,
}

impl Undecided {
    /// Begin; `None`: no handle is ready to name it.
    pub fn begin(shard: &Rc<Shard>) -> Option<Undecided> {
        let tx = TxId(shard.handles.take()?.0);
        shard.book.deciding.borrow_mut().insert(tx);
        Some(Undecided { shard: shard.clone(), tx, asked: Vec::new(), armed: true })
    }

    /// Its id.
    pub fn tx(&self) -> TxId {
        self.tx
    }

    /// Take the local locks of actions, all or none.
    pub(super) fn take(&self, actions: &[Action]) -> bool {
        let identity = self.shard.identity();
        let keys: Vec<(Bytes, Mode)> =
            actions.iter().flat_map(|action| actions::locks(&identity, action)).collect();
        self.shard.locks.take(self.tx, &keys)
    }

    /// A server is asked to prepare, and is informed of an abort.
    pub(super) fn ask(&mut self, server: ServerId) {
        if !self.asked.contains(&server) {
            self.asked.push(server);
        }
    }

    /// Abort, and wait a moment for those asked to know it, so that the next try does not meet these locks.
    pub(super) async fn give_up(mut self) {
        self.armed = false;
        self.forget();
        self.shard.env.crash_point(crash_point::COORDINATOR_GIVES_UP, self.tx.0);
        tell_abort(&self.shard, self.tx, std::mem::take(&mut self.asked)).await;
        self.shard.env.crash_point(crash_point::COORDINATOR_GAVE_UP, self.tx.0);
    }

    fn forget(&self) {
        self.shard.locks.release(self.tx);
        self.shard.book.deciding.borrow_mut().remove(&self.tx);
        add(&self.shard.counters.aborts, 1);
    }
}

impl Drop for Undecided {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        self.forget();
        self.shard.env.crash_point(crash_point::COORDINATOR_GAVE_UP, self.tx.0);
        let (shard, tx, asked) = (self.shard.clone(), self.tx, std::mem::take(&mut self.asked));
        if !asked.is_empty() {
            let env = shard.env.clone();
            let tasks = shard.tasks.clone();
            tasks.spawn(&env, "abort", async move { tell_abort(&shard, tx, asked).await });
        }
    }
}

async fn tell_abort(shard: &Rc<Shard>, tx: TxId, asked: Vec<ServerId>) {
    let deadline = shard.env.now() + ABORT_TIMEOUT;
    let tell = |server| shard.peers.call(server, Op::Finish { tx, decision: Decision::Abort }, deadline);
    join_all(asked.into_iter().map(tell)).await;
}

/// A group that is a transaction over servers: its plan, with the local locks taken.
pub struct Plan {
    undecided: Undecided,
    answers: Vec<Answer>,
    local: Vec<Action>,
    remote: BTreeMap<ServerId, Vec<Action>>,
    seen: Lsn,
}

impl Plan {
    /// Lock the plan's local keys; `None`: another's lock is in the way (and the transaction is given up).
    pub fn lock(undecided: Undecided, answers: Vec<Answer>, outcome: Outcome, seen: Lsn) -> Option<Plan> {
        let Outcome { local, mut remote, .. } = outcome;
        for actions in remote.values_mut() {
            // It may be prepared already, alone: then the longer list must begin with it.
            actions.sort_by_key(|action| !matches!(action, Action::RenameLock {}));
        }
        undecided.take(&local).then_some(Plan { undecided, answers, local, remote, seen })
    }

    /// The directory that it splits, if it is a split.
    fn splits(&self) -> Option<Handle> {
        self.local.iter().find_map(|action| match action {
            Action::ShardKeep { dir, .. } => Some(*dir),
            _ => None,
        })
    }

    /// The status with which the request fails. A subfile that has forks may not be removed alone; of a whole
    /// forked file it says that the file is not empty.
    fn refusal(&self, status: Status) -> Status {
        let is_whole = self.local.iter().any(|action| matches!(action, Action::ForkedRemove { .. }));
        if is_whole && status == Status::NotPermitted { Status::NotEmpty } else { status }
    }

    /// Whether a client could still see the old state at a participant after the reply: then the reply waits
    /// for the participants to finish. An object that is only made there is invisible before it is entered
    /// here.
    fn is_seen_elsewhere(&self) -> bool {
        let is_new = |a: &Action| matches!(a, Action::ObjectCreate { .. } | Action::RenameLock {});
        !self.remote.values().flatten().all(is_new)
    }
}

/// How a try ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// Committed; the group has its reply.
    Done,
    /// Given up for a temporary error: back off, plan again.
    Again(Status),
    /// The group fails.
    Failed(Status),
}

/// Whether trying again may help.
pub fn is_passing(status: Status) -> bool {
    matches!(status, Status::Busy | Status::Changed | Status::TimedOut | Status::Unavailable)
}

/// Carry a plan out: prepare everywhere, decide, reply, finish.
pub async fn carry_out(compound: &mut Compound, mut plan: Plan) -> End {
    let shard = compound.shard().clone();
    let splits = plan.splits();
    if let Some(dir) = splits {
        shard.env.crash_point(crash_point::SPLIT_FREEZES, dir.0);
    }
    if let Err(status) = prepare_all(&shard, compound.deadline, &mut plan).await {
        let status = plan.refusal(status);
        plan.undecided.give_up().await;
        let again = is_passing(status) && shard.env.now() < compound.deadline;
        return if again { End::Again(status) } else { End::Failed(status) };
    }
    let seen_elsewhere = plan.is_seen_elsewhere();
    let Plan { undecided, answers, local, remote, seen } = plan;
    let servers: Vec<ServerId> = remote.into_keys().collect();
    let tx = undecided.tx;
    let lsn = match decide(compound, undecided, &answers, &local, &servers).await {
        Ok(lsn) => lsn,
        Err(status) => return End::Failed(status),
    };
    add(&shard.counters.commits, 1);
    if let Some(dir) = splits {
        shard.env.crash_point(crash_point::SPLIT_DECIDED, dir.0);
    }
    spawn_finish(&shard, tx, servers);
    if seen_elsewhere {
        wait_finished(&shard, tx, compound.deadline).await;
    }
    compound.depend(seen, Some((lsn, Strength::Strong)));
    compound.end_group(Ok(()), answers, Vec::new());
    End::Done
}

async fn prepare_all(shard: &Rc<Shard>, deadline: Instant, plan: &mut Plan) -> Result<(), Status> {
    // A prepare is a message: the changes that the plan depends on are durable before it leaves.
    durable(&shard.collection, plan.seen).await.map_err(status_of)?;
    let until = deadline.min(shard.env.now() + PREPARE_TIMEOUT);
    let tx = plan.undecided.tx;
    for &server in plan.remote.keys() {
        plan.undecided.ask(server);
    }
    add(&shard.counters.prepares, plan.remote.len() as u64);
    shard.env.crash_point(crash_point::COORDINATOR_ASKS, tx.0);
    // The rename lock's server votes when all others have prepared: with its vote it passes the lock on.
    let votes_last = |actions: &Vec<Action>| {
        actions.contains(&Action::RenameLock {}) && !mutant::is(Mutant::LockVotesEarly)
    };
    ask_to_prepare(shard, plan, until, |actions| !votes_last(actions)).await?;
    ask_to_prepare(shard, plan, until, votes_last).await
}

/// Ask those participants whose part `is_meant`.
async fn ask_to_prepare(
    shard: &Rc<Shard>,
    plan: &Plan,
    until: Instant,
    is_meant: impl Fn(&Vec<Action>) -> bool,
) -> Result<(), Status> {
    let tx = plan.undecided.tx;
    let participants: Vec<ServerId> = plan.remote.keys().copied().collect();
    let prepare = |(server, actions): (&ServerId, &Vec<Action>)| {
        let (actions, participants) = (actions.clone().into(), participants.clone().into());
        let op = Op::Prepare { tx, actions, participants };
        shard.peers.call(*server, op, until)
    };
    let meant = plan.remote.iter().filter(|(_, actions)| is_meant(actions));
    let answers = join_all(meant.map(prepare)).await;
    // A final error takes precedence over a temporary one.
    let mut worst = Ok(());
    for status in answers.into_iter().filter_map(Result::err) {
        if !is_passing(status) {
            return Err(status);
        }
        worst = Err(status);
    }
    worst
}

/// The moment of decision: local actions, the commit record and the kept reply in one durable batch.
async fn decide(
    compound: &mut Compound,
    mut undecided: Undecided,
    answers: &[Answer],
    local: &[Action],
    servers: &[ServerId],
) -> Result<Lsn, Status> {
    let (shard, tx) = (compound.shard().clone(), undecided.tx);
    let mut loaded = Loaded::default();
    let mut changes = match apply_all(&shard, tx, local, &mut loaded).await {
        Ok(changes) => changes,
        Err(status) => {
            undecided.give_up().await;
            return Err(status);
        }
    };
    changes.strength = Strength::Strong;
    let row = Tx { state: TxState::Committed { unfinished: servers.to_vec() } };
    changes.put(keys::tx(tx), row.to_row());
    let kept = compound.keep_reply(&mut changes, answers, &[]);
    let applied = kept.and_then(|()| {
        let reaps = reaps(&changes);
        shard.lingering.take_in(&changes, || lingering::until(&shard));
        let lsn = shard.collection.apply_over(changes, &loaded).map_err(status_of)?;
        Ok((lsn, reaps))
    });
    let (lsn, reaps) = match applied {
        Ok(applied) => applied,
        Err(status) => {
            undecided.give_up().await;
            return Err(status);
        }
    };
    // Decided. Readers of the local changes wait for their record; no server is informed before it is
    // durable.
    undecided.armed = false;
    shard.env.crash_point(crash_point::COORDINATOR_DECIDES, tx.0);
    shard.locks.release(tx);
    if !mutant::is(Mutant::CommitEarly) {
        durable(&shard.collection, lsn).await.map_err(status_of)?;
        debug_assert!(shard.collection.durable() >= lsn, "a decision is durable before it is reported");
    }
    shard.env.crash_point(crash_point::COORDINATOR_DECIDED, tx.0);
    shard.book.deciding.borrow_mut().remove(&tx);
    shard.book.finishing.borrow_mut().insert(tx, servers.to_vec());
    if reaps {
        shard.reap_rows.wake_all();
    }
    Ok(lsn)
}

/// Whether a batch holds something for the reaper.
pub(super) fn reaps(changes: &Changes) -> bool {
    let is_reap = |(key, value): &(Bytes, Option<Bytes>)| {
        value.is_some() && key.first() == Some(&(keys::Table::Reap as u8))
    };
    changes.rows.iter().any(is_reap)
}

/// The changes of a transaction's actions, from the state of this moment and under its own locks.
pub(super) async fn apply_all(
    shard: &Rc<Shard>,
    tx: TxId,
    actions: &[Action],
    loaded: &mut Loaded,
) -> Result<Changes, Status> {
    let applying = run_loaded(shard, Some(tx), loaded, |ctx| {
        actions.iter().try_for_each(|action| actions::apply(ctx, action))?;
        ctx.finish()
    });
    match applying.await.map_err(status_of)? {
        Ok(outcome) => {
            if let Some(dir) = outcome.to_split {
                shard.splits.want(dir);
            }
            Ok(outcome.changes)
        }
        Err(stopped) => {
            let status = stopped.status();
            tracing::error!(%tx, %status, "a prepared transaction cannot be carried out");
            Err(status)
        }
    }
}

fn spawn_finish(shard: &Rc<Shard>, tx: TxId, servers: Vec<ServerId>) {
    let own = shard.clone();
    shard.tasks.spawn(&shard.env, "finish", async move { finish_committed(own, tx, servers).await });
}

/// Tell all participants of a committed transaction, for ever; then forget it.
pub async fn finish_committed(shard: Rc<Shard>, tx: TxId, servers: Vec<ServerId>) {
    shard.book.finishing.borrow_mut().entry(tx).or_insert_with(|| servers.clone());
    join_all(servers.into_iter().map(|server| finish_one(&shard, tx, server))).await;
    let removed = remove_row(&shard, tx).await;
    shard.env.crash_point(crash_point::COORDINATOR_FORGETS, tx.0);
    shard.book.finishing.borrow_mut().remove(&tx);
    shard.book.found.borrow_mut().remove(&tx);
    shard.book.finished.wake_all();
    if let Err(error) = removed {
        remove_row_later(&shard, tx, error).await;
    }
}

async fn remove_row(shard: &Rc<Shard>, tx: TxId) -> Result<(), StoreError> {
    let mut changes = Changes { strength: Strength::Weak, ..Changes::default() };
    changes.remove(keys::tx(tx));
    apply_own(&shard.collection, changes).await.map(drop)
}

/// On a full disk the row of a finished transaction is removed when there is room. Where the store has failed
/// it stays: after the next start all participants answer that they have finished.
async fn remove_row_later(shard: &Rc<Shard>, tx: TxId, mut error: StoreError) {
    while let StoreError::NoSpace { .. } = error {
        shard.env.sleep(FINISH_PAUSE_MAX).await;
        match remove_row(shard, tx).await {
            Ok(()) => return,
            Err(again) => error = again,
        }
    }
    tracing::warn!(%tx, %error, "a finished transaction's row could not be removed");
}

async fn finish_one(shard: &Rc<Shard>, tx: TxId, server: ServerId) {
    let mut pause = Duration::from_millis(10);
    loop {
        let deadline = shard.env.now() + PREPARE_TIMEOUT;
        let op = Op::Finish { tx, decision: Decision::Commit };
        match shard.peers.call(server, op, deadline).await {
            Ok(_) => return,
            Err(status) => {
                tracing::debug!(%tx, %server, %status, "a participant has not finished yet");
                shard.env.sleep(pause).await;
                pause = (pause * 2).min(FINISH_PAUSE_MAX);
            }
        }
    }
}

/// Wait until all that was committed before this start is finished everywhere, or until `deadline`.
pub async fn wait_found(shard: &Rc<Shard>, deadline: Instant) {
    loop {
        let finished = shard.book.finished.wait();
        if shard.book.has_finished_found() || shard.env.deadline(deadline, finished).await.is_err() {
            return;
        }
    }
}

async fn wait_finished(shard: &Rc<Shard>, tx: TxId, deadline: Instant) {
    loop {
        let finished = shard.book.finished.wait();
        if !shard.book.finishing.borrow().contains_key(&tx) {
            return;
        }
        if shard.env.deadline(deadline, finished).await.is_err() {
            return;
        }
    }
}
