//! Folding: merges the logs of all closed writers into one log, without overwritten or truncated bytes.
//! Meanwhile other processes may read and begin to write.
//!
//! ```text
//!   d.ID… -> e.ID…    each closed writer is sealed: no process continues its logs
//!   x.NEW.PROCESS     names the old logs that the new log replaces; then the new log is written
//!   m.NEW…            the mark of the new log: from here on it counts, and the old logs do not
//!                     a pause (readers repeat a listing that took long); then the old logs are deleted
//! ```
//!
//! **A fold that is killed at any moment leaves the file unchanged**: without `m.NEW` readers ignore the
//! new log, and with `m.NEW` they ignore the old logs. Entries keep their stamps, so their order relative
//! to the entries of newer writers stays.
//!
//! **A truncation during a fold cuts the new log too.** A truncating writer publishes its name before it
//! lists the logs, and a fold ends if it sees an open writer. So either the fold sees the truncating
//! writer, or the truncation lists all logs of the fold. A record of a truncation that names all logs of a
//! fold also truncates the new log.

use super::living::{Life, Process};
use super::load;
use super::names::{self, Contents, Dropping};
use super::remove::gone_is_fine;
use super::state::State;
use super::{Shared, attributes};
use crate::index::{Index, LogFacts};
use crate::limits::{CUT_LOGS_MAX, FOLD_LIVE_MAX, FOLD_LOG_BYTES, FOLD_LOGS_MIN, FOLD_STORED_MIN, FOLDERS};
use crate::record::{Entry, Found, Record, VERSION};
use crate::writer_id::WriterId;
use bytes::{Bytes, BytesMut};
use shoal_pattern::codec::{DecodeError, Reader, Writer};
use shoal_proto::{Handle, Name, Owner, Rights, Status};
use shoal_vfs::{Error, RenameFlags, Result, Vfs, VfsFile};
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

const MAGIC: &[u8; 8] = b"shoalfld";
/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;
/// From the new log's publication to the deletion of the old ones. A listing that takes longer than half of
/// it is repeated (see [`load::contents`]).
pub(super) const PAUSE: Duration = Duration::from_millis(100);
const RIGHTS: Rights = Rights::READ.union(Rights::WRITE);

/// The result of a fold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Folded {
    /// So many bytes fewer are stored.
    Done(u64),
    /// A writer is open, or ended without closing; or another process folds.
    Busy,
    /// There are too many parts for one log to pay.
    TooMany,
}

/// The logs that a folded one replaces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Replaced {
    /// Those that it was made of. A cut that names all of them cuts it.
    pub(super) of: Vec<WriterId>,
    /// Those that they were made of, and that were still there.
    older: Vec<WriterId>,
}

impl Replaced {
    pub(super) fn all(&self) -> impl Iterator<Item = WriterId> {
        self.of.iter().chain(&self.older).copied()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::new();
        w.put_raw(MAGIC);
        let sum = w.hold_u32();
        for ids in [&self.of, &self.older] {
            w.put_count(ids.len());
            ids.iter().for_each(|id| w.put_raw(&id.0));
        }
        let value = crc32c::crc32c(&w.as_slice()[12..]);
        w.patch_u32(sum, value);
        w.into_vec()
    }

    pub(super) fn decode(bytes: &[u8]) -> std::result::Result<Replaced, DecodeError> {
        let r = &mut Reader::new(bytes);
        if r.get_array::<8>()? != *MAGIC {
            return Err(DecodeError::Invalid("list of replaced logs"));
        }
        let sum = r.get_u32()?;
        if crc32c::crc32c(&bytes[12..]) != sum {
            return Err(DecodeError::Invalid("check sum of a list of replaced logs"));
        }
        let mut ids = || -> std::result::Result<Vec<WriterId>, DecodeError> {
            let count = r.get_count(CUT_LOGS_MAX, 16)?;
            (0..count).map(|_| Ok(WriterId(r.get_array()?))).collect()
        };
        let (of, older) = (ids()?, ids()?);
        r.finish()?;
        Ok(Replaced { of, older })
    }
}

