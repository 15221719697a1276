//! Which store each server is served from.
//!
//! A store is what one folder of one server holds. Its identity is drawn at random when it is made, and stands in the folder's
//! identity file. **A folder that is new is never taken for one that was lost**: each server's map knows the stores of the
//! others, and a server of another store is refused, whichever side connects.
//!
//! * A server enters its own store into its map when it opens it.
//! * A server learns the store of a peer from the peer's first handshake, durably. From then on it refuses any other one.
//! * An operator gives a store up for good; then the map names its successor, and the old one is among those that are refused.
//!
//! Modules that keep nothing have no identity ([`StoreId::NONE`]), and are not checked.

use crate::keys;
use crate::shard::{Identity, Shard, apply_own};
use shoal_proto::codec::Codec;
use shoal_proto::{ClusterMap, Peer, ServerId, StoreId};
use shoal_store::{Changes, StoreError, settle};
use std::rc::Rc;

/// Enter the shard's own store into `map`; whether the map changed.
///
/// # Errors
/// `Missing`: the map knows another store of this server, or this one was given up.
pub fn enter_own(shard: &Shard, map: &mut ClusterMap) -> Result<bool, StoreError> {
    let (id, store) = (shard.id(), shard.store());
    let Some(info) = map.servers.0.get_mut(usize::from(id.0)).filter(|_| store.is_known()) else {
        return Ok(false);
    };
    if info.has_retired(store) {
        return Err(StoreError::Missing(given_up(id, store)));
    }
    if !info.admits(store) {
        return Err(StoreError::Missing(other(id, store, info.store)));
    }
    let is_new = info.store != store;
    info.store = store;
    Ok(is_new)
}

/// Hold a peer's store against the map.
///
/// # Errors
/// Why the peer is refused, in words.
pub fn check(identity: &Identity, peer: Peer) -> Result<(), String> {
    match identity.map.server(peer.server) {
        Some(info) if info.has_retired(peer.store) => Err(given_up(peer.server, peer.store)),
        Some(info) if !info.admits(peer.store) => Err(other(peer.server, peer.store, info.store)),
        // One that this server's map does not have yet is in a newer map.
        _ => Ok(()),
    }
}

/// A peer connects: check its store, and keep it durably if it is the first one that is known.
///
/// # Errors
/// Why the peer is refused, in words.
pub async fn meet(shard: &Rc<Shard>, peer: Peer) -> Result<(), String> {
    check(&shard.identity(), peer)?;
    let mut map = ClusterMap::clone(&shard.identity().map);
    let Some(info) = map.servers.0.get_mut(usize::from(peer.server.0)) else { return Ok(()) };
    if info.store.is_known() || !peer.store.is_known() {
        return Ok(());
    }
    info.store = peer.store;
    let mut changes = Changes::default();
    changes.put(keys::config("map"), map.to_bytes());
    // Adopted at once, so that two connections of two stores cannot both be the first.
    shard.adopt_map(map);
    let kept = async {
        apply_own(&shard.collection, changes).await?;
        settle(&shard.collection).await
    };
    kept.await.map_err(|error| format!("the store of server {} could not be kept: {error}", peer.server))
}

fn given_up(id: ServerId, store: StoreId) -> String {
    format!(
        "store {store} of server {id} was given up for good, and another one took its place: what is in this folder is no \
         longer part of the file system"
    )
}

fn other(id: ServerId, found: StoreId, known: StoreId) -> String {
    format!(
        "server {id} has store {known}, and this is store {found}: mount the disk that holds store {known}, or restore its \
         folder from a copy"
    )
}
