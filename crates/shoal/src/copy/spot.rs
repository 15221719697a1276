//! A *spot*: a name in a directory of a file system.

use super::tree::CopyTree;
use super::xattrs::{self, Xattrs};
use anyhow::{Context as _, Result, anyhow, bail};
use shoal_proto::{Attr, Handle, Kind, Name, Owner, SetAttr, Status};
use shoal_vfs::{ForkedFile, Listing, Vfs};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// Attributes of a listing's entries are not waited for.
const PATIENCE: Duration = Duration::ZERO;

/// A place. Clones share it.
#[derive(Clone)]
pub struct Spot(Rc<SpotState>);

struct SpotState {
    base: Rc<Base>,
    /// The path from the base.
    below: Vec<u8>,
    dir: Dir,
    /// The name in the directory; `None`: the root itself.
    name: Option<Name>,
}

/// A place that was named, above all others that were found from there.
struct Base {
    tree: Rc<CopyTree>,
    path: Vec<u8>,
    /// For people.
    shown: String,
}

/// The directory that a place is in.
enum Dir {
    Known(Rc<Referred>),
    /// It is the future object of this place (it may not be there when the place is named).
    Above(Spot),
}

/// A directory to which places refer: its file system keeps its handle until the last of them is dropped.
pub struct Referred {
    tree: Rc<CopyTree>,
    handle: Handle,
}

impl Referred {
    fn new(tree: &Rc<CopyTree>, handle: Handle) -> Rc<Referred> {
        tree.vfs().referred(handle);
        Rc::new(Referred { tree: tree.clone(), handle })
    }
}

impl Drop for Referred {
    fn drop(&mut self) {
        self.tree.vfs().forgotten(self.handle, 1);
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (shown, below) = (&self.0.base.shown, String::from_utf8_lossy(&self.0.below));
        if below.is_empty() {
            f.write_str(shown)
        } else {
            write!(f, "{}/{below}", shown.trim_end_matches('/'))
        }
    }
}

