//! Names: [`Vfs`] of a composed directory.

use super::change::FRESH;
use super::changes::Key;
use super::format::{Bind, Changed, Made, Op};
use super::marks::{Claimed, Number};
use super::{Composed, ComposedFile, ComposedListing, fails};
use bytes::Bytes;
use shoal_env::Instant;
use shoal_proto::op::XattrName;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights, SetAttr, Status};
use shoal_vfs::{Error, Opened, RenameFlags, Result, Space, Vfs};
use std::time::Duration;

/// The longest target of a symbolic link.
const TARGET_MAX: usize = 4095;
/// The longest value of an extended attribute.
const XATTR_MAX: usize = 64 << 10;

fn check_xattr(name: &[u8], object: Handle) -> Result<()> {
    let is_kept = [&b"user."[..], b"trusted.", b"security."].iter().any(|kind| name.starts_with(kind));
    if is_kept && name.len() <= 255 {
        return Ok(());
    }
    Err(fails(Status::NotSupported, "xattr", object))
}

impl<B: Vfs> Vfs for Composed<B> {
    type File = ComposedFile<B>;
    type Listing = ComposedListing<B>;

    async fn lookup(&self, dir: Handle, name: &Name) -> Result<Attr> {
        let shared = &self.0;
        shared.look_at(&[Key::of_name(dir.0, name), Key::of_object(dir.0)]).await?;
        shared.directory(dir, "lookup")?;
        match shared.find(dir, name) {
            Some(found) if shared.is_exact() => shared.look_at(&[Key::of_object(found.0)]).await?,
            None if !shared.is_exact() => shared.refresh_now().await?,
            _ => {}
        }
        shared.directory(dir, "lookup")?;
        shared.attr(shared.target(dir, name, "lookup")?, "lookup")
    }

    async fn getattr(&self, object: Handle) -> Result<Attr> {
        let shared = &self.0;
        let kind = shared.names.borrow().object(object.0).and_then(super::object::Object::kind);
        match kind {
            // Each name in it changes its times.
            None | Some(Kind::Directory) => shared.refresh_after(FRESH).await?,
            Some(_) => shared.look_at(&[Key::of_object(object.0)]).await?,
        }
        shared.attr(object, "getattr")
    }

    async fn setattr(&self, object: Handle, set: SetAttr) -> Result<Attr> {
        let shared = &self.0;
        shared.check_writable()?;
        let attr = shared.attr(object, "setattr")?;
        let changed = shared.changed(&attr, &set);
        if changed != Changed::default() {
            shared.change(vec![(object.0, Op::Attributes(changed))]).await?;
            shared.publish_of(object).await?;
        }
        shared.attr(object, "setattr")
    }

    async fn truncate(&self, object: Handle, size: u64, kill_privileges: bool) -> Result<Attr> {
        let shared = &self.0;
        shared.check_writable()?;
        match shared.alive(object, "truncate")? {
            Kind::File => {}
            Kind::Directory => return Err(fails(Status::IsDirectory, "truncate", object)),
            _ => return Err(fails(Status::Invalid, "truncate", object)),
        }
        if i64::try_from(size).is_err() {
            return Err(fails(Status::FileTooBig, "truncate", object));
        }
        let attr = shared.attr(object, "truncate")?;
        let kill = SetAttr { kill_privileges, ..SetAttr::default() };
        let mut ops = vec![(object.0, Op::Size(size))];
        let changed = shared.changed(&attr, &kill);
        if changed != Changed::default() {
            ops.push((object.0, Op::Attributes(changed)));
        }
        shared.change(ops).await?;
        shared.publish_of(object).await?;
        shared.attr(object, "truncate")
    }

    async fn readlink(&self, object: Handle) -> Result<Bytes> {
        self.0.alive(object, "readlink")?;
        let names = self.0.names.borrow();
        let origin = names.object(object.0).and_then(|found| found.origin.as_ref());
        let target = origin.filter(|origin| origin.kind == Kind::Symlink).map(|origin| origin.target.clone());
        target.ok_or_else(|| fails(Status::Invalid, "readlink", object))
    }

