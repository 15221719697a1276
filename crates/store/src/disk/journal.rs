//! The journal: one order of all changes, made durable group by group.
//!
//! Batches are gathered in a *group*, which is one write. A group gets its segment and its offset with its
//! first record. So a batch gets its LSN and the final place of its bytes at once, and a row can name the
//! place of a content in the same record. Batches that arrive while a group is being written gather in the
//! next group; one group is in flight.
//!
//! **Invariants.** LSNs and sequences have no gaps. Groups reach the disk in order. `durable` ≤ `written` ≤
//! `applied` (asserted in `journal/writer.rs::finish`). A segment is taken with a generation greater than
//! any before it, also over restarts, and only when nothing in it lives (asserted in
//! `journal/segments.rs::take`; test:
//! `no_generation_comes_again_of_which_only_a_later_group_reached_the_disk`).

pub(super) mod coalesce;
pub(super) mod gathering;
pub(super) mod group;
pub(super) mod recover;
pub(super) mod segments;
pub(super) mod writer;

use crate::{Lsn, StoreError};
use coalesce::{AdaptiveDelay, Queues};
use gathering::Gathering;
use group::{BLOCK, HEADER};
use segments::Segments;
use shoal_env::AlignedBuf;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A group that gathers records, or waits to be written.
pub(super) struct Group {
    pub segment: u64,
    pub generation: u64,
    /// Its offset in its segment.
    pub offset: u64,
    pub buf: Gathering,
    /// Bytes in use, header included.
    pub len: usize,
    pub crc: u32,
    pub first: Lsn,
    pub last: Lsn,
    /// A task waits for it.
    pub urgent: bool,
    /// It holds a strong change: in mode *at reply* it is durable when it is written.
    pub strong: bool,
    /// Operations (strong records, and failed ones that wait among them) in it.
    pub operations: u32,
}

impl Group {
    fn end(&self) -> u64 {
        self.offset + self.len.next_multiple_of(BLOCK) as u64
    }
}

/// Room for one record, in its final place.
pub(super) struct Room<'a> {
    pub record: &'a mut [u8],
    pub segment: u64,
    pub generation: u64,
    /// Where the record begins in the segment.
    pub offset: u64,
    pub lsn: Lsn,
}

pub(super) struct Journal {
    pub applied: Lsn,
    pub written: Lsn,
    pub durable: Lsn,
    /// The newest strong record.
    strong: Lsn,
    /// The newest deferred record.
    deferred: Lsn,
    /// Durability was requested up to here.
    pub push: Lsn,
    pub segments: Segments,
    /// Full groups, then the one that gathers.
    groups: VecDeque<Group>,
    /// Bytes in them. Counted: there may be as many groups as operations wait, and each new one needs the
    /// sum.
    gathered: usize,
    /// Start of the next group: (segment, generation, offset).
    next: (u64, u64, u64),
    pub sequence: u64,
    /// Segments with groups in the page cache that no sync has covered, and the newest record there.
    pub unsynced: BTreeMap<u64, Lsn>,
    /// Operations in those groups.
    pub unsynced_operations: u64,
    /// A sync of them is under way.
    pub syncing: bool,
    /// Which operations share a sync.
    pub queues: Queues,
    /// The delay in which more operations may join a group.
    pub delay: AdaptiveDelay,
    spare: Vec<AlignedBuf>,
    segment_bytes: u64,
    group_bytes: usize,
    /// Bytes of the group that is being written.
    pub in_flight: usize,
    /// A task waits until fewer bytes wait to be written.
    pub crowded: bool,
    pub groups_written: u64,
    pub syncs: u64,
    pub bytes: u64,
    pub bytes_written: u64,
    pub batches: u64,
    /// Syncs that completed operations, in buckets by the number of operations.
    pub operations_per_sync: [u64; coalesce::SHARED_BUCKETS],
    pub operations_synced: u64,
    /// Segments begun since the active table was: none of them is free before that table is checkpointed.
    pub rolls: u32,
}

/// Room for an operation in a group that holds few: content at the eager limit, and rows.
const OPERATION_BYTES: usize = 24 << 10;
/// Buffers kept for the next groups.
const SPARE_BUFFERS: usize = 4;

