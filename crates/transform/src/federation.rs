//! One tree of names over the directories of several file systems: the backends.
//!
//! From PLFS's federation (Bent et al., SC'09; LANL's `plfsrc`): a static hash spreads the metadata of
//! containers over many metadata servers. [`Federated`] is a [`Vfs`] over several file systems of one type.
//! Containers lie over the federation and do not know of it.
//!
//! ```text
//!   the first backend                                  each other backend
//!   DIR/.shoal-federation/backend     its identity     DIR2/.shoal-federation/backend
//!                        /list.1      the backends                          /dirs/ID/name     in DIR/x
//!                        /objects/ID  see metalinks                         /objects/ID
//!   DIR/x/.shoal-folder               the ID of x
//!   DIR/x/name                        containers whose place is here
//! ```
//!
//! - **Directories** exist on the first backend. If a directory has entries on other backends, it has an ID,
//!   and each of those backends has a folder named by the ID. A renamed directory keeps its ID, so its
//!   rename is one rename of the first backend. The backend to which its name's hash leads has an empty
//!   folder that reserves the name.
//! - **Items** are directories made in the bin (`.shoal`): containers. An item lies whole on one backend,
//!   except its folders of logs, which are spread.
//! - **The place** of a name is its hash modulo the length of the newest list of backends. A look-up tries
//!   that backend, then the backends by the older lists, then the first backend. So no object moves when a
//!   backend is added.
//! - **A metalink** is a small file at a name's place, for an object that lies elsewhere. A rename leaves an
//!   object on its backend. If the place of the new name is another backend, the new name is a metalink.
//!
//! **A name changes by one rename of one backend**, with two exceptions ([`renames`]). A metalink is made
//! before the object's old name is removed, and leads nowhere until then. An exchange over two backends
//! makes both metalinks, and takes effect with the second of two exchanges.
//!
//! **Handles.** A directory's handle is the first backend's. Other handles have the backend and the kind in
//! bits 55 to 62.

mod attributes;
mod backends;
mod check;
mod file;
mod folders;
mod handles;
mod links;
mod listing;
mod locate;
mod name_space;
mod removal;
mod renames;
mod text;

pub(crate) use text::federation as own_name;

pub use backends::{FederationOptions, is_federated};
pub use check::{Federation, check, recover};
pub use file::FederatedFile;
pub use listing::FederatedListing;

use crate::limits::KINDS_KNOWN_MAX;
use folders::Folder;
use lru::LruCache;
use shoal_env::Env;
use shoal_proto::{Handle, Name, Status, Time};
use shoal_vfs::{Error, Result, Vfs};
use std::cell::{Cell, RefCell};
use std::num::NonZeroUsize;
use std::rc::Rc;
use text::LinkId;

/// See the module.
#[derive(Clone)]
pub struct Federated<V: Vfs>(Rc<Shared<V>>);

/// A backend.
struct Backend<V> {
    vfs: V,
    /// Its directory, for errors.
    called: String,
    id: LinkId,
    /// Its folder of folders, and that of objects that metalinks lead to.
    dirs: Cell<Handle>,
    objects: Cell<Handle>,
    /// Entries made in the two, and how many of them are durable.
    entries_made: Cell<u64>,
    entries_durable: Cell<u64>,
}

/// The state that all clones share.
struct Shared<V: Vfs> {
    env: Env,
    /// All backends of all lists; the first one first.
    backends: Vec<Backend<V>>,
    /// The lists, as places in `backends`; the newest one last.
    lists: Vec<Vec<usize>>,
    /// The first backend's own folder, with the lists; `None`: a directory by itself.
    own: Cell<Option<Handle>>,
    bin: Cell<Option<Handle>>,
    /// Directories that have folders on other backends.
    folders: RefCell<LruCache<Handle, Folder>>,
    /// Directories of backends that are known to be items or not, with their birth.
    kinds: RefCell<LruCache<(usize, Handle), (Time, bool)>>,
}

impl<V: Vfs> Federated<V> {
    fn new(env: Env, backends: Vec<Backend<V>>, lists: Vec<Vec<usize>>) -> Federated<V> {
        let known = NonZeroUsize::new(KINDS_KNOWN_MAX).unwrap_or(NonZeroUsize::MIN);
        Federated(Rc::new(Shared {
            env,
            backends,
            lists,
            own: Cell::new(None),
            bin: Cell::new(None),
            folders: RefCell::new(LruCache::new(known)),
            kinds: RefCell::new(LruCache::new(known)),
        }))
    }

    /// A backend.
    fn on(&self, backend: usize) -> &V {
        &self.0.backends[backend].vfs
    }

    fn first(&self) -> &V {
        self.on(0)
    }

    fn count(&self) -> usize {
        self.0.backends.len()
    }

    /// The place of a name in a list.
    fn place_in(list: &[usize], name: &Name) -> usize {
        list[(text::hash(name.as_bytes()) % list.len() as u64) as usize]
    }

    /// The place of a new name.
    fn place(&self, name: &Name) -> usize {
        self.0.lists.last().map_or(0, |list| Federated::<V>::place_in(list, name))
    }

    /// The backends that may have a name: the newest list's first, and the first backend last.
    fn places(&self, name: &Name) -> Vec<usize> {
        let mut places = Vec::new();
        for place in self.0.lists.iter().rev().map(|list| Federated::<V>::place_in(list, name)).chain([0]) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// Names of the federation's own, which are not shown.
    fn is_own(&self, dir: Handle, name: &Name) -> bool {
        *name == text::folder()
            || *name == text::leaving()
            || (dir == Handle::ROOT && *name == text::federation())
    }

    fn check_name(&self, dir: Handle, name: &Name, op: &'static str) -> Result<()> {
        if self.is_own(dir, name) {
            let words = "names that begin with `.shoal-` are this program's own";
            return Err(Error::new(Status::NotPermitted, op).of(dir).because(words));
        }
        Ok(())
    }

    /// The error of a backend, with its directory.
    fn said(&self, backend: usize, error: Error) -> Error {
        let is_of_the_host =
            matches!(error.status, Status::Io | Status::TimedOut | Status::Unavailable | Status::NoSpace);
        if !is_of_the_host || error.words.starts_with("backend ") {
            return error;
        }
        let words = format!("backend {}: {}", self.0.backends[backend].called, error.words);
        error.because(words)
    }

    /// Do it, and again if what is known of directories is not so any more.
    async fn fresh<T>(&self, dirs: &[Handle], work: impl AsyncFn() -> Result<T>) -> Result<T> {
        match work().await {
            Err(error) if error.status == Status::Stale => {
                dirs.iter().for_each(|dir| self.forget(*dir));
                self.reopen().await?;
                work().await
            }
            done => done,
        }
    }
}
