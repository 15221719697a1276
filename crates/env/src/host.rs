//! Users' files: the tree of a mounted file system of the host, object by object.
//!
//! A store reaches its own files through [`FileDoor`](crate::FileDoor), by path. The files here belong to
//! users: they are of any kind, have any name, owner and attribute, and other programs change them at any
//! time. So an object is reached by a *node*, or by a directory's node and a name; never by a path. A node
//! stays with its object when the object is renamed. On Linux a node is a descriptor of `O_PATH`.
//!
//! ```text
//!   root(path) ─▶ node ── lookup(node, name) ─▶ node ── open(node) ─▶ file ── read, write, append, sync
//!                   └──── list(node) ─▶ listing ── entries
//! ```
//!
//! **Calls block** until the host's file system has answered, so they are made on threads that may block
//! ([`Env::offload`](crate::Env::offload)). Several threads may make calls at once.
//!
//! **No call follows a symbolic link, or leaves a directory by `..`**; only [`HostFiles::root`] follows the
//! links of its path.
//!
//! **An error has the number that Linux gives** ([`io::Error::raw_os_error`]).

use crate::WallTime;
use crate::sim::SimDescriptor;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

/// The functions. Implemented by the worlds; reached by [`Env::host`](crate::Env::host).
pub trait HostFiles: Send + Sync {
    /// The directory of a path.
    fn root(&self, path: &Path) -> io::Result<HostNode>;

    /// The object of a name.
    fn lookup(&self, dir: &HostNode, name: &[u8]) -> io::Result<(HostNode, HostFacts)>;

    /// Facts about the object of a name: cheaper than [`HostFiles::lookup`].
    fn look(&self, dir: &HostNode, name: &[u8]) -> io::Result<HostFacts>;

    /// Facts about an object.
    fn facts(&self, node: &HostNode) -> io::Result<HostFacts>;

    /// Facts about the directory that holds a directory.
    fn parent(&self, dir: &HostNode) -> io::Result<HostFacts>;

    /// Open a regular file. The caller has seen that it is one: opening a device has effects.
    fn open(&self, node: &HostNode, access: HostAccess) -> io::Result<HostFile>;

    /// Make a regular file where there is no object, and open it.
    fn create(
        &self,
        dir: &HostNode,
        name: &[u8],
        owner: HostOwner,
        access: HostAccess,
    ) -> io::Result<(HostFile, HostFacts)>;

    /// Make a directory.
    fn mkdir(&self, dir: &HostNode, name: &[u8], owner: HostOwner) -> io::Result<(HostNode, HostFacts)>;

    /// Make a FIFO, a socket or a device. `kind`: the type bits of `st_mode`.
    fn mknod(
        &self,
        dir: &HostNode,
        name: &[u8],
        owner: HostOwner,
        kind: u32,
        device: u64,
    ) -> io::Result<(HostNode, HostFacts)>;

    /// Make a symbolic link.
    fn symlink(
        &self,
        dir: &HostNode,
        name: &[u8],
        owner: HostOwner,
        target: &[u8],
    ) -> io::Result<(HostNode, HostFacts)>;

    /// The target of a symbolic link.
    fn readlink(&self, node: &HostNode) -> io::Result<Vec<u8>>;

    /// A further name of an object.
    fn link(&self, node: &HostNode, dir: &HostNode, name: &[u8]) -> io::Result<()>;

    /// Remove a name that does not lead to a directory.
    fn unlink(&self, dir: &HostNode, name: &[u8]) -> io::Result<()>;

    /// Remove an empty directory.
    fn rmdir(&self, dir: &HostNode, name: &[u8]) -> io::Result<()>;

    /// Move a name. `flags`: those of `renameat2(2)`.
    fn rename(&self, from: (&HostNode, &[u8]), to: (&HostNode, &[u8]), flags: u32) -> io::Result<()>;

    /// Set the permission bits.
    fn set_mode(&self, node: &HostNode, mode: u32) -> io::Result<()>;

    /// Set owner and group; `None` stays.
    fn set_owner(&self, node: &HostNode, uid: Option<u32>, gid: Option<u32>) -> io::Result<()>;

    /// Set the times of the last access and the last change of data; `None` stays.
    fn set_times(&self, node: &HostNode, atime: Option<WallTime>, mtime: Option<WallTime>) -> io::Result<()>;

    /// Set the size of a file.
    fn truncate(&self, file: &HostFile, size: u64) -> io::Result<()>;

    /// Read bytes from `offset` until `into` is full; fewer only at the end of the file.
    fn read(&self, file: &HostFile, offset: u64, into: &mut [u8]) -> io::Result<usize>;

    /// The same without waiting; `None`: not all of it is in memory, or the host does not say.
    fn read_now(&self, _file: &HostFile, _offset: u64, _into: &mut [u8]) -> io::Result<Option<usize>> {
        Ok(None)
    }

    /// Write all bytes. `durable`: they are when this returns.
    fn write(&self, file: &HostFile, offset: u64, data: &[u8], durable: bool) -> io::Result<()>;

    /// Append all bytes; their offset. The host takes the end of the file and writes there in one step, also
    /// while others append. Where it takes only a part at once (a full disk), and others append before the
    /// rest, this is an error after a part was written.
    fn append(&self, file: &HostFile, data: &[u8]) -> io::Result<u64>;

    /// Reserve space, make a hole, or zero a range. `mode`: that of `fallocate(2)`.
    fn allocate(&self, file: &HostFile, mode: u32, offset: u64, len: u64) -> io::Result<()>;

