//! The batched body of a pattern: a tree of strided runs. It lies flat in memory, so a walk needs only a
//! small stack, and a slice needs no copy.
//!
//! A node of the tree is a *knot*: a leaf or a vector of knots, repeated at a stride. One repetition is a
//! *turn*. A *packed* position counts the bytes in the order in which a message carries them. The knots of
//! the normal form (see [branch](crate::branch)) lie in one array, level by level. So the knots of a vector
//! are neighbours, and a binary search over their packed ends finds a packed position. A body is a part of
//! such an array: some knots of one vector, with a displacement and a repetition.
//!
//! ```text
//!   [ header │ rows │ a │ b ]     rows.vector = 2..4          the array, shared by all slices
//!     └─ root ────┘ └ rows' ┘
//!   slice within turns 1 and 2 of rows = { vector 2..4, displaced 50, repeat { 50, 2 } }
//! ```
//!
//! Invariants: the array comes from [`normal`](crate::branch::normal) or
//! [`coalesced`](crate::branch::coalesced); all its bytes, in every turn, have offsets within `i64`, and
//! there are at most [`PACKED_BYTES_MAX`](limits::PACKED_BYTES_MAX) bytes. So wrapping arithmetic gives exact
//! offsets, as in a [nest](crate::nest): each sum of turns times strides is the offset of an existing byte
//! (tests: `trees_have_limits`, `a_pattern_and_all_operations_on_it_expand_to_what_they_mean`).

use std::ops::Range;
use std::sync::Arc;

use crate::branch::{Knot, still};
use crate::limits;
use crate::nest::{self, Level, Nest, Shape, join, moved};
use crate::pattern::PatternError;
use crate::runs::Run;

const ONCE: Level = Level { stride: 0, quantity: 1 };

/// A knot in the array.
#[derive(Clone, Debug)]
pub(crate) struct Twig {
    /// A leaf: its records. A vector: `record` is the packed bytes of one turn, and `offset` means nothing.
    pub run: Run,
    pub is_anchored: bool,
    /// Where its vector lies; empty for a leaf.
    pub vector: Range<u32>,
    /// Packed bytes of the vector around it, up to its end.
    pub end: u64,
    /// Bounds of its bytes that turns around it move, in their first turn.
    moving: Option<(i64, i64)>,
    /// Bounds of those that they do not move.
    fixed: Option<(i64, i64)>,
}

impl Twig {
    pub fn is_leaf(&self) -> bool {
        self.vector.is_empty()
    }

    /// Packed bytes of the vector around it, up to its start.
    pub fn start(&self) -> u64 {
        self.end - self.run.len()
    }

    /// How far the turns around move it, if they move what is around it by `displaced`.
    pub fn displaced(&self, displaced: i64) -> i64 {
        if self.is_anchored { 0 } else { displaced }
    }

    /// A leaf's records, moved.
    pub fn shape(&self, displaced: i64) -> Shape<'_> {
        let shape = self.run.shape();
        Shape { offset: shape.offset.wrapping_add(self.displaced(displaced)), ..shape }
    }

    fn bounds(&self, displaced: i64) -> Option<(i64, i64)> {
        let by = |(low, high): (i64, i64)| (low.wrapping_add(displaced), high.wrapping_add(displaced));
        join_all(self.moving.map(by), self.fixed)
    }
}

fn join_all(a: Option<(i64, i64)>, b: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match b {
        Some(b) => join(a, b),
        None => a,
    }
}

/// Some knots of one vector, put somewhere and repeated.
#[derive(Clone, Debug)]
pub(crate) struct Batched {
    twigs: Arc<Vec<Twig>>,
    vector: Range<u32>,
    displaced: i64,
    repeat: Level,
}

/// The smallest form of a window of a tree, and the start of the window in it.
pub(crate) enum Narrowed {
    Nest(Nest, u64),
    Runs(Vec<Run>, u64),
    Batched(Batched, u64),
}

