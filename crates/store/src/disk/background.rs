//! Background work: checkpoints, the preparation and the release of segments, and writes that no reply waits
//! for.

use super::CollectionState;
use super::journal::segments;
use super::row_layers::FROZEN_MAX;
use super::table::{Applied, Entry, Part, TableRows};
use crate::stream_row::{StreamRow, stream_key};
use crate::{CollectionConfig, Loaded, Lookup, Lsn, MetadataSync, RangeNeed, StoreCounters, StoreError};
use bytes::Bytes;
use futures_util::future::{Either, select};
use shoal_env::{Env, File, crash_point};
use shoal_proto::Handle;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Weak changes wait this long, so that more share a group.
const IDLE_SPAN: Duration = Duration::from_millis(20);
/// A deferred change waits this long for a task that needs it durable. Half of the promised second: the
/// sync takes time.
const DEFERRED_SPAN: Duration = Duration::from_millis(500);
/// Pause before an operation that found no space is retried.
const RETRY_SPAN: Duration = Duration::from_millis(100);
/// Keys that are read for the filter at once.
const KEYS_AT_ONCE: usize = 2048;
/// Most rows of one record of weak changes.
const WEAK_ROWS_MAX: usize = 256;
/// Approximate bytes of one write of a checkpoint's part or of a segment: they delay the journal's next
/// sync.
const PART_BYTES: u64 = 256 << 10;
/// Fewest rows of one part.
const PART_ROWS_MIN: usize = 64;
/// The longest rest after a part of background work.
const REST_MAX: Duration = Duration::from_millis(20);
const ENOSPC: i32 = 28;

fn is_no_space(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { errno: Some(ENOSPC), .. })
}

/// The rows of the next part of a kind: a part with room for `rows_max` rows had `rows` and wrote `bytes`.
/// The next has as many as write [`PART_BYTES`], at most twice as many. The last part of a kind, with fewer
/// rows than it had room for, can only lower the number.
fn rows_learnt(rows_max: usize, rows: usize, bytes: u64) -> usize {
    if rows < rows_max && bytes <= PART_BYTES {
        return rows_max;
    }
    let fitting = usize::try_from(rows as u64 * PART_BYTES / bytes.max(1)).unwrap_or(usize::MAX);
    fitting.min(rows.saturating_mul(2)).max(PART_ROWS_MIN)
}

/// Checkpoint frozen tables, oldest first, each when it is durable.
pub(super) async fn checkpoints(collection: Rc<CollectionState>) {
    loop {
        let woken = collection.freezes.wait();
        if collection.health().is_err() {
            return;
        }
        let oldest = collection.rows.borrow().frozen.front().map(|frozen| (frozen.rows.clone(), frozen.last));
        let Some((rows, last)) = oldest else {
            woken.await;
            continue;
        };
        if collection.wait_durable(last).await.is_err() {
            return;
        }
        match collection.checkpoint_table(rows, last).await {
            Ok(()) => {
                collection.checkpoint_ended(last);
                collection.env.crash_point(crash_point::CHECKPOINT_DONE, 0);
            }
            Err(error) if is_no_space(&error) => {
                collection.ledger.borrow_mut().stuck = true;
                collection.room.wake_all();
                collection.env.sleep(RETRY_SPAN).await;
            }
            Err(error) => collection.poison(&error),
        }
    }
}

/// After a start: read the keys of the table into the filter, page by page. Checkpoints add their own keys.
pub(super) async fn learn_keys(collection: Rc<CollectionState>) {
    let mut after: Option<Bytes> = None;
    while !collection.rows.borrow().bloom.complete {
        let key = after.take();
        let range = RangeNeed { prefix: Bytes::new(), after: key, limit: KEYS_AT_ONCE, follow: None };
        let Ok(mut fetched) = collection.table.fetch(Vec::new(), vec![range]).await else {
            // Then every lookup goes to the table itself.
            return;
        };
        let Some(page) = fetched.ranges.pop() else { return };
        let mut rows = collection.rows.borrow_mut();
        page.rows.iter().for_each(|(key, _)| rows.bloom.noted().insert(key));
        rows.bloom.complete = page.complete;
        after = page.rows.last().map(|(key, _)| key.clone());
    }
}

