//! Lets any thread make blocking calls into a file system that runs on one thread at a time.
//!
//! A [`Vfs`](shoal_vfs::Vfs) belongs to one *world* of [`shoal_env`]: an event loop with its clock, sockets
//! and files, whose futures one thread at a time uses. A program that calls a C library has many threads,
//! and the library has none of its own. So the thread that calls takes the world's state and its turn (the
//! right to use the world), and gives both away while it waits. One of the threads that wait runs the world
//! (sockets, timers, tasks) for all threads: [`Runtime::shared`](shoal_env::real::Runtime::shared).
//!
//! ```text
//!   thread 1 ── enter ── send a request ── waits, and runs the world ────────── answer ──▶ returns
//!   thread 2 ───── enter ── send a request ── waits (a futex) ── answer ──▶ returns
//! ```
//!
//! - [`World`]: the state, the lock that protects it, and the way of a call into it; the state is made at the
//!   first entry, and forgotten after a `fork`;
//! - [`Tree`], [`TreeFile`], [`TreeListing`]: a file system, an open file and a listing, without type
//!   parameters and without futures;
//! - [`Over`]: which file system lies over a directory of the host;
//! - [`Walk`]: a path, walked as a kernel does it, which may leave the file system by a link or by `..`.
//!
//! **The tasks of a world run only while some thread is in a call.** A server's session may therefore end
//! by its lease while a program computes; the next call begins a new session.
//!
//! **A fork.** The caller holds the state and the turn during `fork`. The child forgets the state without
//! dropping it: no message is sent on connections that are the parent's, and the child's first call makes a
//! state of its own.

mod over;
mod tree;
mod walk;
mod world;

pub use over::{OFFERED, Over, ProcessGroup, Shown, client, settings_of};
pub use tree::{Tree, TreeFile, TreeListing, WalkOpen, plant};
pub use walk::{Found, Walk};
pub use world::{Busy, Driven, Inside, World};
