//! Mount keys with names. A file system may have several; each has limits, and can be revoked while the
//! file system runs.
//!
//! The cluster map lists the keys ([`crate::ClusterMap::keys`]). So every server learns of a new or revoked
//! key at once, or, if the server was down, with the next answer of a peer. **The list holds no secret.** A
//! key is derived from the servers' key and its id ([`Keys::named`]), so each server has it as soon as the
//! list names it, and no key is ever sent.
//!
//! The capabilities of each key are signed by a key of their own ([`Keys::signing`]). A capability that was
//! given to the holder of one key is refused on a connection that proved another key.
//!
//! The first key, with which the file system was made, has id 0. It has no entry in the list until it is
//! revoked.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::wire::{Text, wire_struct};
use crate::{Keys, Kind, MountKeyId, Op, Owner, SecretKey, SetAttr, Status, limits};

bitflags::bitflags! {
    /// The limits of a mount key. Servers hold its clients to them.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct KeyLimits: u8 {
        /// Nothing is changed.
        const READ_ONLY = 1;
        /// Root makes objects as another user: see [`KeyLimits::maker`].
        const SQUASH_ROOT = 2;
    }
}

/// The user and the group to which all that a squashed root makes belongs.
pub const NOBODY: u32 = 65_534;
/// Set-user-id and set-group-id.
const SET_ID_BITS: u32 = 0o6000;

/// All but the first are about [`KeyLimits::SQUASH_ROOT`]. An error is `NotPermitted`: only root may do it,
/// and root is squashed.
impl KeyLimits {
    /// Whether the holder of a key with these limits may send this operation at all.
    ///
    /// # Errors
    /// `ReadOnly`: it is none of those for readers.
    pub fn permits(self, op: &Op) -> Result<(), Status> {
        match self.contains(KeyLimits::READ_ONLY) && !op.is_for_readers() {
            true => Err(Status::ReadOnly),
            false => Ok(()),
        }
    }

    fn refuse_if(self, is_for_root: bool) -> Result<(), Status> {
        match self.contains(KeyLimits::SQUASH_ROOT) && is_for_root {
            true => Err(Status::NotPermitted),
            false => Ok(()),
        }
    }

    /// Owner and mode of a new object that is made for `owner`. A directory takes no set-id bit anyway.
    pub fn maker(self, kind: Kind, owner: &Owner) -> Result<Owner, Status> {
        let sets_id = kind != Kind::Directory && owner.mode & SET_ID_BITS != 0;
        self.refuse_if(sets_id || matches!(kind, Kind::CharDevice | Kind::BlockDevice))?;
        let squashed = |id| if id == 0 && self.contains(KeyLimits::SQUASH_ROOT) { NOBODY } else { id };
        Ok(Owner { mode: owner.mode, uid: squashed(owner.uid), gid: squashed(owner.gid) })
    }

    /// Whether this may be set on an object of that mode. It keeps the set-id bits that it has.
    pub fn permits_set(self, mode: u32, set: &SetAttr) -> Result<(), Status> {
        let adds_set_id = set.mode.is_some_and(|next| next & !mode & SET_ID_BITS != 0);
        self.refuse_if(set.uid.is_some() || set.gid.is_some() || adds_set_id)
    }

    /// Whether an extended attribute may be set or removed: none by which the system trusts a file. A kernel
    /// removes `security.capability` before each write.
    pub fn permits_attribute(self, name: &[u8], is_removed: bool) -> Result<(), Status> {
        let is_trusted = name.starts_with(b"trusted.") || name.starts_with(b"security.");
        self.refuse_if(is_trusted && !(is_removed && name == b"security.capability"))
    }
}

impl Codec for KeyLimits {
    fn encode(&self, w: &mut Writer) {
        w.put_u8(self.bits());
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        KeyLimits::from_bits(r.get_u8()?).ok_or(DecodeError::Invalid("limits of a mount key"))
    }
}

wire_struct! {
    /// A mount key as all know it.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub struct MountKey {
        /// Its id.
        pub id: MountKeyId,
        /// Its name: 1 to 64 letters, digits, `.`, `_` and `-`.
        pub name: Text,
        /// Its limits. They never change.
        pub limits: KeyLimits,
        /// No server lets it in any more. That never changes back.
        pub revoked: bool,
    }
}

impl MountKey {
    /// The name by which the first key is revoked.
    pub const FIRST_NAME: &str = "first";

    /// Whether it may be in a map.
    ///
    /// # Errors
    /// `Invalid`: such a name is not allowed, or it is another key's.
    pub fn check(&self) -> Result<(), Status> {
        let name = self.name.0.as_bytes();
        let is_allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
        let is_whole = (1..=limits::KEY_NAME_BYTES_MAX).contains(&name.len());
        let is_first = self.id == MountKeyId::FIRST;
        let fits = is_first == (self.name.0 == MountKey::FIRST_NAME) && (!is_first || self.revoked);
        // The name is a part of a file's name too.
        if is_whole && name.iter().all(is_allowed) && name[0] != b'.' && fits {
            Ok(())
        } else {
            Err(Status::Invalid)
        }
    }

