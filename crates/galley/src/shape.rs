//! The shapes of transfers: turns Galley's arguments into a pattern of the fork and a pattern of memory.
//!
//! ```text
//!   plain    offset, size                                nested   …, list of (f_stride, m_stride, quantity),
//!   block    block                                                innermost first
//!   strided  offset, size, f_stride, m_stride, quantity  batched  vector of trees, root outermost
//!                                                        listio   list of (file, memory, size)
//! ```
//! Strides are signed. If the memory stride is equal to the record's size, a transfer gathers into packed
//! memory. If the file stride is equal to the record's size, it scatters from a contiguous part of the
//! fork.

use crate::BLOCK_BYTES;
use shoal_pattern::{Branch, Level, Limb, Pattern, PatternError, Region, limits};
use std::fmt;

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

/// Why arguments name no shape (`GFS_EINVAL`), in words that name the argument.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Impossible(String);

impl fmt::Display for Impossible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A shape, or why there is none.
pub type Shaped = Result<Shape, Impossible>;

impl Shape {
    /// The bytes that it moves.
    pub fn len(&self) -> u64 {
        self.file.len()
    }

    /// Whether it moves none.
    pub fn is_empty(&self) -> bool {
        self.file.is_empty()
    }
}

fn in_file(error: PatternError) -> Impossible {
    Impossible(format!("the side of the fork: {error}"))
}

fn in_memory(error: PatternError) -> Impossible {
    Impossible(format!("the side of memory: {error}"))
}

fn offset_of(offset: u64) -> Result<i64, Impossible> {
    let words = |_| Impossible(format!("the offset {offset} lies beyond {}, the largest", i64::MAX));
    i64::try_from(offset).map_err(words)
}

/// Whether `size` bytes at a place end in the range of offsets.
fn ends_in_range(at: i64, size: u64) -> bool {
    i64::try_from(size).is_ok_and(|size| at.checked_add(size).is_some())
}

/// The words for a list of so many entries.
pub fn too_long(entries: usize) -> String {
    format!("the list has {entries} entries, and one call takes {LIST_ENTRIES_MAX}")
}

/// Entries of a list, at most.
pub const LIST_ENTRIES_MAX: usize = limits::LIST_REGIONS_MAX;

/// The first entry of a list that names no place.
fn bad_entry(list: &[ListEntry]) -> Option<Impossible> {
    let file =
        |entry: &ListEntry| i64::try_from(entry.file_offset).is_ok_and(|at| ends_in_range(at, entry.size));
    list.iter().enumerate().find_map(|(at, entry)| {
        let ListEntry { file_offset, memory_offset, size } = *entry;
        let words = match (file(entry), ends_in_range(memory_offset, size)) {
            (true, true) => return None,
            (false, _) => format!("{size} bytes at {file_offset} of the fork"),
            (true, false) => format!("{size} bytes at {memory_offset} of memory"),
        };
        Some(Impossible(format!("entry {at} of the list: {words} end beyond {}", i64::MAX)))
    })
}

/// `size` bytes at `offset`.
///
/// # Errors
/// Offsets that overflow, lengths that do not agree, more entries or levels than there may be.
pub fn plain(offset: u64, size: u64) -> Shaped {
    let file = Pattern::contiguous(offset_of(offset)?, size).map_err(in_file)?;
    let memory = Pattern::contiguous(0, size).map_err(in_memory)?;
    Ok(Shape { file, memory })
}

/// One whole block.
///
/// # Errors
/// Offsets that overflow, lengths that do not agree, more entries or levels than there may be.
pub fn block(block: u64) -> Shaped {
    let offset = block.checked_mul(BLOCK_BYTES);
    plain(
        offset.ok_or_else(|| Impossible(format!("block {block} lies beyond the largest offset")))?,
        BLOCK_BYTES,
    )
}

