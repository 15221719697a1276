//! Arguments and results of calls, other than names, handles and bytes.

use bytes::Bytes;
use shoal_env::Instant;
use shoal_proto::{Entry, Handle, Name, ServerId};

/// A file to be made.
#[derive(Clone, Debug)]
pub struct NewFile {
    /// Its directory.
    pub dir: Handle,
    /// Its name there.
    pub name: Name,
    /// Its contents; may be empty.
    pub data: Bytes,
}

/// A forked file that is to be made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ForkedFile {
    /// Subfiles: 1 to [`SUBFILES_MAX`](shoal_proto::limits::SUBFILES_MAX).
    pub subfiles: u16,
    /// Their servers, in turn; none: the file system's choice.
    pub servers: Vec<ServerId>,
    /// Replace the empty directory of that name.
    pub replace: bool,
}

/// How a rename treats its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RenameFlags {
    /// Fail if the target exists (`RENAME_NOREPLACE`).
    pub no_replace: bool,
    /// Swap the two entries (`RENAME_EXCHANGE`).
    pub exchange: bool,
}

/// Space of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Bytes in all.
    pub total: u64,
    /// Bytes available.
    pub available: u64,
    /// Objects held.
    pub objects: u64,
}

/// An entry of a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The entry. Its place is a position that [`Listing::seek`](crate::Listing::seek) takes: at least 3, and
    /// no other entry's. Places rise where the file system orders entries; a host may order them in any way.
    pub entry: Entry,
    /// When it, and its attributes, were requested.
    pub asked_at: Instant,
    /// It is there, and its attributes could not be had.
    pub is_unknown: bool,
}

/// A file that was opened for a kernel.
#[derive(Debug)]
pub struct Opened<F, C> {
    /// The file.
    pub file: F,
    /// Its size, where it was learned on the way.
    pub size: Option<u64>,
    /// Whether it has a name. One without is opened only for those that hold it open.
    pub has_name: bool,
    /// The facts by which [`VfsFile::keeps_pages`](crate::VfsFile::keeps_pages) decides.
    pub counts: C,
}
