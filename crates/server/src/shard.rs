//! Who a shard is: the facts that every handler may need.

use shoal_proto::{ClusterMap, CollectionId, SecretKey, ServerId, Time};
use std::rc::Rc;

/// A shard's identity. Replaced as a whole when a newer map arrives.
#[derive(Clone, Debug)]
pub struct Identity {
    /// This server.
    pub id: ServerId,
    /// The collection.
    pub collection: CollectionId,
    /// The cluster's map.
    pub map: Rc<ClusterMap>,
    /// The file system's secret.
    pub key: SecretKey,
    /// Key of the hash that places names in directories; derived from the secret, so that nobody can choose names that
    /// collide.
    pub place_key: [u8; 32],
    /// How long a capability lasts, in nanoseconds.
    pub capability_ns: i64,
}

impl Identity {
    /// A shard's identity.
    pub fn new(id: ServerId, map: Rc<ClusterMap>, key: SecretKey) -> Identity {
        let place_key = key.mac("place of a name", &[&map.fs_id]);
        Identity { id, collection: map.collection, map, key, place_key, capability_ns: 3_600_000_000_000 }
    }

    /// The place of a name in its directory: a 63-bit keyed hash, never 0 (listings begin behind 0).
    pub fn place_of(&self, name: &[u8]) -> u64 {
        let hash = blake3::keyed_hash(&self.place_key, name);
        let mut first = [0; 8];
        first.copy_from_slice(&hash.as_bytes()[..8]);
        (u64::from_le_bytes(first) >> 1).max(1)
    }

    /// Until when a capability given `now` lasts.
    pub fn capability_expiry(&self, now: Time) -> Time {
        Time(now.0.saturating_add(self.capability_ns))
    }
}
