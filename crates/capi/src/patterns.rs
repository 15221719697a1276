//! Calls that make patterns, and calls that transfer data by patterns. One call moves the bytes of a file
//! pattern to or from the bytes of a memory pattern.
//!
//! A pattern is plain data and belongs to no connection, so patterns have a table of their own. Offsets of a
//! memory pattern count from the start of the buffer, and the pattern must lie in the buffer. With the id 0
//! the bytes lie one after the other from the start of the buffer. Bytes beyond the end of the file are read
//! as zeros.

use crate::call::{Res, call, checked, failure, on, slice, there};
use crate::files::FileId;
use crate::table::Kind;
use bytes::Bytes;
use libc::c_int;
use shoal_pattern::{Branch, Level, Limb, Pattern, PatternError, Region};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A pattern (`shoal_pattern`).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PatternId {
    /// Its id; 0 is none.
    pub id: u64,
}

/// A level of a nest (`shoal_level`).
#[repr(C)]
pub struct CLevel {
    stride: i64,
    count: u64,
}

/// A region of a list (`shoal_region`).
#[repr(C)]
pub struct CRegion {
    offset: i64,
    len: u64,
}

/// A node of a batched pattern (`shoal_branch`).
#[repr(C)]
pub struct CBranch {
    offset: i64,
    stride: i64,
    count: u64,
    bytes: u64,
    vector: *const CBranch,
    vector_len: usize,
    is_absolute: c_int,
}

const PATTERNS_MAX: usize = 1 << 20;
const DEPTH_MAX: usize = 64;
const NODES_MAX: usize = 1 << 16;

/// The patterns that are known.
pub struct Patterns {
    next: u64,
    known: BTreeMap<u64, Arc<Pattern>>,
}

static PATTERNS: Mutex<Patterns> = Mutex::new(Patterns { next: 1, known: BTreeMap::new() });

/// Their table, locked.
pub fn patterns() -> MutexGuard<'static, Patterns> {
    PATTERNS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find(pattern: PatternId) -> Res<Arc<Pattern>> {
    let words = || failure(libc::EBADF, format!("{} is no pattern", pattern.id));
    patterns().known.get(&pattern.id).cloned().ok_or_else(words)
}

fn make(
    function: &str,
    out: *mut PatternId,
    pattern: impl FnOnce() -> Res<Result<Pattern, PatternError>>,
) -> c_int {
    call(function, || {
        there(out)?;
        let pattern = pattern()?.map_err(|error| failure(libc::EINVAL, error.to_string()))?;
        let mut patterns = patterns();
        if patterns.known.len() >= PATTERNS_MAX {
            return Err(failure(libc::EMFILE, format!("{PATTERNS_MAX} patterns are there")));
        }
        let id = patterns.next;
        patterns.next += 1;
        patterns.known.insert(id, Arc::new(pattern));
        // SAFETY: the exported functions promise that it is null or valid.
        unsafe { out.write(PatternId { id }) };
        Ok(0)
    })
}

/// One region.
///
/// # Safety
/// `out` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_pattern_contiguous(offset: i64, len: u64, out: *mut PatternId) -> c_int {
    make("shoal_pattern_contiguous", out, || Ok(Pattern::contiguous(offset, len)))
}

/// `count` records of `record` bytes, each `stride` bytes after the one before.
///
/// # Safety
/// `out` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_pattern_strided(
    offset: i64,
    record: u64,
    stride: i64,
    count: u64,
    out: *mut PatternId,
) -> c_int {
    make("shoal_pattern_strided", out, || Ok(Pattern::strided(offset, record, stride, count)))
}

/// A record repeated by each level, innermost first.
///
/// # Safety
/// `levels` is null or has `levels_len` items; `out` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_pattern_nested(
    offset: i64,
    record: u64,
    levels: *const CLevel,
    levels_len: usize,
    out: *mut PatternId,
) -> c_int {
    make("shoal_pattern_nested", out, || {
        // SAFETY: as the caller promises.
        let levels = unsafe { slice(levels, levels_len) }?;
        let levels = levels.iter().map(|level| Level { stride: level.stride, quantity: level.count });
        Ok(Pattern::nested(offset, record, levels.collect()))
    })
}

/// Regions in their order.
///
/// # Safety
/// `regions` is null or has `regions_len` items; `out` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_pattern_list(
    regions: *const CRegion,
    regions_len: usize,
    out: *mut PatternId,
) -> c_int {
    make("shoal_pattern_list", out, || {
        // SAFETY: as the caller promises.
        let regions = unsafe { slice(regions, regions_len) }?;
        let is_bad = |region: &CRegion| !ends_in_range(region.offset, region.len);
        if let Some(at) = regions.iter().position(is_bad) {
            let CRegion { offset, len } = regions[at];
            let words =
                format!("entry {at} of the list: {len} bytes at {offset} end beyond the offset {}", i64::MAX);
            return Err(failure(libc::EINVAL, words));
        }
        let regions = regions.iter().map(|region| Region { offset: region.offset, len: region.len });
        Ok(Pattern::list(regions.collect()))
    })
}

/// Whether a region ends at an offset that a file can have.
fn ends_in_range(offset: i64, len: u64) -> bool {
    i64::try_from(len).is_ok_and(|len| offset.checked_add(len).is_some())
}

