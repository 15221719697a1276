//! Arrays as patterns: the parts of an array that one process has.
//!
//! An array lies in the file row by row, its last axis without gaps (for Fortran give the axes in reverse). A
//! process has a share of each axis; its part of the array is the product of the shares, in the order of the
//! file.
//!
//! - [`hpf`]: High Performance Fortran's `BLOCK`, `CYCLIC(k)` and `*` on each axis (HPF 1.1, section 3.3; the
//!   same as MPI's `MPI_Type_create_darray`);
//! - [`subarray`]: a block of an array (`MPI_Type_create_subarray`);
//! - [`vesta`]: Vesta's rectangular views (Corbett and Feitelson, "The Vesta Parallel File System", TOCS
//!   14(3), 1996).
//!
//! ```text
//!   CYCLIC(2), extent 11, 3 processes      0 0 1 1 2 2 0 0 1 1 2       process 2 has 4, 5 and 10
//!                                          └ whole blocks ──┘ └┘ └ a part of a block
//! ```
//!
//! A share consists of whole blocks at equal distances, and at most a part of one more block. These are two
//! knots (nodes) of a [tree](crate::batched). So a part of *n* axes has at most 2^n leaves. If every axis
//! divides evenly, the part is a [nest](crate::nest): one record, repeated by levels of strides.

use crate::branch::Branch;
use crate::limits::NESTING_DEPTH_MAX;
use crate::pattern::{Pattern, PatternError};

/// How the elements of an axis are dealt to its processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dealing {
    /// `*`: every process has them all.
    Whole,
    /// `BLOCK`: a block of `ceil(extent / processes)` elements each; the last ones may have less or none.
    Block,
    /// `CYCLIC(k)`: blocks of `k` elements, dealt round robin.
    Cyclic(u64),
}

/// One axis of an array that is dealt to a grid of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DealtAxis {
    /// Elements along the axis.
    pub extent: u64,
    /// How they are dealt.
    pub dealing: Dealing,
    /// Processes along the axis.
    pub processes: u64,
    /// This process's place among them, from 0.
    pub process: u64,
}

/// One axis of an array, and the part of it in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockAxis {
    /// Elements along the axis.
    pub extent: u64,
    /// The first element of the block.
    pub start: u64,
    /// How many it has.
    pub count: u64,
}

/// A rectangular view of a Vesta file: rows of `record_bytes` in each of `cells` cells, which lie side by
/// side.
///
/// Blocks of `rows_block` rows by `cells_block` cells are dealt round robin both ways, to `rows_parts` by
/// `cells_parts` subfiles (Vesta's Vbs, Hbs, Vn, Hn).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VestaView {
    /// Bytes of a basic striping unit.
    pub record_bytes: u64,
    /// Cells of the file: its width in records.
    pub cells: u64,
    /// Records of each cell.
    pub rows: u64,
    /// Rows of a block (Vbs).
    pub rows_block: u64,
    /// Subfiles from top to bottom (Vn).
    pub rows_parts: u64,
    /// Cells of a block (Hbs).
    pub cells_block: u64,
    /// Subfiles from left to right (Hn).
    pub cells_parts: u64,
}

/// Why an array's part is no pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    /// More axes than [`NESTING_DEPTH_MAX`], or none.
    #[error("axes: {axes}, where 1 to {NESTING_DEPTH_MAX} are possible")]
    Axes {
        /// How many were given.
        axes: usize,
    },
    /// An argument is 0.
    #[error("{argument} of axis {axis} is 0")]
    Zero {
        /// The argument's name.
        argument: &'static str,
        /// The axis, from 0; for a Vesta view the rows are axis 0 and the cells axis 1.
        axis: usize,
    },
    /// An element has no bytes.
    #[error("{argument} is 0: an element has at least one byte")]
    NoBytes {
        /// The argument's name.
        argument: &'static str,
    },
    /// The process (or subfile) is not among those of the axis.
    #[error("{argument} of axis {axis} is {value}, and there are {limit}")]
    NoSuch {
        /// The argument's name.
        argument: &'static str,
        /// The axis, from 0.
        axis: usize,
        /// Its value.
        value: u64,
        /// How many there are.
        limit: u64,
    },
    /// The block ends outside the array.
    #[error("start and count of axis {axis} are {start} and {count}, and its extent is {extent}")]
    OutsideArray {
        /// The axis, from 0.
        axis: usize,
        /// The block's first element.
        start: u64,
        /// Its elements.
        count: u64,
        /// The axis's elements.
        extent: u64,
    },
    /// The array up to this axis has more bytes than a file can have.
    #[error("extent: the array has more bytes than a file can have, from axis {axis} on")]
    TooLarge {
        /// The axis, from 0.
        axis: usize,
    },
    /// The part is too deep or too large for a pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

