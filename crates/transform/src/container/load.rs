//! Reading a container's logs.

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

/// The logs of all writers of a container.
pub(super) async fn logs<B: Vfs>(
    over: &B,
    container: Handle,
    writers: impl Iterator<Item = WriterId>,
) -> Result<Vec<LogFacts>> {
    let writers: Vec<WriterId> = writers.collect();
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

async fn log<B: Vfs>(over: &B, container: Handle, folder: Handle, id: WriterId) -> Result<LogFacts> {
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
    let file = over.open(index.handle, Rights::READ).await?;
    let mut bytes = Vec::with_capacity(index.size as usize);
    while (bytes.len() as u64) < index.size {
        let want = LOAD_BYTES.min(index.size as usize - bytes.len());
        let read = file.read(bytes.len() as u64, want).await?;
        if read.is_empty() {
            break;
        }
        bytes.extend_from_slice(&read);
    }
    file.close().await?;
    let mut records = Records::new(&bytes);
    let found = records.by_ref().collect();
    if records.is_torn() {
        tracing::debug!("the index log of writer {id} has a torn tail");
    }
    Ok(LogFacts { id, data: data.map_or(0, |attr| attr.size), records: found })
}
