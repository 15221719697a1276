//! The operations on names: implements [`Vfs`] by calls of the file system below.

use super::{Container, ContainerFile, ContainerListing, attributes, names};
use bytes::Bytes;
use shoal_env::Instant;
use shoal_proto::op::XattrName;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights, SetAttr, Status};
use shoal_vfs::{Error, Opened, RenameFlags, Result, Space, Vfs};
use std::time::Duration;

const SET_GROUP_ID: u32 = 0o2000;
/// Tries to make or open a file that others make and remove.
const TRIES_MAX: u32 = 100;

mod renames;

impl<B: Vfs> Container<B> {
    /// An object below, as it is seen here.
    async fn seen(&self, attr: Attr) -> Result<Attr> {
        match self.0.is_container(&attr).await? {
            true => attributes::of(&self.0, &attr).await,
            false => Ok(attributes::seen(attr)),
        }
    }

    async fn check_name(&self, dir: Handle, name: &Name) -> Result<()> {
        self.0.is_directory(dir, "look up").await?;
        if dir == Handle::ROOT && *name == names::bin() {
            let words = "`.shoal` at the root is this program's own";
            return Err(Error::new(Status::NotPermitted, "create").of(dir).because(words));
        }
        Ok(())
    }

    /// The object of a name, and whether it is a container. One that another process replaces meanwhile is
    /// looked up anew.
    async fn container_of(&self, dir: Handle, name: &Name) -> Result<(Attr, bool)> {
        self.0.is_directory(dir, "lookup").await?;
        for _ in 0..TRIES_MAX {
            let attr = self.0.over.lookup(dir, name).await?;
            if let Some(is_container) = self.0.named(dir, name, &attr).await? {
                return Ok((attr, is_container));
            }
        }
        let words = "others replace it all the time";
        Err(Error::new(Status::Busy, "lookup").of(dir).because(words))
    }

    /// Whether a name leads to another object than this one.
    async fn is_replaced(&self, dir: Handle, name: &Name, was: &Attr) -> Result<bool> {
        let now = self.0.over.lookup(dir, name).await?;
        Ok((now.handle, now.btime) != (was.handle, was.btime))
    }

    /// Make a container aside, and give it its name.
    async fn make(&self, dir: Handle, name: &Name, owner: Owner) -> Result<Attr> {
        let shared = &self.0;
        let parent = shared.over.getattr(dir).await?;
        // It is made elsewhere: a set-group-id directory's group is given to it here.
        let gid = if parent.mode & SET_GROUP_ID != 0 { parent.gid } else { owner.gid };
        let owner = Owner { gid, ..owner };
        let aside = shared.draw_name("new", name)?;
        let folder = Owner { mode: attributes::directory_mode(owner.mode), ..owner };
        let made = match shared.over.mkdir(shared.bin().await?, &aside, folder).await {
            // `.shoal` was removed below: it is made again.
            Err(error) if matches!(error.status, Status::Stale | Status::NotFound) => {
                shared.bin.set(None);
                shared.over.mkdir(shared.bin().await?, &aside, folder).await
            }
            made => made,
        };
        if made.is_err() {
            // It may have been made all the same.
            shared.take_back_name(&aside).await;
        }
        let made = made?;
        let bin = shared.bin().await?;
        let text = Bytes::from_static(names::RECORD_TEXT.as_bytes());
        let named = async {
            shared.put(made.handle, &names::record(), owner, text).await?;
            shared.rename_new(bin, &aside, dir, name).await
        };
        if let Err(error) = named.await {
            shared.take_back(&aside, made.handle).await;
            // A rename into a directory that is gone has many errors.
            let is_gone = match shared.over.getattr(dir).await {
                Ok(attr) => attr.nlink == 0,
                Err(error) => error.status == Status::Stale,
            };
            return Err(if is_gone { Error::new(Status::Stale, "create").of(dir) } else { error });
        }
        shared.knows(&made, true);
        Ok(made)
    }

