//! Finds the records that all writers have published: lists the claims, reads the blocks, applies the
//! records.
//!
//! A **refresh** lists the claims once, and reads on in the extents of writers that have not ended: one
//! small read for each extent without news. It runs before a name is reported as missing, before a name is
//! changed, and at an open. A **complete read** begins with the merged directory, if that is current, and
//! scans the records that it does not cover. It runs at the start, and after a compaction.
//!
//! A writer without a file `w.ID` has ended. **A listing of the claims is not one moment**: it may have
//! passed the place of a file that is made then, and still come to the claim that the writer makes after it.
//! So a writer that a listing lacks is looked up by its name, and its records are read once more, before it
//! counts as ended.
//!
//! A complete read tries the lock of each file `w.ID`: if the lock is free, the writer is dead, and the file
//! is removed. The records of a dead writer count up to the last whole one of each of its blocks.

use super::blocks::WINDOW_BYTES;
use super::format::{DATA_HEAD, HEADER_BYTES, Header, Op, Records};
use super::index::Names;
use super::lanes::Extent;
use super::merged::Extents;
use super::names_of::RETIRED;
use super::{Shared, names_of};
use crate::writer_id::WriterId;
use shoal_proto::{Name, Rights, Status};
use shoal_vfs::{Error, Result, Vfs, VfsFile};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Bytes that are read to see whether anything follows.
const PROBE_BYTES: usize = 4096;
/// Bytes that every record begins with. They are not all zero.
const RECORD_MIN: usize = 9;

/// The claims are listed so often, where compactions end meanwhile.
const LISTINGS_MAX: u32 = 100;

/// How far an extent was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Known {
    /// Its writer, once a block of it was found.
    pub(super) writer: Option<WriterId>,
    /// Blocks that were read to their ends.
    pub(super) done: u32,
    /// Where the next record of the block after them begins; 0: its header was not read.
    pub(super) at: u32,
    /// Nothing follows.
    pub(super) ended: bool,
}

impl Known {
    /// Whether an extent of blocks of so many bytes can be read so far.
    pub(super) fn fits(&self, extent: Extent, block: u32) -> bool {
        self.done <= extent.blocks() && self.at <= block
    }

    pub(super) fn ended_of(id: WriterId) -> Known {
        Known { writer: Some(id), ended: true, ..Known::default() }
    }
}

/// Whether a writer has ended.
enum WriterEnded {
    No,
    /// It may have written since its records were read: they are read once more.
    Since,
    Before,
}

/// The folder of claims.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    pub(super) extents: BTreeSet<Extent>,
    /// Writers that have not ended, or were killed.
    pub(super) writers: BTreeSet<WriterId>,
    /// Writers that were killed: their locks could be had.
    buried: BTreeSet<WriterId>,
    /// The last compaction.
    pub(super) epoch: u64,
    /// A writer reaches the file system below over a network.
    pub(super) shared: bool,
    /// Names of other programs.
    pub(super) foreign: Vec<Name>,
}

impl Claims {
    /// The number of the next compaction.
    pub(super) fn next_epoch(&self) -> Result<u64> {
        self.epoch.checked_add(1).ok_or_else(|| {
            let words = format!("`claims/{RETIRED}{}` is of no compaction: move it away", self.epoch);
            Error::new(Status::Io, "compact").because(words)
        })
    }
}

impl<B: Vfs> Shared<B> {
    pub(super) async fn claims(&self) -> Result<Claims> {
        let mut claims = Claims::default();
        for name in self.over.names(self.claims).await? {
            let bytes = name.as_bytes();
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            let writer = text.strip_prefix("w.").and_then(WriterId::parse);
            let epoch = names_of::epoch(text);
            match (Extent::parse(bytes, self.settings.files, self.settings.block), writer, epoch) {
                (Some(extent), ..) => drop(claims.extents.insert(extent)),
                (_, Some(writer), _) => drop(claims.writers.insert(writer)),
                (.., Some(epoch)) => claims.epoch = claims.epoch.max(epoch),
                // A list of a compaction that was killed before it was in force.
                _ if text.starts_with("t.") => {}
                _ if text == names_of::SHARED => claims.shared = true,
                _ => claims.foreign.push(name),
            }
        }
        Ok(claims)
    }

