//! `shoal cat`: files to standard output. Several reads run ahead, except in directories with a layout that
//! clients follow.

use crate::address::CommandTarget;
use crate::cli::Cat;
use crate::{connect, out};
use anyhow::{Context as _, Result, bail};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use shoal_client::{Client, OpenFile};
use shoal_env::Env;
use shoal_proto::{Attr, Kind, Rights, Status};
use shoal_transform::Followed;
use shoal_vfs::{Error, Vfs as _, VfsFile as _};
use std::process::ExitCode;

/// Bytes of one read, and reads under way at once.
const READ: (u64, usize) = (1 << 20, 4);

/// Write each.
pub fn run(args: Cat) -> Result<ExitCode> {
    for text in &args.places {
        let place = CommandTarget::find(text, args.key.key.as_deref())?;
        let path = place.address.path.clone();
        let done =
            connect::with_client_within(&place, args.limit.span(), |env, client| cat(env, client, path));
        match done {
            Err(error) if out::is_closed(&error) => return Ok(ExitCode::SUCCESS),
            done => done.with_context(|| format!("cannot read {text}"))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn cat(env: Env, client: Client, path: String) -> Result<()> {
    // The objects below a directory with a layout of its own are no files of its users.
    let is_followed = match client.walk_parent(path.as_bytes()).await {
        Ok((dir, _)) => client.getattr(dir).await?.template.dist.is_followed(),
        Err(_) => false,
    };
    let refused = match is_followed {
        true => Error::new(Status::NotFound, "open"),
        false => match client.open_at(path.as_bytes(), Rights::READ).await {
            Ok(file) => return pour(file).await,
            Err(error) => error,
        },
    };
    // Requested only then: a readable file costs no additional message.
    let followed = Followed::new(env, client);
    match followed.walk_path(path.as_bytes(), true).await {
        Ok(attr) if attr.kind == Kind::Directory => bail!("it is a directory: `shoal ls` lists it"),
        // It lies in a directory with a layout of its own.
        Ok(attr) if attr.kind == Kind::File => pour_followed(&followed, &attr).await,
        Err(error) if is_followed => Err(error.into()),
        _ => Err(refused.into()),
    }
}

async fn pour_followed(followed: &Followed<Client>, attr: &Attr) -> Result<()> {
    let (file, mut at) = (followed.open(attr.handle, Rights::READ).await?, 0);
    loop {
        let data = file.read(at, READ.0 as usize).await?;
        if data.is_empty() {
            return Ok(file.close().await?);
        }
        at += data.len() as u64;
        out::bytes(&data)?;
    }
}

async fn pour(file: OpenFile) -> Result<()> {
    let size = file.size().await?;
    let (len, ahead) = READ;
    let reads = stream::iter((0..size.div_ceil(len)).map(|i| file.read(i * len, len as usize)));
    let mut data = reads.buffered(ahead);
    while let Some(data) = data.try_next().await? {
        out::bytes(&data)?;
    }
    drop(data);
    Ok(file.close().await?)
}
