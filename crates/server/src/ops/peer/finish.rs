//! finish: commit, or drop, a prepared transaction. See [`crate::txn`].

use crate::membership::stores;
use crate::ops::{OpFacts, direct, when};
use crate::request::executor::Asker;
use crate::shard::Shard;
use crate::txn;
use serde_json::json;
use shoal_proto::{Answer, Decision, Op, Status, TxId};
use std::rc::Rc;

/// The facts of `finish`: direct. The operator may send it to end a transaction whose coordinator is lost;
/// the audit log then gets the transaction and the decision.
pub const FACTS: OpFacts = OpFacts {
    is_repair: |shard, op| match op {
        Op::Finish { tx, .. } => is_ended_by_repair(shard, *tx),
        _ => false,
    },
    object: when!(Finish { tx, decision } => json!({
        "transaction": tx.to_string(),
        "decision": format!("{decision:?}").to_lowercase(),
    })),
    ..OpFacts::new(direct!(|shard, asker| Finish { tx, decision } => {
        may_finish(shard, asker, tx, decision)?;
        run(shard, tx, decision).await
    }))
};

/// Finish; answered when it is durable.
///
/// # Errors
/// When the store fails.
pub async fn run(shard: &Rc<Shard>, tx: TxId, decision: Decision) -> Result<Answer, Status> {
    txn::finish(shard, tx, decision).await.map(|()| Answer::Done {})
}

/// Its coordinator finishes a transaction; or a repair does, where it has no coordinator any more. If the map
/// has no such server, no commit can have been recorded: the prepared transaction is aborted, as is any
/// transaction that its coordinator does not know. If the coordinator's store was given up, the repair
/// decides by the state of all participants.
fn may_finish(shard: &Shard, asker: Asker, tx: TxId, decision: Decision) -> Result<(), Status> {
    let is_repair = asker.peer.is_none();
    if is_repair && decision == Decision::Abort && is_of_nobody(shard, tx) {
        return Ok(());
    }
    if is_repair && stores::is_of_lost_store(&shard.identity(), tx) {
        return Ok(());
    }
    asker.must_coordinate(tx)
}

/// Whether a repair may end a transaction: it has no coordinator any more.
fn is_ended_by_repair(shard: &Shard, tx: TxId) -> bool {
    is_of_nobody(shard, tx) || stores::is_of_lost_store(&shard.identity(), tx)
}

/// Whether a transaction's coordinator is no server of the file system.
fn is_of_nobody(shard: &Shard, tx: TxId) -> bool {
    shard.identity().map.server(tx.coordinator()).is_none()
}
