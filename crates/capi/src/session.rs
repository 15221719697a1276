//! The state of a connection: the file system, its open files and listings.
//!
//! The fields are dropped in this order: files and listings before the tree, the tree before its runtime.

use crate::call::{Res, failure};
use crate::table;
use shoal_env::real::Runtime;
use shoal_proto::{Attr, Handle, Name, Owner};
use shoal_world::{Found, Over, ProcessGroup, Tree, TreeFile, TreeListing, Walk};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

/// See the module.
pub struct Session {
    files: BTreeMap<u64, Box<dyn TreeFile>>,
    listings: BTreeMap<u64, Box<dyn TreeListing>>,
    tree: Option<Box<dyn Tree>>,
    runtime: Rc<Runtime>,
}

fn closed() -> crate::call::Failure {
    failure(libc::EBADF, "it was closed meanwhile")
}

/// A new object's owner and mode: the process's.
pub fn owner(mode: u32) -> Owner {
    // SAFETY: the calls have no conditions.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    Owner { mode: mode & 0o7777, uid, gid }
}

impl Session {
    /// A session without a file system.
    pub fn new() -> Session {
        let runtime = Rc::new(Runtime::new("libshoal"));
        Session { files: BTreeMap::new(), listings: BTreeMap::new(), tree: None, runtime }
    }

    /// Reach the file system.
    pub fn plant(&mut self, over: &Over) -> Res<()> {
        self.tree = Some(over.plant(&self.runtime, &ProcessGroup::default())?);
        Ok(())
    }

    /// The end of the calls from now on.
    pub fn limit(&self, until: Instant) {
        if let Some(tree) = &self.tree {
            tree.limit(Some(until));
        }
    }

    /// The file system.
    pub fn tree(&self) -> Res<&dyn Tree> {
        self.tree.as_deref().ok_or_else(closed)
    }

    /// Close all.
    pub fn end(&mut self) -> Res<()> {
        let files = std::mem::take(&mut self.files);
        files.keys().chain(self.listings.keys()).for_each(|id| {
            table::remove(*id);
        });
        self.listings.clear();
        drop(files);
        // A call drives what the dropped files have to do.
        let done = self.tree()?.getattr(Handle::ROOT);
        self.tree = None;
        done.map(drop).map_err(Into::into)
    }

    /// Walk a path from the root.
    pub fn walk(&self, path: &[u8], follow: bool) -> Res<Walk> {
        match self.tree()?.walk(b"", path, follow)? {
            Walk::Outside(_) => Err(failure(libc::EXDEV, "the path leads out of the file system")),
            walk => Ok(walk),
        }
    }

    /// An object that is there.
    pub fn object(&self, path: &[u8], follow: bool) -> Res<Box<Found>> {
        match self.walk(path, follow)? {
            Walk::Object(found) => Ok(found),
            _ => {
                let words = format!("{}: no such file or directory", String::from_utf8_lossy(path));
                Err(failure(libc::ENOENT, words))
            }
        }
    }

    /// The directory and the name of an object that is there.
    pub fn place(&self, path: &[u8]) -> Res<(Handle, Name, Attr)> {
        let found = self.object(path, false)?;
        let words = "the path ends in a directory without a name: the root, `.` or `..`";
        let (dir, name) = found.place.ok_or_else(|| failure(libc::EBUSY, words))?;
        Ok((dir, name, found.attr))
    }

    /// The directory and the name of an object to be made.
    pub fn free(&self, path: &[u8], is_dir: bool) -> Res<(Handle, Name)> {
        match self.walk(path, false)? {
            Walk::Missing { dir, name, must_be_dir, .. } if is_dir || !must_be_dir => Ok((dir, name)),
            Walk::Missing { .. } => Err(failure(libc::ENOENT, "the path ends in `/`")),
            _ => {
                let words = format!("{} exists already", String::from_utf8_lossy(path));
                Err(failure(libc::EEXIST, words))
            }
        }
    }

    /// Keep an open file.
    pub fn keep_file(&mut self, id: u64, file: Box<dyn TreeFile>) {
        self.files.insert(id, file);
    }

    /// An open file.
    pub fn file(&self, id: u64) -> Res<&dyn TreeFile> {
        self.files.get(&id).map(|file| &**file).ok_or_else(closed)
    }

    /// Forget an open file.
    pub fn drop_file(&mut self, id: u64) -> Res<Box<dyn TreeFile>> {
        table::remove(id);
        self.files.remove(&id).ok_or_else(closed)
    }

    /// Keep a listing.
    pub fn keep_listing(&mut self, id: u64, listing: Box<dyn TreeListing>) {
        self.listings.insert(id, listing);
    }

    /// A listing.
    pub fn listing(&mut self, id: u64) -> Res<&mut Box<dyn TreeListing>> {
        self.listings.get_mut(&id).ok_or_else(closed)
    }

    /// Forget a listing.
    pub fn drop_listing(&mut self, id: u64) -> Res<()> {
        table::remove(id);
        self.listings.remove(&id).map(drop).ok_or_else(closed)
    }
}
