//! Lattices: the form of a window of any pattern for questions in which order does not matter.
//!
//! Every pattern consists of a few records, repeated by levels of strides; only their order needs the tree.
//! A **lattice** is one such set of records of one size. The offset of a record is the sum of its indices
//! times strides, and its packed position is the sum of the same indices times weights. A *nest* is a
//! record that levels of strides repeat, and a *window* is a range of a pattern's packed bytes. A window of
//! a nest is one lattice, or a few lattices if its ends cut records and rows. A list has one lattice for
//! each run, a tree one lattice for each leaf.
//!
//! ```text
//!   nest        rec 2, { 4 × 3 }, { 20 × 4 }          window from 3, 16 bytes
//!   records     ##..##..##  ##..##..##  ##..##..##  ##..##..##
//!   window       #..##..##  ##..##..##  ##..##                   five lattices: half a record, two records
//!               └┘  └────┘  └────────┘  └────┘                   (a row's rest), a row, two records …
//! ```
//!
//! Three questions are answered by arithmetic on every lattice; the answer is then the largest, the least
//! or the sum of the results:
//!
//! * the packed position of a byte ([`Pattern::packed_at`]);
//! * the next byte in the order of offsets ([`Pattern::by_offset`]);
//! * the number of bytes in an object ([`share_len`](crate::share_len)).

use std::ops::Range;

use crate::batched::{Batched, Twig, touched};
use crate::limits::NESTING_DEPTH_MAX;
use crate::nest::{Level, Shape, moved};
use crate::pattern::{Body, Pattern};

/// One direction of a lattice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    /// Bytes of the file from one to the next.
    pub stride: i64,
    pub quantity: u64,
    /// Packed bytes from one to the next.
    pub weight: i64,
}

const NO_AXIS: Axis = Axis { stride: 0, quantity: 1, weight: 0 };

/// Records, and where they lie in the file and in the pattern's packed bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lattice {
    pub offset: i64,
    pub packed: u64,
    pub record: u64,
    axes: [Axis; NESTING_DEPTH_MAX],
    depth: usize,
}

impl Lattice {
    fn new(offset: i64, packed: u64, record: u64) -> Self {
        Self { offset, packed, record, axes: [NO_AXIS; NESTING_DEPTH_MAX], depth: 0 }
    }

    fn push(&mut self, axis: Axis) {
        if axis.quantity > 1 {
            self.axes[self.depth] = axis;
            self.depth += 1;
        }
    }

    pub fn axes(&self) -> &[Axis] {
        &self.axes[..self.depth]
    }

    /// How many records it has.
    pub fn records(&self) -> u64 {
        self.axes().iter().map(|axis| axis.quantity).product()
    }

    /// The same records, on axes that ascend, the smallest stride first.
    pub fn ascending(&self) -> Ascent {
        let mut ascent = Ascent {
            start: self.offset,
            packed: self.packed,
            record: self.record,
            steps: [Step { stride: 0, quantity: 1, weight: 0 }; NESTING_DEPTH_MAX],
            depth: self.depth,
        };
        for (step, axis) in ascent.steps.iter_mut().zip(self.axes()) {
            *step = Step { stride: axis.stride.unsigned_abs(), quantity: axis.quantity, weight: axis.weight };
            if axis.stride < 0 {
                let last = axis.quantity - 1;
                ascent.start = moved(ascent.start, axis.stride, last);
                ascent.packed = ascent.packed.wrapping_add(last.wrapping_mul(axis.weight as u64));
                step.weight = -axis.weight;
            }
        }
        ascent.steps[..ascent.depth].sort_unstable_by_key(|step| step.stride);
        ascent
    }
}

/// One direction of an ascent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Bytes of the file from one to the next.
    pub stride: u64,
    pub quantity: u64,
    /// Packed bytes from one to the next; negative where the pattern runs backwards.
    pub weight: i64,
}

/// A lattice whose axes all ascend, the smallest stride first: its first record is the one of least offset.
///
/// All its bytes lie within 2^64 - 1 from its start, as offsets fit `i64`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ascent {
    pub start: i64,
    pub packed: u64,
    pub record: u64,
    steps: [Step; NESTING_DEPTH_MAX],
    depth: usize,
}

impl Ascent {
    pub fn steps(&self) -> &[Step] {
        &self.steps[..self.depth]
    }

    pub fn steps_mut(&mut self) -> &mut [Step] {
        &mut self.steps[..self.depth]
    }
}

/// Every lattice of the pattern. Packed positions are those of its window.
pub(crate) fn each(pattern: &Pattern, mut visit: impl FnMut(Lattice)) {
    let (from, len) = (pattern.from(), pattern.len());
    if len == 0 {
        return;
    }
    let visit: &mut dyn FnMut(Lattice) = &mut visit;
    let base = 0_u64.wrapping_sub(from);
    match pattern.body() {
        Body::Nest(nest) => cut_shape(nest.shape(), base, from, len, visit),
        Body::Runs(runs) => {
            let (touched, mut skipped) = runs.touched(from, len);
            let mut left = len;
            let mut packed = 0_u64;
            for run in touched {
                let part = left.min(run.len() - skipped);
                cut_shape(run.shape(), packed.wrapping_sub(skipped), skipped, part, visit);
                (left, packed, skipped) = (left - part, packed + part, 0);
            }
        }
        Body::Batched(batched) => {
            let cut = Cut { batched, visit };
            cut.turns(batched.vector(), batched.displaced(), batched.repeat(), base, (from, len));
        }
    }
}

