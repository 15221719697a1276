//! [`Vfs`] for [`Local`]: its methods call those of the modules for names, attributes, files and listings.

use super::nodes::Nodes;
use super::{Local, LocalFile, LocalListing};
use crate::{Error, Opened, OpenedOf, RenameFlags, Result, Space, Vfs};
use bytes::Bytes;
use shoal_env::Instant;
use shoal_proto::op::XattrName;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights, SetAttr, Status};
use std::cell::RefMut;
use std::rc::Rc;
use std::time::Duration;

impl Local {
    /// The known objects. No borrow is held over a wait.
    pub(super) fn nodes(&self) -> RefMut<'_, Nodes> {
        self.0.nodes.borrow_mut()
    }
}

impl Local {
    /// Answers to names that kernels have received and not forgotten: 0 where no kernel refers to an object.
    pub fn references(&self) -> i64 {
        self.nodes().references()
    }
}

impl Vfs for Local {
    type File = LocalFile;
    type Listing = LocalListing;

    const HEARS_REFERENCES: bool = true;

    async fn lookup(&self, dir: Handle, name: &Name) -> Result<Attr> {
        self.find(dir, name).await
    }

    async fn getattr(&self, object: Handle) -> Result<Attr> {
        self.attributes(object).await
    }

    async fn setattr(&self, object: Handle, set: SetAttr) -> Result<Attr> {
        self.set_attributes(object, set).await
    }

    async fn truncate(&self, object: Handle, size: u64, kill_privileges: bool) -> Result<Attr> {
        self.cut(object, size, kill_privileges).await
    }

    async fn readlink(&self, object: Handle) -> Result<Bytes> {
        self.target(object).await
    }

    async fn create(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        exclusive: bool,
        rights: Rights,
    ) -> Result<(Attr, bool, LocalFile)> {
        self.make_file(dir, name, owner, exclusive, rights).await
    }

    async fn mknod(&self, dir: Handle, name: &Name, owner: Owner, kind: Kind, device: u64) -> Result<Attr> {
        self.make_node(dir, name, owner, kind, device).await
    }

    async fn mkdir(&self, dir: Handle, name: &Name, owner: Owner) -> Result<Attr> {
        self.make_directory(dir, name, owner).await
    }

    async fn symlink(&self, dir: Handle, name: &Name, owner: Owner, target: &[u8]) -> Result<Attr> {
        self.make_symlink(dir, name, owner, target).await
    }

    async fn link(&self, object: Handle, dir: Handle, name: &Name) -> Result<Attr> {
        self.make_link(object, dir, name).await
    }

    async fn unlink(&self, dir: Handle, name: &Name) -> Result<()> {
        self.remove_name(dir, name, false).await
    }

    async fn rmdir(&self, dir: Handle, name: &Name) -> Result<()> {
        self.remove_name(dir, name, true).await
    }

    async fn rename(
        &self,
        from: Handle,
        from_name: &Name,
        to: Handle,
        to_name: &Name,
        flags: RenameFlags,
    ) -> Result<()> {
        self.move_name((from, from_name), (to, to_name), flags).await
    }

    async fn open_past_pages(&self, object: Handle, rights: Rights) -> Result<OpenedOf<Local>> {
        let (file, facts) = self.open_file(object, rights, false).await?;
        Ok(Opened { file, size: Some(facts.size), has_name: facts.nlink > 0, counts: () })
    }

    async fn open_name(&self, dir: Handle, name: &Name, rights: Rights) -> Result<LocalFile> {
        let attr = self.lookup(dir, name).await?;
        match attr.kind {
            Kind::File => Ok(self.open_file(attr.handle, rights, true).await?.0),
            Kind::Symlink => Err(Error::new(Status::Loop, "open").of(attr.handle)),
            Kind::Directory => Err(Error::new(Status::IsDirectory, "open").of(attr.handle)),
            // An open of a FIFO would wait.
            _ => Err(Error::new(Status::NotSupported, "open").of(attr.handle)),
        }
    }

    fn has_open(&self, object: Handle) -> bool {
        self.nodes().has_open(object)
    }

    fn opendir(&self, dir: Handle, _patience: Duration) -> LocalListing {
        LocalListing::new(self, dir)
    }

    async fn names(&self, dir: Handle) -> Result<Vec<Name>> {
        self.names_of(dir).await
    }

    async fn getxattr(&self, object: Handle, name: &[u8]) -> Result<Bytes> {
        self.attribute(object, name).await
    }

    async fn setxattr(
        &self,
        object: Handle,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()> {
        self.set_attribute(object, name, value, create, replace).await
    }

    async fn listxattr(&self, object: Handle) -> Result<Vec<XattrName>> {
        self.attribute_names(object).await
    }

    async fn removexattr(&self, object: Handle, name: &[u8]) -> Result<()> {
        self.remove_attribute(object, name).await
    }

    async fn fsync_directory(&self, dir: Handle) -> Result<()> {
        self.at("fsync", dir, |host, node| host.sync_dir(node)).await
    }

    async fn sync_all(&self) -> Result<()> {
        self.sync_mounts().await
    }

    async fn statfs(&self) -> Result<Space> {
        let space = self.at("statfs", Handle::ROOT, |host, node| host.space(node)).await?;
        Ok(Space { total: space.total, available: space.available, objects: space.objects })
    }

    async fn is_of_this_machine(&self) -> Result<Option<bool>> {
        self.at("statfs", Handle::ROOT, |host, node| host.is_of_this_machine(node)).await.map(Some)
    }

    async fn close(&self) {
        self.0.is_closed.set(true);
        self.0.removals.take();
        self.nodes().clear();
    }

    fn deadline(&self) -> Instant {
        self.0.env.now() + self.0.options.timeout
    }

    fn call<F: Future<Output = ()> + Unpin + 'static>(
        &self,
        _thread: u32,
        work: F,
    ) -> impl Future<Output = ()> + use<F> + 'static {
        work
    }

    fn hear_removals(&self, listener: impl Fn(Handle) + 'static) {
        self.0.removals.replace(Some(Rc::new(listener)));
    }

    fn referred(&self, object: Handle) {
        self.nodes().referred(object);
    }

    fn forgotten(&self, object: Handle, answers: u64) {
        self.nodes().forgotten(object, answers);
    }
}

impl Local {
    /// Make the directory's file system durable, and those mounted below, of which something is known.
    async fn sync_mounts(&self) -> Result<()> {
        let mut synced = self.at("sync", Handle::ROOT, |host, node| host.sync_all(node)).await;
        let others = self.nodes().one_directory_per_mount();
        for other in others {
            let also = self.at("sync", other, |host, node| host.sync_all(node)).await;
            synced = synced.and(also);
        }
        synced
    }
}
