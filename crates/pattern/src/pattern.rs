//! The pattern: a finite ordered sequence of regions in closed form, and the operations that keep it
//! closed.
//!
//! A pattern is a **body** (a [nest], [runs], or a [batched](crate::batched) tree) and a **window**: a
//! range of the body's *packed* bytes, which are counted in the order of the pattern. With windows a slice
//! of a pattern is a pattern again: the bytes 5 .. 900 of a strided pattern are the same strided pattern
//! with a window, even if the window begins in the middle of a record. A slice of a slice is a smaller
//! window; outer levels and repetitions outside it are dropped, so a pattern cut to one record *is*
//! contiguous.
//!
//! ```text
//!   body      ####....####....####....####       strided(0, 4, 8, 4), 16 packed bytes
//!   window      ^^    ^^^^    ^                  slice(2, 7): window from 2, 7 bytes, three repetitions left
//! ```
//!
//! There are three kinds of bodies because their costs differ. A walk of a tree is as fast as a walk of a
//! nest (`examples/figures.rs`). But one region as a nest needs no allocation, and a run of a list takes 40
//! bytes, while a knot (node) of a tree takes 128.
//!
//! Invariants: a body is valid (see its module); the window lies inside the body and has the smallest form
//! (tests: `a_slice_takes_the_smallest_form`, `a_tree_takes_the_smallest_form`); an empty pattern is the one
//! empty nest (test: `nothing_is_one_pattern_however_it_is_said`). Two patterns are equal if their normal
//! forms are equal. Equal patterns have equal regions, but two patterns with equal regions may have different
//! forms: a list of all elements of a stride is not equal to the stride, until the list is compressed.

use crate::batched::{Batched, Narrowed};
use crate::branch::{self, Branch, Knot};
use crate::nest::{self, Level, Nest, join};
use crate::regions::Regions;
use crate::runs::{self, Run, Runs};
use crate::{Region, Window, lattice, limits};

/// Why a pattern cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// A region begins or ends outside the range of offsets.
    #[error("a region of the pattern lies outside the range of file offsets")]
    OutOfRange,
    /// More packed bytes than [`limits::PACKED_BYTES_MAX`].
    #[error("the pattern has more than {} bytes", limits::PACKED_BYTES_MAX)]
    TooLong,
    /// More levels than [`limits::NESTING_DEPTH_MAX`].
    #[error("the pattern has {levels} levels, above the limit of {}", limits::NESTING_DEPTH_MAX)]
    TooDeep {
        /// Levels with more than one repetition.
        levels: usize,
    },
    /// More regions in a list, or runs in a compressed one, than [`limits::LIST_REGIONS_MAX`]; more nodes in
    /// a batched tree than [`limits::REQUEST_REGIONS_MAX`].
    #[error("the pattern has {regions} regions or nodes, above the limit of {limit}")]
    TooManyRegions {
        /// Regions, runs or nodes that are not empty.
        regions: usize,
        /// The limit.
        limit: usize,
    },
}

/// The body of a pattern.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Nest(Nest),
    Runs(Runs),
    Batched(Batched),
}

impl Body {
    pub fn len(&self) -> u64 {
        match self {
            Self::Nest(nest) => nest.shape().len(),
            Self::Runs(runs) => runs.len(),
            Self::Batched(batched) => batched.len(),
        }
    }
}

/// A finite ordered sequence of regions in closed form. See the crate for its use, and this module for its
/// form.
///
/// Its bytes have *packed positions*: 0 is the first byte of the first region, and so on in order, gaps not
/// counted. Regions may overlap, touch, repeat, and run backwards.
#[derive(Clone, Debug)]
pub struct Pattern {
    body: Body,
    from: u64,
    len: u64,
    /// Regions that touch are one; set by `coalesce` where the body cannot express it. A joined body is
    /// coalesced as far as its form allows, so that the iterator joins at most two records of a nest, and
    /// at most as many of a list as it has runs.
    joined: bool,
}

impl Pattern {
    /// The pattern without regions.
    pub const EMPTY: Self = Self { body: Body::Nest(Nest::EMPTY), from: 0, len: 0, joined: false };

    /// `len` bytes from `offset`.
    pub fn contiguous(offset: i64, len: u64) -> Result<Self, PatternError> {
        Self::nested(offset, len, Vec::new())
    }

    /// `quantity` records of `rec_size` bytes, each `stride` bytes after the previous one (Galley's
    /// simple-strided request).
    pub fn strided(offset: i64, rec_size: u64, stride: i64, quantity: u64) -> Result<Self, PatternError> {
        Self::nested(offset, rec_size, vec![Level { stride, quantity }])
    }

