//! The state of a connection: the file system, its open files and listings.
//!
//! The fields are dropped in this order: files and listings before the tree, the tree before its runtime.

use crate::call::{Res, failure};
use crate::table;
use shoal_env::local::{Permit, Semaphore};
use shoal_env::real::Runtime;
use shoal_proto::op::Entry;
use shoal_proto::{Attr, Handle, Name, Owner};
use shoal_world::{Driven, Found, Inside, Over, ProcessGroup, Tree, TreeFile, TreeListing, Walk};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::time::Instant;

/// An open object, and the path by which it was opened.
type Named<T> = (T, Rc<[u8]>);

/// A listing; `None` while a call reads it, which has the turn.
struct Listing {
    turn: Semaphore,
    listing: Option<Box<dyn TreeListing>>,
}

/// See the module.
pub struct Session {
    files: BTreeMap<u64, Named<Rc<dyn TreeFile>>>,
    listings: BTreeMap<u64, Named<Listing>>,
    tree: Option<Rc<dyn Tree>>,
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

impl Driven for Session {
    fn runtime(&self) -> &Rc<Runtime> {
        &self.runtime
    }
}

impl Session {
    /// A session without a file system.
    pub fn new() -> Session {
        let runtime = Rc::new(Runtime::shared("libshoal"));
        Session { files: BTreeMap::new(), listings: BTreeMap::new(), tree: None, runtime }
    }

    /// Reach the file system.
    pub fn plant(&mut self, over: &Over) -> Res<()> {
        self.tree = Some(over.plant(&self.runtime, &ProcessGroup::default())?);
        Ok(())
    }

    /// The file system.
    pub fn tree(&self) -> Res<Rc<dyn Tree>> {
        self.tree.clone().ok_or_else(closed)
    }

    fn end(&mut self) -> Res<()> {
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

    /// Keep an open file, which was opened by this path.
    ///
    /// # Errors
    /// Another thread has closed the connection meanwhile.
    pub fn keep_file(&mut self, id: u64, file: Rc<dyn TreeFile>, path: &[u8]) -> Res<()> {
        self.is_open(id)?;
        self.files.insert(id, (file, path.into()));
        Ok(())
    }

    fn is_open(&self, id: u64) -> Res<()> {
        self.tree.as_ref().map(drop).ok_or_else(|| {
            table::remove(id);
            closed()
        })
    }

    /// Keep a listing of the directory of this path.
    ///
    /// # Errors
    /// As [`Session::keep_file`].
    pub fn keep_listing(&mut self, id: u64, listing: Box<dyn TreeListing>, path: &[u8]) -> Res<()> {
        self.is_open(id)?;
        let listing = Listing { turn: Semaphore::new(1), listing: Some(listing) };
        self.listings.insert(id, (listing, path.into()));
        Ok(())
    }

    /// Forget a listing.
    pub fn drop_listing(&mut self, id: u64) -> Res<()> {
        table::remove(id);
        self.listings.remove(&id).map(drop).ok_or_else(closed)
    }
}

/// A call: it has the session, and while it waits for the file system other threads' calls have it.
///
/// The fields are dropped in this order: the paths while the thread has the session still.
pub struct Call<'a> {
    /// The paths of the call, for its errors.
    named: Vec<Rc<[u8]>>,
    until: Instant,
    session: Inside<'a, Session>,
}

impl Deref for Call<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for Call<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

impl<'a> Call<'a> {
    /// A call that ends at a moment.
    pub fn new(session: Inside<'a, Session>, until: Instant) -> Call<'a> {
        Call { named: Vec::new(), until, session }
    }

    /// Whether the call is at its end.
    pub fn is_late(&self) -> bool {
        Instant::now() >= self.until
    }

    fn name(&mut self, path: &Rc<[u8]>) {
        if self.named.len() < NAMED_MAX && self.named.last() != Some(path) {
            self.named.push(path.clone());
        }
    }

    /// The objects of the call, as its caller named them.
    pub fn names(&self) -> String {
        self.named.iter().map(|path| quoted(path)).collect::<Vec<_>>().join(" and ")
    }

    /// Do `work`, for whose waits other threads have the session.
    pub fn away<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.limit();
        self.session.away(work)
    }

    /// Calls of the file system from now on end with this call.
    fn limit(&self) {
        if let Some(tree) = &self.session.tree {
            tree.limit(Some(self.until));
        }
    }