/// Leave out of a container's names what folded logs replace.
pub(super) async fn leave_replaced<B: Vfs>(over: &B, object: Handle, contents: &mut Contents) -> Result<()> {
    let mut unknown = None;
    let folded: Vec<WriterId> = contents.folded.iter().copied().collect();
    for id in folded {
        let list = contents.lists.iter().find(|(list, _)| *list == id).map(|(_, name)| name.clone());
        match read(over, object, list).await {
            Ok(replaced) => drop(contents.replaced.insert(id, replaced)),
            Err(error) => unknown = Some((id, error)),
        }
    }
    let gone: BTreeSet<WriterId> = contents.replaced.values().flat_map(Replaced::all).collect();
    if let Some((id, error)) = unknown
        && !gone.contains(&id)
    {
        return Err(error);
    }
    contents.leave_out(&gone);
    Ok(())
}

async fn read<B: Vfs>(over: &B, object: Handle, list: Option<Name>) -> Result<Replaced> {
    let damaged = |words: String| Error::new(Status::Io, "open").of(object).because(words);
    let list = list.ok_or_else(|| damaged("a folded log does not say which it replaces".into()))?;
    let attr = over.lookup(object, &list).await?;
    let bytes = load::whole(over, attr.handle, attr.size.min(4 << 20)).await?;
    Replaced::decode(&bytes).map_err(|error| damaged(error.to_string()))
}

/// Cuts that name all logs of a folded one cut that too.
pub(super) fn cut_folded(contents: &Contents, logs: &mut [LogFacts]) {
    for (id, replaced) in &contents.replaced {
        for (record, _) in logs.iter_mut().flat_map(|facts| &mut facts.records) {
            let Record::Cut(cut) = record else { continue };
            let named: HashSet<WriterId> = cut.logs.iter().map(|found| found.id).collect();
            if !named.contains(id) && replaced.of.iter().all(|of| named.contains(of)) {
                cut.logs.push(Found { id: *id, data: Found::ALL, index: Found::ALL });
            }
        }
    }
}

/// A writer closed: fold if it was the last, and enough is to be gained. An error costs space and time.
pub(super) async fn fold_if_worth<B: Vfs>(state: &State<B>) {
    let (logs, stored, size) = {
        let index = state.index.borrow();
        (index.logs().len(), index.stored(), index.size())
    };
    let is_dead = stored >= FOLD_STORED_MIN && stored / 3 >= size && size <= FOLD_LIVE_MAX;
    let is_many = logs >= FOLD_LOGS_MIN && stored <= logs as u64 * FOLD_LOG_BYTES;
    if !(is_dead || is_many) || state.is_in_use_by_others() {
        return;
    }
    if let Err(error) = fold(state).await {
        tracing::debug!("a container was not folded: {error}");
    }
}

/// Make one log of all. See the module.
pub(super) async fn fold<B: Vfs>(state: &State<B>) -> Result<Folded> {
    let _all = state.all_turns().await;
    let (shared, object) = (&state.shared, state.object);
    let over = &shared.over;
    sweep(shared, object).await?;
    let seen = load::contents(shared, object).await?;
    if !is_closed(&seen) {
        return Ok(Folded::Busy);
    }
    for (id, dropping) in &seen.writers {
        if !seal(over, object, *id, dropping.as_ref()).await? {
            return Ok(Folded::Busy);
        }
    }
    // Sealed: from here on none of them grows.
    let contents = load::contents(shared, object).await?;
    if contents.writers != seen.writers {
        return Ok(Folded::Busy);
    }
    let logs = load::logs(shared, object, &contents).await?;
    let index = load::index(object, &logs)?;
    let Some(parts) = parts(&index, shared.record_limits.get().folded) else { return Ok(Folded::TooMany) };
    let new = WriterId::draw(&shared.env);
    let process = shared.process.as_ref().map(|process| format!(".{}", process.suffix()));
    let list = names::name(&format!("x.{new}{}", process.unwrap_or_default()))?;
    let of: Vec<WriterId> = contents.writers.keys().copied().collect();
    let replaced = Replaced { of, older: contents.left_out.iter().copied().collect() };
    let made = make(state, new, &list, &replaced, &index, &parts).await;
    if made.is_err() {
        delete(over, object, new).await?;
    }
    let stored = made?;
    shared.env.sleep(PAUSE).await;
    for id in replaced.all() {
        delete(over, object, id).await?;
    }
    for id in &contents.flat {
        gone_is_fine(over.unlink(object, &names::flat(*id)?).await)?;
    }
    state.was_folded().await?;
    Ok(Folded::Done(index.stored().saturating_sub(stored)))
}

