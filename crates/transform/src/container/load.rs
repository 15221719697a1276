//! Reading a container's logs.

use super::flat;
use super::names::{self, Contents};
use crate::index::{Index, LogFacts};
use crate::limits::{FOLDERS, INDEX_LOG_BYTES_MAX, LOAD_BYTES, LOADS_AT_ONCE};
use crate::record::Records;
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
pub(super) async fn logs<B: Vfs>(over: &B, container: Handle, contents: &Contents) -> Result<Vec<LogFacts>> {
    let mut logs = Vec::new();
    let mut covered = flat::covered(over, container, contents).await;
    let mut writers = Vec::new();
    for (id, dropping) in &contents.writers {
        let same = |flat: &flat::Flat| dropping.is_some_and(|dropping| flat.is_of(&dropping));
        match covered.remove(id).filter(same) {
            Some(flat) => logs.push(flat.facts(*id)),
            None => writers.push(*id),
        }
    }
    logs.extend(read(over, container, writers).await?);
    Ok(logs)
}

async fn read<B: Vfs>(over: &B, container: Handle, writers: Vec<WriterId>) -> Result<Vec<LogFacts>> {
    let numbers: BTreeSet<u32> = writers.iter().map(|id| id.folder(FOLDERS)).collect();
    let mut folders = BTreeMap::new();
    for number in numbers {
        match over.lookup(container, &names::folder(number)?).await {
            Ok(attr) => drop(folders.insert(number, attr.handle)),
            // Its writer made its open record and nothing else yet.
            Err(error) if error.status == Status::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let read = writers.into_iter().filter_map(|id| Some((id, *folders.get(&id.folder(FOLDERS))?)));
    let read = read.map(|(id, folder)| log(over, container, folder, id));
    stream::iter(read).buffered(LOADS_AT_ONCE).try_collect().await
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

/// One writer's logs.
pub(super) async fn log<B: Vfs>(
    over: &B,
    container: Handle,
    folder: Handle,
    id: WriterId,
) -> Result<LogFacts> {
    let nothing = |error: Error| if error.status == Status::NotFound { Ok(None) } else { Err(error) };
    // The data log's length first: every byte below it was named in the index log before it was appended. The
    // other way round, bytes of an entry that is not read yet would be taken for the last one's.
    let data = over.lookup(folder, &names::data(id)?).await.map(Some).or_else(nothing)?;
    let index = over.lookup(folder, &names::index(id)?).await.map(Some).or_else(nothing)?;
    let Some(index) = index else { return Ok(LogFacts { id, data: 0, records: Vec::new() }) };
    if index.size > INDEX_LOG_BYTES_MAX {
        let words = format!("the index log of writer {id} has {} bytes, over the limit", index.size);
        return Err(Error::new(Status::OverLimit, "open").of(container).because(words));
    }
    let bytes = whole(over, index.handle, index.size).await?;
    let mut records = Records::new(&bytes);
    let found = records.by_ref().collect();
    if records.is_torn() {
        tracing::debug!("the index log of writer {id} has a torn tail");
    }
    Ok(LogFacts { id, data: data.map_or(0, |attr| attr.size), records: found })
}
