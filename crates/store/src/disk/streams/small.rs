//! Bulk changes of small streams. In one turn at the stream's gate, the content is changed in memory and
//! written to the journal as a whole.
//!
//! The bytes are in the journal, as with a `Put`. The reply waits until their journal group (the records of
//! one write) is written to the kernel. So the bytes survive a kill of the server. A power cut may lose them
//! until the next sync, as with any data in mode *at fsync*.

use super::super::CollectionState;
use super::super::apply::Manner;
use super::bulk::{Bulk, Done};
use super::folders::{self, FolderNumber};
use crate::stream_row::{Home, StreamRow};
use crate::{Changes, DataSync, Loaded, StoreError, StreamChange, Strength};
use bytes::{Bytes, BytesMut};
use futures_util::future::join;
use shoal_env::{WallTime, crash_point};
use shoal_proto::Handle;
use std::rc::Rc;

impl CollectionState {
    /// `None`: the stream changed while its content was loaded.
    pub(crate) async fn change_small(
        self: &Rc<Self>,
        handle: Handle,
        row: &StreamRow,
        bulk: &Bulk,
        at: WallTime,
    ) -> Result<Option<Done>, StoreError> {
        let content = self.content(row).await?;
        // No await from here to the apply: the row is checked once more.
        let (now, loaded) = self.wait_row(handle).await?;
        if now != *row {
            return Ok(None);
        }
        self.copied(content.len() + bulk.data_len());
        let (offset, size, content) = changed(row, bulk, content);
        let at = row.written_at.max(Some(at)).unwrap_or(at);
        let lsn = self.put_small(handle, StreamChange::Put { content, size, written_at: at }, &loaded)?;
        if self.modes.get().data == DataSync::AtReply {
            self.wait_durable(lsn).await?;
        } else {
            self.wait_written(lsn).await?;
        }
        let (now, _) = self.wait_row(handle).await?;
        Ok(Some((offset, now.info())))
    }

    fn put_small(
        self: &Rc<Self>,
        handle: Handle,
        put: StreamChange,
        loaded: &Loaded,
    ) -> Result<crate::Lsn, StoreError> {
        let mut changes = Changes { strength: Strength::Weak, ..Changes::default() };
        changes.stream(handle, put);
        self.apply_with(changes, loaded, Manner { urgent: true })
    }

    /// Move a stream to a file: copy, sync, record. The old home lives until the record is durable. The
    /// record is not urgent: only later writes could miss it, and an fsync of those covers both.
    ///
    /// A stream without a byte has nothing to lose: its file is not synced before its own first fsync
    /// (*loose*), unless it had a file before, whose bytes a power cut could restore under the same name.
    ///
    /// `bytes`: what it is about to hold.
    pub(crate) async fn move_to_file(self: &Rc<Self>, handle: Handle, bytes: u64) -> Result<(), StoreError> {
        let Some(_alone) = self.gates.request(handle, true).pass().await else { return Ok(()) };
        let folder = self.folder_of_new(handle, bytes);
        let mut made = false;
        let moved = self.try_move(handle, folder, &mut made).await;
        self.env.crash_point(crash_point::MOVE_DONE, handle.0);
        if moved.is_err() && made && self.health().is_ok() {
            // No space, or the stream was removed meanwhile: the file is no stream's home. It is removed,
            // durably, as no row knows of it.
            if let Err(error) = self.files.discard(handle, folder).await {
                self.poison(&error);
            }
        }
        moved
    }

    /// The folder of a new file that will hold so many bytes.
    pub(crate) fn folder_of_new(&self, handle: Handle, bytes: u64) -> FolderNumber {
        let folders = self.files.folders().len();
        if folders == 1 {
            return FolderNumber::default();
        }
        let ledger = self.ledger.borrow();
        let has_room = |folder| ledger.free_in(folder) >= bytes.saturating_add(self.config.reserve_bytes);
        folders::choose(handle, folders, has_room)
    }

    /// See [`Module::disk_of`](crate::Module::disk_of).
    pub(crate) fn disk_of(&self, handle: Handle) -> u16 {
        let folders = self.files.folders().len();
        if folders == 1 {
            return 0;
        }
        match self.stream_row(handle, &Loaded::default()) {
            Ok(Some(row)) if row.home == Home::File => row.folder.0,
            _ => folders::choose(handle, folders, |_| true).0,
        }
    }

    /// `made`: there is a file, which is not the home unless this succeeds.
    async fn try_move(
        self: &Rc<Self>,
        handle: Handle,
        folder: FolderNumber,
        made: &mut bool,
    ) -> Result<(), StoreError> {
        loop {
            self.health()?;
            let (row, _) = self.wait_row(handle).await?;
            if row.home == Home::File {
                return Ok(());
            }
            let content = self.content(&row).await?;
            // Nor may a copy come back that another change, which emptied the stream, overtook.
            let loose = content.is_empty() && !row.had_file && !*made;
            *made = true;
            self.env.crash_point(crash_point::MOVE_COPIES, handle.0);
            let copied = match loose {
                true => self.new_file(handle, folder).await.map(drop),
                false => self.copy_to_file(handle, folder, &content).await,
            };
            if let Err(error) = copied {
                return Err(self.judge(error).await);
            }
            let (now, _) = self.wait_row(handle).await?;
            if now == row {
                let space = content.len() as u64;
                let (home, tiny) = (Home::File, Bytes::new());
                let after = StreamRow { home, tiny, valid: 0, space, loose, folder, ..row.clone() };
                let lsn =
                    self.commit_row(handle, row, after, None, Strength::Weak, Manner { urgent: true })?;
                self.env.crash_point(crash_point::MOVE_RECORDS, handle.0);
                return self.wait_written(lsn).await;
            }
        }
    }

    async fn copy_to_file(
        self: &Rc<Self>,
        handle: Handle,
        folder: FolderNumber,
        content: &Bytes,
    ) -> Result<(), StoreError> {
        let file = self.new_file(handle, folder).await?;
        let copy = async {
            if !content.is_empty() {
                file.write_at(0, vec![content.clone()]).await?;
            }
            file.sync().await
        };
        let (copied, named) = join(copy, self.files.sync_name(handle, folder)).await;
        copied.map_err(|error| StoreError::io(format!("moving stream {handle} to a file"), &error))?;
        named
    }
}

/// (offset, size, content) after a change.
fn changed(row: &StreamRow, bulk: &Bulk, content: Bytes) -> (u64, u64, Bytes) {
    let mut bytes = BytesMut::from(&content[..]);
    let mut size = row.size;
    let mut offset = 0;
    let mut write = |bytes: &mut BytesMut, at: u64, data: &[u8]| {
        if data.is_empty() {
            return;
        }
        let (from, to) = (at as usize, at as usize + data.len());
        if bytes.len() < to {
            bytes.resize(to, 0);
        }
        bytes[from..to].copy_from_slice(data);
        size = size.max(to as u64);
    };
    match bulk {
        Bulk::Write { runs, data } => {
            for run in runs {
                let (from, len) = (run.packed as usize, run.len as usize);
                write(&mut bytes, run.physical, &data[from..from + len]);
            }
        }
        Bulk::Append { data, .. } => {
            offset = row.size;
            write(&mut bytes, offset, data);
        }
        Bulk::Allocate { offset, len, extend } => {
            if *extend {
                size = size.max(offset + len);
            }
        }
        Bulk::Punch { offset, len } => {
            let end = offset.saturating_add(*len).min(bytes.len() as u64) as usize;
            let from = (*offset).min(end as u64) as usize;
            bytes[from..end].fill(0);
        }
    }
    (offset, size, bytes.freeze())
}
