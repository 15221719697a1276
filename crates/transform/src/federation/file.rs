//! An open file of a backend.

use super::Federated;
use super::handles::Object;
use bytes::Bytes;
use shoal_pattern::Pattern;
use shoal_proto::{Allocation, Handle, Rights};
use shoal_vfs::{HeldLock, LockCall, LockOwner, LockRange, Result, Vfs, VfsFile};

/// An open file of [`Federated`](super::Federated): one of its backend.
pub struct FederatedFile<V: Vfs> {
    federated: Federated<V>,
    backend: usize,
    handle: Handle,
    file: V::File,
}

impl<V: Vfs> Clone for FederatedFile<V> {
    fn clone(&self) -> FederatedFile<V> {
        self.with(self.file.clone())
    }
}

impl<V: Vfs> FederatedFile<V> {
    pub(super) fn new(federated: &Federated<V>, object: Object, file: V::File) -> Result<FederatedFile<V>> {
        let (federated, backend) = (federated.clone(), object.backend);
        Ok(FederatedFile { federated, backend, handle: object.handle()?, file })
    }

    /// Another open of the same file.
    fn with(&self, file: V::File) -> FederatedFile<V> {
        let (federated, backend) = (self.federated.clone(), self.backend);
        FederatedFile { federated, backend, handle: self.handle, file }
    }

    /// An error that names the backend.
    fn said<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|error| self.federated.said(self.backend, error))
    }
}

impl<V: Vfs> VfsFile for FederatedFile<V> {
    type PageCounts = <V::File as VfsFile>::PageCounts;

    const REPORTS_CLOSES: bool = V::File::REPORTS_CLOSES;

    async fn flush(&self) -> Result<()> {
        self.file.flush().await
    }

    fn handle(&self) -> Handle {
        self.handle
    }

    fn rights(&self) -> Rights {
        self.file.rights()
    }

    fn again(&self) -> FederatedFile<V> {
        self.with(self.file.again())
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.said(self.file.read(offset, len).await)
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        self.said(self.file.write(offset, data).await)
    }

    async fn append(&self, data: Bytes) -> Result<u64> {
        self.said(self.file.append(data).await)
    }

    async fn fsync(&self) -> Result<()> {
        self.said(self.file.fsync().await)
    }

    async fn refresh(&self) -> Result<()> {
        self.said(self.file.refresh().await)
    }

    async fn drop_cache(&self) -> Result<()> {
        self.said(self.file.drop_cache().await)
    }

    async fn hold_alone(&self) -> Result<bool> {
        self.file.hold_alone().await
    }

    async fn allocate(&self, offset: u64, len: u64, mode: Allocation) -> Result<()> {
        self.said(self.file.allocate(offset, len, mode).await)
    }

    async fn close(self) -> Result<()> {
        self.file.close().await
    }

    async fn read_pattern(&self, pattern: &Pattern) -> Result<Bytes> {
        self.said(self.file.read_pattern(pattern).await)
    }

    async fn read_pattern_sized(&self, pattern: &Pattern) -> Result<(Bytes, u64)> {
        self.said(self.file.read_pattern_sized(pattern).await)
    }

    async fn write_pattern(&self, pattern: &Pattern, data: Bytes) -> Result<()> {
        self.said(self.file.write_pattern(pattern, data).await)
    }

    async fn write_durable(&self, offset: u64, data: Bytes) -> Result<()> {
        self.said(self.file.write_durable(offset, data).await)
    }

    async fn write_pages(&self, offset: u64, data: Bytes) -> Result<()> {
        self.said(self.file.write_pages(offset, data).await)
    }

    async fn lock(&self, call: &LockCall) -> Result<bool> {
        self.file.lock(call).await
    }

    async fn unlock(&self, owner: LockOwner, range: LockRange) -> Result<()> {
        self.file.unlock(owner, range).await
    }

    async fn lock_holder(&self, call: &LockCall) -> Result<Option<HeldLock>> {
        self.file.lock_holder(call).await
    }

    fn has_locks(&self, owner: LockOwner) -> bool {
        self.file.has_locks(owner)
    }
}
