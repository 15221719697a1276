//! Reads the arrays in the arguments of Galley's calls (`gfs_*`). A nested request is an array of levels, a
//! batched request is a tree of nodes, and a list request is an array of entries.
//!
//! An array comes as a pointer and a number of items. A tree is checked while it is walked: a tree with
//! more than [`DEPTH_MAX`] levels or [`NODES_MAX`] nodes is refused. So the walk ends even if a node points
//! to one of its ancestors.

use crate::call::{Res, failure, slice};
use libc::{c_char, c_int};
use shoal_galley::shape::{LIST_ENTRIES_MAX, too_long};
use shoal_galley::{Batch, BatchBody, ListEntry, Stride};

/// Depth of a tree, and nodes of it, at most.
const DEPTH_MAX: usize = 64;
const NODES_MAX: usize = 1 << 16;

/// A level of a nested request (`struct gfs_stride`).
#[repr(C)]
pub struct CStride {
    f_off: i64,
    m_off: i64,
    quant: u64,
}

/// A node of a batched request (`struct gfs_batch`).
#[repr(C)]
pub struct CBatch {
    f_off: i64,
    m_off: i64,
    f_absolute: c_char,
    m_absolute: c_char,
    sub_vector: c_char,
    quant: u64,
    f_stride: i64,
    m_stride: i64,
    subvec_len: u64,
    body: CBody,
}

/// The repeated part: `vector` if `sub_vector` is not 0.
#[repr(C)]
pub union CBody {
    size: u64,
    vector: *const CBatch,
}

/// An entry of a list request (`struct gfs_list`).
#[repr(C)]
pub struct CList {
    file_offset: u64,
    memory_offset: i64,
    size: u64,
}

/// An argument that is a number of items.
fn number(argument: &str, value: c_int) -> Res<usize> {
    let words =
        |_| failure(libc::EINVAL, format!("{argument} is {value}, and a number of items is 0 or more"));
    usize::try_from(value).map_err(words)
}

/// # Safety
/// `list` is null or has `levels` items.
pub(super) unsafe fn strides(list: *const CStride, levels: c_int) -> Res<Vec<Stride>> {
    let levels = number("levels", levels)?;
    // SAFETY: as the caller promises.
    let list = unsafe { slice(list, levels) }?;
    Ok(list
        .iter()
        .map(|level| Stride { f_off: level.f_off, m_off: level.m_off, quant: level.quant })
        .collect())
}

/// # Safety
/// `list` is null or has `quant` items.
pub(super) unsafe fn entries(list: *const CList, quant: c_int) -> Res<Vec<ListEntry>> {
    let quant = number("quant", quant)?;
    if quant > LIST_ENTRIES_MAX {
        return Err(failure(libc::EINVAL, too_long(quant)));
    }
    // SAFETY: as the caller promises.
    let list = unsafe { slice(list, quant) }?;
    let entry = |entry: &CList| {
        let CList { file_offset, memory_offset, size } = *entry;
        ListEntry { file_offset, memory_offset, size }
    };
    Ok(list.iter().map(entry).collect())
}

/// # Safety
/// `vector` is null or has `quant` items, and so have the vectors in it.
pub(super) unsafe fn trees(vector: *const CBatch, quant: c_int) -> Res<Vec<Batch>> {
    let quant = number("quant", quant)?;
    // SAFETY: as the caller promises.
    unsafe { nodes(vector, quant as u64, 0, &mut { NODES_MAX }) }
}

unsafe fn nodes(vector: *const CBatch, len: u64, depth: usize, left: &mut usize) -> Res<Vec<Batch>> {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if depth > DEPTH_MAX || len > *left {
        let words = format!("a batched request has {DEPTH_MAX} levels and {NODES_MAX} nodes at most");
        return Err(failure(libc::EINVAL, words));
    }
    *left -= len;
    // SAFETY: as the caller promises.
    let vector = unsafe { slice(vector, len) }?;
    let node = |node: &CBatch| {
        let body = match node.sub_vector {
            // SAFETY: `sub_vector` says which of the two was set.
            0 => BatchBody::Size(unsafe { node.body.size }),
            // SAFETY: the same; and as the caller promises.
            _ => BatchBody::SubVector(unsafe { nodes(node.body.vector, node.subvec_len, depth + 1, left) }?),
        };
        Ok(Batch {
            f_off: node.f_off,
            m_off: node.m_off,
            f_absolute: node.f_absolute != 0,
            m_absolute: node.m_absolute != 0,
            quant: node.quant,
            f_stride: node.f_stride,
            m_stride: node.m_stride,
            body,
        })
    };
    vector.iter().map(node).collect()
}
