//! Names: directories, cached and durable, and the ordered list of changes between the two.
//!
//! `refs` of an inode counts its references: open handles, cached and durable entries, and changes not yet
//! durable. An inode without references is removed, and its space is free. So a removed file keeps its space
//! until the removal is durable.

use super::disk::{DiskState, Inode, Kind};
use super::image::FileImage;
use crate::DirEntry;
use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path};

/// The root directory's inode.
pub(super) const ROOT: u64 = 1;

/// A directory's entries.
#[derive(Clone, Default)]
pub(super) struct DirImage {
    pub(super) cached: BTreeMap<String, u64>,
    pub(super) durable: BTreeMap<String, u64>,
}

/// A place in a directory.
pub(super) type Slot = (u64, String);

/// A change of names that is not durable yet.
#[derive(Clone)]
pub(super) enum Change {
    Link { at: Slot, inode: u64 },
    Unlink { at: Slot },
    Rename { from: Slot, to: Slot, inode: u64 },
}

impl Change {
    fn touches(&self, dir: u64) -> bool {
        match self {
            Change::Link { at, .. } | Change::Unlink { at } => at.0 == dir,
            Change::Rename { from, to, .. } => from.0 == dir || to.0 == dir,
        }
    }

    pub(super) fn inode(&self) -> Option<u64> {
        match self {
            Change::Link { inode, .. } | Change::Rename { inode, .. } => Some(*inode),
            Change::Unlink { .. } => None,
        }
    }
}

fn not_found(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} does not exist", path.display()))
}

fn names(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for part in path.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "`..` in a simulated path"));
            }
        }
    }
    Ok(names)
}

impl DiskState {
    fn dir(&mut self, inode: u64) -> io::Result<&mut DirImage> {
        match self.inodes.get_mut(&inode).map(|inode| &mut inode.kind) {
            Some(Kind::Dir(dir)) => Ok(dir),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn walk(&mut self, names: &[String], path: &Path) -> io::Result<u64> {
        let mut inode = ROOT;
        for name in names {
            inode = *self.dir(inode)?.cached.get(name).ok_or_else(|| not_found(path))?;
        }
        Ok(inode)
    }

    /// The inode at a path.
    pub(super) fn find(&mut self, path: &Path) -> io::Result<u64> {
        self.walk(&names(path)?, path)
    }

    /// The directory and name of a path.
    fn slot(&mut self, path: &Path) -> io::Result<Slot> {
        let mut names = names(path)?;
        let name = names.pop().ok_or(io::ErrorKind::IsADirectory)?;
        let dir = self.walk(&names, path)?;
        self.dir(dir)?;
        Ok((dir, name))
    }

    fn at(&mut self, slot: &Slot) -> io::Result<Option<u64>> {
        Ok(self.dir(slot.0)?.cached.get(&slot.1).copied())
    }

    fn is_dir(&self, inode: u64) -> bool {
        matches!(self.inodes.get(&inode).map(|inode| &inode.kind), Some(Kind::Dir(_)))
    }

    fn set_cached(&mut self, slot: &Slot, to: Option<u64>) {
        let Ok(dir) = self.dir(slot.0) else { return };
        let before = match to {
            Some(inode) => dir.cached.insert(slot.1.clone(), inode),
            None => dir.cached.remove(&slot.1),
        };
        self.count_refs(to, before);
    }

    fn set_durable(&mut self, slot: &Slot, to: Option<u64>) {
        let Ok(dir) = self.dir(slot.0) else { return };
        let before = match to {
            Some(inode) => dir.durable.insert(slot.1.clone(), inode),
            None => dir.durable.remove(&slot.1),
        };
        self.count_refs(to, before);
    }

    fn count_refs(&mut self, more: Option<u64>, less: Option<u64>) {
        if let Some(inode) = more {
            self.hold(inode);
        }
        if let Some(inode) = less {
            self.let_go(inode);
        }
    }

    fn note(&mut self, change: Change) {
        if let Some(inode) = change.inode() {
            self.hold(inode);
        }
        self.changes.push(change);
    }

    fn link_new(&mut self, at: Slot, kind: Kind) -> u64 {
        let inode = self.next_inode;
        self.next_inode += 1;
        let device = self.inodes.get(&at.0).map_or(0, |directory| directory.device);
        self.inodes.insert(inode, Inode { kind, refs: 0, device });
        self.set_cached(&at, Some(inode));
        self.note(Change::Link { at, inode });
        inode
    }

    /// The file at a path, created if requested.
    pub(super) fn open(&mut self, path: &Path, create: bool, exclusive: bool) -> io::Result<u64> {
        let slot = self.slot(path)?;
        match self.at(&slot)? {
            Some(_) if create && exclusive => {
                Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} exists", path.display())))
            }
            Some(inode) if self.is_dir(inode) => Err(io::ErrorKind::IsADirectory.into()),
            Some(inode) => Ok(inode),
            None if create => {
                self.check_room(1)?;
                Ok(self.link_new(slot, Kind::File(FileImage::default())))
            }
            None => Err(not_found(path)),
        }
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        let mut inode = ROOT;
        for name in names(path)? {
            let slot = (inode, name);
            inode = match self.at(&slot)? {
                Some(there) if self.is_dir(there) => there,
                Some(_) => return Err(io::ErrorKind::NotADirectory.into()),
                None => {
                    self.check_room(1)?;
                    self.link_new(slot, Kind::Dir(DirImage::default()))
                }
            };
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let slot = self.slot(path)?;
        let inode = self.at(&slot)?.ok_or_else(|| not_found(path))?;
        if self.is_dir(inode) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.note(Change::Unlink { at: slot.clone() });
        self.set_cached(&slot, None);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (old, new) = (self.slot(from)?, self.slot(to)?);
        let inode = self.at(&old)?.ok_or_else(|| not_found(from))?;
        let replaced = self.at(&new)?;
        if old == new || replaced == Some(inode) {
            return Ok(());
        }
        if self.is_dir(inode) && (replaced.is_some() || to.starts_with(from)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a directory is renamed to a free name outside it",
            ));
        }
        if replaced.is_some_and(|inode| self.is_dir(inode)) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        self.note(Change::Rename { from: old.clone(), to: new.clone(), inode });
        self.set_cached(&new, Some(inode));
        self.set_cached(&old, None);
        Ok(())
    }