/// A process's share of an axis: blocks at one distance, of elements at one distance.
#[derive(Clone, Copy)]
struct Stretch {
    start: u64,
    /// Elements of a block.
    count: u64,
    blocks: u64,
    /// Elements from the start of a block to the next.
    distance: u64,
}

/// The elements of every axis that `axes` deal to one process, each of `element_bytes`; the first axis is the
/// slowest.
///
/// # Errors
/// [`ArrayError`] names the argument.
pub fn hpf(element_bytes: u64, axes: &[DealtAxis]) -> Result<Pattern, ArrayError> {
    let extents: Vec<u64> = axes.iter().map(|axis| axis.extent).collect();
    let strides = strides("element_bytes", element_bytes, &extents)?;
    let mut shares = Vec::with_capacity(axes.len());
    for (place, axis) in axes.iter().enumerate() {
        shares.push(dealt(place, axis)?);
    }
    Ok(Pattern::batched(&product(&shares, &strides, element_bytes))?)
}

/// A block of an array of elements of `element_bytes`; the first axis is the slowest.
///
/// # Errors
/// [`ArrayError`] names the argument.
pub fn subarray(element_bytes: u64, axes: &[BlockAxis]) -> Result<Pattern, ArrayError> {
    let extents: Vec<u64> = axes.iter().map(|axis| axis.extent).collect();
    let strides = strides("element_bytes", element_bytes, &extents)?;
    let mut shares = Vec::with_capacity(axes.len());
    for (axis, &BlockAxis { extent, start, count }) in axes.iter().enumerate() {
        if start.checked_add(count).is_none_or(|end| end > extent) {
            return Err(ArrayError::OutsideArray { axis, start, count, extent });
        }
        shares.push(vec![Stretch { start, count, blocks: 1, distance: 0 }]);
    }
    Ok(Pattern::batched(&product(&shares, &strides, element_bytes))?)
}

/// The bytes of the subfile in row `down` and column `across` of a Vesta view, in the subfile's order: block
/// after block, left to right and then down; in a block's row of cells each cell from top to bottom.
///
/// # Errors
/// [`ArrayError`] names the argument; the rows are axis 0, the cells axis 1.
pub fn vesta(view: &VestaView, down: u64, across: u64) -> Result<Pattern, ArrayError> {
    let strides = strides("record_bytes", view.record_bytes, &[view.rows, view.cells])?;
    for (argument, axis, value) in [
        ("rows_block", 0, view.rows_block),
        ("rows_parts", 0, view.rows_parts),
        ("cells_block", 1, view.cells_block),
        ("cells_parts", 1, view.cells_parts),
    ] {
        if value == 0 {
            return Err(ArrayError::Zero { argument, axis });
        }
    }
    for (argument, axis, value, limit) in
        [("down", 0, down, view.rows_parts), ("across", 1, across, view.cells_parts)]
    {
        if value >= limit {
            return Err(ArrayError::NoSuch { argument, axis, value, limit });
        }
    }
    let rows = cyclic(view.rows, view.rows_block, view.rows_parts, down);
    let cells = cyclic(view.cells, view.cells_block, view.cells_parts, across);
    let bytes = |elements: u64, axis: usize| elements.saturating_mul(strides[axis]) as i64;
    let mut vector = Vec::new();
    for block in &rows {
        let down_cell = Branch::bytes(0, view.record_bytes).repeated(bytes(1, 0), block.count);
        let across_cells = cells.iter().map(|part| {
            let cells = Branch::vector(0, vec![down_cell.clone()]).repeated(bytes(1, 1), part.count);
            Branch::vector(bytes(part.start, 1), vec![cells]).repeated(bytes(part.distance, 1), part.blocks)
        });
        vector.push(
            Branch::vector(bytes(block.start, 0), across_cells.collect())
                .repeated(bytes(block.distance, 0), block.blocks),
        );
    }
    Ok(Pattern::batched(&vector)?)
}

