//! Tools for the owners of containers: to inspect, check and repair a container.
//!
//! - [`facts`]: the size, the stored bytes and the writers.
//! - [`map`]: the writer of each byte, and the place of the byte in the data log.
//! - [`check`]: the damage, in words.
//! - [`recover`]: closes the logs of killed writers. [`empty_bin`]: deletes what killed processes left in
//!   the bin; [`leftovers`] lists it.
//! - [`flatten`]: copies the index logs of all closed writers into one file.
//! - [`compact`]: makes one log of all logs, without overwritten or truncated bytes.

pub use super::bin::{empty_bin, leftovers};
use super::load::CACHED_MAX;
use super::names::Contents;
pub use super::recover::{Allowed, Recovered, check, recover};
use super::{Container, attributes, flat, fold, load};
use crate::index::{Index, LogFacts};
use crate::record::Record;
use crate::writer_id::WriterId;
use shoal_pattern::Placement;
use shoal_proto::{Attr, Handle, Name, Owner, Rights, SetAttr, Status};
use shoal_vfs::{Error, RenameFlags, Result, Vfs, VfsFile};
use std::collections::BTreeMap;

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// A container in numbers.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The file's size.
    pub size: u64,
    /// Bytes of all data logs.
    pub stored: u64,
    /// Bytes of the file that lie in a log: the others are holes.
    pub live: u64,
    /// Its writers.
    pub writers: Vec<WriterFacts>,
    /// Truncations.
    pub cuts: u64,
    /// Whether an index covers several logs.
    pub is_flattened: bool,
}

/// A writer in numbers.
#[derive(Clone, Debug)]
pub struct WriterFacts {
    /// Its identity.
    pub id: WriterId,
    /// Host and process.
    pub words: String,
    /// Bytes of its data log.
    pub data: u64,
    /// Entries of its index log.
    pub entries: usize,
    /// It is open, or ended without closing.
    pub is_open: bool,
}

/// Bytes of the file that lie together in a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The place in the file.
    pub logical: u64,
    /// Bytes.
    pub len: u64,
    /// The writer; `None`: a hole.
    pub writer: Option<WriterId>,
    /// The place in its data log.
    pub physical: u64,
}

struct Loaded {
    dir: Attr,
    contents: Contents,
    logs: Vec<LogFacts>,
    index: Index,
}

async fn loaded<B: Vfs>(container: &Container<B>, object: Handle) -> Result<Loaded> {
    let dir = directory(container, object).await?;
    let (contents, logs) = load::all(&container.0, object).await?;
    let index = load::index(object, &logs)?;
    Ok(Loaded { dir, contents, logs, index })
}

/// Whether an object is a container.
///
/// # Errors
/// Errors of the file system below.
pub async fn is_container<B: Vfs>(container: &Container<B>, object: Handle) -> Result<bool> {
    Ok(container.0.container(object).await?.is_some())
}

/// The directory of a container.
pub(super) async fn directory<B: Vfs>(container: &Container<B>, object: Handle) -> Result<Attr> {
    container.0.container(object).await?.ok_or_else(|| {
        let words = "it has no access record: it is not a container";
        Error::new(Status::Invalid, "container").of(object).because(words)
    })
}

/// A container in numbers.
///
/// # Errors
/// `Invalid`: it is none; damage; errors of the file system below.
pub async fn facts<B: Vfs>(container: &Container<B>, object: Handle) -> Result<Facts> {
    let Loaded { contents, logs, index, .. } = loaded(container, object).await?;
    let mut live = 0;
    parts(&index, |part| live += if part.writer.is_some() { part.len } else { 0 });
    let writer = |facts: &LogFacts| WriterFacts {
        id: facts.id,
        words: words_of(facts),
        data: facts.data,
        entries: facts.records.iter().filter(|(record, _)| matches!(record, Record::Entry(_))).count(),
        is_open: contents.writers.get(&facts.id).is_some_and(Option::is_none),
    };
    Ok(Facts {
        size: index.size(),
        stored: index.stored(),
        live,
        writers: logs.iter().map(writer).collect(),
        cuts: contents.cuts,
        is_flattened: !contents.flat.is_empty(),
    })
}

pub(super) fn words_of(facts: &LogFacts) -> String {
    let head = facts.records.iter().find_map(|(record, _)| match record {
        Record::Head { words, .. } => Some(words.clone()),
        _ => None,
    });
    head.unwrap_or_default()
}

/// Every part of the file, in order, to `visit`.
///
/// # Errors
/// As [`facts`].
pub async fn map<B: Vfs>(container: &Container<B>, object: Handle, visit: impl FnMut(Part)) -> Result<()> {
    parts(&loaded(container, object).await?.index, visit);
    Ok(())
}

