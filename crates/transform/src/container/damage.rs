//! The damage of a container's logs, in words.
//!
//! A kill in the middle of a write leaves the beginning of a record at the end of an index log, and no byte
//! of data that belongs to it. A power cut removes bytes that were not synced, and may leave any bytes in
//! their place. Every other difference is **damage**: acknowledged bytes are gone. (The bytes of an
//! acknowledged `write` must last as long as the machine runs. After an acknowledged `fsync` they must last
//! over a power cut too.)
//!
//! ```text
//!   shorter      the log is shorter than its records, its dropping, a truncation or the text of `w.ID` state
//!   broken       a whole record with a wrong check sum, or records after a wrong record
//!   nameless     bytes of a data log before the first entry of its index log
//! ```

use super::load::{self, Read};
use super::names::{self, Contents, Dropping};
use super::{Shared, flat};
use crate::limits::{FOLDERS, LOAD_BYTES};
use crate::record::{Cut, Record, found_within};
use crate::writer_id::WriterId;
use shoal_proto::{Handle, Rights, Status};
use shoal_vfs::{Error, Result, Vfs, VfsFile};

/// Bytes after damage in an index log that are searched for records, at most.
const SEARCHED_MAX: u64 = 64 << 20;

/// A writer's logs, looked at.
pub(super) struct Assessed {
    pub(super) dropping: Option<Dropping>,
    pub(super) read: Read,
    /// Proven damage.
    pub(super) damage: Vec<String>,
    /// A flattened index has its records: its own index log is not needed.
    pub(super) is_covered: bool,
    /// Its index log lacks records: bytes after its last one may be of any place.
    lacks_records: bool,
}

impl Assessed {
    /// Bytes of the data log that are read: after a restart of its machine those that were synced.
    pub(super) fn believed(&self) -> u64 {
        let read = &self.read;
        let is_whole = read.facts.is_whole && !read.is_broken && !self.lacks_records;
        if is_whole { read.data } else { read.data.min(read.named().max(read.bounded())) }
    }

    /// Bytes at the end of its index log that are no record.
    pub(super) fn torn(&self) -> u64 {
        self.read.index - self.read.end
    }
}

/// Look at the logs of all writers.
pub(super) async fn assess<B: Vfs>(
    shared: &Shared<B>,
    object: Handle,
    contents: &Contents,
) -> Result<Vec<Assessed>> {
    let mut covered = flat::covered(shared, object, contents).await;
    let mut all = Vec::new();
    for (id, dropping) in &contents.writers {
        let is_covered =
            covered.remove(id).is_some_and(|flat| dropping.is_some_and(|dropping| flat.is_of(&dropping)));
        let mut assessed = one(shared, object, *id, *dropping).await?;
        assessed.is_covered = is_covered && dropping.is_some_and(|left| assessed.read.data >= left.bytes);
        all.push(assessed);
    }
    named_by_cuts(&mut all);
    Ok(all)
}

async fn one<B: Vfs>(
    shared: &Shared<B>,
    object: Handle,
    id: WriterId,
    dropping: Option<Dropping>,
) -> Result<Assessed> {
    let over = &shared.over;
    let (mut damage, mut read) = (Vec::new(), None);
    let synced = match dropping {
        Some(_) => None,
        None => synced(over, object, id).await?,
    };
    match over.lookup(object, &names::folder(id.folder(FOLDERS))?).await {
        Ok(folder) => {
            let logs = load::read(shared, object, folder.handle, id, dropping).await?;
            damage = damage_of(&logs, dropping, synced);
            if logs.index > logs.end && !logs.is_own {
                let index = over.lookup(folder.handle, &names::index(id)?).await?;
                let records = records_after(over, index.handle, logs.end, logs.index).await?;
                if records > 0 {
                    damage.push(broken(&logs));
                }
            }
            read = Some(logs);
        }
        Err(error) if error.status == Status::NotFound => {
            let was = dropping.map(|left| left.bytes).or(synced.map(|(data, _)| data)).unwrap_or(0);
            if was > 0 {
                damage.push(format!("writer {id}: the folder of its logs is missing, with {was} bytes"));
            }
        }
        Err(error) => return Err(error),
    }
    let read = read.unwrap_or_else(|| Read {
        facts: crate::index::LogFacts { id, data: 0, is_whole: true, records: Vec::new() },
        data: 0,
        index: 0,
        end: 0,
        is_broken: false,
        is_own: false,
        is_missing: true,
    });
    let lacks_records = read.end < synced.map_or(0, |(_, index)| index);
    Ok(Assessed { dropping, read, damage, is_covered: false, lacks_records })
}

fn broken(read: &Read) -> String {
    let (id, end, rest) = (read.facts.id, read.end, read.index - read.end);
    format!(
        "writer {id}: the record at byte {end} of its index log is damaged; {rest} bytes from there are lost"
    )
}