    async fn create(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        exclusive: bool,
        rights: Rights,
    ) -> Result<(Attr, bool, ComposedFile<B>)> {
        let shared = &self.0;
        shared.check_writable()?;
        let _turn = shared.naming.acquire(1).await;
        shared.directory(dir, "create")?;
        if shared.is_exact() {
            shared.look_at(&[Key::of_name(dir.0, name), Key::of_object(dir.0)]).await?;
        } else if shared.changes.is_some() {
            shared.refresh_now().await?;
        }
        shared.directory(dir, "create")?;
        let made = shared.made(dir, name, owner, Kind::File)?;
        let drawn = shared.draw_object(Kind::File);
        let number = Number::of(drawn, Kind::File);
        let (object, is_new, marked) = match shared.claim_name(dir.0, name, number, !exclusive).await? {
            Claimed::Own(marked) => (drawn, true, marked),
            _ if exclusive => return Err(fails(Status::Exists, "create", dir)),
            Claimed::Making(object) if !shared.is_known(object) => (object, false, None),
            // That process gives an object that is there one more name, or another one.
            Claimed::Making(object) | Claimed::Taken(object) => {
                let object = Handle(object);
                match shared.alive(object, "create")? {
                    Kind::File => {}
                    Kind::Directory => return Err(fails(Status::IsDirectory, "create", object)),
                    Kind::Symlink => return Err(fails(Status::Loop, "create", object)),
                    _ => return Err(fails(Status::NotSupported, "create", object)),
                }
                shared.look_to_open(object).await?;
                let file = ComposedFile::new(shared, object, rights);
                return Ok((shared.attr(object, "create")?, false, file));
            }
        };
        shared.log_name(vec![(object, Op::Create(made))], marked).await?;
        if shared.publishes_writes {
            shared.publish_change().await?;
        }
        let file = ComposedFile::new(shared, Handle(object), rights);
        Ok((shared.attr(Handle(object), "create")?, is_new, file))
    }

    async fn create_write(&self, dir: Handle, name: &Name, owner: Owner, data: Bytes) -> Result<Attr> {
        self.create_with(dir, name, owner, data).await
    }

    async fn mknod(&self, dir: Handle, name: &Name, owner: Owner, kind: Kind, device: u64) -> Result<Attr> {
        if matches!(kind, Kind::Directory | Kind::Symlink | Kind::Datafile) {
            return Err(fails(Status::Invalid, "mknod", dir));
        }
        self.0.directory(dir, "mknod")?;
        let is_device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let made = self.0.made(dir, name, owner, kind)?;
        self.0.make(Made { rdev: if is_device { device } else { 0 }, ..made }).await
    }

    async fn mkdir(&self, dir: Handle, name: &Name, owner: Owner) -> Result<Attr> {
        self.0.directory(dir, "mkdir")?;
        self.0.make(self.0.made(dir, name, owner, Kind::Directory)?).await
    }

    async fn symlink(&self, dir: Handle, name: &Name, owner: Owner, target: &[u8]) -> Result<Attr> {
        self.0.directory(dir, "symlink")?;
        match target.len() {
            0 => return Err(fails(Status::NotFound, "symlink", dir)),
            1..=TARGET_MAX => {}
            _ => return Err(fails(Status::NameTooLong, "symlink", dir)),
        }
        let made = self.0.made(dir, name, Owner { mode: 0o777, ..owner }, Kind::Symlink)?;
        self.0.make(Made { target: Bytes::copy_from_slice(target), ..made }).await
    }

    async fn link(&self, object: Handle, dir: Handle, name: &Name) -> Result<Attr> {
        let shared = &self.0;
        shared.check_writable()?;
        let _turn = shared.naming.acquire(1).await;
        shared.look_if_known(dir, name).await?;
        shared.directory(dir, "link")?;
        let kind = shared.alive(object, "link")?;
        if kind == Kind::Directory {
            return Err(fails(Status::NotPermitted, "link", object));
        }
        if !shared.names.borrow().has_name(object.0) {
            return Err(fails(Status::Stale, "link", object));
        }
        let marked = match shared.claim_name(dir.0, name, Number::of(object.0, kind), false).await? {
            Claimed::Own(marked) => marked,
            _ => return Err(fails(Status::Exists, "link", dir)),
        };
        let bind = Bind { dir: dir.0, name: name.clone(), object: object.0 };
        shared.log_name(vec![(0, Op::Bind(vec![bind]))], marked).await?;
        shared.publish_change().await?;
        shared.attr(object, "link")
    }

    async fn unlink(&self, dir: Handle, name: &Name) -> Result<()> {
        self.0.remove(dir, name, false).await
    }

    async fn rmdir(&self, dir: Handle, name: &Name) -> Result<()> {
        self.0.remove(dir, name, true).await
    }

