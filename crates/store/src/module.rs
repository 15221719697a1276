//! The module interface: the operations of every kind of store.
//!
//! The synchronous part ([`Module::lookup`], [`Module::scan`], [`Module::apply`]) never blocks and never
//! waits: it searches the tables in memory, then the loaded rows. A key that may exist and is in none of
//! these is *missing*: [`Module::load`] loads it on another thread, and the handler runs again from its
//! start.

use crate::runs::OFFSET_MAX;
use crate::{Changes, StoreError, StreamInfo};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use shoal_env::WallTime;
use shoal_env::local::{Notify, Reached};
use shoal_pattern::ViewRun;
use shoal_proto::{Coalescing, Handle, StoreId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// A position in the journal's order: everything up to it is before everything after it. 0 = before the
/// first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

/// An open collection.
pub type Collection = Rc<dyn Module>;

/// Which module a collection was created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleKind {
    /// Journal, tables, streams on the local disk.
    Disk,
    /// The same semantics; nothing kept.
    Memory,
    /// Metadata in memory; stream data acknowledged and not done; reads return zeros.
    Null,
}

/// When replies to metadata changes leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MetadataSync {
    /// When the change is durable.
    #[default]
    AtReply,
    /// When the change is written to the kernel (`write(2)` of its group); durable at the next fsync.
    AtFsync,
    /// At once; written in the background (scratch).
    Never,
}

/// When replies to data writes leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DataSync {
    /// After `write(2)`; durable at the next fsync.
    #[default]
    AtFsync,
    /// When the data is durable.
    AtReply,
}

/// A collection's sync modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SyncModes {
    /// Metadata.
    pub metadata: MetadataSync,
    /// Data.
    pub data: DataSync,
    /// Which changes share a sync.
    pub coalescing: Coalescing,
}

/// A row as a handler sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The value.
    pub value: Bytes,
    /// The newest strong change of it that may not be durable yet.
    pub lsn: Lsn,
}

/// Result of [`Module::lookup`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The row.
    Found(Row),
    /// Surely no such row; `Lsn` of its removal if that may not be durable yet.
    Absent(Lsn),
    /// Must be loaded first.
    Unknown,
}

/// Rows of a range, in key order.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Rows found.
    pub rows: Vec<(Bytes, Bytes)>,
    /// Where to continue (`after` of the next call); `None` at the end of the prefix. A scan may stop early
    /// with few or no rows: it examines a bounded number of keys a turn.
    pub resume: Option<Bytes>,
    /// The newest strong change seen that may not be durable yet.
    pub lsn: Lsn,
}

/// The rows and contents that a handler missed: to be loaded before it runs again.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Single keys.
    pub keys: Vec<Bytes>,
    /// Ranges.
    pub ranges: Vec<RangeNeed>,
    /// Contents of small streams.
    pub contents: Vec<Handle>,
}

/// Rows of a range that a handler missed.
#[derive(Clone, Debug)]
pub struct RangeNeed {
    /// Prefix of the keys.
    pub prefix: Bytes,
    /// The key before the first; `None`: from the prefix's begin.
    pub after: Option<Bytes>,
    /// Most rows.
    pub limit: usize,
    /// The keys that each row leads to, to be loaded with it.
    pub follow: Option<Follow>,
}

/// A function from a row to the keys that it leads to. The code that knows the meaning of rows supplies it,
/// and the reader of the rows calls it, so that one load replaces two.
#[derive(Clone)]
pub struct Follow(pub Arc<Leading>);

/// Adds to the third argument where a row leads, from its key and value; on any thread.
pub type Leading = dyn Fn(&[u8], &[u8], &mut Leads) + Send + Sync;

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Follow")
    }
}

/// The destinations of rows.
#[derive(Clone, Debug, Default)]
pub struct Leads {
    /// Keys of rows.
    pub keys: Vec<Bytes>,
    /// Streams whose facts are needed.
    pub streams: Vec<Handle>,
}

/// Rows of a range as they were loaded.
#[derive(Clone, Debug)]
pub struct LoadedRange {
    /// Prefix of the keys.
    pub prefix: Bytes,
    /// The key before the first.
    pub after: Option<Bytes>,
    /// The last key covered; `None`: to the end of the prefix.
    pub last: Option<Bytes>,
    /// In the order of their keys.
    pub rows: Vec<(Bytes, Bytes)>,
}

impl Needs {
    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.ranges.is_empty() && self.contents.is_empty()
    }
}