impl Journal {
    /// A journal that continues after `last`, in a fresh segment.
    pub fn new(
        last: Lsn,
        sequence: u64,
        mut segments: Segments,
        segment_bytes: u64,
        group_bytes: usize,
        queues: Queues,
    ) -> Journal {
        let (segment, generation) = segments.take();
        Journal {
            applied: last,
            written: last,
            durable: last,
            strong: Lsn(0),
            deferred: Lsn(0),
            push: last,
            segments,
            groups: VecDeque::new(),
            gathered: 0,
            next: (segment, generation, 0),
            sequence,
            unsynced: BTreeMap::new(),
            unsynced_operations: 0,
            syncing: false,
            queues,
            delay: AdaptiveDelay::default(),
            spare: Vec::new(),
            segment_bytes,
            group_bytes: group_bytes.next_multiple_of(BLOCK).max(BLOCK),
            in_flight: 0,
            crowded: false,
            groups_written: 0,
            syncs: 0,
            bytes: 0,
            bytes_written: 0,
            batches: 0,
            operations_per_sync: [0; coalesce::SHARED_BUCKETS],
            operations_synced: 0,
            rolls: 0,
        }
    }

    /// Largest record.
    pub fn record_max(&self) -> usize {
        usize::try_from(self.segment_bytes).unwrap_or(usize::MAX) - HEADER
    }

    /// Bytes that can still be applied before a segment is needed that is not ready yet.
    pub fn room(&self) -> u64 {
        let (_, _, offset) = self.next;
        let here = self.groups.back().map_or(offset, Group::end);
        self.segment_bytes.saturating_sub(here) + self.segments.ready() as u64 * self.segment_bytes
    }

    /// Bytes of records in memory that are not written yet.
    pub fn waiting_bytes(&self) -> usize {
        self.in_flight + self.gathered
    }

