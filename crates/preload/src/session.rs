//! The state of this process in the library's world (its event loop): file systems, open file descriptions,
//! the working directory.
//!
//! An open file description is found by its record, which another process may have made ([`crate::record`]).
//! Its file is opened in this process at the first use. So a child of `fork`, and a program that was started
//! by `exec`, begin with an empty state and find all that they inherited.

mod exit;

pub use exit::publish_at_exit;

use crate::calls::children::{abandoned, release};
use crate::config;
use crate::guard::{self, Res, say};
use crate::record::{self, Identity, Record, Records};
use crate::route::{Spot, host_path};
use crate::table;
use libc::c_int;
use shoal_env::real::{Runtime, descriptors};
use shoal_proto::{Attr, Handle, Kind, Owner, Rights, Status};
use shoal_world::{Found, Shown, Tree, TreeFile, TreeListing, Walk, WalkOpen};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// After a failure to reach a file system, calls fail at once for so long.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// Our own descriptors lie in this upper part of those that the process may have.
const OWN_FROM: (u64, u64) = (3, 4);
/// And at this number at the latest.
const OWN_FROM_MAX: u64 = 32 * 1024;

/// An open file description.
pub struct Open {
    /// Its record.
    pub record: &'static Record,
    identity: Identity,
    /// Descriptors of this process.
    pub references: usize,
    file: Option<Box<dyn TreeFile>>,
    /// Writes that this process has seen, as [`Record::writes`] counts them.
    seen: u32,
    /// A listing under way, and the position that it has reached.
    pub listing: Option<(Box<dyn TreeListing>, i64)>,
    /// A directory's attributes, as last seen: it may be removed.
    pub attr: Option<Attr>,
    /// A descriptor of the kernel for `flock`.
    pub flock: Option<c_int>,
}

enum Mount {
    Planted(Box<dyn Tree>),
    Failed(Instant, c_int),
    New,
}

/// See the module.
pub struct Session {
    runtime: Rc<Runtime>,
    mounts: Vec<Mount>,
    /// Where the records of new opens are.
    pub records: Records,
    /// Descriptions, by index.
    pub opens: Vec<Option<Open>>,
    /// The process's directory, if it is ours.
    pub cwd: Option<Spot>,
    /// Descriptors of the kernel for record locks, one for each locked object of this process; on a ShoalFS
    /// one for each file in memory that has records of its opens ([`Session::lock_key`]).
    pub locks: BTreeMap<(usize, u64, u64), c_int>,
}

/// The number of an error, as POSIX callers see it.
pub fn number(error: &shoal_vfs::Error) -> c_int {
    if error.status != Status::NotFound && config::get().is_some_and(|config| config.is_logged) {
        say(&error.to_string());
    }
    error.errno()
}

/// The first number that is ours.
pub fn own_from() -> c_int {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: it is large enough.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    (limit.rlim_cur.min(1 << 20) * OWN_FROM.0 / OWN_FROM.1).min(OWN_FROM_MAX) as c_int
}

/// A new object's owner and mode.
pub fn owner(mode: u32) -> Owner {
    // SAFETY: the calls have no conditions.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    Owner { mode: mode & 0o7777 & !config::umask(), uid, gid }
}

/// The rights of an access mode.
pub fn rights(flags: c_int) -> Rights {
    match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Rights::READ,
        libc::O_WRONLY => Rights::WRITE,
        _ => Rights::READ | Rights::WRITE,
    }
}

impl Session {
    /// A session without a file system yet.
    pub fn new() -> Session {
        descriptors::keep_from(own_from());
        descriptors::keep_threads(guard::own_thread);
        let count = config::get().map_or(0, |config| config.overs.len());
        Session {
            runtime: Rc::new(Runtime::new("shoal")),
            mounts: (0..count).map(|_| Mount::New).collect(),
            records: Records::default(),
            opens: Vec::new(),
            cwd: None,
            locks: BTreeMap::new(),
        }
    }

    /// A file system, reached if it was not yet.
    pub fn tree(&mut self, mount: usize) -> Res<&dyn Tree> {
        let over = config::get().and_then(|config| config.overs.get(mount)).ok_or(libc::ENODEV)?;
        let slot = self.mounts.get_mut(mount).ok_or(libc::ENODEV)?;
        let is_due = match slot {
            Mount::Planted(_) => false,
            Mount::New => true,
            Mount::Failed(at, errno) if at.elapsed() < AGAIN_AFTER => return Err(*errno),
            Mount::Failed(..) => true,
        };
        if is_due {
            *slot = match over.plant(&self.runtime, &config::group()) {
                Ok(tree) => Mount::Planted(tree),
                Err(error) => {
                    say(&format!("{}: {error:#}", over.dir.display()));
                    let errno = error.downcast_ref::<shoal_vfs::Error>().map_or(libc::EIO, number);
                    Mount::Failed(Instant::now(), errno)
                }
            };
        }
        match slot {
            Mount::Planted(tree) => Ok(&**tree),
            Mount::Failed(_, errno) => Err(*errno),
            Mount::New => Err(libc::ENODEV),
        }
    }

