//! Finds strides while a program writes.
//!
//! A write that begins where the last write ended extends the current entry. At a jump the writer assumes a
//! stride: the length of the last contiguous span, and the distance of the jump. The new entry means
//! *records of that length, each at that distance from the previous record*. It is correct from its first
//! byte on, because a reader uses it only as far as the data log reaches. A write that does not fit begins
//! a new entry, **before** its bytes are appended.
//!
//! ```text
//!   write   0..10       100..110          200..210  300..310      305..
//!   entry   0, no end   100, 10 every 100  fits      fits          305, no end
//! ```
//! So a strided writer's index is two entries, however many records it writes, and in however many writes.
//!
//! A patterned write is divided into **stretches**: the regions whose bytes go under one entry. Each stretch
//! is one append to the data log.

use crate::limits::{GROUP_BYTES_MAX, RUNS_AT_ONCE};
use crate::record::Entry;
use shoal_pattern::Region;
use std::iter::Peekable;

/// The current entry of a log, and what was written under it.
#[derive(Clone, Debug, Default)]
pub struct Online {
    current: Option<Current>,
    /// The last contiguous bytes: where they began in the file, and how many.
    span: Option<(u64, u64)>,
    /// Bytes of the data log.
    physical: u64,
}

/// Bytes to append under one entry.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// The entry to append to the index log first; `None`: the current one holds.
    pub entry: Option<Entry>,
    /// Bytes, at least one.
    pub len: u64,
    after: Online,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    entry: Entry,
    /// Bytes written under it.
    bytes: u64,
}

impl Current {
    /// The place of the next byte, and how many bytes fit there.
    fn next(&self) -> Option<(u64, u64)> {
        let Entry { logical, record, stride, .. } = self.entry;
        if stride == 0 {
            return Some((logical.checked_add(self.bytes)?, u64::MAX));
        }
        let (turn, inner) = (self.bytes / record, self.bytes % record);
        let begin = i128::from(logical) + i128::from(turn) * i128::from(stride);
        let begin = u64::try_from(begin).ok()?;
        Some((begin.checked_add(inner)?, record - inner))
    }

    fn has_room_for(&self, logical: u64, len: u64) -> bool {
        self.next().is_some_and(|(next, room)| next == logical && len <= room)
    }
}

impl Online {
    /// Continues a data log of so many bytes; nothing is under way.
    pub fn at(physical: u64) -> Online {
        Online { physical, ..Online::default() }
    }

    /// Bytes of the data log.
    pub fn physical(&self) -> u64 {
        self.physical
    }

    /// The entry under which the next bytes go if they fit.
    pub fn current(&self) -> Option<Entry> {
        self.current.map(|current| current.entry)
    }

    /// Where a write of `len` bytes at `logical` fits: `None` under the current entry, else the entry to
    /// append to the index log first. Nothing is changed.
    pub fn entry_for(&self, logical: u64, len: u64, stamp: impl FnOnce() -> u64) -> Option<Entry> {
        if self.current.is_some_and(|current| current.has_room_for(logical, len)) {
            return None;
        }
        let (record, stride) = self.guess(logical, len).unwrap_or((0, 0));
        Some(Entry { logical, record, stride, physical: self.physical, stamp: stamp() })
    }

    /// The last span's length and the distance from it, if they can be a stride for a write.
    fn guess(&self, logical: u64, len: u64) -> Option<(u64, i64)> {
        let (start, record) = self.span?;
        let stride = i64::try_from(i128::from(logical) - i128::from(start)).ok()?;
        let is_stride = record >= len && stride.unsigned_abs() > record;
        is_stride.then_some((record, stride))
    }

    /// `len` bytes at `logical` were appended to the data log; `entry`: the one that was appended for them.
    pub fn wrote(&mut self, entry: Option<Entry>, logical: u64, len: u64) {
        if let Some(entry) = entry {
            self.current = Some(Current { entry, bytes: 0 });
        }
        if let Some(current) = &mut self.current {
            debug_assert!(current.has_room_for(logical, len));
            current.bytes += len;
        }
        self.physical += len;
        self.span = match self.span {
            Some((start, before)) if start.checked_add(before) == Some(logical) => {
                Some((start, before + len))
            }
            _ => Some((logical, len)),
        };
    }