    /// Read what was published since.
    pub(super) async fn refresh(self: &Rc<Self>) -> Result<()> {
        let seen = self.refreshes.get();
        let _turn = self.refreshing.acquire(1).await;
        // One that began after this call was made, and succeeded, has found all that this one would.
        if self.refreshed.get() > seen {
            return Ok(());
        }
        let own = self.refreshes.get() + 1;
        self.refreshes.set(own);
        let claims = self.claims().await?;
        self.heed(&claims);
        if claims.epoch == self.epoch.get() {
            self.advance(&claims, &self.names, &self.known, false).await?;
        } else {
            self.read_anew_in_turn().await?;
        }
        self.refreshed.set(own);
        Ok(())
    }

    /// If a writer of another machine is known, numbers of changes are no proof any more.
    fn heed(&self, claims: &Claims) {
        if let Some(changes) = self.changes.as_ref().filter(|_| claims.shared) {
            changes.is_shared.set(true);
        }
    }

    /// Read all anew.
    pub(super) async fn read_anew(self: &Rc<Self>) -> Result<()> {
        let _turn = self.refreshing.acquire(1).await;
        self.read_anew_in_turn().await
    }

    /// The index is made aside: readers see the old one until the new one is whole. Nothing is logged
    /// meanwhile.
    async fn read_anew_in_turn(self: &Rc<Self>) -> Result<()> {
        let _quiet = self.log.pause().await;
        let mut claims = self.claims().await?;
        let retired = self.newest_retired(&mut claims).await?;
        self.heed(&claims);
        self.bury(&mut claims).await;
        let merged = self.merged(&claims).await?;
        let (names, known) = merged.unwrap_or_else(|| (self.empty_names(), Extents::new()));
        self.blocks.forget();
        self.retired.replace(retired);
        let covered = names.applied;
        let (names, known) = (RefCell::new(names), RefCell::new(known));
        self.advance(&claims, &names, &known, true).await?;
        self.names.replace(names.into_inner());
        self.known.replace(known.into_inner());
        self.covered.set(covered);
        self.epoch.set(claims.epoch);
        self.apply_buffer();
        self.clear_marks().await;
        Ok(())
    }

    /// The extents that the last compaction took. Another one may end meanwhile, and remove the list of the
    /// one that was listed: then the claims are listed again.
    async fn newest_retired(&self, claims: &mut Claims) -> Result<BTreeSet<(Extent, WriterId)>> {
        for _ in 0..LISTINGS_MAX {
            match self.retired(claims.epoch).await {
                Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => {
                    *claims = self.claims().await?;
                }
                retired => return retired,
            }
        }
        Err(Error::new(Status::Busy, "open").because("compactions end all the time"))
    }

    /// Read on in all extents; with `own` in this writer's too.
    async fn advance(
        &self,
        claims: &Claims,
        names: &RefCell<Names>,
        extents: &RefCell<Extents>,
        own: bool,
    ) -> Result<()> {
        for extent in &claims.extents {
            if !own && self.log.own.borrow().contains_key(extent) {
                continue;
            }
            let mut known = extents.borrow().get(extent).copied().unwrap_or_default();
            if known.ended {
                continue;
            }
            let read = self.read_on(*extent, &mut known, claims, names).await;
            extents.borrow_mut().insert(*extent, known);
            read?;
        }
        let mut names = names.borrow_mut();
        names.bring_back();
        self.clock.found(super::format::clock_of(names.newest));
        Ok(())
    }

