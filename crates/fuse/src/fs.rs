//! The work of each operation, in handles and attributes: no FUSE in here.
//!
//! One [`Fs`] is a mount's state, in its file system's world: the file system, the open files, and some
//! recent facts (`known`). Operations are grouped in modules: `attributes`, `names`, `data`, `dirs`,
//! `xattrs`, `locks`.

mod ahead;
mod attempts;
mod attributes;
mod data;
mod directories;
mod dirs;
mod errno;
mod gone;
mod known;
mod listing;
mod locks;
mod names;
mod stale;
mod xattrs;

pub use ahead::Ahead;
pub use attributes::{Change, When};
pub use data::{Opened, Opening, Write};
pub use directories::Directories;
pub use errno::{Errno, Result};
pub use gone::Gone;
pub use listing::Listed;

use crate::interrupts::is_interrupted;
use crate::options::MountOptions;
use attempts::{Attempts, Refused, TRY_SPAN};
use dirs::OpenDir;
use futures_util::future::LocalBoxFuture;
use known::Known;
use shoal_env::{Env, Instant, local::Notify};
use shoal_proto::{Attr, Handle};
use shoal_vfs::{Error, Vfs};
use stale::StalePages;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// How long a call for a lock waits for the kernel to drop a file's pages.
const DROP_PAGES_MAX: Duration = Duration::from_secs(10);

/// The requester.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The parts of a file that the kernel is to invalidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Untrue {
    /// Its attributes.
    Attributes,
    /// Its attributes and all its pages.
    Pages,
}

/// Sends an invalidation of a file to the kernel; ends when the kernel has done it.
pub type Invalidate = Rc<dyn Fn(Handle, Untrue) -> LocalBoxFuture<'static, ()>>;

/// The facts from which the event loops answer by themselves; the client keeps them valid.
#[derive(Debug)]
pub struct AtOnce {
    /// Attributes of directories.
    pub directories: Directories,
    /// Lookups.
    pub ahead: Ahead,
    /// Removed objects that are still referred to.
    pub gone: Gone,
    /// A lock was asked for: from then on a close may have one to give back.
    has_locked: AtomicBool,
    /// A file was opened that reports its closes.
    reports_closes: AtomicBool,
}

impl AtOnce {
    /// Nothing is known. `believed`: how long the kernel caches names and attributes.
    pub fn new(believed: Duration) -> AtOnce {
        AtOnce {
            directories: Directories::new(believed),
            ahead: Ahead::new(believed),
            gone: Gone::default(),
            has_locked: AtomicBool::new(false),
            reports_closes: AtomicBool::new(false),
        }
    }

    /// A lock is asked for.
    pub fn locks(&self) {
        self.has_locked.store(true, Ordering::Release);
    }

    /// A file is opened that reports its closes.
    pub fn opens_reporting(&self) {
        self.reports_closes.store(true, Ordering::Release);
    }

    /// Whether one ever was.
    pub fn has_reporting(&self) -> bool {
        self.reports_closes.load(Ordering::Acquire)
    }

    /// Whether a lock ever was.
    pub fn has_locked(&self) -> bool {
        self.has_locked.load(Ordering::Acquire)
    }
}

/// The state of a mount.
pub struct Fs<V: Vfs> {
    env: Env,
    vfs: V,
    cache: Duration,
    direct: bool,
    invalidate: Invalidate,
    files: Table<Opened<V::File>>,
    dirs: Table<OpenDir<V>>,
    at_once: Arc<AtOnce>,
    attempts: Rc<Attempts<V::File>>,
    /// Whether directories are listed ahead of lookups.
    stat_ahead: bool,
    under_way: Cell<u64>,
    idle: Notify,
}

impl<V: Vfs> Fs<V> {
    /// The state of a mount that just began. `at_once`: as new, with the same time of belief.
    pub fn new(
        env: Env,
        vfs: V,
        options: &MountOptions,
        invalidate: Invalidate,
        at_once: Arc<AtOnce>,
    ) -> Fs<V> {
        if at_once.directories.are_believed() {
            let (at_once, env) = (at_once.clone(), env.clone());
            vfs.hear_directories(move |dir, asked_at, attr| match attr {
                Some(attr) => at_once.directories.saw(attr, asked_at),
                None => at_once.directories.changed(dir, env.now()),
            });
        }
        let removals = at_once.clone();
        vfs.hear_removals(move |object| {
            let told = ahead::lock(removals.ahead.known()).lost_a_name(object);
            if let Some(attr) = told {
                removals.gone.removed(attr);
            }
        });
        vfs.hear_interrupts(is_interrupted);
        let stale = StalePages::new(env.clone(), invalidate.clone(), options.cache);
        vfs.keep_pages(move |object| stale.found(object));
        let stat_ahead = options.stat_ahead && vfs.lists_ahead();
        Fs {
            env,
            vfs,
            cache: options.cache,
            direct: options.direct,
            invalidate,
            files: Table::default(),
            dirs: Table::default(),
            at_once,
            attempts: Rc::default(),
            stat_ahead,
            under_way: Cell::new(0),
            idle: Notify::default(),
        }
    }