    /// Close all of the connection.
    pub fn end(&mut self) -> Res<()> {
        self.limit();
        self.session.end()
    }

    /// Do `work` on the file system, for whose waits other threads have the session.
    pub fn on<T>(&mut self, work: impl FnOnce(&dyn Tree) -> shoal_vfs::Result<T>) -> Res<T> {
        let tree = self.tree()?;
        Ok(self.away(|| work(&*tree))?)
    }

    /// Do `work` on an open file, for whose waits other threads have the session.
    pub fn on_file<T>(
        &mut self,
        id: u64,
        work: impl FnOnce(&dyn TreeFile) -> shoal_vfs::Result<T>,
    ) -> Res<T> {
        let file = self.file(id)?;
        Ok(self.away(|| work(&*file))?)
    }

    /// Walk a path from the root.
    pub fn walk(&mut self, path: &[u8], follow: bool) -> Res<Walk> {
        self.name(&Rc::from(path));
        self.walk_unnamed(path, follow)
    }

    /// The same, of a path that errors do not name.
    pub fn walk_unnamed(&mut self, path: &[u8], follow: bool) -> Res<Walk> {
        match self.on(|tree| tree.walk(b"", path, follow))? {
            Walk::Outside(_) => Err(failure(libc::EXDEV, "the path leads out of the file system")),
            walk => Ok(walk),
        }
    }

    /// An object that is there.
    pub fn object(&mut self, path: &[u8], follow: bool) -> Res<Box<Found>> {
        match self.walk(path, follow)? {
            Walk::Object(found) => Ok(found),
            _ => Err(missing()),
        }
    }

    /// The directory and the name of an object that is there.
    pub fn place(&mut self, path: &[u8]) -> Res<(Handle, Name, Attr)> {
        let found = self.object(path, false)?;
        let words = "the path ends in a directory without a name: the root, `.` or `..`";
        let (dir, name) = found.place.ok_or_else(|| failure(libc::EBUSY, words))?;
        Ok((dir, name, found.attr))
    }

    /// The directory and the name of an object to be made.
    pub fn free(&mut self, path: &[u8], is_dir: bool) -> Res<(Handle, Name)> {
        match self.walk(path, false)? {
            Walk::Missing { dir, name, must_be_dir, .. } if is_dir || !must_be_dir => Ok((dir, name)),
            Walk::Missing { .. } => Err(failure(libc::ENOENT, "the path ends in `/`")),
            _ => Err(failure(libc::EEXIST, "it exists already")),
        }
    }

    /// An open file.
    pub fn file(&mut self, id: u64) -> Res<Rc<dyn TreeFile>> {
        let (file, path) = self.files.get(&id).cloned().ok_or_else(closed)?;
        self.name(&path);
        Ok(file)
    }

    /// Forget an open file.
    pub fn drop_file(&mut self, id: u64) -> Res<Rc<dyn TreeFile>> {
        table::remove(id);
        let (file, path) = self.files.remove(&id).ok_or_else(closed)?;
        self.name(&path);
        Ok(file)
    }

    /// The next entry of a listing.
    pub fn next(&mut self, id: u64) -> Res<Option<Entry>> {
        let (listing, path) = self.listings.get(&id).ok_or_else(closed)?;
        let (turn, path) = (listing.turn.clone(), path.clone());
        self.name(&path);
        let _turn = self.permit(&turn)?;
        let mut listing =
            self.listings.get_mut(&id).and_then(|(kept, _)| kept.listing.take()).ok_or_else(closed)?;
        let next = self.away(|| listing.next());
        if let Some((kept, _)) = self.listings.get_mut(&id) {
            kept.listing = Some(listing);
        }
        Ok(next?)
    }

    fn permit(&mut self, turn: &Semaphore) -> Res<Permit> {
        if let Some(permit) = turn.try_acquire(1) {
            return Ok(permit);
        }
        let left = self.until.saturating_duration_since(Instant::now());
        let runtime = self.runtime.clone();
        let env = runtime.env();
        let wait = || runtime.block_on(env.deadline(env.now() + left, turn.acquire(1)));
        self.session
            .away(wait)
            .map_err(|_| failure(libc::ETIMEDOUT, "another thread's call took the whole time"))
    }
}
