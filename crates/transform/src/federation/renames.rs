//! Renames. An object stays on its backend. Its new name is on that backend too, or is a *metalink* on
//! another backend: a small file that leads to the object.
//!
//! ```text
//!   rename on one backend             one rename
//!   rename to a second backend        1  make a metalink at the new name, to objects/ID; it leads nowhere
//!                                     2  rename the entry to objects/ID: now the new name is valid
//!   exchange on one backend           one exchange
//!   exchange over two backends        1  make objects/X, a metalink to Y, and objects/Y, a metalink to X
//!                                     2  exchange the first entry with X on its backend: its name leads
//!                                        to its object still, over Y and X
//!                                     3  exchange the second entry with Y: now both names are exchanged
//! ```
//!
//! A metalink is durable before the entry that it leads to is moved. An exchange is durable on both backends
//! before one of the two objects is removed. So a power cut of any of the backends leaves the state before
//! the rename, or the state after it.
//!
//! If a process is killed between the steps, both names lead to the same objects as before. Metalinks that
//! lead nowhere may stay. After each step the moved object is checked, because another process may have put
//! a different object at the name.
//!
//! **Two kinds of rename are not atomic**: a directory that replaces an empty directory, and an exchange of
//! a directory and a file.
//!
//! If a metalink itself is moved or exchanged, the new metalink first leads to the old metalink. Afterwards
//! the new metalink is replaced by a metalink that leads to the object itself.

use super::Federated;
use super::links::{HOPS_MAX, rename_new};
use super::locate::Located;
use super::text::LinkId;
use shoal_proto::{Handle, Name, Status};
use shoal_vfs::{Error, RenameFlags, Result, Vfs};

type At<'a> = (Handle, &'a Name);

const EXCHANGE: RenameFlags = RenameFlags { no_replace: false, exchange: true };

fn changed(dir: Handle) -> Error {
    Error::new(Status::Stale, "rename").of(dir).because("another process changed the name meanwhile")
}

impl<V: Vfs> Federated<V> {
    /// Move an entry.
    pub(super) async fn move_name(&self, from: At<'_>, to: At<'_>, flags: RenameFlags) -> Result<()> {
        let (source, target) = (self.object(from.0, "rename")?, self.object(to.0, "rename")?);
        let is_inner = |shape| shape != super::handles::Shape::Directory;
        let is_alone = self.count() == 1;
        if is_alone || is_inner(source.shape) || is_inner(target.shape) {
            let is_one = is_alone || is_inner(source.shape) && is_inner(target.shape);
            if !is_one || source.backend != target.backend {
                let words = "a rename between backends, or out of a container";
                return Err(Error::new(Status::NotSupported, "rename").of(from.0).because(words));
            }
            let vfs = self.on(source.backend);
            let moved = vfs.rename(source.handle, from.1, target.handle, to.1, flags).await;
            return moved.map_err(|error| self.said(source.backend, error));
        }
        let none = || Error::new(Status::NotFound, "rename").of(from.0);
        let entry = self.shortened(from).await?.ok_or_else(none)?;
        let replaced = self.shortened(to).await?;
        let absent = || Error::new(Status::NotFound, "rename").of(to.0);
        if flags.exchange && replaced.is_none() {
            return Err(absent());
        }
        if replaced.is_some() && flags.no_replace {
            return Err(Error::new(Status::Exists, "rename").of(to.0));
        }
        if entry.is_shared() && self.is_above(&entry, to.0).await? {
            return Err(Error::new(Status::Invalid, "rename").of(to.0));
        }
        if let Some(old) = &replaced
            && old.is_shared()
            && self.is_above(old, from.0).await?
        {
            let status = if flags.exchange { Status::Invalid } else { Status::NotEmpty };
            return Err(Error::new(status, "rename").of(to.0));
        }
        if flags.exchange {
            let other = replaced.ok_or_else(absent)?;
            return self.exchange((from, &entry), (to, &other)).await;
        }
        if let Some(old) = replaced {
            if old.object == entry.object {
                return Ok(());
            }
            if !self.replace((from, &entry), (to, &old)).await? {
                return Ok(());
            }
        }
        match entry.is_shared() {
            true => self.move_directory(from, to).await,
            false => self.move_entry(from, &entry, to).await,
        }
    }

