//! Removal of entries, and of the folders on other backends that belong to them: folders that reserve a
//! name, and the folders of an item (a container).

use super::Federated;
use super::folders::{WAIT, WAITS_MAX, leaving_stays};
use super::handles::{Object, Shape};
use super::links::Linked;
use super::locate::Located;
use super::text::{self, LinkId};
use crate::container::is_folder_name;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Status};
use shoal_vfs::{Error, Listing, Result, Vfs};
use std::time::Duration;

/// A folder keeps a name, and nothing else.
const KEEPER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };
/// A directory is being removed.
const LEAVING: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };

fn gone_is_fine(done: Result<()>) -> Result<()> {
    match done {
        Err(error) if error.status == Status::NotFound => Ok(()),
        done => done,
    }
}

impl<V: Vfs> Federated<V> {
    /// Keep the name of a directory of the first backend on the backend of its place, so that no file takes
    /// it.
    pub(super) async fn keep_name(&self, dir: Handle, name: &Name) -> Result<()> {
        let backend = self.place(name);
        if backend == 0 {
            return Ok(());
        }
        let folder = self.folder_made(backend, dir).await?;
        match self.on(backend).mkdir(folder, name, KEEPER).await {
            Err(error) if error.status == Status::Exists => {
                let attr = self.on(backend).lookup(folder, name).await?;
                match attr.kind == Kind::Directory && !self.is_item(backend, &attr).await? {
                    true => Ok(()),
                    false => Err(Error::new(Status::Exists, "mkdir").of(dir)),
                }
            }
            made => made.map(drop).map_err(|error| self.said(backend, error)),
        }
    }

    /// The name of a directory is not kept any more.
    pub(super) async fn give_name(&self, dir: Handle, name: &Name) {
        let given = async {
            // It may have been made under an older list.
            for backend in self.places(name) {
                if let Some(folder) = self.folder(backend, dir).await?.filter(|_| backend != 0) {
                    self.clear_place(backend, folder, name).await?;
                }
            }
            Ok::<(), Error>(())
        };
        if let Err(error) = given.await {
            tracing::debug!("the name of a directory that is gone is kept: {error}");
        }
    }

    /// Make a folder of an item, on the backend of its number.
    pub(super) async fn make_folder(&self, item: Object, name: &Name, owner: Owner) -> Result<Attr> {
        let backend = self.folder_place(item, name);
        let vfs = self.on(backend);
        if backend == item.backend {
            let attr =
                vfs.mkdir(item.handle, name, owner).await.map_err(|error| self.said(backend, error))?;
            return Federated::<V>::plain(backend, &attr).seen(attr);
        }
        match self.on(item.backend).lookup(item.handle, name).await {
            Err(error) if error.status == Status::NotFound => {}
            found => {
                found?;
                return Err(Error::new(Status::Exists, "mkdir"));
            }
        }
        let id = LinkId::draw(&self.0.env);
        let objects = self.objects_of(backend);
        self.made_own(backend);
        let made = vfs.mkdir(objects, &id.name()?, owner).await;
        let attr = made.map_err(|error| self.said(backend, error))?;
        let put = self.put_link(item.backend, (item.handle, name), self.target(backend, id)).await;
        if let Err(error) = put {
            let _ = vfs.rmdir(objects, &id.name()?).await;
            return Err(self.said(item.backend, error));
        }
        Federated::<V>::plain(backend, &attr).seen(attr)
    }

    /// The folders of an item go round all backends of the newest list, from its own on.
    fn folder_place(&self, item: Object, name: &Name) -> usize {
        let Some(list) = self.0.lists.last() else { return item.backend };
        let own = list.iter().position(|backend| *backend == item.backend).unwrap_or(0);
        let digits = name.as_bytes().iter().filter(|byte| byte.is_ascii_digit());
        let number =
            digits.fold(0usize, |number, digit| (number * 10 + usize::from(digit - b'0')) % 1_000_000);
        list[(own + number) % list.len()]
    }

    /// Remove an entry that is no directory.
    pub(super) async fn remove_file(&self, dir: Handle, name: &Name) -> Result<()> {
        let within = self.object(dir, "unlink")?;
        if within.shape != Shape::Directory {
            if within.shape == Shape::Item && is_folder_name(name) && !self.is_dangling(within, name).await? {
                return Err(Error::new(Status::IsDirectory, "unlink").of(dir));
            }
            let removed = self.on(within.backend).unlink(within.handle, name).await;
            return removed.map_err(|error| self.said(within.backend, error));
        }
        let found = self.located(dir, name, "unlink").await?;
        if found.attr.kind == Kind::Directory {
            return Err(Error::new(Status::IsDirectory, "unlink").of(dir));
        }
        self.on(found.backend)
            .unlink(found.dir, name)
            .await
            .map_err(|error| self.said(found.backend, error))?;
        match &found.link {
            Some(linked) => self.remove_linked(linked, false).await,
            None => Ok(()),
        }
    }

    /// Whether the folder of an item is a metalink that leads nowhere: a removal that was killed left it.
    async fn is_dangling(&self, item: Object, name: &Name) -> Result<bool> {
        let attr = self.on(item.backend).lookup(item.handle, name).await?;
        match self.read_link(item.backend, &attr).await? {
            Some(target) => Ok(self.follow(target, true).await?.is_none()),
            None => Ok(false),
        }
    }

