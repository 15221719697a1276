//! An open file.

use crate::{Error, HeldLock, LockCall, LockOwner, LockRange, Result};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt, stream};
use shoal_pattern::Pattern;
use shoal_proto::{Allocation, Handle, Rights, Status};

/// An open file. Clones share it; it is open until the last clone is dropped or closed, and a file that is
/// removed meanwhile stays usable until then.
#[allow(async_fn_in_trait, reason = "a file system never leaves its thread")]
pub trait VfsFile: Clone + 'static {
    /// The facts, gathered at an open, by which it is decided whether a kernel's pages stay valid.
    type PageCounts: Default;

    /// Whether [`VfsFile::flush`] does anything.
    const REPORTS_CLOSES: bool = false;

    /// Whether it does anything for some of the files of one file system, and nothing for others.
    const MAY_REPORT_CLOSES: bool = Self::REPORTS_CLOSES;

    /// Reads under way at the same time, where patterns are read region by region.
    const READS_AT_ONCE: usize = 1;

    /// Whether it does anything for this file.
    fn reports_closes(&self) -> bool {
        Self::REPORTS_CLOSES
    }

    /// A program closes one of its descriptors of this open file, and receives the result.
    ///
    /// # Errors
    /// Errors that the file system reports at a close.
    async fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// The file.
    fn handle(&self) -> Handle;

    /// The access that it was opened for.
    fn rights(&self) -> Rights;

    /// Another open of the same file with the same rights. An error of a lost write is reported to each.
    fn again(&self) -> Self;

    /// Read `len` bytes from `offset`; short only at the end of the file.
    ///
    /// # Errors
    /// `BadCapability`: it is not open for reading; errors of the file system.
    async fn read(&self, offset: u64, len: usize) -> Result<Bytes>;

    /// Write all of `data` at `offset`.
    ///
    /// # Errors
    /// `BadCapability`: it is not open for writing; `NoSpace`, `FileTooBig`; errors of the file system. A
    /// part may be written.
    async fn write(&self, offset: u64, data: Bytes) -> Result<()>;

    /// Append all of `data` at the end of the file, also while others append: whole, and at one place.
    /// Returns its offset.
    ///
    /// # Errors
    /// As [`VfsFile::write`].
    async fn append(&self, data: Bytes) -> Result<u64>;

    /// Make all data durable that was written through any open file of this file in this file system.
    ///
    /// # Errors
    /// `Io`: some of it was lost; said once to each open file.
    async fn fsync(&self) -> Result<()>;

    /// Drop what the file system and its servers have of it in memory and on a disk too: after an fsync the
    /// next reads come from disks. For measurements that begin cold.
    ///
    /// # Errors
    /// `NotSupported`: the file system, or a server of an older version, cannot.
    async fn drop_cache(&self) -> Result<()> {
        Err(Error::new(Status::NotSupported, "drop the cache").of(self.handle()))
    }

    /// Take the file's one lock without waiting; whether it was free. It is given back at the close, and when
    /// the process ends. Only programs that ask for it honour it.
    ///
    /// # Errors
    /// `NotSupported`: the file system has no locks.
    async fn hold_alone(&self) -> Result<bool> {
        Err(crate::Error::new(shoal_proto::Status::NotSupported, "hold alone").of(self.handle()))
    }

    /// Reserve space, make a hole, or zero a range.
    ///
    /// # Errors
    /// `NotSupported`, `NoSpace`, `FileTooBig`.
    async fn allocate(&self, offset: u64, len: u64, mode: Allocation) -> Result<()>;

    /// Close it. Dropping does the same without waiting, and without a report.
    ///
    /// # Errors
    /// Errors that the file system reports at the close.
    async fn close(self) -> Result<()>;

    /// Read the bytes of a pattern, packed. Bytes beyond the end of the file are zero.
    ///
    /// # Errors
    /// As [`VfsFile::read`]; `Invalid`: an offset is negative; `OverLimit`: the pattern is too long.
    async fn read_pattern(&self, pattern: &Pattern) -> Result<Bytes> {
        Ok(self.read_pattern_sized(pattern).await?.0)
    }

    /// The same, and how far the file reached at one moment of the read: the bytes of the pattern before that
    /// place were in the file, those after it are not to be counted. At most the pattern's end.
    ///
    /// # Errors
    /// As [`VfsFile::read_pattern`].
    async fn read_pattern_sized(&self, pattern: &Pattern) -> Result<(Bytes, u64)> {
        let mut packed = BytesMut::with_capacity(crate::read_len(pattern)?);
        let end = pattern.bounds().map_or(0, |(_, end)| end);
        let mut reached = u64::try_from(end).unwrap_or(0);
        let pattern = pattern.coalesce();
        let reads = pattern.regions().map(|region| async move {
            let (offset, len) = (crate::error::offset(region.offset)?, region.len as usize);
            Ok::<_, Error>((offset, len, self.read(offset, len).await?))
        });
        let mut reads = stream::iter(reads).buffered(Self::READS_AT_ONCE);
        while let Some((offset, len, read)) = reads.try_next().await? {
            if read.len() < len {
                // Where several reads met an end, the file may have grown between them.
                reached = reached.min(offset + read.len() as u64);
            }
            packed.extend_from_slice(&read);
            packed.resize(packed.len() + len - read.len(), 0);
        }
        Ok((packed.freeze(), reached))
    }

    /// Write packed bytes to the places of a pattern of equal length. Where it overlaps itself the later byte
    /// stays.
    ///
    /// # Errors
    /// As [`VfsFile::write`]; `Invalid`: an offset is negative, or the lengths differ.
    async fn write_pattern(&self, pattern: &Pattern, mut data: Bytes) -> Result<()> {
        if pattern.len() != data.len() as u64 {
            return Err(crate::error::unequal(pattern.len(), data.len()));
        }
        // Refused before a byte is written.
        pattern.bounds().map_or(Ok(0), |(first, _)| crate::error::offset(first))?;
        for region in pattern.regions() {
            self.write(crate::error::offset(region.offset)?, data.split_to(region.len as usize)).await?;
        }
        Ok(())
    }

    /// Write all of `data`; it is durable when this returns.
    ///
    /// # Errors
    /// As [`VfsFile::write`] and [`VfsFile::fsync`].
    async fn write_durable(&self, offset: u64, data: Bytes) -> Result<()> {
        self.write(offset, data).await?;
        self.fsync().await
    }

    /// Write bytes that come from a kernel's pages of the file.
    ///
    /// # Errors
    /// As [`VfsFile::write`].
    async fn write_pages(&self, offset: u64, data: Bytes) -> Result<()> {
        self.write(offset, data).await
    }

    /// From now on this open file shows what other processes published before, also where it would only at
    /// its next open.
    ///
    /// # Errors
    /// The file system below cannot be read.
    async fn refresh(&self) -> Result<()> {
        Ok(())
    }

    /// Lock a range, or wait for it; `false`: another owner is in the way, and the call does not wait. The
    /// lock replaces earlier ones of the owner there. An owner is one over all open files of this file here;
    /// its locks go with the last of those through which it locked. A wait has no time limit; a signal ends
    /// it.
    ///
    /// # Errors
    /// `NotSupported`: the file system leaves locks to the kernel ([`crate::Vfs::HAS_LOCKS`]); `Deadlock`:
    /// the wait would never end; `NoLocks`: the client has too many, or the owner lost one; `Interrupted`;
    /// `Stale`.
    async fn lock(&self, _call: &LockCall) -> Result<bool> {
        Err(Error::new(Status::NotSupported, "lock").of(self.handle()))
    }

    /// Give a range back, whatever of it the owner has.
    ///
    /// # Errors
    /// `NoLocks`: the lock was lost, and is given up now; errors of the file system.
    async fn unlock(&self, _owner: LockOwner, _range: LockRange) -> Result<()> {
        Err(Error::new(Status::NotSupported, "unlock").of(self.handle()))
    }

    /// The first lock of another owner in the way.
    ///
    /// # Errors
    /// As [`VfsFile::lock`].
    async fn lock_holder(&self, _call: &LockCall) -> Result<Option<HeldLock>> {
        Err(Error::new(Status::NotSupported, "getlk").of(self.handle()))
    }

    /// Whether an owner has, or asked for, locks of the file.
    fn has_locks(&self, _owner: LockOwner) -> bool {
        false
    }

    /// The kernel's pages of the file are read through this open file, until it is closed.
    fn reads_pages(&self) {}

    /// Whether the kernel's pages of the file stay valid over this open; otherwise the kernel drops them.
    /// Called once, right before the kernel receives the file.
    fn keeps_pages(&self, _counts: &Self::PageCounts) -> bool {
        false
    }

    /// A program uses this open file: the kernel has dropped the pages that it had to drop.
    fn has_forgotten_pages(&self) {}
}
