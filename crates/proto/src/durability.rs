//! How durable what a request changes is to be when its reply leaves.
//!
//! A file system has modes for that; a request may ask for another durability. It stands with the request and not with a
//! group of it, because the reply leaves as a whole. Asking for less concerns the asker alone: others still see nothing that
//! a power cut could take back, and what is prepared or committed over several servers is durable in any case.

use crate::wire::wire_choice;

wire_choice! {
    /// What a reply waits for.
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
