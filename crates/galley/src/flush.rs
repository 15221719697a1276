//! `gfs_flush_fork`, `gfs_flush_subfile`, `gfs_flush_disk`: when they return, all written bytes of the fork,
//! or of the forks of the subfile, are durable, and the servers hold none of these bytes in memory.
//! `gfs_flush_disk` does so for all files and forks that this application has open. The next read comes from
//! the disk, so measurements begin cold.
//!
//! A server's engine drops its blocks of a fork, and its kernel the pages of the fork's file. A fork that is
//! so small that its server keeps it among its rows stays there. If a file system cannot drop its caches
//! (`NotSupported`), or a server has an older version, the calls only make the bytes durable.

use crate::{FileId, ForkId, Galley, Result};
use shoal_proto::{Handle, Rights, Status};
use shoal_vfs::{Error, Vfs, VfsFile};
use std::collections::BTreeSet;

impl<V: Vfs> Galley<V> {
    /// A fork.
    ///
    /// # Errors
    /// `BadFile`; `Io`: some of it was lost.
    pub async fn gfs_flush_fork(&self, fork_id: ForkId) -> Result<()> {
        let fork = self.fork(fork_id)?;
        self.kept_of(|| fork.name.clone(), flush(&fork.file).await)
    }

    /// All forks of a subfile, and their names.
    ///
    /// # Errors
    /// `BadFile`, `Io`; `Invalid`: the subfile.
    pub async fn gfs_flush_subfile(&self, fid: FileId, subfile: u32) -> Result<()> {
        let (dir, file) = (self.subfile(fid, subfile)?, self.file(fid)?);
        let flushed = self.flush_forks_of(dir).await;
        self.kept_of(|| format!("subfile {subfile} of {}", file.name), flushed)
    }

    /// Everything that was written through this file system is durable then. The servers hold in memory
    /// nothing of the files and forks that this application has open. Other files and forks stay in memory,
    /// as other applications may be reading them. Files and forks that were deleted are passed over.
    ///
    /// # Errors
    /// `Io`.
    pub async fn gfs_flush_disk(&self) -> Result<()> {
        let synced = self.0.vfs.sync_all().await;
        self.kept(synced)?;
        for fork in self.open_forks() {
            self.kept_of(|| fork.name.clone(), unless_gone(flush(&fork.file).await))?;
        }
        let subfiles: BTreeSet<Handle> =
            self.open_files().iter().flat_map(|file| file.subfiles.clone()).collect();
        for dir in subfiles {
            self.kept(unless_gone(self.flush_forks_of(dir).await))?;
        }
        Ok(())
    }

    async fn flush_forks_of(&self, dir: Handle) -> std::result::Result<(), Error> {
        for (_, fork) in self.list(dir).await? {
            let opened = match self.0.vfs.open(fork, Rights::READ).await {
                // Deleted since it was listed.
                Err(error) if is_gone(&error) => continue,
                opened => opened?,
            };
            unless_gone(flush(&opened).await)?;
        }
        self.0.vfs.fsync_directory(dir).await
    }
}

fn is_gone(error: &Error) -> bool {
    matches!(error.status, Status::NotFound | Status::Stale)
}

/// Nothing is to be done for a file that was removed.
fn unless_gone(done: std::result::Result<(), Error>) -> std::result::Result<(), Error> {
    match done {
        Err(error) if is_gone(&error) => Ok(()),
        done => done,
    }
}

async fn flush<F: VfsFile>(file: &F) -> std::result::Result<(), Error> {
    file.fsync().await?;
    match file.drop_cache().await {
        Err(error) if error.status == Status::NotSupported => Ok(()),
        dropped => dropped,
    }
}
