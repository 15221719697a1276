//! Where new objects go.
//!
//! A file, link or special file is *colocated*: its inode is on the server of its directory, so that one message makes or
//! finds both. A new *directory* goes to the metadata server that a keyed hash of (parent, name) chooses, so that trees
//! spread over all servers and nobody can choose names that heap them on one. *Datafiles* of a file that is unstuffed from
//! its start (stuffing is off, or its metafile's server holds no data) begin at the data server that its handle chooses.
//! With `placement = spread` the metafile of a new file goes where such a hash leads too, as PVFS's random choice does.

use crate::shard::Identity;
use shoal_proto::{Dist, Handle, Name, Placement, Roles, ServerId, Template, limits};

/// The metadata server of a new directory.
pub fn directory_server(identity: &Identity, parent: Handle, name: &Name) -> ServerId {
    chosen(identity, parent, name)
}

/// The metadata server of a new file's metafile.
pub fn metafile_server(identity: &Identity, dir: Handle, name: &Name) -> ServerId {
    match identity.map.switches.placement {
        Placement::Colocated => identity.id,
        Placement::Spread => chosen(identity, dir, name),
    }
}

fn chosen(identity: &Identity, parent: Handle, name: &Name) -> ServerId {
    let servers: Vec<ServerId> = identity.map.with_roles(Roles::METADATA).collect();
    let mut hasher = blake3::Hasher::new_keyed(identity.place_key.as_bytes());
    hasher.update(&parent.key_bytes());
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

/// The data servers of a file's datafiles, in order, where they are objects of their own. Empty: there are none.
pub fn datafile_servers(identity: &Identity, file: Handle, template: &Template) -> Vec<ServerId> {
    let servers: Vec<ServerId> = identity.map.with_roles(Roles::DATA).collect();
    let width = match (template.dist, usize::from(template.width)) {
        (Dist::Basic, _) => 1,
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
