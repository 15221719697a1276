//! Calls for many names or files: one call of the file system below if all of them lie outside of domains,
//! else one call for each.

use super::{Followed, FollowedFile};
use bytes::Bytes;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights};
use shoal_vfs::{NewFile, Result, Vfs, VfsFile, create_singly, read_singly};

impl<B: Vfs> Followed<B> {
    fn are_outside(&self, entries: &[(Handle, Name)]) -> bool {
        entries.iter().all(|(dir, _)| self.is_outside(*dir))
    }

    pub(super) async fn make_all(&self, entries: &[(Handle, Name)], owner: Owner) -> Vec<Result<Attr>> {
        if self.are_outside(entries) {
            return self.0.over.make_many(entries, owner).await;
        }
        let mut made = Vec::with_capacity(entries.len());
        for (dir, name) in entries {
            made.push(self.mknod(*dir, name, owner, Kind::File, 0).await);
        }
        made
    }

    pub(super) async fn create_all(&self, files: Vec<NewFile>, owner: Owner) -> Vec<Result<Attr>> {
        match files.iter().all(|file| self.is_outside(file.dir)) {
            true => self.0.over.create_many(files, owner).await,
            false => create_singly(self, files, owner).await,
        }
    }

    pub(super) async fn read_all(
        &self,
        entries: &[(Handle, Name, usize)],
    ) -> Vec<Result<(Attr, Option<Bytes>)>> {
        match entries.iter().all(|(dir, ..)| self.is_outside(*dir)) {
            true => self.0.over.read_many(entries).await,
            false => read_singly(self, entries).await,
        }
    }

    pub(super) async fn unlink_all(&self, entries: &[(Handle, Name)]) -> Vec<Result<()>> {
        if self.are_outside(entries) {
            return self.0.over.unlink_many(entries).await;
        }
        let mut removed = Vec::with_capacity(entries.len());
        for (dir, name) in entries {
            removed.push(self.unlink(*dir, name).await);
        }
        removed
    }

    pub(super) async fn open_all(
        &self,
        entries: &[(Handle, Name)],
        rights: Rights,
    ) -> Vec<Result<FollowedFile<B>>> {
        if self.are_outside(entries) {
            let opened = self.0.over.open_many(entries, rights).await;
            return opened.into_iter().map(|file| file.map(FollowedFile::Plain)).collect();
        }
        let mut opened = Vec::with_capacity(entries.len());
        for (dir, name) in entries {
            opened.push(self.open_name(*dir, name, rights).await);
        }
        opened
    }

    pub(super) async fn close_all(&self, files: Vec<FollowedFile<B>>) -> Vec<Result<()>> {
        if files.iter().all(|file| matches!(file, FollowedFile::Plain(_))) {
            let plain = files.into_iter().filter_map(|file| match file {
                FollowedFile::Plain(file) => Some(file),
                _ => None,
            });
            return self.0.over.close_many(plain.collect()).await;
        }
        let mut closed = Vec::with_capacity(files.len());
        for file in files {
            closed.push(file.close().await);
        }
        closed
    }
}
