//! Opens of a file by all members of a group (processes that open files together). Each index log is opened
//! by one member only, and so is a flattened index.
//!
//! ```text
//!   step of the members                                                       messages
//!   all: check the access                                                     all-gather of answers
//!   member 0: list the container's names, and the logs in a flattened index   broadcast
//!   each: read a share of the logs that the flattened index does not cover;   all-gathers, in rounds
//!         member 0: read the flattened index too
//!   all: build the index                                                      all-gather of answers
//! ```
//!
//! N readers of a file with N writers open N² index logs if each reader opens the file alone. They open N
//! index logs if they open the file together, and one file if the index was flattened. A member's share is
//! logs of neighbouring folders, so it opens few folders. A round carries at most [`ROUND_BYTES_MAX`]
//! bytes, however large the indexes are: besides the records themselves, an open takes a known amount of
//! memory.
//!
//! **All members succeed, or all fail with the error text of the first member that failed.**

use super::fold::Replaced;
use super::load::{self, Known};
use super::names::Contents;
use super::pieces::{Inbox, Outbox};
use super::{Container, ContainerFile, OpenGroup, Shared, attributes, fold};
use crate::group::{Group, Meeting, MeetingPlace, Members, share, share_first};
use crate::index::LogFacts;
use crate::limits::{CUT_LOGS_MAX, FOLDERS, ROUND_BYTES_MAX, ROUND_PART_MIN};
use crate::writer_id::WriterId;
use bytes::Bytes;
use shoal_pattern::codec::{DecodeError, Reader, Writer};
use shoal_proto::{Attr, Handle, Rights, Status};
use shoal_vfs::{Error, Result, Vfs};
use std::collections::BTreeSet;
use std::time::Duration;

/// Bytes of a name.
const NAME_BYTES_MAX: usize = 255;
/// Names of a container that are sent, at most: a log has up to three.
const NAMES_MAX: usize = 4 * CUT_LOGS_MAX;
/// Bytes of a list of replaced logs, at most.
const LIST_BYTES_MAX: usize = 4 << 20;

/// The inner error is one of a member, the same at all; the outer one of the group, which does not go on.
type Together<T> = Result<Result<T>>;

impl<B: Vfs> Container<B> {
    /// Meet the other members of a group in a container, which all of them may read and member 0 may write.
    ///
    /// # Errors
    /// `TimedOut`: not all came; `Invalid`: the rank or the job's name; errors of the file system below.
    pub async fn meet(&self, object: Handle, meeting: &Meeting) -> Result<Members> {
        let (over, env) = (&self.0.over, &self.0.env);
        let owner = attributes::owner_of(over, object).await?;
        Members::meet(env, MeetingPlace { over, dir: object, owner }, meeting).await
    }

    /// Open a container by all members of a group: all call it for the same container.
    ///
    /// # Errors
    /// Those of [`Vfs::open`], of any member, in all of them; `TimedOut`, `Io`: a member ended, or was
    /// silent.
    pub async fn open_together<G: Group>(
        &self,
        object: Handle,
        rights: Rights,
        group: &G,
    ) -> Result<ContainerFile<B>> {
        let may = self.may_open_together(object, rights).await;
        let dir = may.as_ref().ok().cloned();
        share(group, may.map(|_| Bytes::new())).await??;
        let dir = dir.ok_or_else(|| Error::new(Status::Stale, "open").of(object))?;
        let state = self.0.state(&dir);
        // It counts as open before it is read: a removal meanwhile leaves it.
        let file = ContainerFile::new(state.clone(), rights);
        let seen = state.seen();
        let (contents, logs) = all_together(&self.0, object, group).await?;
        let known = async {
            state.refresh_with(contents, &logs, seen).await?;
            // The record goes first where another process deletes it: then what was read was not whole.
            self.0.record_of(object).await
        };
        share(group, known.await.map(|_| Bytes::new())).await??;
        Ok(file)
    }

    /// An open for reading by the group of this process, if it has one. If the group fails, its members lose
    /// the time of one wait; from then on each reads alone.
    pub(super) async fn opened_by_group(&self, object: Handle, rights: Rights) -> Option<ContainerFile<B>> {
        let group = self.0.group.borrow().clone();
        let OpenGroup { meeting, says } = group.filter(|_| !rights.contains(Rights::WRITE))?;
        let opened = async {
            let group = self.meet(object, &meeting).await?;
            self.open_together(object, rights, &group).await
        };
        let error = match opened.await {
            Ok(file) => return Some(file),
            Err(error) => error,
        };
        let Meeting { rank, size, .. } = meeting;
        says(&format!("member {rank} of {size} opens files alone from here on: {error}"));
        self.0.group.take();
        None
    }

    async fn may_open_together(&self, object: Handle, rights: Rights) -> Result<Attr> {
        let dir = self.0.over.getattr(object).await?;
        if !self.0.is_container(&dir).await? {
            return Err(Error::new(Status::IsDirectory, "open").of(object));
        }
        self.may_open(object, rights).await?;
        Ok(dir)
    }
}

/// The names of a container and its logs, of one moment: a fold may replace them in between.
async fn all_together<B: Vfs, G: Group>(
    shared: &Shared<B>,
    object: Handle,
    group: &G,
) -> Result<(Contents, Vec<LogFacts>)> {
    let mut seen: Option<Contents> = None;
    for pause in [fold::PAUSE, load::CACHED_MAX, Duration::ZERO] {
        let (contents, logs) = read_together(shared, object, group).await??;
        match logs {
            // All members have the same error, and do the same.
            Err(error)
                if matches!(error.status, Status::Io | Status::NotFound | Status::Stale)
                    && seen.as_ref() != Some(&contents) =>
            {
                seen = Some(contents);
                shared.env.sleep(pause).await;
            }
            logs => return Ok((contents, logs?)),
        }
    }
    let words = "it changes all the time";
    Err(Error::new(Status::Busy, "open").of(object).because(words))
}

