//! Chooses the server of a new object.
//!
//! A file, link or special file is *colocated*: its inode is on the server of its directory, so that one
//! message makes or finds both the entry and the object. Each server keeps a [`Rotation`] of the metadata
//! servers. A new *directory* goes to the next server in the rotation of its parent's server; servers that
//! do not answer are left out. So even a few directories, such as one for each process of a job, are
//! spread evenly over the servers. A file begins unstuffed if stuffing is off, or if the server of its
//! metafile holds no data. The counter in its handle, modulo the number of data servers, selects the
//! server of its first *datafile*. The other datafiles are on the servers that follow. With `placement =
//! spread` a keyed hash of (directory, name) selects the server of a new file's metafile, in place of
//! PVFS's random choice. Users do not know the key, so they cannot choose names whose files all go to one
//! server.

use crate::shard::Identity;
use shoal_proto::{Dist, Handle, Name, Placement, Roles, ServerId, Template, limits};
use std::cell::RefCell;

/// In which order the metadata servers get the directories that are made in those of one server: round by
/// round, each server once a round, every round in an order of its own. So of directories made one after the
/// other no server gets more than two more than another, and no pattern in which a program makes large and
/// small ones falls together with the servers'.
#[derive(Default)]
pub struct Rotation {
    /// The rest of the round, and the map's epoch when it began.
    round: RefCell<(u32, Vec<ServerId>)>,
}

impl Rotation {
    /// The metadata server of the next new directory: none that `is_silent`, unless all are.
    pub fn next(
        &self,
        identity: &Identity,
        is_silent: impl Fn(ServerId) -> bool,
        mut random: impl FnMut() -> u64,
    ) -> ServerId {
        let mut round = self.round.borrow_mut();
        if round.0 != identity.map.epoch {
            *round = (identity.map.epoch, Vec::new());
        }
        // The rest of this round, then one more.
        for _ in 0..2 {
            if let Some(at) = round.1.iter().rposition(|server| !is_silent(*server)) {
                return round.1.remove(at);
            }
            round.1 = identity.map.with_roles(Roles::METADATA).collect();
            round.1.sort_by_cached_key(|_| random());
        }
        round.1.pop().unwrap_or(identity.id)
    }
}

/// The metadata server of a new file's metafile.
pub fn metafile_server(identity: &Identity, dir: Handle, name: &Name) -> ServerId {
    match identity.map.switches.placement {
        Placement::Colocated => identity.id,
        Placement::Spread => hashed(identity, dir, name),
    }
}

fn hashed(identity: &Identity, dir: Handle, name: &Name) -> ServerId {
    let servers: Vec<ServerId> = identity.map.with_roles(Roles::METADATA).collect();
    let mut hasher = blake3::Hasher::new_keyed(identity.place_key.as_bytes());
    hasher.update(&dir.key_bytes());
    hasher.update(name.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    pick(&servers, u64::from_le_bytes(first)).unwrap_or(identity.id)
}

/// Whether files whose metafiles are on `server` begin stuffed.
pub fn stuffs(identity: &Identity, server: ServerId) -> bool {
    let holds_data = identity.map.server(server).is_some_and(|info| info.roles.contains(Roles::DATA));
    identity.map.switches.stuffing && holds_data
}

/// The data servers of a file's datafiles, in order, where they are objects of their own. Empty: there are
/// none.
pub fn datafile_servers(identity: &Identity, file: Handle, template: &Template) -> Vec<ServerId> {
    let servers: Vec<ServerId> = identity.map.with_roles(Roles::DATA).collect();
    let width = match (template.dist, usize::from(template.width)) {
        (Dist::Basic | Dist::Fork, _) => 1,
        (_, 0) => servers.len(),
        (_, width) => width.min(servers.len()),
    };
    let turn = file.counter();
    (0..width.min(limits::WIDTH_MAX) as u64).filter_map(|step| pick(&servers, turn + step)).collect()
}

fn pick(servers: &[ServerId], number: u64) -> Option<ServerId> {
    let count = servers.len() as u64;
    (count > 0).then(|| servers[(number % count) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::{ClusterMap, SecretKey, samples};
    use std::cell::Cell;
    use std::collections::BTreeSet;
    use std::rc::Rc;

    /// Server 0 of a map whose servers have these roles.
    fn identity(epoch: u32, roles: &[Roles]) -> Identity {
        let info = &samples::map().servers[0];
        let server = |(id, &roles): (usize, &Roles)| shoal_proto::ServerInfo {
            id: ServerId(id as u16),
            roles,
            ..info.clone()
        };
        let servers: Vec<_> = roles.iter().enumerate().map(server).collect();
        let map = ClusterMap { epoch, servers: servers.into(), ..samples::map() };
        Identity::new(ServerId(0), Rc::new(map), SecretKey::new([3; 32]))
    }

    #[test]
    fn each_metadata_server_has_one_turn_a_round_and_rounds_differ_in_their_order() {
        let identity = identity(1, &[Roles::all(), Roles::DATA, Roles::all(), Roles::METADATA]);
        let (rotation, drawn) = (Rotation::default(), Cell::new(1_u64));
        let random = || {
            drawn.set(drawn.get().wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1));
            drawn.get().rotate_left(32)
        };
        let round = || [(); 3].map(|()| rotation.next(&identity, |_| false, random).0);
        let rounds: BTreeSet<[u16; 3]> = (0..100).map(|_| round()).collect();
        assert_eq!(rounds.len(), 6);
        assert!(rounds.iter().all(|round| BTreeSet::from(*round) == BTreeSet::from([0, 2, 3])));
    }

    #[test]
    fn a_silent_server_has_no_turn_unless_all_are_silent() {
        let identity = identity(1, &[Roles::all(); 3]);
        let rotation = Rotation::default();
        let next = |silent: &[u16]| rotation.next(&identity, |server| silent.contains(&server.0), || 0).0;
        assert!((0..30).all(|_| next(&[1]) != 1));
        assert!((0..30).all(|_| next(&[0, 1]) == 2));
        let all: BTreeSet<u16> = (0..3).map(|_| next(&[0, 1, 2])).collect();
        assert!(!all.is_empty());
        let after: BTreeSet<u16> = (0..6).map(|_| next(&[])).collect();
        assert_eq!(after, BTreeSet::from([0, 1, 2]), "it has its turn when it answers again");
    }

    #[test]
    fn a_server_that_is_added_has_its_turn_at_once() {
        let rotation = Rotation::default();
        rotation.next(&identity(1, &[Roles::all(); 2]), |_| false, || 0);
        let grown = identity(2, &[Roles::all(); 3]);
        let next: BTreeSet<u16> = (0..3).map(|_| rotation.next(&grown, |_| false, || 0).0).collect();
        assert_eq!(next, BTreeSet::from([0, 1, 2]));
    }
}
