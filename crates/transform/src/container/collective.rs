//! Opens by all members of a group: each index log is opened once, or a flattened one by one member alone.
//!
//! ```text
//!   all    may I open it?                                                   all-gather of answers
//!   one    the container's names; the flattened indexes                     broadcast
//!   each   its share of the other index logs, in turn                       all-gather
//!   all    build the index                                                  all-gather of answers
//! ```
//!
//! So N readers of N writers cost N² opens of index logs alone, N together, and one after a flatten. **All
//! succeed, or all fail with the words of the first that failed.**

use super::fold;
use super::load;
use super::names::Contents;
use super::{Container, ContainerFile, attributes};
use crate::group::{Group, Meeting, Members, Place, share, share_first};
use crate::index::LogFacts;
use crate::limits::{CUT_LOGS_MAX, INDEX_LOG_BYTES_MAX};
use crate::record::Records;
use crate::writer_id::WriterId;
use bytes::Bytes;
use shoal_pattern::codec::{DecodeError, Reader, Writer};
use shoal_proto::{Attr, Handle, Rights, Status};
use shoal_vfs::{Error, Result, Vfs};
use std::collections::BTreeSet;

/// A fold may replace logs while they are read: then it is done again.
const TRIES_MAX: usize = 3;
/// Bytes of a name.
const NAME_BYTES_MAX: usize = 255;

impl<B: Vfs> Container<B> {
    /// Meet the other members of a group in a container, which all of them may read.
    ///
    /// # Errors
    /// `TimedOut`: not all came; `Invalid`: the rank or the job's name; errors of the file system below.
    pub async fn meet(&self, object: Handle, meeting: &Meeting) -> Result<Members> {
        let (over, env) = (&self.0.over, &self.0.env);
        let owner = attributes::owner_of(over, object).await?;
        Members::meet(env, Place { over, dir: object, owner }, meeting).await
    }

    /// Open a container by all members of a group: all call it for the same container.
    ///
    /// # Errors
    /// Those of [`Vfs::open`], of any member, in all of them; `TimedOut`, `Io`: a member ended, or was silent.
    pub async fn open_together<G: Group>(
        &self,
        object: Handle,
        rights: Rights,
        group: &G,
    ) -> Result<ContainerFile<B>> {
        let may = self.may_open_together(object, rights).await;
        let dir = may.as_ref().ok().cloned();
        share(group, may.map(|_| Bytes::new())).await?;
        let dir = dir.ok_or_else(|| Error::new(Status::Stale, "open").of(object))?;
        let state = self.0.state(&dir);
        // It counts as open before it is read: a removal meanwhile leaves it.
        let file = ContainerFile::new(state.clone(), rights);
        let mut tries = 0;
        let (contents, logs) = loop {
            tries += 1;
            match self.read_together(object, group).await {
                // All members have the same error, and do the same.
                Err(error)
                    if tries < TRIES_MAX && matches!(error.status, Status::NotFound | Status::Stale) =>
                {
                    self.0.env.sleep(fold::PAUSE).await;
                }
                read => break read?,
            }
        };
        let known = async {
            state.refresh_with(contents, &logs).await?;
            // The record goes first where another process deletes it: then what was read was not whole.
            self.0.record_of(object).await
        };
        share(group, known.await.map(|_| Bytes::new())).await?;
        Ok(file)
    }

    async fn may_open_together(&self, object: Handle, rights: Rights) -> Result<Attr> {
        let dir = self.0.over.getattr(object).await?;
        if !self.0.is_container(&dir).await? {
            return Err(Error::new(Status::IsDirectory, "open").of(object));
        }
        self.may_open(object, rights).await?;
        Ok(dir)
    }

    /// The names of a container, and the facts of all logs, read by all members.
    async fn read_together<G: Group>(&self, object: Handle, group: &G) -> Result<(Contents, Vec<LogFacts>)> {
        let shared = &self.0;
        let own = match group.rank() {
            0 => {
                let read = async {
                    let names = load::names_of(shared, object).await?;
                    let contents = load::contents_of(shared, object, &names).await?;
                    let covered = load::covered(shared, object, &contents).await;
                    Ok(encode(&names, &covered))
                };
                Some(read.await)
            }
            _ => None,
        };
        let (names, covered) = decode(&share_first(group, own).await?).map_err(bad)?;
        let contents = load::contents_of(shared, object, &names).await;
        let mine = async {
            let contents = contents?;
            let others = load::others(&contents, &covered);
            let part = others.into_iter().skip(group.rank()).step_by(group.size().max(1)).collect();
            let read = load::some(shared, object, &contents, part).await?;
            Ok((contents, read))
        };
        let mine = mine.await;
        let bytes = mine.as_ref().map(|(_, read)| encode(&BTreeSet::new(), read)).map_err(Error::clone);
        let all = share(group, bytes).await?;
        let (contents, _) = mine?;
        let mut logs = covered;
        for part in all {
            logs.extend(decode(&part).map_err(bad)?.1);
        }
        fold::cut_folded(&contents, &mut logs);
        Ok((contents, logs))
    }
}

fn bad(error: DecodeError) -> Error {
    Error::new(Status::BadMessage, "open").because(format!("a member sent a message that is none: {error}"))
}

/// Names of a container, and facts of logs.
fn encode(names: &BTreeSet<Vec<u8>>, logs: &[LogFacts]) -> Bytes {
    let mut w = Writer::new();
    w.put_count(names.len());
    names.iter().for_each(|name| w.put_bytes(name));
    w.put_count(logs.len());
    for facts in logs {
        w.put_raw(&facts.id.0);
        w.put_u64(facts.data);
        w.put_u8(u8::from(facts.is_whole));
        let bytes: Vec<u8> = facts.records.iter().flat_map(|(record, _)| record.encode()).collect();
        w.put_bytes(&bytes);
    }
    w.into_vec().into()
}

fn decode(bytes: &[u8]) -> std::result::Result<(BTreeSet<Vec<u8>>, Vec<LogFacts>), DecodeError> {
    let r = &mut Reader::new(bytes);
    let count = r.get_count(8 * CUT_LOGS_MAX, 1)?;
    let mut names = BTreeSet::new();
    for _ in 0..count {
        names.insert(r.get_bytes(NAME_BYTES_MAX)?.to_vec());
    }
    let count = r.get_count(CUT_LOGS_MAX, 26)?;
    let mut logs = Vec::with_capacity(count);
    for _ in 0..count {
        let (id, data, is_whole) = (WriterId(r.get_array()?), r.get_u64()?, r.get_u8()? != 0);
        let bytes = r.get_bytes(INDEX_LOG_BYTES_MAX as usize)?;
        logs.push(LogFacts { id, data, is_whole, records: Records::new(bytes).collect() });
    }
    r.finish()?;
    Ok((names, logs))
}
