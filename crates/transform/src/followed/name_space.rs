//! Names and objects: [`Vfs`] of a file system whose layouts are followed.
//!
//! Each call looks at the handles that it is given. If they lie outside of domains, it makes the same call
//! of the file system below. If they lie in a domain, it makes the same call of the file system of the
//! domain. This second future is boxed, so that the futures of calls outside stay small.

use super::domain::{Layout, in_layout};
use super::file::Inside;
use super::{Followed, FollowedFile, FollowedListing, is_inside};
use bytes::Bytes;
use shoal_env::Instant;
use shoal_proto::op::XattrName;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights, SetAttr, Status};
use shoal_vfs::{Error, ForkedFile, NewFile, Opened, OpenedOf, RenameFlags, Result, Space, Vfs, VfsFile};
use std::rc::Rc;
use std::time::Duration;

/// A call of a domain's file system, about an object or a directory of it; the attributes seen outside.
macro_rules! attr_inside {
    ($self:ident, $object:expr, |$vfs:ident, $inner:ident| $work:expr) => {
        Box::pin(async {
            let (domain, $inner) = $self.enter($object).await?;
            let attr = in_layout!(domain, $vfs => $work.await)?;
            Ok($self.outside(&domain, attr))
        })
        .await
    };
}

/// The same with another result, which is the same outside.
macro_rules! inside {
    ($self:ident, $object:expr, |$vfs:ident, $inner:ident| $work:expr) => {
        Box::pin(async {
            let (domain, $inner) = $self.enter($object).await?;
            in_layout!(domain, $vfs => $work.await)
        })
        .await
    };
}

/// A file of a domain that was opened: `$opened` is it, `$file` where it lies in that.
macro_rules! file_inside {
    ($self:ident, $object:expr, |$vfs:ident, $inner:ident| $work:expr) => {
        Box::pin(async {
            let (domain, $inner) = $self.enter($object).await?;
            match &domain.layout {
                Layout::Container($vfs) => {
                    let file = $work.await?;
                    let handle = $self.handle(&domain, file.handle());
                    Ok(FollowedFile::Container(Inside::new(file, &domain, handle)))
                }
                Layout::Composed($vfs) => {
                    let file = $work.await?;
                    let handle = $self.handle(&domain, file.handle());
                    Ok(FollowedFile::Composed(Inside::new(file, &domain, handle)))
                }
            }
        })
        .await
    };
}

impl<B: Vfs> Followed<B> {
    async fn create_inside(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        exclusive: bool,
        rights: Rights,
    ) -> Result<(Attr, bool, FollowedFile<B>)> {
        let (domain, dir) = self.enter(dir).await?;
        let (attr, is_new, file) = match &domain.layout {
            Layout::Container(vfs) => {
                let (attr, is_new, file) = vfs.create(dir, name, owner, exclusive, rights).await?;
                let handle = self.handle(&domain, attr.handle);
                (attr, is_new, FollowedFile::Container(Inside::new(file, &domain, handle)))
            }
            Layout::Composed(vfs) => {
                let (attr, is_new, file) = vfs.create(dir, name, owner, exclusive, rights).await?;
                let handle = self.handle(&domain, attr.handle);
                (attr, is_new, FollowedFile::Composed(Inside::new(file, &domain, handle)))
            }
        };
        Ok((self.outside(&domain, attr), is_new, file))
    }

    async fn open_inside(&self, object: Handle, rights: Rights) -> Result<OpenedOf<Followed<B>>> {
        let (domain, inner) = self.enter(object).await?;
        macro_rules! opened {
            ($vfs:ident, $kind:ident) => {{
                let Opened { file, size, has_name, .. } = $vfs.open_past_pages(inner, rights).await?;
                let file = FollowedFile::$kind(Inside::new(file, &domain, object));
                Ok(Opened { file, size, has_name, counts: Default::default() })
            }};
        }
        match &domain.layout {
            Layout::Container(vfs) => opened!(vfs, Container),
            Layout::Composed(vfs) => opened!(vfs, Composed),
        }
    }

    fn plain(opened: OpenedOf<B>) -> OpenedOf<Followed<B>> {
        let Opened { file, size, has_name, counts } = opened;
        Opened { file: FollowedFile::Plain(file), size, has_name, counts }
    }
}

impl<B: Vfs> Vfs for Followed<B> {
    type File = FollowedFile<B>;
    type Listing = FollowedListing<B>;

