//! An open file, either of the file system below or of a domain.
//!
//! **Locks of a file in a domain are locks of an object of the file system below**, so they hold over all
//! mounts. For a file in a directory of containers this object is the access record of the container. For
//! all files of a composed directory it is the first physical file: each file has a range of its offsets,
//! beyond all offsets that hold bytes. By chance two files may have the same range, with a probability of 1
//! in 536 million; then their locks exclude each other. In a composed directory a lock covers bytes below 2
//! GiB, or reaches to the end of the file: others are refused.
//!
//! **With a lock a process sees all bytes that other processes wrote before they released the lock.** When a
//! lock is granted, this process reads what others published. Before it releases a lock, it publishes what
//! it wrote.

use super::domain::{Domain, Layout};
use super::handles::Reference;
use crate::composed::ComposedFile;
use crate::container::{ContainerFile, record_name};
use bytes::Bytes;
use shoal_pattern::Pattern;
use shoal_proto::{Allocation, Handle, LockOwner, LockRange, Name, Rights, Status};
use shoal_vfs::{AnyVfs, Error, HeldLock, LockCall, Result, Vfs, VfsFile};
use std::cell::RefCell;
use std::rc::Rc;

/// Where the ranges of locks begin in a physical file, how many there are, and how long each is.
const RANGES: (u64, u64, u64) = (1 << 61, 1 << 29, 1 << 32);
/// Locks of bytes end here in a range.
const LOCKED_BYTES_MAX: u64 = RANGES.2 / 2;

/// An open file of [`Followed`](super::Followed).
pub enum FollowedFile<B: Vfs> {
    /// Of the file system below.
    Plain(B::File),
    /// In a directory of containers.
    Container(Inside<B, ContainerFile<AnyVfs>>),
    /// In a composed directory.
    Composed(Inside<B, ComposedFile<AnyVfs>>),
}

/// A file of a domain, which stays open as long as the file.
pub struct Inside<B: Vfs, F> {
    file: F,
    domain: Rc<Domain<B>>,
    handle: Handle,
    /// While it is open its handle is known.
    reference: Rc<Reference>,
    /// The object that its locks lie on, once it locked.
    locks_on: Rc<RefCell<Option<Rc<B::File>>>>,
}

impl<B: Vfs, F: Clone> Clone for Inside<B, F> {
    fn clone(&self) -> Inside<B, F> {
        self.with(self.file.clone())
    }
}

impl<B: Vfs, F> Inside<B, F> {
    /// A file of a domain, with its handle outside.
    pub(super) fn new(file: F, domain: &Rc<Domain<B>>, handle: Handle) -> Inside<B, F> {
        let reference = Rc::new(Reference::new(&domain.handles, handle));
        Inside { file, domain: domain.clone(), handle, reference, locks_on: Rc::default() }
    }

    fn with(&self, file: F) -> Inside<B, F> {
        let Inside { domain, handle, reference, locks_on, .. } = self;
        let (domain, reference, locks_on) = (domain.clone(), reference.clone(), locks_on.clone());
        Inside { file, domain, handle: *handle, reference, locks_on }
    }

    /// The object that the locks of this file lie on, if a file open here uses it.
    fn locked_on(&self, inner: Handle) -> Option<Rc<B::File>> {
        let own = self.locks_on.borrow().clone();
        own.or_else(|| self.domain.locks.borrow().get(&inner)?.upgrade())
    }

    /// The same, opened if it is not open. `dir`, `name`: where it is.
    async fn lock_on(&self, inner: Handle, dir: Handle, name: &Name) -> Result<Rc<B::File>> {
        if let Some(known) = self.locked_on(inner) {
            self.locks_on.replace(Some(known.clone()));
            return Ok(known);
        }
        let over = &self.domain.over;
        let opened = match over.open_name(dir, name, Rights::READ | Rights::WRITE).await {
            // A reader may take locks that others have too.
            Err(error) if matches!(error.status, Status::AccessDenied | Status::ReadOnly) => {
                over.open_name(dir, name, Rights::READ).await?
            }
            opened => opened?,
        };
        let opened = self.locked_on(inner).unwrap_or_else(|| Rc::new(opened));
        let mut locks = self.domain.locks.borrow_mut();
        locks.retain(|_, file| file.strong_count() > 0);
        locks.insert(inner, Rc::downgrade(&opened));
        self.locks_on.replace(Some(opened.clone()));
        Ok(opened)
    }
}

