//! Reads the journal back. A *group* is one write of the journal.
//!
//! Replay walks the groups after the checkpoint's LSN, from segment to segment. The next segment is the one
//! with a greater generation whose first group continues the LSNs. Where the walk ends, later groups
//! decide:
//!
//! * If a later group (after this end in the segment, or in a segment of a greater generation) states a
//!   durable LSN at or above the first missing LSN, **a durable record is missing**. This is damage, which is
//!   reported and never skipped.
//! * If the walk ended before the checkpoint's LSN, any later group of the same segment shows such damage.
//! * Otherwise the end is a torn tail, which is cut off. No reply has promised any record after the cut.
//!   **Invariant: in that segment nothing is ever written after the cut**: the journal continues in another
//!   segment with a greater generation, and the next replay finds that segment by the LSNs (test:
//!   `nothing_is_written_behind_a_cut_and_the_next_restart_finds_its_way`).

use super::super::table::live::{Live, Place};
use super::group::{BLOCK, Found, HEADER, Header, next_record};
use super::segments::{Segments, State, number_of};
use crate::{Lsn, StoreError};
use bytes::Bytes;
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Env, File, OpenOptions};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Generations that may have been taken without a trace at a segment's begin: groups in the page cache
/// reach the disk in any order, so a power cut may leave a later group of a segment and its old first one.
/// So many segments are never written between two syncs (tables are frozen with each segment, and at most
/// two wait for theirs).
const GENERATIONS_UNSEEN: u64 = 1 << 16;

/// The result of a replay.
pub(crate) struct Replayed {
    /// The newest record.
    pub last: Lsn,
    /// The next group's sequence.
    pub sequence: u64,
    /// The newest change of each row after the checkpoint.
    pub rows: BTreeMap<Bytes, Option<Bytes>>,
    /// Segments walked, with their last LSN.
    walked: BTreeMap<u64, Lsn>,
}

/// A segment's file as found.
struct Head {
    number: u64,
    path: PathBuf,
    /// The header of its first group, if there is a valid one.
    first: Option<Header>,
}

pub(crate) struct Reader<'a> {
    env: &'a Env,
    dir: &'a Path,
    segment_bytes: u64,
    heads: Vec<Head>,
    /// The greatest generation seen in any header.
    generation: u64,
    /// Incomplete files, whose preparation was interrupted, and which have no groups. They are removed when
    /// nothing can be refused any more: a refused store is left unchanged.
    pub unfinished: Vec<PathBuf>,
}