impl Batched {
    /// The knots in one array; `None` if they have no byte.
    ///
    /// # Errors
    /// [`PatternError::TooLong`], [`PatternError::OutOfRange`]; [`PatternError::TooManyRegions`] where it is
    /// no list, and has more nodes than a request can carry.
    pub fn new(knots: &[Knot]) -> Result<Option<Self>, PatternError> {
        if knots.is_empty() {
            return Ok(None);
        }
        let nodes = knots.iter().map(Knot::count).sum();
        let limit = limits::REQUEST_REGIONS_MAX;
        if nodes > limit && !knots.iter().all(Knot::is_leaf) {
            return Err(PatternError::TooManyRegions { regions: nodes, limit });
        }
        let mut twigs = Vec::with_capacity(nodes);
        add(&mut twigs, knots)?;
        let vector = 0..knots.len() as u32;
        Ok(Some(Self { twigs: Arc::new(twigs), vector, displaced: 0, repeat: ONCE }))
    }

    pub fn twigs(&self, vector: &Range<u32>) -> &[Twig] {
        &self.twigs[vector.start as usize..vector.end as usize]
    }

    pub fn twig(&self, place: u32) -> &Twig {
        &self.twigs[place as usize]
    }

    pub fn vector(&self) -> &Range<u32> {
        &self.vector
    }

    pub fn displaced(&self) -> i64 {
        self.displaced
    }

    pub fn repeat(&self) -> Level {
        self.repeat
    }

    /// Packed bytes of one turn.
    pub fn turn(&self) -> u64 {
        span(self.twigs(&self.vector))
    }

    /// Packed bytes of all.
    pub fn len(&self) -> u64 {
        self.turn() * self.repeat.quantity
    }

    /// Whether a knot is marked as anchored though nothing around it moves any more, in this window.
    pub fn has_idle_anchors(&self) -> bool {
        let is_still = self.repeat.quantity == 1 || self.repeat.stride == 0;
        is_still && self.anchors_in(&self.vector)
    }

    fn anchors_in(&self, vector: &Range<u32>) -> bool {
        let idle =
            |twig: &Twig| twig.is_anchored || (twig.run.level.stride == 0 && self.anchors_in(&twig.vector));
        self.twigs(vector).iter().any(idle)
    }

    /// The normal form, with all places resolved.
    pub fn knots(&self) -> Vec<Knot> {
        let mut knots = self.knots_in(&self.vector, self.displaced);
        if self.has_idle_anchors() {
            still(&mut knots);
        }
        if self.repeat.quantity == 1 {
            return knots;
        }
        vec![Knot {
            run: Run { offset: 0, record: 0, level: self.repeat },
            is_anchored: false,
            vector: knots,
        }]
    }

    fn knots_in(&self, vector: &Range<u32>, displaced: i64) -> Vec<Knot> {
        let knot = |twig: &Twig| {
            let displaced = twig.displaced(displaced);
            let (offset, record) = match twig.is_leaf() {
                true => (twig.run.offset.wrapping_add(displaced), twig.run.record),
                false => (0, 0),
            };
            let run = Run { offset, record, ..twig.run };
            Knot { run, is_anchored: twig.is_anchored, vector: self.knots_in(&twig.vector, displaced) }
        };
        self.twigs(vector).iter().map(knot).collect()
    }

