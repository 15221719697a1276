//! `Local`: a directory of any mounted file system, as a [`Vfs`](crate::Vfs).
//!
//! ```text
//!   handle ──▶ node ─┬─ descriptor            held, or
//!                    ├─ a file that is open   or
//!                    └─ parent's handle, name ──▶ looked up again, and compared: else `Stale`
//! ```
//!
//! **Handles.** The directory is [`Handle::ROOT`](shoal_proto::Handle::ROOT). An object's handle is its
//! inode number, if it is on the same device. Otherwise the handle is a number from 2^63 upwards
//! ([`nodes`]): for an object of a file system mounted below, for an inode number that does not fit, and for
//! an inode number whose former object still has the handle. A *node* is an object that is known here. It is
//! known while a kernel refers to it or has it open, and while a known node lies in it. Other nodes are kept
//! until there are too many.
//!
//! **Descriptors.** A node's descriptor of `O_PATH` leads to its object whatever happens to the name. A
//! process may have only so many: beyond a limit a node is found by its parent and its name ([`way`]), and
//! its device, number and birth are compared. An object that lost its name by a call here, and that a kernel
//! refers to, keeps its descriptor.
//!
//! **Other programs** may change the directory at any time; only nodes are cached. A subdirectory that they
//! move out of the directory stays the same object for kernels that refer to it.
//!
//! **Nothing outside is touched**: no symbolic link is followed, and `..` is read but never entered. File
//! systems mounted below are entered.
//!
//! **Calls** of the host block. So a thread of a pool makes them, with a deadline for each call ([`calls`]).
//! A host that does not answer occupies that thread. With the option `inline` the thread of the event loop
//! makes the calls. The host checks the permissions of this process; the kernel of a mount checks the
//! permissions of its users.

mod attributes;
mod calls;
mod file;
mod listing;
mod names;
mod nodes;
mod vfs;
mod way;
mod xattrs;

pub use file::LocalFile;
pub use listing::LocalListing;

use crate::{Connect, Error, Result};
use nodes::Nodes;
use shoal_env::{Env, HostFacts, HostFiles, HostNode};
use shoal_proto::{Handle, Status};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Descriptors kept by default: this part of those that the process may have, and no more than that.
const DESCRIPTORS_PART: u64 = 4;
const DESCRIPTORS_MOST: u64 = 64 * 1024;
/// Time for each call of the host, by default.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How a directory becomes a file system.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// The directory.
    pub dir: PathBuf,
    /// Refuse all changes.
    pub read_only: bool,
    /// Time for each call of the host.
    pub timeout: Duration,
    /// Make the host's calls on the world's own thread, which then waits for them: for programs that do one
    /// thing after the other.
    pub inline: bool,
    /// Descriptors of objects that are kept, at most; `None`: a quarter of those that the process may have.
    pub descriptors: Option<usize>,
    /// Known objects that are not in use, and are kept, at most; `None`: 65,536.
    pub idle: Option<usize>,
}

impl LocalOptions {
    /// A directory, with what is usual.
    pub fn new(dir: impl Into<PathBuf>) -> LocalOptions {
        let (dir, descriptors, idle) = (dir.into(), None, None);
        LocalOptions { dir, read_only: false, timeout: TIMEOUT, inline: false, descriptors, idle }
    }
}

/// See the module. Clones share it.
#[derive(Clone)]
pub struct Local(Rc<State>);

type Listener = Rc<dyn Fn(Handle)>;

struct State {
    env: Env,
    host: Arc<dyn HostFiles>,
    options: LocalOptions,
    nodes: RefCell<Nodes>,
    removals: RefCell<Option<Listener>>,
    files_opened: Cell<u64>,
    is_closed: Cell<bool>,
}

impl Connect for LocalOptions {
    type Vfs = Local;

    fn under_a_kernel(&mut self, read_only: bool) {
        self.read_only |= read_only;
    }

    async fn connect(self, env: Env) -> Result<Local> {
        let host = env.host().map_err(|error| refused(&self.dir, &error))?;
        let most = (host.descriptors_max() / DESCRIPTORS_PART).min(DESCRIPTORS_MOST);
        let kept = self.descriptors.unwrap_or(most as usize);
        let (dir, opening) = (self.dir.clone(), host.clone());
        let seen = calls::run(&env, &host, &self, "connect", move |_| see(&*opening, &dir));
        let (root, facts) = seen.await?.map_err(|error| refused(&self.dir, &error))?;
        let idle = self.idle.unwrap_or(nodes::IDLE_MAX);
        let nodes = RefCell::new(Nodes::new(root, &facts, (idle, kept)));
        Ok(Local(Rc::new(State {
            env,
            host,
            options: self,
            nodes,
            removals: RefCell::default(),
            files_opened: Cell::new(0),
            is_closed: Cell::new(false),
        })))
    }
}

/// Open the directory, which can be listed.
fn see(host: &dyn HostFiles, dir: &Path) -> std::io::Result<(HostNode, HostFacts)> {
    let root = host.root(dir)?;
    host.list(&root)?;
    let facts = host.facts(&root)?;
    Ok((root, facts))
}

/// Why a directory cannot be a file system.
fn refused(dir: &Path, error: &std::io::Error) -> Error {
    let dir = dir.display();
    let refusal = Error::of_kernel(error, "connect");
    let words = match refusal.status {
        Status::NotFound => format!("{dir} does not exist: make it, or mount the file system that holds it"),
        Status::NotDirectory => format!("{dir} is not a directory: name one"),
        Status::AccessDenied | Status::NotPermitted => format!("{dir} cannot be read: {error}"),
        _ => format!("{dir} cannot be used: {error}"),
    };
    refusal.because(words)
}
