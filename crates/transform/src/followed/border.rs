//! Renames and links of objects in a domain: done within one domain, and refused over its border.

use super::domain::in_layout;
use super::{Followed, is_inside};
use shoal_proto::{Attr, Handle, Name, Status};
use shoal_vfs::{Error, RenameFlags, Result, Vfs};

/// The objects are not in one domain, nor both outside.
fn across(op: &'static str, object: Handle) -> Error {
    let words = "a name does not move between a directory with a layout of its own and others: copy the file";
    Error::new(Status::CrossDevice, op).of(object).because(words)
}

impl<B: Vfs> Followed<B> {
    pub(super) async fn rename_across(
        &self,
        from: (Handle, &Name),
        to: (Handle, &Name),
        flags: RenameFlags,
    ) -> Result<()> {
        if self.is_outside(from.0) || self.is_outside(to.0) {
            return Err(across("rename", from.0));
        }
        let (domain, from_inner) = self.enter(from.0).await?;
        let (other, to_inner) = self.enter(to.0).await?;
        if domain.root != other.root {
            return Err(across("rename", from.0));
        }
        in_layout!(domain, vfs => vfs.rename(from_inner, from.1, to_inner, to.1, flags).await)
    }

    pub(super) async fn link_across(&self, object: Handle, dir: Handle, name: &Name) -> Result<Attr> {
        if !is_inside(object) || self.is_outside(dir) {
            return Err(across("link", object));
        }
        let (domain, inner) = self.enter(object).await?;
        let (other, dir) = self.enter(dir).await?;
        if domain.root != other.root {
            return Err(across("link", object));
        }
        let attr = in_layout!(domain, vfs => vfs.link(inner, dir, name).await)?;
        Ok(self.outside(&domain, attr))
    }
}
