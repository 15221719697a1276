//! One request: its context, its locks, its run, and the gate of its reply.
//!
//! ```text
//!   session ─▶ executor ─▶ handler (ops/*) over ctx ─▶ changes ─▶ store ─▶ reply_gate ─▶ session
//! ```
//! **Invariant: a handler is a synchronous function; its only effect is through its [`ctx::Ctx`]** (held by
//! the type: `Handler`). **Invariant: no reply leaves before the records that it depends on are as durable as
//! its sync mode requires** ([`reply_gate`]; tests:
//! `a_change_is_answered_when_it_is_durable_and_so_is_who_saw_it`,
//! `a_small_write_is_answered_when_written_or_durable_as_the_data_mode_says`).

pub mod ctx;
pub mod executor;
pub mod locks;
pub(crate) mod reply_gate;
pub(crate) mod run_loaded;
