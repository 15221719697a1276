//! Records of one length at equal distances, in the order in which they lie in their log.

use super::{Hit, Order};
use crate::record::Entry;
use crate::writer_id::WriterId;

/// The bytes of a log that one entry names: contiguous, or records at a stride. The last record may be a
/// part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    pub(super) log: u32,
    pub(super) logical: u64,
    /// Bytes of a record; `u64::MAX`: there is one.
    pub(super) record: u64,
    pub(super) stride: i64,
    pub(super) physical: u64,
    pub(super) bytes: u64,
    pub(super) order: Order,
}

impl Run {
    /// Of an entry, with so many bytes.
    pub(super) fn of(log: u32, id: WriterId, entry: Entry, bytes: u64) -> Run {
        let record = if entry.stride == 0 { u64::MAX } else { entry.record };
        Run {
            log,
            logical: entry.logical,
            record,
            stride: entry.stride,
            physical: entry.physical,
            bytes,
            order: Order { stamp: entry.stamp, id },
        }
    }

    /// Records, a part of one included.
    pub(super) fn records(&self) -> u64 {
        self.bytes.div_ceil(self.record)
    }

    /// Where a record begins. It must be one of the run's: those were checked when the run was made.
    fn start(&self, turn: u64) -> u64 {
        (i128::from(self.logical) + i128::from(self.stride) * i128::from(turn)) as u64
    }

    /// Bytes of a record that are there.
    fn len(&self, turn: u64) -> u64 {
        let before = turn.saturating_mul(self.record);
        self.bytes.saturating_sub(before).min(self.record)
    }

    /// The lowest place.
    pub(super) fn begin(&self) -> u64 {
        self.logical.min(self.start(self.records().saturating_sub(1)))
    }

    /// The place after the highest.
    pub(super) fn end(&self) -> u64 {
        let last = self.records().saturating_sub(1);
        (self.logical + self.len(0)).max(self.start(last) + self.len(last))
    }

    /// Whether all places are in range, and no two records overlap.
    pub(super) fn is_sound(&self) -> bool {
        if self.bytes == 0 {
            return true;
        }
        if self.physical.checked_add(self.bytes).is_none() || self.record == 0 {
            return false;
        }
        let last = i128::from(self.logical) + i128::from(self.stride) * i128::from(self.records() - 1);
        let ends = [(i128::from(self.logical), 0), (last, self.records() - 1)];
        let highest =
            ends.map(|(begin, turn)| begin + i128::from(self.len(turn))).into_iter().max().unwrap_or(0);
        last >= 0
            && highest <= i128::from(i64::MAX)
            && (self.stride == 0 || self.stride.unsigned_abs() >= self.record)
    }

    /// Leave as many bytes as are sound; whether there can be any.
    pub(super) fn clip(&mut self) -> bool {
        let (mut sound, mut unsound) = (0, self.bytes);
        while unsound - sound > 1 {
            let middle = sound + (unsound - sound) / 2;
            match (Run { bytes: middle, ..*self }).is_sound() {
                true => sound = middle,
                false => unsound = middle,
            }
        }
        self.bytes = sound;
        sound > 0
    }

    /// The byte at a place.
    pub(super) fn at(&self, at: u64) -> Option<Hit> {
        let turn = match self.stride {
            0 => 0,
            stride if stride > 0 => at.checked_sub(self.logical)? / stride.unsigned_abs(),
            // The first record that begins at or before it.
            stride => self.logical.saturating_sub(at).div_ceil(stride.unsigned_abs()),
        };
        self.in_record(turn, at)
    }

    /// The byte at a place, if it is in that record.
    pub(super) fn in_record(&self, turn: u64, at: u64) -> Option<Hit> {
        if turn >= self.records() {
            return None;
        }
        let inner = at.checked_sub(self.start(turn))?;
        let run = self.len(turn).checked_sub(inner).filter(|run| *run > 0)?;
        let physical = self.physical + turn * if self.stride == 0 { 0 } else { self.record } + inner;
        Some(Hit { log: self.log, physical, run, order: self.order })
    }

