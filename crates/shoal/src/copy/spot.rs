//! A place in a tree: a local path, or a name in a directory of a ShoalFS.

use super::xattrs::{self, Xattrs};
use crate::address::ShoalAddress;
use anyhow::{Context as _, Result, anyhow, bail};
use rustix::fs::{AtFlags, CWD, FileType, Mode, RawMode, Timespec, Timestamps};
use shoal_client::Client;
use shoal_proto::{Attr, Dist, Handle, Kind, Name, Owner, SetAttr, Status, Time};
use shoal_vfs::ForkedFile;
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A place.
#[derive(Clone)]
pub enum Spot {
    /// A path of this machine.
    Local(PathBuf),
    /// A name in a directory of a ShoalFS; the root has none.
    Shoal(Rc<Remote>),
}

/// See [`Spot::Shoal`].
pub struct Remote {
    /// The file system's client.
    pub client: Client,
    /// The directory, found at first use (it may not be there when the place is named).
    dir: RemoteDir,
    /// The name in it; `None`: the root itself.
    pub name: Option<Name>,
    /// For people.
    shown: String,
}

enum RemoteDir {
    Known(Handle),
    /// It is the future object of this place.
    Above(Rc<Remote>),
}

/// The object there.
#[derive(Clone, Debug)]
pub struct Meta {
    /// Its kind.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Last access.
    pub atime: Time,
    /// Last change.
    pub mtime: Time,
    /// On a ShoalFS.
    pub handle: Option<Handle>,
    /// It is a forked file, of so many subfiles.
    pub subfiles: Option<u16>,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spot::Local(path) => write!(f, "{}", path.display()),
            Spot::Shoal(remote) => f.write_str(&remote.shown),
        }
    }
}

impl From<&Attr> for Meta {
    fn from(attr: &Attr) -> Meta {
        Meta {
            kind: attr.kind,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            atime: attr.atime,
            mtime: attr.mtime,
            handle: Some(attr.handle),
            subfiles: match attr.template.dist {
                Dist::Forked { subfiles } if attr.kind == Kind::Directory => Some(subfiles),
                _ => None,
            },
        }
    }
}

impl From<&std::fs::Metadata> for Meta {
    fn from(meta: &std::fs::Metadata) -> Meta {
        let kind = meta.file_type();
        let kind = match () {
            () if kind.is_dir() => Kind::Directory,
            () if kind.is_symlink() => Kind::Symlink,
            () if kind.is_fifo() => Kind::Fifo,
            () if kind.is_socket() => Kind::Socket,
            () if kind.is_char_device() => Kind::CharDevice,
            () if kind.is_block_device() => Kind::BlockDevice,
            () => Kind::File,
        };
        Meta {
            kind,
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            size: meta.size(),
            atime: Time::from_parts(meta.atime(), meta.atime_nsec() as u32),
            mtime: Time::from_parts(meta.mtime(), meta.mtime_nsec() as u32),
            handle: None,
            subfiles: None,
        }
    }
}

