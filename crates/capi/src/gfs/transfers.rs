//! Galley's transfers: the blocking and the non-blocking calls.
//!
//! Each shape has four calls. Their arguments become a [`Shape`], and its runs are copied from or to the
//! caller's memory one by one.

use super::vectors::{CBatch, CList, CStride, entries, strides, trees};
use super::{Gfs, HandleId, fork, gfs};
use crate::call::{Res, failure};
use libc::c_int;
use shoal_galley::Shaped;
use shoal_galley::shape::{self, Shape};
use std::time::Instant;

/// A caller's memory.
#[derive(Clone, Copy)]
struct Base(*mut u8);

impl Base {
    /// Fill a run of memory.
    fn put(self, at: i64, run: &[u8]) {
        // SAFETY: the exported functions promise that the runs of the shape are the caller's memory.
        unsafe { std::ptr::copy(run.as_ptr(), self.0.wrapping_offset(at as isize), run.len()) };
    }

    /// Take a run of memory.
    fn get(self, at: i64, run: &mut [u8]) {
        // SAFETY: the same.
        unsafe { std::ptr::copy(self.0.wrapping_offset(at as isize), run.as_mut_ptr(), run.len()) };
    }
}

/// The shape and the memory of a transfer. A buffer may be null where nothing is moved.
fn shaped(shape: Shaped, buf: *mut u8) -> Res<(Shape, Base)> {
    let shape = shape.map_err(|why| failure(libc::EINVAL, why.to_string()))?;
    if !shape.is_empty() && buf.is_null() {
        return Err(failure(libc::EFAULT, "the buffer is null"));
    }
    Ok((shape, Base(buf)))
}

fn read(gfs: &mut Gfs, until: Instant, fork_id: c_int, buf: *mut u8, shape: Shaped) -> Res<i64> {
    let (shape, base) = shaped(shape, buf)?;
    let moved = gfs.drive(until, async |galley| {
        galley.read_runs(fork(fork_id), &shape, |at, run| base.put(at, run)).await
    });
    moved.map(u64::cast_signed)
}

fn write(gfs: &mut Gfs, until: Instant, fork_id: c_int, buf: *const u8, shape: Shaped) -> Res<i64> {
    let (shape, base) = shaped(shape, buf.cast_mut())?;
    let moved = gfs.drive(until, async |galley| {
        galley.write_runs(fork(fork_id), &shape, |at, run| base.get(at, run)).await
    });
    moved.map(u64::cast_signed)
}

fn begin_read(
    gfs: &mut Gfs,
    until: Instant,
    (handle, fork_id): (HandleId, c_int),
    buf: *mut u8,
    shape: Shaped,
) -> Res<c_int> {
    let (shape, base) = shaped(shape, buf)?;
    let (operation, id) = (gfs.handle(handle)?, fork(fork_id));
    gfs.drive(until, async |galley| {
        galley.begin_runs(&operation, id, Ok(shape), async move |galley, shape| {
            galley.read_runs(id, &shape, |at, run| base.put(at, run)).await
        })
    })?;
    Ok(0)
}

fn begin_write(
    gfs: &mut Gfs,
    until: Instant,
    (handle, fork_id): (HandleId, c_int),
    buf: *const u8,
    shape: Shaped,
) -> Res<c_int> {
    let (shape, base) = shaped(shape, buf.cast_mut())?;
    let (operation, id) = (gfs.handle(handle)?, fork(fork_id));
    gfs.drive(until, async |galley| {
        let packed = galley.packed(&shape, |at, run| base.get(at, run))?;
        galley.begin_runs(&operation, id, Ok(shape), async move |galley, shape| {
            galley.write_packed(id, &shape, packed).await
        })
    })?;
    Ok(0)
}

unsafe fn nested(offset: u64, size: u64, list: *const CStride, levels: c_int) -> Res<Shaped> {
    // SAFETY: as the caller promises.
    Ok(shape::nested(offset, size, &unsafe { strides(list, levels) }?))
}

unsafe fn batched(vector: *const CBatch, quant: c_int) -> Res<Shaped> {
    // SAFETY: as the caller promises.
    Ok(shape::batched(&unsafe { trees(vector, quant) }?))
}