    const HEARS_REFERENCES: bool = B::HEARS_REFERENCES;
    const HAS_LOCKS: bool = B::HAS_LOCKS;

    fn outlives_its_process(&self) -> bool {
        self.0.over.outlives_its_process()
    }

    async fn lookup(&self, dir: Handle, name: &Name) -> Result<Attr> {
        if self.is_outside(dir) {
            let attr = self.0.over.lookup(dir, name).await?;
            return self.seen(attr, Some(name)).await;
        }
        attr_inside!(self, dir, |vfs, dir| vfs.lookup(dir, name))
    }

    async fn getattr(&self, object: Handle) -> Result<Attr> {
        if !is_inside(object) {
            let attr = self.0.over.getattr(object).await?;
            return self.seen(attr, None).await;
        }
        attr_inside!(self, object, |vfs, object| vfs.getattr(object))
    }

    async fn setattr(&self, object: Handle, set: SetAttr) -> Result<Attr> {
        if !is_inside(object) {
            let attr = self.0.over.setattr(object, set).await?;
            return self.seen(attr, None).await;
        }
        attr_inside!(self, object, |vfs, object| vfs.setattr(object, set))
    }

    async fn truncate(&self, object: Handle, size: u64, kill_privileges: bool) -> Result<Attr> {
        if !is_inside(object) {
            return self.0.over.truncate(object, size, kill_privileges).await;
        }
        attr_inside!(self, object, |vfs, object| vfs.truncate(object, size, kill_privileges))
    }

    async fn readlink(&self, object: Handle) -> Result<Bytes> {
        if !is_inside(object) {
            return self.0.over.readlink(object).await;
        }
        inside!(self, object, |vfs, object| vfs.readlink(object))
    }

    async fn create(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        exclusive: bool,
        rights: Rights,
    ) -> Result<(Attr, bool, FollowedFile<B>)> {
        if self.is_outside(dir) {
            let (attr, is_new, file) = self.0.over.create(dir, name, owner, exclusive, rights).await?;
            return Ok((attr, is_new, FollowedFile::Plain(file)));
        }
        Box::pin(self.create_inside(dir, name, owner, exclusive, rights)).await
    }

    async fn create_write(&self, dir: Handle, name: &Name, owner: Owner, data: Bytes) -> Result<Attr> {
        if self.is_outside(dir) {
            return self.0.over.create_write(dir, name, owner, data).await;
        }
        attr_inside!(self, dir, |vfs, dir| vfs.create_write(dir, name, owner, data))
    }

    async fn mknod(&self, dir: Handle, name: &Name, owner: Owner, kind: Kind, device: u64) -> Result<Attr> {
        if self.is_outside(dir) {
            return self.0.over.mknod(dir, name, owner, kind, device).await;
        }
        attr_inside!(self, dir, |vfs, dir| vfs.mknod(dir, name, owner, kind, device))
    }

    async fn mkdir(&self, dir: Handle, name: &Name, owner: Owner) -> Result<Attr> {
        if self.is_outside(dir) {
            let attr = self.0.over.mkdir(dir, name, owner).await?;
            return self.seen(attr, Some(name)).await;
        }
        attr_inside!(self, dir, |vfs, dir| vfs.mkdir(dir, name, owner))
    }

    async fn mkforked(&self, dir: Handle, name: &Name, owner: Owner, forked: &ForkedFile) -> Result<Attr> {
        if self.is_outside(dir) {
            return self.0.over.mkforked(dir, name, owner, forked).await;
        }
        attr_inside!(self, dir, |vfs, dir| vfs.mkforked(dir, name, owner, forked))
    }

    async fn symlink(&self, dir: Handle, name: &Name, owner: Owner, target: &[u8]) -> Result<Attr> {
        if self.is_outside(dir) {
            return self.0.over.symlink(dir, name, owner, target).await;
        }
        attr_inside!(self, dir, |vfs, dir| vfs.symlink(dir, name, owner, target))
    }

    async fn link(&self, object: Handle, dir: Handle, name: &Name) -> Result<Attr> {
        if !is_inside(object) && self.is_outside(dir) {
            return self.0.over.link(object, dir, name).await;
        }
        Box::pin(self.link_across(object, dir, name)).await
    }

    async fn unlink(&self, dir: Handle, name: &Name) -> Result<()> {
        if self.is_outside(dir) {
            return self.0.over.unlink(dir, name).await;
        }
        inside!(self, dir, |vfs, dir| vfs.unlink(dir, name))
    }

