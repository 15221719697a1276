//! The server. It runs in one *world* (an event loop of `shoal_env` with its clock, sockets and files), on
//! one thread at a time, and owns one shard of a file system.
//!
//! ```text
//!   connection ─▶ session ─▶ executor ─▶ handler (ops/*, a function over Ctx) ─▶ changes ─▶ store ─▶ journal
//!                               │  ▲                                                            │
//!                               │  └── loads, facts of other servers, locks: it runs again      │
//!                               └──── transactions over servers (txn) ◀── actions               ▼
//!   reply ◀─────────────────────── gate: waits until the records it depends on are durable ◀────┘
//! ```
//!
//! **Invariant: a handler is a synchronous function; its only effect is through its [`ctx::Ctx`].**
//! **Invariant: no message of any kind leaves before the records it depends on are durable** (as the sync
//! mode says for replies; always for prepares and commits). **Invariant: the slot is looked up before
//! anything else.**

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