    /// Remove an object that a metalink led to, and the metalinks on the way.
    async fn remove_linked(&self, linked: &Linked, is_dir: bool) -> Result<()> {
        let mut is_object = true;
        for (backend, id) in linked.hops.iter().rev() {
            let (vfs, objects, name) = (self.on(*backend), self.objects_of(*backend), id.name()?);
            let removed = match is_dir && is_object {
                true => vfs.rmdir(objects, &name).await,
                false => vfs.unlink(objects, &name).await,
            };
            gone_is_fine(removed).map_err(|error| self.said(*backend, error))?;
            is_object = false;
        }
        Ok(())
    }

    /// Remove an empty directory, or the directory of an item.
    pub(super) async fn remove_directory(&self, dir: Handle, name: &Name) -> Result<()> {
        let within = self.object(dir, "rmdir")?;
        match within.shape {
            Shape::Directory => {}
            Shape::Item if is_folder_name(name) => return self.remove_folder(within, name).await,
            _ => {
                let removed = self.on(within.backend).rmdir(within.handle, name).await;
                return removed.map_err(|error| self.said(within.backend, error));
            }
        }
        let found = self.located(dir, name, "rmdir").await?;
        if found.is_shared() {
            return self.remove_shared(dir, name, &found).await;
        }
        if found.attr.kind != Kind::Directory {
            return Err(Error::new(Status::NotDirectory, "rmdir").of(dir));
        }
        let vfs = self.on(found.backend);
        let removed = match &found.link {
            None => vfs.rmdir(found.dir, name).await,
            Some(linked) => {
                self.remove_linked(linked, true).await?;
                vfs.unlink(found.dir, name).await
            }
        };
        removed.map_err(|error| self.said(found.backend, error))
    }

    /// Remove a folder of an item, here or elsewhere.
    async fn remove_folder(&self, item: Object, name: &Name) -> Result<()> {
        let vfs = self.on(item.backend);
        let attr = vfs.lookup(item.handle, name).await?;
        let Some(target) = self.read_link(item.backend, &attr).await? else {
            return vfs.rmdir(item.handle, name).await.map_err(|error| self.said(item.backend, error));
        };
        if let Some(linked) = self.follow(target, true).await? {
            self.remove_linked(&linked, true).await?;
        }
        vfs.unlink(item.handle, name).await.map_err(|error| self.said(item.backend, error))
    }

    /// Remove a directory of all backends: see the module of the folders.
    pub(super) async fn remove_shared(&self, dir: Handle, name: &Name, found: &Located) -> Result<()> {
        let object = found.object.handle;
        self.check_lists("rmdir").await?;
        let first = self.entries_of(0, object).await?;
        if first.iter().any(|entry| !self.is_own(object, entry)) {
            return Err(Error::new(Status::NotEmpty, "rmdir").of(object));
        }
        self.forget(object);
        if let Some(id) = self.id_of(object).await?.filter(|_| object != Handle::ROOT) {
            self.remove_folders(object, id).await?;
            self.forget(object);
        }
        self.first().rmdir(dir, name).await.map_err(|error| self.said(0, error))?;
        self.give_name(dir, name).await;
        Ok(())
    }

    /// Remove the folders of a directory, and its ID: if they are empty.
    async fn remove_folders(&self, object: Handle, id: LinkId) -> Result<()> {
        self.begin_leaving(object).await?;
        let removed = async {
            for backend in 1..self.count() {
                self.remove_copy(backend, object, id).await?;
            }
            gone_is_fine(self.first().unlink(object, &text::folder()).await)
        };
        let removed = removed.await;
        let ended = gone_is_fine(self.first().unlink(object, &text::leaving()).await);
        removed.and(ended).map_err(|error| self.said(0, error))
    }

    /// Be the one that removes a directory.
    async fn begin_leaving(&self, object: Handle) -> Result<()> {
        for _ in 0..WAITS_MAX {
            let made = self.first().mknod(object, &text::leaving(), LEAVING, Kind::File, 0).await;
            match made {
                Err(error) if error.status == Status::Exists => self.0.env.sleep(WAIT).await,
                made => return made.map(drop).map_err(|error| self.said(0, error)),
            }
        }
        Err(leaving_stays(object, "rmdir"))
    }

    /// Remove a directory's folder on a backend, and those in it that keep names of directories that are
    /// gone.
    async fn remove_copy(&self, backend: usize, object: Handle, id: LinkId) -> Result<()> {
        let (vfs, dirs) = (self.on(backend), self.0.backends[backend].dirs.get());
        let not_empty = || Error::new(Status::NotEmpty, "rmdir").of(object);
        for is_last in [false, true] {
            match vfs.rmdir(dirs, &id.name()?).await {
                Err(error) if error.status == Status::NotEmpty && !is_last => {
                    let folder = vfs.lookup(dirs, &id.name()?).await?.handle;
                    for name in self.entries_of(backend, folder).await? {
                        if !self.clear_place(backend, folder, &name).await? {
                            return Err(not_empty());
                        }
                    }
                }
                Err(error) if error.status == Status::NotEmpty => break,
                removed => return gone_is_fine(removed).map_err(|error| self.said(backend, error)),
            }
        }
        Err(not_empty())
    }

    /// The names in a directory of a backend.
    async fn entries_of(&self, backend: usize, dir: Handle) -> Result<Vec<Name>> {
        let mut listing = self.on(backend).opendir(dir, Duration::from_secs(1));
        let mut names = Vec::new();
        while let Some(listed) = listing.next(false).await.map_err(|error| self.said(backend, error))? {
            names.push(listed.entry.name);
        }
        Ok(names)
    }
}
