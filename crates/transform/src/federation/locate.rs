//! Finds the entry of a name: its backend and its kind.

use super::Federated;
use super::handles::{Object, Shape};
use super::links::{Linked, absent};
use crate::container::{bin_name, record_name};
use shoal_proto::{Attr, Handle, Kind, Name, Status};
use shoal_vfs::{Error, Result, Vfs};

/// A look-up of a metalink that is being replaced is made again so often.
const TRIES_MAX: u32 = 4;

/// The entry of a name in a directory.
#[derive(Clone, Debug)]
pub(super) struct Located {
    /// The backend that has the entry.
    pub(super) backend: usize,
    /// The directory there.
    pub(super) dir: Handle,
    /// The object that the name leads to, with its attributes on its backend.
    pub(super) object: Object,
    pub(super) attr: Attr,
    /// The entry is a metalink.
    pub(super) link: Option<Linked>,
    /// The entry's own handle on its backend.
    pub(super) entry: Handle,
}

impl Located {
    pub(super) fn is_shared(&self) -> bool {
        self.object.shape == Shape::Directory
    }

    /// Whether it is a directory for those that look at one backend: no file replaces it.
    pub(super) fn is_item(&self) -> bool {
        self.object.shape == Shape::Item
    }
}

/// The entry that a backend has under a name.
enum Found {
    Nothing,
    /// A metalink that leads nowhere.
    Dangling,
    Entry(Box<Located>),
}

impl<V: Vfs> Federated<V> {
    /// The bin, in which all directories are items.
    pub(super) fn saw_at_root(&self, dir: Handle, name: &Name, attr: &Attr) {
        if dir == Handle::ROOT && *name == bin_name() {
            self.0.bin.set(Some(attr.handle));
        }
    }

    pub(super) fn is_bin(&self, dir: Handle) -> bool {
        self.0.bin.get() == Some(dir)
    }

    /// Whether a directory of a backend, in a directory that is no bin, is an item.
    pub(super) async fn is_item(&self, backend: usize, attr: &Attr) -> Result<bool> {
        let key = (backend, attr.handle);
        if let Some((born, known)) = self.0.kinds.borrow_mut().get(&key)
            && *born == attr.btime
        {
            return Ok(*known);
        }
        let is_item = match self.on(backend).lookup(attr.handle, &record_name()).await {
            Ok(_) => true,
            Err(error) if error.status == Status::NotFound => false,
            // Another user's, and private: it is not known what it is. Directories keep their names
            // elsewhere.
            Err(error) if error.status == Status::AccessDenied => return Ok(backend != 0),
            Err(error) if matches!(error.status, Status::NotDirectory | Status::Stale) => return Ok(false),
            Err(error) => return Err(self.said(backend, error)),
        };
        self.0.kinds.borrow_mut().push(key, (attr.btime, is_item));
        Ok(is_item)
    }

    /// The shape of a directory of a backend; `None`: a folder that keeps a directory's name.
    pub(super) async fn shape(&self, backend: usize, dir: Handle, attr: &Attr) -> Result<Option<Shape>> {
        if self.is_bin(dir) || self.is_item(backend, attr).await? {
            return Ok(Some(Shape::Item));
        }
        Ok((backend == 0).then_some(Shape::Directory))
    }

    async fn on_backend(&self, backend: usize, dir: Handle, name: &Name) -> Result<Found> {
        let Some(folder) = self.folder(backend, dir).await? else { return Ok(Found::Nothing) };
        let looked = absent(self.on(backend).lookup(folder, name).await);
        let Some(attr) = looked.map_err(|error| self.said(backend, error))? else {
            return Ok(Found::Nothing);
        };
        let entry = attr.handle;
        let shape = match attr.kind {
            Kind::Directory => match self.shape(backend, dir, &attr).await? {
                Some(shape) => shape,
                None => return Ok(Found::Nothing),
            },
            _ => Shape::Plain,
        };
        let link = match self.read_link(backend, &attr).await? {
            Some(target) => match self.follow(target, false).await? {
                Some(linked) => Some(linked),
                None => return Ok(Found::Dangling),
            },
            None => None,
        };
        let (object, attr) = match &link {
            Some(linked) => (linked.object, linked.attr.clone()),
            None => (Object { backend, handle: entry, shape }, attr),
        };
        Ok(Found::Entry(Box::new(Located { backend, dir: folder, object, attr, link, entry })))
    }

    /// The entry of a name in a directory over all backends.
    pub(super) async fn locate(&self, dir: Handle, name: &Name) -> Result<Option<Located>> {
        if self.is_own(dir, name) {
            return Ok(None);
        }
        for _ in 0..TRIES_MAX {
            let mut is_dangling = false;
            for backend in self.places(name) {
                match self.on_backend(backend, dir, name).await? {
                    Found::Nothing => {}
                    Found::Dangling => is_dangling = true,
                    Found::Entry(located) => {
                        if located.is_shared() {
                            self.saw_directory(&located.attr);
                            self.saw_at_root(dir, name, &located.attr);
                        }
                        return Ok(Some(*located));
                    }
                }
            }
            // A rename under way: its object may have just left the old name.
            if !is_dangling {
                break;
            }
        }
        self.check_lists("lookup").await?;
        Ok(None)
    }

    /// The entry of a name that is there.
    pub(super) async fn located(&self, dir: Handle, name: &Name, op: &'static str) -> Result<Located> {
        self.locate(dir, name).await?.ok_or_else(|| Error::new(Status::NotFound, op).of(dir))
    }

    /// Nothing may have a name: older lists' places count too.
    pub(super) async fn is_free(&self, dir: Handle, name: &Name, op: &'static str) -> Result<()> {
        match self.locate(dir, name).await? {
            Some(_) => Err(Error::new(Status::Exists, op).of(dir)),
            None => Ok(()),
        }
    }

    /// The same, where a creation on the backend of the place finds most of it out.
    pub(super) async fn is_free_elsewhere(&self, dir: Handle, name: &Name, op: &'static str) -> Result<()> {
        match self.0.lists.len() {
            0 | 1 => self.check_lists(op).await,
            _ => self.is_free(dir, name, op).await,
        }
    }

    /// The attributes of an object, as they are seen here.
    pub(super) async fn seen(&self, object: Object, attr: Attr) -> Result<Attr> {
        match self.is_shared(object, attr.kind) {
            true => self.merged(attr).await,
            false => object.seen(attr),
        }
    }

    /// A folder that keeps the name of a directory that is gone is removed. Whether there was one.
    pub(super) async fn clear_place(&self, backend: usize, folder: Handle, name: &Name) -> Result<bool> {
        let Some(attr) = absent(self.on(backend).lookup(folder, name).await)? else { return Ok(true) };
        if attr.kind != Kind::Directory || backend == 0 || self.is_item(backend, &attr).await? {
            return Ok(false);
        }
        match self.on(backend).rmdir(folder, name).await {
            Err(error) if error.status == Status::NotEmpty => Ok(false),
            Err(error) if error.status != Status::NotFound => Err(error),
            _ => Ok(true),
        }
    }
}
