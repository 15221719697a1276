//! The C library: a file system, its names, files and patterns, by blocking calls of any thread.
//!
//! ```text
//!   C program ── shoal_pread(file, …) ── call ── table: id ─▶ connection ── World ─▶ Session ─▶ TreeFile
//! ```
//!
//! - [`call`]: in and out of a call: errors as number and words, deadlines, panics, signals;
//! - [`table`]: which id is which connection's; [`session`]: the state of a connection;
//! - [`connect`], [`names`], [`files`], [`listings`], [`patterns`], [`batches`]: the calls, declared in
//!   `include/shoal.h`;
//! - [`gfs`]: Galley's calls, declared in `include/gfs.h`, in a world of their own.
//!
//! **Handles are ids, never pointers.** An id is given once in a process. A closed or invented one is
//! `EBADF`, and one of another kind is too. A connection has a world of its own: its calls take turns, and
//! those of different connections do not wait for each other.
//!
//! **Deadlines.** Each call has one: that of its thread ([`connect::shoal_set_thread_timeout`]), otherwise
//! that of its connection. So no call exists in two forms. The wait for other threads counts.
//!
//! **A child of `fork`** has none of the parent's connections: `EBADF`, and it connects by itself.
//!
//! Pointers: null is `EFAULT` where bytes are needed. Others have the conditions that `shoal.h` states.

#[cfg(not(panic = "unwind"))]
compile_error!("a panic must end in the call that had it: build with panic = \"unwind\"");

pub mod batches;
mod call;
pub mod connect;
pub mod files;
pub mod gfs;
pub mod listings;
pub mod names;
pub mod patterns;
mod session;
mod table;
mod version;
