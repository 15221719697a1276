//! Admission: a change requests space and room before it is executed, so that `ENOSPC` is a reply and never
//! an accident.
//!
//! Free space is sampled rarely; in between, granted bytes count as taken. The reserve is for removals and
//! recovery. Changes, removals too, also wait while the tables are full or no segment is ready; reads never
//! do.

use super::CollectionState;
use super::row_layers::FROZEN_MAX;
use crate::{Admission, Ask, Space, StoreError};
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use shoal_env::Instant;
use std::rc::Rc;
use std::time::Duration;

/// Free space is sampled again after this long.
const SAMPLE_SPAN: Duration = Duration::from_millis(250);
/// A batch may be alone in its group: header and alignment.
const GROUP_OVERHEAD: u64 = 8192;

/// The known state of space.
#[derive(Default)]
pub(super) struct Ledger {
    total: u64,
    /// Free bytes by the last sample.
    available: u64,
    /// The disk's number ([`shoal_env::DiskSpace::disk`]).
    disk: u64,
    sampled: Option<Instant>,
    sampling: bool,
    /// Granted and released since: taken, as far as is known.
    taken: u64,
    /// Granted.
    outstanding: u64,
    /// Granted of the journal's room.
    room_outstanding: u64,
    /// Room of the journal that a change waits for.
    pub room_wanted: u64,
    /// A checkpoint or a new segment found no space.
    pub stuck: bool,
    /// A segment that the journal does not know yet is being prepared.
    pub preparing: bool,
}

impl Ledger {
    fn left(&self) -> u64 {
        self.available.saturating_sub(self.taken.saturating_add(self.outstanding))
    }

    fn old(&self, now: Instant) -> bool {
        self.sampled.is_none_or(|at| now.since(at) > SAMPLE_SPAN) || self.taken > self.available / 16
    }
}

enum Judged {
    Granted,
    Refused(StoreError),
    Wait,
}

impl CollectionState {
    pub(super) fn admit(self: &Rc<Self>, ask: Ask) -> LocalBoxFuture<'static, Result<Admission, StoreError>> {
        let known = self.ledger.borrow().sampled.is_some();
        if known && let Judged::Granted = self.judge_ask(&ask) {
            self.sample_later();
            return ready(self.health().map(|()| self.grant(&ask))).boxed_local();
        }
        let collection = self.clone();
        Box::pin(async move { collection.admit_slowly(ask).await })
    }

    async fn admit_slowly(self: Rc<Self>, ask: Ask) -> Result<Admission, StoreError> {
        if ask.journal_bytes.saturating_add(GROUP_OVERHEAD) > self.identity.segment_bytes {
            return Err(StoreError::too_large(usize::try_from(ask.journal_bytes).unwrap_or(usize::MAX)));
        }
        let mut asked_fs = false;
        loop {
            let moved = self.room.wait();
            self.health()?;
            match self.judge_ask(&ask) {
                Judged::Granted => return Ok(self.grant(&ask)),
                // The estimate is conservative; before a refusal, free space is sampled.
                Judged::Refused(_) if !asked_fs => {
                    asked_fs = true;
                    self.sample().await?;
                }
                Judged::Refused(error) => return Err(error),
                Judged::Wait => {
                    self.segment_work.wake_all();
                    self.freezes.wake_all();
                    moved.await;
                }
            }
        }
    }

    fn judge_ask(&self, ask: &Ask) -> Judged {
        let asked = ask.journal_bytes.saturating_add(ask.stream_bytes);
        let mut ledger = self.ledger.borrow_mut();
        let reserve = if ask.frees { 0 } else { self.config.reserve_bytes };
        let left = ledger.left();
        // An operation that frees space is never refused because of an estimate: its record goes into
        // prewritten space.
        if !ask.frees && (ledger.sampled.is_none() || left < asked.saturating_add(reserve)) {
            return Judged::Refused(StoreError::NoSpace { available: left, asked, reserve });
        }
        let needed = ledger.room_outstanding + ask.journal_bytes + GROUP_OVERHEAD;
        let room = self.journal.borrow().room();
        let rows = self.rows.borrow();
        let tables_full =
            rows.frozen.len() >= FROZEN_MAX && self.active_is_full(&rows, &self.journal.borrow());
        let crowded = self.journal.borrow().waiting_bytes() > self.config.queue_bytes_max;
        if room >= needed && !tables_full && !crowded {
            return Judged::Granted;
        }
        if crowded {
            self.journal.borrow_mut().crowded = true;
            self.journal.borrow_mut().hurry();
            self.work.wake_all();
        }
        if room < needed {
            ledger.room_wanted = ledger.room_wanted.max(needed);
        }
        if ledger.stuck && !crowded {
            return Judged::Refused(StoreError::NoSpace { available: left, asked, reserve });
        }
        Judged::Wait
    }

    fn grant(self: &Rc<Self>, ask: &Ask) -> Admission {
        let asked = ask.journal_bytes.saturating_add(ask.stream_bytes);
        let room = ask.journal_bytes + GROUP_OVERHEAD;
        {
            let mut ledger = self.ledger.borrow_mut();
            ledger.outstanding += asked;
            ledger.room_outstanding += room;
            ledger.room_wanted = 0;
        }
        let collection = self.clone();
        Admission(Some(Box::new(move || {
            let mut ledger = collection.ledger.borrow_mut();
            ledger.outstanding = ledger.outstanding.saturating_sub(asked);
            ledger.room_outstanding = ledger.room_outstanding.saturating_sub(room);
            ledger.taken = ledger.taken.saturating_add(asked);
            if ledger.room_wanted > 0 {
                drop(ledger);
                collection.room.wake_all();
            }
        })))
    }

    fn sample_later(self: &Rc<Self>) {
        let now = self.env.now();
        let mut ledger = self.ledger.borrow_mut();
        if ledger.sampling || !ledger.old(now) {
            return;
        }
        ledger.sampling = true;
        let collection = self.clone();
        self.env.spawn("store space", async move {
            // If the estimate cannot be renewed it stays, and the next admission samples again.
            drop(collection.sample().await);
            collection.ledger.borrow_mut().sampling = false;
        });
    }

    pub(super) async fn sample(&self) -> Result<(), StoreError> {
        // Bytes released during the sample may or may not be in its result: they continue to count.
        let before = self.ledger.borrow().taken;
        let asked = self.env.space(&self.config.dir).await;
        let space = asked.map_err(|error| StoreError::io("reading the free space", &error))?;
        let now = self.env.now();
        let mut ledger = self.ledger.borrow_mut();
        ledger.total = space.total;
        ledger.available = space.available;
        ledger.disk = space.disk;
        ledger.taken = ledger.taken.saturating_sub(before);
        ledger.sampled = Some(now);
        Ok(())
    }

    /// The `NoSpace` error, with the figures.
    pub(super) async fn no_space(&self, asked: u64) -> StoreError {
        // If even that fails, use the old figures.
        drop(self.sample().await);
        let available = self.ledger.borrow().available;
        StoreError::NoSpace { available, asked, reserve: self.config.reserve_bytes }
    }

    pub(super) async fn space(&self) -> Result<Space, StoreError> {
        self.sample().await?;
        let ledger = self.ledger.borrow();
        let (free, reserve) = (ledger.available, self.config.reserve_bytes);
        Ok(Space {
            total: ledger.total,
            available: free.saturating_sub(reserve),
            disk: ledger.disk,
            free,
            reserve,
            segment: self.identity.segment_bytes,
            segments: (self.journal.borrow().segments.len() + usize::from(ledger.preparing)) as u64,
            stuck: ledger.stuck,
        })
    }
}
