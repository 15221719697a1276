//! The work outside the journal that follows a batch of changes: the removal or the truncation of a local
//! file.
//!
//! The work gets its place at the stream's gate (its queue of operations) when the batch is applied, so later
//! data operations wait until it is done. **Invariant: nothing is done before the batch is durable**: until
//! then the old file may still be needed (asserted in `do_afterwards`).

use super::super::CollectionState;
use super::super::apply::{Manner, intent_key};
use super::folders::FolderNumber;
use crate::stream_row::Home;
use crate::{Changes, Loaded, Lsn, StoreError, Strength};
use bytes::Bytes;
use shoal_env::crash_point;
use shoal_proto::Handle;
use std::collections::BTreeMap;
use std::rc::Rc;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Afterwards {
    /// The file in this folder is not the stream's home any more.
    Unlink(FolderNumber),
    /// The file is to be cut to this size: the durable intent is part of the batch, the durable completion
    /// follows.
    Cut(u64),
}

/// Cuts that are recorded and not done, by stream.
///
/// The intent on disk is one row a stream, so it names the *shortest* of them. Between waiting cuts nothing
/// is written to the file, so the shortest decides which bytes remain. The row is removed with the last of
/// them.
#[derive(Default)]
pub(crate) struct Cuts(BTreeMap<Handle, Waiting>);

struct Waiting {
    shortest: u64,
    count: usize,
}

impl Cuts {
    /// The size of the intent after another cut to `size`.
    pub fn shortest(&self, handle: Handle, size: u64) -> u64 {
        self.0.get(&handle).map_or(size, |waiting| waiting.shortest.min(size))
    }

    /// Whether a cut waits for its turn at the stream's gate.
    pub fn wait_for(&self, handle: Handle) -> bool {
        self.0.contains_key(&handle)
    }

    pub fn begin(&mut self, handle: Handle, size: u64) {
        let waiting = self.0.entry(handle).or_insert(Waiting { shortest: size, count: 0 });
        waiting.shortest = waiting.shortest.min(size);
        waiting.count += 1;
    }

    /// One is done; whether it was the last.
    fn done(&mut self, handle: Handle) -> bool {
        let Some(waiting) = self.0.get_mut(&handle) else { return true };
        waiting.count -= 1;
        if waiting.count == 0 {
            self.0.remove(&handle);
        }
        !self.0.contains_key(&handle)
    }
}

impl CollectionState {
    pub(crate) fn follow(self: &Rc<Self>, handle: Handle, lsn: Lsn, what: Afterwards) {
        let turn = self.gates.request(handle, true);
        let begun = match what {
            Afterwards::Unlink(_) => crash_point::UNLINK_WAITS,
            Afterwards::Cut(_) => crash_point::CUT_INTENDED,
        };
        self.env.crash_point(begun, handle.0);
        if let Afterwards::Cut(size) = what {
            self.cuts.borrow_mut().begin(handle, size);
        }
        let collection = self.clone();
        self.env.spawn("store stream", async move {
            let Some(_alone) = turn.pass().await else { return };
            if let Err(error) = collection.do_afterwards(handle, lsn, what).await {
                collection.poison(&error);
            }
        });
    }

    async fn do_afterwards(
        self: &Rc<Self>,
        handle: Handle,
        lsn: Lsn,
        what: Afterwards,
    ) -> Result<(), StoreError> {
        self.wait_durable(lsn).await?;
        debug_assert!(self.journal.borrow().durable >= lsn, "the old file may still be needed");
        match what {
            Afterwards::Unlink(folder) => {
                self.env.crash_point(crash_point::UNLINK_BEGINS, handle.0);
                self.files.remove(handle, folder).await?;
                self.env.crash_point(crash_point::UNLINK_DONE, handle.0);
                Ok(())
            }
            Afterwards::Cut(size) => self.cut(handle, size).await,
        }
    }

    /// Cut the file, durably, then record the completion; the record is written before any later write is
    /// admitted. Also redoes an intent found at open.
    pub(crate) async fn cut(self: &Rc<Self>, handle: Handle, size: u64) -> Result<(), StoreError> {
        self.env.crash_point(crash_point::CUT_DURABLE, handle.0);
        let key = intent_key(handle);
        // Another batch may have moved the stream to a new home in the meantime.
        let row = match self.wait_row(handle).await {
            Ok((row, _)) => Some(row).filter(|row| row.home == Home::File),
            Err(StoreError::NoStream) => None,
            Err(error) => return Err(error),
        };
        if let Some(row) = &row {
            let file = self.file(handle, row).await?;
            let cut = async {
                if file.len().await? > size {
                    file.truncate(size).await?;
                    self.files.changed(handle, &file);
                }
                // Also for a file that is already short: a killed server may have cut it and not synced it.
                self.files.sync(handle, &file).await.map(drop)
            };
            cut.await.map_err(|error| StoreError::io(format!("cutting stream {handle}"), &error))?;
        }
        self.env.crash_point(crash_point::CUT_FILE, handle.0);
        let last = self.cuts.borrow_mut().done(handle);
        if last {
            let done = self.record_done(key)?;
            // A kill keeps written records. After a power cut that lost the record the cut is made once
            // more, and removes only bytes that no fsync has covered, as an fsync waits for this record
            // too.
            self.wait_written(done).await?;
        }
        self.env.crash_point(crash_point::CUT_DONE, handle.0);
        Ok(())
    }

    fn record_done(self: &Rc<Self>, key: Bytes) -> Result<Lsn, StoreError> {
        let changes = Changes { rows: vec![(key, None)], strength: Strength::Weak, ..Changes::default() };
        self.apply_with(changes, &Loaded::default(), Manner { urgent: true })
    }
}
