//! Admission: before a change is executed, it requests space on the disk and room in the journal. So a full
//! disk is a reply (`ENOSPC`), and never a failure in the middle of a change.
//!
//! Free space is sampled rarely; in between, granted bytes count as taken. A reserve of the space is for
//! removals and recovery. All changes, also removals, wait while the tables are full, while no segment is
//! ready, or while too many bytes wait to be written to the journal; reads never wait.

use super::CollectionState;
use super::row_layers::FROZEN_MAX;
use super::streams::folders::FolderNumber;
use crate::{Admission, Ask, Space, StoreError};
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use shoal_env::{DiskSpace, Instant};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Free space is sampled again after this long.
const SAMPLE_SPAN: Duration = Duration::from_millis(250);
/// A batch may be alone in its group: header and alignment.
const GROUP_OVERHEAD: u64 = 8192;

/// The known state of the space of some disks together.
#[derive(Default)]
struct Disks {
    total: u64,
    /// Free bytes by the last sample.
    available: u64,
    /// Granted and released since: taken, as far as is known.
    taken: u64,
    /// Granted.
    outstanding: u64,
}

impl Disks {
    fn left(&self) -> u64 {
        self.available.saturating_sub(self.taken.saturating_add(self.outstanding))
    }

    fn grant(&mut self, bytes: u64) {
        self.outstanding += bytes;
    }

    /// Granted bytes are used, as far as is known.
    fn release(&mut self, bytes: u64) {
        self.outstanding = self.outstanding.saturating_sub(bytes);
        self.taken = self.taken.saturating_add(bytes);
    }

    /// A sample was made. `before`: taken when it began; bytes released during the sample may or may not be
    /// in its result, and continue to count.
    fn sampled(&mut self, before: u64, total: u64, available: u64) {
        (self.total, self.available) = (total, available);
        self.taken = self.taken.saturating_sub(before);
    }
}

/// The known state of space.
#[derive(Default)]
pub(super) struct Ledger {
    /// The disk of the journal and the tables; of the streams' files too, if they have no others.
    own: Disks,
    /// The disks of the streams' files, if they have their own.
    streams: Option<Disks>,
    /// Free bytes for each folder of streams' files, by number.
    free: Vec<u64>,
    /// The number of the disk ([`shoal_env::DiskSpace::disk`]), or of these disks together.
    disk: u64,
    sampled: Option<Instant>,
    sampling: bool,
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
    /// Free bytes on the disk of a folder of streams' files.
    pub fn free_in(&self, folder: FolderNumber) -> u64 {
        self.free.get(usize::from(folder.0)).copied().unwrap_or(0)
    }

    /// The free bytes that are too few for the bytes of an ask, and its bytes there.
    fn lacks(&self, (own, streams): (u64, u64), reserve: u64) -> Option<(u64, u64)> {
        let is_short = |disks: &Disks, asked: u64| {
            (disks.left() < asked.saturating_add(reserve)).then_some((disks.left(), asked))
        };
        let of_streams = self.streams.as_ref().filter(|_| streams > 0);
        is_short(&self.own, own).or_else(|| of_streams.and_then(|disks| is_short(disks, streams)))
    }

    fn old(&self, now: Instant) -> bool {
        let is_used = |disks: &Disks| disks.taken > disks.available / 16;
        self.sampled.is_none_or(|at| now.since(at) > SAMPLE_SPAN)
            || is_used(&self.own)
            || self.streams.as_ref().is_some_and(is_used)
    }