    /// Make a file's data and attributes durable. An error of a lost write comes once through each file.
    fn sync(&self, file: &HostFile) -> io::Result<()>;
    /// Drop its pages that are in memory and on the disk too.
    ///
    /// # Errors
    /// As `posix_fadvise(2)`.
    fn drop_pages(&self, file: &HostFile) -> io::Result<()>;

    /// Take a file's one lock without waiting, for this open of it; whether it was free. It is given back
    /// when the last clone of the open file is dropped, so also when its process ends. Only programs that
    /// take it honour it.
    fn lock(&self, _file: &HostFile) -> io::Result<bool> {
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// Whether an object lies in a file system that only this machine uses: each of its processes sees at
    /// once what another one wrote. `false` if that is not known.
    ///
    /// # Errors
    /// Errors of the host.
    fn is_of_this_machine(&self, _node: &HostNode) -> io::Result<bool> {
        Ok(false)
    }

    /// Make a directory's entries durable.
    fn sync_dir(&self, dir: &HostNode) -> io::Result<()>;

    /// The value of an extended attribute.
    fn getxattr(&self, node: &HostNode, name: &[u8]) -> io::Result<Vec<u8>>;

    /// Set an extended attribute. `flags`: those of `setxattr(2)`.
    fn setxattr(&self, node: &HostNode, name: &[u8], value: &[u8], flags: u32) -> io::Result<()>;

    /// The names of all extended attributes.
    fn listxattr(&self, node: &HostNode) -> io::Result<Vec<Vec<u8>>>;

    /// Remove an extended attribute.
    fn removexattr(&self, node: &HostNode, name: &[u8]) -> io::Result<()>;

    /// Begin to list a directory.
    fn list(&self, dir: &HostNode) -> io::Result<HostListing>;

    /// The next entries, `.` and `..` too; none at the end.
    fn entries(&self, listing: &mut HostListing) -> io::Result<Vec<HostEntry>>;

    /// Continue after an entry's place; 0: at the start.
    fn seek(&self, listing: &mut HostListing, place: u64) -> io::Result<()>;

    /// Space of the file system that holds an object.
    fn space(&self, node: &HostNode) -> io::Result<HostSpace>;

    /// Make everything durable in the file system that holds a directory.
    fn sync_all(&self, dir: &HostNode) -> io::Result<()>;

    /// Descriptors that this process may have.
    fn descriptors_max(&self) -> u64;
}

/// An object, held: it exists until the last clone is dropped, with or without a name.
#[derive(Clone)]
pub struct HostNode(pub(crate) Descriptor);

/// An open regular file. Clones share it.
#[derive(Clone)]
pub struct HostFile(pub(crate) Descriptor);

/// A directory that is being listed.
pub struct HostListing(pub(crate) Descriptor);

impl HostFile {
    /// The file as an object.
    pub fn node(&self) -> HostNode {
        HostNode(self.0.clone())
    }
}

impl HostListing {
    /// The directory as an object.
    pub fn node(&self) -> HostNode {
        HostNode(self.0.clone())
    }
}

/// A world's own form of a node, a file or a listing.
#[derive(Clone)]
pub(crate) enum Descriptor {
    Real(Arc<RealDescriptor>),
    Sim(Arc<SimDescriptor>),
}

/// A descriptor of the kernel.
pub(crate) struct RealDescriptor {
    pub(crate) fd: OwnedFd,
    /// Held during an append: the descriptor's position is then the end of that append.
    pub(crate) appending: Mutex<()>,
    /// Whether it is on a file system in memory; known where the kernel refused a read that does not wait.
    pub(crate) in_memory: OnceLock<bool>,
}

/// The access of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostAccess {
    /// Reads.
    pub read: bool,
    /// Writes.
    pub write: bool,
}

/// Owner and permission bits of a new object, as they are to be whatever the process's mask is. Owner and
/// group are set if the process is root's; in a directory with set-group-id the group is the directory's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostOwner {
    /// Permission bits.
    pub mode: u32,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// Facts about an object, as `statx(2)` has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostFacts {
    /// The device of its file system.
    pub dev: u64,
    /// Its number there.
    pub ino: u64,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub nlink: u32,
    /// The device that it is.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes of space taken.
    pub blocks: u64,
    /// Last access.
    pub atime: WallTime,
    /// Last change of data.
    pub mtime: WallTime,
    /// Last change of data or attributes.
    pub ctime: WallTime,
    /// Birth, where the file system keeps it.
    pub btime: Option<WallTime>,
}

impl HostFacts {
    /// The type bits of the mode.
    pub const fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }

    /// Whether it is a directory.
    pub const fn is_dir(&self) -> bool {
        self.kind() == libc::S_IFDIR
    }

    /// Whether it is a regular file.
    pub const fn is_file(&self) -> bool {
        self.kind() == libc::S_IFREG
    }
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostEntry {
    /// Its name; `.` and `..` too.
    pub name: Vec<u8>,
    /// The number of its object. Of a directory on which a file system is mounted, that of the hidden one.
    pub ino: u64,
    /// The place after it. File systems differ in the places that they give; none gives 0.
    pub place: u64,
}

/// Space of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostSpace {
    /// Bytes in all.
    pub total: u64,
    /// Bytes available to users.
    pub available: u64,
    /// Objects held.
    pub objects: u64,
}
