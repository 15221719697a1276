//! `gfs_all_create`, `gfs_all_open`, `gfs_all_close`, `gfs_all_delete`: a fork of one name in every subfile.
//!
//! Creation and deletion are one message a server, all servers at once; an open is one message a subfile,
//! all at once.

use crate::forks::owner;
use crate::{FileId, ForkId, Galley, Result};
use futures_util::future::join_all;
use shoal_proto::{Handle, Name};
use shoal_vfs::Vfs;

impl<V: Vfs> Galley<V> {
    /// Create a fork of this name in every subfile. Where one cannot be created the others are, and the error
    /// is the first subfile's.
    ///
    /// # Errors
    /// As [`Galley::gfs_create_fork`].
    pub async fn gfs_all_create(&self, fid: FileId, name: &[u8]) -> Result<()> {
        let entries = self.everywhere(fid, name)?;
        let made = self.0.vfs.make_many(&entries, owner()).await;
        made.into_iter().try_for_each(|made| self.kept(made).map(drop))
    }

    /// Open the forks of this name, one of each subfile, in order; how many there are is returned with them.
    /// If one cannot be opened none stays open.
    ///
    /// # Errors
    /// As [`Galley::gfs_open_fork`].
    pub async fn gfs_all_open(&self, fid: FileId, name: &[u8]) -> Result<Vec<ForkId>> {
        let subfiles = 0..self.subfiles(fid)?;
        let opened = join_all(subfiles.map(|subfile| self.gfs_open_fork(fid, subfile, name))).await;
        let mut failed = None;
        let mut ids = Vec::new();
        for fork in opened {
            match fork {
                Ok(id) => ids.push(id),
                Err(code) => failed = failed.or(Some(code)),
            }
        }
        let Some(code) = failed else { return Ok(ids) };
        let kept = self.gfs_errno();
        let _ = self.gfs_all_close(&ids).await;
        Err(self.fail(code, kept.map_or_else(String::new, |(_, words)| words)))
    }

    /// Close these forks.
    ///
    /// # Errors
    /// As [`Galley::gfs_close_fork`], the first; the rest is closed all the same.
    pub async fn gfs_all_close(&self, fork_ids: &[ForkId]) -> Result<()> {
        let closed = join_all(fork_ids.iter().map(|&id| self.gfs_close_fork(id))).await;
        closed.into_iter().collect()
    }

    /// Delete the fork of this name in every subfile.
    ///
    /// # Errors
    /// As [`Galley::gfs_delete_fork`], the first; the rest is deleted all the same.
    pub async fn gfs_all_delete(&self, fid: FileId, name: &[u8]) -> Result<()> {
        let entries = self.everywhere(fid, name)?;
        let removed = self.0.vfs.unlink_many(&entries).await;
        removed.into_iter().try_for_each(|removed| self.kept(removed))
    }

    fn everywhere(&self, fid: FileId, name: &[u8]) -> Result<Vec<(Handle, Name)>> {
        let (file, name) = (self.file(fid)?, self.name(name)?);
        Ok(file.subfiles.iter().map(|&subfile| (subfile, name.clone())).collect())
    }
}
