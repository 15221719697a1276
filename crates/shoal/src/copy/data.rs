//! The bytes of one file. A small file is read whole and made with its contents, which on a ShoalFS is one
//! message. A larger file is copied in chunks, with several chunks under way at once: some are read from
//! the source while others are written to the destination.
//!
//! **Holes stay holes.** A source that takes less space than its size has some. Blocks of it that hold only
//! zeros are not written, and the size is set at the end where the last block is one of them. The target is
//! empty when the copy begins, so what is not written reads as zeros.

use super::Copier;
use super::spot::{Spot, owner};
use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use shoal_proto::{Attr, Handle, Kind, Rights, Status, limits};
use shoal_vfs::{AnyFile, AnyVfs, Vfs, VfsFile};
use std::ops::Range;

/// Bytes of a chunk, and chunks under way at once.
const CHUNK: (u64, usize) = (1 << 20, 4);
/// Up to here a file is read whole and made by one message.
const SMALL_BYTES_MAX: u64 = limits::EAGER_BYTES_MAX as u64;
/// A block of a file with holes: it is written unless all its bytes are zero.
const HOLE_BYTES: usize = 64 << 10;

/// Copy a file's data. `there`: the object at the target, through symbolic links; `mode` is that of a new
/// one.
pub async fn copy(
    copier: &Copier,
    (from, attr): (&Spot, &Attr),
    (to, there): (&Spot, Option<&Attr>),
    mode: u32,
) -> Result<()> {
    let source = from.tree().vfs().open(attr.handle, Rights::READ).await?;
    // Files that the kernel makes up say that they are empty.
    let size = (attr.size > 0 || !from.tree().is_of_host).then_some(attr.size);
    if there.is_none() && attr.size <= SMALL_BYTES_MAX && small(copier, &source, size, to, mode).await? {
        return Ok(source.close().await?);
    }
    let (object, target) = open(to, there, mode).await.with_context(|| format!("cannot write {to}"))?;
    let moved = match size {
        Some(size) if attr.space < size => {
            let moved = all(copier, &source, &target, size, Holes::Kept).await?;
            end_at(to.tree().vfs(), object, moved).await?;
            moved
        }
        Some(size) => all(copier, &source, &target, size, Holes::None).await?,
        None => to_the_end(copier, &source, &target).await?,
    };
    source.close().await?;
    target.close().await?;
    match size {
        Some(size) if moved < size => {
            bail!("it became shorter while it was copied: {moved} of {size} bytes")
        }
        _ => Ok(()),
    }
}

/// How blocks of zeros are copied.
#[derive(Clone, Copy)]
enum Holes {
    /// The source has none: all is written.
    None,
    /// They are not written.
    Kept,
}

/// A file whose last blocks were not written gets its size.
async fn end_at(vfs: &AnyVfs, object: Handle, size: u64) -> Result<()> {
    if vfs.getattr(object).await?.size < size {
        vfs.truncate(object, size, false).await?;
    }
    Ok(())
}

/// So many bytes, in chunks of which several are under way. How many there were.
async fn all(copier: &Copier, source: &AnyFile, target: &AnyFile, size: u64, holes: Holes) -> Result<u64> {
    let (len, ahead) = CHUNK;
    let chunks = (0..size.div_ceil(len)).map(|i| i * len);
    let moves = chunks.map(|offset| chunk(copier, (source, target), offset, holes));
    stream::iter(moves).buffer_unordered(ahead).try_fold(0, |sum, n| async move { Ok(sum + n) }).await
}

/// All up to the end, one chunk after the other. How many bytes.
async fn to_the_end(copier: &Copier, source: &AnyFile, target: &AnyFile) -> Result<u64> {
    let mut at = 0;
    loop {
        match chunk(copier, (source, target), at, Holes::None).await? {
            0 => return Ok(at),
            moved => at += moved,
        }
    }
}

/// One chunk. How many bytes.
async fn chunk(
    copier: &Copier,
    (source, target): (&AnyFile, &AnyFile),
    offset: u64,
    holes: Holes,
) -> Result<u64> {
    let data = source.read(offset, CHUNK.0 as usize).await?;
    let moved = data.len() as u64;
    match holes {
        Holes::None if moved == 0 => {}
        Holes::None => target.write(offset, data).await?,
        Holes::Kept => {
            for range in between_holes(&data) {
                target.write(offset + range.start as u64, data.slice(range)).await?;
            }
        }
    }
    copier.moved(moved);
    Ok(moved)
}

/// The longest runs of blocks of `data` that are not all zeros, in order.
fn between_holes(data: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (i, block) in data.chunks(HOLE_BYTES).enumerate() {
        if block.iter().all(|byte| *byte == 0) {
            continue;
        }
        let (start, end) = (i * HOLE_BYTES, i * HOLE_BYTES + block.len());
        match runs.last_mut() {
            Some(run) if run.end == start => run.end = end,
            _ => runs.push(start..end),
        }
    }
    runs
}

/// Make a small file whole, of a size that may be unknown; false: there is one of that name, or it is not
/// small.
async fn small(copier: &Copier, source: &AnyFile, size: Option<u64>, to: &Spot, mode: u32) -> Result<bool> {
    let data = match size {
        Some(0) => Bytes::new(),
        size => source.read(0, size.unwrap_or(SMALL_BYTES_MAX + 1) as usize).await?,
    };
    let moved = data.len() as u64;
    if moved > SMALL_BYTES_MAX {
        return Ok(false);
    }
    let (dir, name) = to.named().await?;
    match to.tree().vfs().create_write(dir, name, owner(mode), data).await {
        Ok(_) => copier.moved(moved),
        Err(error) if error.status == Status::Exists => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    Ok(true)
}

/// Open the target, empty, with its handle.
async fn open(to: &Spot, there: Option<&Attr>, mode: u32) -> Result<(Handle, AnyFile)> {
    let vfs = to.tree().vfs();
    let (object, is_empty, file) = match there {
        Some(there) if there.kind == Kind::File => {
            (there.handle, false, vfs.open(there.handle, Rights::WRITE).await?)
        }
        Some(there) => bail!("it is a {}: `shoal cat` writes into such", there.kind.word()),
        None => {
            let (dir, name) = to.named().await?;
            let made = vfs.create(dir, name, owner(mode), false, Rights::WRITE).await;
            let (attr, _, file) = match made {
                Err(error) if error.status == Status::Loop => bail!("it is a symbolic link to nothing"),
                made => made?,
            };
            (attr.handle, attr.size == 0, file)
        }
    };
    if !is_empty {
        vfs.truncate(object, 0, false).await?;
    }
    Ok((object, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_zeros_are_left_out_and_neighbours_are_one_write() {
        let block = HOLE_BYTES;
        let mut data = vec![0; 6 * block + 10];
        assert!(between_holes(&data).is_empty());
        data[block] = 1;
        data[3 * block - 1] = 1;
        data[6 * block + 9] = 1;
        assert_eq!(between_holes(&data), [block..3 * block, 6 * block..6 * block + 10]);
        assert!(between_holes(&[]).is_empty());
    }
}