    /// Walk a path.
    pub fn walk(&mut self, spot: &Spot, follow: bool) -> Res<Walk> {
        let prefix = host_path(&Spot { mount: spot.mount, path: Vec::new() });
        let walk =
            self.tree(spot.mount)?.walk(&prefix, &spot.path, follow).map_err(|error| number(&error))?;
        let Walk::Object(mut found) = walk else { return Ok(walk) };
        if found.attr.kind == Kind::File && self.see(spot.mount, found.attr.handle.0)? {
            let tree = self.tree(spot.mount)?;
            found.attr = tree.getattr(found.attr.handle).map_err(|error| number(&error))?;
        }
        Ok(Walk::Object(found))
    }

    /// Walk a path whose file is to be opened.
    pub fn walk_open(&mut self, spot: &Spot, follow: bool, rights: Rights) -> Res<WalkOpen> {
        let prefix = host_path(&Spot { mount: spot.mount, path: Vec::new() });
        let tree = self.tree(spot.mount)?;
        tree.walk_open(&prefix, &spot.path, follow, rights).map_err(|error| number(&error))
    }

    /// Where one process sees another's writes only at an open: open the file of descriptions through which
    /// another process has written since. Whether there was one.
    fn see(&mut self, mount: usize, handle: u64) -> Res<bool> {
        let over = config::get().and_then(|config| config.overs.get(mount));
        if over.is_none_or(|over| over.is_seen_at_once()) {
            return Ok(false);
        }
        let mut is_new = false;
        for open in self.opens.iter_mut().flatten() {
            let record = open.record;
            let is_it = record.mount as usize == mount && record.handle.load(Ordering::Relaxed) == handle;
            let writes = record.writes.load(Ordering::Acquire);
            is_new |= is_it && writes != open.seen;
            if is_it {
                open.seen = writes;
            }
        }
        if is_new {
            // One without a name is not found any more: then this process sees its own writes.
            let opened = self.tree(mount)?.open(Handle(handle), Rights::READ);
            let _ = opened.map(|file| file.close());
        }
        Ok(is_new)
    }

    /// A lock was taken: from now on this process sees all that others wrote before.
    pub fn locked(&mut self, fd: c_int) -> Res<()> {
        let record = self.open(fd)?.record;
        let mount = record.mount as usize;
        let over = config::get().and_then(|config| config.overs.get(mount));
        if record.kind == record::DIRECTORY || over.is_none_or(|over| over.is_seen_at_once()) {
            return Ok(());
        }
        let handle = self.handle(fd)?;
        let opened = self.tree(mount)?.open(handle, Rights::READ).map_err(|error| number(&error))?;
        opened.close().map_err(|error| number(&error))
    }

    /// An append is about to be done: where the file system does not look for the present end by itself, this
    /// process reads what others wrote before.
    pub fn appends(&mut self, fd: c_int) -> Res<()> {
        let mount = self.open(fd)?.record.mount as usize;
        let over = config::get().and_then(|config| config.overs.get(mount));
        if over.is_some_and(|over| matches!(over.shown, Shown::Container(_) | Shown::Bucket { .. })) {
            // A file that may only be written, or has no name any more: it goes to the end that is known.
            let _ = self.locked(fd);
        }
        Ok(())
    }

    /// This process has written through a descriptor.
    pub fn wrote(&mut self, fd: c_int) {
        self.note_write(fd);
        if exit::is_exiting() {
            self.publish();
        }
    }

    fn note_write(&mut self, fd: c_int) {
        if let Ok(open) = self.open(fd) {
            let before = open.record.writes.fetch_add(1, Ordering::AcqRel);
            if before == open.seen {
                open.seen = before.wrapping_add(1);
            }
        }
    }

    /// The object of a path; a path that leaves the file system is `EXDEV`.
    pub fn find(&mut self, spot: &Spot, follow: bool) -> Res<Found> {
        match self.walk(spot, follow)? {
            Walk::Object(found) => Ok(*found),
            Walk::Missing { .. } => Err(libc::ENOENT),
            Walk::Outside(_) => Err(libc::EXDEV),
        }
    }

