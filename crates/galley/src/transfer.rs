//! `gfs_read` and `gfs_write` in all their shapes. Each is one pairing (a pattern of the fork and a pattern
//! of memory) and one call of the file system.
//!
//! A read moves only bytes that the fork has: it returns their number, and leaves other memory as it is.
//! The extent of the fork comes with the data itself, so each counted byte was in the fork, whatever other
//! clients write and truncate meanwhile. If records of a write overlap, the byte that is later in the order
//! of the shape stays.

use crate::init::OpenedFork;
use crate::shape::{self, Shape, Shaped};
use crate::{Batch, Errno, ForkId, Galley, ListEntry, Memory, Result, Stride};
use bytes::{Bytes, BytesMut};
use shoal_pattern::{Pairing, Pattern};
use shoal_vfs::{Vfs, VfsFile as _};

/// Bytes moved by one call, at most.
pub(crate) const TRANSFER_BYTES_MAX: u64 = 1 << 30;

impl<V: Vfs> Galley<V> {
    /// Read. `size` bytes at `offset`. The bytes moved.
    ///
    /// # Errors
    /// `BadFile`, `Io`; `Invalid`: a shape, or a place outside the fork's offsets or the buffer.
    pub async fn gfs_read(
        &self,
        fork_id: ForkId,
        buf: impl Into<Memory<&mut [u8]>>,
        offset: u64,
        size: u64,
    ) -> Result<u64> {
        self.read_shape(fork_id, buf.into(), self.shaped(shape::plain(offset, size))?).await
    }

    /// Write: as [`Galley::gfs_read`].
    ///
    /// # Errors
    /// As there; `NoSpace`.
    pub async fn gfs_write(
        &self,
        fork_id: ForkId,
        buf: impl Into<Memory<&[u8]>>,
        offset: u64,
        size: u64,
    ) -> Result<u64> {
        self.write_shape(fork_id, buf.into(), self.shaped(shape::plain(offset, size))?).await
    }

    /// Read. One whole block. The bytes moved.
    ///
    /// # Errors
    /// `BadFile`, `Io`; `Invalid`: a shape, or a place outside the fork's offsets or the buffer.
    pub async fn gfs_read_block(
        &self,
        fork_id: ForkId,
        buf: impl Into<Memory<&mut [u8]>>,
        block: u64,
    ) -> Result<u64> {
        self.read_shape(fork_id, buf.into(), self.shaped(shape::block(block))?).await
    }

    /// Write: as [`Galley::gfs_read_block`].
    ///
    /// # Errors
    /// As there; `NoSpace`.
    pub async fn gfs_write_block(
        &self,
        fork_id: ForkId,
        buf: impl Into<Memory<&[u8]>>,
        block: u64,
    ) -> Result<u64> {
        self.write_shape(fork_id, buf.into(), self.shaped(shape::block(block))?).await
    }

    /// Read. `quant` records of `size` bytes, the first at `offset`, each `f_stride` bytes after the one
    /// before it, and in memory `m_stride` bytes. The bytes moved.
    ///
    /// # Errors
    /// `BadFile`, `Io`; `Invalid`: a shape, or a place outside the fork's offsets or the buffer.
    pub async fn gfs_read_strided(
        &self,
        fork_id: ForkId,
        buf: impl Into<Memory<&mut [u8]>>,
        offset: u64,
        size: u64,
        f_stride: i64,
        m_stride: i64,
        quant: u64,
    ) -> Result<u64> {
        self.read_shape(
            fork_id,
            buf.into(),
            self.shaped(shape::strided(offset, size, f_stride, m_stride, quant))?,
        )
        .await
    }

    /// Write: as [`Galley::gfs_read_strided`].
    ///
    /// # Errors
    /// As there; `NoSpace`.
    pub async fn gfs_write_strided(
        &self,
        fork_id: ForkId,
        buf: impl Into<Memory<&[u8]>>,
        offset: u64,
        size: u64,
        f_stride: i64,
        m_stride: i64,
        quant: u64,
    ) -> Result<u64> {
        self.write_shape(
            fork_id,
            buf.into(),
            self.shaped(shape::strided(offset, size, f_stride, m_stride, quant))?,
        )
        .await
    }

    /// Read. Records of `size` bytes, repeated by each level of `list` in turn, **innermost first**. The
    /// bytes moved.
    ///
    /// # Errors
    /// `BadFile`, `Io`; `Invalid`: a shape, or a place outside the fork's offsets or the buffer.
    pub async fn gfs_read_nested(
        &self,
        fork_id: ForkId,
        buf: impl Into<Memory<&mut [u8]>>,
        offset: u64,
        size: u64,
        list: &[Stride],
    ) -> Result<u64> {
        self.read_shape(fork_id, buf.into(), self.shaped(shape::nested(offset, size, list))?).await
    }

