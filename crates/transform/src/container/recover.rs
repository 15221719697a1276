//! Recovery: closes the writers that were killed.
//!
//! **Recovery gives up bytes only with the option `--lossy`.** Bytes are at risk if the logs of a writer are
//! damaged, or hold bytes that were not synced when its machine went down. Without the option recovery is
//! then refused, with words that name the bytes. With it recovery gives the bytes up, and leaves a name in
//! the container, from which `check` reports the loss for ever. A writer whose process may run is left
//! alone, unless the operator says with `--ended` that it ended.

use super::damage::{Assessed, assess};
use super::living::{self, Life, Process};
use super::names::{self, Contents, Dropping, Lost};
use super::remove::gone_is_fine;
use super::{Container, attributes, load};
use crate::index::{Index, LogFacts};
use crate::limits::FOLDERS;
use crate::writer_id::WriterId;
use bytes::Bytes;
use shoal_proto::{Handle, Rights, Status};
use shoal_vfs::{Error, Result, Vfs, VfsFile};

/// The permissions that the operator gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allowed {
    /// Give up what is lost or not proven.
    pub lossy: bool,
    /// Processes whose end cannot be proven here have ended.
    pub ended: bool,
}

/// The repairs that were made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// Writers that had ended without closing, and are closed.
    pub closed: u64,
    /// Containers in the bin that were deleted.
    pub deleted: u64,
    /// Those that were left, as their process runs or may run.
    pub kept: u64,
    /// The losses, in words.
    pub lost: Vec<String>,
    /// Files that had no name on any of several backends, and have one in the root now.
    pub named: u64,
}

/// Close the writers of a container that were killed.
///
/// # Errors
/// `Busy`: a writer runs, or may run and `ended` is not set. `Io`: it would give up bytes, and `lossy` is not
/// set. `Invalid`: it is no container; errors of the file system below.
pub async fn recover<B: Vfs>(
    container: &Container<B>,
    object: Handle,
    allowed: Allowed,
) -> Result<Recovered> {
    let shared = &container.0;
    super::tools::directory(container, object).await?;
    super::fold::sweep(shared, object).await?;
    let contents = load::contents(shared, object).await?;
    let all = assess(shared, object, &contents).await?;
    let mut recovered = Recovered::default();
    let is_open = |assessed: &&Assessed| assessed.dropping.is_none();
    for assessed in all.iter().filter(is_open) {
        has_ended(assessed, shared.process.as_ref(), allowed).map_err(|error| error.of(object))?;
    }
    for assessed in all.iter().filter(|assessed| !assessed.is_covered) {
        recovered.lost.extend(losses(assessed));
    }
    if !recovered.lost.is_empty() && !allowed.lossy {
        let lost = recovered.lost.join("; ");
        let words = format!(
            "nothing was changed. It would be given up: {lost}. If a copy has it, put the copy in place; else \
             `recover --lossy` keeps the rest"
        );
        return Err(Error::new(Status::Io, "recover").of(object).because(words));
    }
    let todo = |assessed: &&Assessed| {
        assessed.dropping.is_none() || (!assessed.is_covered && !assessed.damage.is_empty())
    };
    let sound: Vec<LogFacts> = all.iter().map(|assessed| sound(assessed, todo(&assessed))).collect();
    let mut cut = sound.clone();
    super::fold::cut_folded(&contents, &mut cut);
    let index = load::index(object, &cut)?;
    for (assessed, facts) in all.iter().zip(&sound).filter(|(assessed, _)| todo(assessed)) {
        let is_folded = contents.folded.contains(&facts.id);
        close(container, object, assessed, facts, &index, is_folded).await?;
        recovered.closed += u64::from(assessed.dropping.is_none());
    }
    shared.over.fsync_directory(object).await?;
    shared.forget(object);
    Ok(recovered)
}

/// Whether the process of a writer has ended.
fn has_ended(assessed: &Assessed, here: Option<&Process>, allowed: Allowed) -> Result<()> {
    let records = &assessed.read.facts.records;
    let by = super::tools::words_of(&assessed.read.facts);
    let id = assessed.read.facts.id;
    let words = match living::of_records(records, here) {
        Life::Ended => return Ok(()),
        Life::Unknown(_) if allowed.ended => return Ok(()),
        Life::Runs => format!("writer {id} runs ({by}): end it first"),
        Life::Unknown(why) => {
            format!("writer {id} may run ({by}): {why}; if it has ended: `recover --ended`")
        }
    };
    Err(Error::new(Status::Busy, "recover").because(words))
}

