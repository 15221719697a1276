//! The shapes of transfers: what Galley's arguments mean, as a pattern of the fork and one of memory.
//!
//! ```text
//!   plain    offset, size                                    nested    …, list of (f_stride, m_stride, quantity),
//!   block    block                                                     innermost first
//!   strided  offset, size, f_stride, m_stride, quantity      batched   vector of trees, root outermost
//!                                                            listio    list of (file, memory, size)
//! ```
//! Strides are signed. A memory stride equal to the record's size gathers into packed memory; a file stride
//! equal to it scatters from a contiguous part of the fork.

use crate::{BLOCK_BYTES, Errno, Result};
use shoal_pattern::{Branch, Level, Limb, Pattern, PatternError, Region};

/// A level of a nested request (`struct gfs_stride`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stride {
    /// Bytes of the fork from one repetition to the next.
    pub f_off: i64,
    /// Bytes of memory from one repetition to the next.
    pub m_off: i64,
    /// Repetitions.
    pub quant: u64,
}

/// A node of a batched request (`struct gfs_batch`): bytes or a vector of nodes, repeated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Place in the fork.
    pub f_off: i64,
    /// Place in memory.
    pub m_off: i64,
    /// `f_off` counts from the fork's start, and not from the place that the vector around hands down.
    pub f_absolute: bool,
    /// The same of `m_off`.
    pub m_absolute: bool,
    /// Repetitions.
    pub quant: u64,
    /// Bytes of the fork from one repetition to the next.
    pub f_stride: i64,
    /// Bytes of memory from one repetition to the next.
    pub m_stride: i64,
    /// The repeated part.
    pub body: BatchBody,
}

/// The repeated part of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BatchBody {
    /// So many bytes.
    Size(u64),
    /// A vector of nodes.
    SubVector(Vec<Batch>),
}

/// An entry of a list request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListEntry {
    /// Place in the fork.
    pub file_offset: u64,
    /// Place in memory.
    pub memory_offset: i64,
    /// Bytes.
    pub size: u64,
}

/// A transfer's pattern of the fork, and that of memory: of equal lengths.
pub struct Shape {
    pub(crate) file: Pattern,
    pub(crate) memory: Pattern,
}

/// Depth of a tree, at most: one more is refused before it is walked.
const DEPTH_MAX: usize = 64;

fn refused(_: PatternError) -> Errno {
    Errno::Invalid
}

fn offset_of(offset: u64) -> Result<i64> {
    i64::try_from(offset).map_err(|_| Errno::Invalid)
}

/// `size` bytes at `offset`.
///
/// # Errors
/// `Invalid`: offsets that overflow, lengths that do not agree.
pub fn plain(offset: u64, size: u64) -> Result<Shape> {
    let file = Pattern::contiguous(offset_of(offset)?, size).map_err(refused)?;
    let memory = Pattern::contiguous(0, size).map_err(refused)?;
    Ok(Shape { file, memory })
}

/// One whole block.
///
/// # Errors
/// `Invalid`: offsets that overflow, lengths that do not agree.
pub fn block(block: u64) -> Result<Shape> {
    plain(block.checked_mul(BLOCK_BYTES).ok_or(Errno::Invalid)?, BLOCK_BYTES)
}

/// `quant` records of `size` bytes.
///
/// # Errors
/// `Invalid`: offsets that overflow, lengths that do not agree.
pub fn strided(offset: u64, size: u64, f_stride: i64, m_stride: i64, quant: u64) -> Result<Shape> {
    let file = Pattern::strided(offset_of(offset)?, size, f_stride, quant).map_err(refused)?;
    let memory = Pattern::strided(0, size, m_stride, quant).map_err(refused)?;
    Ok(Shape { file, memory })
}

/// A record repeated by each level, innermost first.
///
/// # Errors
/// `Invalid`: offsets that overflow, lengths that do not agree.
pub fn nested(offset: u64, size: u64, list: &[Stride]) -> Result<Shape> {
    let levels = |stride: fn(&Stride) -> i64| -> Vec<Level> {
        list.iter().map(|level| Level { stride: stride(level), quantity: level.quant }).collect()
    };
    let file = Pattern::nested(offset_of(offset)?, size, levels(|level| level.f_off)).map_err(refused)?;
    let memory = Pattern::nested(0, size, levels(|level| level.m_off)).map_err(refused)?;
    Ok(Shape { file, memory })
}

/// A vector of trees, the roots outermost.
///
/// # Errors
/// `Invalid`: offsets that overflow, lengths that do not agree.
pub fn batched(vector: &[Batch]) -> Result<Shape> {
    let (file, memory) = (branches(vector, Side::File, 0)?, branches(vector, Side::Memory, 0)?);
    let file = Pattern::batched(&file).map_err(refused)?;
    let memory = Pattern::batched(&memory).map_err(refused)?;
    Ok(Shape { file, memory })
}

/// Entries in their order.
///
/// # Errors
/// `Invalid`: offsets that overflow, lengths that do not agree.
pub fn listio(list: &[ListEntry]) -> Result<Shape> {
    let file: Result<Vec<Region>> = list
        .iter()
        .map(|entry| Ok(Region { offset: offset_of(entry.file_offset)?, len: entry.size }))
        .collect();
    let memory = list.iter().map(|entry| Region { offset: entry.memory_offset, len: entry.size }).collect();
    let file = Pattern::list(file?).map_err(refused)?;
    let memory = Pattern::list(memory).map_err(refused)?;
    Ok(Shape { file, memory })
}

#[derive(Clone, Copy)]
enum Side {
    File,
    Memory,
}

fn branches(vector: &[Batch], side: Side, depth: usize) -> Result<Vec<Branch>> {
    if depth > DEPTH_MAX {
        return Err(Errno::Invalid);
    }
    vector.iter().map(|batch| branch(batch, side, depth)).collect()
}

fn branch(batch: &Batch, side: Side, depth: usize) -> Result<Branch> {
    let (offset, is_absolute, stride) = match side {
        Side::File => (batch.f_off, batch.f_absolute, batch.f_stride),
        Side::Memory => (batch.m_off, batch.m_absolute, batch.m_stride),
    };
    let limb = match &batch.body {
        BatchBody::Size(size) => Limb::Bytes(*size),
        BatchBody::SubVector(vector) => Limb::Vector(branches(vector, side, depth + 1)?),
    };
    Ok(Branch { offset, is_absolute, stride, quantity: batch.quant, limb })
}
