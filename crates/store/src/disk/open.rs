//! Opening a collection: the folder's identity, then recovery.
//!
//! 1. Read the checkpointed table's LSN, and the live bytes of each segment.
//! 2. Replay the journal after that LSN; the rows become the first frozen table, and change the counts of
//!    live bytes.
//! 3. Continue the journal in a fresh segment.
//! 4. Complete the truncations of local files that the journal records and that were not carried out.
//! 5. Local files: remove one whose stream is gone or lives elsewhere; if a file is longer than its
//!    stream's size, the size becomes the file's (the record of a size follows its write; a killed server
//!    may not have written it).

use super::STREAMS;
use super::admit::Ledger;
use super::apply::INTENT_PREFIX;
use super::background::entry;
use super::bloom::BloomFilter;
use super::journal::Journal;
use super::journal::coalesce::Queues;
use super::journal::recover::Reader;
use super::journal::segments;
use super::load::Loads;
use super::row_layers::RowLayers;
use super::streams::contents::Contents;
use super::streams::files::StreamFiles;
use super::streams::folders::{self, FolderNumber};
use super::streams::gates::Gates;
use super::table::file::FileTable;
use super::table::live::Live;
use super::table::lmdb::LmdbTable;
use super::table::{LIVE_PREFIX, LSN_KEY, Table, decode_lsn};
use super::{CollectionState, Disk, background, identity, journal, value_log_gc};
use crate::stream_row::{Home, STREAM_PREFIX, StreamRow, stream_key};
use crate::{Collection, CollectionConfig, Lsn, Needs, RangeNeed, StoreCounters, StoreError};
use bytes::Bytes;
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Env, crash_point};
use shoal_proto::Handle;
use std::cell::{Cell, RefCell};
use std::io;
use std::path::Path;
use std::rc::Rc;

/// Bytes of a segment written at once.
const PREPARED_BYTES: u64 = 1 << 20;
/// Rows read from the table at once.
const ROWS_AT_ONCE: usize = 4096;
/// Rows read at once while files are compared with them.
const FILES_AT_ONCE: usize = 1024;

pub(crate) async fn open(env: Env, config: CollectionConfig) -> Result<Collection, StoreError> {
    let kept = prepare_folder(&env, &config).await?;
    env.crash_point(crash_point::START_BEGINS, 0);
    let collection = recover(env.clone(), config, kept).await?;
    let tasks = vec![
        env.spawn("store journal", journal::writer::run(collection.clone())),
        env.spawn("store syncs", journal::writer::syncs(collection.clone())),
        env.spawn("store checkpoints", background::checkpoints(collection.clone())),
        env.spawn("store segments", background::segments(collection.clone())),
        env.spawn("store idle work", background::idle_work(collection.clone())),
        env.spawn("store deferred", background::deferred(collection.clone())),
        env.spawn("store value log gc", value_log_gc::run(collection.clone())),
        env.spawn("store bloom", background::learn_keys(collection.clone())),
    ];
    let disk = Disk { collection: collection.clone(), tasks };
    collection.sample().await?;
    if !mutant::is(Mutant::ForgetCut) {
        collection.redo_cuts().await?;
    }
    env.crash_point(crash_point::START_CUTS, 0);
    collection.settle_files().await?;
    env.crash_point(crash_point::START_FILES, 0);
    Ok(Rc::new(disk))
}

async fn prepare_folder(env: &Env, config: &CollectionConfig) -> Result<identity::Kept, StoreError> {
    let dir = &config.dir;
    let error = |error: io::Error| StoreError::io(format!("preparing {}", dir.display()), &error);
    if config.create {
        env.create_dir(dir).await.map_err(error)?;
    }
    identity::check_free(env, config).await?;
    sync_ancestors(env, dir).await.map_err(error)?;
    lock(env, dir).await?;
    let kept = identity::check(env, config).await?;
    for part in super::PARTS.iter().filter(|part| **part != STREAMS) {
        env.create_dir(dir.join(part)).await.map_err(error)?;
    }
    env.sync_dir(dir).await.map_err(error)?;
    Ok(kept)
}

