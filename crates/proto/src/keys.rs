//! The keys of a file system, by role (decision 0025). **The mount key, which admits clients, signs
//! nothing.**
//!
//! | key | holders | use |
//! |---|---|---|
//! | mount | clients and servers | admits a client; a server proves itself to clients with it |
//! | admin | administrators and servers | lets its holders manage: add and move servers, set modes, repair |
//! | server | servers | signs capabilities; servers prove themselves to each other with it |
//! | place | servers | keys the hash that places names in directories; never replaced |
//!
//! A file system that was made before there were roles has one key, which is its mount key, server key and
//! place key ([`Keys::one`]).

use crate::{PlaceKey, SecretKey};

/// A server's keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    /// Lets clients in.
    pub mount: SecretKey,
    /// Lets those in that manage; none: each holder of the mount key may.
    pub admin: Option<SecretKey>,
    /// Only servers have it.
    pub server: SecretKey,
    /// Names are placed by it.
    pub place: SecretKey,
}

impl Keys {
    /// One key in all roles.
    pub fn one(key: SecretKey) -> Keys {
        Keys { mount: key.clone(), admin: None, server: key.clone(), place: key }
    }

    /// Whether a client's key does what only servers may do.
    pub fn is_shared(&self) -> bool {
        self.mount == self.server
    }

    /// The key of the hash that places names in this file system, so that no user can choose names that
    /// collide.
    pub fn place_key(&self, fs_id: &[u8; 16]) -> PlaceKey {
        PlaceKey::new(self.place.mac("place of a name", &[fs_id]))
    }
}

impl From<SecretKey> for Keys {
    fn from(key: SecretKey) -> Keys {
        Keys::one(key)
    }
}
