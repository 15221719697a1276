//! Users' files of a simulated machine: a tree in memory, with Linux's semantics and errors.
//!
//! Each machine has one tree. Every directory that is requested from [`HostFiles::root`] exists, and is empty
//! at first. A call takes no time, and fails only as Linux would for root: permissions are not checked.
//!
//! **A power cut loses everything that was not synced**, as a journalling file system may: a sync of any
//! object makes all earlier changes of names and attributes durable, but the data of the synced file only. So
//! after a power cut a renamed file may lack its bytes. A crash loses nothing. Where a test says so
//! ([`World::lose_host_writes`](super::World::lose_host_writes)) the next sync through each descriptor that
//! is open reports a lost write, once, as on Linux.
//!
//! An object exists while it has a name or a descriptor. Inode numbers are not used again. An entry keeps its
//! place in its directory, and places rise in the order in which entries are made.

mod tree;

pub(super) use tree::Tree;

use crate::host::Descriptor;
use crate::{
    HostAccess, HostEntry, HostFacts, HostFile, HostFiles, HostListing, HostNode, HostOwner, HostSpace,
    WallTime,
};
use std::io;
use std::path::{Component, Path};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tree::{Body, Inode, ROOT, fails};

/// Entries of one batch.
const BATCH: usize = 100;
/// Most of a target.
const TARGET_BYTES_MAX: usize = 4095;
/// Most of a value of an extended attribute.
const XATTR_BYTES_MAX: usize = 64 * 1024;
/// The largest file: it is in this process's memory.
const FILE_BYTES_MAX: u64 = 1 << 32;
/// Bytes of the simulated file system.
const SPACE: u64 = 1 << 40;
/// Descriptors of a process.
const DESCRIPTORS: u64 = 1024;
/// `fallocate(2)`'s flags.
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;

/// See the module.
pub(super) struct SimHost {
    pub(super) tree: Arc<Mutex<Tree>>,
    /// The world's time.
    pub(super) ticks: Arc<AtomicU64>,
    /// The machine's wall clock when the world began.
    pub(super) began: WallTime,
}

/// A node, file or listing of a simulated machine.
pub(crate) struct SimDescriptor {
    tree: Arc<Mutex<Tree>>,
    ino: u64,
    access: HostAccess,
    /// The place of a listing.
    place: AtomicU64,
    /// Losses of its file that were reported through it.
    reported: AtomicU64,
    /// Of the tree, when it was opened.
    epoch: u64,
    /// It holds the lock of its file.
    locked: AtomicBool,
}

impl Drop for SimDescriptor {
    fn drop(&mut self) {
        let mut tree = lock(&self.tree);
        if self.locked.load(Relaxed) && tree.epoch == self.epoch {
            tree.locks.remove(&self.ino);
        }
        tree.release(self.ino, self.epoch);
    }
}

/// No call panics within, so a poisoned tree is a sound one.
fn lock(tree: &Mutex<Tree>) -> MutexGuard<'_, Tree> {
    tree.lock().unwrap_or_else(PoisonError::into_inner)
}

fn sim(descriptor: &Descriptor) -> io::Result<&SimDescriptor> {
    match descriptor {
        Descriptor::Sim(sim) => Ok(sim),
        Descriptor::Real(_) => Err(fails(libc::EBADF)),
    }
}

fn ino(node: &HostNode) -> io::Result<u64> {
    Ok(sim(&node.0)?.ino)
}

impl SimHost {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        let mut tree = lock(&self.tree);
        let passed = i64::try_from(self.ticks.load(Relaxed)).unwrap_or(i64::MAX);
        tree.now = WallTime(self.began.0.saturating_add(passed));
        tree
    }

    fn descriptor(&self, tree: &mut Tree, ino: u64, access: HostAccess) -> Descriptor {
        tree.hold(ino);
        let (reported, epoch) = (AtomicU64::new(tree.inode(ino).losses), tree.epoch);
        let (tree, place) = (self.tree.clone(), AtomicU64::new(0));
        Descriptor::Sim(Arc::new(SimDescriptor {
            tree,
            ino,
            access,
            place,
            reported,
            epoch,
            locked: AtomicBool::new(false),
        }))
    }

    fn node(&self, tree: &mut Tree, ino: u64) -> (HostNode, HostFacts) {
        let node = HostNode(self.descriptor(tree, ino, HostAccess::default()));
        let facts = tree.facts(ino);
        (node, facts)
    }

    fn make(
        &self,
        dir: &HostNode,
        name: &[u8],
        owner: HostOwner,
        kind: u32,
        body: Body,
    ) -> io::Result<(HostNode, HostFacts)> {
        let mut tree = self.tree();
        let made = tree.make(ino(dir)?, name, owner, kind, body)?;
        Ok(self.node(&mut tree, made))
    }

    /// A file that is open for writing.
    fn writer<'a>(&self, tree: &'a mut Tree, file: &HostFile) -> io::Result<&'a mut Inode> {
        let open = sim(&file.0)?;
        if !open.access.write {
            return Err(fails(libc::EBADF));
        }
        tree.changed_data(open.ino)
    }
}

