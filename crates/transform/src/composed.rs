//! A composed directory: the small files of all processes lie in one physical file, or in a few.
//!
//! From the file composition technique (Ohno, Hori, Ishikawa: "File Composition Technique to Improve the
//! Performance of Accessing a Number of Small Files", 2015): a million small files cost a file system's
//! metadata server a million creations. The same bytes in one file cost it one creation. So each process
//! appends the bytes of its files, and the records that name them, to blocks of its own in a shared physical
//! file. With `names=own` a process needs no message to another process or to a metadata server for a single
//! file.
//!
//! ```text
//!   processes     A: a/1 a/2 …                B: b/1 …      C: …
//!   blocks.0      [A a/1 a/2 a/3][B b/1 b/2   ][C …         ]   …   [A a/4 …    ]
//!   claims/       0.0.0 → A      0.0.1 → B     0.0.2 → C            0.1.0 → A
//! ```
//! A block is as long as a stripe of the file system below, if that is known. A claim is made exclusively.
//!
//! - [`lanes`]: extents of blocks, and the names of the claims by which a writer reserves them;
//! - [`mod@format`]: settings, block headers, records, each with its own check sum;
//! - `log`: the writing half; `blocks`, `scan`: the reading half;
//! - [`index`], [`object`]: names and bytes; the newest record wins, by the hybrid clock;
//! - [`merged`]: the index in one file (the *merged directory*), so that a start reads it instead of all
//!   blocks;
//! - [`Composed`]: a [`Vfs`] over another one. The paper does not describe the format, how names are found,
//!   a later run with another number of processes, removal and crashes: these parts were designed here.
//!
//! **Publication.** When a close returns, the records of the file are in the physical file, and other
//! processes can read them. With `buffer=block` the records are there when their block is full, after an
//! fsync, when the process ends, and after 5 s at the latest. Another process looks for new records when it
//! opens a file, and before it reports that a name is missing.
//!
//! **A new name is made under a marker**, an exclusively created link that is removed once the name is
//! published (`marks`). So of several `O_EXCL` creations of one name only one succeeds. With `names=own`
//! there are no markers: if several processes make one name at the same time, each succeeds, and the newest
//! wins.

mod blocks;
mod change;
mod changes;
mod claim;
mod compact;
mod dead;
mod directory;
mod dissolve;
mod file;
pub mod format;
mod holds;
pub mod index;
pub mod lanes;
mod listing;
mod log;
mod marks;
pub mod merged;
mod name_space;
mod names_of;
pub mod object;
mod options;
mod scan;
mod settings;
mod sync;
pub mod tools;
mod whole;

pub(crate) use dissolve::{OTHERS_MAX, OTHERS_PAUSE, dissolve};
pub use file::ComposedFile;
pub use listing::ComposedListing;
pub use options::{ComposedOptions, Wishes};

use crate::clock::Clock;
use crate::writer_id::WriterId;
use blocks::Blocks;
use bytes::Bytes;
use format::{Made, Settings};
use index::Names;
use lanes::Extent;
use log::Log;
use merged::Extents;
use shoal_env::local::Semaphore;
use shoal_env::{Env, Instant};
use shoal_proto::{Handle, Kind, Owner, Rights, Status};
use shoal_vfs::{Error, RenameFlags, Result, Vfs, VfsFile};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Names of other programs that a directory may have.
const TOLERATED: [&[u8]; 1] = [b"lost+found"];
/// Bytes of settings that are read.
const SETTINGS_READ: usize = 4096;

/// The name that makes a directory a composed one.
pub(crate) const SETTINGS_NAME: &[u8] = names_of::SETTINGS.as_bytes();

/// So many new records are worth a sync at an open: to scan fewer takes less time.
const LEFT_AT_OPEN_MIN: u64 = 20_000;

/// A composed directory. See the module.
#[derive(Clone)]
pub struct Composed<B: Vfs>(pub(crate) Rc<Shared<B>>);

/// The state that the clones share.
pub(crate) struct Shared<B: Vfs> {
    env: Env,
    over: B,
    /// Host and process.
    words: String,
    settings: Settings,
    buffers_blocks: bool,
    publishes_writes: bool,
    changes: Option<changes::Changes<B::File>>,
    own_names: bool,
    read_only: bool,
    /// Of what is made below.
    owner: Owner,
    /// Attributes of the root, where no record says others.
    root_made: Made,
    root: Handle,
    claims: Handle,
    marks: Handle,
    blocks: Blocks<B::File>,
    names: RefCell<Names>,
    known: RefCell<Extents>,
    /// Extents that a compaction took from their writers.
    retired: RefCell<BTreeSet<(Extent, WriterId)>>,
    epoch: Cell<u64>,
    /// Records that the merged directory covers.
    covered: Cell<u64>,
    clock: Clock,
    log: Log<B>,
    syncs: sync::SyncRounds,
    /// Open files, by object.
    opens: RefCell<BTreeMap<u64, u64>>,
    /// One changes names.
    naming: Semaphore,
    refreshing: Semaphore,
    /// Refreshes that were begun.
    refreshes: Cell<u64>,
    /// The last of them that succeeded.
    refreshed: Cell<u64>,
    looked_at: Cell<Instant>,
    /// Files whose links are markers of names, and that no marker uses now.
    tokens: RefCell<Vec<marks::Token<B::File>>>,
    tokens_made: Cell<u64>,
    /// Names that were marked.
    marked: Cell<u64>,
    /// Syncs that failed: what they were to write may be lost.
    losses: Cell<u64>,
    /// The last one failed while no file was open.
    is_loss_unseen: Cell<bool>,
}