/// Everything loaded for one request, beside the module's own cache of rows. Kept by the request while it
/// runs again.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// Single rows of the checkpoint's snapshot (`None`: absent there).
    pub rows: HashMap<Bytes, Option<Bytes>>,
    /// Its ranges, read completely.
    pub ranges: Vec<LoadedRange>,
    /// Contents of small streams, with the [`Lsn`]-independent identity of their home (encoded stream row),
    /// so that a stream changed since is loaded again.
    pub contents: BTreeMap<Handle, (Bytes, Bytes)>,
    /// The epoch of these rows; rows of an older view are discarded.
    pub epoch: u64,
}

/// Runs that are written with the old bytes between them ([`Module::write_over`]).
#[derive(Clone)]
pub struct Over {
    /// From the first byte of the runs to the last.
    pub span: Range<u64>,
    /// See [`Merging`].
    pub merge: Rc<Merging>,
}

/// Gives the runs to be written, inside the span, and their packed buffer, from the old bytes of the span.
/// `None`: the stream is small, and its old bytes are not to be written back. It is called again, with the
/// bytes of that moment, where the stream was cut meanwhile.
pub type Merging = dyn Fn(Option<&[u8]>) -> (Vec<ViewRun>, Bytes);

impl Over {
    /// The span as one run.
    ///
    /// # Errors
    /// A span that ends before it begins, or beyond the largest offset of a stream.
    pub(crate) fn whole(&self) -> Result<ViewRun, StoreError> {
        let len = self.span.end.checked_sub(self.span.start).filter(|_| self.span.end <= OFFSET_MAX);
        let len = len.ok_or_else(|| StoreError::invalid("a span that no stream has"))?;
        Ok(ViewRun { physical: self.span.start, packed: 0, len })
    }
}

impl fmt::Debug for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "over {:?}", self.span)
    }
}

/// Space requested before a change is executed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ask {
    /// Bytes its record will take in the journal (an upper estimate).
    pub journal_bytes: u64,
    /// Bytes its data will take in local files.
    pub stream_bytes: u64,
    /// The stream of these bytes, which says on which disk they will be; `None`: a new one's.
    pub stream: Option<Handle>,
    /// It frees space or ends something (removal, abort, finish): it may use the reserve.
    pub frees: bool,
}

/// Space granted; released when dropped (the file system itself then counts the bytes really used).
pub struct Admission(pub Option<Box<dyn FnOnce()>>);

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(give_back) = self.0.take() {
            give_back();
        }
    }
}

/// The id of what would be lost together: when any part differs between a write's reply and its fsync's,
/// the write may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct LossId {
    /// The kernel's boot id (the server's start for modules that keep nothing).
    pub boot: [u8; 16],
    /// How often this store was poisoned.
    pub poisonings: u64,
}

/// Space of a collection, for `statfs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all.
    pub total: u64,
    /// Bytes free for new data (without the reserve).
    pub available: u64,
    /// The disk, for collections that share one ([`shoal_env::DiskSpace::disk`]; 0: not known).
    pub disk: u64,
    /// Bytes free, as the file system says: the reserve is among them.
    pub free: u64,
    /// Bytes of those that only removals and recovery get.
    pub reserve: u64,
    /// Bytes of a journal segment; 0: there is no journal.
    pub segment: u64,
    /// Segments on the disk: in use, ready, and being prepared.
    pub segments: u64,
    /// A segment or a checkpoint found no space; changes may be refused although bytes are free.
    pub stuck: bool,
}

/// Counts of the store, for `shoal status --counters`; syscalls are in `env`'s counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreCounters {
    /// Batches applied.
    pub batches: u64,
    /// Bytes of records appended.
    pub journal_bytes: u64,
    /// Groups written.
    pub groups: u64,
    /// Groups made durable (syncs of the journal).
    pub group_syncs: u64,
    /// Operations (strong batches, and failed operations that waited among them).
    pub operations: u64,
    /// Operations applied and not yet taken to be written, now.
    pub queue_depth: u64,
    /// The maximum of `queue_depth`.
    pub queue_depth_max: u64,
    /// Bytes of records in memory that are not written yet, now.
    pub queue_bytes: u64,
    /// Most operations whose sync was postponed (policy *watermark*).
    pub coalescing_depth_max: u64,
    /// Syncs that completed operations.
    pub operation_syncs: u64,
    /// Operations they completed.
    pub operations_synced: u64,
    /// Those syncs by how many operations each completed: 1, 2, to 4, to 8, to 16, to 32, to 64, more.
    pub operations_per_sync: [u64; 8],
    /// Bytes of groups written to segments: records, headers, alignment.
    pub written_bytes: u64,
    /// Bytes of zeros written to prepare segments.
    pub prewritten_bytes: u64,
    /// Checkpoints finished.
    pub checkpoints: u64,
    /// Bytes that checkpoints wrote to the tables.
    pub checkpoint_bytes: u64,
    /// Rows loaded from the checkpointed tables.
    pub loads: u64,
    /// Rows in the active and frozen tables.
    pub table_rows: u64,
    /// Approximate bytes of rows in memory: of the tables and of the cache, with the filters of their keys.
    pub row_bytes: u64,
    /// Bytes of contents of small streams in memory.
    pub content_bytes: u64,
    /// Segments in use.
    pub segments: u64,
    /// Bytes copied by garbage collection of the value log.
    pub cleaned_bytes: u64,
}

