//! outcome: return this coordinator's decision on a transaction. See [`crate::txn`].

use crate::membership::stores;
use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use shoal_proto::{Answer, Decision, Status, TxId};
use std::rc::Rc;

/// The facts of `outcome`: direct. Any server may ask, not only a participant.
pub const FACTS: OpFacts = OpFacts::new(direct!(|shard, _| Outcome { tx } => run(shard, tx)));

/// The decision, if it is durable; `None` while the transaction is being decided. A transaction that this
/// coordinator does not know was aborted.
///
/// This server never answers `Abort` for a transaction of a store that was given up: it does not know whether
/// other servers have carried it out. The answer is `None` then.
///
/// # Errors
/// `WrongServer`: another coordinates it.
pub fn run(shard: &Rc<Shard>, tx: TxId) -> Result<Answer, Status> {
    if tx.coordinator() != shard.id() {
        return Err(Status::WrongServer);
    }
    let decision = shard.book.outcome(tx).filter(|decision| {
        // Another server may have carried it out.
        *decision != Decision::Abort || !stores::is_of_lost_store(&shard.identity(), tx)
    });
    Ok(Answer::Decided { decision })
}
