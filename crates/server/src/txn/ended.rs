//! Transactions that were committed here and have other participants. They are remembered until no server
//! needs their outcome any more.
//!
//! The outcome is needed only if the coordinator's store is lost while another participant has the
//! transaction prepared: a repair commits it there, because it was committed here. So a row is removed in two
//! cases, and in no other:
//!
//! * **Its coordinator has forgotten it**, because all participants have finished, durably. A coordinator
//!   that answers *aborted* for a committed transaction has forgotten it.
//! * **Its coordinator's store was given up (declared lost), and no other server has it prepared.** No
//!   server will prepare it later: it was committed, so all had prepared it before, and the coordinator is
//!   refused. When a server answers that it does not have the transaction prepared, this fact is durable.
//!   Until a repair has ended the transaction everywhere, the row stays.
//!
//! No message is sent for a single transaction: once a lease a participant asks about all that are older than
//! a lease, many in one message. When it remembers [`SOON`] transactions, it does not wait for the lease, and
//! asks also about the younger transactions.
//!
//! **At most [`limits::ENDED_MAX`] transactions are remembered, prepared transactions included.** At that
//! number no transaction with several participants is prepared (`Busy`) until some are forgotten; none is
//! dropped. Only servers that are down can keep so many waiting. A coordinator that is down begins no new
//! transactions, so at most [`SOON`] of its transactions wait, besides those under way. The same holds for
//! a participant that is down, because no new transaction is prepared there.

use crate::data::status_of;
use crate::membership::stores;
use crate::meta::keys;
use crate::shard::{Identity, Shard, apply_own};
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_env::Instant;
use shoal_env::local::Notify;
use shoal_proto::{Answer, Decision, GroupReply, Op, ServerId, Status, TxId, limits};
use shoal_store::{Changes, Strength};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// So many are asked about without waiting for a lease.
const SOON: usize = limits::ENDED_MAX / 16;
/// A pause after a round of questions, if it is not a lease.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a server may take to answer one message. One that did not is asked nothing more in this round.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Those of one shard.
#[derive(Default)]
pub(super) struct Ended {
    /// Not asked about at this moment: since when (or since when they were asked about last), the oldest
    /// first.
    waiting: RefCell<VecDeque<(Instant, TxId)>>,
    /// All, as there are rows.
    count: Cell<usize>,
    /// Woken when there are many.
    many: Notify,
}

impl Ended {
    /// How many are remembered.
    pub(super) fn count(&self) -> usize {
        self.count.get()
    }

    /// One more.
    pub(super) fn add(&self, tx: TxId, at: Instant) {
        self.count.set(self.count.get() + 1);
        self.waiting.borrow_mut().push_back((at, tx));
        if self.is_many() {
            self.many.wake_all();
        }
    }

    fn is_many(&self) -> bool {
        self.count.get() >= SOON
    }

    /// Take those that are to be asked about: the old ones; where there are many, all whose coordinator may
    /// answer.
    fn take(&self, now: Instant, lease: Duration, is_lost: impl Fn(TxId) -> bool) -> Vec<TxId> {
        let is_many = self.is_many();
        let mut taken = Vec::new();
        self.waiting.borrow_mut().retain(|(at, tx)| {
            let is_due = now.since(*at) >= lease || (is_many && !is_lost(*tx));
            if is_due {
                taken.push(*tx);
            }
            !is_due
        });
        taken
    }

    /// The outcome of one that was asked about.
    fn asked(&self, tx: TxId, now: Instant, is_forgotten: bool) {
        if is_forgotten {
            self.count.set(self.count.get() - 1);
        } else {
            self.waiting.borrow_mut().push_back((now, tx));
        }
    }
}

/// The task of a shard that forgets them.
pub async fn forget_ended(shard: Rc<Shard>) {
    let ended = &shard.book.ended;
    loop {
        let many = ended.many.wait();
        if ended.is_many() {
            shard.env.sleep(PAUSE.min(shard.settings.lease)).await;
        } else {
            let _ = shard.env.deadline(shard.env.now() + shard.settings.lease, many).await;
        }
        let identity = shard.identity();
        let is_lost = |tx| is_lost(&identity, tx);
        let due = ended.take(shard.env.now(), shard.settings.lease, is_lost);
        let (lost, others): (Vec<TxId>, Vec<TxId>) = due.into_iter().partition(|tx| is_lost(*tx));
        let mut by_coordinator: BTreeMap<ServerId, Vec<TxId>> = BTreeMap::new();
        for tx in others {
            by_coordinator.entry(tx.coordinator()).or_default().push(tx);
        }
        let asked = by_coordinator.into_iter().map(|(coordinator, all)| ask(&shard, coordinator, all));
        join_all(asked).await;
        ask_others(&shard, lost).await;
    }
}