    /// Make a container, and open it.
    async fn make_open(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        rights: Rights,
    ) -> Result<(Attr, bool, ContainerFile<B>)> {
        let made = self.make(dir, name, owner).await?;
        let state = self.0.state(&made);
        state.is_new();
        let file = ContainerFile::new(state, rights);
        Ok((attributes::of(&self.0, &made).await?, true, file))
    }

    /// Make a container, and open it to read and write.
    pub(super) async fn create_below(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
    ) -> Result<(Attr, bool, ContainerFile<B>)> {
        self.make_open(dir, name, owner, Rights::READ | Rights::WRITE).await
    }

    /// Delete a container in the bin.
    pub(super) async fn delete_in_bin(&self, name: &Name, object: Handle) -> Result<()> {
        self.0.delete_named(name, object).await
    }

    async fn opened(&self, dir: &Attr, rights: Rights) -> Result<ContainerFile<B>> {
        let state = self.0.state(dir);
        // It counts as open before it is read: a removal meanwhile leaves it.
        let file = ContainerFile::new(state.clone(), rights);
        let refreshed = state.refresh().await;
        // The record goes first where another process deletes it: then what was read was not whole.
        self.0.record_of(dir.handle).await?;
        refreshed?;
        Ok(file)
    }

    /// An open for a user: it fails as that of a plain file does.
    async fn opened_by(&self, dir: &Attr, rights: Rights) -> Result<ContainerFile<B>> {
        self.may_open(dir.handle, rights).await?;
        match self.opened_by_group(dir.handle, rights).await {
            Some(file) => Ok(file),
            None => self.opened(dir, rights).await,
        }
    }

    /// Whether a file may be opened so. The access record has the file's mode and lies on its file system,
    /// so its open is allowed where the file's would be, and fails with the same error.
    pub(super) async fn may_open(&self, object: Handle, rights: Rights) -> Result<()> {
        // The owner of all files may read each.
        if !rights.contains(Rights::WRITE) && rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let record = self.0.record_of(object).await?;
        let file = self.0.over.open(record.handle, rights).await?;
        shoal_vfs::VfsFile::close(file).await
    }
}

impl<B: Vfs> Vfs for Container<B> {
    type File = ContainerFile<B>;
    type Listing = ContainerListing<B>;

    const HEARS_REFERENCES: bool = B::HEARS_REFERENCES;

    fn outlives_its_process(&self) -> bool {
        self.0.outlives_its_process()
    }

    async fn lookup(&self, dir: Handle, name: &Name) -> Result<Attr> {
        if dir == Handle::ROOT && *name == names::bin() {
            return Err(Error::new(Status::NotFound, "lookup").of(dir));
        }
        for _ in 0..TRIES_MAX {
            let (attr, is_container) = self.container_of(dir, name).await?;
            if !is_container {
                return Ok(attributes::seen(attr));
            }
            match attributes::of(&self.0, &attr).await {
                Err(error) if error.status == Status::Stale => {
                    if !self.is_replaced(dir, name, &attr).await? {
                        return Err(error);
                    }
                }
                seen => return seen,
            }
        }
        let words = "others replace it all the time";
        Err(Error::new(Status::Busy, "lookup").of(dir).because(words))
    }

    async fn getattr(&self, object: Handle) -> Result<Attr> {
        let attr = self.0.over.getattr(object).await?;
        self.seen(attr).await
    }

    async fn setattr(&self, object: Handle, set: SetAttr) -> Result<Attr> {
        match self.0.container(object).await? {
            Some(dir) => attributes::set(&self.0, &dir, set).await,
            None => self.0.over.setattr(object, set).await,
        }
    }

