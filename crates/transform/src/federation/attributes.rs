//! Attributes of directories: the attributes on the first backend, with the latest times of all backends.

use super::Federated;
use shoal_proto::{Attr, Handle, Kind, SetAttr, Status};
use shoal_vfs::{Result, Vfs};

impl<V: Vfs> Federated<V> {
    /// The attributes of a directory, whose attributes on the first backend these are.
    pub(super) async fn merged(&self, mut attr: Attr) -> Result<Attr> {
        self.saw_directory(&attr);
        for (backend, folder) in self.folders(attr.handle).await? {
            match self.on(backend).getattr(folder).await {
                Ok(there) => {
                    attr.mtime = attr.mtime.max(there.mtime);
                    attr.ctime = attr.ctime.max(there.ctime);
                }
                // It was empty, and was removed.
                Err(error) if error.status == Status::Stale => self.forget(attr.handle),
                Err(error) => return Err(self.said(backend, error)),
            }
        }
        Ok(attr)
    }

    pub(super) async fn attributes_of(&self, object: Handle) -> Result<Attr> {
        let object = self.object(object, "getattr")?;
        let attr = self.on(object.backend).getattr(object.handle).await;
        self.seen(object, attr.map_err(|error| self.said(object.backend, error))?).await
    }

    pub(super) async fn set_attributes(&self, object: Handle, set: SetAttr) -> Result<Attr> {
        let object = self.object(object, "setattr")?;
        let changed = self.on(object.backend).setattr(object.handle, set.clone()).await;
        let attr = changed.map_err(|error| self.said(object.backend, error))?;
        if self.is_shared(object, attr.kind) && attr.kind == Kind::Directory {
            for (backend, folder) in self.folders(object.handle).await? {
                match self.on(backend).setattr(folder, set.clone()).await {
                    Err(error) if error.status == Status::Stale => self.forget(object.handle),
                    Err(error) => return Err(self.said(backend, error)),
                    Ok(_) => {}
                }
            }
        }
        self.seen(object, attr).await
    }

    /// Make the folders and objects of a backend durable.
    pub(super) async fn sync_own(&self, number: usize) -> Result<()> {
        let backend = &self.0.backends[number];
        let made = backend.entries_made.get();
        if backend.entries_durable.get() < made {
            let synced = async {
                backend.vfs.fsync_directory(backend.objects.get()).await?;
                backend.vfs.fsync_directory(backend.dirs.get()).await
            };
            synced.await.map_err(|error| self.said(number, error))?;
            backend.entries_durable.set(made.max(backend.entries_durable.get()));
        }
        Ok(())
    }

    /// An entry was made among the folders or objects of a backend.
    pub(super) fn made_own(&self, backend: usize) {
        let made = &self.0.backends[backend].entries_made;
        made.set(made.get() + 1);
    }

    /// Make a new entry of a directory on a backend durable, with all that leads to it: before an entry of
    /// another backend goes for it.
    pub(super) async fn sync_entry(&self, backend: usize, dir: Handle, folder: Handle) -> Result<()> {
        let synced = self.on(backend).fsync_directory(folder).await;
        synced.map_err(|error| self.said(backend, error))?;
        self.sync_own(backend).await?;
        if backend != 0 && self.has_new_id(dir) {
            self.first().fsync_directory(dir).await.map_err(|error| self.said(0, error))?;
            self.id_is_durable(dir);
        }
        Ok(())
    }

    /// Make a directory durable, on all backends that have entries of it.
    pub(super) async fn sync_directory(&self, dir: Handle) -> Result<()> {
        let object = self.object(dir, "fsync")?;
        // Objects and folders first: names lead to them.
        for backend in 0..self.count() {
            self.sync_own(backend).await?;
        }
        if object.shape == super::handles::Shape::Directory {
            for (backend, folder) in self.folders(object.handle).await? {
                match self.on(backend).fsync_directory(folder).await {
                    Err(error) if error.status == Status::Stale => self.forget(object.handle),
                    synced => synced.map_err(|error| self.said(backend, error))?,
                }
            }
        }
        self.on(object.backend)
            .fsync_directory(object.handle)
            .await
            .map_err(|error| self.said(object.backend, error))
    }
}
