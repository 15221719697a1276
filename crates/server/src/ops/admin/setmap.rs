//! setmap: accept the newer parts of another server's map, durably.

use crate::membership::maps;
use crate::ops::{OpFacts, direct};
use crate::shard::Shard;
use shoal_proto::{Answer, ClusterMap, Status};

/// Its facts.
pub const FACTS: OpFacts = OpFacts::new(direct!(|shard, _| Setmap { map } => run(shard, map).await));

/// Take it.
///
/// # Errors
/// As [`maps::take`].
pub async fn run(shard: &Shard, map: ClusterMap) -> Result<Answer, Status> {
    maps::take(shard, &map).await?;
    Ok(Answer::Done {})
}
