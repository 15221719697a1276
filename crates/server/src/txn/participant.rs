//! The participant's side of a transaction: see [`crate::txn`].

use super::coordinator::{apply_all, is_passing, reaps};
use super::durable;
use crate::counters::add;
use crate::data::{admit_with, status_of};
use crate::meta::inode;
use crate::meta::keys;
use crate::meta::lingering;
use crate::meta::rows::{Ended, RowValue, Tx, TxState};
use crate::request::ctx::Stopped;
use crate::request::locks::Mode;
use crate::request::run_loaded::run_loaded;
use crate::shard::{Identity, Shard, apply_own};
use crate::txn::actions;
use bytes::Bytes;
use shoal_env::local::Semaphore;
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Instant, crash_point};
use shoal_proto::{Action, Decision, Dist, ServerId, Status, Time, TxId};
use shoal_store::{Ask, Changes, Loaded, Lsn, Strength, settle};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The prepared part of one transaction. Its messages are handled one at a time.
pub struct Prepared {
    /// The actions to commit; empty: nothing is durable yet.
    pub actions: RefCell<Vec<Action>>,
    /// The servers with a part in it, but for its coordinator; none: there are more actions to come.
    participants: RefCell<Vec<ServerId>>,
    /// Since when it is in doubt (or its coordinator was asked last).
    pub since: Cell<Instant>,
    lsn: Cell<Lsn>,
    turn: Semaphore,
}

impl Prepared {
    /// An entry; `actions` and `participants` from its row at start.
    pub fn new(actions: Vec<Action>, participants: Vec<ServerId>, since: Instant) -> Rc<Prepared> {
        Rc::new(Prepared {
            actions: RefCell::new(actions),
            participants: RefCell::new(participants),
            since: Cell::new(since),
            lsn: Cell::default(),
            turn: Semaphore::new(1),
        })
    }

    /// Whether it is the rename lock alone: its coordinator still walks, and this server has not voted.
    fn is_lock_only(&self) -> bool {
        !self.actions.borrow().is_empty() && self.participants.borrow().is_empty()
    }
}

/// The locks that a prepared transaction holds: the rename lock only until this server has voted
/// ([`super::rename_lock`]).
pub fn locks_held(identity: &Identity, list: &[Action], participants: &[ServerId]) -> Vec<(Bytes, Mode)> {
    let has_voted = !participants.is_empty();
    let is_held = |action: &&Action| !(has_voted && matches!(action, Action::RenameLock {}));
    list.iter().filter(is_held).flat_map(|action| actions::locks(identity, action)).collect()
}

/// Validate, lock, and make it durable. Idempotent; a longer list under the same id replaces the shorter it
/// begins with.
///
/// # Errors
/// `Busy`: another's lock; `Changed`: the plan's facts are old; or the error that forbids an action.
pub async fn prepare(
    shard: &Rc<Shard>,
    tx: TxId,
    list: Vec<Action>,
    participants: Vec<ServerId>,
) -> Result<(), Status> {
    let entry = shard
        .book
        .prepared
        .borrow_mut()
        .entry(tx)
        .or_insert_with(|| Prepared::new(Vec::new(), Vec::new(), shard.env.now()))
        .clone();
    let turn = entry.turn.acquire(1).await;
    if !shard.book.get(tx).is_some_and(|present| Rc::ptr_eq(&present, &entry)) {
        return Err(Status::Changed);
    }
    if *entry.actions.borrow() == list && *entry.participants.borrow() == participants {
        return durable(&shard.collection, entry.lsn.get()).await.map_err(status_of);
    }
    if !list.starts_with(&entry.actions.borrow()) {
        return Err(Status::Conflict);
    }
    // The walk's observations hold only if the lock was held since: where it was taken back, the plan is made
    // again.
    let walked = list.contains(&Action::RenameLock {}) && !participants.is_empty();
    let result = match walked && !entry.is_lock_only() && !mutant::is(Mutant::VoteWithoutLock) {
        true => Err(Status::Changed),
        false => lock_and_write(shard, tx, &entry, list, participants).await,
    };
    if result.is_err() && entry.actions.borrow().is_empty() {
        shard.env.crash_point(crash_point::PARTICIPANT_REFUSES, tx.0);
        shard.locks.release(tx);
        shard.book.prepared.borrow_mut().remove(&tx);
    }
    drop(turn);
    shard.book.in_doubt.wake_all();
    if let Err(status) = result
        && !is_passing(status)
    {
        // A final refusal is returned to a client: a crash must not undo the state that it rests on.
        settle(&shard.collection).await.map_err(status_of)?;
    }
    result
}