    /// Write: as [`Galley::gfs_read_nested`].
    ///
    /// # Errors
    /// As there; `NoSpace`.
    pub async fn gfs_write_nested(
        &self,
        fork_id: ForkId,
        buf: impl Into<Memory<&[u8]>>,
        offset: u64,
        size: u64,
        list: &[Stride],
    ) -> Result<u64> {
        self.write_shape(fork_id, buf.into(), self.shaped(shape::nested(offset, size, list))?).await
    }

    /// Read. A vector of requests, each repeated, each bytes or a further vector: **the root is outermost**.
    /// The bytes moved.
    ///
    /// # Errors
    /// `BadFile`, `Io`; `Invalid`: a shape, or a place outside the fork's offsets or the buffer.
    pub async fn gfs_read_batched(
        &self,
        fork_id: ForkId,
        buf: impl Into<Memory<&mut [u8]>>,
        vector: &[Batch],
    ) -> Result<u64> {
        self.read_shape(fork_id, buf.into(), self.shaped(shape::batched(vector))?).await
    }

    /// Write: as [`Galley::gfs_read_batched`].
    ///
    /// # Errors
    /// As there; `NoSpace`.
    pub async fn gfs_write_batched(
        &self,
        fork_id: ForkId,
        buf: impl Into<Memory<&[u8]>>,
        vector: &[Batch],
    ) -> Result<u64> {
        self.write_shape(fork_id, buf.into(), self.shaped(shape::batched(vector))?).await
    }

    /// Read. Parts of the fork, each with its place in memory, in any order. The bytes moved.
    ///
    /// # Errors
    /// `BadFile`, `Io`; `Invalid`: a shape, or a place outside the fork's offsets or the buffer.
    pub async fn gfs_read_listio(
        &self,
        fork_id: ForkId,
        buf: impl Into<Memory<&mut [u8]>>,
        list: &[ListEntry],
    ) -> Result<u64> {
        self.read_shape(fork_id, buf.into(), self.shaped(shape::listio(list))?).await
    }

    /// Write: as [`Galley::gfs_read_listio`].
    ///
    /// # Errors
    /// As there; `NoSpace`.
    pub async fn gfs_write_listio(
        &self,
        fork_id: ForkId,
        buf: impl Into<Memory<&[u8]>>,
        list: &[ListEntry],
    ) -> Result<u64> {
        self.write_shape(fork_id, buf.into(), self.shaped(shape::listio(list))?).await
    }

    pub(crate) fn shaped(&self, shape: Shaped) -> Result<Shape> {
        let shape = shape.map_err(|why| self.fail(Errno::Invalid, why.to_string()))?;
        self.check(&shape)?;
        Ok(shape)
    }

    fn check(&self, shape: &Shape) -> Result<()> {
        let words = match shape.file.bounds() {
            Some((first, _)) if first < 0 => {
                format!("the transfer reaches before the fork, to {first}")
            }
            _ if shape.len() > TRANSFER_BYTES_MAX => {
                format!("the transfer has {} bytes, and one call moves {TRANSFER_BYTES_MAX}", shape.len())
            }
            _ => return Ok(()),
        };
        Err(self.fail(Errno::Invalid, words))
    }

    async fn read_shape(&self, fork_id: ForkId, memory: Memory<&mut [u8]>, shape: Shape) -> Result<u64> {
        self.within(memory.bytes.len(), memory.origin, &shape.memory)?;
        let (bytes, origin) = (memory.bytes, memory.origin as i64);
        let put = |at: i64, run: &[u8]| {
            let to = (origin + at) as usize;
            bytes[to..to + run.len()].copy_from_slice(run);
        };
        self.read_runs(fork_id, &shape, put).await
    }

    async fn write_shape(&self, fork_id: ForkId, memory: Memory<&[u8]>, shape: Shape) -> Result<u64> {
        self.within(memory.bytes.len(), memory.origin, &shape.memory)?;
        let origin = memory.origin as i64;
        let get = |at: i64, run: &mut [u8]| {
            let from = (origin + at) as usize;
            run.copy_from_slice(&memory.bytes[from..from + run.len()]);
        };
        self.write_runs(fork_id, &shape, get).await
    }

