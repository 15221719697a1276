//! The nest: records of one size, repeated by up to eight levels of strides. All other closed forms are
//! made of nests.
//!
//! From Galley (Nieuwejaar and Kotz, IOPADS'96, section 3.3: simple-strided and nested-strided requests): a
//! strided request is a record and one level; a nested request has a level for each dimension, innermost
//! first. A contiguous pattern is the nest without levels. Record number *r* is found by arithmetic: *r* in
//! the mixed radix of the levels' quantities gives an index for each level, and the record's offset is the
//! sum of index times stride.
//!
//! ```text
//!   nested(offset 0, rec 2, [{stride 4, quantity 3}, {stride 20, quantity 2}])
//!
//!   offset   0   4   8           20  24  28
//!            ##..##..##..........##..##..##
//!   packed   01  23  45          67  89  ab        a packed byte is a byte of the records, in this order
//! ```
//!
//! Invariants of every [`Nest`], held by [`Nest::new`]: a record has at least one byte or the nest is empty;
//! every quantity is at least 2; at most [`NESTING_DEPTH_MAX`](limits::NESTING_DEPTH_MAX) levels; all its
//! bytes number at most [`PACKED_BYTES_MAX`](limits::PACKED_BYTES_MAX); every record begins and ends within
//! `i64` (tests: `a_nest_is_refused_only_for_bytes_that_leave_the_range`,
//! `depth_is_limited_and_single_turns_do_not_count`, `nothing_is_one_pattern_however_it_is_said`).
//!
//! The last invariant makes wrapping arithmetic right. An index times a stride may leave `i64`, but the
//! offset of every record is in range. A partial sum over some levels is in range too: it is the offset of
//! the record whose other indices are 0. Arithmetic modulo 2^64 whose result is in range gives the true
//! value.

use crate::{PatternError, limits};

/// One level of repetition: its content is repeated `quantity` times, each `stride` bytes after (or,
/// negative, before) the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Level {
    /// Bytes from the start of one repetition to the start of the next. May be negative or 0.
    pub stride: i64,
    /// How many repetitions.
    pub quantity: u64,
}

/// A nest that owns its levels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Nest {
    pub offset: i64,
    pub record: u64,
    pub levels: Vec<Level>,
}

/// A nest that borrows its levels: cursors walk it. It borrows from a [`Nest`] or a
/// [`Run`](crate::runs::Run).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape<'a> {
    pub offset: i64,
    pub record: u64,
    pub levels: &'a [Level],
}

impl Nest {
    /// The nest without a byte.
    pub const EMPTY: Self = Self { offset: 0, record: 0, levels: Vec::new() };

    /// A checked nest in normal form, and its packed bytes.
    pub fn new(offset: i64, record: u64, mut levels: Vec<Level>) -> Result<(Self, u64), PatternError> {
        if record == 0 || levels.iter().any(|level| level.quantity == 0) {
            return Ok((Self::EMPTY, 0));
        }
        levels.retain(|level| level.quantity > 1);
        if levels.len() > limits::NESTING_DEPTH_MAX {
            return Err(PatternError::TooDeep { levels: levels.len() });
        }
        let nest = Self { offset, record, levels };
        let len = nest.shape().checked_len().ok_or(PatternError::TooLong)?;
        nest.shape().checked_bounds().ok_or(PatternError::OutOfRange)?;
        Ok((nest, len))
    }

    pub fn shape(&self) -> Shape<'_> {
        Shape { offset: self.offset, record: self.record, levels: &self.levels }
    }
}

impl Shape<'_> {
    /// Packed bytes, for a shape whose invariants hold.
    pub fn len(&self) -> u64 {
        self.record * self.records()
    }

    /// Records, for a shape whose invariants hold.
    pub fn records(&self) -> u64 {
        if self.record == 0 { 0 } else { self.levels.iter().map(|level| level.quantity).product() }
    }

    fn checked_len(&self) -> Option<u64> {
        let mut len = self.record;
        for level in self.levels {
            len = len.checked_mul(level.quantity)?;
        }
        (len <= limits::PACKED_BYTES_MAX).then_some(len)
    }

    /// Smallest offset and largest end of a shape with at least one byte, if both are in range.
    fn checked_bounds(&self) -> Option<(i64, i64)> {
        let mut low = i128::from(self.offset);
        let mut high = low + i128::from(self.record);
        for level in self.levels {
            let reach = i128::from(level.stride) * i128::from(level.quantity - 1);
            low = low.checked_add(reach.min(0))?;
            high = high.checked_add(reach.max(0))?;
        }
        Some((i64::try_from(low).ok()?, i64::try_from(high).ok()?))
    }

    /// Smallest offset and largest end of all bytes; the shape is valid and not empty.
    fn bounds(&self) -> (i64, i64) {
        let (mut low, mut high) = (self.offset, self.offset.wrapping_add(self.record as i64));
        for level in self.levels {
            let reach = level.stride.wrapping_mul((level.quantity - 1) as i64);
            if level.stride < 0 {
                low = low.wrapping_add(reach);
            } else {
                high = high.wrapping_add(reach);
            }
        }
        (low, high)
    }

    /// Splits off the outermost level: the level, and the shape that it repeats.
    pub fn peel(&self) -> Option<(Level, Self)> {
        let (outer, levels) = self.levels.split_last()?;
        Some((*outer, Self { levels, ..*self }))
    }

    pub fn at(&self, stride: i64, index: u64) -> Self {
        Self { offset: moved(self.offset, stride, index), ..*self }
    }

    /// Smallest offset and largest end of the packed bytes `from .. from + len` (`len` > 0, inside the
    /// shape).
    ///
    /// A window is a tail of one repetition, whole repetitions, and a head of one more. The whole ones reach
    /// furthest at their first and last; a tail or head recurs into one of its own kind, so depth bounds the
    /// work.
    pub fn window_bounds(&self, from: u64, len: u64) -> (i64, i64) {
        let Some((outer, inner)) = self.peel() else {
            let low = self.offset.wrapping_add(from as i64);
            return (low, low.wrapping_add(len as i64));
        };
        let inner_len = inner.len();
        let end = from + len;
        let (first, last) = (from / inner_len, (end - 1) / inner_len);
        let (head, tail) = (from % inner_len, (end - 1) % inner_len + 1);
        if first == last {
            return inner.at(outer.stride, first).window_bounds(head, len);
        }
        let whole_first = if head == 0 { first } else { first + 1 };
        let whole_end = if tail == inner_len { last + 1 } else { last };
        let mut bounds: Option<(i64, i64)> = None;
        if whole_first < whole_end {
            let low = inner.at(outer.stride, whole_first).bounds();
            bounds =
                join(bounds, join(Some(low), inner.at(outer.stride, whole_end - 1).bounds()).unwrap_or(low));
        }
        if head != 0 {
            let suffix = inner.at(outer.stride, first).window_bounds(head, inner_len - head);
            bounds = join(bounds, suffix);
        }
        if tail != inner_len {
            bounds = join(bounds, inner.at(outer.stride, last).window_bounds(0, tail));
        }
        bounds.unwrap_or_else(|| self.bounds())
    }
}