fn is_closed(contents: &Contents) -> bool {
    !contents.writers.is_empty() && contents.writers.values().all(Option::is_some)
}

/// Seal a closed writer's logs. Whether they are.
async fn seal<B: Vfs>(over: &B, object: Handle, id: WriterId, closed: Option<&Dropping>) -> Result<bool> {
    let Some(closed) = closed else { return Ok(false) };
    let (name, sealed) = (closed.name(id)?, closed.name_as("e", id)?);
    match over.rename(object, &name, object, &sealed, RenameFlags::default()).await {
        Err(error) if error.status == Status::NotFound => {}
        renamed => return renamed.map(|()| true),
    }
    for kind in ["e", "m"] {
        match over.lookup(object, &closed.name_as(kind, id)?).await {
            Err(error) if error.status == Status::NotFound => {}
            found => return found.map(|_| true),
        }
    }
    Ok(false)
}

/// Bytes of the file that lie together in a log and have one stamp.
struct Part {
    logical: u64,
    len: u64,
    log: u32,
    physical: u64,
    stamp: u64,
}

/// `None`: they are more than `parts_max`.
fn parts(index: &Index, parts_max: usize) -> Option<Vec<Part>> {
    let (mut parts, mut at, size) = (Vec::<Part>::new(), 0, index.size());
    while at < size {
        let (newest, run) = index.newest_at(at);
        let len = run.min(size - at).max(1);
        if let Some((log, physical, stamp)) = newest {
            match parts.last_mut() {
                Some(last)
                    if (last.log, last.stamp) == (log, stamp)
                        && last.logical + last.len == at
                        && last.physical + last.len == physical =>
                {
                    last.len += len;
                }
                _ => parts.push(Part { logical: at, len, log, physical, stamp }),
            }
        }
        if parts.len() > parts_max {
            return None;
        }
        at += len;
    }
    Some(parts)
}

/// Make the new log, and publish it. Its bytes.
async fn make<B: Vfs>(
    state: &State<B>,
    new: WriterId,
    list: &Name,
    replaced: &Replaced,
    index: &Index,
    parts: &[Part],
) -> Result<u64> {
    let (shared, object) = (&state.shared, state.object);
    let over = &shared.over;
    let owner = attributes::owner_of(over, object).await?;
    put_durable(over, object, list, owner, replaced.encode().into()).await?;
    let folder = super::writer::folder(state, new, owner).await?;
    let (_, _, data) = over.create(folder, &names::data(new)?, owner, true, RIGHTS).await?;
    let (boot, words) = (shared.env.boot_id(), shared.words.clone());
    let mut records = Record::Head { version: VERSION, id: new, boot, words }.encode();
    let mut physical = 0;
    let mut pending = BytesMut::new();
    let mut last: Option<(u64, u64)> = None;
    for part in parts {
        // Neighbours of one write are one entry.
        if last != Some((part.logical, part.stamp)) {
            let Part { logical, stamp, .. } = *part;
            records.extend(Record::Entry(Entry { logical, record: 0, stride: 0, physical, stamp }).encode());
        }
        last = Some((part.logical + part.len, part.stamp));
        let id = index.logs()[part.log as usize];
        let mut done = 0;
        while done < part.len {
            let bytes = state.read_log(id, part.physical + done, COPY_BYTES.min(part.len - done)).await?;
            done += bytes.len() as u64;
            pending.extend_from_slice(&bytes);
            if pending.len() as u64 >= COPY_BYTES {
                let full = pending.split().freeze();
                let at = physical + done - full.len() as u64;
                data.write(at, full).await?;
            }
        }
        physical += part.len;
    }
    if !pending.is_empty() {
        let rest = pending.freeze();
        data.write(physical - rest.len() as u64, rest).await?;
    }
    records.extend(Record::Named { data: physical }.encode());
    if index.size() > 0 {
        records.extend(Record::End { size: index.size(), stamp: index.newest() }.encode());
    }
    data.fsync().await?;
    data.close().await?;
    let index_bytes = records.len() as u64;
    put_durable(over, folder, &names::index(new)?, owner, records.into()).await?;
    over.fsync_directory(folder).await?;
    over.fsync_directory(object).await?;
    let dropping = Dropping { end: index.size(), bytes: physical, index: index_bytes, cuts: 0, boot: 0 };
    shared.put(object, &dropping.name_as("m", new)?, owner, Bytes::new()).await?;
    over.fsync_directory(object).await?;
    Ok(physical)
}