    /// The same key as two servers know it: each limit counts, and that it was revoked.
    fn met(&mut self, other: &MountKey) {
        self.limits |= other.limits;
        self.revoked |= other.revoked;
        if other.name.0 > self.name.0 {
            self.name = other.name.clone();
        }
    }
}

/// Takes the keys that `known` has and `keys` has not, and what is known of the others. The order is that of
/// the ids, so that all servers end with the same list.
pub(crate) fn meet(keys: &mut Vec<MountKey>, known: &[MountKey]) {
    for other in known {
        match keys.binary_search_by_key(&other.id, |key| key.id) {
            Ok(at) => keys[at].met(other),
            Err(at) => keys.insert(at, other.clone()),
        }
    }
    keys.truncate(limits::MOUNT_KEYS_MAX);
}

impl Keys {
    /// A mount key of a file system. Each id has one; the map says which of them are let in.
    pub fn named(&self, fs_id: &[u8; 16], id: MountKeyId) -> SecretKey {
        match id {
            MountKeyId::FIRST => self.mount.clone(),
            MountKeyId(id) => SecretKey::new(self.server.mac("named mount key", &[fs_id, &id.to_le_bytes()])),
        }
    }

    /// The key that signs the capabilities given to holders of a mount key.
    pub fn signing(&self, id: MountKeyId) -> SecretKey {
        match id {
            MountKeyId::FIRST => self.server.clone(),
            MountKeyId(id) => {
                SecretKey::new(self.server.mac("capabilities of a mount key", &[&id.to_le_bytes()]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> MountKey {
        MountKey { id: MountKeyId(7), name: name.into(), limits: KeyLimits::default(), revoked: false }
    }

    #[test]
    fn a_name_is_a_short_word_that_can_be_part_of_a_file_name() {
        let long = "n".repeat(limits::KEY_NAME_BYTES_MAX);
        for good in ["a", "backup-2", "A.b_c", &long] {
            assert_eq!(key(good).check(), Ok(()), "{good}");
        }
        let (longer, whole) = ("n".repeat(limits::KEY_NAME_BYTES_MAX + 1), "n".repeat(256));
        for bad in ["", "a/b", "a\nb", "a b", "\0", "..", ".hidden", "ä", "first", &longer, &whole] {
            assert_eq!(key(bad).check(), Err(Status::Invalid), "{bad:?}");
        }
        let first = MountKey { id: MountKeyId::FIRST, revoked: true, ..key(MountKey::FIRST_NAME) };
        assert_eq!(first.check(), Ok(()));
        assert_eq!(MountKey { revoked: false, ..first }.check(), Err(Status::Invalid));
    }

    #[test]
    fn an_object_that_is_made_for_a_squashed_root_is_made_for_nobody_and_has_no_set_id_bit() {
        let squash = KeyLimits::SQUASH_ROOT;
        let made = |limits: KeyLimits, kind, mode, uid, gid| limits.maker(kind, &Owner { mode, uid, gid });
        for (from, to) in [((1, 2), (1, 2)), ((0, 2), (NOBODY, 2)), ((1, 0), (1, NOBODY))] {
            let owner = made(squash, Kind::File, 0o1777, from.0, from.1).unwrap();
            assert_eq!((owner.mode, owner.uid, owner.gid), (0o1777, to.0, to.1));
        }
        for (kind, mode) in [(Kind::File, 0o4755), (Kind::Fifo, 0o2755), (Kind::BlockDevice, 0o600)] {
            assert_eq!(made(squash, kind, mode, 1, 2), Err(Status::NotPermitted));
            assert_eq!(made(KeyLimits::default(), kind, mode, 0, 0), Ok(Owner { mode, uid: 0, gid: 0 }));
        }
    }

    #[test]
    fn each_id_and_each_file_system_has_a_key_of_its_own_and_none_is_that_of_a_role() {
        let keys = Keys {
            mount: SecretKey::new([1; 32]),
            admin: None,
            server: SecretKey::new([2; 32]),
            place: SecretKey::new([3; 32]),
        };
        let (one, two) = (MountKeyId(1), MountKeyId(2));
        assert!(keys.named(&[0; 16], MountKeyId::FIRST) == keys.mount);
        assert!(keys.signing(MountKeyId::FIRST) == keys.server);
        let all = [
            keys.mount.clone(),
            keys.server.clone(),
            keys.place.clone(),
            keys.named(&[0; 16], one),
            keys.named(&[0; 16], two),
            keys.named(&[1; 16], one),
            keys.signing(one),
            keys.signing(two),
        ];
        for (at, key) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|other| other != key), "{at}");
        }
    }
}
