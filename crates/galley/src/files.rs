//! `gfs_open_file`, `gfs_close_file`, `gfs_delete_file`.

use crate::forks::owner_of_forks;
use crate::init::OpenedFile;
use crate::{Errno, FileId, ForkId, Galley, Result};
use shoal_proto::{Attr, Dist, Handle, Kind, Name};
use shoal_vfs::{Error, Listing as _, Vfs};
use std::time::Duration;

/// Attributes are not asked for.
const NO_PATIENCE: Duration = Duration::ZERO;

impl<V: Vfs> Galley<V> {
    /// Open a file.
    ///
    /// # Errors
    /// `NoEntry`; `Invalid`: it is no forked file; `Io`: a subfile is missing; `TooManyOpen`.
    pub async fn gfs_open_file(&self, name: &[u8]) -> Result<FileId> {
        let (attr, count) = self.forked(name).await?;
        let mut subfiles: Vec<Option<Handle>> = vec![None; count];
        for (name, handle) in self.entries(attr.handle).await? {
            let number =
                std::str::from_utf8(name.as_bytes()).ok().and_then(|text| text.parse::<usize>().ok());
            if let Some(place) = number.and_then(|number| subfiles.get_mut(number)) {
                *place = Some(handle);
            }
        }
        let missing = subfiles.iter().position(Option::is_none);
        if let Some(missing) = missing {
            let words = format!("subfile {missing} is missing: `shoal fsck` names the file");
            return Err(self.fail(Errno::Io, words));
        }
        let owner = owner_of_forks(&attr);
        self.keep_file(OpenedFile { subfiles: subfiles.into_iter().flatten().collect(), owner })
    }

    /// Close a file. Its forks that are open stay open.
    ///
    /// # Errors
    /// `BadFile`.
    pub fn gfs_close_file(&self, fid: FileId) -> Result<()> {
        self.drop_file(fid)
    }

    /// The number of an open file's subfiles.
    ///
    /// # Errors
    /// `BadFile`.
    pub fn subfiles(&self, fid: FileId) -> Result<u32> {
        Ok(self.file(fid)?.subfiles.len() as u32)
    }

    /// Delete a file, with all its subfiles and forks. It is no single change: what a failure leaves is a
    /// file with fewer forks, and can be deleted again.
    ///
    /// # Errors
    /// `NoEntry`; `Invalid`: it is no forked file.
    pub async fn gfs_delete_file(&self, name: &[u8]) -> Result<()> {
        let (attr, _) = self.forked(name).await?;
        let (dir, name) = self.place(name).await?;
        let subfiles = self.entries(attr.handle).await?;
        for (_, subfile) in &subfiles {
            let forks = self.entries(*subfile).await?;
            let forks: Vec<(Handle, Name)> = forks.into_iter().map(|(name, _)| (*subfile, name)).collect();
            for removed in self.0.vfs.unlink_many(&forks).await {
                self.kept(removed)?;
            }
        }
        for (name, _) in &subfiles {
            let removed = self.0.vfs.rmdir(attr.handle, name).await;
            self.kept(removed)?;
        }
        let removed = self.0.vfs.rmdir(dir, &name).await;
        self.kept(removed)
    }

    /// Open an ordinary file for the same calls that transfer to and from forks (not in Galley, which had no
    /// such files). Close it with [`Galley::gfs_close_fork`].
    ///
    /// # Errors
    /// `NoEntry`; `Invalid`: it is a directory.
    pub async fn open_linear(&self, name: &[u8]) -> Result<ForkId> {
        let (dir, name) = self.place(name).await?;
        self.open_one(dir, &name).await
    }

    /// A forked file, and how many subfiles it has.
    async fn forked(&self, path: &[u8]) -> Result<(Attr, usize)> {
        let found = self.0.vfs.walk_path(path, true).await;
        let attr = self.kept(found)?;
        match attr.template.dist {
            Dist::Forked { subfiles } if attr.kind == Kind::Directory => Ok((attr, subfiles.into())),
            _ => {
                let words = format!("{} is no forked file", String::from_utf8_lossy(path));
                Err(self.fail(Errno::Invalid, words))
            }
        }
    }

    /// The entries of a directory.
    pub(crate) async fn entries(&self, dir: Handle) -> Result<Vec<(Name, Handle)>> {
        let listed = self.list(dir).await;
        self.kept(listed)
    }

    pub(crate) async fn list(&self, dir: Handle) -> std::result::Result<Vec<(Name, Handle)>, Error> {
        let (mut listing, mut all) = (self.0.vfs.opendir(dir, NO_PATIENCE), Vec::new());
        while let Some(listed) = listing.next(false).await? {
            all.push((listed.entry.name, listed.entry.handle));
        }
        Ok(all)
    }
}