impl<'a> Reader<'a> {
    /// Read all segments.
    pub async fn open(env: &'a Env, dir: &'a Path, segment_bytes: u64) -> Result<Reader<'a>, StoreError> {
        let mut reader =
            Reader { env, dir, segment_bytes, heads: Vec::new(), generation: 0, unfinished: Vec::new() };
        let listed = env.list(dir).await.map_err(|error| reader.error("listing", dir, &error))?;
        for entry in listed {
            let Some(number) = number_of(&entry.name) else { continue };
            let path = dir.join(&entry.name);
            let first = reader.first_header(&path, number).await?;
            if first.is_none() {
                if entry.len != segment_bytes {
                    reader.check_unused(&path, number, entry.len).await?;
                    reader.unfinished.push(path);
                    continue;
                }
                // Its first group may be torn while later ones are not: no generation in it may be used
                // again.
                let content = reader.read(&path).await?;
                let greatest = headers(&content, 0, number).map(|(_, header)| header.generation).max();
                reader.generation = reader.generation.max(greatest.unwrap_or(0));
            } else if entry.len != segment_bytes {
                return Err(StoreError::Damaged(format!(
                    "{} is {} bytes long, not {segment_bytes}",
                    path.display(),
                    entry.len
                )));
            }
            reader.generation = reader.generation.max(first.map_or(0, |first| first.generation));
            reader.heads.push(Head { number, path, first });
        }
        reader.heads.sort_by_key(|head| head.first.map_or(0, |first| first.generation));
        Ok(reader)
    }

    /// Whether there is no segment.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// An interrupted preparation left zeros. An incomplete file with a group in it lost its first group.
    async fn check_unused(&self, path: &Path, number: u64, len: u64) -> Result<(), StoreError> {
        let content = self.read(path).await?;
        match headers(&content, 0, number).next() {
            None => Ok(()),
            Some((at, _)) => Err(StoreError::Damaged(format!(
                "{} is {len} bytes long, not {}, and its first group cannot be read, while there is one at offset {at}",
                path.display(),
                self.segment_bytes
            ))),
        }
    }

    fn error(&self, what: &str, path: &Path, error: &std::io::Error) -> StoreError {
        StoreError::io(format!("{what} {}", path.display()), error)
    }

    async fn file(&self, path: &Path) -> Result<File, StoreError> {
        let opened = self.env.open(path, OpenOptions::default()).await;
        opened.map_err(|error| self.error("opening", path, &error))
    }

    async fn first_header(&self, path: &Path, number: u64) -> Result<Option<Header>, StoreError> {
        let block = self.file(path).await?.read_at(0, HEADER).await;
        let block = block.map_err(|error| self.error("reading", path, &error))?;
        match Header::find(&block) {
            Found::Header(header) if header.segment == number => Ok(Some(header)),
            Found::Newer(version) => Err(crate::disk::identity::newer(path, version, super::group::VERSION)),
            Found::Header(_) | Found::Nothing => Ok(None),
        }
    }

    async fn read(&self, path: &Path) -> Result<Bytes, StoreError> {
        let file = self.file(path).await?;
        let len = usize::try_from(self.segment_bytes).unwrap_or(usize::MAX);
        file.read_at(0, len).await.map_err(|error| self.error("reading", path, &error))
    }

    /// Replay everything after `checkpoint`.
    pub async fn replay(&mut self, checkpoint: Lsn) -> Result<Replayed, StoreError> {
        let mut replayed =
            Replayed { last: checkpoint, sequence: 1, rows: BTreeMap::new(), walked: BTreeMap::new() };
        let mut walk = Walk { last: None, sequence: 0, durable: checkpoint.0, checkpoint };
        // The newest segment that begins at or before the first record needed.
        let starts =
            |head: &Head| head.first.is_some_and(|first| first.first <= checkpoint.0.saturating_add(1));
        let mut next = self.heads.iter().rposition(starts);
        // Where the following groups should be: (file, offset, generation).
        let mut stopped: Option<(PathBuf, usize, u64)> = None;
        while let Some(index) = next {
            let head = &self.heads[index];
            let Some(first) = head.first else { break };
            let content = self.read(&head.path).await?;
            let (sure, end) =
                walk.segment(&content, head.number, first.generation, &mut replayed.rows, &head.path)?;
            let last = walk.last.unwrap_or(checkpoint.0);
            if end > 0 {
                self.sync(&head.path, &content, sure..end).await?;
                replayed.walked.insert(head.number, Lsn(last));
            }
            stopped = Some((head.path.clone(), end, first.generation));
            next = self.following(last, first.generation).await?;
        }
        let last = walk.last.unwrap_or(0).max(checkpoint.0);
        let short = walk.last.is_some_and(|last| last < checkpoint.0);
        self.look_behind(last, short, stopped).await?;
        replayed.last = Lsn(last);
        replayed.sequence = walk.sequence + 1;
        Ok(replayed)
    }

    /// The segment whose first group is valid and continues after `last`.
    async fn following(&self, last: u64, generation: u64) -> Result<Option<usize>, StoreError> {
        for (index, head) in self.heads.iter().enumerate() {
            let continues = |first: &Header| {
                let fits = first.group_len() as u64 <= self.segment_bytes;
                fits && first.generation > generation && first.first == last + 1
            };
            let Some(first) = head.first.filter(continues) else { continue };
            let file = self.file(&head.path).await?;
            let group = file.read_at(0, first.group_len()).await;
            let group = group.map_err(|error| self.error("reading", &head.path, &error))?;
            if first.body(&group).is_some() {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// Searches for proof that more was durable than was found: a later header that states it; or, if the
    /// walk fell `short` of the checkpoint, any later group of that segment: the records between were
    /// checkpointed, so they were durable.
    async fn look_behind(
        &self,
        last: u64,
        short: bool,
        stopped: Option<(PathBuf, usize, u64)>,
    ) -> Result<(), StoreError> {
        let generation = stopped.as_ref().map_or(0, |(_, _, generation)| *generation);
        let mut torn: Option<(&PathBuf, usize)> = None;
        for head in &self.heads {
            let here = stopped.as_ref().filter(|(path, _, _)| *path == head.path);
            if here.is_none() && head.first.is_some_and(|first| first.generation < generation) {
                continue;
            }
            let from = here.map_or(0, |(_, end, _)| *end);
            let content = self.read(&head.path).await?;
            for (at, header) in headers(&content, from, head.number) {
                let passed = short && here.is_some() && header.generation == generation;
                if passed || (header.generation >= generation && header.durable > last) {
                    let (path, at) = stopped.as_ref().map_or((&head.path, 0), |(path, at, _)| (path, *at));
                    return Err(damage(path, at, last + u64::from(!passed), header.durable.max(last)));
                }
                if header.generation >= generation && header.last > last {
                    torn.get_or_insert((&head.path, at));
                }
            }
        }
        if let Some((path, at)) = torn {
            tracing::warn!(
                file = %path.display(),
                offset = at,
                "the journal's tail was torn by a crash and is cut: nothing in it had been called durable"
            );
        }
        Ok(())
    }

    /// Makes the read groups durable: they may be in the page cache alone (the server was killed), and the
    /// store relies on them from now on. Groups that no header calls durable are written once more: after a
    /// failed sync the kernel regards pages as clean that it never wrote, and another sync would not write
    /// them either.
    async fn sync(&self, path: &Path, content: &Bytes, unsure: Range<usize>) -> Result<(), StoreError> {
        let file = self.file(path).await?;
        let synced = async {
            if !unsure.is_empty() {
                file.write_at(unsure.start as u64, vec![content.slice(unsure)]).await?;
            }
            file.sync().await
        };
        synced.await.map_err(|error| self.error("syncing", path, &error))
    }

    /// The segments as the journal continues with them.
    pub fn segments(self, live: &Live, checkpoint: Lsn, replayed: &Replayed) -> Result<Segments, StoreError> {
        let overflow = || StoreError::Damaged("a segment of the journal has an impossible generation".into());
        let generation = self.generation.checked_add(GENERATIONS_UNSEEN).ok_or_else(overflow)?;
        let mut segments = Segments::new(self.dir.to_owned(), self.segment_bytes, generation);
        let mut homeless: BTreeMap<Place, i64> = live.0.clone();
        for head in &self.heads {
            let generation = head.first.map_or(0, |first| first.generation);
            let lives = homeless.remove(&(head.number, generation)).unwrap_or(0);
            let walked = replayed.walked.get(&head.number);
            let state = if lives > 0 || walked.is_some() { State::Sealed } else { State::Free };
            let last = walked.copied().unwrap_or(checkpoint);
            segments.add(head.number, state, generation, last, u64::try_from(lives).unwrap_or(0));
        }
        if let Some(((number, generation), bytes)) = homeless.iter().find(|(_, bytes)| **bytes > 0) {
            return Err(StoreError::Damaged(format!(
                "{} of generation {generation} holds {bytes} bytes of streams and is not there",
                segments.path(*number).display()
            )));
        }
        Ok(segments)
    }
}

fn damage(path: &Path, at: usize, missing: u64, durable: u64) -> StoreError {
    StoreError::Damaged(format!(
        "{} at offset {at}: the record with LSN {missing} was durable (up to {durable} everything was) and cannot be \
         read",
        path.display()
    ))
}

/// All headers of a segment from `from` on, at any place.
fn headers(content: &[u8], from: usize, number: u64) -> impl Iterator<Item = (usize, Header)> + '_ {
    let blocks = (from.next_multiple_of(BLOCK)..content.len()).step_by(BLOCK);
    blocks.filter_map(move |at| match Header::find(&content[at..]) {
        Found::Header(header) if header.segment == number => Some((at, header)),
        _ => None,
    })
}

/// Walk the groups of one segment without further knowledge, and read all headers after them.
pub(crate) fn walk_alone(content: &[u8]) -> Result<(), StoreError> {
    let mut walk = Walk { last: None, sequence: 0, durable: 0, checkpoint: Lsn(0) };
    let (number, generation) = match Header::find(content) {
        Found::Header(header) => (header.segment, header.generation),
        Found::Newer(_) | Found::Nothing => (1, 1),
    };
    let (_, end) = walk.segment(content, number, generation, &mut BTreeMap::new(), Path::new("segment"))?;
    headers(content, end.min(content.len()), number).for_each(drop);
    Ok(())
}

/// The position of the walk.
struct Walk {
    last: Option<u64>,
    /// The newest group's.
    sequence: u64,
    /// The checkpoint's LSN, or the greatest LSN that a header states as durable.
    durable: u64,
    checkpoint: Lsn,
}

impl Walk {
    /// Reads the groups of one segment as far as they continue; returns up to where they are known to be
    /// durable, and where they end.
    fn segment(
        &mut self,
        content: &[u8],
        number: u64,
        generation: u64,
        rows: &mut BTreeMap<Bytes, Option<Bytes>>,
        path: &Path,
    ) -> Result<(usize, usize), StoreError> {
        let mut at = 0;
        let mut ends: Vec<(u64, usize)> = Vec::new();
        // LSNs continue from segment to segment; sequences show that a group continues the one before it in
        // its segment.
        let mut sequence = None;
        while let Some(rest) = content.get(at..).filter(|rest| rest.len() >= BLOCK) {
            let header = match Header::find(rest) {
                Found::Header(header) => header,
                Found::Newer(version) => {
                    return Err(crate::disk::identity::newer(path, version, super::group::VERSION));
                }
                Found::Nothing => break,
            };
            let continues = header.segment == number
                && header.generation == generation
                && header.last >= header.first
                // LSNs begin at 1, and neither they nor sequences ever come near their end.
                && header.first > 0
                && header.last < u64::MAX
                && header.sequence < u64::MAX
                && self.last.is_none_or(|last| header.first == last + 1)
                && sequence.is_none_or(|sequence| header.sequence == sequence + 1);
            let Some(body) = header.body(rest).filter(|_| continues) else { break };
            self.group(&header, body, rows)?;
            sequence = Some(header.sequence);
            self.durable = self.durable.max(header.durable);
            at += header.group_len();
            ends.push((header.last, at));
        }
        let sure = ends.iter().rfind(|(last, _)| *last <= self.durable).map_or(0, |(_, end)| *end);
        Ok((sure.min(at), at))
    }

    fn group(
        &mut self,
        header: &Header,
        mut body: &[u8],
        rows: &mut BTreeMap<Bytes, Option<Bytes>>,
    ) -> Result<(), StoreError> {
        let mut lsn = header.first;
        while let Some(record) = next_record(&mut body)? {
            let skipped = mutant::is(Mutant::SkipRecord) && lsn.is_multiple_of(32);
            if lsn > self.checkpoint.0 && !skipped {
                rows.extend(record);
            }
            lsn += 1;
        }
        if lsn != header.last + 1 {
            return Err(StoreError::Damaged(format!(
                "a group of the journal says its last LSN is {} and holds records up to {}",
                header.last,
                lsn - 1
            )));
        }
        self.last = Some(header.last);
        self.sequence = header.sequence;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
