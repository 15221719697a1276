//! Lets any thread make blocking calls into a file system that runs on one thread at a time.
//!
//! A [`Vfs`](shoal_vfs::Vfs) belongs to one *world* of [`shoal_env`]: an event loop with its clock, sockets
//! and files, whose futures never leave it. A program that calls a C library has many threads, and the
//! library has none of its own. So the thread that calls takes the [`Turn`] (the right to run the world),
//! and runs the world (sockets, timers, tasks) until its own call is done; the other threads wait for the
//! turn. The crate starts no thread.
//!
//! ```text
//!   thread 1 ── enter ── take the turn ── block_on(call) ── give the turn
//!   thread 2 ── enter ── wait … (a futex, with a deadline) ───── take the turn ── block_on(call) ── …
//! ```
//!
//! - [`World`]: the turn and the state that it protects; made at the first entry; forgotten after a `fork`;
//! - [`Tree`], [`TreeFile`], [`TreeListing`]: a file system, an open file and a listing, without type
//!   parameters and without futures;
//! - [`Over`]: which file system lies over a directory of the host;
//! - [`Walk`]: a path, walked as a kernel does it, which may leave the file system by a link or by `..`.
//!
//! **The tasks of a world run only while some thread is in a call.** A server's session may therefore end
//! by its lease while a program computes; the next call begins a new session.
//!
//! **A fork.** The caller holds the turn during `fork`. The child forgets the state without dropping it: no
//! message is sent on connections that are the parent's, and the child's first call makes a state of its own.

mod over;
mod tree;
mod turn;
mod walk;
mod world;

pub use over::{OFFERED, Over, ProcessGroup, Shown, client, settings_of};
pub use tree::{Tree, TreeFile, TreeListing, WalkOpen, plant};
pub use turn::Turn;
pub use walk::{Found, Walk};
pub use world::{Busy, World};
