//! A listing of a composed directory: entries in the order of their names' hashes, from the index.

use super::Shared;
use shoal_proto::{Entry, Handle};
use shoal_vfs::{Listed, Listing, Result, Vfs};
use std::rc::Rc;

/// See the module.
pub struct ComposedListing<B: Vfs> {
    shared: Rc<Shared<B>>,
    dir: Handle,
    /// The place of the last entry.
    at: u64,
    has_begun: bool,
}

impl<B: Vfs> ComposedListing<B> {
    pub(super) fn new(shared: &Rc<Shared<B>>, dir: Handle) -> ComposedListing<B> {
        ComposedListing { shared: shared.clone(), dir, at: 0, has_begun: false }
    }
}

impl<B: Vfs> Listing for ComposedListing<B> {
    async fn next(&mut self, plus: bool) -> Result<Option<Listed>> {
        let shared = &self.shared;
        shared.directory(self.dir, "list")?;
        if !std::mem::replace(&mut self.has_begun, true) {
            shared.refresh_now().await?;
            shared.directory(self.dir, "list")?;
        }
        let names = shared.names.borrow();
        let Some((place, name, object)) = names.after(self.dir.0, self.at) else { return Ok(None) };
        self.at = place;
        let Some(attr) = names.attr(object) else { return Ok(None) };
        let entry =
            Entry { name, handle: Handle(object), kind: attr.kind, place, attr: plus.then_some(attr) };
        Ok(Some(Listed { entry, asked_at: shared.env.now(), is_unknown: false }))
    }

    fn seek(&mut self, place: u64) {
        self.at = place;
    }
}
