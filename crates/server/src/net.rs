//! Connections, sessions and peers: they receive requests and send replies.
//!
//! ```text
//!   client ─▶ connection ─▶ session ─▶ request::executor        peers ─▶ other servers
//! ```
//! **Invariant: a session's slot is looked up before anything else**, so the retry of a change is answered by
//! the kept reply (tests: `a_retry_is_answered_from_the_kept_reply_and_not_executed`,
//! `a_retry_of_what_is_under_way_joins_it`).

pub(crate) mod connection;
pub(crate) mod connection_limit;
pub(crate) mod lease;
pub(crate) mod peers;
pub mod refusing;
pub(crate) mod revoked;
pub(crate) mod serve;
pub(crate) mod session;
pub mod silence;