async fn lock_and_write(
    shard: &Rc<Shard>,
    tx: TxId,
    entry: &Rc<Prepared>,
    list: Vec<Action>,
    participants: Vec<ServerId>,
) -> Result<(), Status> {
    // A transaction that could not be remembered as committed is not prepared.
    if participants.len() > 1 && !shard.book.has_room_for_ended() {
        return Err(Status::Busy);
    }
    let frees = !list.iter().any(|a| {
        matches!(
            a,
            Action::EntryPut { .. }
                | Action::ObjectCreate { .. }
                | Action::DatafileCreate { .. }
                | Action::ShardCreate { .. }
                | Action::ForkedCreate { .. }
        )
    });
    let journal_bytes = 1024 * (1 + list.len() as u64) + actions::journal_bytes(&list);
    let ask = Ask { journal_bytes, stream_bytes: 0, stream: None, frees };
    let _admission = admit_with(&shard.env, &shard.collection, &shard.lingering, ask).await?;
    let identity = shard.identity();
    let wanted: Vec<(Bytes, Mode)> = list.iter().flat_map(|a| actions::locks(&identity, a)).collect();
    if !shard.locks.take(tx, &wanted) {
        return Err(Status::Busy);
    }
    let mut loaded = Loaded::default();
    // All at one moment.
    let validating = run_loaded(shard, Some(tx), &mut loaded, |ctx| {
        list.iter().try_for_each(|action| actions::validate(ctx, action))
    });
    validating.await.map_err(status_of)?.map_err(Stopped::status)?;
    let passes_lock = list.contains(&Action::RenameLock {}) && !participants.is_empty();
    let mut changes = Changes::default();
    let row = Tx { state: TxState::Prepared { actions: list.clone(), participants: participants.clone() } };
    changes.put(keys::tx(tx), row.to_row());
    let lsn = shard.collection.apply_over(changes, &loaded).map_err(status_of)?;
    *entry.actions.borrow_mut() = list;
    *entry.participants.borrow_mut() = participants;
    entry.lsn.set(lsn);
    entry.since.set(shard.env.now());
    shard.env.crash_point(crash_point::PARTICIPANT_WRITES, tx.0);
    durable(&shard.collection, lsn).await.map_err(status_of)?;
    shard.env.crash_point(crash_point::PARTICIPANT_PREPARED, tx.0);
    if passes_lock {
        shard.locks.release_one(tx, &keys::rename_lock());
    }
    if mutant::is(Mutant::ReleaseEarly) {
        shard.locks.release(tx);
    }
    add(&shard.counters.prepared, 1);
    Ok(())
}

/// Abort a transaction that holds nothing but the rename lock: without this server's vote it is never
/// committed.
///
/// # Errors
/// When the store fails.
pub async fn take_back(shard: &Rc<Shard>, tx: TxId) -> Result<(), Status> {
    let Some(entry) = shard.book.get(tx) else { return Ok(()) };
    let turn = entry.turn.acquire(1).await;
    let is_present = shard.book.get(tx).is_some_and(|present| Rc::ptr_eq(&present, &entry));
    if !is_present || !entry.is_lock_only() {
        return Ok(());
    }
    let mut changes = Changes { strength: Strength::Strong, ..Changes::default() };
    changes.remove(keys::tx(tx));
    apply_own(&shard.collection, changes).await.map_err(status_of)?;
    shard.env.crash_point(crash_point::PARTICIPANT_ABORTS, tx.0);
    shard.locks.release(tx);
    shard.book.prepared.borrow_mut().remove(&tx);
    drop(turn);
    Ok(())
}

