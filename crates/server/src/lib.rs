//! The server. It runs in one *world* (an event loop of `shoal_env` with its clock, sockets and files), on
//! one thread at a time, and owns one shard of each file system that it serves.
//!
//! ```text
//!   connection ─▶ session ─▶ executor ─▶ handler (ops/*, a function over Ctx) ─▶ changes ─▶ store ─▶ journal
//!                               │  ▲                                                            │
//!                               │  └── loads, facts of other servers, locks: it runs again      │
//!                               └──── transactions over servers (txn) ◀── actions               ▼
//!   reply ◀─────────────────────── gate: waits until the records it depends on are durable ◀────┘
//! ```
//!
//! **Invariant: a handler is a synchronous function; its only effect is through its [`ctx::Ctx`]** (held by
//! the type: `Handler`). **Invariant: no prepare and no commit leaves before the records that it depends on
//! are durable, and no reply before they are as durable as its sync mode requires** (tests:
//! `prepares_and_finishes_are_durable_in_every_mode`,
//! `a_change_is_answered_when_it_is_durable_and_so_is_who_saw_it`). **Invariant: the slot is looked up before
//! anything else** (test: `a_retry_is_answered_from_the_kept_reply_and_not_executed`).

mod audit;
mod counters;
pub mod data;
pub mod file_locks;
mod log_limit;
mod membership;
mod meta;
mod net;
pub mod ops;
mod recovery;
mod request;
pub mod shard;
mod stepwise;
mod tasks;
pub mod txn;

pub use audit::{Audit, AuditConfig};
pub use counters::{CounterSnapshot, Counters};
pub use data::{change_counts, pools, precreated, room};
pub use membership::stores;
pub use meta::{format, inode, keys, rows};
pub use net::serve::{CollectionSetup, ServeError, ServerConfig, ServerHandle, serve};
pub use net::{refusing, silence};
pub use request::{ctx, executor, locks};
pub use shard::{Settings, Shard};
pub use txn::actions;
