//! A participant in doubt asks: after a while, and again, until its coordinator says what was decided.

use super::finish;
use crate::shard::Shard;
use shoal_proto::{Answer, Op};
use std::rc::Rc;

/// The task of a shard that resolves what is prepared here and hears nothing more.
pub async fn resolve(shard: Rc<Shard>) {
    loop {
        let prepared = shard.book.in_doubt.wait();
        if shard.book.prepared.borrow().is_empty() {
            prepared.await;
            continue;
        }
        shard.env.sleep(shard.settings.doubt).await;
        for (tx, entry) in shard.book.prepared() {
            let now = shard.env.now();
            if now.since(entry.since.get()) < shard.settings.doubt || entry.actions.borrow().is_empty() {
                continue;
            }
            entry.since.set(now);
            let deadline = now + shard.settings.doubt.max(std::time::Duration::from_secs(1));
            let asked = shard.peers.call(tx.coordinator(), Op::Outcome { tx }, deadline).await;
            if let Ok(Answer::Decided { decision: Some(decision) }) = asked
                && let Err(status) = finish(&shard, tx, decision).await
            {
                tracing::warn!(%tx, %status, "a decided transaction could not be finished");
            }
        }
    }
}