unsafe fn listio(list: *const CList, quant: c_int) -> Res<Shaped> {
    // SAFETY: as the caller promises.
    Ok(shape::listio(&unsafe { entries(list, quant) }?))
}

/// Calls that move a shape. Each is `unsafe`: a buffer is null, or the runs of the shape are the caller's;
/// lists are null or have as many items as is said.
macro_rules! transfers {
    ($($(#[$doc:meta])* extern "C" fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty
        = $how:ident($place:expr, $buf:expr, $shape:expr);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// The buffer is null, or the runs of the shape are the caller's memory (of a non-blocking read until
        /// `gfs_wait` returned). A list is null, or has as many items as is said.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            gfs(stringify!($name), |gfs, until| {
                #[allow(unused_unsafe, reason = "only shapes with lists read the caller's memory")]
                // SAFETY: as the caller promises.
                let shape: Res<Shaped> = unsafe { $shape };
                $how(gfs, until, $place, $buf, shape?)
            })
        }

        crate::version::since_1_0!($name);
    )*};
}

transfers! {
    /// Read: `size` bytes at `offset`. The bytes moved.
    extern "C" fn gfs_read(fork_id: c_int, buf: *mut u8, offset: u64, size: u64) -> i64
        = read(fork_id, buf, Ok(shape::plain(offset, size)));
    /// Write: `size` bytes at `offset`. The bytes moved.
    extern "C" fn gfs_write(fork_id: c_int, buf: *const u8, offset: u64, size: u64) -> i64
        = write(fork_id, buf, Ok(shape::plain(offset, size)));
    /// Begin to read: `size` bytes at `offset`.
    extern "C" fn gfs_nb_read(
        handle: HandleId, fork_id: c_int, buf: *mut u8, offset: u64, size: u64,
    ) -> c_int
        = begin_read((handle, fork_id), buf, Ok(shape::plain(offset, size)));
    /// Begin to write: `size` bytes at `offset`.
    extern "C" fn gfs_nb_write(
        handle: HandleId, fork_id: c_int, buf: *const u8, offset: u64, size: u64,
    ) -> c_int
        = begin_write((handle, fork_id), buf, Ok(shape::plain(offset, size)));
    /// Read: one whole block. The bytes moved.
    extern "C" fn gfs_read_block(fork_id: c_int, buf: *mut u8, block: u64) -> i64
        = read(fork_id, buf, Ok(shape::block(block)));
    /// Write: one whole block. The bytes moved.
    extern "C" fn gfs_write_block(fork_id: c_int, buf: *const u8, block: u64) -> i64
        = write(fork_id, buf, Ok(shape::block(block)));
    /// Begin to read: one whole block.
    extern "C" fn gfs_nb_read_block(
        handle: HandleId, fork_id: c_int, buf: *mut u8, block: u64,
    ) -> c_int
        = begin_read((handle, fork_id), buf, Ok(shape::block(block)));
    /// Begin to write: one whole block.
    extern "C" fn gfs_nb_write_block(
        handle: HandleId, fork_id: c_int, buf: *const u8, block: u64,
    ) -> c_int
        = begin_write((handle, fork_id), buf, Ok(shape::block(block)));
    /// Read: `quant` records of `size` bytes. The bytes moved.
    extern "C" fn gfs_read_strided(
        fork_id: c_int, buf: *mut u8, offset: u64, size: u64, f_stride: i64, m_stride: i64, quant: u64,
    ) -> i64
        = read(fork_id, buf, Ok(shape::strided(offset, size, f_stride, m_stride, quant)));
    /// Write: `quant` records of `size` bytes. The bytes moved.
    extern "C" fn gfs_write_strided(
        fork_id: c_int, buf: *const u8, offset: u64, size: u64, f_stride: i64, m_stride: i64, quant:
        u64,
    ) -> i64
        = write(fork_id, buf, Ok(shape::strided(offset, size, f_stride, m_stride, quant)));
    /// Begin to read: `quant` records of `size` bytes.
    extern "C" fn gfs_nb_read_strided(
        handle: HandleId, fork_id: c_int, buf: *mut u8, offset: u64, size: u64, f_stride: i64, m_stride:
        i64, quant: u64,
    ) -> c_int
        = begin_read((handle, fork_id), buf, Ok(shape::strided(offset, size, f_stride, m_stride, quant)));
    /// Begin to write: `quant` records of `size` bytes.
    extern "C" fn gfs_nb_write_strided(
        handle: HandleId, fork_id: c_int, buf: *const u8, offset: u64, size: u64, f_stride: i64,
        m_stride: i64, quant: u64,
    ) -> c_int
        = begin_write((handle, fork_id), buf, Ok(shape::strided(offset, size, f_stride, m_stride, quant)));
    /// Read: a record repeated by each level, innermost first. The bytes moved.
    extern "C" fn gfs_read_nested(
        fork_id: c_int, buf: *mut u8, offset: u64, size: u64, list: *const CStride, levels: c_int,
    ) -> i64
        = read(fork_id, buf, nested(offset, size, list, levels));
    /// Write: a record repeated by each level, innermost first. The bytes moved.
    extern "C" fn gfs_write_nested(
        fork_id: c_int, buf: *const u8, offset: u64, size: u64, list: *const CStride, levels: c_int,
    ) -> i64
        = write(fork_id, buf, nested(offset, size, list, levels));
    /// Begin to read: a record repeated by each level, innermost first.
    extern "C" fn gfs_nb_read_nested(
        handle: HandleId, fork_id: c_int, buf: *mut u8, offset: u64, size: u64, list: *const CStride,
        levels: c_int,
    ) -> c_int
        = begin_read((handle, fork_id), buf, nested(offset, size, list, levels));
    /// Begin to write: a record repeated by each level, innermost first.
    extern "C" fn gfs_nb_write_nested(
        handle: HandleId, fork_id: c_int, buf: *const u8, offset: u64, size: u64, list: *const CStride,
        levels: c_int,
    ) -> c_int
        = begin_write((handle, fork_id), buf, nested(offset, size, list, levels));
    /// Read: a vector of trees, the roots outermost. The bytes moved.
    extern "C" fn gfs_read_batched(
        fork_id: c_int, buf: *mut u8, vector: *const CBatch, quant: c_int,
    ) -> i64
        = read(fork_id, buf, batched(vector, quant));
    /// Write: a vector of trees, the roots outermost. The bytes moved.
    extern "C" fn gfs_write_batched(
        fork_id: c_int, buf: *const u8, vector: *const CBatch, quant: c_int,
    ) -> i64
        = write(fork_id, buf, batched(vector, quant));
    /// Begin to read: a vector of trees, the roots outermost.
    extern "C" fn gfs_nb_read_batched(
        handle: HandleId, fork_id: c_int, buf: *mut u8, vector: *const CBatch, quant: c_int,
    ) -> c_int
        = begin_read((handle, fork_id), buf, batched(vector, quant));
    /// Begin to write: a vector of trees, the roots outermost.
    extern "C" fn gfs_nb_write_batched(
        handle: HandleId, fork_id: c_int, buf: *const u8, vector: *const CBatch, quant: c_int,
    ) -> c_int
        = begin_write((handle, fork_id), buf, batched(vector, quant));
    /// Read: entries in their order. The bytes moved.
    extern "C" fn gfs_read_listio(
        fork_id: c_int, buf: *mut u8, list: *const CList, quant: c_int,
    ) -> i64
        = read(fork_id, buf, listio(list, quant));
    /// Write: entries in their order. The bytes moved.
    extern "C" fn gfs_write_listio(
        fork_id: c_int, buf: *const u8, list: *const CList, quant: c_int,
    ) -> i64
        = write(fork_id, buf, listio(list, quant));
    /// Begin to read: entries in their order.
    extern "C" fn gfs_nb_read_listio(
        handle: HandleId, fork_id: c_int, buf: *mut u8, list: *const CList, quant: c_int,
    ) -> c_int
        = begin_read((handle, fork_id), buf, listio(list, quant));
    /// Begin to write: entries in their order.
    extern "C" fn gfs_nb_write_listio(
        handle: HandleId, fork_id: c_int, buf: *const u8, list: *const CList, quant: c_int,
    ) -> c_int
        = begin_write((handle, fork_id), buf, listio(list, quant));
}
