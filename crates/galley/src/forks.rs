//! `gfs_create_fork`, `gfs_open_fork`, `gfs_close_fork`, `gfs_delete_fork`, `gfs_extend_fork`. In a ShoalFS
//! each call sends one message, to the server of the subfile. Only a close sends none, unless the fork was
//! deleted.

use crate::init::OpenedFork;
use crate::{FileId, ForkId, Galley, Result};
use shoal_proto::{Allocation, Attr, Handle, Kind, Name, Owner, Rights, Status};
use shoal_vfs::{Error, Vfs, VfsFile as _};
use std::rc::Rc;

/// Owner and mode of the forks of a file: those of the file. Galley's calls have none.
pub(crate) fn owner_of_forks(file: &Attr) -> Owner {
    Owner { mode: file.mode & 0o666, uid: file.uid, gid: file.gid }
}

/// Whether an open for reading and writing failed because nothing may be changed here: it may read all the
/// same.
pub(crate) fn may_read_only<T>(opened: &std::result::Result<T, Error>) -> bool {
    const REFUSED: [Status; 3] = [Status::AccessDenied, Status::NotPermitted, Status::ReadOnly];
    opened.as_ref().is_err_and(|error| REFUSED.contains(&error.status))
}

impl<V: Vfs> Galley<V> {
    /// Create a fork in a subfile. It is not opened.
    ///
    /// # Errors
    /// `BadFile`, `Exists`, `NameTooLong`, `NoSpace`; `Invalid`: the subfile, or the name.
    pub async fn gfs_create_fork(&self, fid: FileId, subfile: u32, name: &[u8]) -> Result<()> {
        let (dir, name) = (self.subfile(fid, subfile)?, self.name(name)?);
        let owner = self.file(fid)?.owner;
        let made = self.0.vfs.mknod(dir, &name, owner, Kind::File, 0).await;
        self.kept_of(|| self.name_of_fork(fid, subfile, &name), made).map(drop)
    }

    /// Open a fork, for reading and writing; where this application may change nothing, for reading.
    ///
    /// # Errors
    /// `BadFile`, `NoEntry`, `TooManyOpen`; `Invalid`: the subfile, or the name.
    pub async fn gfs_open_fork(&self, fid: FileId, subfile: u32, name: &[u8]) -> Result<ForkId> {
        let (dir, name) = (self.subfile(fid, subfile)?, self.name(name)?);
        self.open_one(dir, &name, || self.name_of_fork(fid, subfile, &name)).await
    }

    pub(crate) async fn open_one(
        &self,
        dir: Handle,
        name: &Name,
        whole: impl Fn() -> String,
    ) -> Result<ForkId> {
        let mut opened = self.0.vfs.open_name(dir, name, Rights::READ | Rights::WRITE).await;
        if may_read_only(&opened) {
            opened = self.0.vfs.open_name(dir, name, Rights::READ).await;
        }
        self.keep_fork(self.kept_of(&whole, opened)?, whole())
    }

    /// Close a fork.
    ///
    /// # Errors
    /// `BadFile`; `Io`: a write before it was lost.
    pub async fn gfs_close_fork(&self, fork_id: ForkId) -> Result<()> {
        // An operation under way has the fork open until it ends.
        match Rc::try_unwrap(self.drop_fork(fork_id)?) {
            Ok(OpenedFork { file, name }) => {
                let closed = file.close().await;
                self.kept_of(|| name, closed)
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
        self.kept_of(|| self.name_of_fork(fid, subfile, &name), removed)
    }

    /// Reserve space for `size` bytes of a fork; its size stays. 0: nothing.
    ///
    /// # Errors
    /// `BadFile`, `NoSpace`.
    pub async fn gfs_extend_fork(&self, fork_id: ForkId, size: u64) -> Result<()> {
        let fork = self.fork(fork_id)?;
        if size == 0 {
            return Ok(());
        }
        let reserved = fork.file.allocate(0, size, Allocation::KeepSize).await;
        self.kept_of(|| fork.name.clone(), reserved)
    }
}
