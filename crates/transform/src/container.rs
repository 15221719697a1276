//! A file system whose files are containers: directories of the file system below.
//!
//! Directories, symbolic links and devices are those of the file system below. A regular file is a directory
//! there with an access record. The handle of a file is the handle of its directory.
//!
//! ```text
//!   Vfs over        a name ── lookup ──> a directory ── lookup .shoal-container ──> found: a file
//!   State           of each container in use: its index, and the writers of this process
//!   Writer          of each open file that writes: a data log and an index log
//!   .shoal/         the bin, at the root below: containers that are being made, or were removed
//! ```
//!
//! **A name changes by one rename of the file system below.** A container is made in the bin and renamed to
//! its name. A removed container is renamed into the bin, where its open files stay usable, and is then
//! deleted ([`remove`], [`bin`]). So no killed process leaves half a file. A rename over a container
//! exchanges the two names, and then removes the replaced container. If the file system below cannot exchange
//! names, the target has no name for a moment.
//!
//! **Visibility.** In one process a write is seen at once. Between processes it is seen at the next open: an
//! open reads the logs anew, if the container's names changed or another writer is open.
//!
//! Hard links of files are refused: a directory has one name.

mod attributes;
mod bin;
mod close_together;
mod collective;
mod damage;
mod file;
mod flat;
mod fold;
mod listing;
mod living;
mod load;
mod name_space;
mod names;
mod pieces;
mod recover;
mod remove;
mod settings;
mod state;
pub mod tools;
mod writer;

pub use file::ContainerFile;
pub use listing::ContainerListing;
pub use settings::{ContainerSettings, IndexDesign};

use crate::group::{Meeting, Named};
use crate::limits::{IDLE_STATES_MAX, KINDS_KNOWN_MAX, RecordLimits};
use bytes::Bytes;
use lru::LruCache;
use shoal_env::Env;
use shoal_env::local::Notify;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Status, Time};
use shoal_vfs::{AnyVfs, Connect, Error, Result, Vfs};
use state::State;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroUsize;
use std::rc::Rc;

/// How containers over a file system are reached.
#[derive(Clone, Debug)]
pub struct ContainerOptions<C> {
    /// The file system below.
    pub over: C,
    /// How the indexes of many writers are read.
    pub index: IndexDesign,
    /// The group whose members open files for reading together.
    pub group: Option<Meeting>,
    /// Says in words that the group failed.
    pub says: fn(&str),
    /// A removal, a replacement and a last close return when the bytes are deleted: for processes that may
    /// end after any call.
    pub awaits_deletions: bool,
}

impl<C> ContainerOptions<C> {
    /// Containers over `over`, as a process without a group uses them.
    pub fn new(over: C) -> ContainerOptions<C> {
        ContainerOptions {
            over,
            index: IndexDesign::default(),
            group: None,
            says: |words| tracing::warn!("{words}"),
            awaits_deletions: false,
        }
    }

    /// The same, as the settings say; `group`: that of this process.
    pub fn with(self, settings: &ContainerSettings, group: Option<&Named>) -> ContainerOptions<C> {
        let (index, group) = settings.design(group);
        ContainerOptions { index, group, ..self }
    }
}

impl<C: Connect> Connect for ContainerOptions<C> {
    type Vfs = Container<AnyVfs>;

    fn under_a_kernel(&mut self, read_only: bool) {
        self.over.under_a_kernel(read_only);
    }

    async fn connect(self, env: Env) -> Result<Container<AnyVfs>> {
        let over = self.over.connect(env.clone()).await?;
        may_hold_containers(&over).await?;
        let says = self.says;
        let group = self.group.map(|meeting| OpenGroup { meeting, says });
        let container = Container::made(env, AnyVfs::of(over), self.index, group);
        container.is_used(self.awaits_deletions).await;
        Ok(container)
    }
}

