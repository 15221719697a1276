//! Mount keys with names: several at once, each with limits, each revocable while the file system runs.
//!
//! The map lists them ([`crate::ClusterMap::keys`]), so every server learns of a new or a revoked one as it
//! learns of a server that moved: at once, and with the next answer of a peer where it was away. **The list
//! holds no secret.** A key is derived from the servers' key and its id ([`Keys::named`]), so each server has
//! it as soon as the list names it, and no key is ever sent.
//!
//! The capabilities of each key are signed by a key of their own ([`Keys::signing`]). One that was given to
//! the holder of a key opens nothing on a connection that proved another one.
//!
//! The first key, which the file system was made with, has id 0 and no entry until it is revoked.

use crate::codec::{Codec, DecodeError, Reader, Writer};
use crate::wire::{Text, wire_struct};
use crate::{Keys, Kind, MountKeyId, Op, Owner, SecretKey, Status, limits};

bitflags::bitflags! {
    /// The limits of a mount key. Servers hold its clients to them.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub struct KeyLimits: u8 {
        /// Nothing is changed.
        const READ_ONLY = 1;
        /// Root is nobody: see [`Op::squash_root`] and [`KeyLimits::permits`].
        const SQUASH_ROOT = 2;
    }
}

/// The user and the group to which belongs what a squashed root makes.
pub const NOBODY: u32 = 65_534;
/// Set-user-id and set-group-id.
pub const SET_ID_BITS: u32 = 0o6000;

impl KeyLimits {
    /// Whether the holder of a key with these limits may send this operation. Set-id bits of an object that is
    /// there are not judged here: it keeps those that it has.
    ///
    /// # Errors
    /// `ReadOnly`: it is none of those for readers. `NotPermitted`: only root may do it, and root is squashed.
    pub fn permits(self, op: &Op) -> Result<(), Status> {
        if self.contains(KeyLimits::READ_ONLY) && !op.is_for_readers() {
            return Err(Status::ReadOnly);
        }
        if self.contains(KeyLimits::SQUASH_ROOT) && is_for_root(op) {
            return Err(Status::NotPermitted);
        }
        Ok(())
    }
}

/// Changes that a squashed root may not make: an owner, a new object with set-id bits, a device, an attribute
/// by which the system trusts a file. `security.capability` may be removed, as a kernel does before a write.
fn is_for_root(op: &Op) -> bool {
    let is_trusted = |name: &[u8]| name.starts_with(b"trusted.") || name.starts_with(b"security.");
    let is_privilege = |name: &[u8]| name == b"security.capability";
    match op {
        Op::Setattr { set, .. } => set.uid.is_some() || set.gid.is_some(),
        Op::Mknod { kind: Kind::CharDevice | Kind::BlockDevice, .. }
        | Op::Crdirent { kind: Kind::CharDevice | Kind::BlockDevice, .. } => true,
        Op::Setxattr { name, .. } => is_trusted(&name.0),
        Op::Removexattr { name, .. } => is_trusted(&name.0) && !is_privilege(&name.0),
        op => op.new_owner().is_some_and(|owner| owner.mode & SET_ID_BITS != 0),
    }
}

impl Op {
    fn new_owner(&self) -> Option<&Owner> {
        match self {
            Op::Create { owner, .. }
            | Op::Mknod { owner, .. }
            | Op::Symlink { owner, .. }
            | Op::Mkdir { owner, .. }
            | Op::Mkforked { owner, .. }
            | Op::Createmeta { owner, .. } => Some(owner),
            _ => None,
        }
    }

    fn new_owner_mut(&mut self) -> Option<&mut Owner> {
        match self {
            Op::Create { owner, .. }
            | Op::Mknod { owner, .. }
            | Op::Symlink { owner, .. }
            | Op::Mkdir { owner, .. }
            | Op::Mkforked { owner, .. }
            | Op::Createmeta { owner, .. } => Some(owner),
            _ => None,
        }
    }

    /// Root and its group make it as nobody.
    pub fn squash_root(&mut self) {
        let Some(owner) = self.new_owner_mut() else { return };
        for id in [&mut owner.uid, &mut owner.gid] {
            if *id == 0 {
                *id = NOBODY;
            }
        }
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
    fn each_operation_that_makes_an_object_for_root_makes_it_for_nobody_and_sets_no_set_id_bit() {
        let squash = KeyLimits::SQUASH_ROOT;
        let all = crate::samples::ops();
        // An operation that is added with an owner, and is not squashed, fails here.
        let makers: Vec<&Op> = all.iter().filter(|op| format!("{op:?}").contains("Owner {")).collect();
        assert_eq!(makers.len(), 6);
        let as_of = |op: &Op, mode, uid, gid| {
            let mut op = op.clone();
            *op.new_owner_mut().expect("it has an owner") = Owner { mode, uid, gid };
            op.squash_root();
            op
        };
        for op in makers {
            let ids = |uid, gid| as_of(op, 0o755, uid, gid).new_owner().map(|owner| (owner.uid, owner.gid));
            assert_eq!(ids(1, 2), Some((1, 2)));
            assert_eq!(ids(0, 2), Some((NOBODY, 2)));
            assert_eq!(ids(1, 0), Some((1, NOBODY)));
            for (mode, permitted) in
                [(0o1777, Ok(())), (0o4755, Err(Status::NotPermitted)), (0o2755, Err(Status::NotPermitted))]
            {
                assert_eq!(squash.permits(&as_of(op, mode, 1, 2)), permitted, "{mode:o} {op:?}");
                assert_eq!(KeyLimits::default().permits(&as_of(op, mode, 1, 2)), Ok(()));
            }
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
