//! The non-blocking calls: `gfs_new_handle`, `gfs_nb_*`, `gfs_test`, `gfs_wait`.
//!
//! ```text
//!   idle ── gfs_nb_read… ──▶ under way ──▶ done ── gfs_wait ──▶ idle
//!                             (gfs_test: is it done?)
//! ```
//! A handle has one operation at a time: a second operation fails with `GFS_EBUSY` until `gfs_wait` has
//! returned, even if `gfs_test` has reported that the first operation is done. An impossible shape is
//! refused at once, and the handle stays idle. Without an operation `gfs_test` and `gfs_wait` fail with
//! `GFS_EINVAL`.

use crate::shape::{self, Shape, Shaped};
use crate::{Batch, Errno, ForkId, Galley, ListEntry, Result, SharedBuffer, Stride};
use shoal_env::local::Notify;
use shoal_vfs::Vfs;
use std::cell::RefCell;
use std::rc::Rc;

/// A handle of non-blocking operations. Clones are the same handle.
#[derive(Clone, Default)]
pub struct OperationHandle(Rc<Operation>);

#[derive(Default)]
struct Operation {
    stage: RefCell<Stage>,
    done: Notify,
}

#[derive(Default)]
enum Stage {
    #[default]
    Idle,
    UnderWay,
    Done(Result<u64>),
}

impl OperationHandle {
    /// Whether it has an operation that was not waited for.
    pub fn has_operation(&self) -> bool {
        !matches!(*self.0.stage.borrow(), Stage::Idle)
    }

    fn end(&self, result: Result<u64>) {
        *self.0.stage.borrow_mut() = Stage::Done(result);
        self.0.done.wake_all();
    }
}

impl<V: Vfs> Galley<V> {
    /// A handle. It is free when its last clone is dropped.
    pub fn gfs_new_handle(&self) -> OperationHandle {
        OperationHandle::default()
    }

    /// Whether the handle's operation is done.
    ///
    /// # Errors
    /// `Invalid`: it has none.
    pub fn gfs_test(&self, handle: &OperationHandle) -> Result<bool> {
        match &*handle.0.stage.borrow() {
            Stage::Idle => Err(self.fail(Errno::Invalid, "the handle has no operation")),
            Stage::UnderWay => Ok(false),
            Stage::Done(_) => Ok(true),
        }
    }

    /// Wait until the handle's operation is done; the bytes it moved. The handle can be used again.
    ///
    /// # Errors
    /// Those of the operation; `Invalid`: the handle has none.
    pub async fn gfs_wait(&self, handle: &OperationHandle) -> Result<u64> {
        loop {
            let done = handle.0.done.wait();
            let taken = handle.0.stage.replace(Stage::Idle);
            match taken {
                Stage::Idle => return Err(self.fail(Errno::Invalid, "the handle has no operation")),
                Stage::Done(result) => return result,
                Stage::UnderWay => drop(handle.0.stage.replace(Stage::UnderWay)),
            }
            done.await;
        }
    }

    /// Begin [`Galley::gfs_read`].
    ///
    /// # Errors
    /// `Busy`, `BadFile`, `Invalid`.
    pub fn gfs_nb_read(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        buf: &SharedBuffer,
        offset: u64,
        size: u64,
    ) -> Result<()> {
        self.begin_read(handle, fork_id, buf, shape::plain(offset, size))
    }

    /// Begin [`Galley::gfs_write`].
    ///
    /// # Errors
    /// `Busy`, `BadFile`, `Invalid`.
    pub fn gfs_nb_write(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        buf: &SharedBuffer,
        offset: u64,
        size: u64,
    ) -> Result<()> {
        self.begin_write(handle, fork_id, buf, shape::plain(offset, size))
    }

    /// Begin [`Galley::gfs_read_block`].
    ///
    /// # Errors
    /// `Busy`, `BadFile`, `Invalid`.
    pub fn gfs_nb_read_block(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        buf: &SharedBuffer,
        block: u64,
    ) -> Result<()> {
        self.begin_read(handle, fork_id, buf, shape::block(block))
    }

    /// Begin [`Galley::gfs_write_block`].
    ///
    /// # Errors
    /// `Busy`, `BadFile`, `Invalid`.
    pub fn gfs_nb_write_block(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        buf: &SharedBuffer,
        block: u64,
    ) -> Result<()> {
        self.begin_write(handle, fork_id, buf, shape::block(block))
    }

    /// Begin [`Galley::gfs_read_strided`].
    ///
    /// # Errors
    /// `Busy`, `BadFile`, `Invalid`.
    pub fn gfs_nb_read_strided(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        buf: &SharedBuffer,
        offset: u64,
        size: u64,
        f_stride: i64,
        m_stride: i64,
        quant: u64,
    ) -> Result<()> {
        self.begin_read(handle, fork_id, buf, shape::strided(offset, size, f_stride, m_stride, quant))
    }

    /// Begin [`Galley::gfs_write_strided`].
    ///
    /// # Errors
    /// `Busy`, `BadFile`, `Invalid`.
    pub fn gfs_nb_write_strided(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        buf: &SharedBuffer,
        offset: u64,
        size: u64,
        f_stride: i64,
        m_stride: i64,
        quant: u64,
    ) -> Result<()> {
        self.begin_write(handle, fork_id, buf, shape::strided(offset, size, f_stride, m_stride, quant))
    }

