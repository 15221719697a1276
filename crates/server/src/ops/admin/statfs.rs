//! statfs: return the space of this server's part of the file system. The number of objects is 0, because
//! no count of objects is kept.

use crate::data::status_of;
use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use shoal_proto::{Answer, Status};
use std::rc::Rc;

/// The facts of `statfs`: direct, because it asks the local file system for its space.
pub const FACTS: OpFacts = OpFacts::new(direct!(|shard, _| Statfs { } => run(shard).await));

/// The space.
///
/// # Errors
/// When the local file system cannot be asked.
pub async fn run(shard: &Rc<Shard>) -> Result<Answer, Status> {
    let space = shard.collection.space().await.map_err(status_of)?;
    // Removed files that are kept for a while give way as soon as their space is wanted.
    let available = space.available.saturating_add(shard.lingering.bytes()).min(space.total);
    Ok(Answer::Space { total: space.total, available, objects: 0, disk: space.disk })
}