    /// Records of `rec_size` bytes, repeated by each level in turn, **innermost first** (Galley's
    /// nested-strided request). Levels of quantity 1 count for nothing; one of quantity 0 makes the pattern
    /// empty.
    pub fn nested(offset: i64, rec_size: u64, levels: Vec<Level>) -> Result<Self, PatternError> {
        let (nest, len) = Nest::new(offset, rec_size, levels)?;
        Ok(Self { body: Body::Nest(nest), from: 0, len, joined: false })
    }

    /// Regions in any order (Galley's list request). Empty ones are dropped; at most
    /// [`limits::LIST_REGIONS_MAX`] may be left.
    pub fn list(regions: Vec<Region>) -> Result<Self, PatternError> {
        Self::of_runs(regions.into_iter().filter(|region| region.len > 0).map(Run::once).collect())
    }

    /// A tree of requests (Galley's batched request), **root outermost**: the nodes of `vector` in order,
    /// each of them bytes or a further vector, repeated at its stride. It takes the smallest form: a tree
    /// that is a nest becomes one, a vector of bytes alone a list.
    ///
    /// # Errors
    /// [`PatternError::TooDeep`] above [`limits::BATCH_DEPTH_MAX`] vectors inside each other or
    /// [`limits::NESTING_DEPTH_MAX`] levels, [`PatternError::TooManyRegions`] above
    /// [`limits::REQUEST_REGIONS_MAX`] nodes, where it is no list; else as of any pattern. The place of every
    /// node must be an offset.
    pub fn batched(vector: &[Branch]) -> Result<Self, PatternError> {
        Self::of_knots(&branch::normal(vector)?)
    }

    /// The pattern of a tree in normal form.
    pub(crate) fn of_knots(knots: &[Knot]) -> Result<Self, PatternError> {
        let Some(batched) = Batched::new(knots)? else { return Ok(Self::EMPTY) };
        let len = batched.len();
        Ok(Self { body: Body::Batched(batched), from: 0, len, joined: false }.narrow(0, len))
    }

    pub(crate) fn of_runs(runs: Vec<Run>) -> Result<Self, PatternError> {
        Runs::new(runs).map(Self::of_valid_runs)
    }

    pub(crate) fn of_valid_runs(runs: Runs) -> Self {
        let len = runs.len();
        Self { body: Body::Runs(runs), from: 0, len, joined: false }.narrow(0, len)
    }

    pub(crate) fn of_nest(nest: Nest) -> Self {
        let len = nest.shape().len();
        Self { body: Body::Nest(nest), from: 0, len, joined: false }
    }

    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    pub(crate) fn joined(&self) -> bool {
        self.joined
    }

    /// Start of the window in the body.
    pub(crate) fn from(&self) -> u64 {
        self.from
    }

    /// The window, if it is not the whole body.
    pub(crate) fn part_of_body(&self) -> Option<(u64, u64)> {
        (self.len < self.body.len()).then_some((self.from, self.len))
    }

    /// Packed bytes: the sum of all regions' lengths.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the pattern has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the pattern is one region (or none) in its form. A list of regions that happen to touch is
    /// not, until it is coalesced.
    pub fn is_contiguous(&self) -> bool {
        matches!(&self.body, Body::Nest(nest) if nest.levels.is_empty())
    }

    /// The one region of a contiguous pattern that is not empty.
    pub fn as_region(&self) -> Option<Region> {
        match &self.body {
            Body::Nest(nest) if nest.levels.is_empty() && self.len > 0 => {
                Some(Region::new(nest.offset, self.len))
            }
            _ => None,
        }
    }