    /// Make way for an entry. Whether it is to be moved still.
    async fn replace(
        &self,
        (from, entry): (At<'_>, &Located),
        (to, old): (At<'_>, &Located),
    ) -> Result<bool> {
        let fails = |status| Err(Error::new(status, "rename").of(to.0));
        match (entry.is_shared(), old.is_shared()) {
            (true, true) => {
                self.remove_shared(to.0, to.1, old).await?;
                Ok(true)
            }
            (true, false) if !old.is_item() => fails(Status::NotDirectory),
            (false, true) if !entry.is_item() => fails(Status::IsDirectory),
            _ if old.is_item() => fails(Status::NotEmpty),
            _ if entry.is_item() || entry.is_shared() => fails(Status::NotDirectory),
            _ => {
                self.exchange((from, entry), (to, old)).await?;
                self.remove_file(from.0, from.1).await?;
                Ok(false)
            }
        }
    }

    /// Whether a directory is another one, or lies above it.
    async fn is_above(&self, entry: &Located, mut dir: Handle) -> Result<bool> {
        for _ in 0..shoal_proto::limits::PATH_COMPONENTS_MAX {
            if dir == entry.object.handle {
                return Ok(true);
            }
            if dir == Handle::ROOT {
                return Ok(false);
            }
            dir = self.first().getattr(dir).await?.parent;
        }
        Ok(true)
    }

    /// Move a directory of all backends: one rename of the first.
    async fn move_directory(&self, from: At<'_>, to: At<'_>) -> Result<()> {
        self.keep_name(to.0, to.1).await?;
        let moved = rename_new(self.first(), from, to).await;
        match &moved {
            Ok(()) => self.give_name(from.0, from.1).await,
            Err(error) if error.status != Status::Exists => self.give_name(to.0, to.1).await,
            Err(_) => {}
        }
        moved.map_err(|error| self.said(0, error))
    }

    /// Move an entry of one backend to a name that nothing has.
    async fn move_entry(&self, from: At<'_>, entry: &Located, to: At<'_>) -> Result<()> {
        let place = self.place(to.1);
        let folder = self.folder_made(place, to.0).await?;
        if place == entry.backend {
            let vfs = self.on(place);
            let moved = match rename_new(vfs, (entry.dir, from.1), (folder, to.1)).await {
                // A name that was kept for a directory which is gone.
                Err(error) if error.status == Status::Exists => {
                    let is_free = self.locate(to.0, to.1).await?.is_none()
                        && self.clear_place(place, folder, to.1).await?;
                    match is_free {
                        true => rename_new(vfs, (entry.dir, from.1), (folder, to.1)).await,
                        false => Err(error),
                    }
                }
                moved => moved,
            };
            return moved.map_err(|error| self.said(place, error));
        }
        let id = LinkId::draw(&self.0.env);
        let target = self.target(entry.backend, id);
        match self.put_link(place, (folder, to.1), target).await {
            Err(error)
                if error.status == Status::Exists
                    && self.locate(to.0, to.1).await?.is_none()
                    && self.clear_place(place, folder, to.1).await? =>
            {
                self.put_link(place, (folder, to.1), target).await?;
            }
            put => put.map_err(|error| self.said(place, error))?,
        }
        let moved = async {
            // A power cut is to leave one of the two names.
            self.sync_entry(place, to.0, folder).await?;
            self.set_aside(entry, from.1, id).await
        };
        let moved = moved.await;
        match &moved {
            Ok(()) => self.try_to_shorten(to).await,
            Err(_) => {
                let _ = self.on(place).unlink(folder, to.1).await;
            }
        }
        moved
    }

    /// Move an entry among the objects of its backend.
    async fn set_aside(&self, entry: &Located, name: &Name, id: LinkId) -> Result<()> {
        let (vfs, objects, aside) = (self.on(entry.backend), self.objects_of(entry.backend), id.name()?);
        self.made_own(entry.backend);
        let moved = rename_new(vfs, (entry.dir, name), (objects, &aside)).await;
        moved.map_err(|error| self.said(entry.backend, error))?;
        if vfs.lookup(objects, &aside).await?.handle != entry.entry {
            rename_new(vfs, (objects, &aside), (entry.dir, name)).await?;
            return Err(changed(entry.dir));
        }
        Ok(())
    }

    /// Swap two entries.
    async fn exchange(&self, one: (At<'_>, &Located), other: (At<'_>, &Located)) -> Result<()> {
        let ((from, entry), (to, old)) = (one, other);
        if entry.object == old.object {
            return Ok(());
        }
        match (entry.is_shared(), old.is_shared()) {
            (true, true) => self.exchange_on(0, from, to).await,
            (false, false) if entry.backend == old.backend => {
                self.exchange_on(entry.backend, (entry.dir, from.1), (old.dir, to.1)).await
            }
            (false, false) => self.exchange_over((from, entry), (to, old)).await,
            (true, false) => self.exchange_kinds((from, entry), (to, old)).await,
            (false, true) => self.exchange_kinds((to, old), (from, entry)).await,
        }
    }

    async fn exchange_on(&self, backend: usize, one: At<'_>, other: At<'_>) -> Result<()> {
        let swapped = self.on(backend).rename(one.0, one.1, other.0, other.1, EXCHANGE).await;
        swapped.map_err(|error| self.said(backend, error))
    }

    /// Swap entries of two backends. See the module.
    async fn exchange_over(&self, one: (At<'_>, &Located), other: (At<'_>, &Located)) -> Result<()> {
        let ((from, entry), (to, old)) = (one, other);
        let (x, y) = (LinkId::draw(&self.0.env), LinkId::draw(&self.0.env));
        self.put_aside(entry.backend, x, self.target(old.backend, y)).await?;
        if let Err(error) = self.put_aside(old.backend, y, self.target(entry.backend, x)).await {
            self.drop_aside(entry.backend, x).await?;
            return Err(error);
        }
        let first = async {
            self.sync_own(entry.backend).await?;
            self.sync_own(old.backend).await?;
            self.exchange_aside(entry, from.1, x).await
        };
        let first = first.await;
        let second = match &first {
            Ok(()) => self.exchange_aside(old, to.1, y).await,
            Err(_) => Ok(()),
        };
        if first.is_ok() && second.is_err() {
            let objects = self.objects_of(entry.backend);
            self.exchange_on(entry.backend, (entry.dir, from.1), (objects, &x.name()?)).await?;
        }
        if first.is_err() || second.is_err() {
            self.drop_aside(entry.backend, x).await?;
            self.drop_aside(old.backend, y).await?;
        }
        first.and(second)?;
        // Before one of the two is removed: what leads to the other one is durable, on both backends. Either
        // may lose its power alone.
        self.sync_folder(entry.backend, entry.dir).await?;
        self.sync_folder(old.backend, old.dir).await?;
        self.try_to_shorten(from).await;
        self.try_to_shorten(to).await;
        Ok(())
    }

    /// The rename stands, whether or not this works.
    async fn try_to_shorten(&self, name: At<'_>) {
        if let Err(error) = self.shorten(name).await {
            tracing::debug!("metalinks stay one after the other: {error}");
        }
    }

    /// The entry of a name, with metalinks that a rename may add one to.
    async fn shortened(&self, (dir, name): At<'_>) -> Result<Option<Located>> {
        let entry = self.locate(dir, name).await?;
        let hops = entry.as_ref().and_then(|entry| entry.link.as_ref()).map_or(0, |linked| linked.hops.len());
        if hops <= HOPS_MAX / 2 {
            return Ok(entry);
        }
        self.shorten((dir, name)).await?;
        self.locate(dir, name).await
    }

    async fn sync_folder(&self, backend: usize, folder: Handle) -> Result<()> {
        self.on(backend).fsync_directory(folder).await.map_err(|error| self.said(backend, error))
    }

    /// Let a metalink that leads to further ones lead to the object.
    async fn shorten(&self, (dir, name): At<'_>) -> Result<()> {
        let Some(entry) = self.locate(dir, name).await? else { return Ok(()) };
        let Some((last, between)) = entry.link.as_ref().and_then(|linked| linked.hops.split_last()) else {
            return Ok(());
        };
        if between.is_empty() {
            return Ok(());
        }
        let id = LinkId::draw(&self.0.env);
        self.put_aside(entry.backend, id, self.target(last.0, last.1)).await?;
        self.sync_own(entry.backend).await?;
        match self.exchange_aside(&entry, name, id).await {
            // Another process changed it meanwhile.
            Err(error) if matches!(error.status, Status::Stale | Status::NotFound) => {
                return self.drop_aside(entry.backend, id).await;
            }
            exchanged => exchanged?,
        }
        self.sync_folder(entry.backend, entry.dir).await?;
        self.drop_aside(entry.backend, id).await?;
        for (backend, id) in between {
            self.drop_aside(*backend, *id).await?;
        }
        Ok(())
    }

    /// Swap an entry and the metalink among the objects of its backend.
    async fn exchange_aside(&self, entry: &Located, name: &Name, id: LinkId) -> Result<()> {
        let (vfs, objects, aside) = (self.on(entry.backend), self.objects_of(entry.backend), id.name()?);
        self.exchange_on(entry.backend, (entry.dir, name), (objects, &aside)).await?;
        if vfs.lookup(objects, &aside).await?.handle != entry.entry {
            self.exchange_on(entry.backend, (entry.dir, name), (objects, &aside)).await?;
            return Err(changed(entry.dir));
        }
        Ok(())
    }

    /// Swap a directory of all backends and an entry of one: the entry goes aside for a moment.
    async fn exchange_kinds(&self, one: (At<'_>, &Located), other: (At<'_>, &Located)) -> Result<()> {
        let ((from, shared), (to, entry)) = (one, other);
        if self.is_above(shared, to.0).await? {
            return Err(Error::new(Status::Invalid, "rename").of(to.0));
        }
        let id = LinkId::draw(&self.0.env);
        self.set_aside(entry, to.1, id).await?;
        let moved = self.move_directory(from, to).await;
        let name = if moved.is_ok() { from } else { to };
        let place = self.place(name.1);
        let folder = self.folder_made(place, name.0).await?;
        match place == entry.backend {
            true => {
                let objects = self.objects_of(place);
                rename_new(self.on(place), (objects, &id.name()?), (folder, name.1)).await?;
            }
            false => self.put_link(place, (folder, name.1), self.target(entry.backend, id)).await?,
        }
        moved
    }
}
