//! The flattened index: the index logs of many closed writers in one file.
//!
//! From PLFS (index flatten): N readers of N writers would open N² index logs. The last of many writers that
//! closes gathers the index logs in one file, and a reader opens that file.
//!
//! ```text
//!   f.ID     "shoalflt" | crc32c u32 of the rest | count, then each: id 16, data u64, index u64, the log's bytes
//! ```
//!
//! **It is only a copy**: it names each log that it covers, and the length of that log. A log that has grown
//! since, or is not named, is read itself. So a flattened index that is missing, made twice, stale or damaged
//! costs time, and never a byte. It is written aside and renamed into place.

use super::names::{self, Contents, Dropping};
use super::state::State;
use super::{IndexDesign, Shared};
use super::{fold, load};
use crate::index::LogFacts;
use crate::limits::{CUT_LOGS_MAX, FLAT_BYTES_MAX, FLATTEN_LOGS_MIN};
use crate::record::Records;
use crate::writer_id::WriterId;
use shoal_pattern::codec::{DecodeError, Reader, Writer};
use shoal_proto::{Handle, Status};
use shoal_vfs::{Error, RenameFlags, Result, Vfs};
use std::collections::{BTreeMap, BTreeSet};

const MAGIC: &[u8; 8] = b"shoalflt";

/// One log in a flattened index.
pub(super) struct Flat {
    data: u64,
    index: u64,
    bytes: Vec<u8>,
}

impl Flat {
    /// Whether the log is as long as it was when it was covered.
    pub(super) fn is_of(&self, dropping: &Dropping) -> bool {
        (self.data, self.index) == (dropping.bytes, dropping.index)
    }

    pub(super) fn facts(&self, id: WriterId) -> LogFacts {
        LogFacts { id, data: self.data, is_whole: true, records: Records::new(&self.bytes).collect() }
    }
}

/// The logs that flattened indexes cover. One that cannot be read covers nothing.
pub(super) async fn covered<B: Vfs>(
    shared: &Shared<B>,
    container: Handle,
    contents: &Contents,
) -> BTreeMap<WriterId, Flat> {
    let mut all = BTreeMap::new();
    if shared.design == IndexDesign::Original {
        return all;
    }
    for id in &contents.flat {
        match read(shared, container, *id).await {
            Ok(logs) => all.extend(logs),
            Err(error) => tracing::debug!("a flattened index is not used: {error}"),
        }
    }
    all
}

async fn read<B: Vfs>(shared: &Shared<B>, container: Handle, id: WriterId) -> Result<Vec<(WriterId, Flat)>> {
    let over = &shared.over;
    let attr = over.lookup(container, &names::flat(id)?).await?;
    if attr.size > FLAT_BYTES_MAX {
        return Err(Error::new(Status::OverLimit, "open").of(container));
    }
    shared.reads_index(attr.size);
    let bytes = load::whole(over, attr.handle, attr.size).await?;
    decode(&bytes).map_err(|error| Error::new(Status::Io, "open").of(container).because(error.to_string()))
}

fn decode(bytes: &[u8]) -> std::result::Result<Vec<(WriterId, Flat)>, DecodeError> {
    let r = &mut Reader::new(bytes);
    if r.get_array::<8>()? != *MAGIC {
        return Err(DecodeError::Invalid("flattened index"));
    }
    let sum = r.get_u32()?;
    if crc32c::crc32c(&bytes[12..]) != sum {
        return Err(DecodeError::Invalid("check sum of a flattened index"));
    }
    let count = r.get_count(CUT_LOGS_MAX, 33)?;
    let mut logs = Vec::with_capacity(count);
    for _ in 0..count {
        let (id, data, index) = (WriterId(r.get_array()?), r.get_u64()?, r.get_u64()?);
        let bytes = r.get_bytes(FLAT_BYTES_MAX as usize)?.to_vec();
        logs.push((id, Flat { data, index, bytes }));
    }
    r.finish()?;
    Ok(logs)
}

