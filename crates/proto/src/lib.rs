//! What servers and clients say to each other. No I/O.

pub mod ids;
pub use ids::{CollectionId, Generation, Handle, ServerId, SessionId, Slot, TxId};
pub use shoal_pattern::codec;