/// Whether a directory may be one of containers.
async fn may_hold_containers<B: Vfs>(over: &B) -> Result<()> {
    let composed = shoal_proto::Name::new(crate::composed::SETTINGS_NAME).ok();
    if let Some(name) = composed
        && over.lookup(Handle::ROOT, &name).await.is_ok()
    {
        let words = "it is a composed directory: open it as one (`composed`), or name another directory";
        return Err(Error::new(Status::Invalid, "open").because(words));
    }
    if over.lookup(Handle::ROOT, &crate::federation::own_name()).await.is_ok() {
        let words = "it is one of several backends (it has `.shoal-federation`), and its files need all of \
                     them: name the first one, with its list of backends";
        return Err(Error::new(Status::Invalid, "connect").because(words));
    }
    Ok(())
}

/// The group that opens files together, and the way to say that it failed.
#[derive(Clone)]
struct OpenGroup {
    meeting: Meeting,
    says: fn(&str),
}

/// Reads of index logs, and of flattened indexes, from the file system below: the cost of opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IndexReads {
    /// Files that were opened.
    pub opens: u64,
    /// Bytes in them.
    pub bytes: u64,
}

/// Containers over a file system. See the module.
pub struct Container<B: Vfs>(pub(crate) Rc<Shared<B>>);

impl<B: Vfs> Clone for Container<B> {
    fn clone(&self) -> Container<B> {
        self.0.clones.set(self.0.clones.get() + 1);
        Container(self.0.clone())
    }
}

impl<B: Vfs> Drop for Container<B> {
    fn drop(&mut self) {
        self.0.clones.set(self.0.clones.get() - 1);
        if self.0.clones.get() == 0 {
            // Each has the shared state in turn: kept here, they would keep it, and all descriptors below.
            self.0.idle.borrow_mut().clear();
        }
    }
}

/// The state that the clones share.
pub(crate) struct Shared<B: Vfs> {
    clones: Cell<u64>,
    pub(crate) env: Env,
    pub(crate) over: B,
    /// Host and process, for the heads of logs.
    pub(crate) words: String,
    /// This process.
    process: Option<living::Process>,
    /// Directories below that are known to be containers (`true`) or not: neither ever becomes the other.
    /// With their birth: the handle of one that was removed may be another's.
    kinds: RefCell<LruCache<Handle, (Time, bool)>>,
    /// Of containers in use.
    states: RefCell<BTreeMap<Handle, Rc<State<B>>>>,
    /// Of containers that were in use; their logs can be continued.
    idle: RefCell<LruCache<Handle, Rc<State<B>>>>,
    pub(crate) bin: Cell<Option<Handle>>,
    /// Containers whose removal is under way: nothing leads to them any more.
    removing: RefCell<HashSet<Handle>>,
    /// The number of the next writer that is made here, for its folder.
    pub(crate) writers: Cell<u32>,
    pub(crate) design: IndexDesign,
    /// Set once, before the first call.
    awaits_deletions: Cell<bool>,
    record_limits: Cell<RecordLimits>,
    /// None after it failed.
    group: RefCell<Option<OpenGroup>>,
    index_reads: Cell<IndexReads>,
    /// Closes under way in the background.
    closes: Cell<u64>,
    removed: Notify,
}

/// The name that makes a directory a container.
pub(crate) fn record_name() -> Name {
    names::record()
}

/// The name of the directory of containers that have no name.
pub(crate) fn bin_name() -> Name {
    names::bin()
}

/// Whether a name in a container is that of a folder of logs.
pub(crate) fn is_folder_name(name: &Name) -> bool {
    name.as_bytes().starts_with(b"h.")
}

pub(crate) use load::whole as load_whole;

fn some(count: usize) -> NonZeroUsize {
    NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN)
}

impl<B: Vfs> Container<B> {
    /// Containers over `over`.
    pub fn new(env: Env, over: B) -> Container<B> {
        Container::made(env, over, IndexDesign::default(), None)
    }

    /// The same, of a directory that may be one of containers.
    ///
    /// # Errors
    /// It is a composed directory, or one of several backends.
    pub async fn checked(env: Env, over: B) -> Result<Container<B>> {
        may_hold_containers(&over).await?;
        Ok(Container::new(env, over))
    }