    async fn make_many(&self, entries: &[(Handle, Name)], owner: Owner) -> Vec<Result<Attr>> {
        self.make_all(entries, owner).await
    }

    async fn create_many(&self, files: Vec<NewFile>, owner: Owner) -> Vec<Result<Attr>> {
        self.create_all(files, owner).await
    }

    async fn read_many(&self, entries: &[(Handle, Name, usize)]) -> Vec<Result<(Attr, Option<Bytes>)>> {
        self.read_all(entries).await
    }

    async fn unlink_many(&self, entries: &[(Handle, Name)]) -> Vec<Result<()>> {
        self.unlink_all(entries).await
    }

    async fn open_many(&self, entries: &[(Handle, Name)], rights: Rights) -> Vec<Result<FollowedFile<B>>> {
        self.open_all(entries, rights).await
    }

    async fn close_many(&self, files: Vec<FollowedFile<B>>) -> Vec<Result<()>> {
        self.close_all(files).await
    }

    fn subfile_servers(&self) -> usize {
        self.0.over.subfile_servers()
    }

    async fn rmdir(&self, dir: Handle, name: &Name) -> Result<()> {
        if self.is_outside(dir) {
            return self.remove_directory(dir, name).await;
        }
        inside!(self, dir, |vfs, dir| vfs.rmdir(dir, name))
    }

    async fn rmforked(&self, dir: Handle, name: &Name, file: Handle) -> Result<()> {
        if self.is_outside(dir) {
            return self.0.over.rmforked(dir, name, file).await;
        }
        Err(Error::new(Status::Invalid, "rmforked").of(file))
    }

    async fn rename(
        &self,
        from: Handle,
        from_name: &Name,
        to: Handle,
        to_name: &Name,
        flags: RenameFlags,
    ) -> Result<()> {
        if !self.is_outside(from) || !self.is_outside(to) {
            return Box::pin(self.rename_across((from, from_name), (to, to_name), flags)).await;
        }
        match self.0.over.rename(from, from_name, to, to_name, flags).await {
            // It would replace a directory that is empty for its users.
            Err(error) if error.status == Status::NotEmpty && !flags.exchange => {
                Box::pin(self.clear(to, to_name, error)).await?;
                self.0.over.rename(from, from_name, to, to_name, flags).await
            }
            renamed => renamed,
        }
    }

    async fn open(&self, object: Handle, rights: Rights) -> Result<FollowedFile<B>> {
        if !is_inside(object) {
            return self.0.over.open(object, rights).await.map(FollowedFile::Plain);
        }
        Ok(Box::pin(self.open_inside(object, rights)).await?.file)
    }

    async fn open_past_pages(&self, object: Handle, rights: Rights) -> Result<OpenedOf<Followed<B>>> {
        if !is_inside(object) {
            return self.0.over.open_past_pages(object, rights).await.map(Followed::<B>::plain);
        }
        Box::pin(self.open_inside(object, rights)).await
    }

    async fn open_pages(&self, object: Handle, rights: Rights) -> Result<OpenedOf<Followed<B>>> {
        if !is_inside(object) {
            return self.0.over.open_pages(object, rights).await.map(Followed::<B>::plain);
        }
        Box::pin(self.open_inside(object, rights)).await
    }

    async fn open_held(&self, object: Handle, rights: Rights) -> Result<FollowedFile<B>> {
        if !is_inside(object) {
            return self.0.over.open_held(object, rights).await.map(FollowedFile::Plain);
        }
        file_inside!(self, object, |vfs, object| vfs.open_held(object, rights))
    }

    async fn open_name(&self, dir: Handle, name: &Name, rights: Rights) -> Result<FollowedFile<B>> {
        if self.is_outside(dir) {
            return self.0.over.open_name(dir, name, rights).await.map(FollowedFile::Plain);
        }
        file_inside!(self, dir, |vfs, dir| vfs.open_name(dir, name, rights))
    }

    fn has_open(&self, object: Handle) -> bool {
        if !is_inside(object) {
            return self.0.over.has_open(object);
        }
        let Some((root, inner)) = self.known_place(object) else { return false };
        let slot = self.0.slots.borrow().peek(&root).cloned();
        let domain = slot.and_then(|slot| slot.open());
        domain.is_some_and(|domain| in_layout!(domain, vfs => vfs.has_open(inner)))
    }