/// An open collection of some module. All methods belong to the shard's thread.
pub trait Module {
    /// The module.
    fn kind(&self) -> ModuleKind;

    // Rows, synchronously.

    /// Look a key up.
    fn lookup(&self, key: &[u8], loaded: &Loaded) -> Lookup;
    /// The same without copying the value: `look` gets it in place, if there is one. `None`: must be loaded
    /// first. The LSN is as of [`Module::lookup`].
    fn look(&self, key: &[u8], loaded: &Loaded, look: &mut dyn FnMut(&[u8])) -> Option<Lsn> {
        match self.lookup(key, loaded) {
            Lookup::Found(row) => {
                look(&row.value);
                Some(row.lsn)
            }
            Lookup::Absent(lsn) => Some(lsn),
            Lookup::Unknown => None,
        }
    }
    /// Rows whose key begins with `prefix` and is greater than `after`, at most `limit`. `None`: must be
    /// loaded first.
    fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize, loaded: &Loaded) -> Option<Scan>;
    /// Facts of a stream (its row). `Err(())`: must be loaded first.
    #[expect(clippy::result_unit_err, reason = "the only failure is `load first`")]
    fn stream(&self, handle: Handle, loaded: &Loaded) -> Result<Option<(StreamInfo, Lsn)>, ()>;
    /// Content of a small stream. `None`: must be loaded first.
    fn small_content(&self, handle: Handle, loaded: &Loaded) -> Option<Bytes>;
    /// The key of a stream's row.
    fn stream_key(&self, handle: Handle) -> Bytes;
    /// Load missing rows, off the thread, adding to `loaded`.
    fn load(&self, needs: Needs, loaded: Loaded) -> LocalBoxFuture<'static, Result<Loaded, StoreError>>;
    /// Apply a batch: visible at once, journaled in order. The caller holds an [`Admission`]. Rows of the
    /// streams it changes must be in memory: use [`Module::apply_over`] after a handler that loaded them.
    fn apply(&self, changes: Changes) -> Result<Lsn, StoreError> {
        self.apply_over(changes, &Loaded::default())
    }
    /// [`Module::apply`], in the same turn as the handler whose view was over `loaded`: rows in it count as
    /// in memory. A stream whose row is nowhere in memory is an error, and nothing is applied.
    fn apply_over(&self, changes: Changes, loaded: &Loaded) -> Result<Lsn, StoreError>;

    /// A changing operation failed: it takes the path of the successful ones (policies *per-op* and
    /// *watermark*), and its reply depends on the returned record.
    fn apply_failed(&self) -> Lsn {
        Lsn(0)
    }

    /// The folder on a local disk; `None`: nothing is kept.
    fn folder(&self) -> Option<&Path> {
        None
    }

    /// The number of the disk that a stream's file is on, or would be: for the order of transfers, and
    /// nothing else. Streams of one number share a disk.
    fn disk_of(&self, _handle: Handle) -> u16 {
        0
    }

    // Order and durability.

    /// Wait for space, and for room in the tables. Removals and finishing may use the reserve.
    fn admit(&self, ask: Ask) -> LocalBoxFuture<'static, Result<Admission, StoreError>>;
    /// The newest batch applied.
    fn applied(&self) -> Lsn;
    /// Up to here groups were written to the kernel.
    fn written(&self) -> Lsn;
    /// Up to here everything is durable.
    fn durable(&self) -> Lsn;
    /// The newest record that the store had when it was opened. Records that recovery adds come after it,
    /// so this is the folder's position, independent of how often it was opened.
    fn opened_at(&self) -> Lsn {
        Lsn(0)
    }
    /// Woken whenever `written` or `durable` moves or the store is poisoned.
    fn progress(&self) -> Notify;
    /// Woken up to `durable` whenever it moves, and all when the store is poisoned: for tasks that wait for
    /// one record.
    fn durables(&self) -> Reached;
    /// Request that everything applied so far becomes durable, in every mode; await with
    /// [`Module::durables`].
    fn push_durable(&self);
    /// A task waits until this record is durable: request that, unless it becomes so by itself (mode *at
    /// reply*, and it is strong, or a strong one follows it).
    fn want_durable(&self, _lsn: Lsn) {}
    /// Request that everything applied so far is written to the kernel soon; await with
    /// [`Module::progress`].
    fn push_written(&self) {}
    /// `Err` once poisoned.
    fn health(&self) -> Result<(), StoreError>;
    /// The store's id; [`StoreId::NONE`] for modules that keep nothing.
    fn store_id(&self) -> StoreId {
        StoreId::NONE
    }
    /// Whether its durable state outlives its process. The modules `memory` and `null` keep nothing.
    fn keeps(&self) -> bool {
        self.store_id() != StoreId::NONE
    }
    /// See [`LossId`].
    fn loss_id(&self) -> LossId;
    /// The sync modes.
    fn sync_modes(&self) -> SyncModes;
    /// Change the sync modes (kept durably).
    fn set_sync_modes(&self, modes: SyncModes) -> LocalBoxFuture<'static, Result<(), StoreError>>;

    // Streams, in bulk. Each waits its turn on the stream (writes and reads together; resize and removal
    // alone).

    /// Read runs of a stream into one packed buffer of `len` bytes (`ViewRun::packed` is the position in
    /// it). Beyond the size and in holes: zeros. Also returns the facts at that moment.
    fn read(
        &self,
        handle: Handle,
        generation: u64,
        runs: Vec<ViewRun>,
        len: usize,
    ) -> LocalBoxFuture<'static, Result<(Bytes, StreamInfo), StoreError>>;
    /// Write runs of a stream from a packed buffer. Returns after `write(2)` (or as durable as the data
    /// mode says); the row of its size and time follows in a later group. Small streams that outgrow their
    /// home move first.
    fn write(
        &self,
        handle: Handle,
        generation: u64,
        runs: Vec<ViewRun>,
        data: Bytes,
        at: WallTime,
    ) -> LocalBoxFuture<'static, Result<StreamInfo, StoreError>>;
    /// [`Module::write`] with the old bytes between the runs: they are read and written back in one turn, so
    /// that none comes back that was cut meanwhile. The caller lets no other writer into the span.
    fn write_over(
        &self,
        handle: Handle,
        generation: u64,
        over: Over,
        at: WallTime,
    ) -> LocalBoxFuture<'static, Result<StreamInfo, StoreError>>;
    /// Append at the current end; returns the offset of the data. `Stale` if the data would then end beyond
    /// `end_max`: the stream is not the place for it.
    fn append(
        &self,
        handle: Handle,
        generation: u64,
        end_max: u64,
        data: Bytes,
        at: WallTime,
    ) -> LocalBoxFuture<'static, Result<(u64, StreamInfo), StoreError>>;
    /// Reserve space; `extend` lets the size grow.
    fn allocate(
        &self,
        handle: Handle,
        generation: u64,
        offset: u64,
        len: u64,
        extend: bool,
        at: WallTime,
    ) -> LocalBoxFuture<'static, Result<StreamInfo, StoreError>>;
    /// Make a hole; the size stays.
    fn punch(
        &self,
        handle: Handle,
        generation: u64,
        offset: u64,
        len: u64,
        at: WallTime,
    ) -> LocalBoxFuture<'static, Result<StreamInfo, StoreError>>;
    /// Make everything written to the stream so far durable, size and metadata too.
    fn fsync(&self, handle: Handle) -> LocalBoxFuture<'static, Result<LossId, StoreError>>;

    /// Drop what the kernel has in memory of the stream's file and on the disk too. Bytes that no sync has
    /// covered stay.
    fn drop_pages(&self, _handle: Handle) -> LocalBoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    /// Whether the bytes of a stream were in a file that is not there any more. `false`: there is no such
    /// stream.
    fn has_lost_file(&self, _handle: Handle) -> LocalBoxFuture<'static, Result<bool, StoreError>> {
        Box::pin(async { Ok(false) })
    }

    /// Make everything durable that was applied or written so far: all rows, and the bytes of all streams.
    fn sync(&self) -> LocalBoxFuture<'static, Result<LossId, StoreError>>;

    // Further operations.

    /// Space, for `statfs`.
    fn space(&self) -> LocalBoxFuture<'static, Result<Space, StoreError>>;
    /// Counts.
    fn counters(&self) -> StoreCounters;
    /// Freeze and checkpoint all tables and wait (tests, clean stop).
    fn checkpoint(&self) -> LocalBoxFuture<'static, Result<(), StoreError>>;
    /// Stop cleanly: everything durable, background work ended.
    fn close(&self) -> LocalBoxFuture<'static, Result<(), StoreError>>;
}
