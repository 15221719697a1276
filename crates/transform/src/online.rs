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

use crate::record::Entry;

/// The current entry of a log, and what was written under it.
#[derive(Clone, Debug, Default)]
pub struct Online {
    current: Option<Current>,
    /// The last contiguous bytes: where they began in the file, and how many.
    span: Option<(u64, u64)>,
    /// Bytes of the data log.
    physical: u64,
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
        let fits = self.current.and_then(|current| current.next());
        if fits.is_some_and(|(next, room)| next == logical && len <= room) {
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
            debug_assert!(current.next().is_some_and(|(next, room)| next == logical && len <= room));
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
}
