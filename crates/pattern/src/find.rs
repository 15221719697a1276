//! Finds a byte of the file in a pattern, by arithmetic. A lookup in an index does this.
//!
//! The pattern is divided into a few [lattices](crate::lattice). If the steps of a lattice do not
//! interleave (each stride is at least the reach of the smaller steps), an offset is a number in a mixed
//! radix, and each step costs one division. If two steps interleave, Euclid's algorithm finds the best
//! index of the larger step ([congruence]) in O(log stride). If further steps interleave, their indices are
//! tried one by one.
//!
//! ```text
//!   strided(0, 100, 1000, 500)        offset 7,042 = 7 × 1000 + 42      packed 7 × 100 + 42
//!   strided(0, 100, 10, 500)          offset 142 is in records 5 … 14   packed 14 × 100 + 2
//! ```
//!
//! **For a byte that the pattern visits more than once, the answer is the last visit**: the largest packed
//! position (the place in the order of a message). A write of the pattern leaves that byte in the file.

use crate::congruence::first_below;
use crate::lattice::{self, Ascent, Step};
use crate::pattern::Pattern;

/// Fewer candidates than this are tried without Euclid's algorithm.
const FEW: u64 = 4;

impl Pattern {
    /// The packed position of the byte at `offset` of the file; `None` if the pattern does not have it. If it
    /// visits the byte more than once, the largest (the last) of its positions.
    ///
    /// O(depth) for a nest whose levels do not interleave, O(log) for two that do; of a list or a tree, that
    /// for each run or leaf. **Three levels and more that interleave may take very long**: for a pattern from
    /// the wire use [`Pattern::packed_at_within`].
    pub fn packed_at(&self, offset: i64) -> Option<u64> {
        self.packed_at_within(offset, u64::MAX).unwrap_or(None)
    }

    /// The same in at most `steps` steps (a step is a division); `Err` with `steps` if they do not suffice.
    ///
    /// # Errors
    /// [`TooManySteps`].
    pub fn packed_at_within(&self, offset: i64, steps: u64) -> Result<Option<u64>, TooManySteps> {
        let mut search = Search { best: None, steps_left: Some(steps) };
        match self.bounds() {
            Some((low, high)) if low <= offset && offset < high => {}
            _ => return Ok(None),
        }
        lattice::each(self, |lattice| {
            // An ascent reaches no lower than its start: what lies before it is not in it.
            let ascent = lattice.ascending();
            if offset >= ascent.start {
                search.in_ascent(&ascent, offset.abs_diff(ascent.start));
            }
        });
        if search.steps_left.is_none() { Err(TooManySteps { steps }) } else { Ok(search.best) }
    }
}

/// A search was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pattern's levels interleave: a byte was not found in it in {steps} steps")]
pub struct TooManySteps {
    /// The steps that were allowed.
    pub steps: u64,
}

struct Search {
    best: Option<u64>,
    /// `None`: given up.
    steps_left: Option<u64>,
}

impl Search {
    fn in_ascent(&mut self, ascent: &Ascent, place: u64) {
        // Steps that stand still: the last turn is the last visit.
        let still = ascent.steps().iter().take_while(|step| step.stride == 0).count();
        let (still, moving) = ascent.steps().split_at(still);
        let packed = still.iter().fold(ascent.packed, |packed, step| plus(packed, step, step.quantity - 1));
        self.among(moving, ascent.record, place, packed);
    }

    /// The best position of the byte `place` bytes after the start of `steps`, the smallest stride first.
    fn among(&mut self, steps: &[Step], record: u64, place: u64, packed: u64) {
        let Some(left) = self.steps_left else { return };
        self.steps_left = left.checked_sub(1);
        let Some((largest, smaller)) = steps.split_last() else {
            if place < record {
                let found = packed.wrapping_add(place);
                self.best = Some(self.best.map_or(found, |best| best.max(found)));
            }
            return;
        };
        let reach = smaller.iter().fold(record, |reach, step| reach + step.stride * (step.quantity - 1));
        // Turns whose reach has the place: turn × stride <= place < turn × stride + reach.
        let last = (place / largest.stride).min(largest.quantity - 1);
        let first = (place + 1).saturating_sub(reach).div_ceil(largest.stride);
        if first > last {
            return;
        }
        match smaller {
            [] => {
                let turn = if largest.weight < 0 { first } else { last };
                self.turn(largest, smaller, record, place, packed, turn);
            }
            [inner] if last - first >= FEW => {
                if let Some(turn) = best_turn(largest, inner, record, place, first, last) {
                    self.turn(largest, smaller, record, place, packed, turn);
                }
            }
            _ => {
                for turn in first..=last {
                    if self.steps_left.is_none() {
                        return;
                    }
                    self.turn(largest, smaller, record, place, packed, turn);
                }
            }
        }
    }

    fn turn(&mut self, step: &Step, smaller: &[Step], record: u64, place: u64, packed: u64, turn: u64) {
        self.among(smaller, record, place - turn * step.stride, plus(packed, step, turn));
    }
}

fn plus(packed: u64, step: &Step, turn: u64) -> u64 {
    packed.wrapping_add(turn.wrapping_mul(step.weight as u64))
}

/// The turn of `outer`, in `first ..= last`, in which `inner` has the place at its largest packed position.
/// The step that weighs more decides. A later turn of the outer one is an earlier one of the inner one.
fn best_turn(outer: &Step, inner: &Step, record: u64, place: u64, first: u64, last: u64) -> Option<u64> {
    let outer_decides = outer.weight.unsigned_abs() > inner.weight.unsigned_abs();
    let latest = if outer_decides { outer.weight > 0 } else { inner.weight < 0 };
    if record >= inner.stride {
        // Every place in reach is in a record, and in more than one turn of the outer step perhaps in the
        // same.
        let same =
            if outer_decides { None } else { Some(same_turn(inner, record, place, outer, first, last)) };
        return Some(same.unwrap_or(if latest { last } else { first }));
    }
    let (from, stride) = if latest { (last, outer.stride as i128) } else { (first, -(outer.stride as i128)) };
    let stride = stride.rem_euclid(i128::from(inner.stride));
    let away = first_below(place - from * outer.stride, stride, inner.stride, record)?;
    (away <= last - first).then(|| if latest { last - away } else { first + away })
}

/// Where the inner step decides and its records leave no gap: its best turn, and of the turns of `outer` that
/// have the place in that one the best.
fn same_turn(inner: &Step, record: u64, place: u64, outer: &Step, first: u64, last: u64) -> u64 {
    if inner.weight > 0 {
        let best = ((place - first * outer.stride) / inner.stride).min(inner.quantity - 1);
        return if outer.weight > 0 { last.min((place - best * inner.stride) / outer.stride) } else { first };
    }
    let least = place - last * outer.stride;
    let best = (least + 1).saturating_sub(record).div_ceil(inner.stride);
    if outer.weight > 0 {
        return last;
    }
    first.max((place - best * inner.stride + 1).saturating_sub(record).div_ceil(outer.stride))
}