    /// Take the next regions of a write whose bytes go under one entry, at most [`RUNS_AT_ONCE`] of at most
    /// [`GROUP_BYTES_MAX`] bytes together, or one that is longer. Nothing of this changes. A region of which
    /// `is_newer` says that the file has bytes newer than a stamp needs a newer entry.
    ///
    /// # Panics
    /// If there is no region, or one that no file has.
    pub fn stretch(
        &self,
        regions: &mut Peekable<impl Iterator<Item = Region>>,
        is_newer: impl Fn(Region, u64) -> bool,
        stamp: impl FnOnce() -> u64,
    ) -> Stretch {
        let mut after = self.clone();
        let first = regions.next().expect("a region");
        if after.current().is_some_and(|current| is_newer(first, current.stamp)) {
            after.end_entry();
        }
        let entry = after.entry_for(first.offset as u64, first.len, stamp);
        after.wrote(entry, first.offset as u64, first.len);
        let (mut len, mut taken) = (first.len, 1);
        let mut fits = |region: &Region| {
            let current = after.current.expect("bytes were just written under it");
            let fits = taken < RUNS_AT_ONCE
                && len + region.len <= GROUP_BYTES_MAX
                && current.has_room_for(region.offset as u64, region.len)
                && !is_newer(*region, current.entry.stamp);
            if fits {
                after.wrote(None, region.offset as u64, region.len);
                (taken, len) = (taken + 1, len + region.len);
            }
            fits
        };
        while regions.next_if(&mut fits).is_some() {}
        Stretch { entry, len, after }
    }

    /// A stretch was appended.
    pub fn appended(&mut self, stretch: Stretch) {
        *self = stretch.after;
    }

    /// End the current entry: the next write begins one with a new stamp.
    pub fn end_entry(&mut self) {
        self.current = None;
    }

    /// A write failed, and the data log has so many bytes now.
    pub fn failed(&mut self, physical: u64) {
        self.physical = physical;
        self.current = None;
        self.span = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(writes: impl IntoIterator<Item = (u64, u64)>) -> Vec<Entry> {
        let mut online = Online::default();
        let mut entries = Vec::new();
        for (stamp, (logical, len)) in writes.into_iter().enumerate() {
            let entry = online.entry_for(logical, len, || stamp as u64);
            online.wrote(entry, logical, len);
            entries.extend(entry);
        }
        entries
    }

    #[test]
    fn a_strided_writer_has_two_entries_however_many_records_and_however_they_are_cut() {
        assert_eq!(entries((0..100_000).map(|n| (3 + n * 376_064, 47_008))).len(), 2);
        assert_eq!(entries((0..1000).rev().map(|n| (n * 1000, 10))).len(), 2, "backwards");
        let cut = (0..1000).flat_map(|n| [(n * 1000, 300), (n * 1000 + 300, 300), (n * 1000 + 600, 17)]);
        assert_eq!(entries(cut).len(), 2);
    }

    #[test]
    fn a_sequential_writer_has_one_entry_and_an_irregular_one_no_more_than_writes() {
        assert_eq!(entries((0..1000).map(|n| (n * 10, 10))).len(), 1);
        let places = [(5, 3), (100, 7), (90, 2), (500, 30), (0, 1), (0, 1), (7, 1)];
        assert!(entries(places).len() <= places.len());
    }

    #[test]
    fn a_stretch_ends_at_its_limits_and_the_next_one_needs_no_entry() {
        let regions = |len: u64, count: u64| {
            (0..count).map(move |n| Region::new((n * 2 * len) as i64, len)).collect::<Vec<_>>()
        };
        let mut online = Online::default();
        for (len, count) in [(1 << 20, 100), (1, 200_000), (2 * GROUP_BYTES_MAX, 5)] {
            let all = regions(len, count);
            let (mut left, mut appended, mut entries) = (all.into_iter().peekable(), 0, 0);
            while left.peek().is_some() {
                let before = left.len();
                let stretch = online.stretch(&mut left, |_, _| false, || 1);
                let taken = before - left.len();
                assert!(taken <= RUNS_AT_ONCE && (stretch.len <= GROUP_BYTES_MAX || taken == 1));
                assert_eq!(stretch.len, taken as u64 * len);
                (appended, entries) = (appended + taken as u64, entries + u32::from(stretch.entry.is_some()));
                online.appended(stretch);
            }
            assert_eq!(appended, count);
            assert!(entries <= 2, "{entries} entries of {count} records");
        }
    }
}
