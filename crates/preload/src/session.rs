//! The state of this process in the library's world (its event loop): file systems and open file
//! descriptions.
//!
//! An open file description is found by its record, which another process may have made ([`crate::record`]).
//! Its file is opened in this process at the first use. So a child of `fork`, and a program that was started
//! by `exec`, begin with an empty state and find all that they inherited.

mod call;
mod exit;
mod locks;
mod moves;

pub use call::{Call, Held};
pub use exit::{forget_closes, give_back_at_end, publish_at_exit};
pub use locks::{LOCKED, PROCESS, description, forget_lease, gave_back, keep_lease};

use crate::config;
use crate::guard::{self, Res, say};
use crate::record::{self, Identity, Record, Records};
use crate::route::Spot;
use crate::table;
use libc::c_int;
use moves::Moves;
use shoal_env::local::Semaphore;
use shoal_env::real::{Runtime, descriptors};
use shoal_proto::{Attr, Handle, Owner, Rights, Status};
use shoal_world::{Driven, Shown, Tree, TreeFile, TreeListing};
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
    /// Calls that use it now.
    uses: usize,
    /// Calls that move its position, or list it, take turns.
    turn: Semaphore,
    file: Option<Rc<dyn TreeFile>>,
    /// Writes that this process has seen, as [`Record::writes`] counts them.
    seen: u32,
    /// A listing under way, and the position that it has reached.
    pub listing: Option<(Box<dyn TreeListing>, i64)>,
    /// A directory's attributes, as last seen: it may be removed.
    pub attr: Option<Attr>,
    /// A descriptor of the kernel for `flock`.
    pub flock: Option<c_int>,
    /// Another process opened it.
    pub is_inherited: bool,
}

enum Mount {
    Planted(Rc<dyn Tree>),
    Failed(Instant, c_int),
    New,
}

/// See the module.
pub struct Session {
    runtime: Rc<Runtime>,
    mounts: Vec<Mount>,
    /// Removals and moves by this process.
    moves: Moves,
    /// Turns of long appends, by file, each of which is whole; and the calls that have it or wait for it.
    appends: BTreeMap<(usize, u64), (Semaphore, usize)>,
    /// Closes that publish a file.
    closes: Semaphore,
    /// Where the records of new opens are.
    pub records: Records,
    /// Descriptions, by index.
    pub opens: Vec<Option<Open>>,
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

impl Driven for Session {
    fn runtime(&self) -> &Rc<Runtime> {
        &self.runtime
    }
}

impl Session {
    /// A session without a file system yet.
    pub fn new() -> Session {
        descriptors::keep_from(own_from());
        descriptors::keep_threads(guard::own_thread);
        let count = config::get().map_or(0, |config| config.overs.len());
        Session {
            runtime: Rc::new(Runtime::shared("shoal")),
            mounts: (0..count).map(|_| Mount::New).collect(),
            moves: Moves::default(),
            appends: BTreeMap::new(),
            closes: Semaphore::new(call::CLOSES_MAX),
            records: Records::default(),
            opens: Vec::new(),
            locks: BTreeMap::new(),
        }
    }

    /// A file system, reached if it was not yet.
    pub fn tree(&mut self, mount: usize) -> Res<Rc<dyn Tree>> {
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
            Mount::Planted(tree) => Ok(tree.clone()),
            Mount::Failed(_, errno) => Err(*errno),
            Mount::New => Err(libc::ENODEV),
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
                let index = self.add(record, identity, None);
                if let Some(Some(open)) = self.opens.get_mut(index) {
                    open.is_inherited = true;
                }
                index
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
        file: Option<Rc<dyn TreeFile>>,
    ) -> usize {
        let seen = record.writes.load(Ordering::Acquire);
        let open = Open {
            record,
            identity,
            references: 0,
            uses: 0,
            turn: Semaphore::new(1),
            file,
            seen,
            listing: None,
            attr: None,
            flock: None,
            is_inherited: false,
        };
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

    /// The key of a descriptor's record locks.
    pub fn lock_key(&mut self, fd: c_int) -> Res<(usize, u64, u64)> {
        let open = self.open(fd)?;
        let (mount, handle) = (open.record.mount as usize, open.record.handle.load(Ordering::Relaxed));
        let over = config::get().and_then(|config| config.overs.get(mount));
        let is_shoal = over.is_some_and(|over| matches!(over.shown, Shown::Shoal { .. }));
        Ok((mount, handle, if is_shoal { open.identity.memory_number() } else { 0 }))
    }

    /// The path of a directory's descriptor.
    pub fn directory_of(&mut self, fd: c_int) -> Res<Spot> {
        let record = self.open(fd)?.record;
        if record.kind != record::DIRECTORY {
            return Err(libc::ENOTDIR);
        }
        Ok(Spot::new(record.mount as usize, record.path()))
    }

    /// An object was moved, and the object that was there is gone: descriptions know their new path.
    /// `is_exchange`: it is where the other was.
    pub fn moved(&mut self, mount: usize, from: &[u8], to: &[u8], is_exchange: bool) {
        for open in self.opens.iter().flatten().filter(|open| open.record.mount as usize == mount) {
            let path = open.record.path();
            let back = moves::moved(&path, to, from).filter(|_| is_exchange);
            if let Some(path) = moves::moved(&path, from, to).or(back) {
                open.record.set_path(&path);
            } else if path == to {
                open.record.state.store(1, Ordering::Relaxed);
            }
        }
        self.moves.note(mount, from, Some(to));
        if is_exchange {
            self.moves.note(mount, to, Some(from));
        }
    }

    /// An object was removed from a path, where another may be by now: its descriptions know that.
    pub fn removed(&mut self, mount: usize, path: &[u8], object: Handle) {
        for open in self.opens.iter().flatten().filter(|open| open.record.mount as usize == mount) {
            let is_it = open.record.handle.load(Ordering::Relaxed) == object.0;
            if is_it && open.record.path() == path {
                open.record.state.store(1, Ordering::Relaxed);
            }
        }
        self.moves.note(mount, path, None);
    }

    /// Close the files of this process, before another program takes its place. Their descriptions stay.
    pub fn rest(&mut self) {
        for open in self.opens.iter_mut().flatten() {
            let owners = [PROCESS, description(open.record)];
            // The program may fail to begin, and then this process still has its locks.
            let is_locked =
                open.file.as_ref().is_some_and(|file| owners.iter().any(|owner| file.has_locks(*owner)));
            if open.record.state.load(Ordering::Relaxed) == 0
                && !is_locked
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
