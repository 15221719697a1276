//! moveserver: change the addresses of a server.
//!
//! The request may be sent to any server that can be reached, also to the server that moves: the count of a
//! server's moves shows the latest change. The change is durable when the answer leaves, and is passed on
//! to all servers. Clients see from the epoch in any answer that they should fetch the map. Existing
//! connections stay. A repeated request changes nothing.

use crate::data::status_of;
use crate::membership::maps;
use crate::ops::{OpFacts, direct, when};
use crate::shard::Shard;
use serde_json::json;
use shoal_env::Address;
use shoal_proto::wire::Many;
use shoal_proto::{Answer, ClusterMap, ServerId, Status, Text};
use std::rc::Rc;

/// The facts of `moveserver`: direct, because it waits until the changed map is durable. The audit log gets
/// the server, its new addresses and the count of its moves.
pub const FACTS: OpFacts = OpFacts {
    object: when!(Moveserver { server, addresses, moved } => json!({
        "server": server.0,
        "addresses": addresses.iter().map(|at| at.0.as_str()).collect::<Vec<_>>(),
        "moved": moved,
    })),
    ..OpFacts::new(direct!(|shard, _| Moveserver { server, addresses, moved } => {
        run(shard, server, addresses, moved).await
    }))
};

/// The answer is the map in which that stands.
///
/// # Errors
/// `Invalid`: no such server, or addresses that cannot be read. `Exists`: another server is at one of them.
/// `Conflict`: a later change is known.
pub async fn run(
    shard: &Rc<Shard>,
    server: ServerId,
    addresses: Many<Text, 8>,
    moved: u32,
) -> Result<Answer, Status> {
    if addresses.iter().any(|at| at.0.parse::<Address>().is_err()) {
        return Err(Status::Invalid);
    }
    let is_new =
        maps::change(shard, |map| map.move_server(server, &addresses, moved)).await.map_err(status_of)??;
    if is_new {
        tracing::info!(%server, moved, "a server has moved to {}", words(&addresses));
        maps::push_to_all(shard);
    }
    Ok(Answer::Map { map: ClusterMap::clone(&shard.identity().map) })
}

fn words(addresses: &Many<Text, 8>) -> String {
    addresses.iter().map(|at| at.0.as_str()).collect::<Vec<_>>().join(", ")
}
