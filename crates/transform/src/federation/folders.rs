//! The folders of a directory on other backends.
//!
//! A directory gets an ID, in a file of its own, with the first entry whose place is on another backend.
//! The folder on a backend is named by the ID, and is made with the first entry there. So a missing folder
//! means that there are no entries, and an empty folder may be removed at any time.
//!
//! **A removal of the directory and a creation in it never miss each other.** The removal exclusively makes
//! `.shoal-leaving` in the directory; then it removes the folders, and fails if one is not empty. A creation
//! finds or makes its folder, and afterwards checks that there is no `.shoal-leaving` and that the directory
//! still has the ID of the folder. So either the removal sees the folder, or the creation sees the removal
//! and waits for its end.

use super::Federated;
use super::links::{self, absent};
use super::text::{self, LinkId};
use crate::container::load_whole;
use shoal_proto::{Attr, Handle, Owner, Status, Time};
use shoal_vfs::{Error, Result, Vfs};
use std::time::Duration;

/// A removal of a directory under way is waited for so often, and so long each time: two seconds.
pub(super) const WAITS_MAX: u32 = 100;
pub(super) const WAIT: Duration = Duration::from_millis(20);

/// The known folders of a directory.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    /// The directory's birth: its number may become another's.
    born: Time,
    id: LinkId,
    /// The file with the ID, and its birth; `None`: the root's.
    file: Option<(Handle, Time)>,
    /// The ID was made here, and its file's name may not be durable.
    is_new: bool,
    on: Vec<Option<Part>>,
}

/// A folder on a backend.
#[derive(Clone, Copy, Debug)]
struct Part {
    handle: Handle,
    /// No removal of the directory was under way while it was there.
    is_sure: bool,
}

impl<V: Vfs> Federated<V> {
    async fn remember(
        &self,
        dir: Handle,
        id: LinkId,
        file: Option<(Handle, Time)>,
        is_new: bool,
    ) -> Result<()> {
        let born = self.first().getattr(dir).await?.btime;
        let folder = Folder { born, id, file, is_new, on: vec![None; self.count()] };
        let former = self.0.folders.borrow_mut().push(dir, folder);
        self.let_go(former);
        Ok(())
    }

    /// Folders that are known are referred to: their numbers become no other object's.
    fn let_go(&self, former: Option<(Handle, Folder)>) {
        let Some((_, former)) = former else { return };
        for (backend, part) in former.on.iter().enumerate() {
            if let Some(part) = part {
                self.on(backend).forgotten(part.handle, 1);
            }
        }
    }

    /// A directory was seen: what is known of a former one of its number is not so of this one.
    pub(super) fn saw_directory(&self, attr: &Attr) {
        let is_former =
            self.0.folders.borrow().peek(&attr.handle).is_some_and(|folder| folder.born != attr.btime);
        if is_former {
            self.forget(attr.handle);
        }
    }

    /// Forget what is known of a directory.
    pub(super) fn forget(&self, dir: Handle) {
        let former = self.0.folders.borrow_mut().pop_entry(&dir);
        self.let_go(former);
    }