unsafe fn branches(vector: *const CBranch, len: usize, depth: usize, left: &mut usize) -> Res<Vec<Branch>> {
    if depth > DEPTH_MAX || len > *left {
        let words = format!("a batched pattern has {DEPTH_MAX} levels and {NODES_MAX} nodes at most");
        return Err(failure(libc::EINVAL, words));
    }
    *left -= len;
    // SAFETY: as the caller promises.
    let vector = unsafe { slice(vector, len) }?;
    let branch = |node: &CBranch| {
        let limb = match node.vector.is_null() {
            true => Limb::Bytes(node.bytes),
            // SAFETY: as the caller promises.
            false => Limb::Vector(unsafe { branches(node.vector, node.vector_len, depth + 1, left) }?),
        };
        let is_absolute = node.is_absolute != 0;
        Ok(Branch { offset: node.offset, is_absolute, stride: node.stride, quantity: node.count, limb })
    };
    vector.iter().map(branch).collect()
}

/// A vector of trees, the roots outermost.
///
/// # Safety
/// `vector` is null or has `vector_len` items, and so have the vectors in it; `out` is null or valid for a
/// write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_pattern_batched(
    vector: *const CBranch,
    vector_len: usize,
    out: *mut PatternId,
) -> c_int {
    make("shoal_pattern_batched", out, || {
        // SAFETY: as the caller promises.
        Ok(Pattern::batched(&unsafe { branches(vector, vector_len, 0, &mut { NODES_MAX }) }?))
    })
}

/// Bytes of a pattern.
#[unsafe(no_mangle)]
pub extern "C" fn shoal_pattern_len(pattern: PatternId) -> i64 {
    call("shoal_pattern_len", || {
        let len = find(pattern)?.len();
        i64::try_from(len).map_err(|_| failure(libc::EOVERFLOW, "the pattern is too long"))
    })
}

/// Give a pattern back.
#[unsafe(no_mangle)]
pub extern "C" fn shoal_pattern_free(pattern: PatternId) -> c_int {
    call("shoal_pattern_free", || {
        find(pattern)?;
        patterns().known.remove(&pattern.id);
        Ok(0)
    })
}

/// The pattern of a buffer: of the file's length, and inside.
fn memory(file: &Pattern, memory: PatternId, len: usize) -> Res<Arc<Pattern>> {
    if file.len() > crate::call::BYTES_MAX as u64 {
        let words = format!("{} bytes: one call moves {} at most", file.len(), crate::call::BYTES_MAX);
        return Err(failure(libc::EINVAL, words));
    }
    let pattern = match memory.id {
        0 => {
            let packed = Pattern::contiguous(0, file.len());
            Arc::new(packed.map_err(|error| failure(libc::EINVAL, error.to_string()))?)
        }
        _ => find(memory)?,
    };
    if pattern.len() != file.len() {
        let words = format!("the file's pattern has {} bytes and memory's {}", file.len(), pattern.len());
        return Err(failure(libc::EINVAL, words));
    }
    match pattern.bounds() {
        Some((from, to)) if from < 0 || to > len as i64 => {
            let words = format!("memory's pattern is bytes {from} to {to} of a buffer of {len}");
            Err(failure(libc::EINVAL, words))
        }
        _ => Ok(pattern),
    }
}

/// Read the bytes of a pattern: how many they are.
///
/// # Safety
/// `buffer` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_read_pattern(
    file: FileId,
    pattern: PatternId,
    buffer: *mut u8,
    len: usize,
    into: PatternId,
) -> i64 {
    on("shoal_read_pattern", Kind::File, file.id, |session, _| {
        let len = checked(buffer, len)?;
        let pattern = find(pattern)?;
        let memory = memory(&pattern, into, len)?;
        let packed = session.on_file(file.id, |file| file.read_pattern(&pattern))?;
        let mut at = 0;
        for region in memory.regions() {
            let (offset, len) = (region.offset as usize, region.len as usize);
            let part = packed.get(at..at + len).ok_or_else(|| failure(libc::EIO, "the read is short"))?;
            // SAFETY: the bounds were checked; the buffer has `len` bytes, as the caller promises.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), buffer.add(offset), len) };
            at += len;
        }
        Ok(at as i64)
    })
}

/// Write the bytes of a pattern: how many they are.
///
/// # Safety
/// `buffer` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shoal_write_pattern(
    file: FileId,
    pattern: PatternId,
    buffer: *const u8,
    len: usize,
    from: PatternId,
) -> i64 {
    on("shoal_write_pattern", Kind::File, file.id, |session, _| {
        // SAFETY: as the caller promises.
        let buffer = unsafe { slice(buffer, len) }?;
        let pattern = find(pattern)?;
        let memory = memory(&pattern, from, len)?;
        let mut packed = Vec::with_capacity(pattern.len() as usize);
        for region in memory.regions() {
            packed.extend_from_slice(&buffer[region.offset as usize..][..region.len as usize]);
        }
        let moved = packed.len() as i64;
        session.on_file(file.id, |file| file.write_pattern(&pattern, Bytes::from(packed)))?;
        Ok(moved)
    })
}

crate::version::since_1_0! {
    shoal_pattern_contiguous, shoal_pattern_strided, shoal_pattern_nested, shoal_pattern_list,
    shoal_pattern_batched, shoal_pattern_len, shoal_pattern_free, shoal_read_pattern,
    shoal_write_pattern,
}