    /// Free bytes for data.
    fn available(&self) -> u64 {
        self.streams.as_ref().unwrap_or(&self.own).available
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

    /// Bytes of an ask for the own disk, and for those that streams have for themselves. Files from before
    /// there were others grow where they are.
    fn shares(&self, ask: &Ask) -> (u64, u64) {
        let is_own = self.files.folders().len() == 1 || ask.stream.is_some_and(|of| self.disk_of(of) == 0);
        match is_own {
            true => (ask.journal_bytes.saturating_add(ask.stream_bytes), 0),
            false => (ask.journal_bytes, ask.stream_bytes),
        }
    }

    fn judge_ask(&self, ask: &Ask) -> Judged {
        let shares = self.shares(ask);
        let mut ledger = self.ledger.borrow_mut();
        let reserve = if ask.frees { 0 } else { self.config.reserve_bytes };
        let (left, asked) = (ledger.own.left(), shares.0);
        let refused = |(available, asked)| Judged::Refused(StoreError::NoSpace { available, asked, reserve });
        // An operation that frees space is never refused because of an estimate: its record goes into
        // prewritten space.
        if !ask.frees {
            let unknown = ledger.sampled.is_none().then_some((left, asked));
            if let Some(lacking) = unknown.or_else(|| ledger.lacks(shares, reserve)) {
                return refused(lacking);
            }
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
            return refused((left, asked));
        }
        Judged::Wait
    }

    fn grant(self: &Rc<Self>, ask: &Ask) -> Admission {
        let room = ask.journal_bytes + GROUP_OVERHEAD;
        let (own, streams) = self.shares(ask);
        {
            let mut ledger = self.ledger.borrow_mut();
            ledger.own.grant(own);
            if let Some(disks) = &mut ledger.streams {
                disks.grant(streams);
            }
            ledger.room_outstanding += room;
            ledger.room_wanted = 0;
        }
        let collection = self.clone();
        Admission(Some(Box::new(move || {
            let mut ledger = collection.ledger.borrow_mut();
            ledger.own.release(own);
            if let Some(disks) = &mut ledger.streams {
                disks.release(streams);
            }
            ledger.room_outstanding = ledger.room_outstanding.saturating_sub(room);
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
        let taken =
            |ledger: &Ledger| (ledger.own.taken, ledger.streams.as_ref().map_or(0, |disks| disks.taken));
        let before = taken(&self.ledger.borrow());
        let own = self.free_space(&self.config.dir).await?;
        let mut spaces = Vec::new();
        // The first folder is on the own disk.
        for folder in self.files.folders().iter().skip(1) {
            spaces.push(self.free_space(folder).await?);
        }
        let now = self.env.now();
        let mut ledger = self.ledger.borrow_mut();
        ledger.own.sampled(before.0, own.total, own.available);
        ledger.free = std::iter::once(&own).chain(&spaces).map(|space| space.available).collect();
        ledger.disk = own.disk;
        if !spaces.is_empty() {
            let disks = distinct(spaces);
            let sum = |of: fn(&DiskSpace) -> u64| disks.iter().map(of).fold(0, u64::saturating_add);
            let (total, available) = (sum(|disk| disk.total), sum(|disk| disk.available));
            ledger.disk = disks.iter().fold(0, |all, disk| (all ^ disk.disk).rotate_left(7));
            ledger.streams.get_or_insert_default().sampled(before.1, total, available);
        }
        ledger.sampled = Some(now);
        Ok(())
    }

    async fn free_space(&self, path: &Path) -> Result<DiskSpace, StoreError> {
        let asked = self.env.space(path).await;
        asked.map_err(|error| StoreError::io(format!("reading the free space of {}", path.display()), &error))
    }

    /// The `NoSpace` error, with the figures.
    pub(super) async fn no_space(&self, asked: u64) -> StoreError {
        // If even that fails, use the old figures.
        drop(self.sample().await);
        let available = self.ledger.borrow().available();
        StoreError::NoSpace { available, asked, reserve: self.config.reserve_bytes }
    }

    pub(super) async fn space(&self) -> Result<Space, StoreError> {
        self.sample().await?;
        let ledger = self.ledger.borrow();
        let (free, reserve) = (ledger.available(), self.config.reserve_bytes);
        Ok(Space {
            total: ledger.streams.as_ref().unwrap_or(&ledger.own).total,
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

/// Each disk once, in order of their numbers; one without a number counts for itself.
fn distinct(mut spaces: Vec<DiskSpace>) -> Vec<DiskSpace> {
    spaces.sort_by_key(|space| space.disk);
    spaces.dedup_by(|one, other| one.disk == other.disk && one.disk != 0);
    spaces
}
