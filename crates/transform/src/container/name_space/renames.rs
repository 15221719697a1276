//! Renames. A rename over a container is one exchange of names if the file system below can exchange names,
//! and then the removal of the replaced object. Otherwise it takes two renames.

use crate::container::Container;
use shoal_proto::{Attr, Handle, Kind, Name, Status};
use shoal_vfs::{Error, RenameFlags, Result, Vfs};

impl<B: Vfs> Container<B> {
    /// Whether a name leads to an object of a kind, as it is seen here.
    pub(super) async fn target_is(&self, dir: Handle, name: &Name, kind: Kind) -> bool {
        match self.container_of(dir, name).await {
            Ok((attr, is_container)) => attr.kind == kind && !is_container,
            Err(_) => false,
        }
    }

    /// Whether a directory is another one, or lies below it.
    async fn is_within(&self, mut dir: Handle, above: Handle) -> Result<bool> {
        for _ in 0..shoal_proto::limits::PATH_COMPONENTS_MAX {
            if dir == above || dir == Handle::ROOT {
                return Ok(dir == above);
            }
            dir = self.0.over.getattr(dir).await?.parent;
        }
        Ok(false)
    }

    /// One try to move an entry.
    pub(super) async fn rename_once(
        &self,
        from: (Handle, &Name),
        to: (Handle, &Name),
        flags: RenameFlags,
    ) -> Result<()> {
        let over = &self.0.over;
        let target = match self.container_of(to.0, to.1).await {
            Ok(found) => Some(found),
            Err(error) if error.status == Status::NotFound => None,
            Err(error) => return Err(error),
        };
        let Some((old, old_is_container)) = target.filter(|_| !flags.no_replace && !flags.exchange) else {
            return over.rename(from.0, from.1, to.0, to.1, flags).await;
        };
        let (new, new_is_container) = self.container_of(from.0, from.1).await?;
        if new.handle == old.handle {
            return Ok(());
        }
        if !old_is_container && !new_is_container {
            return over.rename(from.0, from.1, to.0, to.1, flags).await;
        }
        let is_dir = |attr: &Attr, is_container: bool| attr.kind == Kind::Directory && !is_container;
        match (is_dir(&new, new_is_container), is_dir(&old, old_is_container)) {
            (true, false) => {
                let is_within = self.is_within(to.0, new.handle).await?;
                let status = if is_within { Status::Invalid } else { Status::NotDirectory };
                return Err(Error::new(status, "rename").of(old.handle));
            }
            (false, true) => {
                let is_within = self.is_within(from.0, old.handle).await?;
                let status = if is_within { Status::NotEmpty } else { Status::IsDirectory };
                return Err(Error::new(status, "rename").of(old.handle));
            }
            _ => {}
        }
        let exchange = RenameFlags { no_replace: false, exchange: true };
        match over.rename(from.0, from.1, to.0, to.1, exchange).await {
            // The old one has the source's name now.
            Ok(()) if old_is_container => self.0.remove(from.0, from.1, old.handle).await,
            Ok(()) => over.unlink(from.0, from.1).await,
            Err(error) if matches!(error.status, Status::Invalid | Status::NotSupported) => {
                self.replace_in_steps(from, to, old_is_container).await
            }
            Err(error) => Err(error),
        }
    }

    /// A rename over an entry where there is no exchange below. The target has no name for a moment; it is
    /// deleted only when the source has it.
    async fn replace_in_steps(
        &self,
        from: (Handle, &Name),
        to: (Handle, &Name),
        is_container: bool,
    ) -> Result<()> {
        let (shared, over, flags) = (&self.0, &self.0.over, RenameFlags::default());
        // Until the target has its name, the former one may be needed: no sweep deletes it.
        let (bin, held) = (shared.bin().await?, shared.draw_name("held", to.1)?);
        over.rename(to.0, to.1, bin, &held, flags).await?;
        if let Err(error) = over.rename(from.0, from.1, to.0, to.1, flags).await {
            shared.rename_new(bin, &held, to.0, to.1).await?;
            return Err(error);
        }
        let gone = shared.draw_name("gone", to.1)?;
        over.rename(bin, &held, bin, &gone, flags).await?;
        if !is_container {
            return over.unlink(bin, &gone).await;
        }
        let moved = over.lookup(bin, &gone).await?;
        shared.discard(gone, &moved).await;
        Ok(())
    }
}
