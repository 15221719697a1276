//! A file system over an object store (S3 and its like): enough for containers, and no more.
//!
//! ```text
//!   Objects     names, handles, open files       a [`Vfs`](shoal_vfs::Vfs)
//!     │           PREFIX/root                    the root's attributes, and the format's number
//!     │           PREFIX/n/DIRECTORY ID/NAME     a name: kind, id, attributes, and the bytes of a small file
//!     │           PREFIX/d/FILE ID/OFFSET        a part of a larger file; parts follow each other
//!     │           PREFIX/g/FILE ID               a file with parts whose name is being removed
//!     │           PREFIX/m/DIRECTORY ID          the newest name of a directory that was moved
//!     │           PREFIX/t/ID                    an object by which the store was tried
//!   Calls       deadlines, repeats, errors with bucket, key and remedy; counts
//!   Store       put, put if absent, put if unchanged, get a range, list, delete
//!     ├─ Memory   for tests: it can fail, delay, end a process and list late
//!     └─ S3       the crate `object_store` (feature `s3`)
//! ```
//!
//! **Each change of a name is one conditional put of one object** ([`name_space`]): it succeeds for one of
//! several processes. A move is a claim on the old name, a put of the new one, and the end of the claim; the
//! second of these decides it ([`moves`]).
//!
//! **A file is written by one process, at its end** ([`file`]). Its last bytes are in memory, and can be
//! changed there; a sync, a close and a full buffer publish them. A published byte does not change.
//!
//! **The store must list an object as soon as its put has returned**, and honour conditions of puts. S3,
//! Ceph, MinIO and SeaweedFS do. A store that ignores the conditions is refused when the file system is made.

#![forbid(unsafe_code)]

mod attributes;
mod calls;
mod directories;
mod file;
mod format;
#[doc(hidden)]
pub mod hostile;
mod listing;
pub mod memory;
mod moves;
mod name_space;
mod nodes;
mod recover;
mod root;
#[cfg(feature = "s3")]
pub mod s3;
mod store;
mod vfs;

pub use calls::Requests;
pub use file::ObjectFile;
pub use listing::ObjectListing;
pub use memory::MemoryStore;
pub use recover::{Checked, Repaired};
pub use store::{Keys, Meta, ObjectBytes, Reaches, Refusal, Reply, Store, Tag, When};
pub use vfs::{Objects, ObjectsOptions};

/// Bytes of a file that lie beside its name, at most.
pub const BESIDE_NAME_MAX: usize = 16 << 10;
/// Bytes of a part from which on it is not put again with more bytes.
pub const PART_BYTES_MIN: usize = 256 << 10;
/// Bytes of a part, and of a file in memory, beside one write.
pub const PART_BYTES_MAX: usize = 8 << 20;
/// Bytes of all open files in memory from which on a file with [`PART_BYTES_MIN`] or more publishes them.
pub const BUFFERED_BYTES_MAX: usize = 256 << 20;
/// Zeros that a write after the end, or a truncation, adds at most.
pub const GAP_BYTES_MAX: u64 = 256 << 20;
/// Parts of a file, at most. Tests have a lower limit.
const PARTS_MAX: usize = if cfg!(test) { 8 } else { 1 << 20 };
/// Keys of one page of a listing.
const PAGE_KEYS: usize = 1000;
/// Requests of one call at the same time.
const AT_ONCE: usize = 16;
