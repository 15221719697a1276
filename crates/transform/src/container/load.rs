//! Reads a container's logs.

use super::Shared;
use super::flat;
use super::fold;
use super::names::{self, Contents, Dropping};
use crate::index::{Index, LogFacts};
use crate::limits::{FOLDERS, INDEX_LOG_BYTES_MAX, LOAD_BYTES, LOADS_AT_ONCE};
use crate::record::{Entry, RECORD_BYTES_MAX, Record, Records};
use crate::writer_id::WriterId;
use futures_util::{StreamExt, TryStreamExt, stream};
use shoal_proto::{Handle, Rights, Status};
use shoal_vfs::{Error, Result, Vfs, VfsFile};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Listings of one container, at most: one that was slow is made again.
const LISTINGS_MAX: usize = 10;

/// The names of a container, without those that were replaced.
///
/// A listing that meets a fold may show neither the old logs nor the new one. The old ones are deleted a
/// pause after the new one is there, so a listing that took less time is whole; a slower one is repeated.
pub(super) async fn contents<B: Vfs>(shared: &Shared<B>, container: Handle) -> Result<Contents> {
    let names = names_of(shared, container).await?;
    contents_of(shared, container, &names).await
}

/// The names of a container.
pub(super) async fn names_of<B: Vfs>(shared: &Shared<B>, container: Handle) -> Result<BTreeSet<Vec<u8>>> {
    let mut last: Option<BTreeSet<Vec<u8>>> = None;
    for _ in 0..LISTINGS_MAX {
        let begun = shared.env.now();
        let names = shared.over.names(container).await?;
        let found: BTreeSet<_> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        let is_whole = shared.env.now() - begun < fold::PAUSE / 2 || last.as_ref() == Some(&found);
        last = Some(found);
        if is_whole {
            break;
        }
    }
    Ok(last.unwrap_or_default())
}

/// The facts in these names.
pub(super) async fn contents_of<B: Vfs>(
    shared: &Shared<B>,
    container: Handle,
    names: &BTreeSet<Vec<u8>>,
) -> Result<Contents> {
    let mut contents = Contents::default();
    names.iter().for_each(|name| contents.add(name));
    if !contents.folded.is_empty() {
        fold::leave_replaced(&shared.over, container, &mut contents).await?;
    }
    Ok(contents)
}

/// The names of a container and its logs, of one moment: a fold may replace them in between.
pub(super) async fn all<B: Vfs>(shared: &Shared<B>, container: Handle) -> Result<(Contents, Vec<LogFacts>)> {
    let mut seen: Option<Contents> = None;
    for pause in [fold::PAUSE, CACHED_MAX, Duration::ZERO] {
        let found = contents(shared, container).await?;
        match logs(shared, container, &found).await {
            Err(error)
                if error.kernel.is_none()
                    && matches!(error.status, Status::Io | Status::NotFound | Status::Stale)
                    && seen.as_ref() != Some(&found) =>
            {
                seen = Some(found);
                shared.env.sleep(pause).await;
            }
            logs => return Ok((found, logs?)),
        }
    }
    let words = "it changes all the time";
    Err(Error::new(Status::Busy, "open").of(container).because(words))
}

/// The logs of all writers of a container. Those that a flattened index covers are not opened.
pub(super) async fn logs<B: Vfs>(
    shared: &Shared<B>,
    container: Handle,
    contents: &Contents,
) -> Result<Vec<LogFacts>> {
    let mut logs = covered(shared, container, contents).await;
    let others = others(contents, &logs.iter().map(|facts| facts.id).collect());
    logs.extend(some(shared, container, contents, others).await?);
    fold::cut_folded(contents, &mut logs);
    Ok(logs)
}

/// The logs that a flattened index covers.
pub(super) async fn covered<B: Vfs>(
    shared: &Shared<B>,
    container: Handle,
    contents: &Contents,
) -> Vec<LogFacts> {
    let mut covered = flat::covered(shared, container, contents).await;
    let mut logs = Vec::new();
    for (id, dropping) in &contents.writers {
        let same = |flat: &flat::Flat| dropping.is_some_and(|dropping| flat.is_of(&dropping));
        logs.extend(covered.remove(id).filter(same).map(|flat| flat.facts(*id)));
    }
    logs
}

/// A writer of a container, with its dropping if it is closed.
pub(super) type Known = (WriterId, Option<Dropping>);

/// The writers of a container whose logs are not among these.
pub(super) fn others(contents: &Contents, known: &BTreeSet<WriterId>) -> Vec<Known> {
    let writers = contents.writers.iter().filter(|(id, _)| !known.contains(id));
    writers.map(|(id, dropping)| (*id, *dropping)).collect()
}