/// The folders of the files of streams: made with the store, before its journal. A store that has records
/// and lacks one has lost the bytes of larger files; made anew, it would look whole.
async fn stream_folders(env: &Env, dir: &Path, has_records: bool) -> Result<(), StoreError> {
    let streams = dir.join(STREAMS);
    if has_records {
        return match StreamFiles::missing_folder(env, &streams).await {
            None => Ok(()),
            Some(missing) => Err(lost_folder(&missing)),
        };
    }
    let made = async {
        env.create_dir(streams.clone()).await?;
        StreamFiles::make_folders(env, &streams).await?;
        env.sync_dir(dir).await
    };
    made.await.map_err(|error| StoreError::io(format!("preparing {}", streams.display()), &error))
}

/// The refusal of a store that lacks a part of the files of its streams.
pub(crate) fn lost_folder(missing: &Path) -> StoreError {
    StoreError::Damaged(format!(
        "{0} is not there: the bytes of larger files were in it; bring it back from a copy (to give them up, make it: \
         `mkdir -p {0}`)",
        missing.display()
    ))
}

/// Lock the folder until this environment ends.
pub(crate) async fn lock(env: &Env, dir: &Path) -> Result<(), StoreError> {
    env.lock(dir.join("lock")).await.map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => StoreError::Refused(format!(
            "{} is in use by another server: stop that one first, or name another folder",
            dir.display()
        )),
        _ => StoreError::io(format!("preparing {}", dir.display()), &error),
    })
}

/// Make the folder's own name durable, then its parent's, and so on up to the first that existed before;
/// folders that we may not open were not made by us.
async fn sync_ancestors(env: &Env, dir: &Path) -> io::Result<()> {
    for ancestor in dir.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()) {
        match env.sync_dir(ancestor).await {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            done => done?,
        }
    }
    Ok(())
}

pub(crate) async fn open_table(env: &Env, config: &CollectionConfig) -> Result<Box<dyn Table>, StoreError> {
    let dir = config.dir.join("tables");
    if env.native_path(&dir).is_some() {
        return Ok(Box::new(LmdbTable::open(env.clone(), &dir, config.table_map_bytes).await?));
    }
    Ok(Box::new(FileTable::open(env.clone(), &dir).await?))
}

