//! The bytes of one file. A small one goes in one message; of a larger one several chunks are under way at
//! once, read on one side while others are written on the other.

use super::Copier;
use super::spot::{Meta, Remote, Spot, owner};
use anyhow::{Context as _, Result, anyhow, bail};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use shoal_client::OpenFile;
use shoal_env::Env;
use shoal_proto::{Rights, Status, limits};
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::Arc;

/// Bytes of a chunk, and chunks under way at once.
const CHUNK: (u64, usize) = (1 << 20, 4);
/// Up to here a file is read whole and made by one message.
const SMALL_BYTES_MAX: u64 = limits::EAGER_BYTES_MAX as u64;

/// An open file, on either side.
#[derive(Clone)]
enum Side {
    Local(Env, Arc<File>),
    Shoal(OpenFile),
}

/// Copy a file's data. `mode` is that of a new one.
pub async fn copy(copier: &Copier, from: &Spot, to: &Spot, meta: &Meta, mode: u32) -> Result<()> {
    if let (Spot::Local(path), Spot::Shoal(remote)) = (from, to)
        && meta.size <= SMALL_BYTES_MAX
    {
        let path = path.clone();
        let data = copier.env.offload(move || std::fs::read(path)).await??;
        if small(remote, data.clone(), mode).await? {
            copier.moved(data.len() as u64);
            return Ok(());
        }
    }
    let source = open(copier, from, meta).await?;
    let target = create(copier, to, mode).await?;
    let (len, ahead) = CHUNK;
    let chunks = (0..meta.size.div_ceil(len)).map(|i| i * len);
    let moves = chunks.map(|offset| {
        let (source, target) = (source.clone(), target.clone());
        async move {
            let data = source.read(offset, len).await?;
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
    match moved == meta.size {
        true => Ok(()),
        false => bail!("it became shorter while it was copied: {moved} of {} bytes", meta.size),
    }
}

/// Make a small file whole; false: there is one of that name.
async fn small(remote: &Remote, data: Vec<u8>, mode: u32) -> Result<bool> {
    let (dir, name) = remote.named().await?;
    match remote.client.create_write(dir, name, owner(mode), data.into(), None).await {
        Ok(_) => Ok(true),
        Err(error) if error.status == Status::Exists => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn open(copier: &Copier, from: &Spot, meta: &Meta) -> Result<Side> {
    Ok(match from {
        Spot::Local(path) => {
            let path = path.clone();
            let file = copier.env.offload(move || File::open(path)).await??;
            Side::Local(copier.env.clone(), Arc::new(file))
        }
        Spot::Shoal(remote) => {
            let handle = meta.handle.context("it has no handle")?;
            Side::Shoal(remote.client.open(handle, Rights::READ).await?)
        }
    })
}

async fn create(copier: &Copier, to: &Spot, mode: u32) -> Result<Side> {
    let cannot = || anyhow!("cannot write {to}");
    match to {
        Spot::Local(path) => {
            let path = path.clone();
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(mode);
            let file = copier.env.offload(move || options.open(path)).await?.with_context(cannot)?;
            Ok(Side::Local(copier.env.clone(), Arc::new(file)))
        }
        Spot::Shoal(remote) => {
            let (dir, name) = remote.named().await?;
            let made = remote.client.create(dir, name, owner(mode), false, Rights::WRITE, None).await;
            let (attr, created, file) = made.with_context(cannot)?;
            if !created && attr.size > 0 {
                remote.client.truncate(attr.handle, 0, false).await?;
            }
            Ok(Side::Shoal(file))
        }
    }
}

impl Side {
    async fn read(&self, offset: u64, len: u64) -> Result<Bytes> {
        match self {
            Side::Shoal(file) => Ok(file.read(offset, len as usize).await?),
            Side::Local(env, file) => {
                let file = file.clone();
                Ok(env.offload(move || read_local(&file, offset, len)).await??)
            }
        }
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        match self {
            Side::Shoal(file) => Ok(file.write(offset, data).await?),
            Side::Local(env, file) => {
                let file = file.clone();
                Ok(env.offload(move || file.write_all_at(&data, offset)).await??)
            }
        }
    }

    async fn close(self) -> Result<()> {
        match self {
            Side::Shoal(file) => Ok(file.close().await?),
            Side::Local(..) => Ok(()),
        }
    }
}

/// Up to `len` bytes; fewer only at the end of the file.
fn read_local(file: &File, offset: u64, len: u64) -> std::io::Result<Bytes> {
    struct At<'a>(&'a File, u64);
    impl std::io::Read for At<'_> {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            let n = self.0.read_at(buf, self.1)?;
            self.1 += n as u64;
            Ok(n)
        }
    }
    let mut data = Vec::with_capacity(len as usize);
    At(file, offset).take(len).read_to_end(&mut data)?;
    Ok(data.into())
}
