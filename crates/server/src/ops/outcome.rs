//! outcome: what this coordinator decided about a transaction. See [`crate::tx`].

use crate::shard::Shard;
use shoal_proto::{Answer, Status, TxId};
use std::rc::Rc;

/// The decision, if there is one that is durable.
///
/// # Errors
/// `WrongServer`: another coordinates it.
pub fn run(shard: &Rc<Shard>, tx: TxId) -> Result<Answer, Status> {
    if tx.coordinator() != shard.id() {
        return Err(Status::WrongServer);
    }
    Ok(Answer::Decided { decision: shard.book.outcome(tx) })
}
