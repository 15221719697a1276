//! A participant in doubt (it has voted and does not know the decision) asks its coordinator, repeatedly,
//! until it has the decision.
//!
//! If the coordinator does not answer, a participant that has voted stays in doubt. Only the rename lock is
//! taken back ([`super::rename_lock`]).

use super::{Prepared, finish, take_back};
use crate::membership::stores;
use crate::shard::Shard;
use futures_util::future::join_all;
use shoal_env::crash_point;
use shoal_proto::{Answer, Op, TxId};
use std::rc::Rc;
use std::time::Duration;

/// A coordinator has at least this long to answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(1);

/// The task of a shard that resolves transactions prepared here that receive no further message.
pub async fn resolve(shard: Rc<Shard>) {
    loop {
        let prepared = shard.book.in_doubt.wait();
        if shard.book.prepared.borrow().is_empty() {
            prepared.await;
            continue;
        }
        shard.env.sleep(shard.settings.doubt).await;
        let now = shard.env.now();
        let is_old = |entry: &Prepared| {
            now.since(entry.since.get()) >= shard.settings.doubt && !entry.actions.borrow().is_empty()
        };
        let old = shard.book.prepared().into_iter().filter(|(_, entry)| is_old(entry));
        join_all(old.map(|(tx, entry)| {
            entry.since.set(now);
            ask(&shard, tx)
        }))
        .await;
    }
}

async fn ask(shard: &Rc<Shard>, tx: TxId) {
    shard.env.crash_point(crash_point::PARTICIPANT_IN_DOUBT, tx.0);
    let deadline = shard.env.now() + shard.settings.doubt.max(ASK_TIMEOUT);
    let asked = shard.peers.call(tx.coordinator(), Op::Outcome { tx }, deadline).await;
    let done = match asked {
        Ok(Answer::Decided { decision: Some(decision) }) => finish(shard, tx, decision).await,
        Ok(_) if !stores::is_of_lost_store(&shard.identity(), tx) => Ok(()),
        _ => take_back(shard, tx).await,
    };
    if let Err(status) = done {
        tracing::warn!(%tx, %status, "a transaction could not be ended");
    }
}
