//! The deal: one walk of a pattern over a placement, to all objects at once.
//!
//! A [`View`](crate::View) is one server's part of a walk, so a client that used views would walk once for
//! each server. With a deal it walks once. The deal yields runs of bytes; a run is in one object or in one
//! hole. Runs come in *packed* order (the order of the pattern's bytes in a message).
//!
//! ```text
//!   pattern     ..######..######..######..        strided(2, 6, 8, 3)
//!   objects     00001111....00001111....00        strips of 4; every third strip is a hole
//!   runs        object 0 at 2: 2 bytes   object 1 at 0: 4   hole at 10: 2   object 0 at 4: 4   …
//! ```
//!
//! Invariants: the runs partition the window's packed bytes; the runs come in packed order; each run is
//! maximal, that is, the next run does not continue it in the same object or hole (tests:
//! `a_deal_over_a_layout_with_holes_puts_each_byte_where_the_layout_says`,
//! `a_deal_over_a_distribution_is_all_its_views`).
//!
//! Cost: a deal takes O(depth) memory and allocates nothing (`tests/all/memory.rs` counts). Its construction
//! calls no `locate`. It computes the bounds of the window, in time linear in the runs or branches that
//! describe the pattern. A step passes one piece: the bytes up to the next boundary of a record or of the
//! placement. A step takes O(depth) time and at most one `locate`, whatever the number of records. A run has
//! one or more pieces.

use crate::pattern::Pattern;
use crate::placement::{Located, Placement};
use crate::regions::Walk;
use crate::view::{ViewError, Window, check};

/// Bytes that are contiguous in one object (or in one hole) and in packed order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dealt {
    /// The object; `None`: they are in a hole.
    pub object: Option<u32>,
    /// Where they begin: in the object, or for a hole in the file. In bytes.
    pub place: u64,
    /// Their packed position, counted from the start of the deal's window.
    pub packed: u64,
    /// How many bytes.
    pub len: u64,
}

impl Dealt {
    fn goes_on_in(&self, next: &Self) -> bool {
        self.object == next.object
            && self.place.checked_add(self.len) == Some(next.place)
            && self.packed + self.len == next.packed
    }
}

/// A packed window of a pattern, dealt to all objects of a placement in packed order. An iterator; a clone
/// continues from the position of the original.
#[derive(Clone)]
pub struct Deal<'a> {
    walk: Walk<'a>,
    placement: &'a dyn Placement,
    window_len: u64,
    /// How far the last answer holds: where the walk was when it was asked, and the answer.
    known: Option<(u64, Located)>,
    /// Found and not yet yielded, since the next may extend it.
    pending: Option<Dealt>,
    steps_left: u64,
    gave_up: bool,
}

impl<'a> Deal<'a> {
    /// The packed `window` of `pattern`, over `placement`.
    ///
    /// # Errors
    /// [`ViewError::OutsidePattern`], [`ViewError::NegativeOffset`].
    pub fn new(
        pattern: &'a Pattern,
        window: Window,
        placement: &'a dyn Placement,
    ) -> Result<Self, ViewError> {
        check(pattern, window)?;
        Ok(Self {
            walk: Walk::new(pattern, window.from, window.len),
            placement,
            window_len: window.len,
            known: None,
            pending: None,
            steps_left: u64::MAX,
            gave_up: false,
        })
    }

    /// The same, but the walk ends after it visited `steps` pieces; then [`Deal::gave_up`] returns true. A
    /// piece lies between two boundaries of records or of the placement. A run of 2^60 bytes may have as many
    /// pieces, so a walk of a pattern from the wire is bounded.
    pub fn at_most(mut self, steps: u64) -> Self {
        self.steps_left = steps;
        self
    }

    /// Whether the walk ended before the window did, because of [`Deal::at_most`].
    pub fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// The next run up to the end of its record, or of what the placement answered.
    fn next_piece(&mut self) -> Option<Dealt> {
        let region = self.walk.peek()?;
        let Some(steps_left) = self.steps_left.checked_sub(1) else {
            self.gave_up = true;
            return None;
        };
        self.steps_left = steps_left;
        let logical = region.offset as u64;
        let found = self.locate(logical);
        let len = found.run().min(region.len);
        let packed = self.window_len - self.walk.left();
        self.walk.pass(len);
        Some(match found {
            Located::Piece(piece) => Dealt { object: Some(piece.object), place: piece.physical, packed, len },
            Located::Hole { .. } => Dealt { object: None, place: logical, packed, len },
        })
    }

    /// The placement's answer, which is asked for only where the last answer does not hold: many small
    /// records in one extent of an index cost one look into it.
    fn locate(&mut self, logical: u64) -> Located {
        if let Some((asked, found)) = self.known
            && let Some(further) = logical.checked_sub(asked)
            && further < found.run()
        {
            return match found {
                Located::Piece(piece) => Located::Piece(crate::Piece {
                    physical: piece.physical.saturating_add(further),
                    run: piece.run - further,
                    ..piece
                }),
                Located::Hole { run } => Located::Hole { run: run - further },
            };
        }
        let found = self.placement.locate(logical);
        self.known = (found.run() > 1).then_some((logical, found));
        found
    }
}

impl Iterator for Deal<'_> {
    type Item = Dealt;

    fn next(&mut self) -> Option<Dealt> {
        let mut run = match self.pending.take() {
            Some(pending) => pending,
            None => self.next_piece()?,
        };
        while let Some(piece) = self.next_piece() {
            if !run.goes_on_in(&piece) {
                self.pending = Some(piece);
                break;
            }
            run.len += piece.len;
        }
        Some(run)
    }
}

impl std::iter::FusedIterator for Deal<'_> {}
