//! Module `disk`: a journal, tables in memory, checkpointed tables, and byte streams. The *home* of a
//! stream is the place of its bytes: the journal, a row, or a local file.
//!
//! The path of a change: a handler reads rows in memory ([`row_layers`]). Its batch is encoded into the
//! present *group* of the journal (the records of one write; [`apply`], [`journal`]) and entered into the
//! active table. The journal's writer makes the group durable. Later the table is frozen and checkpointed
//! ([`background`]). A segment of the journal is reused when it holds no live bytes ([`journal::segments`],
//! [`value_log_gc`]). Bytes of streams lie in the journal, in a row, or in a local file ([`streams`]).
//! [`open`] does recovery.
//!
//! The folder:
//!
//! ```text
//! collection     identity, format version, sync modes      (identity.rs)
//! lock           held while a server runs
//! poisonings     how often the store was poisoned, in digits
//! journal/       segments                                   (journal/group.rs)
//! tables/        the checkpointed rows                      (table.rs)
//! streams/xx/    local files of large streams
//! stream-folders the folders of such files on other disks    (streams/folders.rs)
//! ```
//!
//! Everything here belongs to the shard's thread. **Invariant: a `RefCell` is never borrowed over an await**
//! (held by the compiler: `clippy::await_holding_refcell_ref`).

mod admit;
pub mod aged;
mod apply;
mod background;
mod bloom;
pub mod hostile;
pub(crate) mod identity;
mod journal;
mod load;
mod module;
mod open;
mod row_layers;
mod streams;
mod table;
mod value_log_gc;

pub(crate) use identity::succeed;
pub(crate) use open::open;
pub(crate) use streams::folders::FolderNumber;

use crate::{CollectionConfig, LossId, Lsn, StoreCounters, StoreError, SyncModes};
use admit::Ledger;
use bytes::Bytes;
use journal::Journal;
use load::Loads;
use row_layers::RowLayers;
use shoal_env::local::{Notify, Reached};
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Env, OpenOptions, Task};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use streams::after::Cuts;
use streams::contents::Contents;
use streams::files::StreamFiles;
use streams::gates::Gates;
use table::Table;

/// Names a folder may hold before it is a collection: the rest of an interrupted creation.
const OWN_NAMES: [&str; 3] = ["collection.new", "lock", "lost+found"];
/// Folders in a collection's folder, made after the identity file.
const PARTS: [&str; 3] = ["journal", "tables", STREAMS];
/// The folder of the files of large streams.
const STREAMS: &str = "streams";

/// An open collection. Dropping it without [`close`](crate::Module::close) is a crash: background work
/// stops at once.
pub(crate) struct Disk {
    collection: Rc<CollectionState>,
    tasks: Vec<Task>,
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.collection.closed.set(true);
        for task in &self.tasks {
            task.cancel();
        }
    }
}

/// The shared state of a collection's tasks and operations.
struct CollectionState {
    env: Env,
    config: CollectionConfig,
    identity: identity::Kept,
    rows: RefCell<RowLayers>,
    table: Box<dyn Table>,
    journal: RefCell<Journal>,
    /// The newest record in the folder at open. Recovery's own records come after it.
    opened_at: Lsn,
    /// The LSN of the checkpointed table.
    checkpointed: Cell<Lsn>,
    files: StreamFiles,
    gates: Gates,
    cuts: RefCell<Cuts>,
    contents: RefCell<Contents>,
    /// Streams whose rows were changed in memory only: their record follows in a later group.
    weak: RefCell<BTreeSet<shoal_proto::Handle>>,
    loads: RefCell<Loads>,
    ledger: RefCell<Ledger>,
    modes: Cell<SyncModes>,
    poisoned: RefCell<Option<String>>,
    poisonings: Cell<u64>,
    counters: RefCell<StoreCounters>,
    closed: Cell<bool>,
    /// How many tasks wait for the end of all background work: it does not rest meanwhile.
    hurried: Cell<usize>,
    /// Rows that the next part of a checkpoint takes, by their kind.
    part_rows: RefCell<BTreeMap<u8, usize>>,
    /// Woken when `written` or `durable` moved, or the store was poisoned.
    progress: Notify,
    /// Tasks that wait until a record is durable; each is woken for its own.
    durables: Reached,
    /// There may be a group to write.
    work: Notify,
    /// There may be written groups to sync.
    syncs: Notify,
    /// There may be a table to checkpoint.
    freezes: Notify,
    /// There may be a segment to prepare, to free or to collect.
    segment_work: Notify,
    /// There is more room: a table was checkpointed, a segment is ready.
    room: Notify,
    /// Weak changes wait to be written.
    idle_work: Notify,
    /// A deferred change was applied.
    deferred: Notify,
}

/// Pause before a failed write of the count of poisonings is retried.
const POISONINGS_SPAN: Duration = Duration::from_secs(1);
/// Most segments that the changes of one table fill. A start replays at most so many for each table that is
/// not checkpointed.
const ROLLS_MAX: u32 = 4;

