//! File systems, open files and listings without type parameters and without futures.
//!
//! Each call drives the world (the event loop of the file system) until the call is done
//! ([`Runtime::block_on`]), or until the tree's time limit has passed ([`Tree::limit`]). In the second case
//! the requests of the call fail, or its future is dropped. The effect of the call may or may not take
//! place then. The thread that calls must hold the world's turn, which the call gives away while it waits.

use crate::Walk;
use crate::walk::{Reached, walk, walk_to};
use bytes::Bytes;
use shoal_env::real::Runtime;
use shoal_pattern::Pattern;
use shoal_proto::op::{Entry, XattrName};
use shoal_proto::{
    Allocation, Attr, Handle, Kind, LockOwner, LockRange, Name, Owner, Rights, SetAttr, Status,
};
use shoal_vfs::{
    Connect, Error, HeldLock, Listing as _, LockCall, NewFile, RenameFlags, Result, Space, Vfs, VfsFile as _,
};
use std::cell::Cell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Attributes of a listing's entries are not waited for.
const PATIENCE: Duration = Duration::ZERO;
/// After a call's end, for the errors of its requests.
const GRACE: Duration = Duration::from_millis(50);

/// Connect to a file system, and make it a tree of this world.
///
/// # Errors
/// Why it cannot be reached, and a remedy.
pub fn plant<C: Connect>(runtime: &Rc<Runtime>, how: C) -> Result<Rc<dyn Tree>> {
    let vfs = runtime.block_on(how.connect(runtime.env()))?;
    let driver = Driver { runtime: runtime.clone(), until: Rc::default(), vfs };
    Ok(Rc::new(Planted { driver }))
}

/// The world of a tree, and the end of the calls that drive it.
#[derive(Clone)]
struct Driver<V> {
    vfs: V,
    until: Rc<Cell<Option<Instant>>>,
    runtime: Rc<Runtime>,
}

/// The error of a call that was dropped at its end.
fn late() -> Error {
    Error::new(Status::TimedOut, "call").because("its deadline has passed")
}

