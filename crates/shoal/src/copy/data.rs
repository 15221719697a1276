//! The bytes of one file. A small one is read whole and made with its contents, which on a ShoalFS is one
//! message; of a larger one several chunks are under way at once, read on one side while others are written
//! on the other.

use super::Copier;
use super::spot::{Spot, owner};
use super::tree::{CopyFile, CopyTree, in_each};
use anyhow::{Context as _, Result, anyhow, bail};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use shoal_proto::{Attr, Rights, Status, limits};
use shoal_vfs::Vfs;

/// Bytes of a chunk, and chunks under way at once.
const CHUNK: (u64, usize) = (1 << 20, 4);
/// Up to here a file is read whole and made by one message.
const SMALL_BYTES_MAX: u64 = limits::EAGER_BYTES_MAX as u64;

/// Copy a file's data. `there`: the object at the target, through symbolic links; `mode` is that of a new one.
pub async fn copy(
    copier: &Copier,
    (from, attr): (&Spot, &Attr),
    (to, there): (&Spot, Option<&Attr>),
    mode: u32,
) -> Result<()> {
    let source = from.tree().open(attr.handle, Rights::READ).await?;
    if there.is_none() && attr.size <= SMALL_BYTES_MAX && small(copier, &source, attr.size, to, mode).await? {
        return Ok(source.close().await?);
    }
    let target = open(to, there, mode).await.with_context(|| format!("cannot write {to}"))?;
    let (len, ahead) = CHUNK;
    let chunks = (0..attr.size.div_ceil(len)).map(|i| i * len);
    let moves = chunks.map(|offset| {
        let (source, target) = (source.clone(), target.clone());
        async move {
            let data = source.read(offset, len as usize).await?;
            let moved = data.len() as u64;
            if moved > 0 {
                target.write(offset, data).await?;
            }
            copier.moved(moved);
            anyhow::Ok(moved)
        }
    });
    let moved: u64 =
        stream::iter(moves).buffer_unordered(ahead).try_fold(0, |sum, n| async move { Ok(sum + n) }).await?;
    source.close().await?;
    target.close().await?;
    match moved == attr.size {
        true => Ok(()),
        false => bail!("it became shorter while it was copied: {moved} of {} bytes", attr.size),
    }
}

/// Make a small file whole; false: there is one of that name.
async fn small(copier: &Copier, source: &CopyFile, size: u64, to: &Spot, mode: u32) -> Result<bool> {
    // Files that the kernel makes up say that they are empty.
    let len = if size == 0 { SMALL_BYTES_MAX } else { size };
    let data = source.read(0, len as usize).await?;
    let moved = data.len() as u64;
    let (dir, name) = to.named().await?;
    match in_each!(CopyTree, to.tree(), vfs => Vfs::create_write(vfs, dir, name, owner(mode), data).await) {
        Ok(_) => copier.moved(moved),
        Err(error) if error.status == Status::Exists => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    Ok(true)
}

/// Open the target, empty.
async fn open(to: &Spot, there: Option<&Attr>, mode: u32) -> Result<CopyFile> {
    let tree = to.tree();
    let (attr, file) = match there {
        Some(there) if there.kind == shoal_proto::Kind::File => {
            (there.clone(), tree.open(there.handle, Rights::WRITE).await?)
        }
        Some(there) => return Err(anyhow!("it is a {}", there.kind.word())),
        None => {
            let (dir, name) = to.named().await?;
            tree.create(dir, name, owner(mode)).await?
        }
    };
    if attr.size > 0 {
        in_each!(CopyTree, tree, vfs => Vfs::truncate(vfs, attr.handle, 0, false).await)?;
    }
    Ok(file)
}