/// The logs of some writers.
pub(super) async fn some<B: Vfs>(
    shared: &Shared<B>,
    container: Handle,
    contents: &Contents,
    writers: Vec<Known>,
) -> Result<Vec<LogFacts>> {
    let over = &shared.over;
    let numbers: BTreeSet<u32> = writers.iter().map(|(id, _)| id.folder(FOLDERS)).collect();
    let mut folders = BTreeMap::new();
    for number in numbers {
        match over.lookup(container, &names::folder(number)?).await {
            Ok(attr) => drop(folders.insert(number, attr.handle)),
            // Its writer made its name and nothing else yet.
            Err(error) if error.status == Status::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let mut known = Vec::new();
    for (id, dropping) in writers {
        match folders.get(&id.folder(FOLDERS)) {
            Some(folder) => known.push(log(shared, container, *folder, id, dropping)),
            None => is_long_enough(shared, container, id, dropping, (0, 0))?,
        }
    }
    let read: Vec<LogFacts> = stream::iter(known).buffered(LOADS_AT_ONCE).try_collect().await?;
    for facts in &read {
        let dropping = contents.writers.get(&facts.id).copied().flatten();
        let end = facts.records.last().map_or(0, |(_, end)| *end);
        is_long_enough(shared, container, facts.id, dropping, (facts.data, end))?;
    }
    Ok(read)
}

/// A closed writer's logs are at least as long as it left them. After another boot they may be shorter: a
/// power cut takes bytes that were not synced.
fn is_long_enough<B: Vfs>(
    shared: &Shared<B>,
    container: Handle,
    id: WriterId,
    dropping: Option<Dropping>,
    (data, index): (u64, u64),
) -> Result<()> {
    let boot = names::short_boot(shared.env.boot_id());
    match dropping {
        Some(left) if left.holds(boot) && (data < left.bytes || index < left.index) => {
            let words = format!(
                "the logs of writer {id} have {data} and {index} bytes, and it left {} and {}: \
                 `shoal container check`",
                left.bytes, left.index
            );
            Err(Error::new(Status::Io, "open").of(container).because(words))
        }
        _ => Ok(()),
    }
}

/// Build the index of them.
pub(super) fn index(container: Handle, logs: &[LogFacts]) -> Result<Index> {
    Index::build(logs).map_err(|error| {
        let words = format!("{error}; `shoal container check` says more");
        Error::new(Status::Io, "open").of(container).because(words)
    })
}

/// All bytes of a file below.
pub(crate) async fn whole<B: Vfs>(over: &B, object: Handle, size: u64) -> Result<Vec<u8>> {
    let file = over.open(object, Rights::READ).await?;
    let mut bytes = Vec::with_capacity(size as usize);
    while (bytes.len() as u64) < size {
        let want = LOAD_BYTES.min(size as usize - bytes.len());
        let read = file.read(bytes.len() as u64, want).await?;
        if read.is_empty() {
            break;
        }
        bytes.extend_from_slice(&read);
    }
    file.close().await?;
    Ok(bytes)
}

/// One writer's logs as they are.
pub(super) struct Read {
    pub(super) facts: LogFacts,
    /// Bytes of its data log.
    pub(super) data: u64,
    /// Bytes of its index log.
    pub(super) index: u64,
    /// Bytes of good records.
    pub(super) end: u64,
    /// The bytes after them are not the beginning of a record.
    pub(super) is_broken: bool,
    /// Its machine has not started anew since it was made, and what was written is in the logs since then.
    pub(super) is_own: bool,
    /// One of the two logs is not there.
    pub(super) is_missing: bool,
}

impl Read {
    /// Bytes of the data log that were durable, with their entries.
    pub(super) fn named(&self) -> u64 {
        let named = self.facts.records.iter().filter_map(|(record, _)| match record {
            Record::Named { data } => Some(*data),
            _ => None,
        });
        named.max().unwrap_or(0)
    }

    fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.facts.records.iter().filter_map(|(record, _)| match record {
            Record::Entry(entry) => Some(entry),
            _ => None,
        })
    }

    /// Bytes of the data log before the first entry's: a data log without entries has only those.
    pub(super) fn without_entry(&self) -> u64 {
        self.entries().next().map_or(self.data, |first| first.physical.min(self.data))
    }

    /// Bytes of entries that another one follows.
    pub(super) fn bounded(&self) -> u64 {
        self.entries().next_back().map_or(0, |last| last.physical)
    }

    /// Bytes that the data log has, if nothing is lost that this log proves.
    pub(super) fn needed(&self) -> u64 {
        // A power cut may take bytes that were not synced, and leave the entries after them.
        if self.is_own { self.named().max(self.bounded()) } else { self.named() }
    }

    /// Proven damage of a log whose writer is not closed: it is not read as if it were whole.
    fn is_sound(&self, container: Handle) -> Result<()> {
        let words = match () {
            () if self.data < self.needed() => "its data log is shorter than its index log says",
            () if self.is_own && self.is_broken => "a record of its index log is damaged",
            () => return Ok(()),
        };
        let words = format!("writer {}: {words}: `shoal container check`", self.facts.id);
        Err(Error::new(Status::Io, "open").of(container).because(words))
    }
}

/// Longer than mounts cache names and attributes, unless their options say otherwise.
pub(super) const CACHED_MAX: Duration = Duration::from_secs(1);

/// One writer's logs. `dropping`: if it is closed.
async fn log<B: Vfs>(
    shared: &Shared<B>,
    container: Handle,
    folder: Handle,
    id: WriterId,
    dropping: Option<Dropping>,
) -> Result<LogFacts> {
    let read = read(shared, container, folder, id, dropping).await?;
    if dropping.is_none() {
        read.is_sound(container)?;
    }
    Ok(read.facts)
}

/// One writer's logs as they are, whatever they are. `dropping`: if it is closed.
pub(super) async fn read<B: Vfs>(
    shared: &Shared<B>,
    container: Handle,
    folder: Handle,
    id: WriterId,
    dropping: Option<Dropping>,
) -> Result<Read> {
    let over = &shared.over;
    let nothing = |error: Error| if error.status == Status::NotFound { Ok(None) } else { Err(error) };
    // The data log's length first: every byte below it was named in the index log before it was appended. The
    // other way round, bytes of an entry that is not read yet would be taken for the last one's.
    let name = names::data(id)?;
    let data = over.lookup(folder, &name).await.map(Some).or_else(nothing)?;
    let index = over.lookup(folder, &names::index(id)?).await.map(Some).or_else(nothing)?;
    let is_missing = data.is_none() || index.is_none();
    let data = data.map_or(0, |attr| attr.size);
    let Some(index) = index else {
        let facts = LogFacts { id, data: 0, is_whole: true, records: Vec::new() };
        return Ok(Read { facts, data, index: 0, end: 0, is_broken: false, is_own: false, is_missing });
    };
    if index.size > INDEX_LOG_BYTES_MAX {
        let words = format!("the index log of writer {id} has {} bytes, over the limit", index.size);
        return Err(Error::new(Status::OverLimit, "open").of(container).because(words));
    }
    shared.reads_index(index.size);
    let (records, is_broken) = records(over, index.handle, index.size).await?;
    let end = records.last().map_or(0, |(_, end)| *end);
    let is_of_this_boot = records.iter().any(|(record, _)| match record {
        Record::Head { boot, .. } => *boot == shared.env.boot_id(),
        _ => false,
    });
    // Where bytes are published file by file, another process's logs are as after a power cut.
    let is_own = is_of_this_boot && (shared.outlives_its_process() || shared.writes(container, id));
    let facts = LogFacts { id, data, is_whole: false, records };
    let mut read = Read { facts, data, index: index.size, end, is_broken, is_own, is_missing };
    // Its writer may have gone on between the two: so it is looked at again before it is called damaged. And
    // a directory that is a mount itself may show an old length for a moment.
    for pause in [Duration::ZERO, CACHED_MAX] {
        if read.data >= read.needed() || dropping.is_some() {
            break;
        }
        shared.env.sleep(pause).await;
        let now = over.lookup(folder, &name).await.map(Some).or_else(nothing)?.map_or(0, |attr| attr.size);
        read.data = read.data.max(now.min(read.needed()));
    }
    let is_closed = dropping.is_some_and(|closed| (closed.bytes, closed.index) == (read.data, end));
    (read.facts.data, read.facts.is_whole) = (read.data, is_closed || is_own);
    Ok(read)
}

/// The records of an index log, decoded as they are read; they end at the first that is torn. And whether
/// what follows is not the beginning of one.
async fn records<B: Vfs>(over: &B, object: Handle, size: u64) -> Result<(Vec<(Record, u64)>, bool)> {
    let file = over.open(object, Rights::READ).await?;
    let (mut all, mut tail, mut from, mut at) = (Vec::new(), Vec::new(), 0, 0);
    while at < size {
        let read = file.read(at, LOAD_BYTES.min((size - at) as usize)).await?;
        if read.is_empty() {
            break;
        }
        at += read.len() as u64;
        tail.extend_from_slice(&read);
        let mut records = Records::new(&tail);
        all.extend(records.by_ref().map(|(record, end)| (record, from + end)));
        let done = records.position();
        from += done as u64;
        tail.drain(..done);
        if tail.len() > RECORD_BYTES_MAX {
            break;
        }
    }
    if !tail.is_empty() {
        tracing::debug!("an index log has a torn tail of at least {} bytes", tail.len());
    }
    file.close().await?;
    Ok((all, Records::new(&tail).is_broken()))
}