/// Keep a free segment ready; free dead ones.
pub(super) async fn segments(collection: Rc<CollectionState>) {
    loop {
        let woken = collection.segment_work.wait();
        if collection.health().is_err() {
            return;
        }
        let checkpointed = collection.checkpointed.get();
        let is_short = collection.journal.borrow().room() < collection.ledger.borrow().room_wanted;
        let (freed, surplus) = collection.journal.borrow_mut().segments.recycle(checkpointed, is_short);
        for path in surplus {
            // If the removal fails, the next start finds the file and uses it.
            drop(collection.env.remove(path).await);
        }
        // Only then: a task that waits for room wakes this task in turn.
        if freed {
            collection.room.wake_all();
        }
        match collection.segment_to_prepare() {
            None => woken.await,
            Some(number) => collection.prepare(number).await,
        }
    }
}

/// Write weak changes, a little later.
pub(super) async fn idle_work(collection: Rc<CollectionState>) {
    loop {
        collection.idle_work.wait().await;
        collection.env.sleep(IDLE_SPAN).await;
        if collection.health().is_err() {
            return;
        }
        collection.flush_weak();
        collection.journal.borrow_mut().hurry();
        collection.work.wake_all();
    }
}

/// Make deferred changes durable a while after the first of them, unless a task requests that earlier.
pub(super) async fn deferred(collection: Rc<CollectionState>) {
    loop {
        let woken = collection.deferred.wait();
        if collection.health().is_err() {
            return;
        }
        let at_reply = collection.modes.get().metadata == MetadataSync::AtReply;
        if !at_reply || collection.journal.borrow().unrequested().is_none() {
            woken.await;
            continue;
        }
        collection.env.sleep(DEFERRED_SPAN).await;
        let unrequested = collection.journal.borrow().unrequested();
        if let Some(lsn) = unrequested {
            collection.push_to(lsn);
        }
    }
}

async fn drop_elsewhere<T: Send + 'static>(env: &Env, value: T) {
    drop(env.offload(move || drop(value)).await);
}

impl CollectionState {
    async fn checkpoint_table(self: &Rc<Self>, rows: Arc<TableRows>, lsn: Lsn) -> Result<(), StoreError> {
        self.note_keys(rows.clone()).await?;
        self.env.crash_point(crash_point::CHECKPOINT_WRITES, 0);
        self.apply_in_parts(rows, lsn).await
    }

    /// Apply part by part. Each part's bytes go to the disk at once, and the journal's syncs meanwhile wait
    /// for them: so a part is small, and the disk rests after it as long as it took. If changes wait for
    /// the checkpoint's end, there is no rest.
    async fn apply_in_parts(self: &Rc<Self>, rows: Arc<TableRows>, lsn: Lsn) -> Result<(), StoreError> {
        let mut part = Part { rows, from: None, rows_max: 1, lsn };
        loop {
            let kind = part.kind();
            part.rows_max = self.rows_of_part(kind);
            let begun = self.env.now();
            let Applied { rows, next, bytes } = self.table.apply(part.clone()).await?;
            self.counters.borrow_mut().checkpoint_bytes += bytes;
            let learnt = rows_learnt(part.rows_max, rows, bytes);
            self.part_rows.borrow_mut().insert(kind, learnt);
            let Some(next) = next else { return Ok(()) };
            part.from = Some(next);
            self.env.crash_point(crash_point::CHECKPOINT_PART, 0);
            self.health()?;
            self.rest(self.env.now().since(begun)).await;
        }
    }

    /// Most rows of a kind in one part.
    fn rows_of_part(&self, kind: u8) -> usize {
        let rows_max = self.config.part_rows_max.max(1);
        self.part_rows.borrow().get(&kind).copied().unwrap_or(PART_ROWS_MIN).min(rows_max)
    }

    /// Let the disk rest from background work for a while, unless changes wait for it.
    async fn rest(&self, span: Duration) {
        let waited_for = self.hurried.get() > 0
            || self.rows.borrow().frozen.len() >= FROZEN_MAX
            || self.ledger.borrow().room_wanted > 0
            || self.segment_is_awaited();
        if !waited_for {
            self.env.sleep(span.min(REST_MAX)).await;
        }
    }

    /// Whether groups wait for a segment that is not ready, or the next ones would.
    fn segment_is_awaited(&self) -> bool {
        let journal = self.journal.borrow();
        journal.segments.wanted().is_some() || journal.segments.ready() == 0
    }

    /// Add the keys of a table to the filter before its checkpoint. Each costs a cache miss or two, and
    /// there are a hundred thousand: on another thread.
    async fn note_keys(&self, table: Arc<TableRows>) -> Result<(), StoreError> {
        let noted = self.rows.borrow().bloom.noted().clone();
        let note = move || {
            let keys = table.iter().filter(|(_, entry)| entry.value.is_some()).map(|(key, _)| key);
            keys.for_each(|key| noted.insert(key));
        };
        let done = self.env.offload_background(note).await;
        done.map_err(|error| StoreError::io("adding the keys of a checkpoint to the filter", &error))
    }

