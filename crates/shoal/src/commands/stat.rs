//! `shoal stat`: shows the attributes, the layout and the names of the extended attributes of objects.

use crate::address::CommandTarget;
use crate::bytes_size::human;
use crate::cli::Stat;
use crate::laid::{self, Found, Laid};
use crate::{connect, out, subfiles, words};
use anyhow::{Context as _, Result};
use serde_json::Value;
use shoal_client::Client;
use shoal_proto::{Attr, Kind};
use shoal_transform::Followed;
use shoal_vfs::Vfs as _;
use std::process::ExitCode;

/// Show each object. If some cannot be shown, return the first error, after the others were shown.
pub fn run(args: Stat) -> Result<ExitCode> {
    let mut failed = Ok(());
    for text in &args.places {
        let one = || {
            let place = CommandTarget::find(text, args.key.key.as_deref())?;
            connect::with_client_within(&place, args.limit.span(), |env, client| {
                stat(Followed::new(env, client), &args, text, place.address.path.clone())
            })
        };
        failed = failed.and(one().with_context(|| format!("cannot stat {text}")));
    }
    failed.map(|()| ExitCode::SUCCESS)
}

async fn stat(client: Followed<Client>, args: &Stat, text: &str, path: String) -> Result<()> {
    let Found { attr, laid } = laid::find(&client, path.as_bytes(), false).await?;
    let target = match attr.kind {
        Kind::Symlink => Some(client.readlink(attr.handle).await?),
        _ => None,
    };
    let target = target.map(|target| String::from_utf8_lossy(&target).into_owned());
    let missing = subfiles::missing(client.over(), &attr).await?;
    let xattrs = client.listxattr(attr.handle).await?;
    let xattrs: Vec<String> = xattrs.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    if args.json {
        let mut value = words::attr_json(&attr);
        value["name"] = text.into();
        value["target"] = target.into();
        value["xattrs"] = xattrs.into();
        if let Some(laid) = &laid {
            // Clients chose this handle: no server has an object with it.
            value["handle"] = Value::Null;
            (value["layout"], value["template"]) = (laid.json(), laid.template_json());
        }
        if subfiles::count(&attr).is_some() {
            value["missing"] = missing.into();
        }
        return out::json_line(&value);
    }
    show(text, &attr, laid.as_ref(), target.as_deref(), &xattrs)?;
    subfiles::words(&missing).map_or(Ok(()), |words| out::line(format!("  {:<10} {words}", "incomplete")))
}

fn show(text: &str, attr: &Attr, laid: Option<&Laid>, target: Option<&str>, xattrs: &[String]) -> Result<()> {
    let arrow = target.map_or(String::new(), |target| format!(" -> {target}"));
    out::line(format!("{text}{arrow}"))?;
    let row = |name: &str, value: String| out::line(format!("  {name:<10} {value}"));
    row("kind", attr.kind.word().to_owned())?;
    row("size", format!("{} ({}), {} on disk", attr.size, human(attr.size), human(attr.space)))?;
    row("mode", format!("{:04o} {}", attr.mode, words::mode(attr.kind, attr.mode)))?;
    row("owner", format!("{}:{}", attr.uid, attr.gid))?;
    row("links", attr.nlink.to_string())?;
    match laid {
        None => {
            let server = attr.handle.server();
            row("handle", format!("{} (server {server}, inode {})", attr.handle, attr.handle.0))?;
        }
        Some(laid) => {
            row("inode", attr.handle.0.to_string())?;
            row("object", laid.place(attr.kind))?;
        }
    }
    row("modified", words::time(attr.mtime))?;
    row("changed", words::time(attr.ctime))?;
    row("accessed", words::time(attr.atime))?;
    row("born", words::time(attr.btime))?;
    if let Some(laid) = laid {
        row("layout", laid.layout(attr.kind))?;
    }
    match (attr.kind, &attr.layout) {
        _ if laid.is_some() => {}
        (Kind::File, Some(layout)) => {
            let all: Vec<String> = layout.datafiles.iter().map(|h| h.to_string()).collect();
            row("layout", format!("unstuffed over {} datafiles: {}", all.len(), all.join(" ")))?;
            row("generation", attr.generation.to_string())?;
        }
        (Kind::File, None) if attr.template.dist.is_of_forks() => {
            row("layout", format!("a fork, whole on server {}", attr.handle.server()))?;
        }
        (Kind::Directory, _) if attr.template.dist.is_of_forks() => {
            row("layout", words::template(&attr.template))?;
        }
        (Kind::File, None) => row("layout", format!("stuffed; then {}", words::template(&attr.template)))?,
        (Kind::Directory, _) if attr.template.dist.is_followed() => {
            row("files", words::template(&attr.template))?;
        }
        (Kind::Directory, _) => {
            row("new files", words::template(&attr.template))?;
            if let Some(shards) = words::shards(attr) {
                row("shards", shards)?;
            }
        }
        _ => {}
    }
    if !xattrs.is_empty() {
        row("xattrs", xattrs.join(" "))?;
    }
    Ok(())
}
