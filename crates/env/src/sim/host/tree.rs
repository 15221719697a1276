//! The tree of users' files on a simulated machine: its inodes by number, the changes of its names, and its
//! durable state.

use crate::{HostEntry, HostFacts, HostOwner, WallTime};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// The number of the root.
pub(in crate::sim) const ROOT: u64 = 2;
/// Longest name.
const NAME_BYTES_MAX: usize = 255;
/// The unit of space.
const BLOCK: u64 = 512;
/// The device of the tree.
const DEVICE: u64 = 0x5_0001;
/// Places of `.` and `..`.
const DOTS: u64 = 2;

/// An error of Linux.
pub(super) fn fails(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

/// The contents of an object. Those of the durable state are shared until they differ.
#[derive(Clone)]
pub(super) enum Body {
    File(Arc<Vec<u8>>),
    Directory(Arc<Directory>),
    Link(Vec<u8>),
    Device(u64),
}

impl Body {
    pub(super) fn directory() -> Body {
        let (places, names) = (BTreeMap::new(), BTreeMap::new());
        Body::Directory(Arc::new(Directory { parent: ROOT, places, names, next: DOTS }))
    }
}

/// A directory: each name has a place, and each place an object.
#[derive(Clone)]
pub(super) struct Directory {
    pub(super) parent: u64,
    places: BTreeMap<Vec<u8>, u64>,
    names: BTreeMap<u64, (Vec<u8>, u64)>,
    /// The last place that was given.
    next: u64,
}

impl Directory {
    fn get(&self, name: &[u8]) -> Option<u64> {
        self.names.get(self.places.get(name)?).map(|(_, ino)| *ino)
    }

    /// Lead a name to an object: a new name gets a new place.
    fn set(&mut self, name: &[u8], ino: u64) {
        self.next += 1;
        let place = *self.places.entry(name.to_vec()).or_insert(self.next);
        self.names.insert(place, (name.to_vec(), ino));
    }

    fn take(&mut self, name: &[u8]) {
        if let Some(place) = self.places.remove(name) {
            self.names.remove(&place);
        }
    }
}

/// An object.
#[derive(Clone)]
pub(super) struct Inode {
    pub(super) facts: HostFacts,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) body: Body,
    /// How often writes of it were lost.
    pub(super) losses: u64,
    /// Descriptors.
    held: u64,
}

impl Inode {
    /// The bytes of a file.
    pub(super) fn bytes(&mut self) -> io::Result<&mut Vec<u8>> {
        match &mut self.body {
            Body::File(bytes) => Ok(Arc::make_mut(bytes)),
            Body::Directory(_) => Err(fails(libc::EISDIR)),
            Body::Link(_) => Err(fails(libc::ELOOP)),
            Body::Device(_) => Err(fails(libc::ENXIO)),
        }
    }
}

/// See the module.
pub(in crate::sim) struct Tree {
    inodes: BTreeMap<u64, Inode>,
    /// As a power cut leaves them.
    durable: BTreeMap<u64, Inode>,
    /// Power cuts so far.
    pub(super) epoch: u64,
    last: u64,
    /// Files whose lock is held.
    pub(super) locks: BTreeSet<u64>,
    /// The time of changes.
    pub(in crate::sim) now: WallTime,
}

impl Default for Tree {
    fn default() -> Tree {
        let (inodes, durable) = (BTreeMap::new(), BTreeMap::new());
        let mut tree =
            Tree { inodes, durable, epoch: 0, last: ROOT - 1, locks: BTreeSet::new(), now: WallTime(0) };
        let owner = HostOwner { mode: 0o755, uid: 0, gid: 0 };
        tree.add(owner, libc::S_IFDIR, Body::directory());
        tree.commit(|_| true);
        tree
    }
}

impl Tree {
    /// An object: each number that is asked for is of one that has a name or a descriptor.
    pub(super) fn inode(&mut self, ino: u64) -> &mut Inode {
        self.inodes.get_mut(&ino).expect("an object stays while it is held")
    }

    fn see(&self, ino: u64) -> &Inode {
        self.inodes.get(&ino).expect("an object stays while it is held")
    }