    /// The swap of views, in one step: the frozen table's rows are now the checkpointed ones.
    fn checkpoint_ended(self: &Rc<Self>, last: Lsn) {
        let old = self.rows.borrow_mut().checkpointed();
        self.checkpointed.set(last);
        self.counters.borrow_mut().checkpoints += 1;
        self.ledger.borrow_mut().stuck = false;
        if !old.is_empty() {
            // A large table takes milliseconds to drop.
            let env = self.env.clone();
            self.env.spawn("store drop", async move { drop_elsewhere(&env, old).await });
        }
        self.freeze_if_due();
        self.room.wake_all();
        self.segment_work.wake_all();
        self.freezes.wake_all();
    }

    fn segment_to_prepare(&self) -> Option<u64> {
        let mut journal = self.journal.borrow_mut();
        let wanted = journal.segments.wanted();
        let short = journal.segments.ready() < CollectionConfig::SEGMENTS_READY
            || journal.room() < self.ledger.borrow().room_wanted;
        wanted.or_else(|| short.then(|| journal.segments.number()))
    }

    async fn prepare(self: &Rc<Self>, number: u64) {
        let path = self.journal.borrow().segments.path(number);
        let bytes = self.identity.segment_bytes;
        self.env.crash_point(crash_point::SEGMENT_PREWRITES, number);
        let (begun, applied) = (Cell::new(self.env.now()), Cell::new(self.journal.borrow().applied));
        let between = async |file: &File| {
            let now_applied = self.journal.borrow().applied;
            if applied.replace(now_applied) == now_applied || self.segment_is_awaited() {
                // No changes would wait for it, or they wait for this segment.
                return Ok(());
            }
            // Direct writes do not burden the next flush.
            if !file.is_direct() {
                file.sync().await?;
            }
            self.rest(self.env.now().since(begun.get())).await;
            begun.set(self.env.now());
            Ok(())
        };
        self.ledger.borrow_mut().preparing = self.journal.borrow().segments.wanted() != Some(number);
        let prepared = segments::prepare(&self.env, &path, bytes, PART_BYTES, between).await;
        self.ledger.borrow_mut().preparing = false;
        match prepared {
            Ok(()) => {
                self.env.crash_point(crash_point::SEGMENT_READY, number);
                self.counters.borrow_mut().prewritten_bytes += bytes;
                self.ledger.borrow_mut().stuck = false;
                self.journal.borrow_mut().segments.prepared(number);
            }
            Err(error) if error.raw_os_error() == Some(ENOSPC) => {
                drop(self.env.remove(path).await);
                self.ledger.borrow_mut().stuck = true;
                self.room.wake_all();
                self.env.sleep(RETRY_SPAN).await;
            }
            Err(error) => {
                let context = format!("preparing {}", path.display());
                // After a failed sync the kernel may regard zeros as clean that it never wrote: the next
                // start would find a segment that looks ready.
                drop(self.env.remove(path).await);
                self.poison(&StoreError::io(context, &error));
            }
        }
        self.room.wake_all();
    }

    /// Change a stream's row in memory now; its record follows in a later group.
    pub(super) fn put_weak(&self, handle: Handle, row: &StreamRow) {
        let key = Bytes::copy_from_slice(&stream_key(handle));
        self.rows.borrow_mut().put(key, Some(row.encode()), None);
        self.weak.borrow_mut().insert(handle);
        self.idle_work.wake_all();
    }

    /// A weak change was applied.
    pub(super) fn flush_soon(&self) {
        self.idle_work.wake_all();
    }

    /// Record the rows that were changed in memory only.
    pub(super) fn flush_weak(&self) {
        let streams = std::mem::take(&mut *self.weak.borrow_mut());
        let streams: Vec<Handle> = streams.into_iter().collect();
        for part in streams.chunks(WEAK_ROWS_MAX) {
            let rows: Vec<(Bytes, Bytes)> =
                part.iter().filter_map(|handle| self.present_row(*handle)).collect();
            if rows.is_empty() {
                continue;
            }
            let len = super::journal::group::record_len(0, rows.iter().map(|(k, v)| (k.len(), v.len())));
            self.copied(len);
            let mut journal = self.journal.borrow_mut();
            let Ok(room) = journal.reserve(len, false, false) else { return };
            let mut record = super::journal::group::RecordWriter::new(room.record, 0);
            record.rows(rows.len());
            for (key, value) in &rows {
                record.row(key, Some(value));
            }
            journal.filled(len);
        }
    }