    async fn truncate(&self, object: Handle, size: u64, kill_privileges: bool) -> Result<Attr> {
        let Some(dir) = self.0.container(object).await? else {
            return self.0.over.truncate(object, size, kill_privileges).await;
        };
        if i64::try_from(size).is_err() {
            return Err(Error::new(Status::FileTooBig, "truncate").of(object));
        }
        // One that is open for writing here may be cut whatever its mode became.
        if self.0.state_in_use(object).is_none() {
            self.may_open(object, Rights::WRITE).await?;
        }
        let file = self.opened(&dir, Rights::READ | Rights::WRITE).await?;
        if !file.state().has_size(size) {
            file.truncate(size).await?;
        }
        let set = SetAttr { kill_privileges, ..SetAttr::default() };
        if kill_privileges {
            attributes::set(&self.0, &dir, set).await?;
        }
        let attr = attributes::of(&self.0, &dir).await?;
        shoal_vfs::VfsFile::close(file).await?;
        Ok(attr)
    }

    async fn readlink(&self, object: Handle) -> Result<Bytes> {
        self.0.over.readlink(object).await
    }

    async fn create(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        exclusive: bool,
        rights: Rights,
    ) -> Result<(Attr, bool, ContainerFile<B>)> {
        self.check_name(dir, name).await?;
        for _ in 0..TRIES_MAX {
            match self.make_open(dir, name, owner, rights).await {
                Ok(made) => return Ok(made),
                Err(error) if error.status == Status::Exists && !exclusive => {}
                Err(error) => return Err(error),
            }
            match self.container_of(dir, name).await {
                Ok((attr, true)) => {
                    let opened = async {
                        let file = self.opened_by(&attr, rights).await?;
                        Ok::<_, Error>((attributes::of(&self.0, &attr).await?, false, file))
                    };
                    match opened.await {
                        // Removed or replaced meanwhile.
                        Err(error) if error.status == Status::Stale => continue,
                        opened => return opened,
                    }
                }
                Ok((attr, false)) => {
                    let status = match attr.kind {
                        Kind::Directory => Status::IsDirectory,
                        Kind::Symlink => Status::Loop,
                        _ => Status::NotSupported,
                    };
                    return Err(Error::new(status, "create").of(attr.handle));
                }
                // Removed between the two.
                Err(error) if error.status == Status::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let words = "others make and remove it all the time";
        Err(Error::new(Status::Busy, "create").of(dir).because(words))
    }

    async fn mknod(&self, dir: Handle, name: &Name, owner: Owner, kind: Kind, device: u64) -> Result<Attr> {
        self.check_name(dir, name).await?;
        if kind != Kind::File {
            return self.0.over.mknod(dir, name, owner, kind, device).await;
        }
        let made = self.make(dir, name, owner).await?;
        attributes::of(&self.0, &made).await
    }

    async fn mkdir(&self, dir: Handle, name: &Name, owner: Owner) -> Result<Attr> {
        self.check_name(dir, name).await?;
        let attr = self.0.over.mkdir(dir, name, owner).await?;
        self.0.knows(&attr, false);
        Ok(attr)
    }

    async fn symlink(&self, dir: Handle, name: &Name, owner: Owner, target: &[u8]) -> Result<Attr> {
        self.check_name(dir, name).await?;
        self.0.over.symlink(dir, name, owner, target).await
    }

    async fn link(&self, object: Handle, dir: Handle, name: &Name) -> Result<Attr> {
        self.check_name(dir, name).await?;
        if self.0.container(object).await?.is_some() {
            let words = "a container has one name: hard links of files are not offered here";
            return Err(Error::new(Status::NotPermitted, "link").of(object).because(words));
        }
        self.0.over.link(object, dir, name).await
    }

    async fn unlink(&self, dir: Handle, name: &Name) -> Result<()> {
        let (attr, is_container) = self.container_of(dir, name).await?;
        match is_container {
            true => self.0.remove(dir, name, attr.handle).await,
            false => self.0.over.unlink(dir, name).await,
        }
    }

    async fn rmdir(&self, dir: Handle, name: &Name) -> Result<()> {
        self.check_name(dir, name).await?;
        let (attr, is_container) = self.container_of(dir, name).await?;
        if is_container {
            return Err(Error::new(Status::NotDirectory, "rmdir").of(attr.handle));
        }
        self.0.over.rmdir(dir, name).await
    }

    async fn rename(
        &self,
        from: Handle,
        from_name: &Name,
        to: Handle,
        to_name: &Name,
        flags: RenameFlags,
    ) -> Result<()> {
        self.check_name(from, from_name).await?;
        self.check_name(to, to_name).await?;
        for _ in 0..TRIES_MAX {
            match self.rename_once((from, from_name), (to, to_name), flags).await {
                // Another process changed the target between the look and the change.
                Err(error)
                    if !flags.no_replace
                        && !flags.exchange
                        && matches!(
                            error.status,
                            Status::NotEmpty | Status::Exists | Status::NotFound | Status::Stale
                        ) =>
                {
                    if self.target_is(to, to_name, Kind::Directory).await {
                        return Err(error);
                    }
                    // A source that is gone stays gone.
                    self.0.over.lookup(from, from_name).await?;
                }
                renamed => return renamed,
            }
        }
        let words = "others change the target all the time";
        Err(Error::new(Status::Busy, "rename").of(to).because(words))
    }

    async fn open_past_pages(&self, object: Handle, rights: Rights) -> Result<Opened<ContainerFile<B>, ()>> {
        let dir = self.0.over.getattr(object).await?;
        if !self.0.is_container(&dir).await? {
            let status = match dir.kind {
                // A directory is not opened so: it was a file, and another process is deleting it.
                Kind::Directory if !self.0.is_known_directory(&dir) => Status::Stale,
                Kind::Directory => Status::IsDirectory,
                // The container is gone, and its number below is another object's.
                _ if self.0.was_container(object) => Status::Stale,
                _ => Status::NotSupported,
            };
            let words = "it is no container: it was not made through this mount";
            return Err(Error::new(status, "open").of(object).because(words));
        }
        let file = self.opened_by(&dir, rights).await?;
        let (size, has_name) = (Some(file.state_size()), !file.is_removed());
        Ok(Opened { file, size, has_name, counts: () })
    }

    fn has_open(&self, object: Handle) -> bool {
        self.0.state_in_use(object).is_some_and(|state| state.opens.get() > 0)
    }

    fn opendir(&self, dir: Handle, patience: Duration) -> ContainerListing<B> {
        ContainerListing::new(self, dir, patience)
    }

    async fn getxattr(&self, object: Handle, name: &[u8]) -> Result<Bytes> {
        self.0.over.getxattr(object, name).await
    }

    async fn setxattr(
        &self,
        object: Handle,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()> {
        self.0.over.setxattr(object, name, value, create, replace).await
    }

    async fn listxattr(&self, object: Handle) -> Result<Vec<XattrName>> {
        self.0.over.listxattr(object).await
    }

    async fn removexattr(&self, object: Handle, name: &[u8]) -> Result<()> {
        self.0.over.removexattr(object, name).await
    }

    async fn fsync_directory(&self, dir: Handle) -> Result<()> {
        self.0.is_directory(dir, "fsync").await?;
        self.0.over.fsync_directory(dir).await
    }

    async fn sync_all(&self) -> Result<()> {
        self.0.over.sync_all().await
    }

    async fn statfs(&self) -> Result<Space> {
        self.0.over.statfs().await
    }

    async fn close(&self) {
        let ended = self.0.env.deadline(self.deadline(), self.0.removals_ended()).await;
        if ended.is_err() {
            tracing::warn!("removed containers are left in `.shoal`");
        }
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

    fn hear_interrupts(&self, is_interrupted: impl Fn(u32) -> bool + 'static) {
        self.0.over.hear_interrupts(is_interrupted);
    }

    fn referred(&self, object: Handle) {
        self.0.over.referred(object);
    }

    fn forgotten(&self, object: Handle, answers: u64) {
        self.0.over.forgotten(object, answers);
    }
}