async fn recover(
    env: Env,
    config: CollectionConfig,
    mut kept: identity::Kept,
) -> Result<Rc<CollectionState>, StoreError> {
    let table = open_table(&env, &config).await?;
    env.crash_point(crash_point::START_TABLES, 0);
    let lsn = table.fetch(vec![Bytes::from_static(LSN_KEY)], Vec::new()).await?.values.pop().flatten();
    let checkpoint = decode_lsn(lsn.as_deref())?;
    let mut live = checkpointed_live(table.as_ref()).await?;

    let journal_dir = config.dir.join("journal");
    let mut reader = Reader::open(&env, &journal_dir, kept.segment_bytes).await?;
    if reader.is_empty() && checkpoint > Lsn(0) {
        return Err(StoreError::Damaged(format!(
            "{} holds no segment: any records after LSN {}, the checkpoint's, are lost",
            journal_dir.display(),
            checkpoint.0
        )));
    }
    stream_folders(&env, &config.dir, checkpoint > Lsn(0) || !reader.is_empty()).await?;
    let folders = folders::open(&env, &config, &mut kept).await?;
    let replayed = reader.replay(checkpoint).await?;
    env.crash_point(crash_point::START_REPLAYED, 0);
    count_live(table.as_ref(), &replayed.rows, &mut live).await?;
    let unfinished = std::mem::take(&mut reader.unfinished);
    let mut segments = reader.segments(&live, checkpoint, &replayed)?;
    for path in unfinished {
        let removed = env.remove(&path).await;
        removed.map_err(|error| StoreError::io(format!("removing {}", path.display()), &error))?;
    }
    let settled = segments.sync_free(&env).await;
    settled.map_err(|error| StoreError::io(format!("syncing {}", journal_dir.display()), &error))?;
    if segments.ready() == 0 {
        let number = segments.number();
        let path = segments.path(number);
        let prepared =
            segments::prepare(&env, &path, kept.segment_bytes, PREPARED_BYTES, async |_| Ok(())).await;
        prepared.map_err(|error| StoreError::io(format!("preparing {}", path.display()), &error))?;
        segments.prepared(number);
    }

    let table_empty = checkpoint == Lsn(0);
    let bloom = BloomFilter::new(config.bloom_filter_bytes, env.random_u64(), table_empty);
    let (cache_rows, cache_bytes) = (config.row_cache_rows, config.row_cache_bytes);
    let mut rows = RowLayers::new(cache_rows, cache_bytes, table_empty, bloom);
    for (key, value) in replayed.rows {
        rows.replay(key, entry(value));
    }
    if rows.active_rows() > 0 {
        rows.freeze(replayed.last);
    }
    let journal = Journal::new(
        replayed.last,
        replayed.sequence,
        segments,
        kept.segment_bytes,
        config.group_bytes_max,
        Queues::new(kept.modes.coalescing),
    );
    let poisonings = poisonings(&env, &config.dir).await;
    Ok(Rc::new(CollectionState {
        rows: RefCell::new(rows),
        table,
        journal: RefCell::new(journal),
        opened_at: replayed.last,
        checkpointed: Cell::new(checkpoint),
        files: StreamFiles::new(env.clone(), folders, config.open_files),
        gates: Gates::default(),
        cuts: RefCell::default(),
        contents: RefCell::new(Contents::new(config.data_cache_bytes)),
        weak: RefCell::default(),
        loads: RefCell::new(Loads::default()),
        ledger: RefCell::new(Ledger::default()),
        modes: Cell::new(kept.modes),
        poisoned: RefCell::default(),
        poisonings: Cell::new(poisonings),
        counters: RefCell::new(StoreCounters::default()),
        closed: Cell::new(false),
        hurried: Cell::new(0),
        part_rows: RefCell::default(),
        progress: Default::default(),
        durables: Default::default(),
        work: Default::default(),
        syncs: Default::default(),
        freezes: Default::default(),
        segment_work: Default::default(),
        room: Default::default(),
        idle_work: Default::default(),
        deferred: Default::default(),
        identity: kept,
        env,
        config,
    }))
}

/// The live bytes of segments as of the last checkpoint.
async fn checkpointed_live(table: &dyn Table) -> Result<Live, StoreError> {
    let mut live = Live::default();
    let mut after: Option<Bytes> = None;
    loop {
        let (prefix, key) = (Bytes::from_static(LIVE_PREFIX), after.take());
        let range = RangeNeed { prefix, after: key, limit: ROWS_AT_ONCE, follow: None };
        let page = table.fetch(Vec::new(), vec![range]).await?.ranges.pop().unwrap_or_default();
        page.rows.iter().try_for_each(|(key, value)| live.add_row(key, value))?;
        match page.rows.last() {
            Some((last, _)) if !page.complete => after = Some(last.clone()),
            _ => return Ok(live),
        }
    }
}

/// Update the counts of live bytes with the replayed rows.
async fn count_live(
    table: &dyn Table,
    rows: &std::collections::BTreeMap<Bytes, Option<Bytes>>,
    live: &mut Live,
) -> Result<(), StoreError> {
    let streams: Vec<&Bytes> = rows.keys().filter(|key| key.first() == Some(&STREAM_PREFIX)).collect();
    for part in streams.chunks(FILES_AT_ONCE) {
        let keys = part.iter().map(|key| (*key).clone()).collect();
        let old = table.fetch(keys, Vec::new()).await?.values;
        for (key, old) in part.iter().zip(old) {
            let new = rows.get(*key).and_then(Option::as_ref);
            live.replace(key, old.as_deref(), new.map(|new| new.as_ref()))?;
        }
    }
    Ok(())
}

