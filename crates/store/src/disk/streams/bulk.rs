//! Bulk operations on a stream. Each operation waits at the stream's gate (a queue of its operations). Reads
//! and changes then check the generation. A stream's *home* (the place of its bytes) is its row, the journal,
//! or a local file. A change that makes the stream too large for a row or the journal first moves it to a
//! file.

use super::super::CollectionState;
use super::gates::Pass;
use crate::runs::{OFFSET_MAX, check_runs, runs_end};
use crate::stream_row::{Home, StreamRow};
use crate::{Changes, DataSync, LossId, Over, StoreError, StreamInfo};
use bytes::{Bytes, BytesMut};
use futures_util::future::join;
use shoal_env::{Counters, WallTime};
use shoal_pattern::ViewRun;
use shoal_proto::Handle;
use std::rc::Rc;

/// A change of a stream's bytes.
#[derive(Clone)]
pub(crate) enum Bulk {
    Write { runs: Vec<ViewRun>, data: Bytes },
    Append { data: Bytes, end_max: u64 },
    Allocate { offset: u64, len: u64, extend: bool },
    Punch { offset: u64, len: u64 },
}

impl Bulk {
    fn check(&self) -> Result<(), StoreError> {
        match self {
            Bulk::Write { runs, data } => check_runs(runs, data.len()),
            Bulk::Append { .. } => Ok(()),
            Bulk::Allocate { offset, len, .. } => {
                let end = offset.checked_add(*len).filter(|end| *end <= OFFSET_MAX);
                end.map(|_| ())
                    .ok_or_else(|| StoreError::invalid("a range beyond the largest offset of a stream"))
            }
            Bulk::Punch { .. } => Ok(()),
        }
    }

    /// Whether an append would end beyond its limit.
    fn is_beyond(&self, row: &StreamRow) -> bool {
        match self {
            Bulk::Append { data, end_max } => row.size.saturating_add(data.len() as u64) > *end_max,
            Bulk::Write { .. } | Bulk::Allocate { .. } | Bulk::Punch { .. } => false,
        }
    }

    /// Bytes of data it brings.
    pub fn data_len(&self) -> usize {
        match self {
            Bulk::Write { data, .. } | Bulk::Append { data, .. } => data.len(),
            Bulk::Allocate { .. } | Bulk::Punch { .. } => 0,
        }
    }

    /// The end of a small stream's content after this change.
    pub fn content_end(&self, row: &StreamRow) -> u64 {
        let end = match self {
            Bulk::Write { runs, .. } => runs_end(runs),
            Bulk::Append { data, .. } => row.size.saturating_add(data.len() as u64),
            // Only a file can reserve space. A stream that stays small needs no reserved space.
            Bulk::Allocate { offset, len, .. } => offset.saturating_add(*len),
            Bulk::Punch { .. } => 0,
        };
        end.max(row.content_len())
    }
}

/// The result of a bulk change: the offset of an append, and the facts.
pub(crate) type Done = (u64, StreamInfo);

impl CollectionState {
    /// Count bytes that were copied from buffer to buffer.
    pub(in super::super) fn copied(&self, bytes: usize) {
        Counters::add(&self.env.counters().copied_bytes, bytes as u64);
    }

    /// Pass the gate, read the row, and check its generation.
    async fn meet(
        self: &Rc<Self>,
        handle: Handle,
        generation: u64,
        alone: bool,
    ) -> Result<(Pass, StreamRow), StoreError> {
        let pass = self.gates.request(handle, alone).pass().await;
        let pass = pass.ok_or_else(|| StoreError::invalid("the store was closed"))?;
        self.health()?;
        let (row, _) = self.wait_row(handle).await?;
        if row.generation != generation {
            return Err(StoreError::Stale { current: row.generation });
        }
        Ok((pass, row))
    }

    pub(crate) async fn read(
        self: Rc<Self>,
        handle: Handle,
        generation: u64,
        runs: Vec<ViewRun>,
        len: usize,
    ) -> Result<(Bytes, StreamInfo), StoreError> {
        check_runs(&runs, len)?;
        let (_pass, row) = self.meet(handle, generation, false).await?;
        let info = row.info();
        if row.home == Home::File {
            return Ok((self.read_file(handle, &row, &runs, len).await?, info));
        }
        let content = self.content(&row).await?;
        let mut out = BytesMut::zeroed(len);
        for run in &runs {
            let end = (run.physical + run.len).min(content.len() as u64).min(row.size);
            if run.physical < end {
                let (from, to, n) =
                    (run.physical as usize, run.packed as usize, (end - run.physical) as usize);
                out[to..to + n].copy_from_slice(&content[from..from + n]);
                self.copied(n);
            }
        }
        Ok((out.freeze(), info))
    }

