//! `shoal cat`: files to standard output, several reads ahead.

use crate::address::Place;
use crate::cli::Cat;
use crate::{connect, out};
use anyhow::{Context as _, Result, bail};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use shoal_client::Client;
use shoal_proto::{Kind, Rights};
use std::process::ExitCode;

/// Bytes of one read, and reads under way at once.
const READ: (u64, usize) = (1 << 20, 4);

/// Write each.
pub fn run(args: Cat) -> Result<ExitCode> {
    for text in &args.places {
        let place = Place::find(text, args.key.key.as_deref())?;
        let path = place.address.path.clone();
        let done = connect::with_client_within(&place, args.limit.span(), |_, client| cat(client, path));
        match done {
            Err(error) if out::is_closed(&error) => return Ok(ExitCode::SUCCESS),
            done => done.with_context(|| format!("cannot read {text}"))?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn cat(client: Client, path: String) -> Result<()> {
    match pour(&client, &path).await {
        // Asked only then: a readable file costs no additional message.
        Err(error) if !out::is_closed(&error) && is_directory(&client, &path).await => {
            bail!("it is a directory: `shoal ls` lists it")
        }
        done => done,
    }
}

async fn is_directory(client: &Client, path: &str) -> bool {
    client.walk(path.as_bytes(), true).await.is_ok_and(|attr| attr.kind == Kind::Directory)
}

async fn pour(client: &Client, path: &str) -> Result<()> {
    let file = client.open_at(path.as_bytes(), Rights::READ).await?;
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
