//! A listing of a directory. It shows containers as files.

use super::{Container, attributes, names};
use shoal_proto::{Handle, Kind, Status};
use shoal_vfs::{Listed, Listing, Result, Vfs};
use std::time::Duration;

/// A listing of a directory of [`Container`].
pub struct ContainerListing<B: Vfs> {
    container: Container<B>,
    dir: Handle,
    listing: B::Listing,
}

impl<B: Vfs> ContainerListing<B> {
    pub(super) fn new(container: &Container<B>, dir: Handle, patience: Duration) -> ContainerListing<B> {
        let listing = container.over().opendir(dir, patience);
        ContainerListing { container: container.clone(), dir, listing }
    }
}

impl<B: Vfs> Listing for ContainerListing<B> {
    async fn next(&mut self, plus: bool) -> Result<Option<Listed>> {
        let shared = &self.container.0;
        shared.is_directory(self.dir, "list").await?;
        loop {
            let Some(mut listed) = self.listing.next(plus).await? else { return Ok(None) };
            let entry = &mut listed.entry;
            if self.dir == Handle::ROOT && entry.name == names::bin() {
                continue;
            }
            if entry.kind != Kind::Directory {
                return Ok(Some(listed));
            }
            let dir = match entry.attr.take() {
                Some(attr) => Ok(attr),
                None => shared.over.getattr(entry.handle).await,
            };
            let dir = match dir {
                Ok(dir) => dir,
                // Removed meanwhile.
                Err(error) if error.status == Status::Stale => continue,
                Err(error) => return Err(error),
            };
            let is_container = match shared.named(self.dir, &entry.name, &dir).await {
                Err(error) if matches!(error.status, Status::Stale | Status::NotFound) => continue,
                Ok(Some(is_container)) => is_container,
                // Replaced meanwhile: what it is now is for a look-up.
                Ok(None) => {
                    let container = &self.container;
                    match container.lookup(self.dir, &entry.name).await {
                        Err(error) if error.status == Status::NotFound => continue,
                        found => {
                            let found = found?;
                            (entry.handle, entry.kind) = (found.handle, found.kind);
                            entry.attr = plus.then_some(found);
                            return Ok(Some(listed));
                        }
                    }
                }
                Err(error) => return Err(error),
            };
            if !is_container {
                entry.attr = plus.then(|| attributes::seen(dir));
                return Ok(Some(listed));
            }
            entry.kind = Kind::File;
            if plus {
                let attr = attributes::of(shared, &dir).await;
                if attr.as_ref().is_err_and(|error| matches!(error.status, Status::Stale | Status::NotFound))
                {
                    continue;
                }
                listed.is_unknown = attr.is_err();
                entry.attr = attr.ok();
            }
            return Ok(Some(listed));
        }
    }

    fn seek(&mut self, place: u64) {
        self.listing.seek(place);
    }
}
