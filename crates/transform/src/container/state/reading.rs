//! Reads an open container: gathers the bytes of a pattern from its logs.
//!
//! The index deals the pattern to the logs. Pieces of one log that lie close together are one *group*, which
//! is read whole. All groups of a log are one patterned read of the log, so over a ShoalFS they are one
//! request, and over a directory one visit to a thread.
//!
//! ```text
//!   pattern      AAABBBAAABBB  AAABBB        A, B: the logs in which the index finds the bytes
//!   log A        [AAAAAA]  [AAA]             two groups, one read of a list of two regions
//!   log B        [BBBBBB]  [BBB]
//! ```

use super::State;
use crate::container::names;
use crate::limits::{FOLDERS, GROUP_BYTES_MAX, GROUPS_AT_ONCE, LOADS_AT_ONCE, RUNS_AT_ONCE};
use crate::writer_id::WriterId;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};
use shoal_pattern::{Deal, Dealt, Pattern, Placement, Region, Window};
use shoal_proto::{Rights, Status};
use shoal_vfs::{Error, Result, Vfs, VfsFile};

/// Times that logs are looked up anew in one read.
const REPLACED_MAX: usize = 3;
/// Bytes of a log that lie no further apart are read at once, if no more is read for nothing than is used.
const GAP_MAX: u64 = 64 << 10;
/// Bytes between two pieces that cost less to read than a further region costs.
const GAP_FREE: u64 = 512;

/// Pieces of one log that are read at once.
struct Group<'a> {
    log: u32,
    place: u64,
    len: u64,
    runs: &'a [Dealt],
}