/// Whether no server will ever report more of it as its coordinator.
fn is_lost(identity: &Identity, tx: TxId) -> bool {
    identity.map.server(tx.coordinator()).is_none() || stores::is_of_lost_store(identity, tx)
}

async fn ask(shard: &Rc<Shard>, coordinator: ServerId, all: Vec<TxId>) {
    let mut answers = true;
    for some in all.chunks(limits::GROUPS_MAX) {
        let mut forgotten = BTreeSet::new();
        if answers {
            let ops = some.iter().map(|&tx| Op::Outcome { tx }).collect();
            let deadline = shard.env.now() + TIMEOUT;
            match shard.peers.call_all(coordinator, ops, Bytes::new(), deadline).await {
                Ok((replies, _)) => forgotten = which(&replies, is_forgotten),
                Err(_) => answers = false,
            }
        }
        forget(shard, some, &forgotten).await;
    }
}

/// The places of those replies that are as requested.
fn which(replies: &[GroupReply], is: impl Fn(&GroupReply) -> bool) -> BTreeSet<usize> {
    (0..replies.len()).filter(|&at| is(&replies[at])).collect()
}

fn is_forgotten(reply: &GroupReply) -> bool {
    let abort = Answer::Decided { decision: Some(Decision::Abort) };
    reply.status == Status::Ok && reply.answers.0 == [abort]
}

/// For transactions that a lost store has begun: ask all others whether they have them prepared.
async fn ask_others(shard: &Rc<Shard>, all: Vec<TxId>) {
    let servers: Vec<ServerId> = shard.identity().map.servers.iter().map(|info| info.id).collect();
    let mut answer = true;
    for some in all.chunks(limits::GROUPS_MAX) {
        // A transaction's coordinator is no participant of it.
        let is_other =
            |server: &ServerId| *server != shard.id() && some.iter().any(|tx| tx.coordinator() != *server);
        let mut forgotten: BTreeSet<usize> = (0..some.len()).collect();
        if answer {
            let others = servers.iter().copied().filter(is_other);
            for free in join_all(others.map(|server| free_of(shard, server, some))).await {
                answer &= free.is_some();
                let free = free.unwrap_or_default();
                forgotten.retain(|at| free.contains(at));
            }
        }
        if !answer {
            forgotten.clear();
        }
        forget(shard, some, &forgotten).await;
    }
}

/// Which of these transactions another server has not prepared; `None`: it does not answer.
async fn free_of(shard: &Rc<Shard>, server: ServerId, some: &[TxId]) -> Option<BTreeSet<usize>> {
    let row = |tx: &TxId| Op::Rows { prefix: keys::tx(*tx)[..].into(), after: [][..].into(), limit: 1 };
    let deadline = shard.env.now() + TIMEOUT;
    let replied = shard.peers.call_all_durably(server, some.iter().map(row).collect(), deadline).await;
    Some(which(&replied.ok()?, has_none))
}

fn has_none(reply: &GroupReply) -> bool {
    let none = Answer::Rows { rows: Vec::new().into(), end: true };
    reply.status == Status::Ok && reply.answers.0 == [none]
}

/// Remove the rows of those of `some` that are forgotten.
async fn forget(shard: &Rc<Shard>, some: &[TxId], forgotten: &BTreeSet<usize>) {
    let mut changes = Changes { strength: Strength::Weak, ..Changes::default() };
    for (at, &tx) in some.iter().enumerate() {
        let is_forgotten = forgotten.contains(&at);
        shard.book.ended.asked(tx, shard.env.now(), is_forgotten);
        if is_forgotten {
            changes.remove(keys::ended(tx));
        }
    }
    if changes.is_empty() {
        return;
    }
    if let Err(error) = apply_own(&shard.collection, changes).await {
        // The rows stay, and are asked about again after the next start.
        tracing::warn!(status = %status_of(error), "ended transactions could not be forgotten");
    }
}
