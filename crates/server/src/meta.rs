//! Metadata: rows, inodes, directories, and their state in a shard's memory.
//!
//! ```text
//!   keys ─▶ rows ─▶ inode          handles, placement: where new objects go
//!                                  openers, lingering: removed objects that clients still hold open
//! ```

pub(crate) mod deferred;
pub(crate) mod dir_split;
pub mod format;
pub(crate) mod handles;
pub mod inode;
pub mod keys;
pub(crate) mod lingering;
pub(crate) mod openers;
pub(crate) mod placed;
pub(crate) mod placement;
pub mod rows;
