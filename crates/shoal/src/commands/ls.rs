//! `shoal ls`: a directory's entries, by the native client; with their attributes and contents, if requested,
//! in the same messages.

use crate::address::Place;
use crate::cli::Ls;
use crate::{connect, out, words};
use anyhow::Result;
use bytes::Bytes;
use serde_json::json;
use shoal_client::{Client, DirStream, Which};
use shoal_proto::{Attr, Entry, Kind, limits};
use std::process::ExitCode;

/// Contents of larger files are not shown.
const DATA_BYTES_MAX: usize = limits::EAGER_BYTES_MAX;
/// Characters of a first line that are shown.
const LINE_CHARS_MAX: usize = 60;

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
        let found = match args.with_data && attr.kind == Kind::File {
            true => {
                client.read_many(&[Which::Object(attr.handle)], DATA_BYTES_MAX).await.pop().transpose()?
            }
            false => None,
        };
        let content = found.and_then(|(_, content)| content);
        return show(&client, args, name.as_bytes(), attr.kind, Some(&attr), content).await;
    }
    let mut stream = client.opendir(attr.handle);
    if args.with_data {
        stream = stream.with_data(DATA_BYTES_MAX);
    }
    let mut entries: Vec<Listed> = Vec::new();
    while let Some(listed) = next(&mut stream, args).await? {
        match args.unsorted {
            true => show_entry(&client, args, listed).await?,
            false => entries.push(listed),
        }
    }
    entries.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    for listed in entries {
        show_entry(&client, args, listed).await?;
    }
    Ok(())
}

/// An entry, and its contents if they were asked for and are small.
type Listed = (Entry, Option<Bytes>);

async fn next(stream: &mut DirStream, args: &Ls) -> Result<Option<Listed>> {
    Ok(match args.with_data {
        true => stream.next_with_data().await?,
        false => stream.next(args.long || args.plus).await?.map(|entry| (entry, None)),
    })
}

async fn show_entry(client: &Client, args: &Ls, (entry, content): Listed) -> Result<()> {
    show(client, args, entry.name.as_bytes(), entry.kind, entry.attr.as_ref(), content).await
}

async fn show(
    client: &Client,
    args: &Ls,
    name: &[u8],
    kind: Kind,
    attr: Option<&Attr>,
    content: Option<Bytes>,
) -> Result<()> {
    let shown = String::from_utf8_lossy(name);
    if args.json {
        let mut value = attr.map_or_else(|| json!({ "kind": kind.word() }), words::attr_json);
        value["name"] = shown.into();
        match content.as_deref().map(|content| (content, std::str::from_utf8(content))) {
            Some((_, Ok(text))) => value["data"] = text.into(),
            Some((bytes, Err(_))) => value["data_hex"] = hex(bytes).into(),
            None => {}
        }
        return out::json_line(&value);
    }
    let first = content.as_deref().map(first_line).unwrap_or_default();
    // Gone between the listing and the question for its attributes.
    let Some(attr) = attr.filter(|_| args.long || args.plus) else {
        out::bytes(name)?;
        return out::line(first);
    };
    let target = match attr.kind {
        Kind::Symlink => match client.readlink(attr.handle).await {
            Ok(target) => format!(" -> {}", String::from_utf8_lossy(&target)),
            Err(_) => String::new(),
        },
        _ => String::new(),
    };
    out::line(format!(
        "{} {:>3} {:>5} {:>5} {:>12} {} {shown}{target}{first}",
        words::mode(attr.kind, attr.mode),
        attr.nlink,
        attr.uid,
        attr.gid,
        attr.size,
        words::time_short(attr.mtime),
    ))
}

/// The beginning of a file, after a tab; bytes that are no text are escaped.
fn first_line(content: &[u8]) -> String {
    let line = content.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let shown: String =
        String::from_utf8_lossy(line).chars().flat_map(char::escape_default).take(LINE_CHARS_MAX).collect();
    format!("\t{shown}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