    /// Read for a caller that keeps its memory by itself: `put` receives each run that the fork has, with its
    /// place in memory. The bytes moved.
    ///
    /// # Errors
    /// As [`Galley::gfs_read`].
    pub async fn read_runs(
        &self,
        fork_id: ForkId,
        shape: &Shape,
        put: impl FnMut(i64, &[u8]),
    ) -> Result<u64> {
        self.check(shape)?;
        let fork = self.fork(fork_id)?;
        let (packed, size) = self.fetch(&fork, shape).await?;
        self.scatter(shape, &packed, size, put)
    }

    /// Write for such a caller: `get` fills each run from its place in memory.
    ///
    /// # Errors
    /// As [`Galley::gfs_write`].
    pub async fn write_runs(
        &self,
        fork_id: ForkId,
        shape: &Shape,
        get: impl FnMut(i64, &mut [u8]),
    ) -> Result<u64> {
        let packed = self.packed(shape, get)?;
        self.write_packed(fork_id, shape, packed).await
    }

    /// The bytes of memory, packed in the order of the shape: for [`Galley::write_packed`].
    ///
    /// # Errors
    /// `Invalid`: the shape.
    pub fn packed(&self, shape: &Shape, get: impl FnMut(i64, &mut [u8])) -> Result<Bytes> {
        self.check(shape)?;
        self.gather(shape, get)
    }

    /// Write bytes that are packed already.
    ///
    /// # Errors
    /// As [`Galley::gfs_write`].
    pub async fn write_packed(&self, fork_id: ForkId, shape: &Shape, packed: Bytes) -> Result<u64> {
        self.check(shape)?;
        let fork = self.fork(fork_id)?;
        self.store(&fork, shape, packed).await
    }

    /// The packed bytes of a shape, and how far the fork reached.
    pub(crate) async fn fetch(&self, fork: &OpenedFork<V>, shape: &Shape) -> Result<(Bytes, u64)> {
        if shape.file.is_empty() {
            return Ok((Bytes::new(), 0));
        }
        let read = fork.file.read_pattern_sized(&shape.file).await;
        self.kept_of(|| fork.name.clone(), read)
    }

    /// Write packed bytes; how many.
    pub(crate) async fn store(&self, fork: &OpenedFork<V>, shape: &Shape, packed: Bytes) -> Result<u64> {
        let moved = packed.len() as u64;
        if shape.file.is_empty() {
            return Ok(0);
        }
        let written = fork.file.write_pattern(&shape.file, packed).await;
        self.kept_of(|| fork.name.clone(), written)?;
        Ok(moved)
    }

    /// Put packed bytes into memory; how many of them the fork has.
    pub(crate) fn scatter(
        &self,
        shape: &Shape,
        packed: &[u8],
        size: u64,
        mut put: impl FnMut(i64, &[u8]),
    ) -> Result<u64> {
        let (mut from, mut moved) = (0_usize, 0_u64);
        for run in self.pairing(shape)?.runs() {
            let there = size.saturating_sub(run.file as u64).min(run.len) as usize;
            let Some(source) = packed.get(from..from + there) else {
                return Err(self.fail(Errno::Io, "the file system returned fewer bytes than the pattern has"));
            };
            put(run.memory, source);
            from += run.len as usize;
            moved += there as u64;
        }
        Ok(moved)
    }

    /// The bytes of memory, packed in the order of the shape.
    pub(crate) fn gather(&self, shape: &Shape, mut get: impl FnMut(i64, &mut [u8])) -> Result<Bytes> {
        let mut packed = BytesMut::zeroed(shape.memory.len() as usize);
        let mut at = 0;
        for run in self.pairing(shape)?.runs() {
            let len = run.len as usize;
            get(run.memory, &mut packed[at..at + len]);
            at += len;
        }
        Ok(packed.freeze())
    }

    fn pairing<'a>(&self, shape: &'a Shape) -> Result<Pairing<'a>> {
        Pairing::new(&shape.file, &shape.memory)
            .map_err(|unequal| self.fail(Errno::Invalid, unequal.to_string()))
    }

    /// Whether a pattern of memory stays in the buffer.
    pub(crate) fn within(&self, len: usize, origin: usize, memory: &Pattern) -> Result<()> {
        let Some((first, end)) = memory.bounds() else { return Ok(()) };
        let (origin, len) = (origin as i128, len as i128);
        if origin + i128::from(first) < 0 || origin + i128::from(end) > len {
            let words = format!("the transfer reaches from {first} to {end} of a buffer of {len} bytes");
            return Err(self.fail(Errno::Invalid, words));
        }
        Ok(())
    }
}
