//! Locks that hold over all mounts.
//!
//! **A read under a lock returns the bytes that were written under the lock before it.** A lock drops the
//! kernel's pages and attributes of the file, and what the mount knows of it. Before an unlock the kernel
//! writes back the changes of mappings. So programs on two mounts that lock, read, write and unlock see
//! each other's bytes.

use super::{Errno, Fs, Opened, Result, Untrue};
use crate::adapter::locks::Asked;
use shoal_proto::Rights;
use shoal_vfs::{HeldLock, LockOwner, LockRange, Vfs, VfsFile};

impl<V: Vfs> Fs<V> {
    /// Lock a range of an open file, wait for it, or give it back.
    pub async fn set_lock(&self, fh: u64, asked: Asked) -> Result<()> {
        let opened = self.files.get(fh)?;
        match asked {
            Asked::Lock(call) => {
                if !opened.file().lock(&call).await? {
                    return Err(Errno::AGAIN);
                }
                if !self.drop_pages(&opened).await {
                    // Without fresh pages it is no lock.
                    let _ = opened.file().unlock(call.owner, call.range).await;
                    return Err(Errno::IO);
                }
                Ok(())
            }
            Asked::Unlock(owner, range) => self.unlock(&opened, owner, range).await,
        }
    }

    /// The first lock in the way.
    pub async fn lock_holder(&self, fh: u64, asked: Asked) -> Result<Option<HeldLock>> {
        match asked {
            Asked::Lock(call) => Ok(self.files.get(fh)?.file().lock_holder(&call).await?),
            Asked::Unlock(..) => Err(Errno::INVAL),
        }
    }

    /// A process closes a descriptor of the file: all record locks that it has of the file are gone (POSIX).
    pub async fn flush(&self, fh: u64, owner: u64) -> Result<()> {
        let (opened, owner) = (self.files.get(fh)?, LockOwner(owner));
        if opened.file().has_locks(owner) {
            // The bytes are written, also where the lock is not given back.
            let _ = self.unlock(&opened, owner, LockRange::ALL).await;
        }
        Ok(opened.file().flush().await?)
    }

    async fn unlock(&self, opened: &Opened<V::File>, owner: LockOwner, range: LockRange) -> Result<()> {
        if !opened.file().has_locks(owner) {
            return Ok(());
        }
        if opened.file().rights().contains(Rights::WRITE) {
            self.drop_pages(opened).await;
        }
        Ok(opened.file().unlock(owner, range).await?)
    }

    /// Have the kernel write back and drop all that it has of a file; whether it did in time.
    async fn drop_pages(&self, opened: &Opened<V::File>) -> bool {
        let object = opened.file().handle();
        self.changed(object);
        self.known().unsure_of_size(object);
        self.vfs.spoil_pages(object);
        // A page that a silent server is to fill does not keep the lock.
        let dropped = (self.invalidate)(object, Untrue::Pages);
        self.env.deadline(self.env.now() + super::DROP_PAGES_MAX, dropped).await.is_ok()
    }
}
