//! A listing: containers are files in it.

use super::{Container, attributes, names};
use shoal_proto::{Handle, Kind};
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
        loop {
            let Some(mut listed) = self.listing.next(plus).await? else { return Ok(None) };
            let entry = &mut listed.entry;
            if self.dir == Handle::ROOT && entry.name == names::bin() {
                continue;
            }
            if entry.kind == Kind::Directory && shared.is_container(entry.handle, entry.kind).await? {
                entry.kind = Kind::File;
                if entry.attr.is_some() {
                    let attr = attributes::of(shared, entry.handle).await;
                    listed.is_unknown = attr.is_err();
                    entry.attr = attr.ok();
                }
            }
            return Ok(Some(listed));
        }
    }

    fn seek(&mut self, place: u64) {
        self.listing.seek(place);
    }
}
