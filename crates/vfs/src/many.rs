//! Operations on many files, for file systems that can only handle one file after the other.

use crate::{Error, NewFile, Result, Vfs, VfsFile as _};
use bytes::Bytes;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights, Status};

/// Make many files one after the other: [`Vfs::create_many`] where nothing can make them at once.
pub async fn create<V: Vfs>(vfs: &V, files: Vec<NewFile>, owner: Owner) -> Vec<Result<Attr>> {
    let mut made = Vec::with_capacity(files.len());
    for NewFile { dir, name, data } in files {
        made.push(vfs.create_write(dir, &name, owner, data).await);
    }
    made
}

/// Read many files one after the other: [`Vfs::read_many`] where nothing can read them at once.
pub async fn read<V: Vfs>(vfs: &V, entries: &[(Handle, Name, usize)]) -> Vec<Result<(Attr, Option<Bytes>)>> {
    let mut read = Vec::with_capacity(entries.len());
    for (dir, name, max) in entries {
        read.push(read_one(vfs, *dir, name, *max).await);
    }
    read
}

/// The file of a name, if it has at most `max` bytes. A FIFO, whose open would wait, is not opened.
async fn read_one<V: Vfs>(vfs: &V, dir: Handle, name: &Name, max: usize) -> Result<(Attr, Option<Bytes>)> {
    let found = vfs.lookup(dir, name).await?;
    let refused = match found.kind {
        Kind::File => None,
        Kind::Directory => Some(Status::IsDirectory),
        Kind::Symlink => Some(Status::Loop),
        _ => Some(Status::Invalid),
    };
    if let Some(status) = refused {
        return Err(Error::new(status, "read").of(found.handle));
    }
    let file = vfs.open(found.handle, Rights::READ).await?;
    let attr = vfs.getattr(found.handle).await?;
    let data = match usize::try_from(attr.size) {
        Ok(size) if size <= max => Some(file.read(0, size).await?),
        _ => None,
    };
    file.close().await?;
    Ok((attr, data))
}
