//! For the tests: a cluster in memory, and a driver that moves a core's messages to it by hand.
//!
//! The fake cluster keeps the promises of real servers: a change is executed once for its (session, slot,
//! sequence), a data request of an older generation is refused, a read ends at the end of its stream.

mod cluster;
mod hand;
mod serve;

pub(crate) use cluster::{FakeCluster, file_attr};
pub(crate) use hand::{Hand, Lost};
pub(crate) use serve::{Fault, serve};

use shoal_proto::{CollectionId, Name, Owner, SecretKey};

/// The key of all fake clusters.
pub(crate) const KEY: SecretKey = SecretKey::new([7; 32]);
/// Their id.
pub(crate) const FS_ID: [u8; 16] = [3; 16];
/// Their collection.
pub(crate) const COLLECTION: CollectionId = CollectionId(9);
/// The owner of new files.
pub(crate) const OWNER: Owner = Owner { mode: 0o644, uid: 1000, gid: 1000 };

/// A name.
pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}
