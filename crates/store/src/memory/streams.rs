//! Streams of module `memory` (and of `null`, where the bytes are acknowledged and not kept).

use super::{Body, State};
use crate::runs::{check_runs, runs_end};
use crate::stream_row::{Home, StreamRow, stream_key};
use crate::{Changes, StoreError, StreamChange, StreamInfo};
use bytes::{Bytes, BytesMut};
use shoal_env::WallTime;
use shoal_pattern::ViewRun;
use shoal_proto::Handle;

impl State {
    pub(super) fn change_stream(&mut self, handle: Handle, change: StreamChange) -> Result<(), StoreError> {
        let row = match change {
            StreamChange::Create { generation } => {
                self.drop_body(handle);
                StreamRow::empty(generation)
            }
            StreamChange::Put { content, size, written_at } => {
                let old = self.stream(handle)?;
                let size = size.max(content.len() as u64);
                self.with_body(handle, |body| *body = Body::with_content(&content));
                self.copied(if self.bytes { content.len() } else { 0 });
                StreamRow { size, written_at: Some(written_at), ..StreamRow::empty(old.generation) }
            }
            StreamChange::Resize { generation, size, written_at } => {
                let old = self.stream(handle)?;
                self.with_body(handle, |body| body.cut(size));
                StreamRow { generation, size, written_at, ..old }
            }
            StreamChange::Advance { generation } => {
                StreamRow { generation, written_at: None, ..self.stream(handle)? }
            }
            StreamChange::Remove => {
                self.drop_body(handle);
                self.put_row(Bytes::copy_from_slice(&stream_key(handle)), None);
                return Ok(());
            }
        };
        self.settle(handle, row);
        Ok(())
    }

    /// Put a row with the space and home of its present body.
    fn settle(&mut self, handle: Handle, mut row: StreamRow) -> StreamInfo {
        let body = self.bodies.get(&handle);
        row.space = body.map_or(0, Body::space);
        let end = if self.bytes { body.map_or(0, Body::end) } else { row.size };
        row.home = if end <= Changes::SMALL_MAX as u64 { Home::Tiny } else { Home::File };
        self.put_stream(handle, &row);
        row.info()
    }

    fn with_body(&mut self, handle: Handle, change: impl FnOnce(&mut Body)) {
        if !self.bytes {
            return;
        }
        let body = self.bodies.entry(handle).or_default();
        let before = body.space();
        change(body);
        self.used = (self.used + body.space()).saturating_sub(before);
    }

    fn drop_body(&mut self, handle: Handle) {
        if let Some(body) = self.bodies.remove(&handle) {
            self.used = self.used.saturating_sub(body.space());
        }
    }

    /// The stream, if it is of this generation.
    fn fresh(&self, handle: Handle, generation: u64) -> Result<StreamRow, StoreError> {
        let row = self.stream(handle)?;
        if row.generation == generation {
            Ok(row)
        } else {
            Err(StoreError::Stale { current: row.generation })
        }
    }

    pub(super) fn read(
        &self,
        handle: Handle,
        generation: u64,
        runs: &[ViewRun],
        len: usize,
    ) -> Result<(Bytes, StreamInfo), StoreError> {
        let row = self.fresh(handle, generation)?;
        check_runs(runs, len)?;
        let mut out = BytesMut::zeroed(len);
        if let Some(body) = self.bodies.get(&handle) {
            for run in runs {
                let at = run.packed as usize;
                body.read(run.physical, &mut out[at..at + run.len as usize]);
            }
        }
        self.copied(out.len());
        Ok((out.freeze(), row.info()))
    }

    pub(super) fn write(
        &mut self,
        handle: Handle,
        generation: u64,
        runs: &[ViewRun],
        data: &[u8],
        at: WallTime,
    ) -> Result<StreamInfo, StoreError> {
        self.fresh(handle, generation)?;
        check_runs(runs, data.len())?;
        self.with_body(handle, |body| {
            for run in runs {
                body.write(run.physical, &data[run.packed as usize..(run.packed + run.len) as usize]);
            }
        });
        self.copied(if self.bytes { data.len() } else { 0 });
        self.touch(handle, generation, runs_end(runs), at)
    }

    pub(super) fn append(
        &mut self,
        handle: Handle,
        generation: u64,
        end_max: u64,
        data: &[u8],
        at: WallTime,
    ) -> Result<(u64, StreamInfo), StoreError> {
        let offset = self.fresh(handle, generation)?.size;
        if offset.saturating_add(data.len() as u64) > end_max {
            return Err(StoreError::Stale { current: generation });
        }
        let run = ViewRun { physical: offset, packed: 0, len: data.len() as u64 };
        let info = self.write(handle, generation, &[run], data, at)?;
        Ok((offset, info))
    }

    pub(super) fn punch(
        &mut self,
        handle: Handle,
        generation: u64,
        from: u64,
        to: u64,
        at: WallTime,
    ) -> Result<StreamInfo, StoreError> {
        self.fresh(handle, generation)?;
        self.with_body(handle, |body| body.punch(from, to));
        self.touch(handle, generation, 0, at)
    }

    /// A write happened at `at` and reached to `end`.
    pub(super) fn touch(
        &mut self,
        handle: Handle,
        generation: u64,
        end: u64,
        at: WallTime,
    ) -> Result<StreamInfo, StoreError> {
        let row = self.fresh(handle, generation)?;
        self.next_lsn();
        self.weak = true;
        let row = StreamRow { size: row.size.max(end), written_at: row.written_at.max(Some(at)), ..row };
        Ok(self.settle(handle, row))
    }
}