/// The smallest bounds around both.
pub(crate) fn join(a: Option<(i64, i64)>, b: (i64, i64)) -> Option<(i64, i64)> {
    Some(a.map_or(b, |a| (a.0.min(b.0), a.1.max(b.1))))
}

/// The offset `index` strides on from `offset`, which is in range for every repetition of a valid shape.
pub(crate) fn moved(offset: i64, stride: i64, index: u64) -> i64 {
    offset.wrapping_add(stride.wrapping_mul(index as i64))
}

/// The packed bytes `from .. from + len` of a nest, in the smallest form: outer levels in which the window
/// does not move are dropped, and the outermost remaining level keeps only the repetitions that the window
/// touches. Returns the nest and the start of the window in it. `len` > 0.
pub(crate) fn narrowed(shape: Shape<'_>, mut from: u64, len: u64) -> (Nest, u64) {
    let mut shape = shape;
    while let Some((outer, inner)) = shape.peel() {
        let inner_len = inner.len();
        let (first, last) = (from / inner_len, (from + len - 1) / inner_len);
        from %= inner_len;
        shape = Shape { offset: moved(shape.offset, outer.stride, first), ..shape };
        if first != last {
            let mut levels = shape.levels.to_vec();
            if let Some(outermost) = levels.last_mut() {
                outermost.quantity = last - first + 1;
            }
            return (Nest { offset: shape.offset, record: shape.record, levels }, from);
        }
        shape.levels = inner.levels;
    }
    let offset = shape.offset.wrapping_add(from as i64);
    (Nest { offset, record: len, levels: Vec::new() }, 0)
}

/// A place in a shape: a record, and a byte in it. Advances in constant time, and seeks in O(depth).
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    shape: Shape<'a>,
    index: [u64; limits::NESTING_DEPTH_MAX],
    /// Offset of the current record.
    offset: i64,
    /// Bytes of it already passed.
    skipped: u64,
}

impl<'a> Cursor<'a> {
    /// At packed byte `packed` of a shape that has that byte.
    pub fn at(shape: Shape<'a>, packed: u64) -> Self {
        let mut record = packed / shape.record;
        let mut index = [0; limits::NESTING_DEPTH_MAX];
        let mut offset = shape.offset;
        for (index, level) in index.iter_mut().zip(shape.levels) {
            *index = record % level.quantity;
            record /= level.quantity;
            offset = moved(offset, level.stride, *index);
        }
        Self { shape, index, offset, skipped: packed % shape.record }
    }

    /// Where the next byte lies.
    pub fn offset(&self) -> i64 {
        self.offset.wrapping_add(self.skipped as i64)
    }

    /// Offset of the current record.
    pub fn record_offset(&self) -> i64 {
        self.offset
    }

    /// Bytes of a record.
    pub fn record(&self) -> u64 {
        self.shape.record
    }

    /// Bytes left of the current record.
    pub fn left_in_record(&self) -> u64 {
        self.shape.record - self.skipped
    }

    /// Advances by `bytes` inside the current record, not to its end.
    pub fn skip(&mut self, bytes: u64) {
        self.skipped += bytes;
    }

    /// Advances to the next record; false after the last, when the cursor must not be used any more.
    pub fn next_record(&mut self) -> bool {
        self.skipped = 0;
        for (index, level) in self.index.iter_mut().zip(self.shape.levels) {
            *index += 1;
            if *index < level.quantity {
                self.offset = self.offset.wrapping_add(level.stride);
                return true;
            }
            self.offset = moved(self.offset, level.stride.wrapping_neg(), level.quantity - 1);
            *index = 0;
        }
        false
    }

    /// The stride from the current record to the next of its row, and how many records of the row follow
    /// it. A row is one turn of the innermost level.
    pub fn row(&self) -> (i64, u64) {
        self.shape.levels.first().map_or((0, 0), |level| (level.stride, level.quantity - 1 - self.index[0]))
    }

    /// Advances by `records` to the start of a record in the same row; at most as many as [`Cursor::row`]
    /// returns.
    pub fn skip_in_row(&mut self, records: u64) {
        if let Some(level) = self.shape.levels.first() {
            self.index[0] += records;
            self.offset = moved(self.offset, level.stride, records);
            self.skipped = 0;
        }
    }
}