/// The packed bytes `from .. from + len` of a shape whose first byte has the packed position `base`.
fn cut_shape(shape: Shape<'_>, base: u64, from: u64, len: u64, visit: &mut dyn FnMut(Lattice)) {
    if from == 0 && len == shape.len() {
        visit(whole(shape, base));
        return;
    }
    let Some((outer, inner)) = shape.peel() else {
        visit(Lattice::new(shape.offset.wrapping_add(from as i64), base.wrapping_add(from), len));
        return;
    };
    let turn = inner.len();
    cut_turns(outer, turn, (from, len), |first, quantity, from, len| {
        let base = base.wrapping_add(first.wrapping_mul(turn));
        let inner = inner.at(outer.stride, first);
        if quantity == 1 {
            cut_shape(inner, base, from, len, visit);
        } else {
            let mut lattice = whole(inner, base);
            lattice.push(Axis { stride: outer.stride, quantity, weight: turn as i64 });
            visit(lattice);
        }
    });
}

fn whole(shape: Shape<'_>, base: u64) -> Lattice {
    let mut lattice = Lattice::new(shape.offset, base, shape.record);
    let mut weight = shape.record;
    for level in shape.levels {
        lattice.push(Axis { stride: level.stride, quantity: level.quantity, weight: weight as i64 });
        weight = weight.wrapping_mul(level.quantity);
    }
    lattice
}

/// Cuts a window of turns into a tail of one, whole ones, and a head of one: calls with the first turn, how
/// many, and the window in it (all of it for several).
fn cut_turns(level: Level, turn: u64, (from, len): (u64, u64), mut part: impl FnMut(u64, u64, u64, u64)) {
    debug_assert!(from + len <= turn * level.quantity);
    let (first, last) = (from / turn, (from + len - 1) / turn);
    let (head, tail) = (from % turn, (from + len - 1) % turn + 1);
    if first == last {
        return part(first, 1, head, len);
    }
    let start = if head == 0 { first } else { first + 1 };
    let end = if tail == turn { last + 1 } else { last };
    if head != 0 {
        part(first, 1, head, turn - head);
    }
    if start < end {
        part(start, end - start, 0, turn);
    }
    if tail != turn {
        part(last, 1, 0, tail);
    }
}

/// A window of a tree is being cut.
struct Cut<'a, 'v> {
    batched: &'a Batched,
    visit: &'v mut dyn FnMut(Lattice),
}

/// The axes of the turns around a vector.
#[derive(Clone, Copy)]
struct Path {
    axes: [Axis; NESTING_DEPTH_MAX],
    depth: usize,
}

impl Path {
    const NONE: Self = Self { axes: [NO_AXIS; NESTING_DEPTH_MAX], depth: 0 };

    fn and(mut self, axis: Axis) -> Self {
        if axis.quantity > 1 {
            self.axes[self.depth] = axis;
            self.depth += 1;
        }
        self
    }

    /// Of what these turns do not move.
    fn anchored(mut self) -> Self {
        self.axes.iter_mut().for_each(|axis| axis.stride = 0);
        self
    }
}

impl Cut<'_, '_> {
    /// The packed bytes `from .. from + len` of a repeated vector.
    fn turns(self, vector: &Range<u32>, displaced: i64, level: Level, base: u64, window: (u64, u64)) {
        let Self { batched, visit } = self;
        let twigs = batched.twigs(vector);
        let turn = twigs.iter().map(|twig| twig.run.len()).sum();
        cut_turns(level, turn, window, |first, quantity, from, len| {
            let base = base.wrapping_add(first.wrapping_mul(turn));
            let displaced = moved(displaced, level.stride, first);
            let mut cut = Cut { batched, visit: &mut *visit };
            if quantity == 1 {
                cut.vector(twigs, displaced, base, from, len);
            } else {
                let axis = Axis { stride: level.stride, quantity, weight: turn as i64 };
                cut.whole(twigs, displaced, base, Path::NONE.and(axis));
            }
        });
    }

    /// The packed bytes `from .. from + len` of one turn, whose first byte has the packed position `base`.
    fn vector(&mut self, twigs: &[Twig], displaced: i64, base: u64, from: u64, len: u64) {
        let (place, mut skipped) = touched(twigs, from, len);
        let start = twigs.first().map_or(0, Twig::start);
        let mut left = len;
        for twig in &twigs[place.start as usize..place.end as usize] {
            let part = left.min(twig.run.len() - skipped);
            let base = base.wrapping_add(twig.start() - start);
            if twig.is_leaf() {
                cut_shape(twig.shape(displaced), base, skipped, part, self.visit);
            } else {
                let cut = Cut { batched: self.batched, visit: &mut *self.visit };
                cut.turns(&twig.vector, twig.displaced(displaced), twig.run.level, base, (skipped, part));
            }
            (left, skipped) = (left - part, 0);
        }
    }

    /// All of a vector, in all turns of `path`.
    fn whole(&mut self, twigs: &[Twig], displaced: i64, base: u64, path: Path) {
        let start = twigs.first().map_or(0, Twig::start);
        for twig in twigs {
            let base = base.wrapping_add(twig.start() - start);
            let path = if twig.is_anchored { path.anchored() } else { path };
            if twig.is_leaf() {
                let mut lattice = whole(twig.shape(displaced), base);
                path.axes[..path.depth].iter().for_each(|axis| lattice.push(*axis));
                (self.visit)(lattice);
            } else {
                let Level { stride, quantity } = twig.run.level;
                let path = path.and(Axis { stride, quantity, weight: twig.run.record as i64 });
                let twigs = self.batched.twigs(&twig.vector);
                self.whole(twigs, twig.displaced(displaced), base, path);
            }
        }
    }
}
