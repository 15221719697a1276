//! Removal: into the bin by one rename, and out of it in the background.

use super::{Shared, names};
use shoal_proto::{Handle, Kind, Name, Status};
use shoal_vfs::{Listing, RenameFlags, Result, Vfs};
use std::rc::Rc;
use std::time::Duration;

impl<B: Vfs> Shared<B> {
    /// Take the name of a container away. Its open files live on.
    pub(super) async fn remove(self: &Rc<Self>, dir: Handle, name: &Name, object: Handle) -> Result<()> {
        let (bin, gone) = (self.bin().await?, gone(object)?);
        self.over.rename(dir, name, bin, &gone, RenameFlags::default()).await?;
        self.forget(object);
        match self.state_in_use(object) {
            Some(state) => state.is_removed.set(true),
            None => self.delete_later(object),
        }
        Ok(())
    }

    /// Delete a removed container in the background.
    pub(super) fn delete_later(self: &Rc<Self>, object: Handle) {
        let shared = self.clone();
        self.removing.borrow_mut().insert(object);
        self.env.spawn("remove a container", async move {
            if let Err(error) = shared.delete(object).await {
                tracing::warn!("a removed container stays in `.shoal`: {error}");
            }
            shared.removing.borrow_mut().remove(&object);
            shared.removed.wake_all();
        });
    }

    /// Wait until no removal is under way.
    pub(super) async fn removals_ended(&self) {
        loop {
            let ended = self.removed.wait();
            if self.removing.borrow().is_empty() {
                return;
            }
            ended.await;
        }
    }

    async fn delete(&self, object: Handle) -> Result<()> {
        self.delete_named(&gone(object)?, object).await
    }

    /// Delete a container in the bin.
    pub(super) async fn delete_named(&self, called: &Name, object: Handle) -> Result<()> {
        let over = &self.over;
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
    pub(super) async fn take_back(&self, name: &Name, object: Handle) {
        let taken = async {
            let bin = self.bin().await?;
            gone_is_fine(self.over.unlink(object, &names::record()).await)?;
            gone_is_fine(self.over.rmdir(bin, name).await)
        };
        if let Err(error) = taken.await {
            tracing::warn!("a container that was not made stays in `.shoal`: {error}");
        }
    }
}

/// A removed container's name in the bin.
fn gone(object: Handle) -> Result<Name> {
    names::name(&format!("gone.{:x}", object.0))
}

fn gone_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if matches!(error.status, Status::NotFound | Status::Stale) => Ok(()),
        result => result,
    }
}

async fn entries<B: Vfs>(over: &B, dir: Handle) -> Result<Vec<(Name, Kind, Handle)>> {
    let mut listing = over.opendir(dir, Duration::from_secs(1));
    let mut found = Vec::new();
    while let Some(listed) = listing.next(false).await? {
        found.push((listed.entry.name, listed.entry.kind, listed.entry.handle));
    }
    Ok(found)
}
