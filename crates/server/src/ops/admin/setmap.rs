//! setmap: accept the newer parts of another server's map, durably.

use crate::membership::maps;
use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use shoal_proto::{Answer, ClusterMap, ServerId, Status};

/// The facts of `setmap`: direct, because it waits until the merged map is durable. The sender's id goes to
/// the audit log.
pub const FACTS: OpFacts =
    OpFacts::new(direct!(|shard, asker| Setmap { map } => run(shard, asker.peer, map).await));

/// Take it, from a server or from this process.
///
/// # Errors
/// As [`maps::take`].
pub async fn run(shard: &Shard, from: Option<ServerId>, map: ClusterMap) -> Result<Answer, Status> {
    maps::take(shard, from, &map).await?;
    Ok(Answer::Done {})
}