async fn put_durable<B: Vfs>(over: &B, dir: Handle, name: &Name, owner: Owner, text: Bytes) -> Result<()> {
    let (_, _, file) = over.create(dir, name, owner, true, RIGHTS).await?;
    file.write(0, text).await?;
    file.fsync().await?;
    file.close().await
}

/// Delete what killed folds left: logs that were replaced, and new ones that were not published.
pub(super) async fn sweep<B: Vfs>(shared: &Shared<B>, object: Handle) -> Result<()> {
    let contents = load::contents(shared, object).await?;
    for id in &contents.left_out {
        delete(&shared.over, object, *id).await?;
    }
    for (id, name) in &contents.lists {
        let life = match (Process::of_name(name.as_bytes()), &shared.process) {
            (Some(process), Some(here)) => process.life(here),
            _ => Life::Unknown("its name has no process"),
        };
        if !contents.folded.contains(id) && life == Life::Ended {
            delete(&shared.over, object, *id).await?;
        }
    }
    Ok(())
}

/// Delete a writer's logs, and then its names: the one that says how long they were goes last, so that no
/// reader takes it for a new writer without logs.
async fn delete<B: Vfs>(over: &B, object: Handle, id: WriterId) -> Result<()> {
    let mut found = Vec::new();
    for name in over.names(object).await? {
        let kind = name.as_bytes().first().copied().unwrap_or(0);
        let mut parts = name.as_bytes().split(|byte| *byte == b'.').skip(1);
        let is_its = parts.next().and_then(|part| std::str::from_utf8(part).ok()).and_then(WriterId::parse);
        // Names that report lost bytes stay for ever, and a flattened index is not the writer's own.
        let order = b"cwxedm".iter().position(|known| *known == kind);
        if let Some(order) = order.filter(|_| is_its == Some(id)) {
            found.push((order, name));
        }
    }
    if found.is_empty() {
        return Ok(());
    }
    match over.lookup(object, &names::folder(id.folder(FOLDERS))?).await {
        Ok(folder) => {
            gone_is_fine(over.unlink(folder.handle, &names::data(id)?).await)?;
            gone_is_fine(over.unlink(folder.handle, &names::index(id)?).await)?;
        }
        Err(error) if error.status != Status::NotFound => return Err(error),
        Err(_) => {}
    }
    found.sort();
    for (_, name) in found {
        gone_is_fine(over.unlink(object, &name).await)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_replaced_logs_is_read_as_it_was_written_and_a_damaged_one_not_at_all() {
        let id = |byte| WriterId([byte; 16]);
        let list = Replaced { of: vec![id(1), id(2)], older: vec![id(3)] };
        let bytes = list.encode();
        assert_eq!(Replaced::decode(&bytes), Ok(list));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(Replaced::decode(&damaged).is_err(), "byte {at}");
        }
    }
}