/// Commit or drop a prepared transaction; done when that is durable. An unknown one counts as done already.
///
/// # Errors
/// When the store fails; the coordinator asks again.
pub async fn finish(shard: &Rc<Shard>, tx: TxId, decision: Decision) -> Result<(), Status> {
    let Some(entry) = shard.book.get(tx) else {
        // Perhaps finished a moment ago, and not durable yet.
        return match decision {
            Decision::Commit => settle(&shard.collection).await.map_err(status_of),
            Decision::Abort => Ok(()),
        };
    };
    let turn = entry.turn.acquire(1).await;
    if !shard.book.get(tx).is_some_and(|present| Rc::ptr_eq(&present, &entry)) {
        return settle(&shard.collection).await.map_err(status_of);
    }
    let list = entry.actions.borrow().clone();
    let lsn = match decision {
        Decision::Commit => {
            let is_shared = entry.participants.borrow().len() > 1;
            let lsn = commit(shard, tx, &list, is_shared).await?;
            shard.env.crash_point(crash_point::PARTICIPANT_COMMITS, tx.0);
            lsn
        }
        Decision::Abort => {
            let mut changes = Changes { strength: Strength::Weak, ..Changes::default() };
            changes.remove(keys::tx(tx));
            if mutant::is(Mutant::SubfileWithoutFile) {
                keep_subfiles(&list, &mut changes);
            }
            let lsn = apply_own(&shard.collection, changes).await.map_err(status_of)?;
            shard.env.crash_point(crash_point::PARTICIPANT_ABORTS, tx.0);
            lsn
        }
    };
    shard.locks.release(tx);
    shard.book.prepared.borrow_mut().remove(&tx);
    drop(turn);
    match decision {
        Decision::Commit => {
            if !mutant::is(Mutant::FinishEarly) {
                durable(&shard.collection, lsn).await.map_err(status_of)?;
            }
            shard.env.crash_point(crash_point::PARTICIPANT_COMMITTED, tx.0);
            Ok(())
        }
        // If the removal is lost, the coordinator is asked again and says the same.
        Decision::Abort => Ok(()),
    }
}

/// The bug [`Mutant::SubfileWithoutFile`].
fn keep_subfiles(list: &[Action], changes: &mut Changes) {
    for action in list {
        if let Action::ObjectCreate { attr } = action
            && attr.template.dist == Dist::Fork
        {
            changes.put(keys::inode(attr.handle), inode::of_attr(attr).to_row());
        }
    }
}

/// Commit a prepared transaction. `is_shared`: other participants have a part in it, and may have to learn
/// from this one that it was committed.
async fn commit(shard: &Rc<Shard>, tx: TxId, list: &[Action], is_shared: bool) -> Result<Lsn, Status> {
    let journal_bytes = 2048 * (1 + list.len() as u64) + actions::journal_bytes(list);
    let ask = Ask { journal_bytes, stream_bytes: 0, stream: None, frees: true };
    let _admission = shard.collection.admit(ask).await.map_err(status_of)?;
    let mut loaded = Loaded::default();
    let mut changes = apply_all(shard, tx, list, &mut loaded).await?;
    changes.strength = Strength::Strong;
    changes.remove(keys::tx(tx));
    if is_shared {
        changes.put(keys::ended(tx), Ended { time: Time(shard.env.wall().0) }.to_row());
    }
    if reaps(&changes) {
        shard.reap_rows.wake_all();
    }
    shard.lingering.take_in(&changes, || lingering::until(shard));
    let lsn = shard.collection.apply_over(changes, &loaded).map_err(status_of)?;
    if is_shared {
        shard.book.add_ended(tx, shard.env.now());
    }
    Ok(lsn)
}