impl<V: Vfs> Driver<V> {
    fn drive<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.by_its_end(call).unwrap_or_else(|| Err(late()))
    }

    /// Drive a call with a result for each of `count` items.
    fn drive_each<T>(&self, count: usize, call: impl Future<Output = Vec<Result<T>>>) -> Vec<Result<T>> {
        self.by_its_end(call).unwrap_or_else(|| (0..count).map(|_| Err(late())).collect())
    }

    /// `None`: its end has passed. A request that a server does not answer fails at the end, and names its
    /// server; a call that waits for another reason is dropped a moment later.
    fn by_its_end<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        let mut value = None;
        self.run(pin!(async { value = Some(call.await) }));
        value
    }

    /// The same for each kind of call, so that this is compiled once for a file system.
    fn run(&self, call: Pin<&mut (dyn Future<Output = ()> + '_)>) {
        let limit = self.until.get();
        self.run_until(limit, call);
        // Another thread's calls have an end of their own.
        self.until.set(limit);
    }

    fn run_until(&self, limit: Option<Instant>, call: Pin<&mut (dyn Future<Output = ()> + '_)>) {
        let Some(until) = limit else { return self.runtime.block_on(call) };
        let left = until.saturating_duration_since(Instant::now());
        let env = self.runtime.env();
        let end = env.now() + left;
        let call = self.vfs.until(end, call);
        let _ = self.runtime.block_on(async { env.deadline(end + GRACE, call).await });
    }
}

struct Planted<V> {
    driver: Driver<V>,
}

struct HeldFile<V: Vfs> {
    driver: Driver<V>,
    file: V::File,
}

struct HeldListing<V: Vfs> {
    driver: Driver<V>,
    listing: V::Listing,
}

/// Where a path led that was to be opened ([`Tree::walk_open`]).
pub enum WalkOpen {
    /// To a file, which is open; its path from the root, as in [`crate::Found`].
    File(Rc<dyn TreeFile>, Vec<u8>),
    /// To an object that is no file, or that was not opened so; or to none.
    Walk(Walk),
}

macro_rules! tree {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty;)*) => {
        /// A file system: [`Vfs`], whose documentation describes the calls and their errors.
        #[allow(clippy::missing_errors_doc, reason = "the waist documents them")]
        pub trait Tree {
            $($(#[$doc])* fn $name(&self, $($arg: $ty),*) -> Result<$ret>;)*

            /// Walk a path from the root. `prefix`: the host's path of the root.
            fn walk(&self, prefix: &[u8], path: &[u8], follow: bool) -> Result<Walk>;

            /// The same, where a file at the end is to be opened: by its name, in one request where the file
            /// system can do so.
            fn walk_open(&self, prefix: &[u8], path: &[u8], follow: bool, rights: Rights) -> Result<WalkOpen>;

            /// Make a regular file and open it; the attributes, whether it was made, and the open file.
            fn create(
                &self, dir: Handle, name: &Name, owner: Owner, exclusive: bool, rights: Rights,
            ) -> Result<(Attr, bool, Rc<dyn TreeFile>)>;

            /// Open a file.
            fn open(&self, object: Handle, rights: Rights) -> Result<Rc<dyn TreeFile>>;

            /// Make many files that must not exist, with their contents; of each its attributes, or why it
            /// was not made.
            fn create_many(&self, files: Vec<NewFile>, owner: Owner) -> Vec<Result<Attr>>;

            /// Read many files whole, each of at most so many bytes; of each its attributes and contents
            /// (none: it is larger), or why it was not read.
            fn read_many(&self, entries: &[(Handle, Name, usize)]) -> Vec<Result<(Attr, Option<Bytes>)>>;

            /// List a directory.
            fn opendir(&self, dir: Handle) -> Box<dyn TreeListing>;

            /// The end of each further call of the thread, also of the files and listings of this tree, until
            /// it gives the world up.
            fn limit(&self, until: Option<Instant>);
        }

        impl<V: Vfs> Tree for Planted<V> {
            $(fn $name(&self, $($arg: $ty),*) -> Result<$ret> {
                self.driver.drive(self.driver.vfs.$name($($arg),*))
            })*

            fn walk(&self, prefix: &[u8], path: &[u8], follow: bool) -> Result<Walk> {
                self.driver.drive(walk(&self.driver.vfs, prefix, path, follow))
            }

            fn walk_open(&self, prefix: &[u8], path: &[u8], follow: bool, rights: Rights) -> Result<WalkOpen> {
                let walked = walk_to(&self.driver.vfs, prefix, path, follow, Some(rights));
                Ok(match self.driver.drive(walked)? {
                    Reached::File(file, path) => WalkOpen::File(self.held(file), path),
                    Reached::Walk(walk) => WalkOpen::Walk(walk),
                })
            }

            fn create(
                &self, dir: Handle, name: &Name, owner: Owner, exclusive: bool, rights: Rights,
            ) -> Result<(Attr, bool, Rc<dyn TreeFile>)> {
                let made = self.driver.vfs.create(dir, name, owner, exclusive, rights);
                let (attr, is_new, file) = self.driver.drive(made)?;
                Ok((attr, is_new, self.held(file)))
            }

            fn open(&self, object: Handle, rights: Rights) -> Result<Rc<dyn TreeFile>> {
                Ok(self.held(self.driver.drive(self.driver.vfs.open(object, rights))?))
            }

            fn create_many(&self, files: Vec<NewFile>, owner: Owner) -> Vec<Result<Attr>> {
                self.driver.drive_each(files.len(), self.driver.vfs.create_many(files, owner))
            }

            fn read_many(&self, entries: &[(Handle, Name, usize)]) -> Vec<Result<(Attr, Option<Bytes>)>> {
                self.driver.drive_each(entries.len(), self.driver.vfs.read_many(entries))
            }

            fn opendir(&self, dir: Handle) -> Box<dyn TreeListing> {
                let listing = self.driver.vfs.opendir(dir, PATIENCE);
                Box::new(HeldListing { driver: self.driver.clone(), listing })
            }

            fn limit(&self, until: Option<Instant>) {
                self.driver.until.set(until);
            }
        }
    };
}

tree! {
    /// Attributes.
    fn getattr(object: Handle) -> Attr;
    /// Change attributes.
    fn setattr(object: Handle, set: SetAttr) -> Attr;
    /// Set the size.
    fn truncate(object: Handle, size: u64, kill_privileges: bool) -> Attr;
    /// The target of a symbolic link.
    fn readlink(object: Handle) -> Bytes;
    /// Make an object that is no directory and no link, without opening it.
    fn mknod(dir: Handle, name: &Name, owner: Owner, kind: Kind, device: u64) -> Attr;
    /// Make a directory.
    fn mkdir(dir: Handle, name: &Name, owner: Owner) -> Attr;
    /// Make a symbolic link.
    fn symlink(dir: Handle, name: &Name, owner: Owner, target: &[u8]) -> Attr;
    /// A further name.
    fn link(object: Handle, dir: Handle, name: &Name) -> Attr;
    /// Remove a name that leads to no directory.
    fn unlink(dir: Handle, name: &Name) -> ();
    /// Remove an empty directory.
    fn rmdir(dir: Handle, name: &Name) -> ();
    /// Move a name.
    fn rename(from: Handle, from_name: &Name, to: Handle, to_name: &Name, flags: RenameFlags) -> ();
    /// The value of an extended attribute.
    fn getxattr(object: Handle, name: &[u8]) -> Bytes;
    /// Set an extended attribute.
    fn setxattr(object: Handle, name: &[u8], value: &[u8], create: bool, replace: bool) -> ();
    /// The names of extended attributes.
    fn listxattr(object: Handle) -> Vec<XattrName>;
    /// Remove an extended attribute.
    fn removexattr(object: Handle, name: &[u8]) -> ();
    /// Make a directory durable.
    fn fsync_directory(dir: Handle) -> ();
    /// Make everything durable.
    fn sync_all() -> ();
    /// Space.
    fn statfs() -> Space;
}

impl<V: Vfs> Planted<V> {
    fn held(&self, file: V::File) -> Rc<dyn TreeFile> {
        Rc::new(HeldFile { driver: self.driver.clone(), file })
    }
}

macro_rules! tree_file {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty;)*) => {
        /// An open file: [`shoal_vfs::VfsFile`], whose documentation describes the calls and their errors.
        #[allow(clippy::missing_errors_doc, reason = "the waist documents them")]
        pub trait TreeFile {
            $($(#[$doc])* fn $name(&self, $($arg: $ty),*) -> Result<$ret>;)*

            /// The file.
            fn handle(&self) -> Handle;

            /// Whether an owner has, or asked for, locks of the file.
            fn has_locks(&self, owner: LockOwner) -> bool;

            /// Close it. While another call uses it, its data is made durable instead, and it is closed with
            /// the last use. Dropping it closes it at the next call, without a report.
            fn close(self: Rc<Self>) -> Result<()>;
        }

        impl<V: Vfs> TreeFile for HeldFile<V> {
            $(fn $name(&self, $($arg: $ty),*) -> Result<$ret> {
                self.driver.drive(self.file.$name($($arg),*))
            })*

            fn handle(&self) -> Handle {
                self.file.handle()
            }

            fn has_locks(&self, owner: LockOwner) -> bool {
                self.file.has_locks(owner)
            }

            fn close(self: Rc<Self>) -> Result<()> {
                match Rc::try_unwrap(self) {
                    Ok(held) => held.driver.drive(held.file.close()),
                    Err(used) => used.fsync(),
                }
            }
        }
    };
}

tree_file! {
    /// Read at an offset; short only at the end.
    fn read(offset: u64, len: usize) -> Bytes;
    /// Write at an offset.
    fn write(offset: u64, data: Bytes) -> ();
    /// Write at an offset, durable at the return.
    fn write_durable(offset: u64, data: Bytes) -> ();
    /// Read the bytes of a pattern, packed.
    fn read_pattern(pattern: &Pattern) -> Bytes;
    /// Write packed bytes to the places of a pattern.
    fn write_pattern(pattern: &Pattern, data: Bytes) -> ();
    /// Append; the offset.
    fn append(data: Bytes) -> u64;
    /// Make all data durable.
    fn fsync() -> ();
    /// Show what other processes published before.
    fn refresh() -> ();
    /// Reserve, zero or release a range.
    fn allocate(offset: u64, len: u64, mode: Allocation) -> ();
    /// Lock a range; `false`: another owner is in the way.
    fn lock(call: &LockCall) -> bool;
    /// Give a range back.
    fn unlock(owner: LockOwner, range: LockRange) -> ();
    /// The first lock of another owner in the way.
    fn lock_holder(call: &LockCall) -> Option<HeldLock>;
}

/// A listing: [`shoal_vfs::Listing`].
pub trait TreeListing {
    /// The next entry; `None` at the end.
    ///
    /// # Errors
    /// Those of the file system.
    fn next(&mut self) -> Result<Option<Entry>>;

    /// Continue after a place.
    fn seek(&mut self, place: u64);
}

impl<V: Vfs> TreeListing for HeldListing<V> {
    fn next(&mut self) -> Result<Option<Entry>> {
        let listed = self.driver.drive(self.listing.next(false))?;
        Ok(listed.map(|listed| listed.entry))
    }

    fn seek(&mut self, place: u64) {
        self.listing.seek(place);
    }
}
