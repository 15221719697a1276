//! What was carried out here beside other participants, remembered until its coordinator has forgotten it.
//!
//! Nobody sends a message for that alone: a participant asks, once a lease, about all that is older than that, many by one
//! message. A coordinator that says *aborted* of what was carried out has forgotten it, since all participants have finished.

use crate::data::status_of;
use crate::keys;
use crate::shard::{Shard, apply_own};
use crate::stores;
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_proto::{Answer, Decision, GroupReply, Op, ServerId, Status, TxId, limits};
use shoal_store::{Changes, Strength};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// How long a coordinator may take to answer one message.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The task of a shard that forgets them.
pub async fn forget_ended(shard: Rc<Shard>) {
    loop {
        shard.env.sleep(shard.settings.lease).await;
        let mut by_coordinator: BTreeMap<ServerId, Vec<TxId>> = BTreeMap::new();
        for tx in take_old(&shard) {
            // Of a store that was given up nobody ever knows more.
            if !stores::is_of_lost_store(&shard.identity(), tx) {
                by_coordinator.entry(tx.coordinator()).or_default().push(tx);
            }
        }
        let asked = by_coordinator.into_iter().map(|(coordinator, all)| forget(&shard, coordinator, all));
        join_all(asked).await;
    }
}

fn take_old(shard: &Shard) -> Vec<TxId> {
    let now = shard.env.now();
    let mut ended = shard.book.ended.borrow_mut();
    let mut old = Vec::new();
    while let Some((at, tx)) = ended.front().copied()
        && now.since(at) >= shard.settings.lease
    {
        ended.pop_front();
        old.push(tx);
    }
    old
}

async fn forget(shard: &Rc<Shard>, coordinator: ServerId, all: Vec<TxId>) {
    for some in all.chunks(limits::GROUPS_MAX) {
        let ops = some.iter().map(|&tx| Op::Outcome { tx }).collect();
        let deadline = shard.env.now() + TIMEOUT;
        let replied = shard.peers.call_all(coordinator, ops, Bytes::new(), deadline).await;
        let replies = replied.map_or(Vec::new(), |(replies, _)| replies);
        let mut changes = Changes { strength: Strength::Weak, ..Changes::default() };
        for (at, &tx) in some.iter().enumerate() {
            match replies.get(at).is_some_and(is_forgotten) {
                true => changes.remove(keys::ended(tx)),
                false => shard.book.add_ended(tx, shard.env.now()),
            }
        }
        if changes.is_empty() {
            continue;
        }
        if let Err(error) = apply_own(&shard.collection, changes).await {
            // The rows stay, and are asked about again after the next start.
            tracing::warn!(status = %status_of(error), "ended transactions could not be forgotten");
        }
    }
}

fn is_forgotten(reply: &GroupReply) -> bool {
    let abort = Answer::Decided { decision: Some(Decision::Abort) };
    reply.status == Status::Ok && reply.answers.0 == [abort]
}