    async fn read_on(
        &self,
        extent: Extent,
        known: &mut Known,
        claims: &Claims,
        names: &RefCell<Names>,
    ) -> Result<()> {
        // A writer that is known made its file before this listing: if the listing lacks it, it has ended.
        let mut ended = known.writer.filter(|writer| !claims.writers.contains(writer));
        while known.done < extent.blocks() {
            let place = extent.place(known.done);
            if known.at == 0 {
                let Some(header) = self.header_at(place).await? else {
                    if known.writer.is_none() {
                        known.writer = match self.claimant(extent).await {
                            // Given back since the claims were listed.
                            Err(error) if error.status == Status::NotFound => return Ok(()),
                            by => by?,
                        };
                    }
                    if self.is_retired(extent, known.writer) {
                        *known = Known::default();
                        return Ok(());
                    }
                    match self.has_ended_before(&mut ended, known.writer, claims).await? {
                        WriterEnded::No => return Ok(()),
                        WriterEnded::Since => continue,
                        WriterEnded::Before => {}
                    }
                    if !self.continues(extent, known).await? {
                        break;
                    }
                    known.done += 1;
                    continue;
                };
                if known.writer.is_some_and(|writer| writer != header.writer) {
                    break;
                }
                if self.is_retired(extent, Some(header.writer)) {
                    *known = Known::default();
                    return Ok(());
                }
                known.writer = Some(header.writer);
                known.at = HEADER_BYTES as u32;
            }
            let from = known.at as usize;
            let bytes = match from == HEADER_BYTES {
                true => None,
                false => Some(self.blocks.raw(place, from, PROBE_BYTES).await?),
            };
            let is_quiet = bytes.is_some_and(|bytes| bytes.iter().take(RECORD_MIN).all(|byte| *byte == 0));
            let ends = if is_quiet { false } else { self.read_records(place, known, names).await? };
            if known.ended {
                return Ok(());
            }
            if !ends {
                match self.has_ended_before(&mut ended, known.writer, claims).await? {
                    WriterEnded::No => return Ok(()),
                    WriterEnded::Since => continue,
                    WriterEnded::Before => {}
                }
                if !self.continues(extent, known).await? {
                    break;
                }
            }
            (known.done, known.at) = (known.done + 1, 0);
        }
        known.ended = true;
        Ok(())
    }

    /// The records of a block from where it was read to; whether its last was found. A window of the block is
    /// read first, and the rest of the block only if the records reach beyond the window: most writers are
    /// short processes with a few small records.
    async fn read_records(&self, place: u64, known: &mut Known, names: &RefCell<Names>) -> Result<bool> {
        let block = self.settings.block as usize;
        for len in [WINDOW_BYTES, block] {
            let from = known.at as usize;
            let bytes = self.blocks.raw(place, from, len.min(block - from)).await?;
            let mut records = Records::new(&bytes, 0);
            let mut names = names.borrow_mut();
            let mut ends = false;
            for (record, begins) in records.by_ref() {
                names.apply(&record, (place, (from + begins + DATA_HEAD) as u32));
                match record.op {
                    Op::Next(_) => ends = true,
                    Op::End => known.ended = true,
                    _ => continue,
                }
                break;
            }
            known.at = (from + records.position()) as u32;
            let rest = &bytes[records.position()..];
            let is_over = rest.len() >= RECORD_MIN && rest.iter().take(RECORD_MIN).all(|byte| *byte == 0);
            if ends || known.ended || is_over {
                return Ok(ends);
            }
        }
        Ok(false)
    }

    async fn header_at(&self, place: u64) -> Result<Option<Header>> {
        let bytes = self.blocks.raw(place, 0, HEADER_BYTES).await?;
        self.blocks.header(place, &bytes)
    }

    /// Whether a compaction took an extent from this writer. Nothing is kept of such an extent: as soon as it
    /// is given back, another writer may claim it, and its records count.
    fn is_retired(&self, extent: Extent, writer: Option<WriterId>) -> bool {
        writer.is_some_and(|writer| self.retired.borrow().contains(&(extent, writer)))
    }