/// Bytes from one element of each axis to the next; all of the array is in a file's range.
fn strides(argument: &'static str, element_bytes: u64, extents: &[u64]) -> Result<Vec<u64>, ArrayError> {
    if extents.is_empty() || extents.len() > NESTING_DEPTH_MAX {
        return Err(ArrayError::Axes { axes: extents.len() });
    }
    if element_bytes == 0 {
        return Err(ArrayError::NoBytes { argument });
    }
    let mut strides = vec![0; extents.len()];
    let mut bytes = element_bytes;
    for axis in (0..extents.len()).rev() {
        strides[axis] = bytes;
        let all = bytes.checked_mul(extents[axis].max(1)).filter(|&bytes| bytes <= i64::MAX as u64);
        bytes = all.ok_or(ArrayError::TooLarge { axis })?;
    }
    Ok(strides)
}

fn dealt(place: usize, axis: &DealtAxis) -> Result<Vec<Stretch>, ArrayError> {
    let &DealtAxis { extent, dealing, processes, process } = axis;
    if processes == 0 {
        return Err(ArrayError::Zero { argument: "processes", axis: place });
    }
    if process >= processes {
        let (value, limit) = (process, processes);
        return Err(ArrayError::NoSuch { argument: "process", axis: place, value, limit });
    }
    Ok(match dealing {
        Dealing::Whole => vec![Stretch { start: 0, count: extent, blocks: 1, distance: 0 }],
        Dealing::Block => cyclic(extent, extent.div_ceil(processes).max(1), processes, process),
        Dealing::Cyclic(0) => return Err(ArrayError::Zero { argument: "k of CYCLIC(k)", axis: place }),
        Dealing::Cyclic(block) => cyclic(extent, block, processes, process),
    })
}

/// Blocks of `block` elements, dealt round robin: those of `part`, the whole ones and then a part of one.
fn cyclic(extent: u64, block: u64, parts: u64, part: u64) -> Vec<Stretch> {
    let (whole, rest) = (extent / block, extent % block);
    // Whole blocks of this part: part, part + parts, … below `whole`.
    let blocks = whole.saturating_sub(part).div_ceil(parts);
    let mut stretches = Vec::new();
    if blocks > 0 {
        // A distance beyond the array is never taken.
        let distance = if blocks > 1 { block * parts } else { 0 };
        stretches.push(Stretch { start: part * block, count: block, blocks, distance });
    }
    if rest > 0 && whole % parts == part {
        stretches.push(Stretch { start: whole * block, count: rest, blocks: 1, distance: 0 });
    }
    stretches
}

/// The product of the shares, the first axis outermost.
fn product(shares: &[Vec<Stretch>], strides: &[u64], element_bytes: u64) -> Vec<Branch> {
    let Some((share, inner)) = shares.split_first() else {
        return vec![Branch::bytes(0, element_bytes)];
    };
    let (stride, strides) = (strides[0], &strides[1..]);
    // All offsets within the array are within the range of offsets.
    let bytes = |elements: u64| elements.saturating_mul(stride) as i64;
    let part = |stretch: &Stretch| {
        let block = if inner.is_empty() {
            Branch::bytes(0, stretch.count * element_bytes)
        } else {
            Branch::vector(0, product(inner, strides, element_bytes)).repeated(bytes(1), stretch.count)
        };
        Branch::vector(bytes(stretch.start), vec![block]).repeated(bytes(stretch.distance), stretch.blocks)
    };
    share.iter().map(part).collect()
}
