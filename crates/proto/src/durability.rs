//! The durability that the changes of a request must have when its reply leaves.
//!
//! The sync modes of the file system give the usual durability; a request may state a different one. This
//! durability applies to the whole request, and not to a single group (operations of the request that are
//! committed together), because the reply leaves as a whole. A lower durability affects only the requester:
//! other clients still see no change that a power cut could undo, and a transaction over several servers is
//! durable when it is prepared or committed.

use crate::wire::wire_choice;

wire_choice! {
    /// The condition for a reply to leave.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
    pub enum Durability {
        /// As the modes of the file system say.
        #[default]
        Usual = 0,
        /// Metadata and data are durable.
        Durable = 1,
        /// They are in the hands of the server's kernel: a kill of the server loses nothing, a power cut may.
        Written = 2,
        /// Nothing: a kill of the server may lose it.
        Unheld = 3,
    }
}
