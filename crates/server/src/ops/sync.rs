//! sync: everything applied so far becomes durable, whatever the mode.

use crate::data::status_of;
use crate::shard::Shard;
use shoal_proto::{Answer, Status};
use shoal_store::settle;
use std::rc::Rc;

/// Sync.
///
/// # Errors
/// `Poisoned`.
pub async fn run(shard: &Rc<Shard>) -> Result<Answer, Status> {
    settle(&shard.collection).await.map_err(status_of)?;
    Ok(Answer::Synced {})
}
