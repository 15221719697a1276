//! Operations on names and attributes: implements [`Vfs`] by calls of the backends.

use super::handles::{Object, Shape};
use super::{Federated, FederatedFile, FederatedListing};
use crate::container::is_folder_name;
use bytes::Bytes;
use shoal_env::Instant;
use shoal_proto::op::XattrName;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights, SetAttr, Status};
use shoal_vfs::{Error, Opened, OpenedOf, RenameFlags, Result, Space, Vfs};
use std::time::Duration;

/// Tries to open or make a file that others make and remove.
const TRIES_MAX: u32 = 100;

impl<V: Vfs> Federated<V> {
    async fn look(&self, dir: Handle, name: &Name) -> Result<Attr> {
        let within = self.object(dir, "lookup")?;
        if within.shape == Shape::Directory {
            let found = self.located(dir, name, "lookup").await?;
            return self.seen(found.object, found.attr).await;
        }
        let looked = self.on(within.backend).lookup(within.handle, name).await;
        let attr = looked.map_err(|error| self.said(within.backend, error))?;
        let found = self.inner(within, name, attr).await?;
        let (object, attr) = found.ok_or_else(|| Error::new(Status::NotFound, "lookup").of(dir))?;
        object.seen(attr)
    }

    async fn make_file(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        exclusive: bool,
        rights: Rights,
    ) -> Result<(Attr, bool, FederatedFile<V>)> {
        self.check_name(dir, name, "create")?;
        let within = self.object(dir, "create")?;
        if within.shape != Shape::Directory {
            let made = self.on(within.backend).create(within.handle, name, owner, exclusive, rights).await;
            let (attr, is_new, file) = made.map_err(|error| self.said(within.backend, error))?;
            let object = Federated::<V>::plain(within.backend, &attr);
            return Ok((object.seen(attr)?, is_new, FederatedFile::new(self, object, file)?));
        }
        for _ in 0..TRIES_MAX {
            match self.locate(dir, name).await? {
                Some(_) if exclusive => return Err(Error::new(Status::Exists, "create").of(dir)),
                Some(found) if found.attr.kind == Kind::File => {
                    let object = found.object;
                    let file = self.on(object.backend).open(object.handle, rights).await;
                    match file {
                        // Removed between the two.
                        Err(error) if error.status == Status::Stale => continue,
                        file => {
                            return Ok((
                                object.seen(found.attr)?,
                                false,
                                FederatedFile::new(self, object, file?)?,
                            ));
                        }
                    }
                }
                Some(found) => {
                    let status = match found.attr.kind {
                        Kind::Directory => Status::IsDirectory,
                        Kind::Symlink => Status::Loop,
                        _ => Status::NotSupported,
                    };
                    return Err(Error::new(status, "create").of(dir));
                }
                None => {}
            }
            let make = async |backend: usize, folder: Handle| {
                self.on(backend).create(folder, name, owner, true, rights).await
            };
            match self.make_at_place(dir, name, make).await {
                Err(error) if error.status == Status::Exists && !exclusive => {}
                made => {
                    let (backend, (attr, _, file)) = made?;
                    let object = Federated::<V>::plain(backend, &attr);
                    return Ok((object.seen(attr)?, true, FederatedFile::new(self, object, file)?));
                }
            }
        }
        let words = "others make and remove it all the time";
        Err(Error::new(Status::Busy, "create").of(dir).because(words))
    }

    /// Make an entry on the backend of its place. A folder there that keeps the name of a directory that is
    /// gone is removed.
    async fn make_at_place<T>(
        &self,
        dir: Handle,
        name: &Name,
        make: impl AsyncFn(usize, Handle) -> Result<T>,
    ) -> Result<(usize, T)> {
        let backend = self.place(name);
        let folder = self.folder_made(backend, dir).await?;
        match make(backend, folder).await {
            Err(error)
                if error.status == Status::Exists
                    && backend != 0
                    && self.locate(dir, name).await?.is_none()
                    && self.clear_place(backend, folder, name).await? =>
            {
                Ok((backend, make(backend, folder).await?))
            }
            made => Ok((backend, made.map_err(|error| self.said(backend, error))?)),
        }
    }

