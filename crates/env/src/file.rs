//! Files: positioned reads and writes with explicit durability.
//!
//! Nothing is durable before a sync returns. The simulated disk enforces that: a power cut loses or tears
//! unsynced writes, file by file and sector by sector. Directory changes (create, rename, remove) are
//! durable only after [`Env::sync_dir`](crate::Env::sync_dir).

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How to open a file. Files are always opened for reading and writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Make the file if it does not exist.
    pub create: bool,
    /// Fail with `AlreadyExists` if it exists (with `create`).
    pub exclusive: bool,
    /// Bypass the page cache: offsets, lengths and buffers are multiples of [`AlignedBuf::ALIGN`]. If the
    /// file system refuses, opening falls back silently to buffered (see [`FileImpl::is_direct`]).
    pub direct: bool,
    /// Each write is durable when it returns (`O_DSYNC`).
    pub dsync: bool,
    /// Refuse a symbolic link in the file's place, anything but a regular file, a file of another user, one
    /// with a second name, and one that other users may read or write, or the group may write. (A simulated
    /// disk has none of these.)
    pub private: bool,
    /// No write of it is made by the thread that polls the world, however small: its disk may hang while
    /// those of other files work.
    pub apart: bool,
}

/// A buffer whose address is aligned for direct I/O.
pub struct AlignedBuf {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// Alignment of direct I/O: address, offset and length, in bytes.
    pub const ALIGN: usize = 4096;

    /// A zeroed buffer of `len` bytes.
    pub fn zeroed(len: usize) -> AlignedBuf {
        let bytes = vec![0; len + AlignedBuf::ALIGN];
        let start = bytes.as_ptr().align_offset(AlignedBuf::ALIGN);
        AlignedBuf { bytes, start, len }
    }

    /// Bytes it can hold without a new allocation.
    pub fn capacity(&self) -> usize {
        self.bytes.len() - AlignedBuf::ALIGN
    }

    /// Make it `len` bytes long, but at most [`AlignedBuf::capacity`]. Added bytes keep their old contents.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.capacity());
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// An open file. Operations on one file may run at the same time; order them by awaiting.
pub type File = Rc<dyn FileImpl>;

/// See [`File`]. Cancelling a returned future leaves the operation either done, not done, or (a write)
/// partly done.
#[allow(clippy::len_without_is_empty)] // No caller asks whether a file is empty.
pub trait FileImpl {
    /// Read up to `len` bytes at `offset`; shorter at the end of the file.
    fn read_at(&self, offset: u64, len: usize) -> LocalBoxFuture<'static, io::Result<Bytes>>;
    /// Write all pieces, one after the other, at `offset`.
    fn write_at(&self, offset: u64, pieces: Vec<Bytes>) -> LocalBoxFuture<'static, io::Result<()>>;
    /// Write an aligned buffer at an aligned offset (direct files); returns the buffer for the next use.
    fn write_aligned(
        &self,
        offset: u64,
        buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, io::Result<()>)>;
    /// Make data (and the length needed to read it back) durable: `fdatasync`.
    fn sync(&self) -> LocalBoxFuture<'static, io::Result<()>>;
    /// Drop the pages of it that are in memory and on the disk too.
    fn drop_pages(&self) -> LocalBoxFuture<'static, io::Result<()>>;
    /// Cut or extend (with a hole) to `len` bytes.
    fn truncate(&self, len: u64) -> LocalBoxFuture<'static, io::Result<()>>;
    /// Reserve space for `offset..offset+len` without changing contents; `extend` lets the length grow.
    fn allocate(&self, offset: u64, len: u64, extend: bool) -> LocalBoxFuture<'static, io::Result<()>>;
    /// Turn `offset..offset+len` into a hole; the length stays.
    fn punch(&self, offset: u64, len: u64) -> LocalBoxFuture<'static, io::Result<()>>;
    /// Length in bytes.
    fn len(&self) -> LocalBoxFuture<'static, io::Result<u64>>;
    /// Bytes of space it takes on the disk (`st_blocks` × 512).
    fn space(&self) -> LocalBoxFuture<'static, io::Result<u64>>;
    /// Whether it really bypasses the page cache.
    fn is_direct(&self) -> bool;
}

/// An entry of a directory of the local file system.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Name within the directory.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Length in bytes (files).
    pub len: u64,
}

/// Space of a local file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes in all.
    pub total: u64,
    /// Bytes that are free for this process.
    pub available: u64,
    /// An id of the file system: equal for all folders of one file system of one machine, different for any
    /// other file system (0: not known). It changes with a restart of the machine.
    pub disk: u64,
}

/// The file system of a world. Paths are absolute (real) or rooted in the simulated process's disk.
pub trait FileDoor {
    /// Open a file.
    fn open(&self, path: &Path, options: OpenOptions) -> LocalBoxFuture<'static, io::Result<File>>;
    /// Remove a file; missing is `NotFound`.
    fn remove(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>>;
    /// Rename a file, replacing the target.
    fn rename(&self, from: &Path, to: &Path) -> LocalBoxFuture<'static, io::Result<()>>;
    /// Make a directory and its parents; existing is no error.
    fn create_dir(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>>;
    /// Entries of a directory, sorted by name.
    fn list(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<Vec<DirEntry>>>;
    /// Make the directory's entries durable.
    fn sync_dir(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>>;
    /// Make durable all changes of every process in the file system that holds `path` (`syncfs(2)`).
    fn sync_all(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>>;
    /// Take an exclusive lock on `path` (made if missing) for the life of the process; `WouldBlock` if
    /// another holds it.
    fn lock(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>>;
    /// Space of the file system that holds `path`.
    fn space(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<DiskSpace>>;
    /// The id of the page cache's contents, which are lost together: the kernel's boot id.
    fn boot_id(&self) -> [u8; 16];
    /// A path where real memory-mapped engines can work, or none (simulated disks): the path itself when
    /// real.
    fn native_path(&self, path: &Path) -> Option<PathBuf>;
}