    fn made(env: Env, over: B, design: IndexDesign, group: Option<OpenGroup>) -> Container<B> {
        let words = living::own_words();
        let process = living::Process::parse(&words, names::short_boot(env.boot_id()));
        Container(Rc::new(Shared {
            clones: Cell::new(1),
            env,
            over,
            words,
            process,
            kinds: RefCell::new(LruCache::new(some(KINDS_KNOWN_MAX))),
            states: RefCell::default(),
            idle: RefCell::new(LruCache::new(some(IDLE_STATES_MAX))),
            bin: Cell::new(None),
            removing: RefCell::default(),
            writers: Cell::new(std::process::id()),
            design,
            awaits_deletions: Cell::new(false),
            record_limits: Cell::default(),
            group: RefCell::new(group),
            index_reads: Cell::default(),
            closes: Cell::new(0),
            removed: Notify::default(),
        }))
    }

    /// The file system below.
    pub fn over(&self) -> &B {
        &self.0.over
    }

    /// Make durable what files wrote that are closed: whether they are durable is known here only, and an
    /// fsync after this process forgot them would not cover them.
    ///
    /// # Errors
    /// Errors of the file system below; those of files that were removed are none.
    pub(crate) async fn sync_idle(&self) -> Result<()> {
        let states: Vec<_> = self.0.states.borrow().values().cloned().collect();
        let idle: Vec<_> = self.0.idle.borrow().iter().map(|(_, state)| state.clone()).collect();
        let mut synced = Ok(());
        for state in states.into_iter().chain(idle).filter(|state| state.has_unsynced()) {
            match state.sync().await {
                Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => {}
                done => synced = synced.and(done),
            }
        }
        synced
    }

    /// Reads of index logs, and of flattened indexes, so far.
    pub fn index_reads(&self) -> IndexReads {
        self.0.index_reads.get()
    }
}

impl<B: Vfs> Shared<B> {
    /// An index log, or a flattened index, of so many bytes is opened and read.
    fn reads_index(&self, len: u64) {
        let IndexReads { opens, bytes } = self.index_reads.get();
        self.index_reads.set(IndexReads { opens: opens + 1, bytes: bytes.saturating_add(len) });
    }

    /// Whether an object below is a container. These are its attributes there.
    ///
    /// A container that another process is deleting looks like a directory: so only [`Shared::named`] knows
    /// directories.
    pub(crate) async fn is_container(&self, attr: &Attr) -> Result<bool> {
        Ok(self.looked_at(attr).await?.unwrap_or(false))
    }

