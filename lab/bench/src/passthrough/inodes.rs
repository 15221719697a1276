//! The objects that the kernel refers to: tables from its numbers to the objects.
//!
//! An inode lives in the table as long as the kernel remembers it: every answer that names it adds one to its
//! count, and `forget` subtracts. Its number is the source's own, so that programs see the numbers of the
//! source. There are two exceptions. FUSE's root is always 1, so the root's number and 1 are exchanged.
//! Objects of other file systems mounted below the source get numbers from the upper half, because two file
//! systems may use the same number.
//!
//! While an inode is in the table its descriptor keeps the object, so its number in the source cannot be used
//! again.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustix::io::{Errno, Result};

/// FUSE's number of the root.
pub(super) const ROOT: u64 = 1;
/// Numbers of objects of other file systems begin here.
const FOREIGN: u64 = 1 << 63;
/// Parts of a table, each with its own lock; a power of two.
const SHARDS: usize = 64;

type Shard<T> = HashMap<u64, Arc<T>>;

/// A map by number that many threads use at once.
pub(super) struct Table<T> {
    shards: Vec<RwLock<Shard<T>>>,
    next: AtomicU64,
}

impl<T> Table<T> {
    pub(super) fn new() -> Table<T> {
        Table { shards: (0..SHARDS).map(|_| RwLock::default()).collect(), next: AtomicU64::new(1) }
    }

    fn shard(&self, id: u64) -> &RwLock<Shard<T>> {
        &self.shards[id as usize % SHARDS]
    }

    // A thread that panicked cannot have left a map half changed: the maps are changed by single calls.
    fn read(&self, id: u64) -> RwLockReadGuard<'_, Shard<T>> {
        self.shard(id).read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, id: u64) -> RwLockWriteGuard<'_, Shard<T>> {
        self.shard(id).write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps `value` under a number that was never used before.
    pub(super) fn insert(&self, value: T) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.write(id).insert(id, Arc::new(value));
        id
    }

    /// The object of the number; `EBADF` if none.
    pub(super) fn get(&self, id: u64) -> Result<Arc<T>> {
        self.read(id).get(&id).cloned().ok_or(Errno::BADF)
    }

    pub(super) fn remove(&self, id: u64) -> Option<Arc<T>> {
        self.write(id).remove(&id)
    }
}

/// An object's place in the source: device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) dev: u64,
    pub(super) ino: u64,
}

/// An object the kernel knows.
pub(super) struct Inode {
    /// Opened with `O_PATH`.
    pub(super) fd: OwnedFd,
    key: Key,
    lookups: AtomicU64,
}

/// All objects the kernel knows.
pub(super) struct Inodes {
    table: Table<Inode>,
    root: Key,
    foreign: Mutex<HashMap<Key, u64>>,
}

impl Inodes {
    /// With nothing but the root, which is never forgotten.
    pub(super) fn new(root: OwnedFd, key: Key) -> Inodes {
        let table = Table::new();
        let inode = Inode { fd: root, key, lookups: AtomicU64::new(1) };
        table.write(ROOT).insert(ROOT, Arc::new(inode));
        Inodes { table, root: key, foreign: Mutex::default() }
    }

    /// The number an object has for the kernel.
    pub(super) fn id(&self, key: Key) -> u64 {
        if key.dev == self.root.dev && key.ino < FOREIGN {
            return match key.ino {
                ino if ino == self.root.ino => ROOT,
                ROOT => self.root.ino,
                ino => ino,
            };
        }
        let mut foreign = self.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        *foreign.entry(key).or_insert_with(|| FOREIGN | self.table.next.fetch_add(1, Ordering::Relaxed))
    }

    /// The number for an entry of a listing, which names no device and counts nothing.
    pub(super) fn listed(&self, ino: u64) -> u64 {
        self.id(Key { dev: self.root.dev, ino: ino & !FOREIGN })
    }

    /// The object of a number; `ESTALE` if the kernel should not know it.
    pub(super) fn get(&self, id: u64) -> Result<Arc<Inode>> {
        self.table.get(id).map_err(|_| Errno::STALE)
    }

    /// Counts one more answer that names the object, if it is in the table; its number.
    pub(super) fn seen(&self, key: Key) -> Option<u64> {
        let id = self.id(key);
        // Under the lock, so that a forget cannot remove an entry that was just counted.
        let shard = self.table.read(id);
        shard.get(&id)?.lookups.fetch_add(1, Ordering::Relaxed);
        Some(id)
    }

    /// Counts one answer that names an object, which enters the table with this descriptor if it is not in
    /// it.
    pub(super) fn enter(&self, key: Key, fd: OwnedFd) -> u64 {
        let id = self.id(key);
        let mut shard = self.table.write(id);
        let inode =
            shard.entry(id).or_insert_with(|| Arc::new(Inode { fd, key, lookups: AtomicU64::new(0) }));
        inode.lookups.fetch_add(1, Ordering::Relaxed);
        id
    }

    /// Takes away `count` answers; with the last one the object leaves the table.
    pub(super) fn forget(&self, id: u64, count: u64) {
        if id == ROOT {
            return;
        }
        let mut shard = self.table.write(id);
        let Some(inode) = shard.get(&id) else { return };
        let before = inode.lookups.load(Ordering::Relaxed);
        inode.lookups.store(before.saturating_sub(count), Ordering::Relaxed);
        if before > count {
            return;
        }
        let key = inode.key;
        shard.remove(&id);
        if id >= FOREIGN {
            self.foreign.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.table.shards.iter().map(|shard| shard.read().map_or(0, |shard| shard.len())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fd() -> OwnedFd {
        std::fs::File::open("/").expect("the root can be opened").into()
    }

    fn inodes() -> Inodes {
        Inodes::new(fd(), Key { dev: 7, ino: 500 })
    }

    #[test]
    fn an_object_stays_until_every_answer_that_named_it_is_forgotten() {
        let inodes = inodes();
        let key = Key { dev: 7, ino: 12 };
        assert_eq!(inodes.seen(key), None);
        assert_eq!(inodes.enter(key, fd()), 12);
        assert_eq!(inodes.seen(key), Some(12));
        assert_eq!(inodes.enter(key, fd()), 12);
        inodes.forget(12, 2);
        assert!(inodes.get(12).is_ok());
        inodes.forget(12, 1);
        assert_eq!(inodes.get(12).err(), Some(Errno::STALE));
        assert_eq!(inodes.len(), 1, "only the root is left");
    }

    #[test]
    fn the_root_is_one_and_changes_places_with_the_object_that_was() {
        let inodes = inodes();
        assert_eq!(inodes.id(Key { dev: 7, ino: 500 }), 1);
        assert_eq!(inodes.id(Key { dev: 7, ino: 1 }), 500);
        inodes.forget(1, 1000);
        assert!(inodes.get(1).is_ok(), "the root is never forgotten");
    }

    #[test]
    fn objects_of_other_devices_get_numbers_that_cannot_collide() {
        let inodes = inodes();
        let key = Key { dev: 8, ino: 12 };
        let id = inodes.enter(key, fd());
        assert!(id >= FOREIGN);
        assert_eq!(inodes.seen(key), Some(id));
        inodes.forget(id, 2);
        assert_eq!(inodes.seen(key), None);
    }
}
