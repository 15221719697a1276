//! Finds the key that a connection has proved, and the rights that this key gives.
//!
//! The admin key gives the right to manage; if the file system has no admin key, its first mount key gives
//! it. A client that proves a key which is unknown here or revoked is refused with words that say so; a
//! client that proves no key gets a general refusal. The keys: decisions 0025 and 0028 (`docs/decisions`).

use super::handshake::Refused;
use crate::shard::Identity;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::seal::{Handshake, Shared};
use shoal_proto::{ClientId, KeyLimits, MountKeyId, SecretKey, Status};

/// The mount key by which a client was let in, and its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountUse {
    /// The key.
    pub id: MountKeyId,
    /// Its limits.
    pub limits: KeyLimits,
}

/// The rights of a connection by the key that it proved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// It may manage.
    pub manages: bool,
    /// The mount key; `None` for administrators and servers.
    pub mount: Option<MountUse>,
}

/// The part of the handshake that shows which key the other side has.
pub(super) struct Proof<'a> {
    pub(super) handshake: Handshake<'a>,
    /// The exchange with the client's own key, if it has one.
    pub(super) shared: Option<Shared>,
    /// The mount key that it named.
    pub(super) mount: MountKeyId,
}

/// The role of a key that was proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Server,
    Admin,
    Mount,
}

impl Proof<'_> {
    /// The key that the other side proved, and the role of that key.
    ///
    /// # Errors
    /// `BadKey`: it proved none of the keys by which one of its kind is let in.
    pub(super) fn key(&self, identity: &Identity) -> Result<(Role, SecretKey), Refused> {
        let Handshake { hello, challenge, attach } = self.handshake;
        let keys = &identity.keys;
        let proves = |key: &SecretKey| attach.is_proven(key, hello, challenge, self.shared.as_ref());
        if attach.peer.is_some() {
            let words = "you have not the servers' key: copy `key.server` from the folder of the first server, beside `key`";
            let refused = Refused::new(Status::BadKey, words);
            return if proves(&keys.server) { Ok((Role::Server, keys.server.clone())) } else { Err(refused) };
        }
        if let Some(admin) = keys.admin.as_ref().filter(|key| proves(key)) {
            return Ok((Role::Admin, admin.clone()));
        }
        let mount = keys.named(&identity.map.fs_id, self.mount);
        if !proves(&mount) {
            let words = "your key (`key`, or `key.admin`) is not this file system's: use the key files that were made with it";
            return Err(Refused::new(Status::BadKey, words));
        }
        Ok((Role::Mount, mount))
    }

    /// The rights of the connection. One that proved the admin key may manage, and one that proved the first
    /// mount key where there is no admin key.
    ///
    /// # Errors
    /// `BadKey`: it proved a key that this file system does not know. `KeyRevoked`.
    pub(super) fn admits(&self, identity: &Identity, role: Role) -> Result<Admitted, Refused> {
        match role {
            Role::Server => Ok(Admitted::default()),
            Role::Admin => Ok(Admitted { manages: true, mount: None }),
            Role::Mount => {
                let limits = is_let_in(identity, self.mount)?;
                let is_first = self.mount == MountKeyId::FIRST;
                let manages =
                    is_first && (identity.keys.admin.is_none() || mutant::is(Mutant::MountKeyManages));
                Ok(Admitted { manages, mount: Some(MountUse { id: self.mount, limits }) })
            }
        }
    }
}

/// The limits of a mount key that is let in.
///
/// # Errors
/// `KeyRevoked`, with its name; `BadKey` if this server does not know it.
pub(super) fn is_let_in(identity: &Identity, id: MountKeyId) -> Result<KeyLimits, Refused> {
    match identity.map.mount_key(id) {
        Some(key) if key.revoked => Err(Refused::revoked(key)),
        Some(key) => Ok(key.limits),
        None if id == MountKeyId::FIRST => Ok(KeyLimits::default()),
        None => {
            let words = format!(
                "unknown key {id}: no mount key of that id was added to file system `{}` (`shoal key list` shows those that were)",
                identity.map.name
            );
            Err(Refused::new(Status::BadKey, words))
        }
    }
}

/// The client that a holder of a mount key is here. A client's id is no secret, and each client states its
/// own. So one id with two keys is two clients, and neither has sessions, locks or open files of the other.
/// All servers derive the same.
pub(super) fn client_of_key(servers: &SecretKey, key: MountKeyId, stated: ClientId) -> ClientId {
    if key == MountKeyId::FIRST || stated == ClientId::ANYONE {
        return stated;
    }
    let hash = servers.mac("the client of a mount key", &[&key.0.to_le_bytes(), &stated.0]);
    let mut id = [0; 16];
    id.copy_from_slice(&hash[..16]);
    ClientId(id)
}