fn encode(logs: &[LogFacts], lengths: impl Fn(WriterId) -> u64) -> Vec<u8> {
    let mut w = Writer::new();
    w.put_raw(MAGIC);
    let sum = w.hold_u32();
    w.put_count(logs.len());
    for facts in logs {
        w.put_raw(&facts.id.0);
        w.put_u64(facts.data);
        w.put_u64(lengths(facts.id));
        let bytes: Vec<u8> = facts.records.iter().flat_map(|(record, _)| record.encode()).collect();
        w.put_bytes(&bytes);
    }
    let value = crc32c::crc32c(&w.as_slice()[12..]);
    w.patch_u32(sum, value);
    w.into_vec()
}

/// A writer closed: flatten if it was the last of many. An error costs the next readers time.
pub(super) async fn flatten_if_many<B: Vfs>(state: &State<B>) {
    let logs = state.index.borrow().logs().len();
    if state.shared.design == IndexDesign::Original {
        return;
    }
    if logs < state.flattened.get() + FLATTEN_LOGS_MIN {
        return;
    }
    match flatten(state, true).await {
        Ok(0) => {}
        Ok(_) => state.flattened.set(logs),
        Err(error) => tracing::debug!("an index was not flattened: {error}"),
    }
}

/// Gather the index logs of all closed writers. With `only_last`, not while a writer is open. How many.
pub(super) async fn flatten<B: Vfs>(state: &State<B>, only_last: bool) -> Result<usize> {
    let contents = load::contents(&state.shared, state.object).await?;
    let is_open = contents.writers.values().any(Option::is_none);
    if only_last && is_open {
        return Ok(0);
    }
    flatten_seen(state, contents, Vec::new()).await
}

/// The same, where these logs need not be read. One whose writer has gone on since is read all the same.
pub(super) async fn flatten_with<B: Vfs>(state: &State<B>, given: Vec<LogFacts>) -> Result<usize> {
    let contents = load::contents(&state.shared, state.object).await?;
    flatten_seen(state, contents, given).await
}

async fn flatten_seen<B: Vfs>(
    state: &State<B>,
    mut contents: Contents,
    mut given: Vec<LogFacts>,
) -> Result<usize> {
    let over = &state.shared.over;
    let old = contents.flat.clone();
    contents.writers.retain(|_, dropping| dropping.is_some());
    given.retain(|facts| {
        let end = facts.records.last().map_or(0, |(_, end)| *end);
        let dropping = contents.writers.get(&facts.id).copied().flatten();
        dropping.is_some_and(|closed| (closed.bytes, closed.index) == (facts.data, end))
    });
    let mut others = contents.clone();
    let known: BTreeSet<WriterId> = given.iter().map(|facts| facts.id).collect();
    others.writers.retain(|id, _| !known.contains(id));
    let mut logs = load::logs(&state.shared, state.object, &others).await?;
    logs.extend(given);
    fold::cut_folded(&contents, &mut logs);
    let length = |id| contents.writers.get(&id).copied().flatten().map_or(0, |dropping| dropping.index);
    let bytes = encode(&logs, length);
    if bytes.len() as u64 > FLAT_BYTES_MAX {
        let words = format!("its index has {} bytes, more than are flattened", bytes.len());
        return Err(Error::new(Status::OverLimit, "flatten").of(state.object).because(words));
    }
    let owner = super::attributes::owner_of(over, state.object).await?;
    let (aside, made) = (state.shared.draw_name("t", &names::record())?, WriterId::draw(&state.shared.env));
    state.shared.put(state.object, &aside, owner, bytes.into()).await?;
    over.rename(state.object, &aside, state.object, &names::flat(made)?, RenameFlags::default()).await?;
    for id in old {
        match over.unlink(state.object, &names::flat(id)?).await {
            Err(error) if error.status != Status::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(logs.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Entry, Record};

    fn facts(byte: u8) -> LogFacts {
        let entry = Entry { logical: 5, record: 3, stride: 9, physical: 0, stamp: u64::from(byte) };
        LogFacts {
            id: WriterId([byte; 16]),
            data: 30,
            is_whole: true,
            records: vec![(Record::Entry(entry), 49)],
        }
    }

    #[test]
    fn a_flattened_index_is_read_as_it_was_written_and_a_damaged_one_not_at_all() {
        let bytes = encode(&[facts(1), facts(2)], |_| 49);
        let read = decode(&bytes).unwrap();
        assert_eq!(read[1].1.facts(read[1].0).records, facts(2).records);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(decode(&damaged).is_err(), "byte {at}");
        }
    }
}