    /// `None`: it is another user's, and may be given to this one.
    async fn looked_at(&self, attr: &Attr) -> Result<Option<bool>> {
        if attr.kind != Kind::Directory || attr.handle == Handle::ROOT {
            return Ok(Some(false));
        }
        if self.removing.borrow().contains(&attr.handle) {
            return Err(Error::new(Status::Stale, "look up").of(attr.handle));
        }
        if let Some((born, known)) = self.kinds.borrow_mut().get(&attr.handle)
            && *born == attr.btime
        {
            return Ok(Some(*known));
        }
        match self.over.lookup(attr.handle, &names::record()).await {
            Ok(_) => {
                self.knows(attr, true);
                Ok(Some(true))
            }
            Err(error) if error.status == Status::NotFound => Ok(Some(false)),
            Err(error) if error.status == Status::AccessDenied => {
                Ok(attributes::is_marked(attr).then_some(true))
            }
            // A directory when its attributes were read: since then its number went to another object.
            Err(error) if error.status == Status::NotDirectory => {
                Err(Error::new(Status::Stale, "look up").of(attr.handle))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the object that a name led to is a container. `None`: the name leads to another one now.
    pub(crate) async fn named(&self, dir: Handle, name: &Name, attr: &Attr) -> Result<Option<bool>> {
        let is_known = self.kinds.borrow().peek(&attr.handle).is_some_and(|(born, _)| *born == attr.btime);
        let is = self.looked_at(attr).await;
        match is {
            Ok(Some(false)) if attr.kind == Kind::Directory && !is_known => {}
            Err(error) if error.status != Status::Stale && error.status != Status::NotFound => {
                return Err(error);
            }
            Err(_) => {}
            Ok(is) => return Ok(Some(is.unwrap_or(false))),
        }
        // It may have been replaced, and its record be gone already: only the object of a name is believed.
        let now = self.over.lookup(dir, name).await?;
        if (now.handle, now.btime) != (attr.handle, attr.btime) {
            return Ok(None);
        }
        if is == Ok(Some(false)) && attr.handle != Handle::ROOT {
            self.knows(attr, false);
        }
        is.map(|is| Some(is.unwrap_or(false)))
    }

    /// The access record of a container. `Stale`: it is being deleted, or is gone, and its number below may
    /// be another object's already, such as a log's.
    pub(crate) async fn record_of(&self, object: Handle) -> Result<Attr> {
        self.over.lookup(object, &names::record()).await.map_err(|error| match error.status {
            Status::NotFound | Status::NotDirectory => Error::new(Status::Stale, "look up").of(object),
            _ => error,
        })
    }

    /// Whether it was found to be a directory.
    pub(crate) fn is_known_directory(&self, attr: &Attr) -> bool {
        let kinds = self.kinds.borrow();
        let known = kinds.peek(&attr.handle);
        attr.handle == Handle::ROOT
            || known.is_some_and(|(born, is_container)| *born == attr.btime && !is_container)
    }

    /// Whether an object of this number was found to be a container, in a former life perhaps.
    pub(crate) fn was_container(&self, object: Handle) -> bool {
        self.kinds.borrow().peek(&object).is_some_and(|(_, is_container)| *is_container)
    }

    pub(crate) fn knows(&self, attr: &Attr, is_container: bool) {
        self.kinds.borrow_mut().push(attr.handle, (attr.btime, is_container));
    }

    /// An object below, if it is a container.
    pub(crate) async fn container(&self, object: Handle) -> Result<Option<Attr>> {
        let attr = self.over.getattr(object).await?;
        Ok(self.is_container(&attr).await?.then_some(attr))
    }

    /// A container is no directory for its users. Handles come from look-ups here, so one that is not known
    /// as a container is none.
    pub(crate) async fn is_directory(&self, dir: Handle, op: &'static str) -> Result<()> {
        if self.was_container(dir) && self.container(dir).await?.is_some() {
            return Err(Error::new(Status::NotDirectory, op).of(dir));
        }
        Ok(())
    }

    /// The state of a container, whose directory has these attributes.
    pub(crate) fn state(self: &Rc<Self>, dir: &Attr) -> Rc<State<B>> {
        let is_same = |state: &Rc<State<B>>| state.born == dir.btime;
        let known = self.states.borrow().get(&dir.handle).cloned().filter(is_same);
        known.unwrap_or_else(|| {
            let idle = self.idle.borrow_mut().pop(&dir.handle).filter(is_same);
            let state = idle.unwrap_or_else(|| State::new(self.clone(), dir));
            self.states.borrow_mut().insert(dir.handle, state.clone());
            state
        })
    }

    /// The state of a container that is in use.
    pub(crate) fn state_in_use(&self, object: Handle) -> Option<Rc<State<B>>> {
        self.states.borrow().get(&object).filter(|state| state.is_in_use()).cloned()
    }

    /// The last user is gone.
    pub(crate) fn is_idle(&self, state: &State<B>) {
        let mut states = self.states.borrow_mut();
        let is_it = states.get(&state.object).is_some_and(|known| known.born == state.born);
        if !state.is_in_use()
            && is_it
            && let Some(state) = states.remove(&state.object)
            && !state.is_removed.get()
            && self.clones.get() > 0
        {
            self.idle.borrow_mut().push(state.object, state);
        }
    }

    /// Whether bytes of the logs outlive this process without a sync.
    pub(crate) fn outlives_its_process(&self) -> bool {
        self.over.outlives_its_process()
    }

    /// Whether this process has a writer of a container.
    pub(crate) fn writes(&self, container: Handle, id: crate::WriterId) -> bool {
        self.states.borrow().get(&container).is_some_and(|state| state.writes(id))
    }

    /// Forget all about a container that is not in use.
    pub(crate) fn forget(&self, object: Handle) {
        self.kinds.borrow_mut().pop(&object);
        self.idle.borrow_mut().pop(&object);
    }

    /// Write a whole small file.
    pub(crate) async fn put(&self, dir: Handle, name: &Name, owner: Owner, content: Bytes) -> Result<()> {
        self.over.create_write(dir, name, owner, content).await.map(drop)
    }
}