    /// The ID of a directory; `None`: it has no entries on other backends.
    pub(super) async fn id_of(&self, dir: Handle) -> Result<Option<LinkId>> {
        if let Some(folder) = self.0.folders.borrow_mut().get(&dir) {
            return Ok(Some(folder.id));
        }
        if dir == Handle::ROOT {
            self.remember(dir, LinkId::ROOT, None, false).await?;
            return Ok(Some(LinkId::ROOT));
        }
        let Some(file) = absent(self.first().lookup(dir, &text::folder()).await)? else { return Ok(None) };
        let bytes = load_whole(self.first(), file.handle, file.size.min(text::LIST_BYTES_MAX)).await?;
        let id = text::read_folder_id(&bytes).ok_or_else(|| {
            let words = "its `.shoal-folder` in the first backend is damaged: restore the file from a copy";
            Error::new(Status::Io, "lookup").of(dir).because(words)
        })?;
        self.remember(dir, id, Some((file.handle, file.btime)), false).await?;
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
                let file = self.first().lookup(dir, &text::folder()).await?;
                self.remember(dir, id, Some((file.handle, file.btime)), true).await?;
                Ok(id)
            }
            // Another process was first.
            Err(error) if error.status == Status::Exists => self.id_of(dir).await?.ok_or(error),
            Err(error) => Err(error),
        }
    }

    pub(super) fn has_new_id(&self, dir: Handle) -> bool {
        self.0.folders.borrow().peek(&dir).is_some_and(|folder| folder.is_new)
    }

    pub(super) fn id_is_durable(&self, dir: Handle) {
        if let Some(folder) = self.0.folders.borrow_mut().peek_mut(&dir) {
            folder.is_new = false;
        }
    }

    /// Whether what is known of a directory's ID is so still.
    async fn has_id(&self, dir: Handle, id: LinkId) -> Result<bool> {
        let known = self.0.folders.borrow().peek(&dir).filter(|folder| folder.id == id).map(|it| it.file);
        let Some(known) = known else { return Ok(false) };
        let Some(file) = known else { return Ok(true) };
        let found = absent(self.first().lookup(dir, &text::folder()).await)?;
        Ok(found.is_some_and(|found| (found.handle, found.btime) == file))
    }

    fn part(&self, backend: usize, dir: Handle) -> Option<Part> {
        self.0.folders.borrow_mut().get(&dir).and_then(|folder| folder.on[backend])
    }

    /// A directory on a backend; `None`: it has no entries there.
    pub(super) async fn folder(&self, backend: usize, dir: Handle) -> Result<Option<Handle>> {
        if backend == 0 {
            return Ok(Some(dir));
        }
        for is_last in [false, true] {
            let Some(id) = self.id_of(dir).await? else { return Ok(None) };
            if let Some(part) = self.part(backend, dir) {
                return Ok(Some(part.handle));
            }
            if let Some(found) = self.look_for(backend, id).await? {
                self.is_on(backend, dir, id, found, false);
                return Ok(Some(found));
            }
            // The directory may have another ID, since a removal of it that did not end.
            if is_last || self.has_id(dir, id).await? {
                return Ok(None);
            }
            self.forget(dir);
        }
        Ok(None)
    }

    /// The folder of an ID on a backend.
    async fn look_for(&self, backend: usize, id: LinkId) -> Result<Option<Handle>> {
        let dirs = self.0.backends[backend].dirs.get();
        let found = absent(self.on(backend).lookup(dirs, &id.name()?).await);
        Ok(found.map_err(|error| self.said(backend, error))?.map(|attr| attr.handle))
    }

    fn is_on(&self, backend: usize, dir: Handle, id: LinkId, handle: Handle, is_sure: bool) {
        let mut folders = self.0.folders.borrow_mut();
        let Some(folder) = folders.peek_mut(&dir).filter(|folder| folder.id == id) else { return };
        let is_same = folder.on[backend].is_some_and(|part| part.handle == handle);
        let former = folder.on[backend].replace(Part { handle, is_sure });
        if !is_same {
            self.on(backend).referred(handle);
            former.iter().for_each(|part| self.on(backend).forgotten(part.handle, 1));
        }
    }

    /// A directory on a backend, made if it is missing, for a new entry.
    pub(super) async fn folder_made(&self, backend: usize, dir: Handle) -> Result<Handle> {
        if backend == 0 {
            return Ok(dir);
        }
        for _ in 0..WAITS_MAX {
            if let Some(part) = self.part(backend, dir).filter(|part| part.is_sure) {
                return Ok(part.handle);
            }
            let id = self.id_made(dir).await?;
            let (handle, is_made) = self.find_or_make(backend, dir, id).await?;
            let is_leaving = absent(self.first().lookup(dir, &text::leaving()).await)?.is_some();
            if !is_leaving && self.has_id(dir, id).await? {
                self.is_on(backend, dir, id, handle, true);
                return Ok(handle);
            }
            if is_made {
                let _ = self.on(backend).rmdir(self.0.backends[backend].dirs.get(), &id.name()?).await;
            }
            self.forget(dir);
            if self.first().getattr(dir).await?.nlink == 0 {
                return Err(Error::new(Status::Stale, "create").of(dir));
            }
            if is_leaving {
                self.0.env.sleep(WAIT).await;
            }
        }
        Err(leaving_stays(dir, "create"))
    }

    /// The folder of a directory on a backend, and whether it was made here.
    async fn find_or_make(&self, backend: usize, dir: Handle, id: LinkId) -> Result<(Handle, bool)> {
        if let Some(found) = self.look_for(backend, id).await? {
            return Ok((found, false));
        }
        let attr = self.first().getattr(dir).await?;
        let owner = Owner { mode: attr.mode, uid: attr.uid, gid: attr.gid };
        let (vfs, dirs) = (self.on(backend), self.0.backends[backend].dirs.get());
        match vfs.mkdir(dirs, &id.name()?, owner).await {
            Err(error) if error.status == Status::Exists => {
                Ok((vfs.lookup(dirs, &id.name()?).await?.handle, false))
            }
            made => {
                let made = made.map_err(|error| self.said(backend, error))?.handle;
                self.made_own(backend);
                Ok((made, true))
            }
        }
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
}

/// A removal that does not end, or was killed.
pub(super) fn leaving_stays(dir: Handle, op: &'static str) -> Error {
    let words = "a removal of the directory is under way, or was killed (`.shoal-leaving` is in it): try again, or \
                 end all programs that use the directory and run `shoal container recover --ended` on it";
    Error::new(Status::Busy, op).of(dir).because(words)
}
