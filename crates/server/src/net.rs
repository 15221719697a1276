//! Connections, sessions and peers: they receive requests and send replies.
//!
//! ```text
//!   client ─▶ connection ─▶ session ─▶ request::executor        peers ─▶ other servers
//! ```
//! **Invariant: a session's slot is looked up before anything else**, so a request that came before is
//! answered by its kept reply.

pub(crate) mod connection;
pub(crate) mod connection_limit;
pub(crate) mod lease;
pub(crate) mod peers;
pub mod refusing;
pub(crate) mod revoked;
pub(crate) mod serve;
pub(crate) mod session;
pub mod silence;