fn parts(index: &Index, mut visit: impl FnMut(Part)) {
    let (size, mut at) = (index.size(), 0);
    let mut pending: Option<Part> = None;
    while at < size {
        let found = index.locate(at);
        let len = found.run().min(size - at);
        let piece = found.piece();
        let writer = piece.map(|piece| index.logs()[piece.object as usize]);
        let part = Part { logical: at, len, writer, physical: piece.map_or(0, |piece| piece.physical) };
        at += len;
        let goes_on = |last: &Part| {
            last.writer == part.writer && (part.writer.is_none() || last.physical + last.len == part.physical)
        };
        match &mut pending {
            Some(last) if goes_on(last) => last.len += part.len,
            _ => pending.replace(part).into_iter().for_each(&mut visit),
        }
    }
    pending.into_iter().for_each(visit);
}

/// Bytes of the file that lie in logs, place and length, joined where they touch.
fn extents(index: &Index) -> BTreeMap<u64, u64> {
    let mut extents = BTreeMap::<u64, u64>::new();
    parts(index, |part| {
        if part.writer.is_none() {
            return;
        }
        if let Some(mut last) = extents.last_entry()
            && last.key() + last.get() == part.logical
        {
            *last.get_mut() += part.len;
            return;
        }
        extents.insert(part.logical, part.len);
    });
    extents
}

/// Gather the indexes of all closed writers in one file. How many.
///
/// # Errors
/// As [`facts`].
pub async fn flatten<B: Vfs>(container: &Container<B>, object: Handle) -> Result<usize> {
    let Loaded { dir, .. } = loaded(container, object).await?;
    flat::flatten(&*container.0.state(&dir), false).await
}

/// Make one log, without what was overwritten or cut; bytes given back. Programs may read it, and begin to
/// write. A kill at any moment changes nothing. A file of very many parts is written anew as another
/// container: that no program may have open.
///
/// # Errors
/// `Busy`: a writer is open, or ended without closing (then `recover` first); as [`facts`].
pub async fn compact<B: Vfs>(container: &Container<B>, dir: Handle, name: &Name) -> Result<u64> {
    let (shared, over) = (&container.0, container.over());
    // A directory that is a mount itself may be cached for a moment.
    shared.env.sleep(CACHED_MAX).await;
    let object = over.lookup(dir, name).await?.handle;
    let Loaded { dir: below, contents, index, .. } = loaded(container, object).await?;
    if contents.writers.values().any(Option::is_none) {
        let words = "a writer is open, or was killed; after a kill: `shoal container recover`";
        return Err(Error::new(Status::Busy, "compact").of(object).because(words));
    }
    match fold::fold(&*shared.state(&below)).await? {
        fold::Folded::Done(given) => return Ok(given),
        fold::Folded::Busy if !contents.writers.is_empty() => {
            let words = "another process writes or folds it: try again";
            return Err(Error::new(Status::Busy, "compact").of(object).because(words));
        }
        _ => {}
    }
    let attr = attributes::of(shared, &below).await?;
    let owner = Owner { mode: attr.mode, uid: attr.uid, gid: attr.gid };
    let (bin, aside) = (shared.bin().await?, shared.draw_name("compact", name)?);
    let (_, _, new) = container.create_below(bin, &aside, owner).await?;
    let old = container.open(object, Rights::READ).await?;
    let state = new.state();
    state.is_copy.set(true);
    for (mut at, mut len) in extents(&index) {
        while len > 0 {
            let bytes = old.read(at, COPY_BYTES.min(len as usize)).await?;
            if bytes.is_empty() {
                return Err(Error::new(Status::Io, "compact").of(object).because("it ends early"));
            }
            (at, len) = (at + bytes.len() as u64, len - bytes.len() as u64);
            new.write(at - bytes.len() as u64, bytes).await?;
        }
    }
    state.is_copy.set(false);
    let made = new.handle();
    if index.size() > new.state_size() {
        new.truncate(index.size()).await?;
    }
    new.fsync().await?;
    new.close().await?;
    old.close().await?;
    for name in over.listxattr(object).await.unwrap_or_default() {
        let value = over.getxattr(object, &name).await?;
        over.setxattr(made, &name, &value, false, false).await?;
    }
    let set = SetAttr { atime: Some(attr.atime), mtime: Some(attr.mtime), ..SetAttr::default() };
    let made = over.getattr(made).await?;
    let stored = attributes::set(shared, &made, set).await?.space;
    shared.env.sleep(CACHED_MAX).await;
    if load::contents(shared, object).await? != contents {
        let words = "it was written meanwhile; the old one stays";
        return Err(Error::new(Status::Busy, "compact").of(object).because(words));
    }
    let exchange = RenameFlags { no_replace: false, exchange: true };
    over.rename(bin, &aside, dir, name, exchange).await?;
    shared.forget(object);
    // The old one has the name of the new one, in the bin.
    container.delete_in_bin(&aside, object).await?;
    Ok(index.stored().saturating_sub(stored))
}
