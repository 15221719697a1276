//! The algebra of access patterns (being laid down), and the codec the wire is built on.

pub mod codec;
pub mod limits;
