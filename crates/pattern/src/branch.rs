//! A batched tree: the tree of Galley's batched request as a caller gives it, and its normal form.
//!
//! The form is Galley's (Nieuwejaar and Kotz, IOPADS'96, section 3.3, and the manual page of `gfs_batch`).
//! A batched request is a vector of nodes. Each node is a number of bytes or a further vector, and is
//! repeated at a stride. One repetition is a *turn*. The **root is the outermost loop**; the levels of a
//! nested request, in contrast, begin with the innermost loop. An offset is either relative to the start of
//! the present turn of the enclosing vector, or absolute: the turns of enclosing vectors do not move an
//! absolute offset.
//!
//! ```text
//!   vector ─┬─ header: 4 bytes at 0
//!           └─ rows: a vector at 100, three times every 50 ─┬─ 2 bytes at 0
//!                                                           └─ 2 bytes at 10, four times every 8
//! ```
//!
//! The normal form is a tree of [`Knot`]s, and holds only the values that a walk needs. A leaf has the
//! offset at which it lies in the first turn of all enclosing vectors. The turns do not move an *anchored*
//! knot, which comes from an absolute offset. A branch without a byte is dropped. A vector that is not
//! repeated is merged into the enclosing vector. A repeated vector of one plain region becomes a strided
//! run. Trees that differ only in these points have the same normal form. Only the normal form is encoded.

use crate::nest::Level;
use crate::pattern::PatternError;
use crate::runs::Run;
use crate::{Region, limits};

/// One node of a batched tree: bytes or a vector of nodes, repeated `quantity` times. See
/// [`Pattern::batched`](crate::Pattern::batched).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Where it begins, in bytes: from the start of the current turn of the vector around it, or from 0.
    pub offset: i64,
    /// Whether `offset` counts from 0, wherever the turns of the vectors around it are.
    pub is_absolute: bool,
    /// Bytes from the start of one repetition to the start of the next. May be negative or 0.
    pub stride: i64,
    /// How many repetitions. 0: the node has no bytes.
    pub quantity: u64,
    /// The repeated part.
    pub limb: Limb,
}

/// The part that a node of a batched tree repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limb {
    /// So many bytes.
    Bytes(u64),
    /// These nodes, in order (Galley's sub-vector).
    Vector(Vec<Branch>),
}

impl Branch {
    /// `len` bytes at `offset`, once.
    pub const fn bytes(offset: i64, len: u64) -> Self {
        Self { offset, is_absolute: false, stride: 0, quantity: 1, limb: Limb::Bytes(len) }
    }

    /// The nodes of `vector`, placed at `offset`, once.
    pub const fn vector(offset: i64, vector: Vec<Self>) -> Self {
        Self { offset, is_absolute: false, stride: 0, quantity: 1, limb: Limb::Vector(vector) }
    }

    /// The same node, `quantity` times, each `stride` bytes after the one before.
    pub fn repeated(self, stride: i64, quantity: u64) -> Self {
        Self { stride, quantity, ..self }
    }

    /// The same node, with its offset counted from 0.
    pub fn absolute(self) -> Self {
        Self { is_absolute: true, ..self }
    }
}

/// A node in normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Knot {
    /// A leaf: its records, where they are in the first turn of all around. A vector: its level alone counts.
    pub run: Run,
    /// Whether the turns around it do not move it. False where they move nothing.
    pub is_anchored: bool,
    /// The vector; empty for a leaf.
    pub vector: Vec<Knot>,
}

impl Knot {
    pub fn leaf(run: Run, is_anchored: bool) -> Self {
        Self { run, is_anchored, vector: Vec::new() }
    }

    pub fn is_leaf(&self) -> bool {
        self.vector.is_empty()
    }

    /// One region, once.
    pub fn is_plain(&self) -> bool {
        self.is_leaf() && self.run.is_plain()
    }

    /// This knot and all in it.
    pub fn count(&self) -> usize {
        1 + self.vector.iter().map(Self::count).sum::<usize>()
    }

    /// Levels on the longest way to a leaf.
    pub fn depth(&self) -> usize {
        let own = usize::from(!self.run.is_plain());
        own + self.vector.iter().map(Self::depth).max().unwrap_or(0)
    }
}

/// Where a vector is put.
#[derive(Clone, Copy)]
struct Around {
    /// The place handed down.
    place: i64,
    /// The vector lies in an absolute node that is dissolved.
    is_anchored: bool,
    /// Nothing around the vector moves it.
    is_still: bool,
    depth: usize,
}

/// The normal form of a tree.
///
/// # Errors
/// [`PatternError::OutOfRange`] where a place leaves the range of offsets, [`PatternError::TooDeep`] and
/// [`PatternError::TooManyRegions`] above the limits.
pub(crate) fn normal(vector: &[Branch]) -> Result<Vec<Knot>, PatternError> {
    let mut nodes = 0;
    let around = Around { place: 0, is_anchored: false, is_still: true, depth: 0 };
    let knots = normal_in(vector, around, &mut nodes)?;
    let depth = knots.iter().map(Knot::depth).max().unwrap_or(0);
    if depth > limits::NESTING_DEPTH_MAX {
        return Err(PatternError::TooDeep { levels: depth });
    }
    Ok(knots)
}