/// `quant` records of `size` bytes.
///
/// # Errors
/// Offsets that overflow, lengths that do not agree, more entries or levels than there may be.
pub fn strided(offset: u64, size: u64, f_stride: i64, m_stride: i64, quant: u64) -> Shaped {
    let file = Pattern::strided(offset_of(offset)?, size, f_stride, quant).map_err(in_file)?;
    let memory = Pattern::strided(0, size, m_stride, quant).map_err(in_memory)?;
    Ok(Shape { file, memory })
}

/// A record repeated by each level, innermost first.
///
/// # Errors
/// Offsets that overflow, lengths that do not agree, more entries or levels than there may be.
pub fn nested(offset: u64, size: u64, list: &[Stride]) -> Shaped {
    let levels = |stride: fn(&Stride) -> i64| -> Vec<Level> {
        list.iter().map(|level| Level { stride: stride(level), quantity: level.quant }).collect()
    };
    let file = Pattern::nested(offset_of(offset)?, size, levels(|level| level.f_off)).map_err(in_file)?;
    let memory = Pattern::nested(0, size, levels(|level| level.m_off)).map_err(in_memory)?;
    Ok(Shape { file, memory })
}

/// A vector of trees, the roots outermost.
///
/// # Errors
/// Offsets that overflow, lengths that do not agree, more entries or levels than there may be.
pub fn batched(vector: &[Batch]) -> Shaped {
    let (file, memory) = (branches(vector, Side::File, 0)?, branches(vector, Side::Memory, 0)?);
    let file = Pattern::batched(&file).map_err(in_file)?;
    let memory = Pattern::batched(&memory).map_err(in_memory)?;
    Ok(Shape { file, memory })
}

/// Entries in their order.
///
/// # Errors
/// Offsets that overflow, lengths that do not agree, more entries or levels than there may be.
pub fn listio(list: &[ListEntry]) -> Shaped {
    if list.len() > LIST_ENTRIES_MAX {
        return Err(Impossible(too_long(list.len())));
    }
    if let Some(bad) = bad_entry(list) {
        return Err(bad);
    }
    let file: Result<Vec<Region>, Impossible> = list
        .iter()
        .map(|entry| Ok(Region { offset: offset_of(entry.file_offset)?, len: entry.size }))
        .collect();
    let memory = list.iter().map(|entry| Region { offset: entry.memory_offset, len: entry.size }).collect();
    let file = Pattern::list(file?).map_err(in_file)?;
    let memory = Pattern::list(memory).map_err(in_memory)?;
    Ok(Shape { file, memory })
}

#[derive(Clone, Copy)]
enum Side {
    File,
    Memory,
}

fn branches(vector: &[Batch], side: Side, depth: usize) -> Result<Vec<Branch>, Impossible> {
    if depth > DEPTH_MAX {
        return Err(Impossible(format!("the vector has more than {DEPTH_MAX} levels")));
    }
    vector.iter().map(|batch| branch(batch, side, depth)).collect()
}

fn branch(batch: &Batch, side: Side, depth: usize) -> Result<Branch, Impossible> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_refused_names_its_limit_or_its_entry() {
        let entry = |file_offset, memory_offset, size| ListEntry { file_offset, memory_offset, size };
        let why = |list: &[ListEntry]| listio(list).err().unwrap().to_string();
        let good = entry(0, 0, 1);
        assert!(listio(&[good, entry(i64::MAX as u64 - 1, 0, 1)]).is_ok());
        let words = why(&[good, good, entry(i64::MAX as u64, 0, 1)]);
        assert!(words.contains("entry 2") && words.contains("of the fork"), "{words}");
        let words = why(&[good, entry(0, i64::MAX, 1), entry(u64::MAX, 0, 1)]);
        assert!(words.contains("entry 1") && words.contains("of memory"), "{words}");
        assert!(why(&[entry(0, 0, u64::MAX)]).contains("entry 0"));
        let words = why(&vec![good; LIST_ENTRIES_MAX + 1]);
        assert!(words.contains("4194305") && words.contains("4194304"), "{words}");
        assert!(plain(u64::MAX, 1).err().unwrap().to_string().contains("18446744073709551615"));
        assert!(block(u64::MAX).err().unwrap().to_string().contains("block 18446744073709551615"));
    }
}
