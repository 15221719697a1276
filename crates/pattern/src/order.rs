//! The walk of a pattern in the order of file offsets, whatever the order of the pattern itself.
//!
//! A *lattice* is a record that is repeated by *steps* (a stride and a quantity each). The *reach* of some
//! steps is the length from the first to the last byte of the records that they make. Sort the steps by
//! stride. If each stride is at least the reach of the smaller steps, a nested loop over the steps visits the
//! records in order of offsets, with O(depth) memory. A step with a smaller stride *interleaves* with the
//! smaller steps. It is split into *n* streams, and each stream has every *n*-th turn (repetition) of the
//! step. Then no stream interleaves, and a heap merges the streams.
//!
//! ```text
//!   nested(rec 2, { 100 × 3 }, { 10 × 4 })      columns: in the pattern's order 0 100 200  10 110 210  20 …
//!   by offset                                   the steps change places:  0 10 20 30  100 110 …
//!
//!   strided(rec 25, { 10 × 100 })               records overlap: three streams, of every third record
//! ```
//!
//! Invariants: the walk gives the same records as the walk in packed order (the pattern's own order), each
//! once. Offsets never fall. Of records with equal offsets, the record with the smaller packed position comes
//! first (test: `runs_in_order_of_offsets_are_those_of_the_packed_order`).
//!
//! Cost: a nest whose levels do not interleave needs O(depth) memory, whatever the order and the signs of its
//! strides. Otherwise there is one stream (312 bytes, and 24 in the heap) for each run of a list, for each
//! leaf of a tree, and for each of the *n* streams of a step. A pattern that needs more than
//! [`ORDER_STREAMS_MAX`] streams is refused before memory is reserved. A step of the walk costs
//! O(depth + log streams).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::lattice::{self, Ascent, Step};
use crate::limits::{NESTING_DEPTH_MAX, ORDER_STREAMS_MAX};
use crate::pattern::Pattern;

/// The levels of a pattern interleave too much to be merged in order of offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern interleaves in {streams} streams or more, above the limit of {ORDER_STREAMS_MAX}")]
pub struct Interleaved {
    /// Streams that it would take at least.
    pub streams: u64,
}

/// A record, or a part of a record, as a walk in order of offsets returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Visit {
    /// Where it begins in the file.
    pub offset: i64,
    /// The packed position of its first byte.
    pub packed: u64,
    /// How many bytes.
    pub len: u64,
}

impl Pattern {
    /// The records of the pattern in order of offsets, each with its packed position. Adjacent records are
    /// not joined, even if the pattern is coalesced.
    ///
    /// # Errors
    /// [`Interleaved`] where it would take more than [`ORDER_STREAMS_MAX`] streams.
    pub fn by_offset(&self) -> Result<ByOffset, Interleaved> {
        let mut streams = 0_u64;
        lattice::each(self, |lattice| streams = streams.saturating_add(shares(&lattice.ascending())));
        if streams > ORDER_STREAMS_MAX as u64 {
            return Err(Interleaved { streams });
        }
        let mut ordered = ByOffset { streams: Vec::with_capacity(streams as usize), heap: BinaryHeap::new() };
        lattice::each(self, |lattice| split(lattice.ascending(), 0, &mut ordered.streams));
        let heads = ordered.streams.iter().zip(0..);
        ordered.heap = heads.map(|(stream, place)| Reverse(stream.head(place))).collect();
        Ok(ordered)
    }
}

/// Records that [`Pattern::may_overlap`] compares with their neighbours, at most.
const COMPARED_MAX: u64 = 65_536;

impl Pattern {
    /// Whether records of the pattern may overlap. `false` is exact. `true` may be wrong for a pattern of two
    /// or more streams that has more than 65,536 records or needs more than [`ORDER_STREAMS_MAX`] streams.
    pub fn may_overlap(&self) -> bool {
        let mut streams = 0_u64;
        lattice::each(self, |lattice| streams = streams.saturating_add(shares(&lattice.ascending())));
        if streams <= 1 {
            return false;
        }
        if self.regions_max() > COMPARED_MAX {
            return true;
        }
        let Ok(visits) = self.by_offset() else { return true };
        let mut end = i64::MIN;
        for visit in visits {
            if visit.offset < end {
                return true;
            }
            end = visit.offset.saturating_add_unsigned(visit.len);
        }
        false
    }
}

/// The number of streams into which a step is split, if `reach` is the reach of the smaller steps.
fn shares_of(step: &Step, reach: u64) -> u64 {
    match step.stride {
        0 => step.quantity,
        stride => reach.div_ceil(stride).min(step.quantity),
    }
}

/// The reach of one share of a split step, together with the smaller steps.
fn reach_of(step: &Step, shares: u64, reach: u64) -> u64 {
    // The first share has the most turns. All of its bytes are in range.
    let last = (step.quantity - 1) / shares;
    reach + last * shares * step.stride
}

/// The number of streams of an ascent.
fn shares(ascent: &Ascent) -> u64 {
    let (mut streams, mut reach) = (1_u64, ascent.record);
    for step in ascent.steps() {
        let shares = shares_of(step, reach);
        streams = streams.saturating_mul(shares);
        reach = reach_of(step, shares, reach);
    }
    streams
}

