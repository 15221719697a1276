//! A directory of a file system, as a file system of its own: its root is that directory.
//!
//! Handles are those of the file system, except the handle of the root. `close` does nothing here: the file
//! system stays open. Listeners (for interrupts, for removals) are registered at the file system itself.

use bytes::Bytes;
use shoal_env::Instant;
use shoal_proto::op::XattrName;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights, SetAttr};
use shoal_vfs::{Listed, Listing, OpenedOf, RenameFlags, Result, Space, Vfs};
use std::time::Duration;

/// The file system below a directory.
#[derive(Clone)]
pub struct Beneath<B: Vfs> {
    pub(super) over: B,
    pub(super) dir: Handle,
}

impl<B: Vfs> Beneath<B> {
    /// The file system below `dir`.
    pub fn new(over: B, dir: Handle) -> Beneath<B> {
        Beneath { over, dir }
    }

    /// The handle below of one that is used here.
    fn below(&self, here: Handle) -> Handle {
        if here == Handle::ROOT { self.dir } else { here }
    }

    fn attr(&self, attr: Attr) -> Attr {
        seen(attr, self.dir)
    }
}

/// Attributes with the handles that are used here.
fn seen(mut attr: Attr, dir: Handle) -> Attr {
    if attr.handle == dir {
        (attr.handle, attr.parent) = (Handle::ROOT, Handle::ROOT);
    } else if attr.parent == dir {
        attr.parent = Handle::ROOT;
    }
    attr
}

/// A listing of a directory of [`Beneath`].
pub struct BeneathListing<B: Vfs> {
    listing: B::Listing,
    dir: Handle,
}

impl<B: Vfs> Listing for BeneathListing<B> {
    async fn next(&mut self, plus: bool) -> Result<Option<Listed>> {
        let Some(mut listed) = self.listing.next(plus).await? else { return Ok(None) };
        let attr = listed.entry.attr.take();
        listed.entry.attr = attr.map(|attr| seen(attr, self.dir));
        Ok(Some(listed))
    }

    fn seek(&mut self, place: u64) {
        self.listing.seek(place);
    }
}

impl<B: Vfs> Vfs for Beneath<B> {
    type File = B::File;
    type Listing = BeneathListing<B>;

    const HEARS_REFERENCES: bool = B::HEARS_REFERENCES;
    const HAS_LOCKS: bool = B::HAS_LOCKS;

    fn outlives_its_process(&self) -> bool {
        self.over.outlives_its_process()
    }

    async fn lookup(&self, dir: Handle, name: &Name) -> Result<Attr> {
        self.over.lookup(self.below(dir), name).await.map(|attr| self.attr(attr))
    }

    async fn getattr(&self, object: Handle) -> Result<Attr> {
        self.over.getattr(self.below(object)).await.map(|attr| self.attr(attr))
    }

    async fn setattr(&self, object: Handle, set: SetAttr) -> Result<Attr> {
        self.over.setattr(self.below(object), set).await.map(|attr| self.attr(attr))
    }

    async fn truncate(&self, object: Handle, size: u64, kill_privileges: bool) -> Result<Attr> {
        self.over.truncate(self.below(object), size, kill_privileges).await.map(|attr| self.attr(attr))
    }

    async fn readlink(&self, object: Handle) -> Result<Bytes> {
        self.over.readlink(self.below(object)).await
    }

    async fn create(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        exclusive: bool,
        rights: Rights,
    ) -> Result<(Attr, bool, B::File)> {
        self.over.create(self.below(dir), name, owner, exclusive, rights).await
    }

    async fn create_write(&self, dir: Handle, name: &Name, owner: Owner, data: Bytes) -> Result<Attr> {
        self.over.create_write(self.below(dir), name, owner, data).await
    }

    async fn mknod(&self, dir: Handle, name: &Name, owner: Owner, kind: Kind, device: u64) -> Result<Attr> {
        self.over.mknod(self.below(dir), name, owner, kind, device).await
    }

    async fn mkdir(&self, dir: Handle, name: &Name, owner: Owner) -> Result<Attr> {
        self.over.mkdir(self.below(dir), name, owner).await.map(|attr| self.attr(attr))
    }

    async fn symlink(&self, dir: Handle, name: &Name, owner: Owner, target: &[u8]) -> Result<Attr> {
        self.over.symlink(self.below(dir), name, owner, target).await
    }

    async fn link(&self, object: Handle, dir: Handle, name: &Name) -> Result<Attr> {
        self.over.link(self.below(object), self.below(dir), name).await
    }

    async fn unlink(&self, dir: Handle, name: &Name) -> Result<()> {
        self.over.unlink(self.below(dir), name).await
    }

    async fn rmdir(&self, dir: Handle, name: &Name) -> Result<()> {
        self.over.rmdir(self.below(dir), name).await
    }

    async fn rename(
        &self,
        from: Handle,
        from_name: &Name,
        to: Handle,
        to_name: &Name,
        flags: RenameFlags,
    ) -> Result<()> {
        self.over.rename(self.below(from), from_name, self.below(to), to_name, flags).await
    }

    async fn open(&self, object: Handle, rights: Rights) -> Result<B::File> {
        self.over.open(self.below(object), rights).await
    }

    async fn open_past_pages(&self, object: Handle, rights: Rights) -> Result<OpenedOf<B>> {
        self.over.open_past_pages(self.below(object), rights).await
    }

    async fn open_held(&self, object: Handle, rights: Rights) -> Result<B::File> {
        self.over.open_held(self.below(object), rights).await
    }

    async fn open_name(&self, dir: Handle, name: &Name, rights: Rights) -> Result<B::File> {
        self.over.open_name(self.below(dir), name, rights).await
    }

    fn has_open(&self, object: Handle) -> bool {
        self.over.has_open(self.below(object))
    }

    fn opendir(&self, dir: Handle, patience: Duration) -> BeneathListing<B> {
        BeneathListing { listing: self.over.opendir(self.below(dir), patience), dir: self.dir }
    }

    async fn getxattr(&self, object: Handle, name: &[u8]) -> Result<Bytes> {
        self.over.getxattr(self.below(object), name).await
    }

    async fn setxattr(
        &self,
        object: Handle,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()> {
        self.over.setxattr(self.below(object), name, value, create, replace).await
    }

    async fn listxattr(&self, object: Handle) -> Result<Vec<XattrName>> {
        self.over.listxattr(self.below(object)).await
    }

    async fn removexattr(&self, object: Handle, name: &[u8]) -> Result<()> {
        self.over.removexattr(self.below(object), name).await
    }

    async fn fsync_directory(&self, dir: Handle) -> Result<()> {
        self.over.fsync_directory(self.below(dir)).await
    }

    async fn sync_all(&self) -> Result<()> {
        self.over.sync_all().await
    }

    async fn statfs(&self) -> Result<Space> {
        self.over.statfs().await
    }

    /// The file system lives on.
    async fn close(&self) {}

    fn deadline(&self) -> Instant {
        self.over.deadline()
    }

    fn call<F: Future<Output = ()> + Unpin + 'static>(
        &self,
        thread: u32,
        work: F,
    ) -> impl Future<Output = ()> + use<B, F> + 'static {
        self.over.call(thread, work)
    }

    fn lists_attributes(&self) -> bool {
        self.over.lists_attributes()
    }

    fn referred(&self, object: Handle) {
        self.over.referred(self.below(object));
    }

    fn forgotten(&self, object: Handle, answers: u64) {
        self.over.forgotten(self.below(object), answers);
    }
}
