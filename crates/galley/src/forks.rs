//! `gfs_create_fork`, `gfs_open_fork`, `gfs_close_fork`, `gfs_delete_fork`, `gfs_extend_fork`: one message
//! each, to the server of the subfile. A close sends none, unless the fork was deleted.

use crate::{FileId, ForkId, Galley, Result};
use shoal_proto::{Allocation, Kind, Owner, Rights};
use shoal_vfs::{Vfs, VfsFile as _};
use std::rc::Rc;

/// Owner and mode of new forks: the directory's own permissions decide who reaches them.
pub(crate) fn owner() -> Owner {
    Owner { mode: 0o666, uid: 0, gid: 0 }
}

impl<V: Vfs> Galley<V> {
    /// Create a fork in a subfile. It is not opened.
    ///
    /// # Errors
    /// `BadFile`, `Exists`, `NameTooLong`, `NoSpace`; `Invalid`: the subfile, or the name.
    pub async fn gfs_create_fork(&self, fid: FileId, subfile: u32, name: &[u8]) -> Result<()> {
        let (dir, name) = (self.subfile(fid, subfile)?, self.name(name)?);
        let made = self.0.vfs.mknod(dir, &name, owner(), Kind::File, 0).await;
        self.kept(made).map(drop)
    }

    /// Open a fork.
    ///
    /// # Errors
    /// `BadFile`, `NoEntry`, `TooManyOpen`; `Invalid`: the subfile, or the name.
    pub async fn gfs_open_fork(&self, fid: FileId, subfile: u32, name: &[u8]) -> Result<ForkId> {
        let (dir, name) = (self.subfile(fid, subfile)?, self.name(name)?);
        let opened = self.0.vfs.open_name(dir, &name, Rights::READ | Rights::WRITE).await;
        let file = self.kept(opened)?;
        self.keep_fork(file)
    }

    /// Close a fork.
    ///
    /// # Errors
    /// `BadFile`; `Io`: a write before it was lost.
    pub async fn gfs_close_fork(&self, fork_id: ForkId) -> Result<()> {
        // An operation under way has the fork open until it ends.
        match Rc::try_unwrap(self.drop_fork(fork_id)?) {
            Ok(fork) => {
                let closed = fork.file.close().await;
                self.kept(closed)
            }
            Err(_) => Ok(()),
        }
    }

    /// Delete a fork. Its space is free after the last close by this application; another application that
    /// has it open loses it as any removed file.
    ///
    /// # Errors
    /// `BadFile`, `NoEntry`; `Invalid`: the subfile, or the name.
    pub async fn gfs_delete_fork(&self, fid: FileId, subfile: u32, name: &[u8]) -> Result<()> {
        let (dir, name) = (self.subfile(fid, subfile)?, self.name(name)?);
        let removed = self.0.vfs.unlink(dir, &name).await;
        self.kept(removed)
    }

    /// Reserve space for `size` bytes of a fork; its size stays.
    ///
    /// # Errors
    /// `BadFile`, `NoSpace`.
    pub async fn gfs_extend_fork(&self, fork_id: ForkId, size: u64) -> Result<()> {
        let fork = self.fork(fork_id)?;
        let reserved = fork.file.allocate(0, size, Allocation::KeepSize).await;
        self.kept(reserved)
    }
}
