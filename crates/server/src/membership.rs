//! Which servers and which of their stores make up the file system.
//!
//! ```text
//!   maps: the cluster map comes to all servers         stores: the store of each server, by identity
//!   claims: positions said to peers                    older_copy, given_up: stores that are refused or replaced
//! ```
//! **Invariant: a server with another store than the map's, or an older copy of it, serves nothing.**

pub(crate) mod claims;
pub(crate) mod given_up;
pub(crate) mod maps;
pub(crate) mod older_copy;
pub mod stores;
