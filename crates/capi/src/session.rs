//! The state of a connection: the file system, its open files and listings.
//!
//! The fields are dropped in this order: files and listings before the tree, the tree before its runtime.

use crate::call::{Res, failure};
use crate::table;
use shoal_env::real::Runtime;
use shoal_proto::{Attr, Handle, Name, Owner};
use shoal_world::{Found, Over, ProcessGroup, Tree, TreeFile, TreeListing, Walk};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Instant;

/// An open object, and the path by which it was opened.
type Named<T> = (Box<T>, Rc<[u8]>);

/// See the module.
pub struct Session {
    files: BTreeMap<u64, Named<dyn TreeFile>>,
    listings: BTreeMap<u64, Named<dyn TreeListing>>,
    /// The paths of the call under way, for its errors.
    named: RefCell<Vec<Rc<[u8]>>>,
    until: Instant,
    tree: Option<Box<dyn Tree>>,
    runtime: Rc<Runtime>,
}

/// Objects that an error names, and bytes of the path of each that it shows, at most.
const NAMED_MAX: usize = 4;
const SHOWN_MAX: usize = 400;

/// A path as errors show it.
pub fn quoted(path: &[u8]) -> String {
    match path.len() > SHOWN_MAX {
        true => format!("`{}…`", String::from_utf8_lossy(&path[..SHOWN_MAX])),
        false => format!("`{}`", String::from_utf8_lossy(path)),
    }
}

/// A path leads to no object.
pub fn missing() -> crate::call::Failure {
    failure(libc::ENOENT, "no such file or directory")
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
        let (files, listings, named) = (BTreeMap::new(), BTreeMap::new(), RefCell::default());
        Session { files, listings, named, until: Instant::now(), tree: None, runtime }
    }

    /// Reach the file system.
    pub fn plant(&mut self, over: &Over) -> Res<()> {
        self.tree = Some(over.plant(&self.runtime, &ProcessGroup::default())?);
        Ok(())
    }

    /// The end of the calls from now on.
    pub fn limit(&mut self, until: Instant) {
        self.until = until;
        if let Some(tree) = &self.tree {
            tree.limit(Some(until));
        }
    }

    /// Whether the call under way is at its end.
    pub fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    /// A call begins: it has named no object yet.
    pub fn forget_names(&self) {
        self.named.borrow_mut().clear();
    }

    fn name(&self, path: &Rc<[u8]>) {
        let mut named = self.named.borrow_mut();
        if named.len() < NAMED_MAX && named.last() != Some(path) {
            named.push(path.clone());
        }
    }

    /// The objects of the call under way, as its caller named them.
    pub fn names(&self) -> String {
        self.named.borrow().iter().map(|path| quoted(path)).collect::<Vec<_>>().join(" and ")
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
        self.name(&Rc::from(path));
        self.walk_unnamed(path, follow)
    }

    /// The same, of a path that errors do not name.
    pub fn walk_unnamed(&self, path: &[u8], follow: bool) -> Res<Walk> {
        match self.tree()?.walk(b"", path, follow)? {
            Walk::Outside(_) => Err(failure(libc::EXDEV, "the path leads out of the file system")),
            walk => Ok(walk),
        }
    }

    /// An object that is there.
    pub fn object(&self, path: &[u8], follow: bool) -> Res<Box<Found>> {
        match self.walk(path, follow)? {
            Walk::Object(found) => Ok(found),
            _ => Err(missing()),
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
            _ => Err(failure(libc::EEXIST, "it exists already")),
        }
    }

    /// Keep an open file, which was opened by this path.
    pub fn keep_file(&mut self, id: u64, file: Box<dyn TreeFile>, path: &[u8]) {
        self.files.insert(id, (file, path.into()));
    }

    /// An open file.
    pub fn file(&self, id: u64) -> Res<&dyn TreeFile> {
        let (file, path) = self.files.get(&id).ok_or_else(closed)?;
        self.name(path);
        Ok(&**file)
    }

    /// Forget an open file.
    pub fn drop_file(&mut self, id: u64) -> Res<Box<dyn TreeFile>> {
        table::remove(id);
        let (file, path) = self.files.remove(&id).ok_or_else(closed)?;
        self.name(&path);
        Ok(file)
    }

    /// Keep a listing of the directory of this path.
    pub fn keep_listing(&mut self, id: u64, listing: Box<dyn TreeListing>, path: &[u8]) {
        self.listings.insert(id, (listing, path.into()));
    }

    /// A listing.
    pub fn listing(&mut self, id: u64) -> Res<&mut Box<dyn TreeListing>> {
        let (listing, path) = self.listings.get_mut(&id).ok_or_else(closed)?;
        self.named.borrow_mut().push(path.clone());
        Ok(listing)
    }

    /// Forget a listing.
    pub fn drop_listing(&mut self, id: u64) -> Res<()> {
        table::remove(id);
        self.listings.remove(&id).map(drop).ok_or_else(closed)
    }
}
