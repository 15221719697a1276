//! A position in a batched tree, and the walk from leaf to leaf. Leaves come in packed order: the order in
//! which their bytes lie in a message.
//!
//! A node of the tree is a *knot*: a leaf (plain bytes) or a vector (a list of knots that is repeated). One
//! repetition of a vector is a *turn*. A position has one frame for each vector on the path from the root
//! to the current leaf. The frame holds the knot that the walk has reached in this vector, the turn, and
//! the displacement of the turn in bytes. The frames are fields of the `Climb` itself, so a walk allocates
//! nothing.
//!
//! ```text
//!   frame 0   root vector    knot 1 of 2    displaced 0
//!   frame 1   rows           knot 0 of 2    turn 2 of 3, displaced 100      ─▶ leaf a, moved by 100
//! ```
//!
//! Cost: a step takes constant time on average, because each knot is entered once in each turn. A seek
//! takes one division and one binary search for each vector on the path.

use std::ops::Range;

use crate::batched::{Batched, touched};
use crate::limits;
use crate::nest::{Level, Shape, moved};

/// Vectors on the way to a leaf, the outermost one among them: each of the others has a level.
const FRAMES: usize = limits::NESTING_DEPTH_MAX + 1;

#[derive(Clone, Copy, Debug)]
struct Frame {
    start: u32,
    end: u32,
    at: u32,
    level: Level,
    turn: u64,
    /// Of the current turn.
    displaced: i64,
}

impl Frame {
    const NONE: Self =
        Self { start: 0, end: 0, at: 0, level: Level { stride: 0, quantity: 0 }, turn: 0, displaced: 0 };

    /// The first knot of the first turn.
    fn new(vector: &Range<u32>, level: Level, displaced: i64) -> Self {
        Self { start: vector.start, end: vector.end, at: vector.start, level, turn: 0, displaced }
    }

    /// To the next knot, in this turn or the next; false after the last.
    fn next(&mut self) -> bool {
        self.at += 1;
        if self.at < self.end {
            return true;
        }
        self.turn += 1;
        self.at = self.start;
        self.displaced = self.displaced.wrapping_add(self.level.stride);
        self.turn < self.level.quantity
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Climb<'a> {
    body: &'a Batched,
    frames: [Frame; FRAMES],
    depth: usize,
}

impl<'a> Climb<'a> {
    /// At packed byte `packed`, which the body has: the climb, the leaf there, and how far into it.
    pub fn at(body: &'a Batched, packed: u64) -> (Self, Shape<'a>, u64) {
        let mut climb = Self { body, frames: [Frame::NONE; FRAMES], depth: 0 };
        climb.push(Frame::new(body.vector(), body.repeat(), body.displaced()));
        let mut packed = packed;
        let mut turn = body.turn();
        loop {
            let frame = &mut climb.frames[climb.depth - 1];
            frame.turn = packed / turn;
            frame.displaced = moved(frame.displaced, frame.level.stride, frame.turn);
            let (place, skipped) = touched(body.twigs(&(frame.start..frame.end)), packed % turn, 1);
            frame.at = frame.start + place.start;
            let (twig, displaced) = (body.twig(frame.at), frame.displaced);
            packed = skipped;
            if twig.is_leaf() {
                return (climb, twig.shape(displaced), packed);
            }
            turn = twig.run.record;
            climb.push(Frame::new(&twig.vector, twig.run.level, twig.displaced(displaced)));
        }
    }

    /// To the first leaf after the current one; `None` at the end.
    pub fn next(&mut self) -> Option<Shape<'a>> {
        while !self.frames[self.depth.checked_sub(1)?].next() {
            self.depth -= 1;
        }
        Some(self.leaf())
    }

    /// Down to the first leaf of the current knot.
    fn leaf(&mut self) -> Shape<'a> {
        let body = self.body;
        loop {
            let frame = self.frames[self.depth - 1];
            let twig = body.twig(frame.at);
            if twig.is_leaf() {
                return twig.shape(frame.displaced);
            }
            self.push(Frame::new(&twig.vector, twig.run.level, twig.displaced(frame.displaced)));
        }
    }

    fn push(&mut self, frame: Frame) {
        self.frames[self.depth] = frame;
        self.depth += 1;
    }
}