fn normal_in(vector: &[Branch], around: Around, nodes: &mut usize) -> Result<Vec<Knot>, PatternError> {
    if around.depth > limits::BATCH_DEPTH_MAX {
        return Err(PatternError::TooDeep { levels: around.depth });
    }
    *nodes = nodes.saturating_add(vector.len());
    if *nodes > limits::LIST_REGIONS_MAX {
        return Err(PatternError::TooManyRegions { regions: *nodes, limit: limits::LIST_REGIONS_MAX });
    }
    let mut knots = Vec::with_capacity(vector.len());
    for branch in vector.iter().filter(|branch| branch.quantity > 0) {
        let from = if branch.is_absolute { 0 } else { around.place };
        let is_anchored = !around.is_still && (branch.is_absolute || around.is_anchored);
        let once = branch.quantity == 1;
        let level = Level { stride: if once { 0 } else { branch.stride }, quantity: branch.quantity };
        match &branch.limb {
            Limb::Bytes(0) => {}
            Limb::Bytes(len) => {
                let offset = from.checked_add(branch.offset).ok_or(PatternError::OutOfRange)?;
                knots.push(Knot::leaf(Run { offset, record: *len, level }, is_anchored));
            }
            Limb::Vector(vector) => {
                let place = from.checked_add(branch.offset).ok_or(PatternError::OutOfRange)?;
                let around = Around { place, depth: around.depth + 1, ..around };
                if once {
                    knots.extend(normal_in(vector, Around { is_anchored, ..around }, nodes)?);
                } else {
                    let is_still = level.stride == 0 && (around.is_still || is_anchored);
                    let inside = Around { is_anchored: false, is_still, ..around };
                    let inside = normal_in(vector, inside, nodes)?;
                    knots.extend(repeated(level, is_anchored, around.is_still, inside));
                }
            }
        }
    }
    Ok(knots)
}

/// A vector of normal knots, repeated more than once.
fn repeated(mut level: Level, mut is_anchored: bool, is_still: bool, mut vector: Vec<Knot>) -> Option<Knot> {
    if vector.is_empty() {
        return None;
    }
    if vector.iter().all(|knot| knot.is_anchored) {
        // Neither its own turns nor those around move anything in it.
        level.stride = 0;
        is_anchored = !is_still;
        still(&mut vector);
    }
    match vector.as_mut_slice() {
        [only] if only.is_plain() => Some(Knot::leaf(Run { level, ..only.run }, is_anchored)),
        _ => Some(Knot { run: Run { offset: 0, record: 0, level }, is_anchored, vector }),
    }
}

/// Marks the knots of a vector that nothing moves as not anchored, and so on down.
pub(crate) fn still(vector: &mut [Knot]) {
    for knot in vector {
        knot.is_anchored = false;
        if knot.run.level.stride == 0 {
            still(&mut knot.vector);
        }
    }
}

/// Moves every leaf.
pub(crate) fn shift(vector: &mut [Knot], delta: i64) -> Result<(), PatternError> {
    for knot in vector {
        if knot.is_leaf() {
            knot.run.offset = knot.run.offset.checked_add(delta).ok_or(PatternError::OutOfRange)?;
        }
        shift(&mut knot.vector, delta)?;
    }
    Ok(())
}

/// Regions that touch made one where the form can say it; packed positions do not change.
///
/// The rest of touching regions lies at the borders of knots that are not plain, so that a walk that
/// joins neighbours joins at most as many regions as the tree has knots.
pub(crate) fn coalesced(vector: &[Knot]) -> Vec<Knot> {
    let mut joined: Vec<Knot> = Vec::with_capacity(vector.len());
    for knot in vector {
        let knot = coalesced_knot(knot);
        match joined.last_mut() {
            Some(last)
                if last.is_plain()
                    && knot.is_plain()
                    && last.is_anchored == knot.is_anchored
                    && last.run.touches(&knot.run) =>
            {
                last.run.record += knot.run.record;
            }
            _ => joined.push(knot),
        }
    }
    joined
}

fn coalesced_knot(knot: &Knot) -> Knot {
    if knot.is_leaf() {
        return Knot::leaf(knot.run.joined_records(), knot.is_anchored);
    }
    let vector = coalesced(&knot.vector);
    let level = knot.run.level;
    match vector.as_slice() {
        [only] if only.is_plain() && !only.is_anchored => {
            Knot::leaf(Run { level, ..only.run }.joined_records(), knot.is_anchored)
        }
        [only] if only.is_leaf() && !only.is_anchored && goes_on(&only.run.level, &level) => {
            let quantity = only.run.level.quantity * level.quantity;
            let level = Level { quantity, ..only.run.level };
            Knot::leaf(Run { level, ..only.run }, knot.is_anchored)
        }
        _ => Knot { vector, ..knot.clone() },
    }
}

/// Whether the outer level goes on where the inner one stops.
fn goes_on(inner: &Level, outer: &Level) -> bool {
    inner.stride.checked_mul(inner.quantity as i64) == Some(outer.stride)
}

/// The regions of a list as a vector.
impl From<Region> for Branch {
    fn from(region: Region) -> Self {
        Self::bytes(region.offset, region.len)
    }
}
