//! What each operation does, in handles and attributes: no FUSE in here.
//!
//! One [`Fs`] is a mount's state, on its client's thread: the client, what is open, and a little of what was seen
//! (`known`). Operations are grouped as they belong together: `attributes`, `names`, `data`, `dirs`, `xattrs`.

mod attributes;
mod data;
mod directories;
mod dirs;
mod errno;
mod known;
mod listing;
mod names;
mod xattrs;

pub use attributes::{Change, When};
pub use data::{Opened, Write};
pub use directories::Directories;
pub use errno::{Errno, Result};
pub use listing::Listed;

use dirs::OpenDir;
use futures_util::future::LocalBoxFuture;
use known::Known;
use shoal_client::Client;
use shoal_env::{Env, Instant, local::Notify};
use shoal_proto::{Attr, Handle};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// What the kernel is to forget of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Untrue {
    /// Its attributes.
    Attributes,
    /// Its attributes and all its pages.
    Pages,
}

/// How the kernel is told what of a file is no longer true; ends when it knows.
pub type Invalidate = Box<dyn Fn(Handle, Untrue) -> LocalBoxFuture<'static, ()>>;

/// The state of a mount.
pub struct Fs {
    env: Env,
    client: Client,
    cache: Duration,
    direct: bool,
    invalidate: Invalidate,
    files: Table<Opened>,
    dirs: Table<OpenDir>,
    known: RefCell<Known>,
    directories: Arc<Directories>,
    under_way: Cell<u64>,
    idle: Notify,
}

impl Fs {
    /// The state of a mount that just began. `cache`: how long the kernel believes names and attributes; `direct`: every
    /// file is read and written past its page cache; `directories`: as new, with the same `cache`.
    pub fn new(
        env: Env,
        client: Client,
        cache: Duration,
        direct: bool,
        invalidate: Invalidate,
        directories: Arc<Directories>,
    ) -> Fs {
        if directories.are_believed() {
            let (directories, env) = (directories.clone(), env.clone());
            client.hear_directories(move |dir, asked_at, attr| match attr {
                Some(attr) => directories.saw(attr, asked_at),
                None => directories.changed(dir, env.now()),
            });
        }
        Fs {
            env,
            client,
            cache,
            direct,
            invalidate,
            files: Table::default(),
            dirs: Table::default(),
            known: RefCell::new(Known::new(cache)),
            directories,
            under_way: Cell::new(0),
            idle: Notify::default(),
        }
    }

    /// How long the kernel may believe names and attributes.
    pub fn cache(&self) -> Duration {
        self.cache
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Run one request as a task of its own.
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

    /// End: what is under way has until `grace` from now; then everything open is closed and the client's sessions end.
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
        self.client.close().await;
    }

    fn now(&self) -> Instant {
        self.env.now()
    }

    /// Attributes go out: what they tell is remembered.
    fn saw(&self, attr: Attr) -> Attr {
        let mut known = self.known.borrow_mut();
        known.saw_mode(attr.handle, attr.mode, self.now());
        known.told_size(attr.handle, attr.size, self.now());
        attr
    }

    /// A directory was changed through this mount, or perhaps.
    fn directory_changed(&self, dir: Handle) {
        self.directories.changed(dir, self.now());
    }

    /// An object was changed through this mount.
    fn changed(&self, object: Handle) {
        self.known.borrow_mut().changed(object, self.now());
    }
}

/// What is open, by the number the kernel holds it with. Numbers are not used twice.
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

    fn take_all(&self) -> Vec<Rc<T>> {
        self.open.take().into_values().collect()
    }
}
