//! The server: one world, on one thread at a time, that owns one shard of a file system.
//!
//! ```text
//!   connection ─▶ session ─▶ executor ─▶ handler (ops/*, a plain function over Ctx) ─▶ changes ─▶ store ─▶ journal
//!                               │  ▲                                                                  │
//!                               │  └── loads, facts of other servers, locks: the handler runs again   │
//!                               └──── transactions over servers (tx) ◀── actions                      ▼
//!   reply ◀──────────────────────────────────────── gate: not before what it depends on is durable ◀──┘
//! ```
//!
//! **Invariant: a handler is a synchronous function; its only effect is through its [`ctx::Ctx`].**
//! **Invariant: no message of any kind leaves before the records it depends on are durable** (as the sync mode says for
//! replies; always for prepares and commits).
//! **Invariant: the slot is looked up before anything else.**

pub mod actions;
pub mod batches;
pub mod change_counts;
mod claims;
mod connection;
mod counters;
pub mod ctx;
pub mod data;
mod deferred;
pub mod executor;
pub mod format;
mod gate;
mod given_up;
mod handles;
pub mod inode;
pub mod keys;
mod lease;
mod lingering;
pub mod locks;
mod maps;
mod older;
mod openers;
pub mod ops;
mod peers;
mod placement;
mod places;
pub mod pools;
mod reaper;
mod recovery;
pub mod refusing;
pub mod room;
pub mod rows;
mod seldom;
mod serve;
mod session;
pub mod shard;
pub mod silence;
pub mod splits;
pub mod stores;
mod tasks;
pub mod tx;
mod unfinished;

pub use counters::{CounterSnapshot, Counters};
pub use serve::{CollectionSetup, ServeError, ServerConfig, ServerHandle, serve};
pub use shard::{Settings, Shard};
