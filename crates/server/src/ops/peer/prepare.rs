//! prepare: validate, and durably lock, the actions of a transaction on this server. See [`crate::txn`].

use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use crate::txn;
use shoal_proto::{Action, Answer, ServerId, Status, TxId};
use std::rc::Rc;

/// The facts of `prepare`: direct, because the locks must be durable before the reply leaves. Only the
/// transaction's coordinator may send it.
pub const FACTS: OpFacts = OpFacts::new(direct!(|shard, asker| Prepare { tx, actions, participants } => {
    asker.must_coordinate(tx)?;
    run(shard, tx, actions.0, participants.0).await
}));

/// Prepare.
///
/// # Errors
/// `Busy`, `Changed`, or the error that forbids an action.
pub async fn run(
    shard: &Rc<Shard>,
    tx: TxId,
    actions: Vec<Action>,
    participants: Vec<ServerId>,
) -> Result<Answer, Status> {
    txn::prepare(shard, tx, actions, participants).await.map(|()| Answer::Done {})
}