impl<B: Vfs> State<B> {
    /// Read; short only at the end of the file.
    pub(in crate::container) async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        let read = async || {
            let len = self.size().saturating_sub(offset).min(len as u64);
            let pattern = Pattern::contiguous(offset as i64, len).map_err(invalid)?;
            Ok((self.read_once(&pattern).await?, len))
        };
        Ok(self.while_replaced(read).await?.0)
    }

    /// Read the bytes of a pattern, packed, zeros where the file has none; and how far the file reached, at
    /// most to the pattern's end.
    pub(in crate::container) async fn read_pattern(&self, pattern: &Pattern) -> Result<(Bytes, u64)> {
        shoal_vfs::read_len(pattern)?;
        let Some((_, end)) = pattern.bounds() else { return Ok((Bytes::new(), 0)) };
        let end = u64::try_from(end).unwrap_or(0);
        let pattern = pattern.coalesce();
        let read = async || {
            let reached = self.size().min(end);
            Ok((self.read_once(&pattern).await?, reached))
        };
        self.while_replaced(read).await
    }

    async fn while_replaced(&self, read: impl AsyncFn() -> Result<(Bytes, u64)>) -> Result<(Bytes, u64)> {
        for _ in 0..REPLACED_MAX {
            match read().await {
                // Another process folded the logs: they are looked up anew.
                Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => {
                    self.read_at.replace(None);
                    self.drop_readers();
                    // A container that is removed says the first error.
                    self.refresh().await.map_err(|_| error)?;
                }
                read => return read,
            }
        }
        read().await
    }

    async fn read_once(&self, pattern: &Pattern) -> Result<Bytes> {
        let len = pattern.len();
        let (mut packed, mut from) = (BytesMut::new(), 0);
        while from < len {
            let (mut dealt, logs, end) = self.dealt(pattern, from)?;
            if let [Dealt { object: Some(log), place, len: all, .. }] = dealt[..]
                && all == len
            {
                return self.read_log(logs[log as usize], place, len).await;
            }
            if packed.is_empty() {
                packed = BytesMut::zeroed(len as usize);
            }
            dealt.sort_unstable_by_key(|run| (run.object, run.place));
            self.gather(&grouped(&dealt), &logs, &mut packed[from as usize..end as usize]).await?;
            from = end;
        }
        Ok(packed.freeze())
    }

    /// The next pieces of a pattern from a packed place on, without those in no log; the logs, and the packed
    /// place after the pieces.
    fn dealt(&self, pattern: &Pattern, from: u64) -> Result<(Vec<Dealt>, Vec<WriterId>, u64)> {
        let index = self.index.borrow();
        let placement: &dyn Placement = &*index;
        let window = Window::new(from, pattern.len() - from);
        let (mut dealt, mut end) = (Vec::new(), from);
        for run in Deal::new(pattern, window, placement).map_err(invalid)?.take(RUNS_AT_ONCE) {
            end = from + run.packed + run.len;
            dealt.extend(run.object.is_some().then_some(run));
        }
        Ok((dealt, index.logs().to_vec(), end))
    }

    /// Read groups, and put their pieces to their packed places.
    async fn gather(&self, groups: &[Group<'_>], logs: &[WriterId], packed: &mut [u8]) -> Result<()> {
        let reads = batched(groups).into_iter().map(|batch| async move {
            let read = self.read_groups(logs[batch[0].log as usize], batch).await?;
            Ok::<_, Error>((batch, read))
        });
        let mut reads = stream::iter(reads).buffer_unordered(LOADS_AT_ONCE);
        while let Some((batch, bytes)) = reads.try_next().await? {
            let mut begin = 0;
            for group in batch {
                for run in group.runs {
                    let there = begin + (run.place - group.place) as usize;
                    let (to, len) = (run.packed as usize, run.len as usize);
                    packed[to..to + len].copy_from_slice(&bytes[there..there + len]);
                }
                begin += group.len as usize;
            }
        }
        Ok(())
    }

    /// Groups of a log, one after the other.
    async fn read_groups(&self, id: WriterId, groups: &[Group<'_>]) -> Result<Bytes> {
        if let [group] = groups {
            return self.read_log(id, group.place, group.len).await;
        }
        let regions = groups.iter().map(|group| Region::new(group.place as i64, group.len)).collect();
        let pattern = Pattern::list(regions).map_err(invalid)?;
        let end = pattern.bounds().map_or(0, |(_, end)| end as u64);
        let (bytes, reached) = self.reader(id).await?.read_pattern_sized(&pattern).await?;
        if reached < end { Err(self.short(id)) } else { Ok(bytes) }
    }

    fn short(&self, id: WriterId) -> Error {
        let words =
            format!("the data log of writer {id} is shorter than its index says: `shoal container check`");
        Error::new(Status::Io, "read").of(self.object).because(words)
    }

    /// Bytes of a data log, all of them.
    pub(in crate::container) async fn read_log(&self, id: WriterId, place: u64, len: u64) -> Result<Bytes> {
        let file = self.reader(id).await?;
        let bytes = file.read(place, len as usize).await?;
        if (bytes.len() as u64) < len { Err(self.short(id)) } else { Ok(bytes) }
    }

    async fn reader(&self, id: WriterId) -> Result<B::File> {
        if let Some(own) = self.writers.borrow().iter().find(|writer| writer.id == id) {
            return Ok(own.data.clone());
        }
        if let Some(open) = self.readers.borrow_mut().get(&id) {
            return Ok(open.clone());
        }
        let over = &self.shared.over;
        let folder = over.lookup(self.object, &names::folder(id.folder(FOLDERS))?).await?;
        let data = over.lookup(folder.handle, &names::data(id)?).await?;
        let file = over.open(data.handle, Rights::READ).await?;
        self.readers.borrow_mut().push(id, file.clone());
        Ok(file)
    }

    /// No file is open any more: its logs are closed.
    pub(in crate::container) fn drop_readers(&self) {
        self.readers.borrow_mut().clear();
    }
}

fn invalid(error: impl std::fmt::Display) -> Error {
    Error::new(Status::Invalid, "read").because(error.to_string())
}

/// Groups of pieces. The pieces come by log and place.
fn grouped(dealt: &[Dealt]) -> Vec<Group<'_>> {
    let (mut groups, mut first) = (Vec::new(), 0);
    let (mut end, mut used) = (0, 0);
    for (at, run) in dealt.iter().enumerate() {
        if at > first {
            let gap_max = GAP_FREE.max(GAP_MAX.min(used));
            let goes_on = run.object == dealt[first].object
                && run.place.saturating_sub(end) <= gap_max
                && run.place + run.len - dealt[first].place <= GROUP_BYTES_MAX;
            if !goes_on {
                groups.push(group(&dealt[first..at], end));
                (first, end, used) = (at, 0, 0);
            }
        }
        // Where a pattern overlaps itself, pieces do so too.
        end = end.max(run.place + run.len);
        used += run.len;
    }
    if first < dealt.len() {
        groups.push(group(&dealt[first..], end));
    }
    groups
}

fn group(runs: &[Dealt], end: u64) -> Group<'_> {
    let place = runs[0].place;
    Group { log: runs[0].object.unwrap_or(0), place, len: end - place, runs }
}

/// Groups of one log that are read by one request: of so many bytes together, but for one that is longer, and
/// so many that a disk reads them within a time limit.
fn batched<'a, 'b>(groups: &'b [Group<'a>]) -> Vec<&'b [Group<'a>]> {
    let (mut batches, mut first, mut bytes) = (Vec::new(), 0, 0);
    for (at, group) in groups.iter().enumerate() {
        let is_full = at - first == GROUPS_AT_ONCE || bytes + group.len > GROUP_BYTES_MAX;
        if at > first && (is_full || group.log != groups[first].log) {
            batches.push(&groups[first..at]);
            (first, bytes) = (at, 0);
        }
        bytes += group.len;
    }
    batches.extend(groups.get(first..).filter(|rest| !rest.is_empty()));
    batches
}
