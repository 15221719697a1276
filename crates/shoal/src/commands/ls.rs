//! `shoal ls`: a directory's entries, by the native client.

use crate::address::Place;
use crate::cli::Ls;
use crate::{connect, out, words};
use anyhow::Result;
use serde_json::json;
use shoal_client::Client;
use shoal_proto::{Attr, Entry, Kind};
use std::process::ExitCode;

/// List.
pub fn run(args: Ls) -> Result<ExitCode> {
    let place = Place::find(&args.place, args.key.key.as_deref())?;
    connect::with_client(&place, |_, client| list(client, &args, place.address.path.clone()))?;
    Ok(ExitCode::SUCCESS)
}

async fn list(client: Client, args: &Ls, path: String) -> Result<()> {
    let attr = client.walk(path.as_bytes(), true).await?;
    if attr.kind != Kind::Directory {
        let name = path.rsplit('/').next().unwrap_or(&path);
        return show(&client, args, name.as_bytes(), attr.kind, Some(&attr)).await;
    }
    let plus = args.long || args.plus;
    let mut stream = client.opendir(attr.handle);
    let mut entries: Vec<Entry> = Vec::new();
    while let Some(entry) = stream.next(plus).await? {
        match args.unsorted {
            true => show_entry(&client, args, &entry).await?,
            false => entries.push(entry),
        }
    }
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in &entries {
        show_entry(&client, args, entry).await?;
    }
    Ok(())
}

async fn show_entry(client: &Client, args: &Ls, entry: &Entry) -> Result<()> {
    show(client, args, entry.name.as_bytes(), entry.kind, entry.attr.as_ref()).await
}

async fn show(client: &Client, args: &Ls, name: &[u8], kind: Kind, attr: Option<&Attr>) -> Result<()> {
    let shown = String::from_utf8_lossy(name);
    if args.json {
        let mut value = attr.map_or_else(|| json!({ "kind": words::kind(kind) }), words::attr_json);
        value["name"] = shown.into();
        return out::json_line(&value);
    }
    // Gone between the listing and the question for its attributes.
    let Some(attr) = attr.filter(|_| args.long || args.plus) else {
        out::bytes(name)?;
        return out::bytes(b"\n");
    };
    let target = match attr.kind {
        Kind::Symlink => match client.readlink(attr.handle).await {
            Ok(target) => format!(" -> {}", String::from_utf8_lossy(&target)),
            Err(_) => String::new(),
        },
        _ => String::new(),
    };
    out::line(format!(
        "{} {:>3} {:>5} {:>5} {:>12} {} {shown}{target}",
        words::mode(attr.kind, attr.mode),
        attr.nlink,
        attr.uid,
        attr.gid,
        attr.size,
        words::time_short(attr.mtime),
    ))
}
