//! sync: make all changes that were applied or written so far durable, in every sync mode.

use crate::data::status_of;
use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use shoal_proto::{Answer, Status};
use std::rc::Rc;

/// The facts of `sync`: direct, and it makes all earlier changes durable.
pub const FACTS: OpFacts =
    OpFacts { makes_durable: true, ..OpFacts::new(direct!(|shard, _| Sync { } => run(shard).await)) };

/// Sync.
///
/// # Errors
/// `Poisoned`.
pub async fn run(shard: &Rc<Shard>) -> Result<Answer, Status> {
    shard.collection.sync().await.map_err(status_of)?;
    Ok(Answer::Synced {})
}
