//! setmap: a newer map takes the place of the present one, durably.

use crate::data::status_of;
use crate::keys;
use crate::shard::{Shard, apply_own};
use shoal_proto::codec::Codec;
use shoal_proto::{Answer, ClusterMap, Op, ServerId, Status};
use shoal_store::{Changes, settle};
use std::rc::Rc;
use std::time::Duration;

/// How long a push to one server is tried; one that missed it hears of the epoch from clients' and peers' replies.
const PUSH_TIMEOUT: Duration = Duration::from_secs(60);

/// Take a map, if it is newer.
///
/// # Errors
/// `BadCollection`: of another file system. `Conflict`: a server of the present map is missing.
pub async fn run(shard: &Rc<Shard>, map: ClusterMap) -> Result<Answer, Status> {
    run_with(shard, map, Changes::default()).await
}

/// The same, in one batch with other changes; none of them is made where the map is not taken.
///
/// # Errors
/// As [`run`]; `Conflict` also where the map is not newer and there are other changes.
pub async fn run_with(shard: &Rc<Shard>, map: ClusterMap, mut changes: Changes) -> Result<Answer, Status> {
    let present = shard.identity().map.clone();
    if map.fs_id != present.fs_id || map.collection != present.collection {
        return Err(Status::BadCollection);
    }
    if map.epoch <= present.epoch {
        return if changes.rows.is_empty() { Ok(Answer::Done {}) } else { Err(Status::Conflict) };
    }
    if map.servers.len() < present.servers.len() || map.servers.iter().zip(0_u16..).any(|(s, i)| s.id.0 != i)
    {
        return Err(Status::Conflict);
    }
    let mut map = map;
    map.remember_stores(&present);
    shard.pools.taken(&shard.counters, &changes.rows);
    changes.put(keys::config("map"), map.to_bytes());
    apply_own(&shard.collection, changes).await.map_err(status_of)?;
    settle(&shard.collection).await.map_err(status_of)?;
    shard.adopt_map(map);
    Ok(Answer::Done {})
}

/// Push this server's map to all others, in the background, once it is durable here.
pub fn push_to_all(shard: &Rc<Shard>) {
    let map = shard.identity().map.clone();
    for server in map.servers.iter().map(|s| s.id).filter(|id| *id != shard.id()) {
        let own = shard.clone();
        let map = map.clone();
        shard.tasks.spawn(&shard.env, "push map", async move { push(own, server, map).await });
    }
}

async fn push(shard: Rc<Shard>, server: ServerId, map: Rc<ClusterMap>) {
    if settle(&shard.collection).await.is_err() {
        return;
    }
    let deadline = shard.env.now() + PUSH_TIMEOUT;
    let op = Op::Setmap { map: ClusterMap::clone(&map) };
    if let Err(status) = shard.peers.call(server, op, deadline).await {
        tracing::warn!(%server, %status, epoch = map.epoch, "a server could not be told of the new map");
    }
}
