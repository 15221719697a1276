//! The file systems that are copied from and to. Their kinds are known here, and nowhere else in the copy.

use shoal_client::Client;
use shoal_proto::{Attr, Handle, Name, Owner, Rights};
use shoal_transform::{Composed, ComposedFile, Container, ContainerFile, Federated, Followed, FollowedFile};
use shoal_vfs::local::LocalFile;
use shoal_vfs::{Local, Result, Vfs, VfsFile};

/// A file system.
pub enum CopyTree {
    /// A ShoalFS.
    Shoal(Followed<Client>),
    /// The files of this machine.
    Plain(Local),
    /// A directory of containers.
    Container(Container<Local>),
    /// Containers over several directories.
    Federation(Container<Federated<Local>>),
    /// A composed directory.
    Composed(Composed<Local>),
}

/// A file of a [`CopyTree`], open. Clones share it.
#[derive(Clone)]
pub enum CopyFile {
    /// See [`CopyTree::Shoal`].
    Shoal(FollowedFile<Client>),
    /// See [`CopyTree::Plain`].
    Plain(LocalFile),
    /// See [`CopyTree::Container`].
    Container(ContainerFile<Local>),
    /// See [`CopyTree::Federation`].
    Federation(ContainerFile<Federated<Local>>),
    /// See [`CopyTree::Composed`].
    Composed(ComposedFile<Local>),
}

/// Do the same in each kind of a [`CopyTree`] or a [`CopyFile`].
macro_rules! in_each {
    ($kinds:ident, $of:expr, $one:ident => $work:expr) => {
        match $of {
            $kinds::Shoal($one) => $work,
            $kinds::Plain($one) => $work,
            $kinds::Container($one) => $work,
            $kinds::Federation($one) => $work,
            $kinds::Composed($one) => $work,
        }
    };
}
pub(super) use in_each;

impl CopyTree {
    /// Whether this machine's kernel keeps its objects, with this user's rights.
    pub fn is_of_host(&self) -> bool {
        !matches!(self, CopyTree::Shoal(_))
    }

    /// Open a file.
    pub async fn open(&self, object: Handle, rights: Rights) -> Result<CopyFile> {
        Ok(match self {
            CopyTree::Shoal(vfs) => CopyFile::Shoal(Vfs::open(vfs, object, rights).await?),
            CopyTree::Plain(vfs) => CopyFile::Plain(vfs.open(object, rights).await?),
            CopyTree::Container(vfs) => CopyFile::Container(vfs.open(object, rights).await?),
            CopyTree::Federation(vfs) => CopyFile::Federation(vfs.open(object, rights).await?),
            CopyTree::Composed(vfs) => CopyFile::Composed(vfs.open(object, rights).await?),
        })
    }

    /// Make a file, or open the one of that name, for writing.
    pub async fn create(&self, dir: Handle, name: &Name, owner: Owner) -> Result<(Attr, CopyFile)> {
        async fn of<V: Vfs>(vfs: &V, dir: Handle, name: &Name, owner: Owner) -> Result<(Attr, V::File)> {
            let (attr, _, file) = vfs.create(dir, name, owner, false, Rights::WRITE).await?;
            Ok((attr, file))
        }
        Ok(match self {
            CopyTree::Shoal(vfs) => of(vfs, dir, name, owner).await.map(|(a, f)| (a, CopyFile::Shoal(f)))?,
            CopyTree::Plain(vfs) => of(vfs, dir, name, owner).await.map(|(a, f)| (a, CopyFile::Plain(f)))?,
            CopyTree::Container(vfs) => {
                of(vfs, dir, name, owner).await.map(|(a, f)| (a, CopyFile::Container(f)))?
            }
            CopyTree::Federation(vfs) => {
                of(vfs, dir, name, owner).await.map(|(a, f)| (a, CopyFile::Federation(f)))?
            }
            CopyTree::Composed(vfs) => {
                of(vfs, dir, name, owner).await.map(|(a, f)| (a, CopyFile::Composed(f)))?
            }
        })
    }

    /// End: what was written stays.
    pub async fn close(&self) {
        in_each!(CopyTree, self, vfs => Vfs::close(vfs).await);
    }
}

impl CopyFile {
    /// Up to `len` bytes; fewer only at the end.
    pub async fn read(&self, offset: u64, len: usize) -> Result<bytes::Bytes> {
        in_each!(CopyFile, self, file => VfsFile::read(file, offset, len).await)
    }

    /// Write all.
    pub async fn write(&self, offset: u64, data: bytes::Bytes) -> Result<()> {
        in_each!(CopyFile, self, file => VfsFile::write(file, offset, data).await)
    }

    /// Close it, with its report.
    pub async fn close(self) -> Result<()> {
        in_each!(CopyFile, self, file => VfsFile::close(file).await)
    }
}
