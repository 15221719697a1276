//! The folders of a directory on other backends.
//!
//! A directory gets an ID, in a file of its own, with the first entry that has its place elsewhere; the folder
//! of that name on a backend is made with the first entry there. So one that is missing has no entries, and one
//! that is empty may be removed at any time.

use super::Federated;
use super::links::{self, absent};
use super::text::{self, LinkId};
use crate::container::load_whole;
use shoal_proto::{Attr, Handle, Owner, Status, Time};
use shoal_vfs::{Error, Result, Vfs};

/// What is known of a directory's folders.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    /// The directory's birth: its number may become another's.
    born: Time,
    id: LinkId,
    on: Vec<Option<Handle>>,
}

impl<V: Vfs> Federated<V> {
    async fn remember(&self, dir: Handle, id: LinkId) -> Result<()> {
        let born = self.first().getattr(dir).await?.btime;
        let folder = Folder { born, id, on: vec![None; self.count()] };
        self.0.folders.borrow_mut().push(dir, folder);
        Ok(())
    }

    /// A directory was seen: what is known of a former one of its number is not so of this one.
    pub(super) fn saw_directory(&self, attr: &Attr) {
        let mut folders = self.0.folders.borrow_mut();
        if folders.peek(&attr.handle).is_some_and(|folder| folder.born != attr.btime) {
            folders.pop(&attr.handle);
        }
    }

    /// The ID of a directory; `None`: it has no entries on other backends.
    pub(super) async fn id_of(&self, dir: Handle) -> Result<Option<LinkId>> {
        if dir == Handle::ROOT {
            return Ok(Some(LinkId::ROOT));
        }
        if let Some(folder) = self.0.folders.borrow_mut().get(&dir) {
            return Ok(Some(folder.id));
        }
        let Some(file) = absent(self.first().lookup(dir, &text::folder()).await)? else { return Ok(None) };
        let bytes = load_whole(self.first(), file.handle, file.size.min(text::LIST_BYTES_MAX)).await?;
        let id = text::read_folder_id(&bytes).ok_or_else(|| {
            let words = "its `.shoal-folder` in the first backend is damaged: restore the file from a copy";
            Error::new(Status::Io, "lookup").of(dir).because(words)
        })?;
        self.remember(dir, id).await?;
        Ok(Some(id))
    }

    /// The ID of a directory, made if it is missing.
    async fn id_made(&self, dir: Handle) -> Result<LinkId> {
        if let Some(id) = self.id_of(dir).await? {
            return Ok(id);
        }
        let id = LinkId::draw(&self.0.env);
        let attr = self.first().getattr(dir).await?;
        let owner = Owner { mode: attr.mode & 0o666 | 0o444, uid: attr.uid, gid: attr.gid };
        let aside = LinkId::draw(&self.0.env).name()?;
        let aside = (self.objects_of(0), &aside);
        match links::put(self.first(), aside, (dir, &text::folder()), owner, text::folder_id(id)).await {
            Ok(()) => {
                self.remember(dir, id).await?;
                Ok(id)
            }
            // Another process was first.
            Err(error) if error.status == Status::Exists => self.id_of(dir).await?.ok_or(error),
            Err(error) => Err(error),
        }
    }

    /// A directory on a backend; `None`: it has no entries there.
    pub(super) async fn folder(&self, backend: usize, dir: Handle) -> Result<Option<Handle>> {
        if backend == 0 {
            return Ok(Some(dir));
        }
        let Some(id) = self.id_of(dir).await? else { return Ok(None) };
        let known = self.0.folders.borrow_mut().get(&dir).and_then(|folder| folder.on[backend]);
        if known.is_some() {
            return Ok(known);
        }
        let dirs = self.0.backends[backend].dirs.get();
        let found = absent(self.on(backend).lookup(dirs, &id.name()?).await);
        let found = found.map_err(|error| self.said(backend, error))?.map(|attr| attr.handle);
        self.is_on(backend, dir, id, found).await?;
        Ok(found)
    }

    async fn is_on(&self, backend: usize, dir: Handle, id: LinkId, handle: Option<Handle>) -> Result<()> {
        if self.0.folders.borrow().peek(&dir).is_none() {
            self.remember(dir, id).await?;
        }
        if let Some(folder) = self.0.folders.borrow_mut().get_mut(&dir) {
            folder.on[backend] = handle;
        }
        Ok(())
    }

    /// A directory on a backend, made if it is missing.
    pub(super) async fn folder_made(&self, backend: usize, dir: Handle) -> Result<Handle> {
        if let Some(folder) = self.folder(backend, dir).await? {
            return Ok(folder);
        }
        let id = self.id_made(dir).await?;
        let attr = self.first().getattr(dir).await?;
        let owner = Owner { mode: attr.mode, uid: attr.uid, gid: attr.gid };
        let (vfs, dirs) = (self.on(backend), self.0.backends[backend].dirs.get());
        let made = match vfs.mkdir(dirs, &id.name()?, owner).await {
            Err(error) if error.status == Status::Exists => vfs.lookup(dirs, &id.name()?).await,
            made => made,
        };
        let made = made.map_err(|error| self.said(backend, error))?.handle;
        self.0.backends[backend].is_dirty.set(true);
        // A removal meanwhile found no folder here: then the directory is gone.
        if self.first().getattr(dir).await?.nlink == 0 {
            let _ = vfs.rmdir(dirs, &id.name()?).await;
            return Err(Error::new(Status::Stale, "create").of(dir));
        }
        self.is_on(backend, dir, id, Some(made)).await?;
        Ok(made)
    }

    /// All folders that a directory has on other backends.
    pub(super) async fn folders(&self, dir: Handle) -> Result<Vec<(usize, Handle)>> {
        let mut found = Vec::new();
        for backend in 1..self.count() {
            if let Some(folder) = self.folder(backend, dir).await? {
                found.push((backend, folder));
            }
        }
        Ok(found)
    }

    /// Forget what is known of a directory.
    pub(super) fn forget(&self, dir: Handle) {
        self.0.folders.borrow_mut().pop(&dir);
    }
}
