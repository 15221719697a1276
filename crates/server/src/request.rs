//! One request: its context, its locks, its run, and the gate of its reply.
//!
//! ```text
//!   session ─▶ executor ─▶ handler (ops/*) over ctx ─▶ changes ─▶ store ─▶ reply_gate ─▶ session
//! ```
//! **Invariant: a handler is a synchronous function; its only effect is through its [`ctx::Ctx`].**
//! **Invariant: a reply leaves when all that it depends on is durable**, as the sync modes say
//! ([`reply_gate`]).

pub mod ctx;
pub mod executor;
pub mod locks;
pub(crate) mod reply_gate;
pub(crate) mod run_loaded;
