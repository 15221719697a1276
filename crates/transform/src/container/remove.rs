//! Removal of a container: one rename moves it into the bin (`.shoal`), and a task deletes it there. A mount
//! does not wait for the task. A process that may end after any call waits, as the task ends with it.

use super::{Shared, names};
use shoal_env::local::oneshot;
use shoal_proto::{Attr, Handle, Kind, Name, Status};
use shoal_vfs::{Error, Listing, RenameFlags, Result, Vfs};
use std::rc::Rc;
use std::time::Duration;

impl<B: Vfs> Shared<B> {
    /// Take the name of a container away. Its open files live on. `expected`: the object that was looked up.
    ///
    /// Another process may have moved it and put another file in its place: so the object is looked at once
    /// it is in the bin, and one that is no container gets its name back.
    pub(super) async fn remove(self: &Rc<Self>, dir: Handle, name: &Name, expected: Handle) -> Result<()> {
        let (bin, gone) = (self.bin().await?, self.draw_name("gone", name)?);
        self.over.rename(dir, name, bin, &gone, RenameFlags::default()).await?;
        let moved = self.over.lookup(bin, &gone).await?;
        let is_wanted = moved.handle == expected || self.is_container(&moved).await?;
        if !is_wanted {
            self.rename_new(bin, &gone, dir, name).await?;
            let words = "another object got its name meanwhile";
            return Err(Error::new(Status::Stale, "remove").of(expected).because(words));
        }
        self.discard(gone, &moved).await;
        Ok(())
    }

    /// A container in the bin has no name any more: delete it, now or with its last close.
    pub(super) async fn discard(self: &Rc<Self>, gone: Name, moved: &Attr) {
        let object = moved.handle;
        match self.state_in_use(object).filter(|state| state.born == moved.btime) {
            Some(state) => {
                state.is_removed.set(true);
                state.gone.replace(Some(gone));
            }
            None => {
                self.forget(object);
                self.delete(gone, object).await;
            }
        }
    }

    /// Move an entry to a name that nothing has.
    pub(super) async fn rename_new(
        &self,
        from: Handle,
        from_name: &Name,
        to: Handle,
        to_name: &Name,
    ) -> Result<()> {
        let over = &self.over;
        let no_replace = RenameFlags { no_replace: true, exchange: false };
        match over.rename(from, from_name, to, to_name, no_replace).await {
            // NFS has no such rename. A directory replaces nothing but an empty one.
            Err(error) if matches!(error.status, Status::Invalid | Status::NotSupported) => {
                match over.lookup(to, to_name).await {
                    Ok(_) => Err(Error::new(Status::Exists, "create").of(to)),
                    Err(error) if error.status == Status::NotFound => {
                        over.rename(from, from_name, to, to_name, RenameFlags::default()).await
                    }
                    Err(error) => Err(error),
                }
            }
            renamed => renamed,
        }
    }

    /// Delete a removed container: in the background, or before this returns. Its name is gone already, so a
    /// failure is no error of the removal.
    pub(super) async fn delete(self: &Rc<Self>, gone: Name, object: Handle) {
        let shared = self.clone();
        let (done, ended) = oneshot();
        self.removing.borrow_mut().insert(object);
        self.env.spawn("remove a container", async move {
            if let Err(error) = shared.delete_named(&gone, object).await {
                tracing::warn!("a removed container stays in `.shoal`: {error}");
            }
            shared.removing.borrow_mut().remove(&object);
            shared.forget(object);
            shared.removed.wake_all();
            done.send(());
        });
        if self.awaits_deletions.get() {
            ended.await;
        }
    }

    /// Wait until no removal and no close is under way.
    pub(super) async fn removals_ended(&self) {
        loop {
            let ended = self.removed.wait();
            if self.removing.borrow().is_empty() && self.closes.get() == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Delete a container in the bin. Its record goes first: where it is, all else is.
    pub(super) async fn delete_named(&self, called: &Name, object: Handle) -> Result<()> {
        let over = &self.over;
        gone_is_fine(over.unlink(object, &names::record()).await)?;
        for (name, kind, handle) in entries(over, object).await? {
            if kind != Kind::Directory {
                gone_is_fine(over.unlink(object, &name).await)?;
                continue;
            }
            for (log, _, _) in entries(over, handle).await? {
                gone_is_fine(over.unlink(handle, &log).await)?;
            }
            gone_is_fine(over.rmdir(object, &name).await)?;
        }
        let bin = self.bin().await?;
        gone_is_fine(over.rmdir(bin, called).await)
    }

    /// Take back a container that was being made.
    pub(super) async fn take_back(self: &Rc<Self>, name: &Name, object: Handle) {
        let (shared, name) = (self.clone(), name.clone());
        self.clean("a container that was not made stays in `.shoal`", async move || {
            let bin = shared.bin().await?;
            // Its rename may have been done though its answer was lost: then it is a file.
            match shared.over.lookup(bin, &name).await {
                Ok(attr) if attr.handle == object => {}
                Err(error) if error.status != Status::NotFound => return Err(error),
                _ => return Ok(()),
            }
            gone_is_fine(shared.over.unlink(object, &names::record()).await)?;
            gone_is_fine(shared.over.rmdir(bin, &name).await)
        })
        .await;
    }

    /// Take back a directory in the bin that may have been made.
    pub(super) async fn take_back_name(self: &Rc<Self>, name: &Name) {
        let (shared, name) = (self.clone(), name.clone());
        self.clean("a container that was not made stays in `.shoal`", async move || {
            gone_is_fine(shared.over.rmdir(shared.bin().await?, &name).await)
        })
        .await;
    }

    /// Remove an object that is half made. If this process has no descriptors left (which may be why it was
    /// not made), try again in the background. `words`: the object that stays if that fails.
    pub(super) async fn clean(
        self: &Rc<Self>,
        words: &'static str,
        work: impl AsyncFn() -> Result<()> + 'static,
    ) {
        let say = move |error: Error| tracing::warn!("{words}: {error}");
        match work().await {
            Err(error) if is_short(&error) => {}
            cleaned => return cleaned.unwrap_or_else(say),
        }
        let shared = self.clone();
        self.closes.set(self.closes.get() + 1);
        self.env.spawn("remove what is half made", async move {
            shared.while_short(work).await.unwrap_or_else(say);
            shared.closes.set(shared.closes.get() - 1);
            shared.removed.wake_all();
        });
    }

    /// Do it, and again while there are no descriptors left.
    pub(super) async fn while_short<T>(&self, work: impl AsyncFn() -> Result<T>) -> Result<T> {
        for pause in SHORT_PAUSES {
            match work().await {
                Err(error) if is_short(&error) => self.env.sleep(pause).await,
                done => return done,
            }
        }
        work().await
    }
}

/// Before work is tried again for which there were no descriptors.
const SHORT_PAUSES: [Duration; 6] = [
    Duration::from_millis(10),
    Duration::from_millis(50),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];

/// No descriptors are left: `EMFILE`, `ENFILE`.
fn is_short(error: &Error) -> bool {
    matches!(error.kernel, Some(23 | 24))
}

pub(super) fn gone_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => Ok(()),
        result => result,
    }
}

pub(super) async fn entries<B: Vfs>(over: &B, dir: Handle) -> Result<Vec<(Name, Kind, Handle)>> {
    let mut listing = over.opendir(dir, Duration::from_secs(1));
    let mut found = Vec::new();
    while let Some(listed) = listing.next(false).await? {
        found.push((listed.entry.name, listed.entry.kind, listed.entry.handle));
    }
    Ok(found)
}