async fn read_together<B: Vfs, G: Group>(
    shared: &Shared<B>,
    object: Handle,
    group: &G,
) -> Together<(Contents, Result<Vec<LogFacts>>)> {
    let mut covered = Vec::new();
    let first = match group.rank() {
        0 => Some(first(shared, object, &mut covered).await),
        _ => None,
    };
    let seen = match share_first(group, first).await? {
        Ok(seen) => Seen::decode(&seen).map_err(bad)?,
        Err(error) => return Ok(Err(error)),
    };
    let contents = seen.contents();
    let part = share_of(load::others(&contents, &seen.covered), group);
    let own = load::some(shared, object, &contents, part).await.map(|read| [covered, read].concat());
    let logs = in_rounds(group, own).await?.map(|mut logs| {
        // In the order in which one process alone has them.
        logs.sort_by_key(|facts| (!seen.covered.contains(&facts.id), facts.id));
        fold::cut_folded(&contents, &mut logs);
        logs
    });
    Ok(Ok((contents, logs)))
}

/// Member 0's look at a container; and the logs that flattened indexes cover.
async fn first<B: Vfs>(shared: &Shared<B>, object: Handle, covered: &mut Vec<LogFacts>) -> Result<Bytes> {
    let names = load::names_of(shared, object).await?;
    let contents = load::contents_of(shared, object, &names).await?;
    *covered = load::covered(shared, object, &contents).await;
    let ids = covered.iter().map(|facts| facts.id).collect();
    let replaced = contents.replaced.into_iter().collect();
    Ok(Seen { names, replaced, covered: ids }.encode())
}

/// A member's share of the writers: neighbours by folder.
fn share_of<G: Group>(mut writers: Vec<Known>, group: &G) -> Vec<Known> {
    writers.sort_by_key(|(id, _)| (id.folder(FOLDERS), *id));
    let (rank, size, count) = (group.rank(), group.size().max(1), writers.len());
    writers.drain(count * rank / size..count * (rank + 1) / size).collect()
}

/// The logs of all members, sent in rounds of bounded messages.
async fn in_rounds<G: Group>(group: &G, own: Result<Vec<LogFacts>>) -> Together<Vec<LogFacts>> {
    let limit = (ROUND_BYTES_MAX / group.size().max(1)).max(ROUND_PART_MIN);
    let (own, mut failure) = match own {
        Ok(own) => (own, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let (mut outbox, mut inbox) = (Outbox::new(own), Inbox::default());
    loop {
        let part = failure.take().map_or_else(|| Ok(outbox.next_part(limit)), Err);
        let parts = match share(group, part).await? {
            Ok(parts) => parts,
            Err(error) => return Ok(Err(error)),
        };
        let mut has_more = false;
        for part in parts {
            has_more |= inbox.take(&part).map_err(bad)?;
        }
        if !has_more {
            return Ok(Ok(inbox.into_logs()));
        }
    }
}

fn bad(error: DecodeError) -> Error {
    Error::new(Status::BadMessage, "open").because(format!("a member sent a message that is none: {error}"))
}

type Decoded<T> = std::result::Result<T, DecodeError>;

/// A container as member 0 saw it.
struct Seen {
    names: BTreeSet<Vec<u8>>,
    /// The lists of logs that folded ones replace.
    replaced: Vec<(WriterId, Replaced)>,
    /// The logs whose records member 0 has from a flattened index.
    covered: BTreeSet<WriterId>,
}

impl Seen {
    fn contents(&self) -> Contents {
        let mut contents = Contents::default();
        self.names.iter().for_each(|name| contents.add(name));
        contents.replaced = self.replaced.iter().cloned().collect();
        let gone = contents.replaced.values().flat_map(Replaced::all).collect();
        contents.leave_out(&gone);
        contents
    }

    fn encode(&self) -> Bytes {
        let mut w = Writer::new();
        w.put_count(self.names.len());
        self.names.iter().for_each(|name| w.put_bytes(name));
        w.put_count(self.replaced.len());
        for (id, replaced) in &self.replaced {
            w.put_raw(&id.0);
            w.put_bytes(&replaced.encode());
        }
        w.put_count(self.covered.len());
        self.covered.iter().for_each(|id| w.put_raw(&id.0));
        w.into_vec().into()
    }

    fn decode(bytes: &[u8]) -> Decoded<Seen> {
        let r = &mut Reader::new(bytes);
        let names = r.get_count(NAMES_MAX, 4)?;
        let names = (0..names).map(|_| Ok(r.get_bytes(NAME_BYTES_MAX)?.to_vec())).collect::<Decoded<_>>()?;
        let replaced = r.get_count(CUT_LOGS_MAX, 20)?;
        let replaced = (0..replaced)
            .map(|_| Ok((WriterId(r.get_array()?), Replaced::decode(r.get_bytes(LIST_BYTES_MAX)?)?)))
            .collect::<Decoded<_>>()?;
        let covered = r.get_count(CUT_LOGS_MAX, 16)?;
        let covered = (0..covered).map(|_| Ok(WriterId(r.get_array()?))).collect::<Decoded<_>>()?;
        r.finish()?;
        Ok(Seen { names, replaced, covered })
    }
}

#[cfg(test)]
mod tests;
