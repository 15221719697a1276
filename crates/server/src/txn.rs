//! Transactions over servers: presumed abort, any number of participants (Mohan, Lindsay and Obermarck 1986).
//!
//! ```text
//!  coordinator                                             participant
//!
//!   planned ── local locks, all or none ──┐                  unknown ◀──────────────────────────┐
//!      ▲            (Busy: back off)      ▼                     │ Prepare: locks, validate,     │
//!      │                              deciding ── Prepare ────▶ │ row "prepared" durable        │
//!   Again ◀── Busy, Changed, no answer ── │                     ▼                               │
//!      (Finish abort to all asked)        │ all prepared     prepared ── Finish(abort) ─ remove │
//!                                         ▼                     │        row, unlock ──────────▶┤
//!                           row "committed" + local actions     │ Finish(commit): actions       │
//!                           + kept reply, one batch, durable    │ + row removed, one batch,     │
//!                                         │                     │ unlock, durable, then answer  │
//!                                         ▼                     └──────────────────────────────▶┘
//!                      reply      finishing ── Finish(commit), for ever ──▶
//!                                         │ all have answered
//!                                         ▼
//!                                  row removed (lazily)
//! ```
//! **Invariant: no request waits while it holds locks**: a lock in the way at prepare is `Busy`, and the
//! coordinator releases its own (tests: `a_plan_that_meets_a_prepared_one_leaves_no_lock_behind`,
//! `a_transaction_that_meets_a_lock_backs_off_and_succeeds_when_it_is_gone`). **Invariant: a decision is
//! reported to no server before it is durable**: until then [`Book::outcome`] says *not yet* (asserted in
//! `txn/coordinator.rs::decide`). **Invariant: a participant answers `Finish` only when its changes are
//! durable**, because the coordinator forgets the transaction after that answer (test:
//! `prepares_and_finishes_are_durable_in_every_mode`).
//!
//! A transaction's id is a handle, so it is never used twice. A transaction that its coordinator does not
//! know was aborted. A prepare that arrives after its abort locks its keys until the participant asks
//! ([`resolve`]) and gets that answer.
//!
//! **A participant remembers a transaction that it has committed** together with others ([`ended`]) until
//! the coordinator has forgotten it, which is when all have finished. So if the coordinator's store is lost
//! when some participants have finished, the transaction can be ended in the same way on the others: if any
//! participant has committed it, or all have it prepared, it is committed, else aborted. A repair does that
//! after an operator has declared the store lost (`shoal fsck --repair --lost-stores`).
//!
//! The collection's one rename lock is an action like others, but it is prepared first. With the lock held,
//! the new ancestors of the directory that moves are walked again, and only then the rest is prepared (a
//! longer list under the same id). The lock's server votes last, and passes the lock on with its vote
//! ([`rename_lock`]).

pub mod actions;
mod coordinator;
mod ended;
mod participant;
pub mod rename_lock;
mod resolve;

pub use coordinator::{End, Plan, Undecided, carry_out, finish_committed, is_passing, wait_found};
pub use ended::forget_ended;
pub use participant::{Prepared, finish, locks_held, prepare};
pub use rename_lock::take_rename_lock;
pub use resolve::resolve;

use ended::Ended;
use participant::take_back;
use shoal_env::Instant;
use shoal_env::local::Notify;
use shoal_proto::{Decision, ServerId, TxId, limits};
use shoal_store::{Collection, Lsn, StoreError};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The transactions of one shard, as coordinator and as participant.
#[derive(Default)]
pub struct Book {
    /// Begun here, not (durably) decided.
    deciding: RefCell<BTreeSet<TxId>>,
    /// Committed here; these servers did not say yet that they finished.
    finishing: RefCell<BTreeMap<TxId, Vec<ServerId>>>,
    /// Those of them that were committed before this start.
    found: RefCell<BTreeSet<TxId>>,
    /// Prepared here for another coordinator.
    prepared: RefCell<BTreeMap<TxId, Rc<Prepared>>>,
    /// Committed here for other coordinators, together with other participants.
    ended: Ended,
    /// Woken when a transaction of this coordinator is finished everywhere.
    finished: Notify,
    /// Woken when something was prepared here.
    in_doubt: Notify,
}

impl Book {
    /// The decision of this coordinator; `None`: none yet. For unknown transactions: abort.
    pub fn outcome(&self, tx: TxId) -> Option<Decision> {
        if self.deciding.borrow().contains(&tx) {
            return None;
        }
        match self.finishing.borrow().contains_key(&tx) {
            true => Some(Decision::Commit),
            false => Some(Decision::Abort),
        }
    }

    /// Counts: (deciding, finishing, prepared).
    pub fn counts(&self) -> (usize, usize, usize) {
        (self.deciding.borrow().len(), self.finishing.borrow().len(), self.prepared.borrow().len())
    }

    /// The transactions prepared here.
    pub fn prepared(&self) -> Vec<(TxId, Rc<Prepared>)> {
        self.prepared.borrow().iter().map(|(tx, entry)| (*tx, entry.clone())).collect()
    }

    /// At start: a row said so.
    pub fn add_prepared(&self, tx: TxId, entry: Rc<Prepared>) {
        self.prepared.borrow_mut().insert(tx, entry);
        self.in_doubt.wake_all();
    }

    /// It was carried out here; or, at start, a row said so.
    pub fn add_ended(&self, tx: TxId, at: Instant) {
        self.ended.add(tx, at);
    }

    /// How many are remembered as carried out.
    pub fn ended(&self) -> usize {
        self.ended.count()
    }

    /// Whether there is room to remember one more, with all that are prepared.
    fn has_room_for_ended(&self) -> bool {
        self.ended.count() + self.prepared.borrow().len() <= limits::ENDED_MAX
    }

    /// At start: a row said that it was committed.
    pub fn begin_finishing(&self, tx: TxId, servers: Vec<ServerId>) {
        self.finishing.borrow_mut().insert(tx, servers);
        self.found.borrow_mut().insert(tx);
    }

    /// Whether all that was committed before this start is finished everywhere.
    pub fn has_finished_found(&self) -> bool {
        self.found.borrow().is_empty()
    }

    fn get(&self, tx: TxId) -> Option<Rc<Prepared>> {
        self.prepared.borrow().get(&tx).cloned()
    }
}

/// Wait until everything up to `lsn` is durable, whatever the mode.
pub(crate) async fn durable(collection: &Collection, lsn: Lsn) -> Result<(), StoreError> {
    if collection.durable() >= lsn {
        return collection.health();
    }
    collection.push_durable();
    loop {
        collection.health()?;
        if collection.durable() >= lsn {
            return Ok(());
        }
        // Not the journal's every step: under a crowd of transactions each would wake them all.
        collection.durables().wait(lsn.0).await;
    }
}