/// The losses that closing a writer would accept.
fn losses(assessed: &Assessed) -> Vec<String> {
    let mut lost = assessed.damage.clone();
    let id = assessed.read.facts.id;
    let dropped = assessed.read.data - assessed.believed();
    if assessed.dropping.is_none() && lost.is_empty() && dropped > 0 {
        lost.push(format!(
            "writer {id}: {dropped} bytes that it wrote and did not sync before its machine went down"
        ));
    }
    lost
}

/// The facts of a writer's logs without what is given up.
fn sound(assessed: &Assessed, is_to_close: bool) -> LogFacts {
    let mut facts = assessed.read.facts.clone();
    if !is_to_close {
        return facts;
    }
    (facts.data, facts.is_whole) = (assessed.believed(), true);
    // The longest part that can be read.
    while !facts.records.is_empty() && Index::build(std::slice::from_ref(&facts)).is_err() {
        facts.records.pop();
        let last = facts.records.iter().rev().find_map(|(record, _)| match record {
            crate::record::Record::Entry(entry) => Some(entry.physical),
            _ => None,
        });
        facts.data = facts.data.min(last.unwrap_or(0));
    }
    facts
}

/// Cut a writer's logs to what is kept, and say how long they are.
async fn close<B: Vfs>(
    container: &Container<B>,
    object: Handle,
    assessed: &Assessed,
    facts: &LogFacts,
    index: &Index,
    is_folded: bool,
) -> Result<()> {
    let (shared, over, id) = (&container.0, container.over(), facts.id);
    let end = facts.records.last().map_or(0, |(_, end)| *end);
    let owner = attributes::owner_of(over, object).await?;
    if !losses(assessed).is_empty() || assessed.read.data > facts.data {
        let was = assessed.dropping.map_or(0, |left| left.bytes).max(assessed.read.needed());
        let data = was.max(assessed.read.data) - facts.data;
        let was = assessed.dropping.map_or(0, |left| left.index).max(assessed.read.index);
        let lost = Lost { id, data, index: was - end };
        // Said before it is done: a recovery that is killed has been said too.
        shared.put(object, &lost.name()?, owner, Bytes::new()).await.or_else(is_there)?;
        over.fsync_directory(object).await?;
    }
    cut(over, object, id, &names::index(id)?, end).await?;
    cut(over, object, id, &names::data(id)?, facts.data).await?;
    let boot = names::short_boot(shared.env.boot_id());
    let dropping = Dropping { end: index.size(), bytes: facts.data, index: end, cuts: index.cuts(), boot };
    // A folded one stays one: it says which logs do not count.
    let kind = if is_folded { "m" } else { "d" };
    shared.put(object, &dropping.name_as(kind, id)?, owner, Bytes::new()).await.or_else(is_there)?;
    match assessed.dropping {
        Some(old) if old != dropping => {
            for kind in ["d", "e", "m"] {
                gone_is_fine(over.unlink(object, &old.name_as(kind, id)?).await)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn is_there(error: Error) -> Result<()> {
    if error.status == Status::Exists { Ok(()) } else { Err(error) }
}

/// Cut the end of a log.
async fn cut<B: Vfs>(
    over: &B,
    object: Handle,
    id: WriterId,
    log: &shoal_proto::Name,
    end: u64,
) -> Result<()> {
    let found = async {
        let folder = over.lookup(object, &names::folder(id.folder(FOLDERS))?).await?;
        over.lookup(folder.handle, log).await
    };
    match found.await {
        Ok(log) if log.size > end => {
            over.truncate(log.handle, end, false).await?;
            let file = over.open(log.handle, Rights::READ | Rights::WRITE).await?;
            file.fsync().await?;
            file.close().await
        }
        Err(error) if error.status != Status::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The damage of a container, in words; none if it is whole.
///
/// # Errors
/// `Invalid`: it is none; errors of the file system below.
pub async fn check<B: Vfs>(container: &Container<B>, object: Handle) -> Result<Vec<String>> {
    super::tools::directory(container, object).await?;
    let contents: Contents = load::contents(&container.0, object).await?;
    let all = assess(&container.0, object, &contents).await?;
    let mut found = Vec::new();
    for Lost { id, data, index } in &contents.lost {
        found.push(format!(
            "writer {id}: {data} bytes of its data log and {index} of its index log were given up by \
             `recover --lossy`"
        ));
    }
    for assessed in &all {
        found.extend(assessed.damage.iter().cloned());
        let is_said = assessed.dropping.is_some() || !assessed.damage.is_empty();
        if assessed.torn() > 0 && !is_said {
            let (id, torn) = (assessed.read.facts.id, assessed.torn());
            found.push(format!("writer {id}: {torn} bytes at the end of its index log are torn"));
        }
    }
    let facts: Vec<LogFacts> = all.into_iter().map(|assessed| assessed.read.facts).collect();
    if let Err(error) = Index::build(&facts) {
        found.push(error.to_string());
    }
    Ok(found)
}