    pub(crate) async fn change(
        self: Rc<Self>,
        handle: Handle,
        generation: u64,
        bulk: Bulk,
        at: WallTime,
    ) -> Result<Done, StoreError> {
        bulk.check()?;
        // The offset of an append is the stream's size, so an append runs alone.
        let alone = matches!(bulk, Bulk::Append { .. });
        loop {
            let met = self.meet(handle, generation, alone).await?;
            if let Some(done) = self.change_met(handle, met, &bulk, at).await? {
                return Ok(done);
            }
        }
    }

    /// Write runs with the old bytes between them. The old bytes are read in the same turn at the gate in
    /// which they are written back. If the stream is cut in between, both steps are repeated.
    pub(crate) async fn write_over(
        self: Rc<Self>,
        handle: Handle,
        generation: u64,
        over: Over,
        at: WallTime,
    ) -> Result<Done, StoreError> {
        let whole = over.whole()?;
        loop {
            let (pass, row) = self.meet(handle, generation, false).await?;
            let old = match row.home == Home::File {
                true => Some(self.read_file(handle, &row, &[whole], whole.len as usize).await?),
                false => None,
            };
            let (runs, data) = (over.merge)(old.as_deref());
            let bulk = Bulk::Write { runs, data };
            bulk.check()?;
            if let Some(done) = self.change_met(handle, (pass, row), &bulk, at).await? {
                return Ok(done);
            }
        }
    }

    /// Change a stream whose gate the caller has passed. `None`: the caller must repeat the change, because
    /// the stream was cut, moved to another home, or changed by another operation in between.
    async fn change_met(
        self: &Rc<Self>,
        handle: Handle,
        (pass, row): (Pass, StreamRow),
        bulk: &Bulk,
        at: WallTime,
    ) -> Result<Option<Done>, StoreError> {
        if bulk.is_beyond(&row) {
            return Err(StoreError::Stale { current: row.generation });
        }
        if row.home == Home::File {
            let done = self.change_file(handle, &row, bulk, at).await;
            drop(pass);
            let Some(done) = done.transpose() else { return Ok(None) };
            return self.settle_change(handle, done).await.map(Some);
        }
        if bulk.content_end(&row) <= Changes::SMALL_MAX as u64 {
            return self.change_small(handle, &row, bulk, at).await;
        }
        drop(pass);
        self.move_to_file(handle, bulk.content_end(&row)).await?;
        Ok(None)
    }

    /// End a change. If it failed, cut the bytes after the stream's end from the file. If it succeeded, sync
    /// the stream if data is synced at the reply.
    async fn settle_change(
        self: &Rc<Self>,
        handle: Handle,
        done: Result<Done, StoreError>,
    ) -> Result<Done, StoreError> {
        match done {
            Ok(done) => {
                if self.modes.get().data == DataSync::AtReply {
                    self.fsync(handle).await?;
                }
                Ok(done)
            }
            Err(error) => {
                if self.health().is_ok() {
                    self.trim(handle).await?;
                }
                Err(error)
            }
        }
    }

    /// See [`Module::has_lost_file`](crate::Module::has_lost_file).
    pub(crate) async fn has_lost_file(self: &Rc<Self>, handle: Handle) -> Result<bool, StoreError> {
        let _pass = self.gates.request(handle, false).pass().await;
        self.health()?;
        let row = match self.wait_row(handle).await {
            Err(StoreError::NoStream) => return Ok(false),
            row => row?.0,
        };
        // If no sync has covered the file, its absence is no loss: the file is made again when it is opened.
        if row.home != Home::File || row.loose {
            return Ok(false);
        }
        self.files.is_gone(handle, row.folder).await
    }

    /// See [`Module::drop_pages`](crate::Module::drop_pages).
    pub(crate) async fn drop_pages(self: &Rc<Self>, handle: Handle) -> Result<(), StoreError> {
        let _pass = self.gates.request(handle, false).pass().await;
        self.health()?;
        let (row, _) = self.wait_row(handle).await?;
        if row.home != Home::File {
            return Ok(());
        }
        let dropped = self.file(handle, &row).await?.drop_pages().await;
        dropped.map_err(|error| StoreError::io(format!("dropping the pages of stream {handle}"), &error))
    }

    pub(crate) async fn fsync(self: &Rc<Self>, handle: Handle) -> Result<LossId, StoreError> {
        let pass = self.gates.request(handle, false).pass().await;
        self.health()?;
        let (row, _) = self.wait_row(handle).await?;
        if row.loose {
            // After this a missing file is damage. The record that states this is written after the file's
            // sync, and this fsync makes it durable too.
            self.sync_file(handle, &row).await?;
        }
        self.flush_weak();
        let all = self.journal.borrow().applied;
        // Sync the file and the journal at the same time. The reply waits for both.
        let file = async {
            let synced = match row.home == Home::File && !row.loose {
                true => self.sync_file(handle, &row).await,
                false => Ok(()),
            };
            drop(pass);
            synced
        };
        let (file, journal) = join(file, self.wait_durable(all)).await;
        file?;
        journal?;
        // The kernel reports a write-back error only once, perhaps to another sync of this file. That sync
        // poisoned the store: check it.
        self.health()?;
        Ok(self.loss_id())
    }
}