    /// Room for the record of the next batch; the caller fills it at once and calls [`Journal::filled`].
    pub fn reserve(&mut self, len: usize, urgent: bool, strong: bool) -> Result<Room<'_>, StoreError> {
        if len > self.record_max() {
            return Err(StoreError::too_large(len));
        }
        if !self.fits_last(len, strong) {
            self.begin(len, strong);
        }
        if strong {
            self.queues.enter();
        }
        self.applied.0 += 1;
        if strong {
            self.strong = self.applied;
        }
        self.batches += 1;
        self.bytes += len as u64;
        let lsn = self.applied;
        let Some(group) = self.groups.back_mut() else {
            return Err(StoreError::Damaged("a group that was begun is not there".into()));
        };
        let at = group.len;
        group.len += len;
        self.gathered += len;
        group.last = lsn;
        group.urgent |= urgent;
        group.strong |= strong;
        group.operations += u32::from(strong);
        if group.first == Lsn(0) {
            group.first = lsn;
        }
        Ok(Room {
            segment: group.segment,
            generation: group.generation,
            offset: group.offset + at as u64,
            lsn,
            record: group.buf.room(at, len),
        })
    }

    /// The record is complete: add it to the group's checksum while it is in the processor's cache.
    pub fn filled(&mut self, len: usize) {
        if let Some(group) = self.groups.back_mut() {
            let record = group.buf.room(group.len - len, len);
            group.crc = crc32c::crc32c_append(group.crc, record);
        }
    }

    /// An operation failed: it completes with the operations before it, up to the returned record.
    pub fn failed(&mut self) -> Lsn {
        if !self.queues.one_by_one() || self.strong <= self.durable {
            // Alone it needs no sync: nothing was changed.
            return Lsn(0);
        }
        let operations_max = self.queues.group_ops_max();
        if let Some(group) = self.groups.back_mut().filter(|group| group.strong)
            && group.operations < operations_max
        {
            group.operations += 1;
            self.queues.enter();
        }
        self.strong
    }

    /// The record that was reserved last is deferred.
    pub fn defer(&mut self) {
        self.deferred = self.applied;
    }

    /// Whether a record is not durable, and no strong one at or after it will make it so.
    pub fn is_deferred(&self, lsn: Lsn) -> bool {
        lsn > self.durable && lsn > self.strong
    }

    /// The newest deferred record, if it is not durable and its durability is not requested yet.
    pub fn unrequested(&self) -> Option<Lsn> {
        (self.deferred > self.push.max(self.durable)).then_some(self.deferred)
    }

    fn fits_last(&self, len: usize, strong: bool) -> bool {
        let Some(group) = self.groups.back() else { return false };
        if strong && group.operations >= self.queues.group_ops_max() {
            return false;
        }
        let end = (group.len + len).next_multiple_of(BLOCK);
        end <= group.buf.capacity() && group.offset + end as u64 <= self.segment_bytes
    }

    /// Begin a group with room for a record of `len` bytes, in the next segment if this one has none.
    fn begin(&mut self, len: usize, strong: bool) {
        if let Some(group) = self.groups.back() {
            self.next = (group.segment, group.generation, group.end());
        }
        let needed = (HEADER + len).next_multiple_of(BLOCK);
        if self.next.2 + needed as u64 > self.segment_bytes {
            self.segments.seal(self.next.0, self.applied);
            let (segment, generation) = self.segments.take();
            self.next = (segment, generation, 0);
            self.rolls += 1;
        }
        let (segment, generation, offset) = self.next;
        let buf = self.buffer(needed, strong);
        let group = Group {
            segment,
            generation,
            offset,
            buf,
            len: HEADER,
            crc: 0,
            first: Lsn(0),
            last: Lsn(0),
            urgent: false,
            strong: false,
            operations: 0,
        };
        self.gathered += group.len;
        self.groups.push_back(group);
    }

    fn buffer(&mut self, needed: usize, strong: bool) -> Gathering {
        if needed > self.group_bytes {
            return Gathering::whole(AlignedBuf::zeroed(needed));
        }
        // Where groups are small by policy there may be many: a whole buffer for each would be much memory.
        let operations = usize::try_from(self.queues.group_ops_max()).unwrap_or(usize::MAX);
        let small = operations.saturating_mul(OPERATION_BYTES).next_multiple_of(BLOCK);
        if strong && small < self.group_bytes {
            return Gathering::small(if operations == 1 { needed } else { needed.max(small) });
        }
        Gathering::whole(self.spare())
    }

    /// A whole buffer to gather in, or to write.
    pub fn spare(&mut self) -> AlignedBuf {
        self.spare.pop().unwrap_or_else(|| AlignedBuf::zeroed(self.group_bytes))
    }

    /// Return a written group's buffer.
    pub fn give_back(&mut self, buf: AlignedBuf) {
        if buf.capacity() == self.group_bytes && self.spare.len() < SPARE_BUFFERS {
            self.spare.push(buf);
        }
    }

    /// Whether a group is to be written now: it is full, or a task waits for it.
    pub fn due(&self) -> bool {
        self.groups.len() > 1
            || self.groups.front().is_some_and(|group| group.urgent || self.push >= group.first)
    }

    /// Whether the next group is to be durable while a sync is under way that does not cover it: after that
    /// sync it can go to the disk at once, and until then more operations join it.
    pub fn waits_for_sync(&self) -> bool {
        // Where the policy decides the sharing of syncs, the next one does not join one that is due.
        let due = self.queues.one_by_one() && self.push > self.durable && !self.unsynced.is_empty();
        (self.syncing || due)
            && self.groups.front().is_some_and(|group| group.strong || self.push >= group.first)
    }

    /// How long the next group may wait for more operations, from the start of its wait; `None`: write it
    /// now.
    pub fn delay(&self) -> Option<Duration> {
        let group = self.groups.front().filter(|_| self.groups.len() == 1)?;
        let is_asked_for = self.push >= group.first;
        match group.strong && !is_asked_for && !self.queues.one_by_one() {
            true => self.delay.wait(group.operations),
            false => None,
        }
    }

    /// Take the next group to write.
    pub fn take_group(&mut self) -> Option<Group> {
        let group = self.groups.pop_front()?;
        self.gathered -= group.len;
        if self.groups.is_empty() {
            self.next = (group.segment, group.generation, group.end());
        }
        Some(group)
    }

    /// A sync completed so many operations: count them.
    pub fn completed(&mut self, operations: u64) {
        if operations > 0 {
            self.operations_per_sync[coalesce::shared_bucket(operations)] += 1;
            self.operations_synced += operations;
        }
    }

    /// The gathering group is to be written soon.
    pub fn hurry(&mut self) {
        if let Some(group) = self.groups.back_mut() {
            group.urgent = true;
        }
    }
}