    /// The description of a descriptor, which may have come from another process.
    pub fn index(&mut self, fd: c_int) -> Res<usize> {
        if let Some(index) = table::index(fd) {
            return Ok(index);
        }
        if !record::is_one(fd) {
            return Err(libc::EBADF);
        }
        let identity = record::identity(fd)?;
        let same = |open: &Option<Open>| open.as_ref().is_some_and(|open| open.identity == identity);
        let index = match self.opens.iter().position(same) {
            Some(index) => index,
            None => {
                let record = record::inherit(fd, identity)?;
                self.add(record, identity, None)
            }
        };
        self.refer(fd, index)?;
        Ok(index)
    }

    /// A description.
    pub fn open(&mut self, fd: c_int) -> Res<&mut Open> {
        let index = self.index(fd)?;
        self.opens.get_mut(index).and_then(Option::as_mut).ok_or(libc::EBADF)
    }

    /// A new description.
    pub fn add(
        &mut self,
        record: &'static Record,
        identity: Identity,
        file: Option<Box<dyn TreeFile>>,
    ) -> usize {
        let seen = record.writes.load(Ordering::Acquire);
        let open =
            Open { record, identity, references: 0, file, seen, listing: None, attr: None, flock: None };
        match self.opens.iter().position(Option::is_none) {
            Some(free) => {
                self.opens[free] = Some(open);
                free
            }
            None => {
                self.opens.push(Some(open));
                self.opens.len() - 1
            }
        }
    }

    /// A descriptor of a description.
    pub fn refer(&mut self, fd: c_int, index: usize) -> Res<()> {
        if !table::set(fd, index) {
            return Err(libc::EMFILE);
        }
        if let Some(Some(open)) = self.opens.get_mut(index) {
            open.references += 1;
        }
        Ok(())
    }

    /// A descriptor is gone. With its last one the description's file is closed.
    pub fn unrefer(&mut self, fd: c_int) -> Res<()> {
        match table::take(fd) {
            Some(index) => self.release(index),
            None => Ok(()),
        }
    }

    /// Take off the descriptors whose close did not get a turn.
    pub fn take_abandoned(&mut self) {
        for index in abandoned() {
            let _ = self.release(index);
        }
    }

    /// The key of a descriptor's record locks.
    pub fn lock_key(&mut self, fd: c_int) -> Res<(usize, u64, u64)> {
        let open = self.open(fd)?;
        let (mount, handle) = (open.record.mount as usize, open.record.handle.load(Ordering::Relaxed));
        let over = config::get().and_then(|config| config.overs.get(mount));
        let is_shoal = over.is_some_and(|over| matches!(over.shown, Shown::Shoal { .. }));
        Ok((mount, handle, if is_shoal { open.identity.memory_number() } else { 0 }))
    }

    /// A new description that got no descriptor.
    pub fn give_up(&mut self, index: usize) {
        if let Some(open) = self.opens.get_mut(index).and_then(Option::take) {
            let record = open.record;
            // It has written nothing.
            let _ = close(open);
            self.records.release(record);
        }
    }

    /// A description has one descriptor less.
    fn release(&mut self, index: usize) -> Res<()> {
        let Some(slot) = self.opens.get_mut(index) else { return Ok(()) };
        let Some(open) = slot.as_mut() else { return Ok(()) };
        open.references = open.references.saturating_sub(1);
        let key = (open.record.mount as usize, open.record.handle.load(Ordering::Relaxed));
        let is_last = open.references == 0;
        let mut closed = Ok(());
        if is_last {
            // Other descriptions of the file show the bytes of another process, too.
            let _ = self.see(key.0, key.1);
            if let Some(open) = self.opens.get_mut(index).and_then(Option::take) {
                let record = open.record;
                closed = close(open);
                self.records.release(record);
            }
        }
        // POSIX: a close of any descriptor of a file gives all of the process's record locks of it back.
        let of_file = (key.0, key.1, 0)..=(key.0, key.1, u64::MAX);
        let known: Vec<_> = self.locks.range(of_file).map(|(key, _)| *key).collect();
        known.iter().filter_map(|key| self.locks.remove(key)).for_each(release);
        closed
    }

