//! Membership: the servers of the file system, and the one store from which each server may serve. A store
//! is the contents of a server's folder.
//!
//! * `maps`: a change of the cluster map reaches all servers.
//! * `stores`: each server learns the stores of the others, and refuses a server with a different store.
//! * `claims`: the position up to which a server reports its store as durable, peer by peer.
//! * `older_copy`: an operator accepts an older copy of a store.
//! * `given_up`: an operator gives up a store that is lost, and a new store replaces it.
//!
//! **Invariant: a server serves only from the store that the map names for it, and from no copy of it that
//! another server, or the record on its own machine, shows to be older** (tests:
//! `a_store_that_another_one_replaced_is_refused_by_the_other_servers`,
//! `an_older_copy_of_a_folder_is_refused_by_the_record_and_by_the_other_servers`).

pub(crate) mod claims;
pub(crate) mod given_up;
pub(crate) mod maps;
pub(crate) mod older_copy;
pub mod stores;