    pub(super) fn list(&mut self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let inode = self.find(path)?;
        let entries = self.dir(inode)?.cached.clone();
        let entry = |(name, inode): (String, u64)| match self.inodes.get(&inode).map(|inode| &inode.kind) {
            Some(Kind::File(file)) => DirEntry { name, is_dir: false, len: file.cached.len },
            _ => DirEntry { name, is_dir: true, len: 0 },
        };
        Ok(entries.into_iter().map(entry).collect())
    }

    /// Make one directory's changes durable, in their order.
    pub(super) fn sync_names(&mut self, dir: u64) {
        let (now, later) =
            std::mem::take(&mut self.changes).into_iter().partition(|change| change.touches(dir));
        self.changes = later;
        let now: Vec<Change> = now;
        now.into_iter().for_each(|change| self.make_durable(change));
    }

    pub(super) fn sync_all_names(&mut self) {
        let all: Vec<Change> = std::mem::take(&mut self.changes);
        all.into_iter().for_each(|change| self.make_durable(change));
    }

    pub(super) fn make_durable(&mut self, change: Change) {
        match &change {
            Change::Link { at, inode } => self.set_durable(at, Some(*inode)),
            Change::Unlink { at } => self.set_durable(at, None),
            Change::Rename { from, to, inode } => {
                self.set_durable(to, Some(*inode));
                self.set_durable(from, None);
            }
        }
        if let Some(inode) = change.inode() {
            self.let_go(inode);
        }
    }

    /// After a power cut only durable state remains. Inodes without an entry are gone, and counts are
    /// computed again.
    pub(super) fn forget_the_unreachable(&mut self) {
        let mut refs: BTreeMap<u64, u64> = BTreeMap::from([(ROOT, 1)]);
        let mut dirs = vec![ROOT];
        while let Some(dir) = dirs.pop() {
            let Ok(image) = self.dir(dir) else { continue };
            image.cached = image.durable.clone();
            let children: Vec<u64> = image.durable.values().copied().collect();
            for inode in children {
                let count = refs.entry(inode).or_default();
                if *count == 0 && self.is_dir(inode) {
                    dirs.push(inode);
                }
                // Once from the cache, once from what is durable.
                *count += 2;
            }
        }
        self.inodes.retain(|number, inode| {
            inode.refs = refs.get(number).copied().unwrap_or(0);
            inode.refs > 0
        });
    }
}
