//! setkey: admit a mount key from now on, or revoke it for ever.
//!
//! The request may be sent to any server. Facts about a key are only added, so if two servers make different
//! changes, their maps can be merged. The change is durable when the answer leaves, and is passed on to all
//! servers. A repeated request changes nothing. The sessions of a revoked key are ended by
//! [`crate::net::revoked`].

use crate::data::status_of;
use crate::membership::maps;
use crate::ops::{OpFacts, direct, when};
use crate::shard::Shard;
use serde_json::json;
use shoal_proto::message::VERSION_OF_NAMED_KEYS;
use shoal_proto::{Answer, ClusterMap, KeyLimits, MountKey, MountKeyId, Status};
use std::rc::Rc;

/// The facts of `setkey`: direct, because it waits until the changed map is durable. The audit log gets the
/// key's name and id, its limits, and whether it is revoked.
pub const FACTS: OpFacts = OpFacts {
    object: when!(Setkey { key } => json!({
        "key": key.name.0,
        "id": key.id.to_string(),
        "read_only": key.limits.contains(KeyLimits::READ_ONLY),
        "squash_root": key.limits.contains(KeyLimits::SQUASH_ROOT),
        "revoked": key.revoked,
    })),
    ..OpFacts::new(direct!(|shard, _| Setkey { key } => run(shard, key).await))
};

/// The answer is the map in which that stands.
///
/// # Errors
/// `NotSupported`: one key has all roles here, so its holders could make every other key; or the first key is
/// to be revoked, and without an admin key nothing could be managed then. `BadVersion`: another server cannot
/// read a map with named keys, and neither can clients of its version. As [`ClusterMap::set_key`].
pub async fn run(shard: &Rc<Shard>, key: MountKey) -> Result<Answer, Status> {
    let identity = shard.identity();
    let manages = key.id == MountKeyId::FIRST && identity.keys.admin.is_none();
    if identity.keys.is_shared() || manages {
        return Err(Status::NotSupported);
    }
    if let Some(server) = shard.peers.older_than(VERSION_OF_NAMED_KEYS) {
        tracing::warn!(%server, "it speaks no protocol with named mount keys: update it before keys are added or revoked");
        return Err(Status::BadVersion);
    }
    let is_new = maps::change(shard, |map| map.set_key(&key)).await.map_err(status_of)??;
    if is_new {
        let MountKey { id, name, revoked, .. } = &key;
        tracing::info!(%id, %name, revoked, "the mount keys have changed");
        maps::push_to_all(shard);
    }
    Ok(Answer::Map { map: ClusterMap::clone(&shard.identity().map) })
}
