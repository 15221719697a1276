//! A pairing: a pattern of a file and a pattern of memory of equal length.
//!
//! From Galley (Nieuwejaar and Kotz, IOPADS'96): every transfer has a stride in the file and one in memory,
//! so a gather or scatter needs no buffer in between. Byte *p* of one pattern goes to byte *p* of the other
//! pattern. Both are counted in *packed* order: the order of the pattern's regions. A **run** is contiguous
//! on both sides.
//!
//! ```text
//!   file      ##########......##########          strided(0, 10, 16, 2)
//!   memory    #######...#######...#######         strided(0, 7, 10, 3), cut to 20 bytes
//!   runs      (0, 0, 7) (7, 10, 3)   (16, 13, 4) (20, 20, 6)
//! ```
//!
//! Runs come in packed order, or in order of file offsets, so that a server uses each block once. Both orders
//! have the same runs. A run ends where a record of either side ends; runs that touch are not joined:
//! coalesce both patterns first. **A write to overlapping records of a file must use packed order: only that
//! leaves the last record's bytes.**
//!
//! Cost: packed order takes O(depth) memory and constant time for each run. The order of offsets costs as
//! much as [`Pattern::by_offset`], and a seek into the memory pattern for each run.

use crate::order::{ByOffset, Interleaved};
use crate::pattern::Pattern;
use crate::regions::Walk;

/// Bytes that are contiguous in the file and in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PairedRun {
    /// Where they begin in the file.
    pub file: i64,
    /// Where they begin in memory.
    pub memory: i64,
    /// How many bytes.
    pub len: u64,
}

/// Two patterns of different lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file's pattern has {file} bytes and the memory's {memory}")]
pub struct UnequalLengths {
    /// Packed bytes of the file's pattern.
    pub file: u64,
    /// Packed bytes of the memory's pattern.
    pub memory: u64,
}

/// A pattern of a file and one of memory, of equal length. See the module.
#[derive(Clone, Copy, Debug)]
pub struct Pairing<'a> {
    file: &'a Pattern,
    memory: &'a Pattern,
}

impl<'a> Pairing<'a> {
    /// Byte by byte in packed order, `file` with `memory`.
    ///
    /// # Errors
    /// [`UnequalLengths`].
    pub fn new(file: &'a Pattern, memory: &'a Pattern) -> Result<Self, UnequalLengths> {
        if file.len() != memory.len() {
            return Err(UnequalLengths { file: file.len(), memory: memory.len() });
        }
        Ok(Self { file, memory })
    }

    /// The file's side.
    pub fn file(&self) -> &'a Pattern {
        self.file
    }

    /// The memory's side.
    pub fn memory(&self) -> &'a Pattern {
        self.memory
    }

    /// Packed bytes of both sides.
    pub fn len(&self) -> u64 {
        self.file.len()
    }

    /// Whether no byte is paired.
    pub fn is_empty(&self) -> bool {
        self.file.is_empty()
    }

    /// The runs in packed order, lazily, in O(depth) memory.
    pub fn runs(&self) -> PairedRuns<'a> {
        let len = self.len();
        PairedRuns { file: Walk::new(self.file, 0, len), memory: Walk::new(self.memory, 0, len) }
    }

    /// The runs in order of file offsets; those of equal offsets in packed order.
    ///
    /// # Errors
    /// [`Interleaved`], as [`Pattern::by_offset`] of the file's pattern.
    pub fn by_file_offset(&self) -> Result<PairedByOffset<'a>, Interleaved> {
        Ok(PairedByOffset { file: self.file.by_offset()?, memory: self.memory })
    }
}

/// The runs of a pairing in packed order. Made by [`Pairing::runs`].
#[derive(Clone, Debug)]
pub struct PairedRuns<'a> {
    file: Walk<'a>,
    memory: Walk<'a>,
}

impl Iterator for PairedRuns<'_> {
    type Item = PairedRun;

    fn next(&mut self) -> Option<PairedRun> {
        let (file, memory) = (self.file.peek()?, self.memory.peek()?);
        let len = file.len.min(memory.len);
        self.file.pass(len);
        self.memory.pass(len);
        Some(PairedRun { file: file.offset, memory: memory.offset, len })
    }
}

impl std::iter::FusedIterator for PairedRuns<'_> {}

/// The runs of a pairing in order of file offsets. Made by [`Pairing::by_file_offset`].
#[derive(Clone, Debug)]
pub struct PairedByOffset<'a> {
    file: ByOffset,
    memory: &'a Pattern,
}

impl Iterator for PairedByOffset<'_> {
    type Item = PairedRun;

    fn next(&mut self) -> Option<PairedRun> {
        let mut memory = 0;
        let visit = self.file.next_cut(|packed, left| {
            let there = Walk::new(self.memory, packed, left).peek();
            there.map_or(left, |region| {
                memory = region.offset;
                region.len
            })
        })?;
        Some(PairedRun { file: visit.offset, memory, len: visit.len })
    }
}

impl std::iter::FusedIterator for PairedByOffset<'_> {}