    /// A window in parts, in packed order, that one request can carry each: the whole, but for a list of more
    /// than [`limits::REQUEST_REGIONS_MAX`] regions. None for an empty window.
    pub fn requests(&self, window: Window) -> impl Iterator<Item = Window> + '_ {
        let end = window.from.saturating_add(window.len).min(self.len);
        let part = move |from: u64| {
            let upto = match &self.body {
                Body::Runs(runs) => runs.end_of(self.from + from, limits::REQUEST_REGIONS_MAX) - self.from,
                Body::Nest(_) | Body::Batched(_) => end,
            };
            Window::new(from, upto.min(end) - from)
        };
        let first = (window.from < end).then(|| part(window.from));
        std::iter::successors(first, move |last| {
            let from = last.from + last.len;
            (from < end).then(|| part(from))
        })
    }

    /// How many regions [`Pattern::regions`] yields at most (exactly, unless coalesced); in O(runs), without
    /// expansion.
    pub fn regions_max(&self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let touched = |record: u64, from: u64, end: u64| (end - 1) / record - from / record + 1;
        match &self.body {
            Body::Nest(nest) => touched(nest.record, self.from, self.from + self.len),
            Body::Runs(runs) => {
                let (runs, mut from) = runs.touched(self.from, self.len);
                let mut left = self.len;
                let mut regions = 0;
                for run in runs {
                    let len = left.min(run.len() - from);
                    regions += touched(run.record, from, from + len);
                    left -= len;
                    from = 0;
                }
                regions
            }
            Body::Batched(_) => {
                let mut regions = 0;
                lattice::each(self, |lattice| regions += lattice.records());
                regions
            }
        }
    }

    /// The smallest offset and the largest end (exclusive); `None` for an empty pattern. In O(depth), or
    /// O(runs).
    pub fn bounds(&self) -> Option<(i64, i64)> {
        self.window_bounds(0, self.len)
    }

    /// The bounds of the packed bytes `from .. from + len`, as of [`Pattern::slice`], without building it.
    pub fn window_bounds(&self, from: u64, len: u64) -> Option<(i64, i64)> {
        let from = from.min(self.len);
        let len = len.min(self.len - from);
        if len == 0 {
            return None;
        }
        match &self.body {
            Body::Nest(nest) => Some(nest.shape().window_bounds(self.from + from, len)),
            Body::Runs(runs) => {
                let (runs, mut from) = runs.touched(self.from + from, len);
                let mut left = len;
                let mut bounds = None;
                for run in runs {
                    let part = left.min(run.len() - from);
                    bounds = join(bounds, run.shape().window_bounds(from, part));
                    left -= part;
                    from = 0;
                }
                bounds
            }
            Body::Batched(batched) => batched.window_bounds(self.from + from, len),
        }
    }

    /// The regions in order, lazily, in O(depth) memory.
    pub fn regions(&self) -> Regions<'_> {
        self.iter_window(0, self.len)
    }

    /// The regions of the packed bytes `from .. from + len`, without building the slice; bytes after the
    /// pattern's end are left out. The start is found by arithmetic, in O(depth) (O(log runs) in a list).
    pub fn iter_window(&self, from: u64, len: u64) -> Regions<'_> {
        let from = from.min(self.len);
        Regions::new(self, from, len.min(self.len - from))
    }

    /// The same pattern, `delta` bytes further on. Fails when any record it touches would leave the range of
    /// offsets.
    pub fn shift(&self, delta: i64) -> Result<Self, PatternError> {
        if self.is_empty() {
            return Ok(Self::EMPTY);
        }
        let moved = |offset: i64| offset.checked_add(delta).ok_or(PatternError::OutOfRange);
        let (whole, from) = match &self.body {
            Body::Nest(nest) => {
                (Self::nested(moved(nest.offset)?, nest.record, nest.levels.clone())?, self.from)
            }
            Body::Runs(runs) => {
                let (runs, from) = runs.touched(self.from, self.len);
                let runs: Result<Vec<_>, _> =
                    runs.iter().map(|run| Ok(Run { offset: moved(run.offset)?, ..*run })).collect();
                (Self::of_runs(runs?)?, from)
            }
            Body::Batched(batched) => {
                let mut knots = batched.knots();
                branch::shift(&mut knots, delta)?;
                (Self::of_knots(&knots)?, self.from)
            }
        };
        Ok(Self { joined: self.joined, ..whole }.narrow(from, self.len))
    }

    /// The packed bytes `from .. from + len` as a pattern; bytes after its end are left out. Closed, and in
    /// O(depth) memory: a stride stays a stride, a list is shared.
    pub fn slice(&self, from: u64, len: u64) -> Self {
        let from = from.min(self.len);
        self.clone().narrow(from, len.min(self.len - from))
    }

    /// Cuts to the packed bytes `from .. from + len` of the window, which are in it, and restores the normal
    /// form.
    pub(crate) fn narrow(self, from: u64, len: u64) -> Self {
        if len == 0 {
            return Self::EMPTY;
        }
        let from = self.from + from;
        let joined = self.joined;
        match self.body {
            Body::Nest(nest) => of_narrowed(nest::narrowed(nest.shape(), from, len), len, joined),
            Body::Runs(runs) => match runs.touched(from, len) {
                ([only], skipped) => of_narrowed(nest::narrowed(only.shape(), skipped, len), len, joined),
                (touched, _) => {
                    let joined = joined && runs::touch(touched);
                    Self { body: Body::Runs(runs), from, len, joined }
                }
            },
            Body::Batched(batched) => match batched.narrowed(from, len) {
                Narrowed::Nest(nest, from) => of_narrowed((nest, from), len, joined),
                Narrowed::Runs(runs, from) => of_checked_runs(runs, from, len, joined),
                // A part that was anchored inside the tree may touch one that was not: it is joined anew.
                Narrowed::Batched(batched, from) if joined && batched.has_idle_anchors() => {
                    Self { body: Body::Batched(batched), from, len, joined: false }.coalesce()
                }
                Narrowed::Batched(batched, from) => Self { body: Body::Batched(batched), from, len, joined },
            },
        }
    }

    /// The same bytes in the same order with touching regions joined: exactly the regions that joining
    /// neighbours of the expanded pattern gives. Packed positions do not change. Coalesce a pattern once,
    /// when it is made: its views are the same and cost less.
    pub fn coalesce(&self) -> Self {
        let whole = match &self.body {
            Body::Nest(nest) => Self::of_nest(coalesced(nest)),
            Body::Runs(runs) => Self::of_valid_runs(runs.coalesced()),
            Body::Batched(batched) => return self.coalesced_tree(batched),
        };
        Self { joined: true, ..whole }.narrow(self.from, self.len)
    }

    fn coalesced_tree(&self, batched: &Batched) -> Self {
        match Self::of_knots(&branch::coalesced(&batched.knots())) {
            // The whole was valid and has the same bytes.
            Err(_) => self.clone(),
            Ok(whole) if matches!(whole.body, Body::Batched(_)) => {
                Self { joined: true, ..whole }.narrow(self.from, self.len)
            }
            Ok(whole) => whole.narrow(self.from, self.len).coalesce(),
        }
    }
}