/// The settings of a directory, if it is composed.
async fn recorded<B: Vfs>(over: &B) -> Result<Option<Settings>> {
    let name = names_of::name(names_of::SETTINGS)?;
    let file = match over.open_name(Handle::ROOT, &name, Rights::READ).await {
        Err(error) if error.status == Status::NotFound => return Ok(None),
        file => file?,
    };
    let bytes = file.read(0, SETTINGS_READ).await?;
    file.close().await?;
    Settings::decode(&bytes).map(Some).map_err(|error| {
        let words = format!("its `{}`: {error}", names_of::SETTINGS);
        Error::new(Status::NotSupported, "open").because(words)
    })
}

/// Make a directory composed. Several processes may do so at the same time: one's settings are in force.
async fn compose<B: Vfs>(env: &Env, over: &B, owner: Owner, wishes: &Wishes) -> Result<Settings> {
    for name in over.names(Handle::ROOT).await? {
        let bytes = name.as_bytes();
        let is_own = bytes == names_of::CLAIMS.as_bytes()
            || bytes == names_of::MARKS.as_bytes()
            || bytes == names_of::SETTINGS.as_bytes()
            || bytes == names_of::CHANGES.as_bytes()
            || bytes.starts_with(b"blocks.")
            || bytes.starts_with(b"t.");
        if !is_own && !TOLERATED.contains(&bytes) {
            let words = format!(
                "it has `{name}`, which is not of a composed directory: begin with an empty directory, and copy files in \
                 through it (`shoal composed pack`)"
            );
            return Err(Error::new(Status::NotEmpty, "open").because(words));
        }
    }
    let folder = Owner { mode: owner.mode | (owner.mode & 0o444) >> 2 | 0o700, ..owner };
    for name in [names_of::CLAIMS, names_of::MARKS] {
        match over.mkdir(Handle::ROOT, &names_of::name(name)?, folder).await {
            Err(error) if error.status == Status::Exists => {}
            made => drop(made?),
        }
    }
    let mut id = [0; 16];
    env.random(&mut id);
    let block = match wishes.block {
        Some(block) => block,
        None => options::block_below(over).await,
    };
    let settings = Settings { version: settings::NEWEST, id, block, files: wishes.files.unwrap_or(1) };
    let rights = Rights::READ | Rights::WRITE;
    for file in 0..settings.files {
        let made = over.create(Handle::ROOT, &names_of::blocks(file)?, owner, false, rights).await?;
        made.2.close().await?;
    }
    let aside = names_of::name(&format!("t.{}", WriterId::draw(env)))?;
    let (_, _, file) = over.create(Handle::ROOT, &aside, owner, true, rights).await?;
    file.write(0, Bytes::from(settings.encode())).await?;
    file.fsync().await?;
    file.close().await?;
    let name = names_of::name(names_of::SETTINGS)?;
    let flags = RenameFlags { no_replace: true, exchange: false };
    let renamed = over.rename(Handle::ROOT, &aside, Handle::ROOT, &name, flags).await;
    if let Err(error) = renamed {
        drop(over.unlink(Handle::ROOT, &aside).await);
        if error.status != Status::Exists {
            return Err(error);
        }
    }
    over.fsync_directory(Handle::ROOT).await?;
    let missing = || Error::new(Status::Stale, "open").because("another program removed its settings");
    recorded(over).await?.ok_or_else(missing)
}

/// Whether this process may write the first physical file. Other errors of that file are reported later.
async fn may_write<B: Vfs>(over: &B) -> Result<bool> {
    match over.open_name(Handle::ROOT, &names_of::blocks(0)?, Rights::READ | Rights::WRITE).await {
        Ok(file) => file.close().await.map(|()| true),
        Err(error) => {
            Ok(!matches!(error.status, Status::AccessDenied | Status::ReadOnly | Status::NotPermitted))
        }
    }
}

