//! The operations by path, for programs that hold no handles. The walk and the operation after it share one
//! time limit.

use crate::{Client, Error, OpenFile, RenameFlags};
use shoal_proto::{Attr, Owner, Rights, Status, Template};

impl Client {
    async fn as_one<T>(&self, work: impl Future<Output = T>) -> T {
        self.core.until(self.core.deadline(), work).await
    }

    /// [`Client::create`] by path; follows a symbolic link to an existing object.
    ///
    /// # Errors
    /// As there, and as [`Client::walk`].
    pub async fn create_at(
        &self,
        path: &[u8],
        owner: Owner,
        exclusive: bool,
        rights: Rights,
        template: Option<Template>,
    ) -> Result<(Attr, bool, OpenFile), Error> {
        let made = async {
            let (dir, name) = self.walk_parent(path).await?;
            match self.create(dir, &name, owner, exclusive, rights, template).await {
                // The name is a symbolic link: its target is opened.
                Err(error) if error.status == Status::Loop => {
                    let o = self.begin("open", Some(dir));
                    let attr = self.core.walk(&o, path, true, false).await?;
                    let (attr, file) = self.open_of(&o, attr.handle, rights).await?;
                    Ok((attr, false, file))
                }
                other => other,
            }
        };
        self.as_one(made).await
    }

    /// [`Client::open`] by path; follows symbolic links. Where the file is gone when it is opened, the path
    /// is walked again: another file may have replaced it.
    ///
    /// # Errors
    /// As there, and as [`Client::walk`].
    pub async fn open_at(&self, path: &[u8], rights: Rights) -> Result<OpenFile, Error> {
        let o = self.begin("open", None);
        loop {
            let attr = self.core.walk(&o, path, true, false).await?;
            match self.open_unmerged(&o, attr.handle, rights).await {
                Err(error) if error.status == Status::Stale => self.core.back_off(&o, error).await?,
                opened => return Ok(opened?.1),
            }
        }
    }

    /// [`Client::mkdir`] by path.
    ///
    /// # Errors
    /// As there, and as [`Client::walk`].
    pub async fn mkdir_at(&self, path: &[u8], owner: Owner) -> Result<Attr, Error> {
        let done = async {
            let (dir, name) = self.walk_parent(path).await?;
            self.mkdir(dir, &name, owner).await
        };
        self.as_one(done).await
    }

    /// [`Client::symlink`] by path.
    ///
    /// # Errors
    /// As there, and as [`Client::walk`].
    pub async fn symlink_at(&self, path: &[u8], owner: Owner, target: &[u8]) -> Result<Attr, Error> {
        let done = async {
            let (dir, name) = self.walk_parent(path).await?;
            self.symlink(dir, &name, owner, target).await
        };
        self.as_one(done).await
    }

    /// [`Client::unlink`] by path.
    ///
    /// # Errors
    /// As there, and as [`Client::walk`].
    pub async fn unlink_at(&self, path: &[u8]) -> Result<(), Error> {
        let done = async {
            let (dir, name) = self.walk_parent(path).await?;
            self.unlink(dir, &name).await
        };
        self.as_one(done).await
    }

    /// [`Client::rmdir`] by path.
    ///
    /// # Errors
    /// As there, and as [`Client::walk`].
    pub async fn rmdir_at(&self, path: &[u8]) -> Result<(), Error> {
        let done = async {
            let (dir, name) = self.walk_parent(path).await?;
            self.rmdir(dir, &name).await
        };
        self.as_one(done).await
    }

    /// [`Client::rename`] by paths.
    ///
    /// # Errors
    /// As there, and as [`Client::walk`].
    pub async fn rename_at(&self, from: &[u8], to: &[u8], flags: RenameFlags) -> Result<(), Error> {
        let done = async {
            let (from_dir, from_name) = self.walk_parent(from).await?;
            let (to_dir, to_name) = self.walk_parent(to).await?;
            self.rename(from_dir, &from_name, to_dir, &to_name, flags).await
        };
        self.as_one(done).await
    }

    /// [`Client::link`] by paths; does not follow a symbolic link.
    ///
    /// # Errors
    /// As there, and as [`Client::walk`].
    pub async fn link_at(&self, from: &[u8], to: &[u8]) -> Result<Attr, Error> {
        let done = async {
            let object = self.walk(from, false).await?.handle;
            let (dir, name) = self.walk_parent(to).await?;
            self.link(object, dir, &name).await
        };
        self.as_one(done).await
    }
}
