//! The lazy walk over a pattern's regions, from any packed position, in O(depth) memory.
//!
//! [`Regions`], deals, pairings and views all use this walk. A view skips whole rows of records by
//! arithmetic, through steps that are private to the crate. It walks every kind of body as a sequence of
//! shapes:
//!
//! ```text
//!   nest      one shape                          Cursor ── record ── record ── …
//!   runs      a shape for each run               Cursor, then the rest of the runs
//!   batched   a shape for each leaf and turn     Cursor, then the leaves that a Climb reaches
//! ```

use crate::Region;
use crate::climb::Climb;
use crate::nest::{Cursor, Shape};
use crate::pattern::{Body, Pattern};
use crate::runs::Run;

/// The regions of a packed window of a pattern, in order. Made by [`Pattern::regions`] and
/// [`Pattern::iter_window`].
#[derive(Clone, Debug)]
pub struct Regions<'a> {
    walk: Walk<'a>,
    joined: bool,
}

impl<'a> Regions<'a> {
    pub(crate) fn new(pattern: &'a Pattern, from: u64, len: u64) -> Self {
        Self { walk: Walk::new(pattern, from, len), joined: pattern.joined() }
    }

    /// Packed bytes not yet yielded.
    pub fn left(&self) -> u64 {
        self.walk.left()
    }
}

impl Iterator for Regions<'_> {
    type Item = Region;

    fn next(&mut self) -> Option<Region> {
        let mut region = self.walk.peek()?;
        self.walk.pass(region.len);
        while self.joined {
            match self.walk.peek() {
                Some(next) if region.end() == next.offset => {
                    region.len += next.len;
                    self.walk.pass(next.len);
                }
                _ => break,
            }
        }
        Some(region)
    }
}

impl std::iter::FusedIterator for Regions<'_> {}

/// A place in a pattern's packed window. Record boundaries show, also in a coalesced pattern.
#[derive(Clone, Debug)]
pub(crate) struct Walk<'a> {
    /// The current shape; `None` at the end.
    cursor: Option<Cursor<'a>>,
    /// The shapes after it.
    rest: Rest<'a>,
    /// Packed bytes of the window not yet passed.
    left: u64,
}

/// The shapes that a walk has not come to.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a walk allocates nothing")]
enum Rest<'a> {
    Runs(&'a [Run]),
    Climb(Climb<'a>),
}

impl<'a> Rest<'a> {
    const NONE: Self = Self::Runs(&[]);

    fn next(&mut self) -> Option<Shape<'a>> {
        match self {
            Self::Runs(runs) => {
                let (run, rest) = runs.split_first()?;
                *runs = rest;
                Some(run.shape())
            }
            Self::Climb(climb) => climb.next(),
        }
    }
}

impl<'a> Walk<'a> {
    /// At packed byte `from` of `pattern`, for `len` bytes; all of them are in it.
    pub fn new(pattern: &'a Pattern, from: u64, len: u64) -> Self {
        if len == 0 {
            return Self { cursor: None, rest: Rest::NONE, left: 0 };
        }
        let from = pattern.from() + from;
        let (shape, skipped, rest) = match pattern.body() {
            Body::Nest(nest) => (nest.shape(), from, Rest::NONE),
            Body::Runs(runs) => {
                let (runs, skipped) = runs.touched(from, len);
                (runs[0].shape(), skipped, Rest::Runs(&runs[1..]))
            }
            Body::Batched(batched) => {
                let (climb, shape, skipped) = Climb::at(batched, from);
                (shape, skipped, Rest::Climb(climb))
            }
        };
        Self { cursor: Some(Cursor::at(shape, skipped)), rest, left: len }
    }

    /// Packed bytes not yet passed.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The rest of the current record, inside the window.
    pub fn peek(&self) -> Option<Region> {
        let cursor = self.cursor.as_ref()?;
        Some(Region::new(cursor.offset(), cursor.left_in_record().min(self.left)))
    }

    /// Advances by `bytes`, at most the length that [`Walk::peek`] returned.
    pub fn pass(&mut self, bytes: u64) {
        self.left -= bytes;
        let Some(cursor) = self.cursor.as_mut() else { return };
        if self.left == 0 {
            self.cursor = None;
        } else if bytes < cursor.left_in_record() {
            cursor.skip(bytes);
        } else if !cursor.next_record() {
            self.next_shape();
        }
    }

    fn next_shape(&mut self) {
        self.cursor = self.rest.next().map(|shape| Cursor::at(shape, 0));
    }
}

/// The records of a row that follow the current one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Bytes of each.
    pub record: u64,
    /// From one to the next.
    pub stride: i64,
    /// Offset of the first of them. Meaningless if none follows.
    pub next_offset: i64,
}

/// The records of a row from the current one on, of which nothing was passed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowRecords {
    /// Offset of the current one.
    pub offset: i64,
    /// Bytes of each.
    pub record: u64,
    /// From one to the next.
    pub stride: i64,
    /// How many, the current one among them; those after the window's end too.
    pub records: u64,
}

impl Walk<'_> {
    /// The records of the current row; `None`: a part of the current one was passed.
    pub fn row_records(&self) -> Option<RowRecords> {
        let cursor = self.cursor.as_ref().filter(|cursor| cursor.left_in_record() == cursor.record())?;
        let (stride, following) = cursor.row();
        let (offset, record) = (cursor.record_offset(), cursor.record());
        Some(RowRecords { offset, record, stride, records: following + 1 })
    }

    /// The current row.
    pub fn row(&self) -> Option<Row> {
        let cursor = self.cursor.as_ref()?;
        let (stride, _) = cursor.row();
        Some(Row {
            record: cursor.record(),
            stride,
            next_offset: cursor.record_offset().wrapping_add(stride),
        })
    }

    /// Passes the rest of the current record and `records` more of its row, or all of the row if they are
    /// fewer.
    pub fn pass_records(&mut self, records: u64) {
        let Some(cursor) = self.cursor.as_mut() else { return };
        let (_, following) = cursor.row();
        let passed = records.min(following);
        // If it saturates, it is past the window's end all the same.
        let bytes = cursor.left_in_record().saturating_add(cursor.record().saturating_mul(passed));
        if bytes >= self.left {
            self.left = 0;
            self.cursor = None;
            return;
        }
        self.left -= bytes;
        cursor.skip_in_row(passed);
        if !cursor.next_record() {
            self.next_shape();
        }
    }
}