    /// The file of a descriptor, opened here if it was not yet, or if another process has written through it.
    pub fn file(&mut self, fd: c_int) -> Res<(&dyn TreeFile, &'static Record)> {
        let index = self.index(fd)?;
        let open = self.opens.get_mut(index).and_then(Option::as_mut).ok_or(libc::EBADF)?;
        let record = open.record;
        if record.kind == record::DIRECTORY {
            return Err(libc::EISDIR);
        }
        let mount = record.mount as usize;
        if open.file.is_some() {
            self.see(mount, record.handle.load(Ordering::Relaxed))?;
        }
        let open = self.opens.get_mut(index).and_then(Option::as_mut).ok_or(libc::EBADF)?;
        if open.file.is_none() {
            let spot = Spot { mount, path: record.path() };
            let found = self.find(&spot, false).map_err(|_| libc::ESTALE)?;
            if found.attr.handle.0 != record.handle.load(Ordering::Relaxed) || found.attr.kind != Kind::File {
                return Err(libc::ESTALE);
            }
            let file = self.tree(mount)?.open(found.attr.handle, rights(record.flags()));
            let file = file.map_err(|error| number(&error))?;
            if let Some(Some(open)) = self.opens.get_mut(index) {
                open.file = Some(file);
            }
        }
        let open = self.opens.get(index).and_then(Option::as_ref).ok_or(libc::EBADF)?;
        open.file.as_deref().map(|file| (file, record)).ok_or(libc::EBADF)
    }

    /// The path of a directory's descriptor.
    pub fn directory_of(&mut self, fd: c_int) -> Res<Spot> {
        let record = self.open(fd)?.record;
        if record.kind != record::DIRECTORY {
            return Err(libc::ENOTDIR);
        }
        Ok(Spot { mount: record.mount as usize, path: record.path() })
    }

    /// The attributes of a descriptor's object.
    pub fn attributes(&mut self, fd: c_int) -> Res<(usize, Attr)> {
        let record = self.open(fd)?.record;
        if record.kind == record::FILE {
            let (file, _) = self.file(fd)?;
            let handle = file.handle();
            let attr = self.tree(record.mount as usize)?.getattr(handle);
            return Ok((record.mount as usize, attr.map_err(|error| number(&error))?));
        }
        let handle = self.handle(fd);
        let attr = handle.and_then(|handle| {
            self.tree(record.mount as usize)?.getattr(handle).map_err(|error| number(&error))
        });
        let known = &mut self.open(fd)?.attr;
        match (attr, known) {
            (Ok(attr), known) => {
                *known = Some(attr.clone());
                Ok((record.mount as usize, attr))
            }
            (Err(libc::ESTALE | libc::ENOENT), Some(known)) => {
                Ok((record.mount as usize, Attr { nlink: 0, ..known.clone() }))
            }
            (Err(number), _) => Err(number),
        }
    }

    /// The object of a descriptor, known to the file system here.
    pub fn handle(&mut self, fd: c_int) -> Res<Handle> {
        let record = self.open(fd)?.record;
        let handle = Handle(record.handle.load(Ordering::Relaxed));
        if record.kind == record::FILE {
            return Ok(self.file(fd)?.0.handle());
        }
        let mount = record.mount as usize;
        if record.state.load(Ordering::Relaxed) != 0 {
            // Its number may be another object's by now.
            return Err(libc::ESTALE);
        }
        if self.tree(mount)?.getattr(handle).is_ok() {
            return Ok(handle);
        }
        let found = self.find(&Spot { mount, path: record.path() }, false).map_err(|_| libc::ESTALE)?;
        if found.attr.handle == handle { Ok(handle) } else { Err(libc::ESTALE) }
    }

    /// An object was moved or removed: descriptions know their new path.
    pub fn renamed(&mut self, mount: usize, from: &[u8], to: Option<&[u8]>) {
        for open in self.opens.iter().flatten().filter(|open| open.record.mount as usize == mount) {
            let path = open.record.path();
            let Some(rest) = path.strip_prefix(from) else { continue };
            match to {
                Some(to) if rest.is_empty() || rest.starts_with(b"/") => {
                    open.record.set_path(&[to, rest].concat());
                }
                None if rest.is_empty() => {
                    open.record.state.store(1, Ordering::Relaxed);
                }
                _ => {}
            }
        }
    }

    /// Close the files of this process, before another program takes its place. Their descriptions stay.
    pub fn rest(&mut self) {
        for open in self.opens.iter_mut().flatten() {
            if open.record.state.load(Ordering::Relaxed) == 0
                && let Some(file) = open.file.take()
            {
                let _ = file.close();
            }
        }
    }
}

/// Close a descriptor of our own.
pub fn close_own(fd: c_int) {
    // SAFETY: it is ours.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

fn close(open: Open) -> Res<()> {
    if let Some(fd) = open.flock {
        close_own(fd);
    }
    open.file.map_or(Ok(()), |file| file.close().map_err(|error| number(&error)))
}