    async fn make_entry(
        &self,
        dir: Handle,
        name: &Name,
        op: &'static str,
        make: impl AsyncFn(usize, Handle) -> Result<Attr>,
    ) -> Result<Attr> {
        self.check_name(dir, name, op)?;
        let within = self.object(dir, op)?;
        if within.shape != Shape::Directory {
            let made = make(within.backend, within.handle).await;
            let attr = made.map_err(|error| self.said(within.backend, error))?;
            return Federated::<V>::plain(within.backend, &attr).seen(attr);
        }
        self.is_free_elsewhere(dir, name, op).await?;
        let (backend, attr) = self.make_at_place(dir, name, make).await?;
        let shape = if attr.kind == Kind::Directory { Shape::Item } else { Shape::Plain };
        Object { backend, handle: attr.handle, shape }.seen(attr)
    }

    async fn make_directory(&self, dir: Handle, name: &Name, owner: Owner) -> Result<Attr> {
        self.check_name(dir, name, "mkdir")?;
        let within = self.object(dir, "mkdir")?;
        let is_spread = within.shape == Shape::Item && is_folder_name(name);
        if is_spread {
            return self.make_folder(within, name, owner).await;
        }
        if within.shape != Shape::Directory || self.is_bin(dir) {
            let make =
                async |backend: usize, folder: Handle| self.on(backend).mkdir(folder, name, owner).await;
            return self.make_entry(dir, name, "mkdir", make).await;
        }
        self.is_free_elsewhere(dir, name, "mkdir").await?;
        let attr = self.first().mkdir(dir, name, owner).await.map_err(|error| self.said(0, error))?;
        if let Err(error) = self.keep_name(dir, name).await {
            let _ = self.first().rmdir(dir, name).await;
            return Err(error);
        }
        self.saw_at_root(dir, name, &attr);
        self.saw_directory(&attr);
        self.merged(attr).await
    }

    /// The object of a handle, and its backend.
    fn on_object(&self, handle: Handle, op: &'static str) -> Result<(&V, Object)> {
        let object = self.object(handle, op)?;
        Ok((self.on(object.backend), object))
    }
}

impl<V: Vfs> Vfs for Federated<V> {
    type File = FederatedFile<V>;
    type Listing = FederatedListing<V>;

    const HEARS_REFERENCES: bool = V::HEARS_REFERENCES;
    const HAS_LOCKS: bool = V::HAS_LOCKS;

    fn outlives_its_process(&self) -> bool {
        self.0.backends.iter().all(|backend| backend.vfs.outlives_its_process())
    }

    fn place_of(&self, name: &Name) -> u32 {
        self.place(name) as u32
    }

    async fn lookup(&self, dir: Handle, name: &Name) -> Result<Attr> {
        Box::pin(self.fresh(&[dir], async || self.look(dir, name).await)).await
    }

    async fn getattr(&self, object: Handle) -> Result<Attr> {
        Box::pin(self.attributes_of(object)).await
    }

    async fn setattr(&self, object: Handle, set: SetAttr) -> Result<Attr> {
        Box::pin(self.set_attributes(object, set)).await
    }

    async fn truncate(&self, object: Handle, size: u64, kill_privileges: bool) -> Result<Attr> {
        let (vfs, object) = self.on_object(object, "truncate")?;
        object.seen(vfs.truncate(object.handle, size, kill_privileges).await?)
    }

    async fn readlink(&self, object: Handle) -> Result<Bytes> {
        let (vfs, object) = self.on_object(object, "readlink")?;
        vfs.readlink(object.handle).await
    }

    async fn create(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        exclusive: bool,
        rights: Rights,
    ) -> Result<(Attr, bool, FederatedFile<V>)> {
        let make = async || self.make_file(dir, name, owner, exclusive, rights).await;
        Box::pin(self.fresh(&[dir], make)).await
    }

    async fn mknod(&self, dir: Handle, name: &Name, owner: Owner, kind: Kind, device: u64) -> Result<Attr> {
        let make = async |backend: usize, folder: Handle| {
            self.on(backend).mknod(folder, name, owner, kind, device).await
        };
        Box::pin(self.fresh(&[dir], async || self.make_entry(dir, name, "mknod", &make).await)).await
    }

    async fn mkdir(&self, dir: Handle, name: &Name, owner: Owner) -> Result<Attr> {
        Box::pin(self.fresh(&[dir], async || self.make_directory(dir, name, owner).await)).await
    }

    async fn symlink(&self, dir: Handle, name: &Name, owner: Owner, target: &[u8]) -> Result<Attr> {
        let make = async |backend: usize, folder: Handle| {
            self.on(backend).symlink(folder, name, owner, target).await
        };
        Box::pin(self.fresh(&[dir], async || self.make_entry(dir, name, "symlink", &make).await)).await
    }

