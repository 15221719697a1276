//! renew: accept a map in which stores of other servers are *given up* (declared lost) and replaced by new
//! stores.
//!
//! The server takes the map that names the new stores, with all its changes ([`crate::membership::maps`]).
//! From then on a server with an old store is refused. **A store has one successor** (the new store that
//! replaces it): a map that names a second successor is refused, so if two commands run at once, one of
//! them fails. A repeated request changes nothing.

use crate::membership::maps;
use crate::ops::{OpFacts, direct, when};
use crate::shard::Shard;
use serde_json::json;
use shoal_proto::{Answer, ClusterMap, ServerId, Status};

/// The facts of `renew`: direct, because it waits until the new map is durable. The audit log gets the
/// servers whose stores are replaced.
pub const FACTS: OpFacts = OpFacts {
    object: when!(Renew { servers, .. } => json!({ "servers": servers.iter().map(|id| id.0).collect::<Vec<_>>() })),
    ..OpFacts::new(direct!(|shard, _| Renew { servers, map } => {
        run(shard, &servers, map).await
    }))
};

/// Take the map, if it names the stores of `servers` that are to be served from now on.
///
/// # Errors
/// `Conflict`: one of them is this server, or another successor of its store is known. As `setmap`.
pub async fn run(shard: &Shard, servers: &[ServerId], map: ClusterMap) -> Result<Answer, Status> {
    if servers.contains(&shard.id()) {
        return Err(Status::Conflict);
    }
    maps::renew(shard, servers, &map).await?;
    Ok(Answer::Done {})
}