    pub(super) fn directory(&self, ino: u64) -> io::Result<&Directory> {
        match &self.see(ino).body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(fails(libc::ENOTDIR)),
        }
    }

    /// A directory that is about to be changed.
    fn changed_directory(&mut self, ino: u64) -> io::Result<&mut Directory> {
        let now = self.now;
        let inode = self.inode(ino);
        let Body::Directory(directory) = &mut inode.body else { return Err(fails(libc::ENOTDIR)) };
        (inode.facts.mtime, inode.facts.ctime) = (now, now);
        Ok(Arc::make_mut(directory))
    }

    /// An object whose attributes are about to be changed.
    pub(super) fn changed(&mut self, ino: u64) -> &mut Inode {
        let now = self.now;
        let inode = self.inode(ino);
        inode.facts.ctime = now;
        inode
    }

    /// A file whose data is about to be changed.
    pub(super) fn changed_data(&mut self, ino: u64) -> io::Result<&mut Inode> {
        let now = self.now;
        let inode = self.changed(ino);
        inode.bytes()?;
        inode.facts.mtime = now;
        Ok(inode)
    }

    pub(super) fn facts(&self, ino: u64) -> HostFacts {
        let inode = self.see(ino);
        let size = match &inode.body {
            Body::File(bytes) => bytes.len() as u64,
            Body::Link(target) => target.len() as u64,
            Body::Directory(_) => 4096,
            Body::Device(_) => 0,
        };
        let rdev = if let Body::Device(device) = &inode.body { *device } else { 0 };
        let blocks = if inode.facts.is_file() { size.div_ceil(BLOCK) } else { 0 };
        HostFacts { size, blocks, rdev, ..inode.facts }
    }

    /// Bytes and objects.
    pub(super) fn used(&self) -> (u64, u64) {
        let bytes = self.inodes.keys().map(|ino| self.facts(*ino).blocks * BLOCK).sum();
        (bytes, self.inodes.len() as u64)
    }

    fn add(&mut self, owner: HostOwner, kind: u32, body: Body) -> u64 {
        self.last += 1;
        let facts = HostFacts {
            dev: DEVICE,
            ino: self.last,
            mode: kind | owner.mode,
            uid: owner.uid,
            gid: owner.gid,
            nlink: if kind == libc::S_IFDIR { 2 } else { 1 },
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            btime: Some(self.now),
        };
        self.inodes.insert(self.last, Inode { facts, xattrs: BTreeMap::new(), body, losses: 0, held: 0 });
        self.last
    }

    pub(super) fn hold(&mut self, ino: u64) {
        self.inode(ino).held += 1;
    }

    /// A descriptor is closed. Those from before a power cut hold nothing.
    pub(super) fn release(&mut self, ino: u64, epoch: u64) {
        if epoch == self.epoch {
            self.inode(ino).held -= 1;
            self.reap(ino);
        }
    }

    fn reap(&mut self, ino: u64) {
        if self.inodes.get(&ino).is_some_and(|inode| inode.held == 0 && inode.facts.nlink == 0) {
            self.inodes.remove(&ino);
        }
    }

    /// Make all names and attributes durable, and the data of some files.
    pub(super) fn commit(&mut self, has_data: impl Fn(u64) -> bool) {
        let mut durable = self.inodes.clone();
        for (ino, inode) in durable.iter_mut().filter(|(ino, _)| !has_data(**ino)) {
            if let Body::File(bytes) = &mut inode.body {
                *bytes = match self.durable.get(ino) {
                    Some(Inode { body: Body::File(before), .. }) => before.clone(),
                    _ => Arc::default(),
                };
            }
        }
        self.durable = durable;
    }

    /// All that is not durable is lost, and no descriptor is left.
    pub(in crate::sim) fn lose_power(&mut self) {
        self.epoch += 1;
        self.locks.clear();
        self.inodes = self.durable.clone();
        self.inodes.values_mut().for_each(|inode| inode.held = 0);
        self.inodes.retain(|_, inode| inode.facts.nlink > 0);
    }

    /// Writes of every object are lost. Their bytes are still read, from memory.
    pub(in crate::sim) fn lose_writes(&mut self) {
        self.inodes.values_mut().for_each(|inode| inode.losses += 1);
    }

    pub(super) fn find(&self, dir: u64, name: &[u8]) -> io::Result<u64> {
        check(name)?;
        self.directory(dir)?.get(name).ok_or_else(|| fails(libc::ENOENT))
    }

    /// A name that is to be new, in a directory that has a name itself.
    fn check_new(&self, dir: u64, name: &[u8]) -> io::Result<()> {
        match self.find(dir, name) {
            Ok(_) => Err(fails(libc::EEXIST)),
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
            Err(gone) if self.see(dir).facts.nlink == 0 => Err(gone),
            Err(_) => Ok(()),
        }
    }

    pub(super) fn make(
        &mut self,
        dir: u64,
        name: &[u8],
        owner: HostOwner,
        kind: u32,
        mut body: Body,
    ) -> io::Result<u64> {
        self.check_new(dir, name)?;
        let (mut owner, of_dir) = (owner, self.see(dir).facts);
        if of_dir.mode & libc::S_ISGID != 0 {
            owner.gid = of_dir.gid;
            owner.mode |= if kind == libc::S_IFDIR { libc::S_ISGID } else { 0 };
        }
        if let Body::Directory(directory) = &mut body {
            Arc::make_mut(directory).parent = dir;
            self.inode(dir).facts.nlink += 1;
        }
        let made = self.add(owner, kind, body);
        self.changed_directory(dir)?.set(name, made);
        Ok(made)
    }

    pub(super) fn link(&mut self, ino: u64, dir: u64, name: &[u8]) -> io::Result<()> {
        self.check_new(dir, name)?;
        let facts = self.see(ino).facts;
        if facts.is_dir() {
            return Err(fails(libc::EPERM));
        }
        if facts.nlink == 0 {
            return Err(fails(libc::ENOENT));
        }
        self.changed(ino).facts.nlink += 1;
        self.changed_directory(dir)?.set(name, ino);
        Ok(())
    }

    pub(super) fn remove(&mut self, dir: u64, name: &[u8], is_dir: bool) -> io::Result<()> {
        let ino = self.find(dir, name)?;
        match (&self.see(ino).body, is_dir) {
            (Body::Directory(_), false) => return Err(fails(libc::EISDIR)),
            (Body::Directory(directory), true) if !directory.names.is_empty() => {
                return Err(fails(libc::ENOTEMPTY));
            }
            (Body::Directory(_), true) | (_, false) => {}
            (_, true) => return Err(fails(libc::ENOTDIR)),
        }
        self.changed_directory(dir)?.take(name);
        self.lost_name(ino, dir);
        Ok(())
    }

    /// An object lost its name in a directory; a directory is empty then.
    fn lost_name(&mut self, ino: u64, dir: u64) {
        let facts = &mut self.changed(ino).facts;
        if facts.is_dir() {
            facts.nlink = 0;
            self.inode(dir).facts.nlink -= 1;
        } else {
            facts.nlink -= 1;
        }
        self.reap(ino);
    }

    /// Whether a directory is another one, or lies in it.
    fn is_within(&self, mut dir: u64, other: u64) -> io::Result<bool> {
        while dir != other {
            if dir == ROOT {
                return Ok(false);
            }
            dir = self.directory(dir)?.parent;
        }
        Ok(true)
    }

    pub(super) fn rename(&mut self, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> io::Result<()> {
        let moved = self.find(from.0, from.1)?;
        let (no_replace, exchange) =
            (flags & libc::RENAME_NOREPLACE != 0, flags & libc::RENAME_EXCHANGE != 0);
        let target = match self.check_new(to.0, to.1) {
            Ok(()) if exchange => return Err(fails(libc::ENOENT)),
            Ok(()) => None,
            Err(exists) if exists.raw_os_error() == Some(libc::EEXIST) && !no_replace => {
                Some(self.find(to.0, to.1)?)
            }
            Err(error) => return Err(error),
        };
        let is_dir = self.see(moved).facts.is_dir();
        if is_dir && self.is_within(to.0, moved)? {
            return Err(fails(libc::EINVAL));
        }
        match target {
            Some(target) if target == moved => return Ok(()),
            Some(target) if exchange => return self.exchange(from, moved, to, target),
            Some(target) => self.replace(target, to, is_dir)?,
            None => {}
        }
        self.changed_directory(from.0)?.take(from.1);
        self.lead(to, moved, from.0)
    }

    /// Remove the target of a rename.
    fn replace(&mut self, target: u64, place: (u64, &[u8]), by_dir: bool) -> io::Result<()> {
        match (&self.see(target).body, by_dir) {
            (Body::Directory(directory), true) if !directory.names.is_empty() => {
                return Err(fails(libc::ENOTEMPTY));
            }
            (Body::Directory(_), false) => return Err(fails(libc::EISDIR)),
            (Body::Directory(_), true) | (_, false) => {}
            (_, true) => return Err(fails(libc::ENOTDIR)),
        }
        self.lost_name(target, place.0);
        Ok(())
    }

    fn exchange(&mut self, one: (u64, &[u8]), a: u64, other: (u64, &[u8]), b: u64) -> io::Result<()> {
        if self.see(b).facts.is_dir() && self.is_within(one.0, b)? {
            return Err(fails(libc::EINVAL));
        }
        self.lead(other, a, one.0)?;
        self.lead(one, b, other.0)
    }

    /// Lead a name to an object that comes from a directory.
    fn lead(&mut self, place: (u64, &[u8]), ino: u64, from: u64) -> io::Result<()> {
        self.changed_directory(place.0)?.set(place.1, ino);
        if let Body::Directory(directory) = &mut self.changed(ino).body {
            Arc::make_mut(directory).parent = place.0;
            self.inode(from).facts.nlink -= 1;
            self.inode(place.0).facts.nlink += 1;
        }
        Ok(())
    }

    /// Entries after a place.
    pub(super) fn list(&self, dir: u64, after: u64, most: usize) -> io::Result<Vec<HostEntry>> {
        let directory = self.directory(dir)?;
        if self.see(dir).facts.nlink == 0 {
            return Err(fails(libc::ENOENT));
        }
        let dots = [(1, &b"."[..], dir), (DOTS, b"..", directory.parent)];
        let dots = dots.into_iter().filter(|(place, ..)| *place > after);
        let names = directory.names.range(after.max(DOTS) + 1..);
        let names = names.map(|(place, (name, ino))| (*place, &name[..], *ino));
        let entries = dots.chain(names).take(most);
        Ok(entries.map(|(place, name, ino)| HostEntry { name: name.to_vec(), ino, place }).collect())
    }
}

fn check(name: &[u8]) -> io::Result<()> {
    match name {
        b"" | b"." | b".." => Err(fails(libc::EINVAL)),
        _ if name.contains(&b'/') || name.contains(&0) => Err(fails(libc::EINVAL)),
        _ if name.len() > NAME_BYTES_MAX => Err(fails(libc::ENAMETOOLONG)),
        _ => Ok(()),
    }
}