    async fn link(&self, object: Handle, _: Handle, _: &Name) -> Result<Attr> {
        let words =
            "a name lies on the backend of its hash: hard links are not offered over several backends";
        Err(Error::new(Status::NotPermitted, "link").of(object).because(words))
    }

    async fn unlink(&self, dir: Handle, name: &Name) -> Result<()> {
        Box::pin(self.fresh(&[dir], async || self.remove_file(dir, name).await)).await
    }

    async fn rmdir(&self, dir: Handle, name: &Name) -> Result<()> {
        Box::pin(self.fresh(&[dir], async || self.remove_directory(dir, name).await)).await
    }

    async fn rename(
        &self,
        from: Handle,
        from_name: &Name,
        to: Handle,
        to_name: &Name,
        flags: RenameFlags,
    ) -> Result<()> {
        self.check_name(from, from_name, "rename")?;
        self.check_name(to, to_name, "rename")?;
        let work = async || self.move_name((from, from_name), (to, to_name), flags).await;
        Box::pin(self.fresh(&[from, to], work)).await
    }

    async fn open_past_pages(&self, object: Handle, rights: Rights) -> Result<OpenedOf<Federated<V>>> {
        let (vfs, object) = self.on_object(object, "open")?;
        let opened = vfs.open_past_pages(object.handle, rights).await;
        let Opened { file, size, has_name, counts } =
            opened.map_err(|error| self.said(object.backend, error))?;
        Ok(Opened { file: FederatedFile::new(self, object, file)?, size, has_name, counts })
    }

    fn has_open(&self, object: Handle) -> bool {
        self.on_object(object, "open").is_ok_and(|(vfs, object)| vfs.has_open(object.handle))
    }

    fn opendir(&self, dir: Handle, patience: Duration) -> FederatedListing<V> {
        FederatedListing::new(self, dir, patience)
    }

    async fn getxattr(&self, object: Handle, name: &[u8]) -> Result<Bytes> {
        let (vfs, object) = self.on_object(object, "getxattr")?;
        vfs.getxattr(object.handle, name).await
    }

    async fn setxattr(
        &self,
        object: Handle,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()> {
        let (vfs, object) = self.on_object(object, "setxattr")?;
        vfs.setxattr(object.handle, name, value, create, replace).await
    }

    async fn listxattr(&self, object: Handle) -> Result<Vec<XattrName>> {
        let (vfs, object) = self.on_object(object, "listxattr")?;
        vfs.listxattr(object.handle).await
    }

    async fn removexattr(&self, object: Handle, name: &[u8]) -> Result<()> {
        let (vfs, object) = self.on_object(object, "removexattr")?;
        vfs.removexattr(object.handle, name).await
    }

    async fn fsync_directory(&self, dir: Handle) -> Result<()> {
        Box::pin(self.sync_directory(dir)).await
    }

    async fn sync_all(&self) -> Result<()> {
        let mut synced = Ok(());
        for (number, backend) in self.0.backends.iter().enumerate() {
            let also = backend.vfs.sync_all().await.map_err(|error| self.said(number, error));
            synced = synced.and(also);
        }
        synced
    }

    async fn statfs(&self) -> Result<Space> {
        let mut all = Space::default();
        for (number, backend) in self.0.backends.iter().enumerate() {
            let space = backend.vfs.statfs().await.map_err(|error| self.said(number, error))?;
            all.total = all.total.saturating_add(space.total);
            all.available = all.available.saturating_add(space.available);
            all.objects = all.objects.saturating_add(space.objects);
        }
        Ok(all)
    }

    async fn close(&self) {
        for backend in &self.0.backends {
            backend.vfs.close().await;
        }
    }

    fn deadline(&self) -> Instant {
        self.first().deadline()
    }

    fn call<F: Future<Output = ()> + Unpin + 'static>(
        &self,
        thread: u32,
        work: F,
    ) -> impl Future<Output = ()> + use<V, F> + 'static {
        self.first().call(thread, work)
    }

    fn referred(&self, object: Handle) {
        if let Ok((vfs, object)) = self.on_object(object, "lookup") {
            vfs.referred(object.handle);
        }
    }

    fn forgotten(&self, object: Handle, answers: u64) {
        if let Ok((vfs, object)) = self.on_object(object, "lookup") {
            vfs.forgotten(object.handle, answers);
        }
    }
}