/// The owner of a new object: the copying user.
pub fn owner(mode: u32) -> Owner {
    Owner { mode, uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

impl Remote {
    /// The directory that this place is in.
    pub async fn dir(&self) -> Result<Handle> {
        match &self.dir {
            RemoteDir::Known(dir) => Ok(*dir),
            RemoteDir::Above(above) => {
                let attr = Box::pin(above.attr()).await?;
                Ok(attr.ok_or_else(|| anyhow!("{} is not there", above.shown))?.handle)
            }
        }
    }

    /// The object there.
    async fn attr(&self) -> Result<Option<Attr>> {
        let looked = match &self.name {
            None => self.client.getattr(Handle::ROOT).await,
            Some(name) => self.client.lookup(self.dir().await?, name).await,
        };
        match looked {
            Ok(attr) => Ok(Some(attr)),
            Err(error) if error.status == Status::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Directory and name, except for the root.
    pub async fn named(&self) -> Result<(Handle, &Name)> {
        let name = self.name.as_ref().ok_or_else(|| anyhow!("{} is the root directory", self.shown))?;
        Ok((self.dir().await?, name))
    }
}

impl Spot {
    /// The place of an address; all but its last name must be there.
    pub async fn walk(client: &Client, address: &ShoalAddress) -> Result<Spot> {
        let path = address.path.trim_end_matches('/');
        let (dir, name) = match path {
            "" => (Handle::ROOT, None),
            path => {
                let (dir, name) = client.walk_parent(path.as_bytes()).await?;
                (dir, Some(name))
            }
        };
        let shown = address.to_string();
        Ok(Spot::Shoal(Rc::new(Remote { client: client.clone(), dir: RemoteDir::Known(dir), name, shown })))
    }

    /// A name in the directory that is, or will be, here; `dir` is its handle, where that is known.
    pub fn inside(&self, name: &[u8], dir: Option<Handle>) -> Result<Spot> {
        match self {
            Spot::Local(path) => Ok(Spot::Local(path.join(std::ffi::OsStr::from_bytes(name)))),
            Spot::Shoal(remote) => {
                let name = Name::new(name).map_err(|status| anyhow!(status))?;
                let dir = match (dir, &remote.name) {
                    (Some(dir), _) => RemoteDir::Known(dir),
                    (None, None) => RemoteDir::Known(Handle::ROOT),
                    (None, Some(_)) => RemoteDir::Above(remote.clone()),
                };
                let shown = format!("{}/{name}", remote.shown.trim_end_matches('/'));
                Ok(Spot::Shoal(Rc::new(Remote {
                    client: remote.client.clone(),
                    dir,
                    name: Some(name),
                    shown,
                })))
            }
        }
    }

    /// The object there, if any. `follow`: the target of a symbolic link.
    pub async fn look(&self, follow: bool) -> Result<Option<Meta>> {
        match self {
            Spot::Local(path) => {
                let looked = if follow { path.metadata() } else { path.symlink_metadata() };
                match looked {
                    Ok(meta) => Ok(Some(Meta::from(&meta))),
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
            Spot::Shoal(remote) => match remote.attr().await? {
                Some(attr) if follow && attr.kind == Kind::Symlink => self.follow(remote, &attr).await,
                attr => Ok(attr.as_ref().map(Meta::from)),
            },
        }
    }

    /// The target of a link. Links inside directories below the root are relative to their own directories,
    /// which only a walk knows.
    async fn follow(&self, remote: &Remote, link: &Attr) -> Result<Option<Meta>> {
        let target = remote.client.readlink(link.handle).await?;
        let address: ShoalAddress = remote.shown.parse()?;
        let path = match target.first() {
            Some(b'/') => target.to_vec(),
            _ => [
                Path::new(&address.path).parent().unwrap_or(Path::new("/")).as_os_str().as_bytes(),
                b"/",
                &target,
            ]
            .concat(),
        };
        match remote.client.walk(&path, true).await {
            Ok(attr) => Ok(Some(Meta::from(&attr))),
            Err(error) if error.status == Status::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Names in a directory.
    pub async fn list(&self, meta: &Meta) -> Result<Vec<Vec<u8>>> {
        match self {
            Spot::Local(path) => {
                let names = std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().into_vec()));
                names.collect()
            }
            Spot::Shoal(remote) => {
                let dir = meta.handle.context("it has no handle")?;
                let mut stream = remote.client.opendir(dir);
                let mut names = Vec::new();
                while let Some(entry) = stream.next(false).await? {
                    names.push(entry.name.as_bytes().to_vec());
                }
                Ok(names)
            }
        }
    }

    /// Make a directory; its handle, on a ShoalFS.
    pub async fn mkdir(&self, mode: u32) -> Result<Option<Handle>> {
        match self {
            Spot::Local(path) => {
                std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), mode).create(path)?;
                Ok(None)
            }
            Spot::Shoal(remote) => {
                let (dir, name) = remote.named().await?;
                Ok(Some(remote.client.mkdir(dir, name, owner(mode)).await?.handle))
            }
        }
    }

    /// Make a forked file; on another file system, a directory. Its handle, on a ShoalFS.
    pub async fn mkforked(&self, mode: u32, subfiles: u16) -> Result<Option<Handle>> {
        let Spot::Shoal(remote) = self else { return self.mkdir(mode).await };
        let (dir, name) = remote.named().await?;
        let forked = ForkedFile { subfiles, ..ForkedFile::default() };
        Ok(Some(remote.client.mkforked(dir, name, owner(mode), &forked).await?.handle))
    }

    /// Target of a symbolic link.
    pub async fn readlink(&self, meta: &Meta) -> Result<Vec<u8>> {
        match self {
            Spot::Local(path) => Ok(std::fs::read_link(path)?.into_os_string().into_vec()),
            Spot::Shoal(remote) => {
                Ok(remote.client.readlink(meta.handle.context("it has no handle")?).await?.to_vec())
            }
        }
    }

    /// Make a symbolic link; one that is there is replaced.
    pub async fn symlink(&self, target: &[u8]) -> Result<()> {
        self.clear_link().await?;
        match self {
            Spot::Local(path) => std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(target), path)?,
            Spot::Shoal(remote) => {
                let (dir, name) = remote.named().await?;
                remote.client.symlink(dir, name, owner(0o777), target).await?;
            }
        }
        Ok(())
    }

    /// Make a FIFO or socket; one that is there is replaced.
    pub async fn mknod(&self, kind: Kind, mode: u32) -> Result<()> {
        self.clear_link().await?;
        match self {
            Spot::Local(path) => {
                let file_type = if kind == Kind::Fifo { FileType::Fifo } else { FileType::Socket };
                rustix::fs::mknodat(CWD, path, file_type, Mode::from_raw_mode(mode as RawMode), 0)?;
            }
            Spot::Shoal(remote) => {
                let (dir, name) = remote.named().await?;
                remote.client.mknod(dir, name, owner(mode), kind, 0).await?;
            }
        }
        Ok(())
    }

    /// Remove an object that is no file and no directory, to make room for another such one.
    async fn clear_link(&self) -> Result<()> {
        match self.look(false).await?.map(|meta| meta.kind) {
            None => Ok(()),
            Some(Kind::File | Kind::Directory) => bail!("{self} is there already"),
            Some(_) => match self {
                Spot::Local(path) => Ok(std::fs::remove_file(path)?),
                Spot::Shoal(remote) => {
                    let (dir, name) = remote.named().await?;
                    Ok(remote.client.unlink(dir, name).await?)
                }
            },
        }
    }

    /// Set mode and times, and with `all` the owner (which only root may, so only root must); and extended
    /// attributes.
    pub async fn set(&self, meta: &Meta, all: bool, xattrs: &Xattrs) -> Result<()> {
        match self {
            Spot::Local(path) => set_local(path, meta, all, xattrs),
            Spot::Shoal(remote) => {
                let object = remote.attr().await?.context("it is gone")?.handle;
                let mut set = SetAttr { mode: Some(meta.mode), ..SetAttr::default() };
                if all {
                    set.uid = Some(meta.uid);
                    set.gid = Some(meta.gid);
                    set.atime = Some(meta.atime);
                    set.mtime = Some(meta.mtime);
                }
                if meta.kind == Kind::Symlink {
                    set.mode = None;
                }
                remote.client.setattr(object, set).await?;
                xattrs::set_remote(&remote.client, object, xattrs).await
            }
        }
    }

    /// Whether both are of one ShoalFS.
    pub fn same_file_system(&self, other: &Spot) -> bool {
        match (self, other) {
            (Spot::Shoal(a), Spot::Shoal(b)) => a.client.map().fs_id == b.client.map().fs_id,
            _ => false,
        }
    }

    /// Whether this is below `above`, by name.
    pub fn is_inside(&self, above: &Spot) -> bool {
        match (self, above) {
            (Spot::Shoal(own), Spot::Shoal(other)) => {
                let (own, other) = (own.shown.as_str(), other.shown.trim_end_matches('/'));
                self.same_file_system(above)
                    && own.strip_prefix(other).is_some_and(|rest| rest.starts_with('/'))
            }
            _ => false,
        }
    }
}

fn set_local(path: &Path, meta: &Meta, all: bool, xattrs: &Xattrs) -> Result<()> {
    let is_link = meta.kind == Kind::Symlink;
    let set_mode =
        |mode: u32| rustix::fs::chmodat(CWD, path, Mode::from_raw_mode(mode as RawMode), AtFlags::empty());
    if all {
        let owned = std::os::unix::fs::lchown(path, Some(meta.uid), Some(meta.gid));
        if owned.is_err() && rustix::process::geteuid().is_root() {
            owned.context("cannot set its owner")?;
        }
    }
    // After the owner, whose change clears capabilities; and only a user that may write sets attributes of a
    // user.
    if !xattrs.is_empty() {
        if !is_link {
            set_mode(meta.mode | 0o200)?;
        }
        xattrs::set_local(path, is_link, xattrs)?;
    }
    if !is_link {
        set_mode(meta.mode)?;
    }
    if all {
        let spec = |time: Time| {
            let (tv_sec, nanos) = time.parts();
            Timespec { tv_sec, tv_nsec: i64::from(nanos) }
        };
        let times = Timestamps { last_access: spec(meta.atime), last_modification: spec(meta.mtime) };
        rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    }
    Ok(())
}