    /// Whether a later block of an extent belongs to the same writer. Then this block is damaged, and only
    /// its own records are lost.
    async fn continues(&self, extent: Extent, known: &Known) -> Result<bool> {
        for block in known.done + 1..extent.blocks() {
            let header = self.header_at(extent.place(block)).await?;
            if header.is_some_and(|header| Some(header.writer) == known.writer) {
                tracing::warn!("block {} is damaged: `shoal composed check`", extent.place(known.done));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the writer of an extent had ended before its records were read. `ended`: the one that is known
    /// to have ended.
    async fn has_ended_before(
        &self,
        ended: &mut Option<WriterId>,
        writer: Option<WriterId>,
        claims: &Claims,
    ) -> Result<WriterEnded> {
        let Some(writer) = writer else { return Ok(WriterEnded::No) };
        if *ended == Some(writer) {
            return Ok(WriterEnded::Before);
        }
        if !self.has_ended(writer, claims).await? {
            return Ok(WriterEnded::No);
        }
        *ended = Some(writer);
        Ok(WriterEnded::Since)
    }

    /// Whether a writer has ended. A listing in which its file is missing does not show it.
    pub(super) async fn has_ended(&self, writer: WriterId, claims: &Claims) -> Result<bool> {
        if claims.buried.contains(&writer) || claims.writers.contains(&writer) {
            return Ok(claims.buried.contains(&writer));
        }
        match self.over.lookup(self.claims, &names_of::writer(writer)?).await {
            Ok(_) => Ok(false),
            Err(error) if error.status == Status::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Take the files of dead writers away: their locks can be had.
    pub(super) async fn bury(&self, claims: &mut Claims) {
        let own = self.log.id.get();
        for writer in claims.writers.clone().into_iter().filter(|writer| *writer != own) {
            match self.is_dead(writer).await {
                Ok(true) => {
                    claims.writers.remove(&writer);
                    claims.buried.insert(writer);
                }
                Ok(false) => {}
                Err(error) => tracing::debug!("writer {writer}: {error}"),
            }
        }
    }

    pub(super) async fn is_dead(&self, writer: WriterId) -> Result<bool> {
        let name = names_of::writer(writer)?;
        let rights = if self.read_only { Rights::READ } else { Rights::READ | Rights::WRITE };
        let opened = match self.over.open_name(self.claims, &name, rights).await {
            Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => return Ok(true),
            opened => opened?,
        };
        let is_dead = match opened.hold_alone().await {
            // It cannot be known: it counts as running.
            Err(error) if error.status == Status::NotSupported => false,
            locked => locked?,
        };
        if is_dead && !self.read_only {
            self.over.unlink(self.claims, &name).await?;
        }
        opened.close().await?;
        Ok(is_dead)
    }
}

/// An error of a directory below that is not as it was made.
pub(super) fn damaged(what: &str, remedy: &str) -> Error {
    Error::new(Status::Io, "open").because(format!("{what}: {remedy}"))
}

#[cfg(test)]
mod tests {
    use crate::{Composed, ComposedOptions, Wishes};
    use bytes::Bytes;
    use shoal_env::{Env, real};
    use shoal_proto::{Handle, Name, Owner, Rights};
    use shoal_vfs::{AnyVfs, Connect, LocalOptions, Vfs, VfsFile};
    use std::path::Path;

    async fn compose(env: &Env, dir: &Path) -> Composed<AnyVfs> {
        let options = ComposedOptions { over: LocalOptions::new(dir), wishes: Wishes::default() };
        options.connect(env.clone()).await.unwrap()
    }

    async fn put(vfs: &Composed<AnyVfs>, text: &str) {
        let (name, owner) = (Name::new(text.as_bytes()).unwrap(), Owner { mode: 0o644, uid: 0, gid: 0 });
        let rights = Rights::READ | Rights::WRITE;
        let (_, _, file) = vfs.create(Handle::ROOT, &name, owner, false, rights).await.unwrap();
        file.write(0, Bytes::from_static(b"bytes")).await.unwrap();
        file.close().await.unwrap();
    }

    /// A listing takes time: it has passed the place of the writer's file when that is made, and comes to the
    /// claim that is made after it.
    #[test]
    fn a_writer_whose_claim_is_listed_and_its_file_not_has_not_ended_while_the_file_is_there() {
        let dir = tempfile::tempdir().unwrap();
        real::run("test", move |env| async move {
            let (writer, reader) = (compose(&env, dir.path()).await, compose(&env, dir.path()).await);
            let shared = &reader.0;
            let mut listed = shared.claims().await.unwrap();
            put(&writer, "first").await;
            listed.extents = shared.claims().await.unwrap().extents;
            assert!(listed.writers.is_empty() && !listed.extents.is_empty());
            shared.advance(&listed, &shared.names, &shared.known, false).await.unwrap();
            put(&writer, "second").await;
            for text in ["first", "second"] {
                let name = Name::new(text.as_bytes()).unwrap();
                reader.lookup(Handle::ROOT, &name).await.unwrap();
            }
        });
    }
}