/// A pattern of runs of a valid body.
fn of_checked_runs(runs: Vec<Run>, from: u64, len: u64, joined: bool) -> Pattern {
    match Runs::new(runs) {
        Ok(runs) => Pattern { body: Body::Runs(runs), from, len, joined }.narrow(0, len),
        Err(_) => Pattern::EMPTY,
    }
}

/// A pattern from the result of [`nest::narrowed`].
fn of_narrowed((nest, from): (Nest, u64), len: u64, joined: bool) -> Pattern {
    let joined = joined && touches_where_it_turns(nest.record, &nest.levels);
    Pattern { body: Body::Nest(nest), from, len, joined }
}

/// Removes levels whose repetitions touch, and merges two levels if the outer continues where the inner
/// stops. Packed positions do not change. Records that touch only where a level turns over are left to the
/// iterator: joined, they have no closed form.
fn coalesced(nest: &Nest) -> Nest {
    let mut record = nest.record;
    let mut levels: Vec<Level> = Vec::with_capacity(nest.levels.len());
    for level in &nest.levels {
        match levels.last_mut() {
            None if is_stride(level.stride, record) => record *= level.quantity,
            Some(inner) if inner.stride.checked_mul(inner.quantity as i64) == Some(level.stride) => {
                inner.quantity *= level.quantity;
            }
            _ => levels.push(*level),
        }
    }
    Nest { offset: nest.offset, record, levels }
}

/// Whether `stride` is exactly `bytes`.
pub(crate) fn is_stride(stride: i64, bytes: u64) -> bool {
    i64::try_from(bytes) == Ok(stride)
}

/// Whether the last record of one turn of the inner levels ends where the first of the next turn begins.
fn touches_where_it_turns(record: u64, levels: &[Level]) -> bool {
    let mut reach = i128::from(record);
    levels.iter().any(|level| {
        let touches = i128::from(level.stride) == reach;
        reach = reach.saturating_add(i128::from(level.stride) * i128::from(level.quantity - 1));
        touches
    })
}

impl Default for Pattern {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        if self.len != other.len || self.joined != other.joined {
            return false;
        }
        match (&self.body, &other.body) {
            (Body::Nest(a), Body::Nest(b)) => a == b && self.from == other.from,
            (Body::Runs(a), Body::Runs(b)) => {
                a.touched(self.from, self.len) == b.touched(other.from, other.len)
            }
            (Body::Batched(a), Body::Batched(b)) => self.from == other.from && a.knots() == b.knots(),
            _ => false,
        }
    }
}

impl Eq for Pattern {}