    /// The packed bytes `from .. from + len` in the smallest form: only the knots and turns that they touch.
    /// A slice of the array, without a copy, unless what is left is a nest or a list. `len` > 0.
    pub fn narrowed(mut self, mut from: u64, len: u64) -> Narrowed {
        loop {
            let turn = self.turn();
            let (first, last) = (from / turn, (from + len - 1) / turn);
            from %= turn;
            self.displaced = moved(self.displaced, self.repeat.stride, first);
            if first != last {
                self.repeat.quantity = last - first + 1;
                return match self.chain(self.twigs(&self.vector)) {
                    Some(mut nest) => {
                        nest.levels.push(self.repeat);
                        of_nest(&nest, from, len)
                    }
                    None => Narrowed::Batched(self, from),
                };
            }
            self.repeat = ONCE;
            let (touched, skipped) = touched(self.twigs(&self.vector), from, len);
            self.vector = self.vector.start + touched.start..self.vector.start + touched.end;
            from = skipped;
            match self.twigs(&self.vector) {
                [only] if only.is_leaf() => return narrow_shape(only.shape(self.displaced), from, len),
                [only] => {
                    let (displaced, level) = (only.displaced(self.displaced), only.run.level);
                    let vector = only.vector.clone();
                    (self.displaced, self.repeat, self.vector) = (displaced, level, vector);
                }
                all if all.iter().all(Twig::is_leaf) => {
                    let run = |twig: &Twig| Run { offset: twig.shape(self.displaced).offset, ..twig.run };
                    return Narrowed::Runs(all.iter().map(run).collect(), from);
                }
                _ => return Narrowed::Batched(self, from),
            }
        }
    }

    /// A vector of one knot after the other down to one leaf: a nest.
    fn chain(&self, vector: &[Twig]) -> Option<Nest> {
        let [only] = vector else { return None };
        if only.is_leaf() {
            let shape = only.shape(self.displaced);
            let levels = if only.run.is_plain() { Vec::new() } else { vec![only.run.level] };
            return Some(Nest { offset: shape.offset, record: shape.record, levels });
        }
        let mut nest = self.chain(self.twigs(&only.vector))?;
        nest.levels.push(only.run.level);
        Some(nest)
    }

    /// Smallest offset and largest end of the packed bytes `from .. from + len`; `len` > 0, all of them
    /// there.
    pub fn window_bounds(&self, from: u64, len: u64) -> Option<(i64, i64)> {
        self.turns_bounds(&self.vector, self.displaced, self.repeat, from, len)
    }

    /// As in a nest: a tail of one turn, whole turns, a head of one more.
    fn turns_bounds(
        &self,
        vector: &Range<u32>,
        displaced: i64,
        level: Level,
        from: u64,
        len: u64,
    ) -> Option<(i64, i64)> {
        let turn = span(self.twigs(vector));
        let (first, last) = (from / turn, (from + len - 1) / turn);
        let (head, tail) = (from % turn, (from + len - 1) % turn + 1);
        let at = |index| moved(displaced, level.stride, index);
        if first == last {
            return self.vector_bounds(vector, at(first), head, len);
        }
        let mut bounds = None;
        let whole = if head == 0 { first } else { first + 1 }..if tail == turn { last + 1 } else { last };
        if !whole.is_empty() {
            bounds = join_all(bounds, self.vector_bounds(vector, at(whole.start), 0, turn));
            bounds = join_all(bounds, self.vector_bounds(vector, at(whole.end - 1), 0, turn));
        }
        if head != 0 {
            bounds = join_all(bounds, self.vector_bounds(vector, at(first), head, turn - head));
        }
        if tail != turn {
            bounds = join_all(bounds, self.vector_bounds(vector, at(last), 0, tail));
        }
        bounds
    }

    fn vector_bounds(&self, vector: &Range<u32>, displaced: i64, from: u64, len: u64) -> Option<(i64, i64)> {
        let twigs = self.twigs(vector);
        let (place, mut from) = touched(twigs, from, len);
        let mut left = len;
        let mut bounds = None;
        for twig in &twigs[place.start as usize..place.end as usize] {
            let part = left.min(twig.run.len() - from);
            let own = twig.displaced(displaced);
            let here = if part == twig.run.len() {
                twig.bounds(displaced)
            } else if twig.is_leaf() {
                Some(twig.shape(displaced).window_bounds(from, part))
            } else {
                self.turns_bounds(&twig.vector, own, twig.run.level, from, part)
            };
            bounds = join_all(bounds, here);
            left -= part;
            from = 0;
        }
        bounds
    }
}

