//! Handles of this server. They come from a counter that only grows, so no handle is used twice.
//!
//! ```text
//!    used          ready in memory        reserved durably, not yet handed out
//!  ───────────┬────────────────────────┬──────────────────────────────────────▶ counter
//!             next                     ready                  row "c handles"
//! ```
//! The row `c handles` holds the first counter that was never reserved. It is made durable, **in every sync
//! mode**, before any handle below it is handed out; at start everything below it counts as used. So after a
//! crash some handles are never used, and no handle is given twice.

use crate::meta::keys;
use crate::shard::apply_own;
use bytes::Bytes;
use shoal_env::local::Notify;
use shoal_proto::{Handle, ServerId, ServerInfo};
use shoal_store::{Changes, Collection, StoreError, look, settle};
use std::cell::Cell;

/// Handles reserved at once.
const RANGE: u64 = 65_536;
/// First counter of a new server; below are the root and reserved ones.
const FIRST: u64 = 16;

/// The handles of one shard.
pub struct Handles {
    server: ServerId,
    next: Cell<u64>,
    ready: Cell<u64>,
    /// The range of the store that this server is served from.
    range: Cell<(u64, u64)>,
    growing: Cell<bool>,
    /// Woken when more are ready, and when some more should be made ready.
    changed: Notify,
}

impl Handles {
    /// None ready yet: [`Handles::grow`] comes first.
    pub fn new(server: ServerId) -> Handles {
        Handles {
            server,
            next: Cell::new(0),
            ready: Cell::new(0),
            range: Cell::new((0, Handle::COUNTER_MAX)),
            growing: Cell::new(false),
            changed: Notify::default(),
        }
    }

    /// Give only handles of this range, the present store's. Before the first [`Handles::grow`].
    pub fn keep_within(&self, info: &ServerInfo) {
        self.range.set((info.handles_from(), info.handles_to()));
    }

    /// A handle never used before, if one is ready.
    pub fn take(&self) -> Option<Handle> {
        let next = self.next.get();
        if next >= self.ready.get() {
            return None;
        }
        self.next.set(next + 1);
        Some(Handle::new(self.server, next))
    }

    /// The first of `count` handles never used before that begin at a multiple of `count`, if so many are
    /// ready; those left out before it are never used.
    pub fn take_block(&self, count: u64) -> Option<Handle> {
        let first = self.next.get().checked_next_multiple_of(count)?;
        let next = first.checked_add(count).filter(|next| *next <= self.ready.get())?;
        self.next.set(next);
        Some(Handle::new(self.server, first))
    }

    /// Whether the next range should be reserved now, ahead of need.
    pub fn is_low(&self) -> bool {
        !self.growing.get() && self.ready.get() - self.next.get() < RANGE / 2
    }

    /// Reserve the next range, durably. Waits for a reservation already under way instead of making another.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn grow(&self, collection: &Collection) -> Result<(), StoreError> {
        if self.growing.get() {
            let changed = self.changed.wait();
            changed.await;
            return collection.health();
        }
        self.growing.set(true);
        let reserved = self.reserve(collection).await;
        self.growing.set(false);
        if let Ok((from, to)) = reserved {
            if self.next.get() == 0 {
                self.next.set(from);
            }
            self.ready.set(to);
        }
        self.changed.wake_all();
        reserved.map(drop)
    }

    async fn reserve(&self, collection: &Collection) -> Result<(u64, u64), StoreError> {
        let key = keys::config("handles");
        let (row, _) = look(collection, |view| view.get(&key)).await?;
        let from = match &row {
            None => FIRST,
            Some(row) => row
                .as_ref()
                .try_into()
                .map(u64::from_le_bytes)
                .map_err(|_| StoreError::Damaged("the row of reserved handles".into()))?,
        };
        let (first, end) = self.range.get();
        let from = from.max(first);
        let to = from.checked_add(RANGE).filter(|&to| to <= end);
        let Some(to) = to else {
            return Err(StoreError::Refused("all handles of this server are used".into()));
        };
        let mut changes = Changes::default();
        changes.put(key, Bytes::copy_from_slice(&to.to_le_bytes()));
        apply_own(collection, changes).await?;
        settle(collection).await?;
        Ok((from, to))
    }
}
