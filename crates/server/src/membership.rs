//! Membership: the servers of the file system, and the one store from which each server may serve. A store
//! is the contents of a server's folder.
//!
//! * `maps`: a change of the cluster map reaches all servers.
//! * `stores`: each server learns the stores of the others, and refuses a server with a different store.
//! * `claims`: the position up to which a server reports its store as durable, peer by peer.
//! * `older_copy`: an operator accepts an older copy of a store.
//! * `given_up`: an operator gives up a store that is lost, and a new store replaces it.
//!
//! **Invariant: a server serves nothing if its store is not the store that the map names for it, or is an
//! older copy of that store.**

pub(crate) mod claims;
pub(crate) mod given_up;
pub(crate) mod maps;
pub(crate) mod older_copy;
pub mod stores;
