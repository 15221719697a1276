//! `gfs_flush_fork`, `gfs_flush_subfile`, `gfs_flush_disk`: all that was written is durable when they return.
//!
//! Galley's also drop the cache of the server, so that tests start cold. These make durable, and leave caches
//! as they are: no request of the file system drops them.

use crate::{FileId, ForkId, Galley, Result};
use shoal_proto::Rights;
use shoal_vfs::{Vfs, VfsFile as _};

impl<V: Vfs> Galley<V> {
    /// A fork.
    ///
    /// # Errors
    /// `BadFile`; `Io`: some of it was lost.
    pub async fn gfs_flush_fork(&self, fork_id: ForkId) -> Result<()> {
        let synced = self.fork(fork_id)?.file.fsync().await;
        self.kept(synced)
    }

    /// All forks of a subfile, and their names.
    ///
    /// # Errors
    /// `BadFile`, `Io`; `Invalid`: the subfile.
    pub async fn gfs_flush_subfile(&self, fid: FileId, subfile: u32) -> Result<()> {
        let dir = self.subfile(fid, subfile)?;
        for (_, fork) in self.entries(dir).await? {
            let opened = self.0.vfs.open(fork, Rights::READ).await;
            let synced = self.kept(opened)?.fsync().await;
            self.kept(synced)?;
        }
        let synced = self.0.vfs.fsync_directory(dir).await;
        self.kept(synced)
    }

    /// Everything.
    ///
    /// # Errors
    /// `Io`.
    pub async fn gfs_flush_disk(&self) -> Result<()> {
        let synced = self.0.vfs.sync_all().await;
        self.kept(synced)
    }
}