impl<B: Vfs> Composed<B> {
    /// The composed directory at the root of `over`, made if it is empty.
    ///
    /// # Errors
    /// It is not empty and not composed, or damaged, or of a newer format; or the wishes differ from its
    /// settings.
    pub async fn open(env: Env, over: B, wishes: &Wishes) -> Result<Composed<B>> {
        let root = over.getattr(Handle::ROOT).await?;
        let owner = Owner { mode: root.mode & 0o666 | 0o600, uid: root.uid, gid: root.gid };
        let settings = match recorded(&over).await? {
            Some(settings) => settings,
            None if wishes.read_only => {
                let words = "it is not a composed directory: name the one that was given to `shoal mount --over DIR \
                             --transform composed`";
                return Err(Error::new(Status::Invalid, "open").because(words));
            }
            None => compose(&env, &over, owner, wishes).await?,
        };
        wishes.agree_with(&settings)?;
        // Those that may only read the physical files see the directory, and change nothing.
        let read_only = wishes.read_only || !may_write(&over).await?;
        let claims_name = names_of::name(names_of::CLAIMS)?;
        let claims = over.lookup(Handle::ROOT, &claims_name).await;
        if claims.is_err_and(|error| error.status == Status::NotFound) {
            dissolve::put_back(&env, &over).await?;
        }
        let folder = async |name: &str| {
            let found = over.lookup(Handle::ROOT, &names_of::name(name)?).await;
            let remedy = "restore it from a copy; without it no block can be found. If its removal was interrupted, \
                          remove it again";
            found.map_err(|error| scan::damaged(&format!("its folder `{name}`: {error}"), remedy))
        };
        let (claims, marks) = (folder(names_of::CLAIMS).await?.handle, folder(names_of::MARKS).await?.handle);
        let mut files = Vec::new();
        let rights = if read_only { Rights::READ } else { Rights::READ | Rights::WRITE };
        for number in 0..settings.files {
            let name = names_of::blocks(number)?;
            let file = over.open_name(Handle::ROOT, &name, rights).await.map_err(|error| {
                let remedy = "restore it from a copy, or `cp` the copy of the whole directory back";
                scan::damaged(&format!("its physical file `{name}`: {error}"), remedy)
            })?;
            files.push(file);
        }
        let changes = match read_only {
            true => None,
            false => changes::open(&over, owner, wishes.publishes_writes, settings.numbers()).await?,
        };
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let shared = Shared {
            words: format!("{}, process {}", host.trim(), std::process::id()),
            settings,
            buffers_blocks: wishes.buffers_blocks,
            publishes_writes: wishes.publishes_writes,
            changes,
            own_names: wishes.own_names,
            read_only,
            owner,
            root_made: Made {
                kind: Kind::Directory,
                mode: root.mode,
                uid: root.uid,
                gid: root.gid,
                rdev: 0,
                dir: 0,
                name: names_of::name("root")?,
                target: Bytes::new(),
            },
            root: Handle::ROOT,
            claims,
            marks,
            blocks: Blocks::new(settings, files),
            names: RefCell::default(),
            known: RefCell::default(),
            retired: RefCell::default(),
            epoch: Cell::new(0),
            covered: Cell::new(0),
            clock: Clock::default(),
            log: Log::new(WriterId::draw(&env)),
            syncs: sync::SyncRounds::default(),
            opens: RefCell::default(),
            naming: Semaphore::new(1),
            refreshing: Semaphore::new(1),
            refreshes: Cell::new(0),
            refreshed: Cell::new(0),
            looked_at: Cell::new(env.now()),
            tokens: RefCell::default(),
            tokens_made: Cell::new(0),
            marked: Cell::new(0),
            losses: Cell::new(0),
            is_loss_unseen: Cell::new(false),
            env,
            over,
        };
        let composed = Composed(Rc::new(shared));
        composed.0.read_anew().await?;
        if wishes.publishes_writes && !read_only {
            // No process of this kind ends in an orderly way: the next one leaves the directory.
            composed.0.leave_directory(LEFT_AT_OPEN_MIN).await;
        }
        Ok(composed)
    }

    /// The file system below.
    pub fn over(&self) -> &B {
        &self.0.over
    }

    /// The settings that it was made with.
    pub fn settings(&self) -> Settings {
        self.0.settings
    }
}

impl<B: Vfs> Shared<B> {
    fn check_writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(Error::new(Status::ReadOnly, "change")),
            false => Ok(()),
        }
    }

    /// An index of nothing but the root.
    fn empty_names(&self) -> Names {
        let mut names = Names::default();
        names.objects.entry(Handle::ROOT.0).or_default().made(0, &self.root_made);
        names
    }

    /// A number for a new object: odd, unless it is a file (`marks`).
    fn draw_object(&self, kind: Kind) -> u64 {
        loop {
            let object = self.env.random_u64() >> 1 | u64::from(kind != Kind::File);
            if object > 1 << 16 && !self.names.borrow().objects.contains_key(&object) {
                return object;
            }
        }
    }

    fn opened(&self, object: u64) {
        *self.opens.borrow_mut().entry(object).or_default() += 1;
    }

    fn closed(&self, object: u64) {
        let mut opens = self.opens.borrow_mut();
        if let Some(count) = opens.get_mut(&object) {
            *count -= 1;
            if *count == 0 {
                opens.remove(&object);
            }
        }
    }

    fn is_open(&self, object: u64) -> bool {
        self.opens.borrow().contains_key(&object)
    }
}

/// A name's error.
fn fails(status: Status, op: &'static str, object: Handle) -> Error {
    Error::new(status, op).of(object)
}
