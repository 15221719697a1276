//! `gfs_all_create`, `gfs_all_open`, `gfs_all_close`, `gfs_all_delete`: a fork of one name in every subfile.
//!
//! In a ShoalFS a creation, an open or a deletion sends one message to each server for up to 128 of its
//! subfiles, to all servers at once. The close of forks that were deleted does the same; other closes send
//! no message.

use crate::forks::may_read_only;
use crate::{FileId, ForkId, Galley, Result};
use shoal_proto::{Handle, Name, Rights};
use shoal_vfs::Vfs;
use std::rc::Rc;

impl<V: Vfs> Galley<V> {
    /// Create a fork of this name in every subfile. Where one cannot be created the others are, and the error
    /// is the first subfile's.
    ///
    /// # Errors
    /// As [`Galley::gfs_create_fork`].
    pub async fn gfs_all_create(&self, fid: FileId, name: &[u8]) -> Result<()> {
        let entries = self.everywhere(fid, name)?;
        let made = self.0.vfs.make_many(&entries, self.file(fid)?.owner).await;
        let mut each = made.into_iter().zip(0..).zip(&entries);
        each.try_for_each(|((made, at), (_, name))| {
            self.kept_of(|| self.name_of_fork(fid, at, name), made).map(drop)
        })
    }

    /// Open the forks of this name, one of each subfile, in order; how many there are is returned with them.
    /// If one cannot be opened none stays open.
    ///
    /// # Errors
    /// As [`Galley::gfs_open_fork`].
    pub async fn gfs_all_open(&self, fid: FileId, name: &[u8]) -> Result<Vec<ForkId>> {
        let entries = self.everywhere(fid, name)?;
        let mut opened = self.0.vfs.open_many(&entries, Rights::READ | Rights::WRITE).await;
        let refused: Vec<usize> = (0..opened.len()).filter(|&at| may_read_only(&opened[at])).collect();
        if !refused.is_empty() {
            let entries: Vec<(Handle, Name)> = refused.iter().map(|&at| entries[at].clone()).collect();
            let again = self.0.vfs.open_many(&entries, Rights::READ).await;
            refused.into_iter().zip(again).for_each(|(at, file)| opened[at] = file);
        }
        let of = |at: u32| self.name_of_fork(fid, at, &entries[at as usize].1);
        let each = opened.into_iter().zip(0..);
        let opened: Result<Vec<V::File>> = each.map(|(opened, at)| self.kept_of(|| of(at), opened)).collect();
        // A caller that gave up before has no ids.
        self.keep_forks(opened?, |at| of(at as u32))
    }

    /// Close these forks.
    ///
    /// # Errors
    /// As [`Galley::gfs_close_fork`], the first; the rest is closed all the same.
    pub async fn gfs_all_close(&self, fork_ids: &[ForkId]) -> Result<()> {
        let mut failed = None;
        let mut files = Vec::with_capacity(fork_ids.len());
        for &id in fork_ids {
            match self.drop_fork(id) {
                // An operation under way has the fork open until it ends.
                Ok(fork) => files.extend(Rc::try_unwrap(fork).ok().map(|fork| fork.file)),
                Err(code) => failed = failed.or(Some(code)),
            }
        }
        let closed: std::result::Result<(), _> = self.0.vfs.close_many(files).await.into_iter().collect();
        self.kept(closed)?;
        failed.map_or(Ok(()), Err)
    }

    /// Delete the fork of this name in every subfile.
    ///
    /// # Errors
    /// As [`Galley::gfs_delete_fork`], the first; the rest is deleted all the same.
    pub async fn gfs_all_delete(&self, fid: FileId, name: &[u8]) -> Result<()> {
        let entries = self.everywhere(fid, name)?;
        let removed = self.0.vfs.unlink_many(&entries).await;
        let mut each = removed.into_iter().zip(0..).zip(&entries);
        each.try_for_each(|((removed, at), (_, name))| {
            self.kept_of(|| self.name_of_fork(fid, at, name), removed)
        })
    }

    fn everywhere(&self, fid: FileId, name: &[u8]) -> Result<Vec<(Handle, Name)>> {
        let (file, name) = (self.file(fid)?, self.name(name)?);
        Ok(file.subfiles.iter().map(|&subfile| (subfile, name.clone())).collect())
    }
}
