//! Where new objects go.
//!
//! A file, link or special file is *colocated*: its inode is on the server of its directory, so that one message makes or
//! finds both. A new *directory* goes to the metadata server that a keyed hash of (parent, name) chooses, so that trees
//! spread over all servers and nobody can choose names that heap them on one. *Datafiles* of a file that is unstuffed from
//! its start (its metafile's server holds no data) begin at the data server that its handle chooses.

use crate::shard::Identity;
use shoal_proto::{Dist, Handle, Name, Roles, ServerId, Template, limits};

/// The metadata server of a new directory.
pub fn directory_server(identity: &Identity, parent: Handle, name: &Name) -> ServerId {
    let servers: Vec<ServerId> = identity.map.with_roles(Roles::METADATA).collect();
    let mut hasher = blake3::Hasher::new_keyed(&identity.place_key);
    hasher.update(&parent.key_bytes());
    hasher.update(name.as_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    pick(&servers, u64::from_le_bytes(first)).unwrap_or(identity.id)
}

/// Whether this server holds data: its new files are stuffed.
pub fn holds_data(identity: &Identity) -> bool {
    identity.map.server(identity.id).is_some_and(|server| server.roles.contains(Roles::DATA))
}

/// The data servers of a file's datafiles, in order, where none is on the metafile's own server. Empty: there are none.
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
