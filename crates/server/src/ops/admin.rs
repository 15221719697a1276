//! The operator's requests: the map, the state of a server, modes, repairs.
//!
//! They concern a server or the whole file system, not one file of it.

pub(crate) mod addserver;
pub(crate) mod map;
pub(crate) mod moveserver;
pub(crate) mod ping;
pub(crate) mod renew;
pub(crate) mod repair;
pub(crate) mod rows;
pub(crate) mod setmap;
pub(crate) mod setsync;
pub(crate) mod statfs;
pub(crate) mod status;
pub(crate) mod sync;