    fn opendir(&self, dir: Handle, patience: Duration) -> FollowedListing<B> {
        FollowedListing::new(self, dir, patience)
    }

    async fn getxattr(&self, object: Handle, name: &[u8]) -> Result<Bytes> {
        if !is_inside(object) {
            return self.0.over.getxattr(object, name).await;
        }
        inside!(self, object, |vfs, object| vfs.getxattr(object, name))
    }

    async fn setxattr(
        &self,
        object: Handle,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()> {
        if !is_inside(object) {
            return self.0.over.setxattr(object, name, value, create, replace).await;
        }
        inside!(self, object, |vfs, object| vfs.setxattr(object, name, value, create, replace))
    }

    async fn listxattr(&self, object: Handle) -> Result<Vec<XattrName>> {
        if !is_inside(object) {
            return self.0.over.listxattr(object).await;
        }
        inside!(self, object, |vfs, object| vfs.listxattr(object))
    }

    async fn removexattr(&self, object: Handle, name: &[u8]) -> Result<()> {
        if !is_inside(object) {
            return self.0.over.removexattr(object, name).await;
        }
        inside!(self, object, |vfs, object| vfs.removexattr(object, name))
    }

    async fn fsync_directory(&self, dir: Handle) -> Result<()> {
        if self.is_outside(dir) {
            return self.0.over.fsync_directory(dir).await;
        }
        inside!(self, dir, |vfs, dir| vfs.fsync_directory(dir))
    }

    async fn sync_all(&self) -> Result<()> {
        let synced = self.sync_domains().await;
        synced.and(self.0.over.sync_all().await)
    }

    async fn statfs(&self) -> Result<Space> {
        self.0.over.statfs().await
    }

    async fn close(&self) {
        self.end_domains().await;
        self.0.over.close().await;
    }

    fn deadline(&self) -> Instant {
        self.0.over.deadline()
    }

    fn call<F: Future<Output = ()> + Unpin + 'static>(
        &self,
        thread: u32,
        work: F,
    ) -> impl Future<Output = ()> + use<B, F> + 'static {
        self.0.over.call(thread, work)
    }

    fn until<F: Future + Unpin>(&self, deadline: Instant, work: F) -> impl Future<Output = F::Output> {
        self.0.over.until(deadline, work)
    }

    fn place_of(&self, name: &Name) -> u32 {
        self.0.over.place_of(name)
    }

    fn lists_attributes(&self) -> bool {
        self.0.over.lists_attributes()
    }

    fn lists_ahead(&self) -> bool {
        self.0.over.lists_ahead()
    }

    fn hear_interrupts(&self, is_interrupted: impl Fn(u32) -> bool + 'static) {
        self.0.over.hear_interrupts(is_interrupted);
    }

    fn hear_directories(&self, listener: impl Fn(Handle, Instant, Option<&Attr>) + 'static) {
        let weak = Rc::downgrade(&self.0);
        self.0.over.hear_directories(move |dir, asked_at, attr| {
            // A root is seen with other attributes: they are to be requested.
            let is_root = weak.upgrade().is_some_and(|shared| shared.roots.borrow().contains_key(&dir));
            listener(dir, asked_at, attr.filter(|_| !is_root));
        });
    }

    fn hear_removals(&self, listener: impl Fn(Handle) + 'static) {
        let weak = Rc::downgrade(&self.0);
        self.0.over.hear_removals(move |object| {
            if let Some(shared) = weak.upgrade() {
                shared.is_removed(object);
            }
            listener(object);
        });
    }

    fn keep_pages(&self, listener: impl Fn(Handle) + 'static) {
        self.0.over.keep_pages(listener);
    }

    fn made_without_pages(&self, object: Handle) {
        if !is_inside(object) {
            self.0.over.made_without_pages(object);
        }
    }

    fn spoil_pages(&self, object: Handle) {
        if !is_inside(object) {
            self.0.over.spoil_pages(object);
        }
    }

    fn counts_references(object: Handle) -> bool {
        is_inside(object) || B::counts_references(object)
    }

    fn referred(&self, object: Handle) {
        match is_inside(object) {
            true => self.0.handles.borrow_mut().referred(object),
            false => self.0.over.referred(object),
        }
    }

    fn forgotten(&self, object: Handle, answers: u64) {
        match is_inside(object) {
            true => self.0.handles.borrow_mut().forgotten(object, answers),
            false => self.0.over.forgotten(object, answers),
        }
    }
}
