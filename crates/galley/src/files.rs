//! `gfs_open_file`, `gfs_close_file`, `gfs_delete_file`.

use crate::forks::owner_of_forks;
use crate::init::{OpenedFile, quoted};
use crate::{Errno, FileId, ForkId, Galley, Result};
use shoal_proto::{Attr, Dist, Handle, Kind, Name, Status};
use shoal_vfs::{Error, Listing as _, Vfs};
use std::time::Duration;

/// Attributes are not asked for.
const NO_PATIENCE: Duration = Duration::ZERO;
/// How often the forks of a file are deleted, at most, where others make new ones meanwhile.
const DELETIONS_MAX: usize = 16;

impl<V: Vfs> Galley<V> {
    /// Open a file.
    ///
    /// # Errors
    /// `NoEntry`; `Invalid`: it is no forked file; `Io`: a subfile is missing; `TooManyOpen`.
    pub async fn gfs_open_file(&self, name: &[u8]) -> Result<FileId> {
        let (attr, count) = self.forked(name).await?;
        let mut subfiles: Vec<Option<Handle>> = vec![None; count];
        let listed = self.list(attr.handle).await;
        for (entry, handle) in self.kept_of(|| quoted(name), listed)? {
            let number =
                std::str::from_utf8(entry.as_bytes()).ok().and_then(|text| text.parse::<usize>().ok());
            if let Some(place) = number.and_then(|number| subfiles.get_mut(number)) {
                *place = Some(handle);
            }
        }
        let missing = subfiles.iter().position(Option::is_none);
        if let Some(missing) = missing {
            let words = format!("subfile {missing} of {} is missing: run `shoal fsck`", quoted(name));
            return Err(self.fail(Errno::Io, words));
        }
        let owner = owner_of_forks(&attr);
        let subfiles = subfiles.into_iter().flatten().collect();
        self.keep_file(OpenedFile { name: quoted(name), subfiles, owner })
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

    /// Delete a file, with all its subfiles and forks. Its forks are deleted first; the file and its subfiles
    /// then go in one change. A failure leaves a whole file with fewer forks.
    ///
    /// # Errors
    /// `NoEntry`, also where another deletion is first; `Invalid`: it is no forked file, or a symbolic link;
    /// `Busy`: forks are made in it again and again.
    pub async fn gfs_delete_file(&self, name: &[u8]) -> Result<()> {
        let (dir, leaf) = self.place(name).await?;
        let found = self.0.vfs.lookup(dir, &leaf).await;
        let (file, _) = self.of_forked(name, self.kept_of(|| quoted(name), found)?)?;
        for _ in 0..DELETIONS_MAX {
            let deleted = self.delete_forks(file.handle).await;
            self.kept_of(|| format!("forks of {}", quoted(name)), deleted)?;
            match self.0.vfs.rmforked(dir, &leaf, file.handle).await {
                // A fork was made meanwhile.
                Err(error) if error.status == Status::NotEmpty => {}
                removed => return self.kept_of(|| quoted(name), removed),
            }
        }
        let words = format!("forks are made in {} again and again", quoted(name));
        Err(self.fail(Errno::Busy, words))
    }

    /// Delete all forks of a file. Another deletion may be under way.
    async fn delete_forks(&self, file: Handle) -> std::result::Result<(), Error> {
        for (_, subfile) in self.list_if_there(file).await? {
            let forks = self.list_if_there(subfile).await?;
            let forks: Vec<(Handle, Name)> = forks.into_iter().map(|(name, _)| (subfile, name)).collect();
            for removed in self.0.vfs.unlink_many(&forks).await {
                if !removed.as_ref().is_err_and(|error| is_gone(error.status)) {
                    removed?;
                }
            }
        }
        Ok(())
    }

    /// Open an ordinary file for the same calls that transfer to and from forks (not in Galley, which had no
    /// such files). Close it with [`Galley::gfs_close_fork`].
    ///
    /// # Errors
    /// `NoEntry`; `Invalid`: it is a directory.
    pub async fn open_linear(&self, name: &[u8]) -> Result<ForkId> {
        let (dir, leaf) = self.place(name).await?;
        self.open_one(dir, &leaf, || quoted(name)).await
    }

    /// A forked file, and how many subfiles it has.
    async fn forked(&self, path: &[u8]) -> Result<(Attr, usize)> {
        let found = self.0.vfs.walk_inside(path, true).await;
        self.of_forked(path, self.kept_of(|| quoted(path), found)?)
    }

    /// The same of an object that was found.
    fn of_forked(&self, path: &[u8], attr: Attr) -> Result<(Attr, usize)> {
        match attr.template.dist {
            Dist::Forked { subfiles } if attr.kind == Kind::Directory => Ok((attr, subfiles.into())),
            _ => {
                let words = format!("{} is no forked file", quoted(path));
                Err(self.fail(Errno::Invalid, words))
            }
        }
    }

    /// The entries of a directory; none, if it is removed.
    async fn list_if_there(&self, dir: Handle) -> std::result::Result<Vec<(Name, Handle)>, Error> {
        match self.list(dir).await {
            Err(error) if is_gone(error.status) => Ok(Vec::new()),
            listed => listed,
        }
    }

    pub(crate) async fn list(&self, dir: Handle) -> std::result::Result<Vec<(Name, Handle)>, Error> {
        let (mut listing, mut all) = (self.0.vfs.opendir(dir, NO_PATIENCE), Vec::new());
        while let Some(listed) = listing.next(false).await? {
            all.push((listed.entry.name, listed.entry.handle));
        }
        Ok(all)
    }
}

fn is_gone(status: Status) -> bool {
    matches!(status, Status::NotFound | Status::Stale)
}