/// Splits the steps from `place` on.
fn split(ascent: Ascent, place: usize, streams: &mut Vec<Stream>) {
    let reach = ascent.steps()[..place]
        .iter()
        .fold(ascent.record, |reach, step| reach + step.stride * (step.quantity - 1));
    let Some(step) = ascent.steps().get(place).copied() else {
        streams.push(Stream::new(ascent));
        return;
    };
    let shares = shares_of(&step, reach);
    for share in 0..shares {
        let mut part = ascent;
        part.start = part.start.wrapping_add_unsigned(share.wrapping_mul(step.stride));
        part.packed = part.packed.wrapping_add(share.wrapping_mul(step.weight as u64));
        part.steps_mut()[place] = Step {
            // If a share has only one turn, this product may overflow; then the stride is not used.
            stride: step.stride.wrapping_mul(shares),
            quantity: (step.quantity - share).div_ceil(shares),
            weight: step.weight.wrapping_mul(shares as i64),
        };
        split(part, place + 1, streams);
    }
}

/// Records in ascending order that do not overlap.
#[derive(Clone, Debug)]
struct Stream {
    ascent: Ascent,
    turns: [u64; NESTING_DEPTH_MAX],
    /// The part of the current record that was not yielded yet.
    now: Visit,
}

impl Stream {
    fn new(ascent: Ascent) -> Self {
        let now = Visit { offset: ascent.start, packed: ascent.packed, len: ascent.record };
        Self { ascent, turns: [0; NESTING_DEPTH_MAX], now }
    }

    fn head(&self, place: u32) -> Head {
        Head { offset: self.now.offset, packed: self.now.packed, place }
    }

    /// To the next record; false after the last.
    fn next_record(&mut self) -> bool {
        let passed = self.ascent.record - self.now.len;
        let (mut offset, mut packed) =
            (self.now.offset.wrapping_sub_unsigned(passed), self.now.packed.wrapping_sub(passed));
        for (turn, step) in self.turns.iter_mut().zip(self.ascent.steps()) {
            let there = *turn + 1 < step.quantity;
            let by = if there { 1 } else { turn.wrapping_neg() };
            offset = offset.wrapping_add_unsigned(by.wrapping_mul(step.stride));
            packed = packed.wrapping_add(by.wrapping_mul(step.weight as u64));
            *turn = turn.wrapping_add(by);
            if there {
                self.now = Visit { offset, packed, len: self.ascent.record };
                return true;
            }
        }
        false
    }
}

/// A stream's place in the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    offset: i64,
    packed: u64,
    place: u32,
}

/// The records of a pattern in order of offsets. Made by [`Pattern::by_offset`].
#[derive(Clone, Debug)]
pub struct ByOffset {
    streams: Vec<Stream>,
    heap: BinaryHeap<Reverse<Head>>,
}

impl ByOffset {
    /// How many streams are merged.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// The next record or the first part of it. `cut` gets the packed position and the bytes left of the
    /// record, and returns the length of the part, which is clamped to 1 ..= bytes left. The rest is yielded
    /// later, at its place in the order.
    pub(crate) fn next_cut(&mut self, cut: impl FnOnce(u64, u64) -> u64) -> Option<Visit> {
        let mut top = self.heap.peek_mut()?;
        let stream = &mut self.streams[top.0.place as usize];
        let Visit { offset, packed, len: left } = stream.now;
        let len = cut(packed, left).clamp(1, left);
        let is_there = if len < left {
            stream.now =
                Visit { offset: offset.wrapping_add_unsigned(len), packed: packed + len, len: left - len };
            true
        } else {
            stream.next_record()
        };
        if is_there {
            *top = Reverse(stream.head(top.0.place));
        } else {
            PeekMut::pop(top);
        }
        Some(Visit { offset, packed, len })
    }
}

impl Iterator for ByOffset {
    type Item = Visit;

    fn next(&mut self) -> Option<Visit> {
        self.next_cut(|_, left| left)
    }
}

impl std::iter::FusedIterator for ByOffset {}

#[cfg(test)]
mod tests {
    use crate::{Level, Pattern, Region};

    #[test]
    fn records_that_overlap_are_found_and_others_are_not_suspected() {
        let nested = |record, levels: &[(i64, u64)]| {
            let levels = levels.iter().map(|&(stride, quantity)| Level { stride, quantity }).collect();
            Pattern::nested(10_000, record, levels).unwrap()
        };
        let list = |regions: &[(i64, u64)]| {
            Pattern::list(regions.iter().map(|&(offset, len)| Region::new(offset, len)).collect()).unwrap()
        };
        for apart in [
            Pattern::default(),
            Pattern::contiguous(5, 1 << 40).unwrap(),
            nested(10, &[(10, 1_000_000)]),
            nested(10, &[(-10, 500)]),
            nested(2, &[(100, 3), (10, 4)]),
            // Rows interleave, and no record overlaps another.
            nested(2, &[(10, 30), (4, 2)]),
            list(&[(500, 10), (0, 10), (490, 10), (10, 5)]),
        ] {
            assert!(!apart.may_overlap(), "{apart}");
        }
        for overlapping in [
            nested(10, &[(9, 5)]),
            nested(10, &[(-9, 5)]),
            nested(1, &[(0, 2)]),
            nested(4, &[(10, 30), (3, 2)]),
            list(&[(500, 10), (0, 10), (491, 10)]),
            list(&[(7, 1), (7, 1)]),
        ] {
            assert!(overlapping.may_overlap(), "{overlapping}");
        }
    }
}