/// Whether its process began to continue the closed logs, and was killed before it took the dropping away:
/// the index log has a record more, which makes known what the dropping did.
fn is_resumed(read: &Read, left: &Dropping) -> bool {
    let [.., (_, before), (Record::Named { data }, after)] = &read.facts.records[..] else { return false };
    (*before, *after, *data, read.data) == (left.index, read.index, left.bytes, left.bytes)
}

fn damage_of(read: &Read, dropping: Option<Dropping>, synced: Option<(u64, u64)>) -> Vec<String> {
    let id = read.facts.id;
    let mut found = Vec::new();
    if let Some(left) = dropping {
        let is_resumed = is_resumed(read, &left);
        for (log, now, wanted) in [("index", read.index, left.index), ("data", read.data, left.bytes)] {
            match now {
                _ if now == wanted || log == "index" && is_resumed => {}
                0 if read.is_missing => {
                    found.push(format!("{log}.{id} is missing; its writer closed it with {wanted} bytes"));
                }
                _ => found.push(format!("{log}.{id} has {now} bytes; its writer closed it with {wanted}")),
            }
        }
        if read.index > read.end {
            found.push(broken(read));
        }
        return found;
    }
    let (data, index) = synced.unwrap_or((0, 0));
    if read.is_missing && (index > 0 || read.data > 0 || read.index > 0) {
        found.push(format!("writer {id}: one of its logs is missing"));
    }
    if read.end < index {
        found.push(format!("index.{id} has {} good bytes; {index} were synced", read.end));
    }
    let wanted = data.max(read.needed());
    if read.data < wanted {
        let lost = wanted - read.data;
        found.push(format!("data.{id} has {} bytes; {lost} bytes that were written are gone", read.data));
    }
    if read.is_own && read.is_broken {
        found.push(broken(read));
    }
    let nameless = read.without_entry();
    if nameless > 0 && (read.is_own || read.named() > 0) {
        found.push(format!("writer {id}: {nameless} bytes of its data log have no entry in its index log"));
    }
    let is_of_another = |record: &Record| matches!(record, Record::Head { id: other, .. } if *other != id);
    if read.facts.records.iter().any(|(record, _)| is_of_another(record)) {
        found.push(format!("index.{id} is the log of another writer"));
    }
    found
}

/// A cut says how long logs were: in one boot they are no shorter later.
fn named_by_cuts(all: &mut [Assessed]) {
    let mut found = Vec::new();
    for assessed in all.iter().filter(|assessed| assessed.read.is_own) {
        for (record, _) in &assessed.read.facts.records {
            if let Record::Cut(Cut { logs, .. }) = record {
                found.extend(logs.iter().copied());
            }
        }
    }
    for assessed in all.iter_mut().filter(|assessed| assessed.dropping.is_none()) {
        let (id, read) = (assessed.read.facts.id, &assessed.read);
        let is_shorter = |was: &crate::record::Found| {
            let is_less = |found: u64, now: u64| found != crate::record::Found::ALL && found > now;
            was.id == id && read.is_own && (is_less(was.data, read.data) || is_less(was.index, read.index))
        };
        if let Some(was) = found.iter().find(|was| is_shorter(was)) {
            let words = format!(
                "the logs of writer {id} have {} and {} bytes; a truncation found {} and {}",
                read.data, read.index, was.data, was.index
            );
            assessed.lacks_records |= was.index > read.index;
            assessed.damage.push(words);
        }
    }
}

/// The lengths that were durable, by the text of a writer's name.
async fn synced<B: Vfs>(over: &B, object: Handle, id: WriterId) -> Result<Option<(u64, u64)>> {
    let text = async {
        let named = over.lookup(object, &names::writer(id)?).await?;
        load::whole(over, named.handle, named.size.min(64)).await
    };
    match text.await {
        Ok(text) => Ok(names::read_synced(&text)),
        Err(Error { status: Status::NotFound, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Records in an index log after bytes that are none.
async fn records_after<B: Vfs>(over: &B, object: Handle, from: u64, size: u64) -> Result<usize> {
    let file = over.open(object, Rights::READ).await?;
    let (mut at, end) = (from, size.min(from.saturating_add(SEARCHED_MAX)));
    let (mut bytes, mut found) = (Vec::new(), 0);
    while at < end {
        let read = file.read(at, LOAD_BYTES.min((end - at) as usize)).await?;
        if read.is_empty() {
            break;
        }
        at += read.len() as u64;
        bytes.extend_from_slice(&read);
        if bytes.iter().any(|byte| *byte != 0) {
            found += found_within(&bytes);
        }
        // A record that lies across two pieces.
        bytes.drain(..bytes.len().saturating_sub(64));
    }
    file.close().await?;
    Ok(found)
}