/// Keep the count of poisonings. Fsyncs of this run use the count in memory. After a restart of the server
/// alone, only this file shows that something was lost (after a power cut the boot id does). So the count
/// goes first to the page cache, which that restart sees even if the disk accepts nothing more, and then to
/// the disk, retried for as long as the process lives.
async fn keep_poisonings(env: &Env, path: &Path, count: Bytes) {
    let in_place = async {
        let file = env.open(path, OpenOptions { create: true, ..OpenOptions::default() }).await?;
        file.write_at(0, vec![count.clone()]).await
    };
    if let Err(error) = in_place.await {
        tracing::warn!(%error, path = %path.display(), "the count of poisonings is not written yet");
    }
    while let Err(error) = env.replace_file(path.to_owned(), count.clone()).await {
        tracing::warn!(%error, path = %path.display(), "the count of poisonings is not durable yet");
        env.sleep(POISONINGS_SPAN).await;
    }
}

impl CollectionState {
    fn health(&self) -> Result<(), StoreError> {
        match &*self.poisoned.borrow() {
            None => Ok(()),
            Some(why) => Err(StoreError::Poisoned(why.clone())),
        }
    }

    /// A write or sync failed: refuse everything from now on, and wake all waiting tasks, which then fail.
    fn poison(self: &Rc<Self>, error: &StoreError) {
        if self.poisoned.borrow().is_some() || self.closed.get() {
            return;
        }
        tracing::error!(%error, dir = %self.config.dir.display(), "the store is poisoned");
        *self.poisoned.borrow_mut() = Some(error.to_string());
        self.poisonings.set(self.poisonings.get() + 1);
        let waiting =
            [&self.progress, &self.work, &self.syncs, &self.freezes, &self.segment_work, &self.room];
        for notify in waiting.into_iter().chain([&self.idle_work, &self.deferred]) {
            notify.wake_all();
        }
        self.durables.wake_all();
        let (env, path) = (self.env.clone(), self.config.dir.join("poisonings"));
        let count = self.poisonings.get().to_string();
        self.env.spawn("store poison", async move { keep_poisonings(&env, &path, count.into()).await });
    }

    fn loss_id(&self) -> LossId {
        if mutant::is(Mutant::LoseBootId) {
            return LossId { boot: [0; 16], poisonings: self.poisonings.get() };
        }
        LossId { boot: self.env.boot_id(), poisonings: self.poisonings.get() }
    }

    /// The writer advanced.
    fn progressed(&self) {
        let (written, durable) = {
            let journal = self.journal.borrow();
            debug_assert!(journal.durable <= journal.written && journal.written <= journal.applied);
            (journal.written, journal.durable)
        };
        self.contents.borrow_mut().written(written);
        if self.journal.borrow_mut().segments.durable(durable) {
            self.segment_work.wake_all();
        }
        self.progress.wake_all();
        self.durables.wake_to(durable.0);
    }

    /// Request that everything up to `lsn` becomes durable.
    fn push_to(&self, lsn: Lsn) {
        let mut journal = self.journal.borrow_mut();
        if lsn > journal.push {
            journal.push = lsn;
            self.work.wake_all();
            self.syncs.wake_all();
        }
    }

    async fn wait_durable(&self, lsn: Lsn) -> Result<(), StoreError> {
        self.push_to(lsn);
        loop {
            self.health()?;
            if self.journal.borrow().durable >= lsn {
                return Ok(());
            }
            self.durables.wait(lsn.0).await;
        }
    }

    /// Wait until the groups up to `lsn` are written to the kernel; that happens soon in every mode.
    async fn wait_written(&self, lsn: Lsn) -> Result<(), StoreError> {
        loop {
            let moved = self.progress.wait();
            self.health()?;
            if self.journal.borrow().written >= lsn {
                return Ok(());
            }
            moved.await;
        }
    }

    /// Freeze the active table if it is full; or if it keeps a segment from being free, and no other table
    /// is being checkpointed. If a checkpoint takes longer than a segment lasts, tables grow, and larger
    /// ones cost less a row.
    fn freeze_if_due(&self) {
        let mut rows = self.rows.borrow_mut();
        let mut journal = self.journal.borrow_mut();
        let is_due = match rows.frozen.len() {
            0 => journal.rolls > 0 || self.active_is_full(&rows, &journal),
            frozen => frozen < row_layers::FROZEN_MAX && self.active_is_full(&rows, &journal),
        };
        if is_due {
            journal.rolls = 0;
            rows.freeze(journal.applied);
            self.freezes.wake_all();
        }
    }

    /// Whether the active table accepts no more changes until it can be frozen.
    fn active_is_full(&self, rows: &RowLayers, journal: &Journal) -> bool {
        rows.active_rows() >= self.config.table_rows_max
            || rows.active_bytes() >= self.config.table_bytes_max
            || journal.rolls >= ROLLS_MAX
    }
}