    /// How long the kernel may cache names and attributes.
    pub fn cache(&self) -> Duration {
        self.cache
    }

    /// The file system.
    pub fn vfs(&self) -> &V {
        &self.vfs
    }

    /// Run a program's request as a task of its own, within the one time limit of a call. `thread`: see
    /// [`Vfs::call`].
    pub fn run(self: &Rc<Self>, thread: u32, request: LocalBoxFuture<'static, ()>) {
        self.spawn(self.vfs.call(thread, request));
    }

    /// Run something as a task of its own.
    pub fn spawn(self: &Rc<Self>, request: impl Future<Output = ()> + 'static) {
        let fs = self.clone();
        fs.under_way.set(fs.under_way.get() + 1);
        self.env.spawn("fuse", async move {
            request.await;
            fs.under_way.set(fs.under_way.get() - 1);
            if fs.under_way.get() == 0 {
                fs.idle.wake_all();
            }
        });
    }

    /// End: requests under way have until `grace` from now; then everything open is closed and the file
    /// system ends.
    pub async fn end(&self, grace: Duration) {
        let deadline = self.env.now() + grace;
        loop {
            let idle = self.idle.wait();
            if self.under_way.get() == 0 || self.env.deadline(deadline, idle).await.is_err() {
                break;
            }
        }
        for opened in self.files.take_all() {
            if let Err(error) = Opened::close(opened).await {
                tracing::warn!("{error}");
            }
        }
        self.vfs.close().await;
    }

    fn now(&self) -> Instant {
        self.env.now()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        ahead::lock(self.at_once.ahead.known())
    }

    /// Attributes are returned to the kernel: they are remembered.
    fn saw(&self, attr: Attr) -> Attr {
        self.known().told(&attr, self.now());
        attr
    }

    /// A directory was changed through this mount, or perhaps.
    fn directory_changed(&self, dir: Handle) {
        self.at_once.directories.changed(dir, self.now());
    }

    /// The result of a server for an object: an object that it reports gone is dropped from the caches, so
    /// that the kernel, which then looks its name up again, does not get it once more.
    fn heard<T>(&self, object: Handle, said: std::result::Result<T, Error>) -> Result<T> {
        said.map_err(|error| {
            let errno = Errno::from(error);
            if errno == Errno::STALE {
                self.changed(object);
            }
            errno
        })
    }

    /// A call of this thread met an object that is gone: the kernel tries once more.
    fn refused(&self, thread: u32, refused: Refused, object: Handle) {
        let now = self.now();
        self.attempts.refused(thread, refused, object, now);
        self.known().tries_again(thread, now, now + TRY_SPAN);
    }

    /// An object was changed through this mount, or is gone.
    fn changed(&self, object: Handle) {
        self.known().changed(object, self.now());
    }
}

/// Open files and directories, by the kernel's number. Numbers are not used twice.
struct Table<T> {
    open: RefCell<HashMap<u64, Rc<T>>>,
    next: Cell<u64>,
}

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table { open: RefCell::default(), next: Cell::new(1) }
    }
}

impl<T> Table<T> {
    fn insert(&self, item: T) -> u64 {
        let number = self.next.get();
        self.next.set(number + 1);
        self.open.borrow_mut().insert(number, Rc::new(item));
        number
    }

    fn get(&self, number: u64) -> Result<Rc<T>> {
        self.open.borrow().get(&number).cloned().ok_or(Errno::BADF)
    }

    fn remove(&self, number: u64) -> Result<Rc<T>> {
        self.open.borrow_mut().remove(&number).ok_or(Errno::BADF)
    }

    fn each(&self, f: impl FnMut(&Rc<T>)) {
        self.open.borrow().values().for_each(f);
    }

    fn take_all(&self) -> Vec<Rc<T>> {
        self.open.take().into_values().collect()
    }
}
