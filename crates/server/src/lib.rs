//! The server: one thread that owns one shard of a file system.
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
pub mod ctx;
pub mod data;
pub mod inode;
pub mod keys;
pub mod locks;
pub mod ops;
pub mod placement;
pub mod rows;
pub mod shard;