/// A range of a file's bytes, in the file's range of a physical file.
fn moved(range: LockRange, object: Handle) -> Result<LockRange> {
    let begin = RANGES.0 + object.0 % RANGES.1 * RANGES.2;
    let is_open = range.last >= i64::MAX as u64;
    let last = if is_open { RANGES.2 - 1 } else { range.last };
    if range.first >= LOCKED_BYTES_MAX || (!is_open && last >= LOCKED_BYTES_MAX) {
        let words = "in a composed directory locks are of bytes before 2 GiB, or to the end of the file";
        return Err(Error::new(Status::NoLocks, "lock").because(words));
    }
    Ok(LockRange { first: begin + range.first, last: begin + last })
}

/// The range of a file that a lock in the physical file is of.
fn moved_back(range: LockRange) -> LockRange {
    let within = |at: u64| at.saturating_sub(RANGES.0) % RANGES.2;
    let last = within(range.last);
    LockRange { first: within(range.first), last: if last == RANGES.2 - 1 { u64::MAX } else { last } }
}

impl<B: Vfs> Inside<B, ContainerFile<AnyVfs>> {
    async fn locks(&self) -> Result<Rc<B::File>> {
        let inner = self.file.handle();
        self.lock_on(inner, inner, &record_name()).await
    }

    async fn lock(&self, call: &LockCall) -> Result<bool> {
        if !self.locks().await?.lock(call).await? {
            return Ok(false);
        }
        self.file.refreshed().await?;
        Ok(true)
    }
}

impl<B: Vfs> Inside<B, ComposedFile<AnyVfs>> {
    async fn locks(&self) -> Result<Rc<B::File>> {
        let name = Name::new(b"blocks.0").map_err(|status| Error::new(status, "lock"))?;
        self.lock_on(Handle::ROOT, self.domain.root, &name).await
    }

    fn call(&self, call: &LockCall) -> Result<LockCall> {
        Ok(LockCall { range: moved(call.range, self.file.handle())?, ..*call })
    }

    async fn lock(&self, call: &LockCall) -> Result<bool> {
        let moved = self.call(call)?;
        if !self.locks().await?.lock(&moved).await? {
            return Ok(false);
        }
        if let Layout::Composed(vfs) = &self.domain.layout {
            vfs.refreshed().await?;
        }
        Ok(true)
    }
}

impl<B: Vfs> Clone for FollowedFile<B> {
    fn clone(&self) -> FollowedFile<B> {
        match self {
            FollowedFile::Plain(file) => FollowedFile::Plain(file.clone()),
            FollowedFile::Container(inside) => FollowedFile::Container(inside.clone()),
            FollowedFile::Composed(inside) => FollowedFile::Composed(inside.clone()),
        }
    }
}

/// Do the same with each kind of file.
macro_rules! in_file {
    ($of:expr, $file:ident => $work:expr) => {
        match $of {
            FollowedFile::Plain($file) => $work,
            FollowedFile::Container(Inside { file: $file, .. }) => $work,
            FollowedFile::Composed(Inside { file: $file, .. }) => $work,
        }
    };
}

impl<B: Vfs> VfsFile for FollowedFile<B> {
    type PageCounts = <B::File as VfsFile>::PageCounts;

    const REPORTS_CLOSES: bool = B::File::REPORTS_CLOSES;
    const MAY_REPORT_CLOSES: bool = true;

    fn reports_closes(&self) -> bool {
        in_file!(self, file => file.reports_closes())
    }

    async fn flush(&self) -> Result<()> {
        in_file!(self, file => file.flush().await)
    }

    fn handle(&self) -> Handle {
        match self {
            FollowedFile::Plain(file) => file.handle(),
            FollowedFile::Container(inside) => inside.handle,
            FollowedFile::Composed(inside) => inside.handle,
        }
    }

    fn rights(&self) -> Rights {
        in_file!(self, file => file.rights())
    }

    fn again(&self) -> FollowedFile<B> {
        match self {
            FollowedFile::Plain(file) => FollowedFile::Plain(file.again()),
            FollowedFile::Container(inside) => FollowedFile::Container(inside.with(inside.file.again())),
            FollowedFile::Composed(inside) => FollowedFile::Composed(inside.with(inside.file.again())),
        }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        in_file!(self, file => file.read(offset, len).await)
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        in_file!(self, file => file.write(offset, data).await)
    }

    async fn append(&self, data: Bytes) -> Result<u64> {
        in_file!(self, file => file.append(data).await)
    }

    async fn fsync(&self) -> Result<()> {
        in_file!(self, file => file.fsync().await)
    }

    async fn refresh(&self) -> Result<()> {
        in_file!(self, file => file.refresh().await)
    }

    async fn drop_cache(&self) -> Result<()> {
        in_file!(self, file => file.drop_cache().await)
    }

    async fn hold_alone(&self) -> Result<bool> {
        in_file!(self, file => file.hold_alone().await)
    }