/// Packed bytes of neighbours in one vector.
fn span(twigs: &[Twig]) -> u64 {
    match twigs {
        [first, .., last] => last.end - first.start(),
        [only] => only.run.len(),
        [] => 0,
    }
}

/// Which of `twigs` the packed bytes `from .. from + len` of them touch, and how far into the first they
/// begin.
pub(crate) fn touched(twigs: &[Twig], from: u64, len: u64) -> (Range<u32>, u64) {
    let base = twigs.first().map_or(0, Twig::start);
    let find = |packed: u64| twigs.partition_point(|twig| twig.end - base <= packed);
    let (first, last) = (find(from), find(from + len - 1));
    (first as u32..last as u32 + 1, from - (twigs[first].start() - base))
}

fn of_nest(nest: &Nest, from: u64, len: u64) -> Narrowed {
    narrow_shape(nest.shape(), from, len)
}

fn narrow_shape(shape: Shape<'_>, from: u64, len: u64) -> Narrowed {
    let (nest, from) = nest::narrowed(shape, from, len);
    Narrowed::Nest(nest, from)
}

/// Bounds of what moves with the turns around, and of what does not.
type Reach = (Option<(i128, i128)>, Option<(i128, i128)>);

fn spread(bounds: Option<(i128, i128)>, level: Level) -> Result<Option<(i128, i128)>, PatternError> {
    let Some((low, high)) = bounds else { return Ok(None) };
    let reach = i128::from(level.stride) * i128::from(level.quantity - 1);
    let low = low.checked_add(reach.min(0)).ok_or(PatternError::OutOfRange)?;
    let high = high.checked_add(reach.max(0)).ok_or(PatternError::OutOfRange)?;
    Ok(Some((low, high)))
}

fn wider(a: Option<(i128, i128)>, b: Option<(i128, i128)>) -> Option<(i128, i128)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    }
}

fn narrow_bounds(bounds: Option<(i128, i128)>) -> Result<Option<(i64, i64)>, PatternError> {
    let narrow = |offset| i64::try_from(offset).map_err(|_| PatternError::OutOfRange);
    bounds.map(|(low, high)| Ok((narrow(low)?, narrow(high)?))).transpose()
}

/// Puts the knots of a vector into the array as neighbours, then what is in them; their packed bytes and
/// reach.
fn add(twigs: &mut Vec<Twig>, knots: &[Knot]) -> Result<(u64, Reach), PatternError> {
    let first = twigs.len();
    twigs.extend(knots.iter().map(|knot| Twig {
        run: knot.run,
        is_anchored: knot.is_anchored,
        vector: 0..0,
        end: 0,
        moving: None,
        fixed: None,
    }));
    let mut packed = 0_u64;
    let mut reach: Reach = (None, None);
    for (place, knot) in (first..).zip(knots) {
        let run = knot.run;
        let (record, (moving, fixed)) = match knot.vector.as_slice() {
            [] => {
                let low = i128::from(run.offset);
                (run.record, (Some((low, low + i128::from(run.record))), None))
            }
            vector => {
                let start = twigs.len() as u32;
                let (turn, (moving, fixed)) = add(twigs, vector)?;
                twigs[place].vector = start..start + vector.len() as u32;
                (turn, (moving, fixed))
            }
        };
        let moving = spread(moving, run.level)?;
        let own: Reach = if knot.is_anchored { (None, wider(moving, fixed)) } else { (moving, fixed) };
        let len = record.checked_mul(run.level.quantity).ok_or(PatternError::TooLong)?;
        let end = packed.checked_add(len).filter(|end| *end <= limits::PACKED_BYTES_MAX);
        packed = end.ok_or(PatternError::TooLong)?;
        let twig = &mut twigs[place];
        twig.run.record = record;
        twig.end = packed;
        (twig.moving, twig.fixed) = (narrow_bounds(own.0)?, narrow_bounds(own.1)?);
        reach = (wider(reach.0, own.0), wider(reach.1, own.1));
    }
    Ok((packed, reach))
}