    /// The lowest beginning of a record beyond a place.
    pub(super) fn next_start(&self, at: u64) -> Option<u64> {
        if self.bytes == 0 {
            return None;
        }
        let (last, step) = (self.records() - 1, self.stride.unsigned_abs());
        if at < self.begin() {
            return Some(self.begin());
        }
        let turn = match self.stride {
            0 => return None,
            stride if stride > 0 => (at - self.logical) / step + 1,
            _ => self.logical.checked_sub(at)?.checked_sub(1)? / step,
        };
        (turn <= last).then(|| self.start(turn))
    }

    /// Each record: its place, bytes, and place in the log, in the order of the log.
    pub(super) fn each_record(&self, mut visit: impl FnMut(u64, u64, u64)) {
        for turn in 0..self.records() {
            visit(self.start(turn), self.len(turn), self.physical + turn.saturating_mul(self.record));
        }
    }

    /// The rest after a cut to `size`, which found `prefix` bytes of the data log.
    pub(super) fn cut(&self, size: u64, prefix: u64, mut keep: impl FnMut(Run)) {
        let found = prefix.saturating_sub(self.physical).min(self.bytes);
        let cut = Run { bytes: found, ..*self };
        if found == 0 || cut.end() <= size {
            return keep(*self);
        }
        if self.stride >= 0 {
            cut.cut_forwards(size, &mut keep);
        } else {
            cut.cut_backwards(size, &mut keep);
        }
        self.keep_from(found, &mut keep);
    }

    /// The bytes from one on: the rest of its record, and the records after it.
    fn keep_from(&self, found: u64, keep: &mut impl FnMut(Run)) {
        let left = self.bytes - found;
        if left == 0 {
            return;
        }
        let (turn, inner) = (found / self.record, found % self.record);
        let rest = if inner == 0 && self.stride != 0 { 0 } else { (self.record - inner).min(left) };
        if rest > 0 {
            let (logical, physical) = (self.start(turn) + inner, self.physical + found);
            keep(Run { logical, physical, bytes: rest, record: u64::MAX, stride: 0, ..*self });
        }
        if rest < left {
            let logical = self.start(turn + u64::from(rest > 0));
            keep(Run { logical, physical: self.physical + found + rest, bytes: left - rest, ..*self });
        }
    }

    fn cut_forwards(&self, size: u64, keep: &mut impl FnMut(Run)) {
        let whole = match size.checked_sub(self.record).and_then(|most| most.checked_sub(self.logical)) {
            Some(room) if self.stride > 0 => (room / self.stride.unsigned_abs() + 1).min(self.records()),
            _ => 0,
        };
        let bytes = whole.saturating_mul(self.record).min(self.bytes);
        if bytes > 0 {
            keep(Run { bytes, ..*self });
        }
        if whole < self.records() {
            self.keep_part(whole, size, keep);
        }
    }

    fn cut_backwards(&self, size: u64, keep: &mut impl FnMut(Run)) {
        let over = (self.logical + self.record).saturating_sub(size);
        let gone = over.div_ceil(self.stride.unsigned_abs()).min(self.records());
        if gone > 0 {
            self.keep_part(gone - 1, size, keep);
        }
        let before = gone * self.record;
        if before < self.bytes {
            let (logical, physical) = (self.start(gone), self.physical + before);
            keep(Run { logical, physical, bytes: self.bytes - before, ..*self });
        }
    }

    /// The part of a record that lies below `size`.
    fn keep_part(&self, turn: u64, size: u64, keep: &mut impl FnMut(Run)) {
        let logical = self.start(turn);
        let bytes = size.saturating_sub(logical).min(self.len(turn));
        if bytes > 0 {
            let physical = self.physical + if turn == 0 { 0 } else { turn * self.record };
            keep(Run { logical, physical, bytes, record: u64::MAX, stride: 0, ..*self });
        }
    }
}
