//! The calls of the Galley parallel file system, under their own names and meaning.
//!
//! ```text
//!   file ──┬─ subfile 0 (whole on one server) ──┬─ fork `keys`   an independent array of bytes
//!          │                                    └─ fork `power`
//!          └─ subfile 1 (on another server) ───── fork `keys`
//! ```
//! The application chooses the subfile, and so the server, of each transfer. A transfer states its whole
//! shape (strided, nested, batched, a list). It is one [`Pattern`](shoal_pattern::Pattern) of the fork
//! paired with a pattern of memory, and one call of the file system. **No call has a file pointer**: each
//! names its offset.
//!
//! This crate holds names, argument orders, handles and error codes, and nothing else: a forked file is a
//! directory of the file system below ([`Vfs::mkforked`](shoal_vfs::Vfs::mkforked)), a subfile is a
//! directory in this directory, and a fork is a file in the directory of its subfile. The structured calls
//! work on any file: see [`Galley::open_linear`].
//!
//! **Decisions on points that the sources leave open.** The manual pages have `unsigned long` strides, and
//! the paper says that strides may be negative: here strides are signed and have 64 bits. The batched
//! vector is passed by reference. The part of a read that lies after the end of the fork is not moved and
//! not counted. Memory offsets count from a point in the buffer ([`Memory::at`]), so that a negative memory
//! stride stays inside it. The error codes have the values of the host's `errno`.
//!
//! Source: the manual pages and web pages of Galley. The papers of ICS'96 and of Parallel Computing 1997
//! were not at hand.

#![forbid(unsafe_code)]
#![expect(clippy::too_many_arguments, reason = "the argument lists are Galley's")]

mod all;
mod create_file;
mod errno;
mod files;
mod flush;
mod forks;
mod init;
mod memory;
mod nonblocking;
pub mod shape;
mod transfer;

pub use errno::{Errno, Result};
pub use init::{Galley, NextIds};
pub use memory::{Memory, SharedBuffer};
pub use nonblocking::OperationHandle;
pub use shape::{Batch, BatchBody, ListEntry, Shaped, Stride};

/// Bytes of a block, in the calls that transfer one (Galley's: 32 KiB).
pub const BLOCK_BYTES: u64 = 32 * 1024;
/// Open files of one [`Galley`], at most.
pub const FILES_MAX: usize = 1024;
/// Open forks of one [`Galley`], at most.
pub const FORKS_MAX: usize = 65_536;

/// An open file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId(pub u32);

/// An open fork.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ForkId(pub u32);
