//! `gfs_create_file`: makes a file and all its subfiles, or nothing. The file is not opened.

use crate::init::quoted;
use crate::{Errno, Galley, Result};
use shoal_proto::{Handle, Name, Owner, ServerId};
use shoal_vfs::{Error, ForkedFile, Vfs};

impl<V: Vfs> Galley<V> {
    /// Create a file: a subfile on each server of `iop_list`, in order. Without a list the file system
    /// chooses `num_iops` servers. `num_iops` 0: a subfile on each server of the list, or of the file system.
    /// `owner`: of the directories that the file is, and of its forks (not in Galley, which had no owners).
    ///
    /// # Errors
    /// `Exists`, `NameTooLong`, `NoSpace`; `Invalid`: the number, or a server; a list of another length than
    /// `num_iops`.
    pub async fn gfs_create_file(
        &self,
        name: &[u8],
        iop_list: Option<&[ServerId]>,
        num_iops: u16,
        owner: Owner,
    ) -> Result<()> {
        let all = || iop_list.map_or_else(|| self.0.vfs.subfile_servers(), <[ServerId]>::len);
        let count = if num_iops == 0 { all() } else { num_iops.into() };
        if let Some(list) = iop_list.filter(|list| list.len() != count) {
            let words = format!("the list has {} servers and num_iops is {count}", list.len());
            return Err(self.fail(Errno::Invalid, words));
        }
        let subfiles = u16::try_from(count);
        let subfiles = subfiles.map_err(|_| self.fail(Errno::Invalid, "there are too many servers"))?;
        let servers = iop_list.unwrap_or_default().to_vec();
        let forked = ForkedFile { subfiles, servers, replace: false };
        let (dir, leaf) = self.place(name).await?;
        let made = self.0.vfs.mkforked(dir, &leaf, owner, &forked).await;
        self.kept_of(|| quoted(name), made).map(drop)
    }

    /// The directory of a path, and its last name.
    pub(crate) async fn place(&self, path: &[u8]) -> Result<(Handle, Name)> {
        let whole = || quoted(path);
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let cut = path.iter().rposition(|&byte| byte == b'/');
        let (parent, name) = cut.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
        let name = self.kept_of(whole, Name::new(name).map_err(|status| Error::new(status, "name")))?;
        let dir = self.0.vfs.walk_inside(parent, true).await;
        Ok((self.kept_of(whole, dir)?.handle, name))
    }
}
