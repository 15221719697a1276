//! outcome: this coordinator's decision on a transaction. See [`crate::txn`].

use crate::membership::stores;
use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use shoal_proto::{Answer, Decision, Status, TxId};
use std::rc::Rc;

/// Its facts.
pub const FACTS: OpFacts = OpFacts::new(direct!(|shard, _| Outcome { tx } => run(shard, tx)));

/// The decision, if there is one that is durable. A transaction of a store that was given up is never said to
/// be aborted.
///
/// # Errors
/// `WrongServer`: another coordinates it.
pub fn run(shard: &Rc<Shard>, tx: TxId) -> Result<Answer, Status> {
    if tx.coordinator() != shard.id() {
        return Err(Status::WrongServer);
    }
    let decision = shard.book.outcome(tx).filter(|decision| {
        // Of a store that was given up nothing is known: perhaps others have carried it out.
        *decision != Decision::Abort || !stores::is_of_lost_store(&shard.identity(), tx)
    });
    Ok(Answer::Decided { decision })
}