    async fn rename(
        &self,
        from: Handle,
        from_name: &Name,
        to: Handle,
        to_name: &Name,
        flags: RenameFlags,
    ) -> Result<()> {
        self.0.move_name((from, from_name), (to, to_name), flags).await
    }

    async fn open_past_pages(&self, object: Handle, rights: Rights) -> Result<Opened<ComposedFile<B>, ()>> {
        let shared = &self.0;
        if rights.contains(Rights::WRITE) {
            shared.check_writable()?;
        }
        shared.look_to_open(object).await?;
        match shared.openable(object)? {
            Kind::File => {}
            Kind::Directory => return Err(fails(Status::IsDirectory, "open", object)),
            _ => return Err(fails(Status::NotSupported, "open", object)),
        }
        let file = ComposedFile::new(shared, object, rights);
        let attr = shared.attr(object, "open")?;
        Ok(Opened { file, size: Some(attr.size), has_name: attr.nlink > 0, counts: () })
    }

    fn has_open(&self, object: Handle) -> bool {
        self.0.is_open(object.0)
    }

    fn opendir(&self, dir: Handle, _patience: Duration) -> ComposedListing<B> {
        ComposedListing::new(&self.0, dir)
    }

    async fn getxattr(&self, object: Handle, name: &[u8]) -> Result<Bytes> {
        self.0.alive(object, "getxattr")?;
        check_xattr(name, object)?;
        let names = self.0.names.borrow();
        let found = names.object(object.0).and_then(|found| found.xattrs.get(name));
        let value = found.and_then(|register| register.value.clone());
        value.ok_or_else(|| fails(Status::NoAttribute, "getxattr", object))
    }

    async fn setxattr(
        &self,
        object: Handle,
        name: &[u8],
        value: &[u8],
        create: bool,
        replace: bool,
    ) -> Result<()> {
        self.0.alive(object, "setxattr")?;
        check_xattr(name, object)?;
        if value.len() > XATTR_MAX {
            return Err(fails(Status::TooBig, "setxattr", object));
        }
        let is_set = self.getxattr(object, name).await.is_ok();
        match (is_set, create, replace) {
            (true, true, _) => return Err(fails(Status::Exists, "setxattr", object)),
            (false, _, true) => return Err(fails(Status::NoAttribute, "setxattr", object)),
            _ => {}
        }
        let value = Some(Bytes::copy_from_slice(value));
        self.0.change(vec![(object.0, Op::Xattr(Bytes::copy_from_slice(name), value))]).await?;
        self.0.publish_of(object).await
    }

    async fn listxattr(&self, object: Handle) -> Result<Vec<XattrName>> {
        self.0.alive(object, "listxattr")?;
        let names = self.0.names.borrow();
        let Some(found) = names.object(object.0) else { return Ok(Vec::new()) };
        let set = found.xattrs.iter().filter(|(_, register)| register.value.is_some());
        Ok(set.map(|(name, _)| XattrName::from(&name[..])).collect())
    }

    async fn removexattr(&self, object: Handle, name: &[u8]) -> Result<()> {
        self.getxattr(object, name).await?;
        self.0.change(vec![(object.0, Op::Xattr(Bytes::copy_from_slice(name), None))]).await?;
        self.0.publish_of(object).await
    }

    async fn fsync_directory(&self, dir: Handle) -> Result<()> {
        self.0.directory(dir, "fsync")?;
        self.0.sync().await
    }

    async fn sync_all(&self) -> Result<()> {
        let synced = self.0.sync().await;
        let below = self.0.over.sync_all().await;
        synced.and(below)
    }

    async fn statfs(&self) -> Result<Space> {
        self.0.over.statfs().await
    }

    async fn close(&self) {
        if let Err(error) = self.end().await {
            tracing::error!("the end of a composed directory: {error}");
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
}

impl<B: Vfs> Composed<B> {
    /// Publish all that was logged, as a close does.
    ///
    /// # Errors
    /// Errors of the file system below.
    pub async fn publish(&self) -> Result<()> {
        self.0.publish().await
    }

    /// Read what others published, as an open does.
    ///
    /// # Errors
    /// Errors of the file system below.
    pub async fn refreshed(&self) -> Result<()> {
        self.0.refresh().await
    }
}

/// The words of a block that cannot be read.
pub(super) fn lost_block(place: u64) -> Error {
    let (file, block) = super::lanes::split(place);
    let words = format!(
        "block {block} of `blocks.{file}` is damaged, or the file was cut short or replaced: `shoal composed check DIR` says \
         what is lost"
    );
    Error::new(Status::Io, "read").because(words)
}
