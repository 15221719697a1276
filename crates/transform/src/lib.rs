//! Containers: N writers of one file write N logs, over any file system.
//!
//! From PLFS (Bent et al., "PLFS: A Checkpoint Filesystem for Parallel Applications", SC'09): a checkpoint
//! that many processes write into one file is slow on every parallel file system, and the same bytes in a
//! file for each process are fast. So the file becomes a directory, a **container**. Each writer appends to a
//! log of its own, whatever the offset; an index says where the bytes of the file are.
//!
//! ```text
//!   the file      0         1         2         3         4         5       three writers, strided
//!                 aaaaaaaaa bbbbbbbbb ccccccccc aaaaaaaaa bbbbbbbbb ccccccccc
//!
//!   container/    .shoal-container                     the access record: its inode has mode, owner, times
//!                 w.ID                                 a writer
//!                 d.ID.END.BYTES.INDEX.CUTS.BOOT       its dropping (an empty file), while it is closed
//!                 c.ID.N                               a cut (truncation) in that writer's index log
//!                 h.0/  data.ID  index.ID              hashed folders of logs
//! ```
//!
//! - [`record`]: the grammar of an index log: entries (bytes), cuts, ends;
//! - [`online`]: the writing half, which finds strides as they are written;
//! - [`Index`]: the reading half, a [`Placement`](shoal_pattern::Placement): the newest write wins;
//! - [`Container`]: a [`Vfs`](shoal_vfs::Vfs) over another one; [`federation`]: over several; [`group`]:
//!   processes that open a container together.
//! - [`composed`]: another layout, for many small files in one file; [`followed`]: a file system that shows
//!   each directory by its layout.
//!
//! **Publication.** An index log contains nothing false: an entry is in it before the bytes that it names are
//! appended, and a reader uses the entry only as far as the data log reaches. So bytes for which `write`
//! returned outlive their process, and a torn tail is no entry.
//!
//! **Order.** Entries carry stamps of a hybrid clock. Of two writes of one byte the newer is read.

#![forbid(unsafe_code)]

mod clock;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod compiled;
pub mod composed;
pub mod container;
pub mod federation;
pub mod followed;
pub mod group;
mod index;
mod limits;
pub mod online;
pub mod record;
mod writer_id;

pub use composed::{Composed, ComposedFile, ComposedOptions, Wishes};
pub use container::{Container, ContainerFile, ContainerOptions, ContainerSettings, IndexDesign, IndexReads};
pub use federation::{Federated, FederationOptions};
pub use followed::{Followed, FollowedFile, FollowedOptions, LaidObject};
pub use index::{Index, IndexError, LogFacts};
pub use limits::INDEX_LOG_BYTES_MAX;
pub use writer_id::WriterId;