    async fn allocate(&self, offset: u64, len: u64, mode: Allocation) -> Result<()> {
        in_file!(self, file => file.allocate(offset, len, mode).await)
    }

    async fn close(self) -> Result<()> {
        match self {
            FollowedFile::Plain(file) => file.close().await,
            FollowedFile::Container(Inside { file, domain, .. }) => {
                let closed = file.close().await;
                drop(domain);
                closed
            }
            FollowedFile::Composed(Inside { file, domain, .. }) => {
                let closed = file.close().await;
                drop(domain);
                closed
            }
        }
    }

    async fn read_pattern(&self, pattern: &Pattern) -> Result<Bytes> {
        in_file!(self, file => file.read_pattern(pattern).await)
    }

    async fn read_pattern_sized(&self, pattern: &Pattern) -> Result<(Bytes, u64)> {
        in_file!(self, file => file.read_pattern_sized(pattern).await)
    }

    async fn write_pattern(&self, pattern: &Pattern, data: Bytes) -> Result<()> {
        in_file!(self, file => file.write_pattern(pattern, data).await)
    }

    async fn write_durable(&self, offset: u64, data: Bytes) -> Result<()> {
        in_file!(self, file => file.write_durable(offset, data).await)
    }

    async fn write_pages(&self, offset: u64, data: Bytes) -> Result<()> {
        in_file!(self, file => file.write_pages(offset, data).await)
    }

    async fn lock(&self, call: &LockCall) -> Result<bool> {
        match self {
            FollowedFile::Plain(file) => file.lock(call).await,
            FollowedFile::Container(inside) => Box::pin(inside.lock(call)).await,
            FollowedFile::Composed(inside) => Box::pin(inside.lock(call)).await,
        }
    }

    async fn unlock(&self, owner: LockOwner, range: LockRange) -> Result<()> {
        match self {
            FollowedFile::Plain(file) => file.unlock(owner, range).await,
            // The bytes for which `write` returned are in the logs.
            FollowedFile::Container(inside) => match inside.locked_on(inside.file.handle()) {
                Some(locks) => locks.unlock(owner, range).await,
                None => Ok(()),
            },
            FollowedFile::Composed(inside) => match inside.locked_on(Handle::ROOT) {
                Some(locks) => {
                    let published = inside.file.flush().await;
                    let given = locks.unlock(owner, moved(range, inside.file.handle())?).await;
                    published.and(given)
                }
                None => Ok(()),
            },
        }
    }

    async fn lock_holder(&self, call: &LockCall) -> Result<Option<HeldLock>> {
        match self {
            FollowedFile::Plain(file) => file.lock_holder(call).await,
            FollowedFile::Container(inside) => inside.locks().await?.lock_holder(call).await,
            FollowedFile::Composed(inside) => {
                let call = inside.call(call)?;
                let held = inside.locks().await?.lock_holder(&call).await?;
                Ok(held.map(|held| HeldLock { range: moved_back(held.range), ..held }))
            }
        }
    }

    fn has_locks(&self, owner: LockOwner) -> bool {
        let has = |locks: Option<Rc<B::File>>| locks.is_some_and(|locks| locks.has_locks(owner));
        match self {
            FollowedFile::Plain(file) => file.has_locks(owner),
            FollowedFile::Container(inside) => has(inside.locked_on(inside.file.handle())),
            FollowedFile::Composed(inside) => has(inside.locked_on(Handle::ROOT)),
        }
    }

    fn reads_pages(&self) {
        if let FollowedFile::Plain(file) = self {
            file.reads_pages();
        }
    }

    fn keeps_pages(&self, counts: &Self::PageCounts) -> bool {
        match self {
            FollowedFile::Plain(file) => file.keeps_pages(counts),
            _ => false,
        }
    }

    fn has_forgotten_pages(&self) {
        if let FollowedFile::Plain(file) = self {
            file.has_forgotten_pages();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_in_a_composed_directory_is_of_the_range_of_its_file_and_ends_before_2_gib() {
        let object = Handle(5 + RANGES.1);
        let bytes = LockRange { first: 10, last: 19 };
        let there = moved(bytes, object).unwrap();
        assert_eq!(
            there,
            LockRange { first: RANGES.0 + 5 * RANGES.2 + 10, last: RANGES.0 + 5 * RANGES.2 + 19 }
        );
        assert_eq!(moved_back(there), bytes);
        let whole = moved(LockRange::ALL, object).unwrap();
        assert_eq!(whole.last - whole.first, RANGES.2 - 1);
        assert_eq!(moved_back(whole), LockRange::ALL);
        let far = LockRange { first: 0, last: LOCKED_BYTES_MAX };
        assert_eq!(moved(far, object).unwrap_err().status, Status::NoLocks);
    }
}
