//! Reads an open container: gathers the bytes from its logs.

use super::State;
use crate::container::names;
use crate::limits::{FOLDERS, GROUP_BYTES_MAX, LOADS_AT_ONCE};
use crate::writer_id::WriterId;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};
use shoal_pattern::{Deal, Dealt, Pattern, Placement, Window};
use shoal_proto::{Rights, Status};
use shoal_vfs::{Error, Result, Vfs, VfsFile};

/// Times that logs are looked up anew in one read.
const REPLACED_MAX: usize = 3;
/// Bytes of a log that lie no further apart are read at once.
const GAP_MAX: u64 = 64 << 10;

impl<B: Vfs> State<B> {
    /// Read; short only at the end of the file.
    pub(in crate::container) async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        for _ in 0..REPLACED_MAX {
            match self.read_once(offset, len).await {
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
        self.read_once(offset, len).await
    }

    async fn read_once(&self, offset: u64, len: usize) -> Result<Bytes> {
        let len = self.size().saturating_sub(offset).min(len as u64);
        if len == 0 {
            return Ok(Bytes::new());
        }
        let pattern = Pattern::contiguous(offset as i64, len)
            .map_err(|error| Error::new(Status::Invalid, "read").because(error.to_string()))?;
        let (mut dealt, logs) = {
            let index = self.index.borrow();
            let placement: &dyn Placement = &*index;
            let deal = Deal::new(&pattern, Window::all(&pattern), placement)
                .map_err(|error| Error::new(Status::Invalid, "read").because(error.to_string()))?;
            let dealt: Vec<Dealt> = deal.filter(|run| run.object.is_some()).collect();
            (dealt, index.logs().to_vec())
        };
        if let [only] = dealt[..]
            && only.len == len
        {
            return self.read_log(logs[only.object.unwrap_or(0) as usize], only.place, len).await;
        }
        dealt.sort_unstable_by_key(|run| (run.object, run.place));
        let reads = grouped(&dealt).into_iter().map(|group| self.read_group(&logs, group));
        let reads: Vec<_> = stream::iter(reads).buffer_unordered(LOADS_AT_ONCE).try_collect().await?;
        let mut packed = BytesMut::zeroed(len as usize);
        for (group, from, bytes) in reads {
            for run in group {
                let there = (run.place - from) as usize;
                let (to, len) = (run.packed as usize, run.len as usize);
                packed[to..to + len].copy_from_slice(&bytes[there..there + len]);
            }
        }
        Ok(packed.freeze())
    }

    async fn read_group<'a>(
        &self,
        logs: &[WriterId],
        group: &'a [Dealt],
    ) -> Result<(&'a [Dealt], u64, Bytes)> {
        let from = group[0].place;
        let end = group.iter().map(|run| run.place + run.len).max().unwrap_or(from);
        let id = logs[group[0].object.unwrap_or(0) as usize];
        Ok((group, from, self.read_log(id, from, end - from).await?))
    }

    /// Bytes of a data log, all of them.
    pub(in crate::container) async fn read_log(&self, id: WriterId, place: u64, len: u64) -> Result<Bytes> {
        let file = self.reader(id).await?;
        let bytes = file.read(place, len as usize).await?;
        if (bytes.len() as u64) < len {
            let words = format!(
                "the data log of writer {id} is shorter than its index says: `shoal container check`"
            );
            return Err(Error::new(Status::Io, "read").of(self.object).because(words));
        }
        Ok(bytes)
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

/// Runs of one log that lie close together, each group to be read at once. The runs come by log and place.
fn grouped(dealt: &[Dealt]) -> Vec<&[Dealt]> {
    let (mut groups, mut first) = (Vec::new(), 0);
    for at in 1..=dealt.len() {
        let goes_on = dealt.get(at).is_some_and(|next| {
            let last = &dealt[at - 1];
            let end = next.place + next.len;
            // No more is read for nothing than is used.
            let used: u64 = dealt[first..at].iter().map(|run| run.len).sum();
            last.object == next.object
                && next.place.saturating_sub(last.place + last.len) <= GAP_MAX.min(used)
                && end - dealt[first].place <= GROUP_BYTES_MAX
        });
        if !goes_on {
            groups.extend(dealt.get(first..at).filter(|group| !group.is_empty()));
            first = at;
        }
    }
    groups
}
