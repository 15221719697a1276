//! Removal of a domain's root: a directory that is empty for its users, with nothing in it but the objects
//! that its layout keeps for itself.

use super::beneath::Beneath;
use super::domain::Layout;
use super::{Followed, is_inside};
use crate::composed::dissolve;
use shoal_proto::{Dist, Handle, Name, Status};
use shoal_vfs::{Error, Result, Vfs};

impl<B: Vfs> Followed<B> {
    /// A directory was not removed, or not replaced, because it has entries (`refused`). If it is a root
    /// without entries for its users, its layout's own objects are removed.
    pub(super) async fn clear(&self, dir: Handle, name: &Name, refused: Error) -> Result<Handle> {
        let found = self.0.over.lookup(dir, name).await?;
        if !found.template.dist.is_followed() {
            return Err(refused);
        }
        let root = self.learn(found, Some(name)).await?.handle;
        if is_inside(root) {
            return Err(refused);
        }
        let dist = self.0.roots.borrow().get(&root).map(|root| root.dist);
        let cleared = match dist {
            Some(Dist::Composed { .. }) => self.dissolve(root).await,
            _ => match &self.domain(root).await?.layout {
                Layout::Container(vfs) => vfs.clear_root().await,
                Layout::Composed(_) => Err(refused),
            },
        };
        cleared.map(|()| root).map_err(|error| error.of(root))
    }

    /// Remove the files that a composed directory without names keeps.
    async fn dissolve(&self, root: Handle) -> Result<()> {
        let beneath = Beneath::new(self.0.over.clone(), root);
        // One whose removal was killed may not be opened.
        if let Ok(domain) = self.domain(root).await
            && let Layout::Composed(vfs) = &domain.layout
        {
            vfs.is_empty().await?;
        }
        self.closed_during(root, dissolve(&self.0.env, &beneath)).await
    }

    /// Remove a directory outside.
    pub(super) async fn remove_directory(&self, dir: Handle, name: &Name) -> Result<()> {
        match self.0.over.rmdir(dir, name).await {
            Err(error) if error.status == Status::NotEmpty => {
                let root = Box::pin(self.clear(dir, name, error)).await?;
                self.0.over.rmdir(dir, name).await?;
                self.0.is_removed(root);
                Ok(())
            }
            removed => removed,
        }
    }
}