/// A file with at least so many bytes.
fn grown(inode: &mut Inode, len: u64) -> io::Result<&mut Vec<u8>> {
    if len > FILE_BYTES_MAX {
        return Err(fails(if len > i64::MAX as u64 { libc::EFBIG } else { libc::ENOSPC }));
    }
    let bytes = inode.bytes()?;
    bytes.resize(bytes.len().max(len as usize), 0);
    Ok(bytes)
}

fn put(inode: &mut Inode, offset: u64, data: &[u8]) -> io::Result<()> {
    if !data.is_empty() {
        let end = offset.saturating_add(data.len() as u64);
        grown(inode, end)?[offset as usize..end as usize].copy_from_slice(data);
    }
    Ok(())
}

impl HostFiles for SimHost {
    fn root(&self, path: &Path) -> io::Result<HostNode> {
        use std::os::unix::ffi::OsStrExt as _;
        let mut tree = self.tree();
        let mut at = ROOT;
        for part in path.components() {
            let Component::Normal(name) = part else { continue };
            at = match tree.find(at, name.as_bytes()) {
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                    let owner = HostOwner { mode: 0o755, uid: 0, gid: 0 };
                    let made = tree.make(at, name.as_bytes(), owner, libc::S_IFDIR, Body::directory())?;
                    tree.commit(|_| false);
                    made
                }
                found => found?,
            };
        }
        tree.directory(at)?;
        Ok(self.node(&mut tree, at).0)
    }

    fn lookup(&self, dir: &HostNode, name: &[u8]) -> io::Result<(HostNode, HostFacts)> {
        let mut tree = self.tree();
        let found = tree.find(ino(dir)?, name)?;
        Ok(self.node(&mut tree, found))
    }

    fn look(&self, dir: &HostNode, name: &[u8]) -> io::Result<HostFacts> {
        let tree = self.tree();
        let found = tree.find(ino(dir)?, name)?;
        Ok(tree.facts(found))
    }

    fn facts(&self, node: &HostNode) -> io::Result<HostFacts> {
        Ok(self.tree().facts(ino(node)?))
    }

    fn parent(&self, dir: &HostNode) -> io::Result<HostFacts> {
        let tree = self.tree();
        let parent = tree.directory(ino(dir)?)?.parent;
        Ok(tree.facts(parent))
    }

    fn open(&self, node: &HostNode, access: HostAccess) -> io::Result<HostFile> {
        let (mut tree, ino) = (self.tree(), ino(node)?);
        tree.inode(ino).bytes()?;
        Ok(HostFile(self.descriptor(&mut tree, ino, access)))
    }

    fn create(
        &self,
        dir: &HostNode,
        name: &[u8],
        owner: HostOwner,
        access: HostAccess,
    ) -> io::Result<(HostFile, HostFacts)> {
        let mut tree = self.tree();
        let made = tree.make(ino(dir)?, name, owner, libc::S_IFREG, Body::File(Arc::default()))?;
        let file = HostFile(self.descriptor(&mut tree, made, access));
        let facts = tree.facts(made);
        Ok((file, facts))
    }

    fn mkdir(&self, dir: &HostNode, name: &[u8], owner: HostOwner) -> io::Result<(HostNode, HostFacts)> {
        self.make(dir, name, owner, libc::S_IFDIR, Body::directory())
    }

    fn mknod(
        &self,
        dir: &HostNode,
        name: &[u8],
        owner: HostOwner,
        kind: u32,
        device: u64,
    ) -> io::Result<(HostNode, HostFacts)> {
        self.make(dir, name, owner, kind, Body::Device(device))
    }

    fn symlink(
        &self,
        dir: &HostNode,
        name: &[u8],
        owner: HostOwner,
        target: &[u8],
    ) -> io::Result<(HostNode, HostFacts)> {
        match target.len() {
            0 => return Err(fails(libc::ENOENT)),
            1..=TARGET_BYTES_MAX => {}
            _ => return Err(fails(libc::ENAMETOOLONG)),
        }
        let owner = HostOwner { mode: 0o777, ..owner };
        self.make(dir, name, owner, libc::S_IFLNK, Body::Link(target.to_vec()))
    }

    fn readlink(&self, node: &HostNode) -> io::Result<Vec<u8>> {
        match &self.tree().inode(ino(node)?).body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(fails(libc::EINVAL)),
        }
    }

    fn link(&self, node: &HostNode, dir: &HostNode, name: &[u8]) -> io::Result<()> {
        self.tree().link(ino(node)?, ino(dir)?, name)
    }

    fn unlink(&self, dir: &HostNode, name: &[u8]) -> io::Result<()> {
        self.tree().remove(ino(dir)?, name, false)
    }

    fn rmdir(&self, dir: &HostNode, name: &[u8]) -> io::Result<()> {
        self.tree().remove(ino(dir)?, name, true)
    }

    fn rename(&self, from: (&HostNode, &[u8]), to: (&HostNode, &[u8]), flags: u32) -> io::Result<()> {
        self.tree().rename((ino(from.0)?, from.1), (ino(to.0)?, to.1), flags)
    }

    fn set_mode(&self, node: &HostNode, mode: u32) -> io::Result<()> {
        let mut tree = self.tree();
        let inode = tree.changed(ino(node)?);
        if inode.facts.kind() == libc::S_IFLNK {
            return Err(fails(libc::EOPNOTSUPP));
        }
        inode.facts.mode = inode.facts.kind() | (mode & !libc::S_IFMT);
        Ok(())
    }

    fn set_owner(&self, node: &HostNode, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let mut tree = self.tree();
        let facts = &mut tree.changed(ino(node)?).facts;
        (facts.uid, facts.gid) = (uid.unwrap_or(facts.uid), gid.unwrap_or(facts.gid));
        if facts.is_file() {
            let group_runs = facts.mode & libc::S_IXGRP != 0;
            facts.mode &= !(libc::S_ISUID | if group_runs { libc::S_ISGID } else { 0 });
        }
        Ok(())
    }

    fn set_times(&self, node: &HostNode, atime: Option<WallTime>, mtime: Option<WallTime>) -> io::Result<()> {
        let mut tree = self.tree();
        let facts = &mut tree.changed(ino(node)?).facts;
        (facts.atime, facts.mtime) = (atime.unwrap_or(facts.atime), mtime.unwrap_or(facts.mtime));
        Ok(())
    }

    fn truncate(&self, file: &HostFile, size: u64) -> io::Result<()> {
        let mut tree = self.tree();
        let inode = self.writer(&mut tree, file)?;
        grown(inode, size)?.truncate(size as usize);
        Ok(())
    }

    fn read(&self, file: &HostFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let open = sim(&file.0)?;
        if !open.access.read {
            return Err(fails(libc::EBADF));
        }
        let mut tree = self.tree();
        let bytes = tree.inode(open.ino).bytes()?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let len = into.len().min(bytes.len() - from);
        into[..len].copy_from_slice(&bytes[from..from + len]);
        Ok(len)
    }

    fn write(&self, file: &HostFile, offset: u64, data: &[u8], durable: bool) -> io::Result<()> {
        let mut tree = self.tree();
        put(self.writer(&mut tree, file)?, offset, data)?;
        drop(tree);
        if durable { self.sync(file) } else { Ok(()) }
    }

    fn append(&self, file: &HostFile, data: &[u8]) -> io::Result<u64> {
        let mut tree = self.tree();
        let inode = self.writer(&mut tree, file)?;
        let end = inode.bytes()?.len() as u64;
        put(inode, end, data)?;
        Ok(end)
    }

    fn allocate(&self, file: &HostFile, mode: u32, offset: u64, len: u64) -> io::Result<()> {
        let mut tree = self.tree();
        let inode = self.writer(&mut tree, file)?;
        let end = offset.saturating_add(len);
        if len == 0 {
            return Err(fails(libc::EINVAL));
        }
        if mode & KEEP_SIZE == 0 {
            grown(inode, end)?;
        }
        if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
            let bytes = inode.bytes()?;
            let size = bytes.len() as u64;
            bytes[offset.min(size) as usize..end.min(size) as usize].fill(0);
        }
        Ok(())
    }

    fn sync(&self, file: &HostFile) -> io::Result<()> {
        let (open, mut tree) = (sim(&file.0)?, self.tree());
        tree.commit(|ino| ino == open.ino);
        let losses = tree.inode(open.ino).losses;
        match open.reported.swap(losses, Relaxed) == losses {
            true => Ok(()),
            false => Err(fails(libc::EIO)),
        }
    }

    fn lock(&self, file: &HostFile) -> io::Result<bool> {
        let (open, mut tree) = (sim(&file.0)?, self.tree());
        let is_held = open.locked.load(Relaxed) && open.epoch == tree.epoch;
        let is_new = is_held || tree.locks.insert(open.ino);
        open.locked.store(is_new, Relaxed);
        Ok(is_new)
    }

    fn is_of_this_machine(&self, _node: &HostNode) -> io::Result<bool> {
        Ok(true)
    }

    fn drop_pages(&self, _file: &HostFile) -> io::Result<()> {
        // Its files are always in memory.
        Ok(())
    }

    fn sync_dir(&self, dir: &HostNode) -> io::Result<()> {
        let mut tree = self.tree();
        tree.directory(ino(dir)?)?;
        tree.commit(|_| false);
        Ok(())
    }

    fn getxattr(&self, node: &HostNode, name: &[u8]) -> io::Result<Vec<u8>> {
        let mut tree = self.tree();
        tree.inode(ino(node)?).xattrs.get(name).cloned().ok_or_else(|| fails(libc::ENODATA))
    }

    fn setxattr(&self, node: &HostNode, name: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
        let mut tree = self.tree();
        let inode = tree.inode(ino(node)?);
        let is_there = inode.xattrs.contains_key(name);
        let has_users = inode.facts.is_file() || inode.facts.is_dir();
        let refusal = match flags {
            1 if is_there => Some(libc::EEXIST),
            2 if !is_there => Some(libc::ENODATA),
            _ if name.starts_with(b"user.") && !has_users => Some(libc::EPERM),
            _ if value.len() > XATTR_BYTES_MAX => Some(libc::E2BIG),
            _ => None,
        };
        match refusal {
            Some(errno) => Err(fails(errno)),
            None => {
                tree.changed(ino(node)?).xattrs.insert(name.to_vec(), value.to_vec());
                Ok(())
            }
        }
    }

    fn listxattr(&self, node: &HostNode) -> io::Result<Vec<Vec<u8>>> {
        Ok(self.tree().inode(ino(node)?).xattrs.keys().cloned().collect())
    }

    fn removexattr(&self, node: &HostNode, name: &[u8]) -> io::Result<()> {
        let mut tree = self.tree();
        let removed = tree.changed(ino(node)?).xattrs.remove(name);
        removed.map(drop).ok_or_else(|| fails(libc::ENODATA))
    }

    fn list(&self, dir: &HostNode) -> io::Result<HostListing> {
        let (mut tree, dir) = (self.tree(), ino(dir)?);
        tree.directory(dir)?;
        let access = HostAccess { read: true, write: false };
        Ok(HostListing(self.descriptor(&mut tree, dir, access)))
    }

    fn entries(&self, listing: &mut HostListing) -> io::Result<Vec<HostEntry>> {
        let open = sim(&listing.0)?;
        let entries = self.tree().list(open.ino, open.place.load(Relaxed), BATCH)?;
        if let Some(last) = entries.last() {
            open.place.store(last.place, Relaxed);
        }
        Ok(entries)
    }

    fn seek(&self, listing: &mut HostListing, place: u64) -> io::Result<()> {
        sim(&listing.0)?.place.store(place, Relaxed);
        Ok(())
    }

    fn space(&self, _node: &HostNode) -> io::Result<HostSpace> {
        let (used, objects) = self.tree().used();
        Ok(HostSpace { total: SPACE, available: SPACE.saturating_sub(used), objects })
    }

    fn sync_all(&self, dir: &HostNode) -> io::Result<()> {
        let mut tree = self.tree();
        tree.directory(ino(dir)?)?;
        tree.commit(|_| true);
        Ok(())
    }

    fn descriptors_max(&self) -> u64 {
        DESCRIPTORS
    }
}