/// The owner of a new object: the copying user.
pub fn owner(mode: u32) -> Owner {
    Owner { mode, uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

/// An object, or that there is none.
fn looked(found: shoal_vfs::Result<Attr>) -> Result<Option<Attr>> {
    match found {
        Ok(attr) => Ok(Some(attr)),
        Err(error) if error.status == Status::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// `a` and `b` with one slash between.
fn joined(a: &[u8], b: &[u8]) -> Vec<u8> {
    match (a.ends_with(b"/") || a.is_empty(), b.is_empty()) {
        (_, true) | (true, _) => [a, b].concat(),
        _ => [a, b"/", b].concat(),
    }
}

impl Spot {
    /// The place of a path; all but its last name must be there.
    pub async fn walk(tree: &Rc<CopyTree>, path: &[u8], shown: String) -> Result<Spot> {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let path = &path[..end];
        let base = Rc::new(Base { tree: tree.clone(), path: path.to_vec(), shown });
        let (dir, name) = match path.iter().rposition(|byte| *byte == b'/') {
            _ if path.is_empty() => (Handle::ROOT, None),
            at => {
                let (above, last) = path.split_at(at.map_or(0, |at| at + 1));
                let name = Name::new(last).map_err(|status| anyhow!(status))?;
                let dir = tree.vfs().walk_path(above, true).await?;
                (dir.handle, Some(name))
            }
        };
        Ok(Spot(Rc::new(SpotState {
            base,
            below: Vec::new(),
            dir: Dir::Known(Referred::new(tree, dir)),
            name,
        })))
    }

    /// Whether it was named itself, and not found in a directory.
    pub fn is_base(&self) -> bool {
        self.0.below.is_empty()
    }

    /// Its file system.
    pub fn tree(&self) -> &CopyTree {
        &self.0.base.tree
    }

    /// The directory that is here, for the places in it.
    pub fn referred(&self, handle: Handle) -> Rc<Referred> {
        Referred::new(&self.0.base.tree, handle)
    }

    /// A name in the directory that is, or will be, here.
    pub fn inside(&self, name: &[u8], dir: Option<&Rc<Referred>>) -> Result<Spot> {
        let below = joined(&self.0.below, name);
        let name = Some(Name::new(name).map_err(|status| anyhow!(status))?);
        let dir = match (dir, &self.0.name) {
            (Some(dir), _) => Dir::Known(dir.clone()),
            (None, None) => Dir::Known(self.referred(Handle::ROOT)),
            (None, Some(_)) => Dir::Above(self.clone()),
        };
        Ok(Spot(Rc::new(SpotState { base: self.0.base.clone(), below, dir, name })))
    }

    fn path(&self) -> Vec<u8> {
        joined(&self.0.base.path, &self.0.below)
    }

    async fn dir(&self) -> Result<Handle> {
        match &self.0.dir {
            Dir::Known(dir) => Ok(dir.handle),
            Dir::Above(above) => {
                let attr = Box::pin(above.look(true)).await?;
                Ok(attr.ok_or_else(|| anyhow!("{above} is not there"))?.handle)
            }
        }
    }

    /// The object there, if any. `follow`: the target of a symbolic link.
    pub async fn look(&self, follow: bool) -> Result<Option<Attr>> {
        let tree = self.tree();
        let found = match &self.0.name {
            None => tree.vfs().getattr(Handle::ROOT).await,
            Some(name) => {
                let dir = self.dir().await?;
                tree.vfs().lookup(dir, name).await
            }
        };
        match looked(found)? {
            // Links below the base are relative to their own directories, which only a walk knows.
            Some(attr) if follow && attr.kind == Kind::Symlink => {
                let path = self.path();
                looked(tree.vfs().walk_path(&path, true).await)
            }
            found => Ok(found),
        }
    }

    /// Directory and name, except for the root.
    pub async fn named(&self) -> Result<(Handle, &Name)> {
        let name = self.0.name.as_ref().ok_or_else(|| anyhow!("{self} is the root directory"))?;
        Ok((self.dir().await?, name))
    }

    /// Names in the directory that is here.
    pub async fn list(&self, dir: Handle) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        let mut listing = self.tree().vfs().opendir(dir, PATIENCE);
        while let Some(listed) = listing.next(false).await? {
            names.push(listed.entry.name.as_bytes().to_vec());
        }
        Ok(names)
    }

    /// Make a directory; with `subfiles` a forked file, where the file system has such.
    pub async fn mkdir(&self, mode: u32, subfiles: Option<u16>) -> Result<Handle> {
        let (dir, name) = self.named().await?;
        let tree = self.tree();
        if let Some(subfiles) = subfiles {
            let forked = ForkedFile { subfiles, ..ForkedFile::default() };
            match tree.vfs().mkforked(dir, name, owner(mode), &forked).await {
                Err(error) if error.status == Status::NotSupported => {}
                made => return Ok(made?.handle),
            }
        }
        Ok(tree.vfs().mkdir(dir, name, owner(mode)).await?.handle)
    }

    /// Target of the symbolic link that is here.
    pub async fn readlink(&self, link: Handle) -> Result<bytes::Bytes> {
        Ok(self.tree().vfs().readlink(link).await?)
    }

    /// Make a symbolic link; one that is there is replaced.
    pub async fn symlink(&self, target: &[u8]) -> Result<()> {
        self.clear_link().await?;
        let (dir, name) = self.named().await?;
        self.tree().vfs().symlink(dir, name, owner(0o777), target).await?;
        Ok(())
    }

    /// Make a FIFO or socket; one that is there is replaced.
    pub async fn mknod(&self, kind: Kind, mode: u32) -> Result<()> {
        self.clear_link().await?;
        let (dir, name) = self.named().await?;
        self.tree().vfs().mknod(dir, name, owner(mode), kind, 0).await?;
        Ok(())
    }

    /// Remove an object that is no file and no directory, to make room for another such one.
    pub async fn clear_link(&self) -> Result<()> {
        match self.look(false).await?.map(|attr| attr.kind) {
            None => Ok(()),
            Some(Kind::File | Kind::Directory) => bail!("{self} is there already"),
            Some(_) => {
                let (dir, name) = self.named().await?;
                Ok(self.tree().vfs().unlink(dir, name).await?)
            }
        }
    }

    /// Extended attributes of the object that is here.
    pub async fn xattrs(&self, object: Handle) -> Result<Xattrs> {
        xattrs::kept(self.tree(), object).await
    }

    /// Set mode and times, and with `all` the owner (which on this machine only root may, so only root must);
    /// and extended attributes.
    pub async fn set(&self, from: &Attr, all: bool, xattrs: &Xattrs) -> Result<()> {
        let object = self.look(from.kind != Kind::Symlink).await?.context("it is gone")?.handle;
        let mode = (from.kind != Kind::Symlink).then_some(from.mode);
        let is_users = self.tree().is_of_host && !rustix::process::geteuid().is_root();
        // Only a user that may write sets attributes of a user.
        let first = mode.map(|mode| if is_users && !xattrs.is_empty() { mode | 0o200 } else { mode });
        let mut set = SetAttr { mode: first, ..SetAttr::default() };
        if all {
            (set.atime, set.mtime) = (Some(from.atime), Some(from.mtime));
            (set.uid, set.gid) = (Some(from.uid), Some(from.gid));
        }
        match self.set_attributes(object, set.clone()).await {
            Err(_) if is_users && all => {
                (set.uid, set.gid) = (None, None);
                self.set_attributes(object, set).await?;
            }
            set => set?,
        }
        // After the owner, whose change clears capabilities.
        xattrs::set(self.tree(), object, xattrs).await?;
        if first != mode {
            self.set_attributes(object, SetAttr { mode, ..SetAttr::default() }).await?;
        }
        Ok(())
    }

    async fn set_attributes(&self, object: Handle, set: SetAttr) -> shoal_vfs::Result<()> {
        self.tree().vfs().setattr(object, set).await.map(drop)
    }

    /// Whether both are of one file system.
    pub fn same_file_system(&self, other: &Spot) -> bool {
        Rc::ptr_eq(&self.0.base.tree, &other.0.base.tree)
    }

    /// Whether this is below `above`, by name.
    pub fn is_inside(&self, above: &Spot) -> bool {
        let (own, other) = (self.path(), above.path());
        self.same_file_system(above)
            && own.strip_prefix(&other[..]).is_some_and(|rest| rest.starts_with(b"/"))
    }
}
