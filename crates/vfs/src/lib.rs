//! The interface between programs and file systems: names, files and patterns. Every interface to programs
//! uses it, and every file system implements it.
//!
//! ```text
//!  kernel ─ fuse ──┐                       ┌ Client           a ShoalFS
//!  shoal cp, bench ┼── vfs: Vfs, VfsFile ──┤ Local            any mounted file system
//!  preload, C, … ──┘  read/write(Pattern)  └ Container(over)  N logs for N writers
//! ```
//!
//! A [`Vfs`] has objects with handles, and names that lead to them; a [`VfsFile`] is an open file. An
//! interface knows these and no layout: only the file system knows where the bytes of a file lie.
//!
//! **One thread.** A file system belongs to one *world* of [`shoal_env`] (an event loop with its clock,
//! sockets and files), and its futures never leave this world. A call that waits lets other tasks run.
//!
//! **One error** ([`Error`]): a status, the object, and words with the remedy.
//!
//! Methods with a default are for features that only some file systems have: reports of changes by others,
//! pages that a kernel may keep, interrupts. A file system without them is served as if everything may change
//! at any time.

#![forbid(unsafe_code)]

mod any;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod file;
pub mod local;
mod locks;
mod many;
mod name_space;
mod path;
mod words;

pub use any::{AnyFile, AnyListing, AnyVfs};
pub use error::{Error, Result, read_len};
pub use file::VfsFile;
pub use local::{Local, LocalOptions};
pub use locks::{HeldLock, LockCall, LockKind, LockOwner, LockRange};
pub use many::{create as create_singly, read as read_singly};
pub use name_space::{Connect, Listing, OpenedOf, Vfs, rmforked_singly};
pub use path::leads_out;
pub use words::{ForkedFile, Listed, NewFile, Opened, RenameFlags, Space};