    fn present_row(&self, handle: Handle) -> Option<(Bytes, Bytes)> {
        let key = Bytes::copy_from_slice(&stream_key(handle));
        // A row that is in no table any more was checkpointed: it is durable.
        match self.rows.borrow().lookup(&key, &Loaded::default()) {
            Lookup::Found(row) => Some((key, row.value)),
            Lookup::Absent(_) | Lookup::Unknown => None,
        }
    }

    pub(super) async fn checkpoint(self: &Rc<Self>) -> Result<(), StoreError> {
        let _hurried = Hurried::new(self);
        self.flush_weak();
        let all = self.journal.borrow().applied;
        self.wait_durable(all).await?;
        loop {
            let moved = self.room.wait();
            self.health()?;
            {
                let mut rows = self.rows.borrow_mut();
                if rows.active_rows() == 0 && rows.frozen.is_empty() {
                    return Ok(());
                }
                let applied = self.journal.borrow().applied;
                if rows.active_rows() > 0 && rows.frozen.len() < FROZEN_MAX {
                    rows.freeze(applied);
                    self.freezes.wake_all();
                }
                // Changes applied from now on need no wait.
                if rows.frozen.is_empty() && self.checkpointed.get() >= all {
                    return Ok(());
                }
            }
            moved.await;
        }
    }

    /// On a full disk the rows stay in the journal, where they are already durable.
    async fn checkpoint_if_there_is_space(self: &Rc<Self>) -> Result<(), StoreError> {
        let mut checkpoint = std::pin::pin!(self.checkpoint());
        loop {
            let moved = self.room.wait();
            if self.ledger.borrow().stuck {
                let all = self.journal.borrow().applied;
                self.wait_durable(all).await?;
                tracing::warn!("the disk is full: the changes stay in the journal");
                return Ok(());
            }
            match select(checkpoint.as_mut(), moved).await {
                Either::Left((done, _)) => return done,
                Either::Right(_) => {}
            }
        }
    }

    pub(super) async fn close(self: &Rc<Self>) -> Result<(), StoreError> {
        if self.closed.get() {
            return Ok(());
        }
        if self.health().is_ok() {
            self.checkpoint_if_there_is_space().await?;
        }
        self.closed.set(true);
        self.table.close().await;
        self.health()
    }

    pub(super) fn counters(&self) -> StoreCounters {
        let journal = self.journal.borrow();
        StoreCounters {
            batches: journal.batches,
            journal_bytes: journal.bytes,
            groups: journal.groups_written,
            group_syncs: journal.syncs,
            operations: journal.queues.operations,
            queue_depth: journal.queues.scheduled(),
            queue_depth_max: journal.queues.scheduled_max,
            queue_bytes: journal.waiting_bytes() as u64,
            coalescing_depth_max: journal.queues.coalescing_max,
            operation_syncs: journal.operations_per_sync.iter().sum(),
            operations_synced: journal.operations_synced,
            operations_per_sync: journal.operations_per_sync,
            written_bytes: journal.bytes_written,
            table_rows: self.rows.borrow().len() as u64,
            row_bytes: self.rows.borrow().bytes() as u64,
            content_bytes: self.contents.borrow().bytes() as u64,
            segments: journal.segments.used() as u64,
            ..*self.counters.borrow()
        }
    }
}

/// A task waits for the end of background work.
struct Hurried(Rc<CollectionState>);

impl Hurried {
    fn new(collection: &Rc<CollectionState>) -> Hurried {
        collection.hurried.set(collection.hurried.get() + 1);
        Hurried(collection.clone())
    }
}

impl Drop for Hurried {
    fn drop(&mut self) {
        self.0.hurried.set(self.0.hurried.get() - 1);
    }
}

/// The rows of a table that is replayed, as a frozen table needs them.
pub(super) fn entry(value: Option<Bytes>) -> Entry {
    Entry { value, strong: Lsn(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_checkpoint_grows_while_it_writes_little_and_keeps_its_size_at_the_end_of_its_kind() {
        assert_eq!(rows_learnt(64, 64, PART_BYTES / 8), 128, "at most twice as many");
        assert_eq!(rows_learnt(4096, 4096, PART_BYTES), 4096);
        assert_eq!(rows_learnt(4096, 4096, 4 * PART_BYTES), 1024);
        assert_eq!(rows_learnt(4096, 30, PART_BYTES / 8), 4096, "the last of a kind");
        assert_eq!(rows_learnt(4096, 30, 4 * PART_BYTES), PART_ROWS_MIN, "which were too many all the same");
        assert_eq!(rows_learnt(4096, 0, 0), 4096);
    }
}