/// How often the store was poisoned. If a kept count cannot be read, it is replaced by one that no client
/// knows, so earlier unsynced writes count as lost. The new count is kept: writes from now on are not lost
/// by the next start.
async fn poisonings(env: &Env, dir: &Path) -> u64 {
    let path = dir.join("poisonings");
    let text = match env.read_file(&path, 32).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return 0,
        text => text.unwrap_or_default(),
    };
    if let Some(count) = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok()) {
        return count;
    }
    let count = env.random_u64() >> 1;
    if let Err(error) = env.replace_file(&path, Bytes::from(count.to_string())).await {
        tracing::warn!(%error, path = %path.display(), "the count of poisonings is not durable");
    }
    count
}

impl CollectionState {
    async fn redo_cuts(self: &Rc<Self>) -> Result<(), StoreError> {
        let prefix = Bytes::from_static(INTENT_PREFIX);
        let mut after: Option<Bytes> = None;
        let mut loaded = crate::Loaded::default();
        loop {
            let scan = self.rows.borrow().scan(&prefix, after.as_deref(), FILES_AT_ONCE, &loaded);
            let Some(scan) = scan else {
                let (prefix, after) = (prefix.clone(), after.clone());
                let ranges = vec![RangeNeed { prefix, after, limit: FILES_AT_ONCE, follow: None }];
                loaded = self.load(Needs { ranges, ..Needs::default() }, loaded).await?;
                continue;
            };
            for (key, value) in &scan.rows {
                self.redo_cut(key, value).await?;
            }
            after = scan.resume;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn redo_cut(self: &Rc<Self>, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let word = |bytes: Option<&[u8]>| bytes.and_then(|bytes| bytes.try_into().ok());
        let handle = word(key.get(INTENT_PREFIX.len()..)).map(u64::from_be_bytes);
        let size = word(value.get(..8)).map(u64::from_le_bytes);
        let (Some(handle), Some(size)) = (handle, size) else {
            return Err(StoreError::Damaged("the intent of a cut is malformed".into()));
        };
        self.cut(Handle(handle), size).await
    }

    async fn settle_files(self: &Rc<Self>) -> Result<(), StoreError> {
        let mut kept = false;
        for number in 0..self.files.folders().len() {
            let folder = FolderNumber(u16::try_from(number).unwrap_or(u16::MAX));
            for last_byte in 0..=255 {
                kept |= self.settle_part(folder, last_byte).await?;
            }
        }
        if !kept {
            self.files.begin_without_files();
        }
        Ok(())
    }

    /// Settle the files of one folder whose handles have this last byte. Returns whether any is a home.
    async fn settle_part(self: &Rc<Self>, folder: FolderNumber, last_byte: u8) -> Result<bool, StoreError> {
        let files = self.files.list(folder, last_byte).await?;
        let (mut kept, mut removed) = (false, false);
        for part in files.chunks(FILES_AT_ONCE) {
            // All rows at once; those of a part fit into the cache.
            let keys = part.iter().map(|(handle, _)| Bytes::copy_from_slice(&stream_key(*handle))).collect();
            self.load(Needs { keys, ..Needs::default() }, crate::Loaded::default()).await?;
            for (handle, len) in part {
                let is_kept = self.settle_file(*handle, folder, *len).await?;
                removed |= !is_kept;
                kept |= is_kept;
            }
        }
        if removed && let Some((handle, _)) = files.first() {
            // A later power cut must not restore them under a stream that had none, as far as its row knows.
            self.files.sync_name(*handle, folder).await?;
        }
        Ok(kept)
    }

    /// Keep the file if it is a stream's home; else remove it. Returns whether it is.
    async fn settle_file(
        self: &Rc<Self>,
        handle: Handle,
        folder: FolderNumber,
        len: u64,
    ) -> Result<bool, StoreError> {
        let row = match self.wait_row(handle).await {
            Ok((row, _)) if row.home == Home::File && row.folder == folder => row,
            Ok(_) | Err(StoreError::NoStream) => {
                self.files.remove(handle, folder).await?;
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if len > row.size && !mutant::is(Mutant::WrongSize) {
            self.put_weak(handle, &StreamRow { size: len, ..row });
        }
        Ok(true)
    }
}
