//! Garbage collection of the value log (the contents of small files that stay in the journal). The few live
//! contents of an old segment are copied to the journal's head.
//!
//! A sealed, checkpointed segment with less than half of its bytes alive is read from its beginning to its
//! end. Each row in it that names a content in this segment is compared with the current row. If both name
//! the same place, one record copies the content and changes the row. The old place is free when that
//! record is durable; then the segment is reused like any other segment. Collection is slow, and pauses
//! while changes wait for room.

use super::CollectionState;
use super::apply::Manner;
use super::journal::group::{self, Found, Header};
use super::table::live::Place;
use crate::stream_row::{Home, StreamRow, stream_of_key};
use crate::{StoreError, Strength};
use bytes::Bytes;
use shoal_env::crash_point;
use shoal_proto::Handle;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// Bytes copied before a pause, and the pause: 25 MiB/s at most. The copies are in groups that replies wait
/// for, so they are small.
const COPY_BYTES: u64 = 64 << 10;
const PAUSE: Duration = Duration::from_micros(2500);

pub(super) async fn run(collection: Rc<CollectionState>) {
    // Left unchanged until the next start, so that the others are collected.
    let mut failed = BTreeSet::new();
    loop {
        let woken = collection.segment_work.wait();
        if collection.health().is_err() {
            return;
        }
        let checkpointed = collection.checkpointed.get();
        let poor = collection.journal.borrow().segments.to_clean(checkpointed, &failed);
        let Some(place) = poor else {
            woken.await;
            continue;
        };
        collection.set_cleaning(place, true);
        collection.env.crash_point(crash_point::CLEANING_COPIES, 0);
        let collected = collection.collect(place).await;
        collection.env.crash_point(crash_point::CLEANING_COPIED, 0);
        if let Err(error) = collected {
            // Nothing is lost, no space is gained. A read of the content will report the error.
            tracing::error!(%error, segment = place.0, "collecting a segment failed");
            failed.insert(place);
        }
        collection.set_cleaning(place, false);
        let all = collection.journal.borrow().applied;
        if collection.wait_durable(all).await.is_err() {
            return;
        }
        collection.env.crash_point(crash_point::CLEANING_DONE, 0);
        collection.segment_work.wake_all();
        if collection.journal.borrow().segments.to_clean(checkpointed, &failed) == Some(place) {
            // Some content could not be moved now; wait for the next change.
            collection.room.wait().await;
        }
    }
}

impl CollectionState {
    fn set_cleaning(&self, place: Place, cleaning: bool) {
        self.journal.borrow_mut().segments.set_cleaning(place, cleaning);
    }

    async fn collect(self: &Rc<Self>, place: Place) -> Result<(), StoreError> {
        let reading = self.journal.borrow().segments.reading(place);
        let Some(reading) = reading else { return Ok(()) };
        let error = |error| StoreError::io(format!("reading {}", reading.0.path.display()), &error);
        let file = reading.0.plain(&self.env).await.map_err(error)?;
        let (mut at, mut copied) = (0, 0);
        while at + group::BLOCK as u64 <= self.identity.segment_bytes {
            let head = file.read_at(at, group::HEADER).await.map_err(error)?;
            let Found::Header(header) = Header::find(&head) else { break };
            let is_own = (header.segment, header.generation) == place;
            if !is_own || header.group_len() as u64 > self.identity.segment_bytes - at {
                break;
            }
            let group = file.read_at(at, header.group_len()).await.map_err(error)?;
            let Some(mut body) = header.body(&group) else { break };
            while let Some(rows) = group::next_record(&mut body)? {
                for (key, value) in rows {
                    let (Some(handle), Some(value)) = (stream_of_key(&key), value) else { continue };
                    copied += self.move_content(place, handle, &value).await?;
                    if copied >= COPY_BYTES {
                        copied = 0;
                        self.env.sleep(PAUSE).await;
                        self.wait_for_ease().await?;
                    }
                }
            }
            at += header.group_len() as u64;
        }
        Ok(())
    }

    /// Copying waits while changes wait.
    async fn wait_for_ease(&self) -> Result<(), StoreError> {
        loop {
            let moved = self.room.wait();
            self.health()?;
            if self.rows.borrow().frozen.len() < super::row_layers::FROZEN_MAX
                && self.journal.borrow().segments.ready() > 0
            {
                return Ok(());
            }
            moved.await;
        }
    }

    /// Copy a content that lives here; returns its bytes.
    async fn move_content(
        self: &Rc<Self>,
        place: Place,
        handle: Handle,
        then: &Bytes,
    ) -> Result<u64, StoreError> {
        let then = StreamRow::decode(then)?;
        if !lives_in(&then, place) {
            return Ok(0);
        }
        let now = match self.wait_row(handle).await {
            Ok((row, _)) if row.home == then.home => row,
            Ok(_) | Err(StoreError::NoStream) => return Ok(0),
            Err(error) => return Err(error),
        };
        let content = self.read_log(&now).await?;
        // No await from here on: the current row is the one that is replaced.
        let (row, _) = self.wait_row(handle).await?;
        if row.home != now.home {
            return Ok(0);
        }
        let len = content.len() as u64;
        self.commit_row(handle, row.clone(), row, Some(content), Strength::Weak, Manner::default())?;
        self.counters.borrow_mut().cleaned_bytes += len;
        Ok(len)
    }
}

fn lives_in(row: &StreamRow, place: Place) -> bool {
    matches!(row.home, Home::Log { segment, generation, .. } if (segment, generation) == place)
}
