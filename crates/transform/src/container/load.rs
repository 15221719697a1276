//! Reading a container's logs.

use super::Shared;
use super::flat;
use super::names::{self, Contents, Dropping};
use crate::index::{Index, LogFacts};
use crate::limits::{FOLDERS, INDEX_LOG_BYTES_MAX, LOAD_BYTES, LOADS_AT_ONCE};
use crate::record::{RECORD_BYTES_MAX, Record, Records};
use crate::writer_id::WriterId;
use futures_util::{StreamExt, TryStreamExt, stream};
use shoal_proto::{Handle, Rights, Status};
use shoal_vfs::{Error, Listing, Result, Vfs, VfsFile};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The names of a container.
pub(super) async fn contents<B: Vfs>(over: &B, container: Handle) -> Result<Contents> {
    let mut listing = over.opendir(container, Duration::from_secs(1));
    let mut contents = Contents::default();
    while let Some(listed) = listing.next(false).await? {
        contents.add(listed.entry.name.as_bytes());
    }
    Ok(contents)
}

/// The logs of all writers of a container. Those that a flattened index covers are not opened.
pub(super) async fn logs<B: Vfs>(
    shared: &Shared<B>,
    container: Handle,
    contents: &Contents,
) -> Result<Vec<LogFacts>> {
    let over = &shared.over;
    let mut logs = Vec::new();
    let mut covered = flat::covered(over, container, contents).await;
    let mut writers = Vec::new();
    for (id, dropping) in &contents.writers {
        let same = |flat: &flat::Flat| dropping.is_some_and(|dropping| flat.is_of(&dropping));
        match covered.remove(id).filter(same) {
            Some(flat) => logs.push(flat.facts(*id)),
            None => writers.push((*id, *dropping)),
        }
    }
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
    logs.extend(read);
    Ok(logs)
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
pub(super) async fn whole<B: Vfs>(over: &B, object: Handle, size: u64) -> Result<Vec<u8>> {
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

/// One writer's logs. `dropping`: if it is closed.
pub(super) async fn log<B: Vfs>(
    shared: &Shared<B>,
    container: Handle,
    folder: Handle,
    id: WriterId,
    dropping: Option<Dropping>,
) -> Result<LogFacts> {
    let over = &shared.over;
    let nothing = |error: Error| if error.status == Status::NotFound { Ok(None) } else { Err(error) };
    // The data log's length first: every byte below it was named in the index log before it was appended. The
    // other way round, bytes of an entry that is not read yet would be taken for the last one's.
    let data = over.lookup(folder, &names::data(id)?).await.map(Some).or_else(nothing)?;
    let data = data.map_or(0, |attr| attr.size);
    let index = over.lookup(folder, &names::index(id)?).await.map(Some).or_else(nothing)?;
    let Some(index) = index else {
        return Ok(LogFacts { id, data: 0, is_whole: true, records: Vec::new() });
    };
    if index.size > INDEX_LOG_BYTES_MAX {
        let words = format!("the index log of writer {id} has {} bytes, over the limit", index.size);
        return Err(Error::new(Status::OverLimit, "open").of(container).because(words));
    }
    let records = records(over, index.handle, index.size).await?;
    let end = records.last().map_or(0, |(_, end)| *end);
    let is_closed = dropping.is_some_and(|closed| (closed.bytes, closed.index) == (data, end));
    let is_own = records.iter().any(|(record, _)| match record {
        Record::Head { boot, .. } => *boot == shared.env.boot_id(),
        _ => false,
    });
    Ok(LogFacts { id, data, is_whole: is_closed || is_own, records })
}

/// The records of an index log, decoded as they are read; they end at the first that is torn.
async fn records<B: Vfs>(over: &B, object: Handle, size: u64) -> Result<Vec<(Record, u64)>> {
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
    Ok(all)
}