    /// Begin [`Galley::gfs_read_nested`].
    ///
    /// # Errors
    /// `Busy`, `BadFile`, `Invalid`.
    pub fn gfs_nb_read_nested(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        buf: &SharedBuffer,
        offset: u64,
        size: u64,
        list: &[Stride],
    ) -> Result<()> {
        self.begin_read(handle, fork_id, buf, shape::nested(offset, size, list))
    }

    /// Begin [`Galley::gfs_write_nested`].
    ///
    /// # Errors
    /// `Busy`, `BadFile`, `Invalid`.
    pub fn gfs_nb_write_nested(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        buf: &SharedBuffer,
        offset: u64,
        size: u64,
        list: &[Stride],
    ) -> Result<()> {
        self.begin_write(handle, fork_id, buf, shape::nested(offset, size, list))
    }

    /// Begin [`Galley::gfs_read_batched`].
    ///
    /// # Errors
    /// `Busy`, `BadFile`, `Invalid`.
    pub fn gfs_nb_read_batched(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        buf: &SharedBuffer,
        vector: &[Batch],
    ) -> Result<()> {
        self.begin_read(handle, fork_id, buf, shape::batched(vector))
    }

    /// Begin [`Galley::gfs_write_batched`].
    ///
    /// # Errors
    /// `Busy`, `BadFile`, `Invalid`.
    pub fn gfs_nb_write_batched(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        buf: &SharedBuffer,
        vector: &[Batch],
    ) -> Result<()> {
        self.begin_write(handle, fork_id, buf, shape::batched(vector))
    }

    /// Begin [`Galley::gfs_read_listio`].
    ///
    /// # Errors
    /// `Busy`, `BadFile`, `Invalid`.
    pub fn gfs_nb_read_listio(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        buf: &SharedBuffer,
        list: &[ListEntry],
    ) -> Result<()> {
        self.begin_read(handle, fork_id, buf, shape::listio(list))
    }

    /// Begin [`Galley::gfs_write_listio`].
    ///
    /// # Errors
    /// `Busy`, `BadFile`, `Invalid`.
    pub fn gfs_nb_write_listio(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        buf: &SharedBuffer,
        list: &[ListEntry],
    ) -> Result<()> {
        self.begin_write(handle, fork_id, buf, shape::listio(list))
    }

    fn begin_read(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        buf: &SharedBuffer,
        shape: Shaped,
    ) -> Result<()> {
        self.is_idle(handle)?;
        let (fork, shape) = (self.fork(fork_id)?, self.shaped(shape)?);
        self.within(buf.0.borrow().len(), buf.1, &shape.memory)?;
        let (galley, buf) = (self.clone(), buf.clone());
        self.begin(handle, async move {
            let (packed, size) = galley.fetch(&fork, &shape).await?;
            let (mut bytes, origin) = (buf.0.borrow_mut(), buf.1 as i64);
            galley.scatter(&shape, &packed, size, |at, run| {
                let to = (origin + at) as usize;
                bytes[to..to + run.len()].copy_from_slice(run);
            })
        });
        Ok(())
    }

    fn begin_write(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        buf: &SharedBuffer,
        shape: Shaped,
    ) -> Result<()> {
        self.is_idle(handle)?;
        let (fork, shape) = (self.fork(fork_id)?, self.shaped(shape)?);
        self.within(buf.0.borrow().len(), buf.1, &shape.memory)?;
        let (bytes, origin) = (buf.0.borrow(), buf.1 as i64);
        let packed = self.gather(&shape, |at, run| {
            let from = (origin + at) as usize;
            run.copy_from_slice(&bytes[from..from + run.len()]);
        })?;
        drop(bytes);
        let galley = self.clone();
        self.begin(handle, async move { galley.store(&fork, &shape, packed).await });
        Ok(())
    }

    fn is_idle(&self, handle: &OperationHandle) -> Result<()> {
        match *handle.0.stage.borrow() {
            Stage::Idle => Ok(()),
            _ => Err(self.fail(Errno::Busy, "the handle has an operation that was not waited for")),
        }
    }

    /// Begin an operation of a caller that keeps its memory by itself ([`Galley::read_runs`]). Errors that
    /// are known at once are returned at once.
    ///
    /// # Errors
    /// `Busy`, `BadFile`, `Invalid`.
    pub fn begin_runs(
        &self,
        handle: &OperationHandle,
        fork_id: ForkId,
        shape: Shaped,
        work: impl AsyncFnOnce(Galley<V>, Shape) -> Result<u64> + 'static,
    ) -> Result<()> {
        self.is_idle(handle)?;
        self.fork(fork_id)?;
        let shape = self.shaped(shape)?;
        let galley = self.clone();
        self.begin(handle, async move { work(galley, shape).await });
        Ok(())
    }

    fn begin(&self, handle: &OperationHandle, work: impl Future<Output = Result<u64>> + 'static) {
        *handle.0.stage.borrow_mut() = Stage::UnderWay;
        let handle = handle.clone();
        // Dropping the task lets it continue.
        drop(self.0.env.spawn("galley", async move { handle.end(work.await) }));
    }
}
