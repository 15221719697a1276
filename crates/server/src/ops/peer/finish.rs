//! finish: commit, or drop, a prepared transaction. See [`crate::txn`].

use crate::shard::Shard;
use crate::txn;
use shoal_proto::{Answer, Decision, Status, TxId};
use std::rc::Rc;

/// Finish; answered when it is durable.
///
/// # Errors
/// When the store fails.
pub async fn run(shard: &Rc<Shard>, tx: TxId, decision: Decision) -> Result<Answer, Status> {
    txn::finish(shard, tx, decision).await.map(|()| Answer::Done {})
}
