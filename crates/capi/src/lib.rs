//! The C library: a file system, its names, files and patterns, by blocking calls of any thread.
//!
//! ```text
//!   C program ── shoal_pread(file, …) ── call ── table: id ─▶ connection ── World ─▶ Session ─▶ TreeFile
//! ```
//!
//! - [`call`]: the beginning and the end of a call: errors as number and text, deadlines, panics, signals.
//! - [`table`]: the connection of each id.
//! - [`session`]: the state of a connection.
//! - [`connect`], [`names`], [`files`], [`listings`], [`patterns`], [`batches`]: the calls, declared in
//!   `include/shoal.h`.
//! - [`gfs`]: Galley's calls, declared in `include/gfs.h`.
//!
//! **Handles are ids, never pointers.** No id is given twice in a process. An id that is closed, invented,
//! or of another kind is `EBADF`. A connection has a *world* of its own: an event loop with its clock,
//! sockets and files, which one thread at a time uses. While a call waits for a server, the others go on.
//!
//! **Deadlines.** Each call has the deadline of its thread ([`connect::shoal_set_thread_timeout`]), or, if
//! the thread has none, the deadline of its connection. So no call needs a second form with a timeout. The
//! time in which a call waits for other threads counts.
//!
//! **A child of `fork`** has none of the parent's connections: their ids are `EBADF`, and the child makes its
//! own.
//!
//! Pointers: a null pointer is `EFAULT` if bytes are needed. `shoal.h` states the conditions of all others.

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
