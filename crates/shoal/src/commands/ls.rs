//! `shoal ls`: a directory's entries, by the native client; with their attributes and contents, if requested,
//! in the same messages.
//!
//! **If a server does not answer, only its entries' columns are missing**: each name is listed, `?` stands
//! for an unknown value, the servers are named at the end, and the exit status is 1. Contents are not shown
//! in directories with the layout `container` or `composed`.

use crate::address::CommandTarget;
use crate::cli::Ls;
use crate::{connect, out, words};
use anyhow::Result;
use bytes::Bytes;
use serde_json::{Value, json};
use shoal_client::{Client, DirStream, Error, Which};
use shoal_proto::{Attr, Entry, Kind, ServerId, Status, limits};
use shoal_transform::Followed;
use shoal_vfs::{Listing as _, Vfs};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

/// Contents of larger files are not shown.
const DATA_BYTES_MAX: usize = limits::EAGER_BYTES_MAX;
/// Characters of a first line that are shown.
const LINE_CHARS_MAX: usize = 60;

/// List; 1 if a server did not answer, so that something of an entry is unknown.
pub fn run(args: Ls) -> Result<ExitCode> {
    let place = CommandTarget::find(&args.place, args.key.key.as_deref())?;
    let (within, path, args) = (args.limit.span(), &place.address.path, &args);
    let work = |env, client: Client| async move {
        let followed = Followed::new(env, client.clone());
        let mut lister = Lister { followed, client, args, silent: BTreeMap::new() };
        lister.list(path, within).await?;
        lister.say_silent()
    };
    let all_known = connect::with_client_within(&place, within, work)?;
    Ok(if all_known { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An entry; its contents if they were asked for and are small; and what could not be had of it.
struct Listed {
    entry: Entry,
    content: Option<Bytes>,
    /// Why something is unknown, and the attributes that are known though others are not.
    lacks: Option<(Error, Option<Attr>)>,
}

/// A listing under way.
struct Lister<'a> {
    /// The same, with directories by their layouts.
    followed: Followed<Client>,
    client: Client,
    args: &'a Ls,
    /// Servers that did not answer: of how many entries something is unknown, and one of the errors.
    silent: BTreeMap<Option<ServerId>, (u64, Error)>,
}

impl Lister<'_> {
    async fn list(&mut self, path: &str, within: Duration) -> Result<()> {
        let (args, client) = (self.args, self.client.clone());
        let attr = match client.walk(path.as_bytes(), true).await {
            Ok(attr) if attr.kind == Kind::Directory && attr.template.dist.is_followed() => {
                return self.list_followed(path).await;
            }
            Err(error) if matches!(error.status, Status::NotFound | Status::NotDirectory) => {
                return self.list_followed(path).await;
            }
            found => found?,
        };
        if attr.kind != Kind::Directory {
            let name = path.rsplit('/').next().unwrap_or(path);
            let found = match args.with_data && attr.kind == Kind::File {
                true => {
                    client.read_many(&[Which::Object(attr.handle)], DATA_BYTES_MAX).await.pop().transpose()?
                }
                false => None,
            };
            let content = found.and_then(|(_, content)| content);
            return self.show(name.as_bytes(), attr.kind, Some(&attr), content, None).await;
        }
        let mut stream = client.opendir(attr.handle).attributes_within(within);
        if args.with_data {
            stream = stream.with_data(DATA_BYTES_MAX);
        }
        let mut entries: Vec<Listed> = Vec::new();
        while let Some(listed) = self.next(&mut stream).await? {
            match args.unsorted {
                true => self.show_entry(listed).await?,
                false => entries.push(listed),
            }
        }
        entries.sort_by(|a, b| a.entry.name.cmp(&b.entry.name));
        for listed in entries {
            self.show_entry(listed).await?;
        }
        Ok(())
    }

    /// List a path that leads, or may lead, into a directory with a layout of its own. Contents are not with
    /// the names there.
    async fn list_followed(&mut self, path: &str) -> Result<()> {
        let followed = self.followed.clone();
        let attr = followed.walk_path(path.as_bytes(), true).await?;
        if attr.kind != Kind::Directory {
            let name = path.rsplit('/').next().unwrap_or(path);
            return self.show(name.as_bytes(), attr.kind, Some(&attr), None, None).await;
        }
        let mut listing = Vfs::opendir(&followed, attr.handle, self.args.limit.span());
        let mut entries = Vec::new();
        while let Some(listed) = listing.next(self.args.long || self.args.plus).await? {
            entries.push(listed.entry);
        }
        if !self.args.unsorted {
            entries.sort_by(|a, b| a.name.cmp(&b.name));
        }
        for entry in entries {
            self.show_entry(Listed { entry, content: None, lacks: None }).await?;
        }
        Ok(())
    }

    async fn next(&self, stream: &mut DirStream) -> Result<Option<Listed>> {
        let next = match self.args.with_data {
            true => stream.next_with_data().await?,
            false => stream.next(self.args.long || self.args.plus).await?.map(|entry| (entry, None)),
        };
        let lacks = stream.lacks().map(|error| (error.clone(), stream.unmerged().cloned()));
        Ok(next.map(|(entry, content)| Listed { entry, content, lacks }))
    }

    async fn show_entry(&mut self, Listed { entry, content, lacks }: Listed) -> Result<()> {
        let (name, attr) = (entry.name.as_bytes(), entry.attr.as_ref());
        let Some((error, own)) = lacks else {
            return self.show(name, entry.kind, attr, content, None).await;
        };
        self.note(&error);
        let known = own.as_ref().map_or(Known::Nothing, Known::Own);
        let unknown = attr.is_none().then_some(known);
        self.show(name, entry.kind, attr, content, unknown).await
    }

    fn note(&mut self, error: &Error) {
        self.silent.entry(error.server).or_insert_with(|| (0, error.clone())).0 += 1;
    }

    /// Name the servers that did not answer; whether there was none.
    fn say_silent(self) -> Result<bool> {
        for (server, (entries, error)) in &self.silent {
            let server = server.map_or("a server".to_owned(), |server| format!("server {server}"));
            let names = words::many(*entries, "name");
            eprintln!(
                "shoal: {server} does not answer, and what only it knows of {names} is unknown (`?`): {error}; see \
                 `shoal status`, and list again when it answers"
            );
        }
        Ok(self.silent.is_empty())
    }

    async fn show(
        &mut self,
        name: &[u8],
        kind: Kind,
        attr: Option<&Attr>,
        content: Option<Bytes>,
        unknown: Option<Known<'_>>,
    ) -> Result<()> {
        let (args, shown) = (self.args, String::from_utf8_lossy(name));
        if args.json {
            let known = attr.map_or_else(|| json!({ "kind": kind.word() }), words::attr_json);
            let mut value = unknown.as_ref().map_or(known, |unknown| unknown.json(kind));
            value["name"] = shown.into();
            match content.as_deref().map(|content| (content, std::str::from_utf8(content))) {
                Some((_, Ok(text))) => value["data"] = text.into(),
                Some((bytes, Err(_))) => value["data_hex"] = hex(bytes).into(),
                None => {}
            }
            return out::json_line(&value);
        }
        let first = content.as_deref().map(first_line).unwrap_or_default();
        if let Some(unknown) = unknown.filter(|_| args.long || args.plus) {
            return out::line(format!("{} {shown}", unknown.columns(kind)));
        }
        // Gone between the listing and the question for its attributes.
        let Some(attr) = attr.filter(|_| args.long || args.plus) else {
            out::bytes(name)?;
            return out::line(first);
        };
        let target = match attr.kind {
            Kind::Symlink => match self.followed.readlink(attr.handle).await {
                Ok(target) => format!(" -> {}", String::from_utf8_lossy(&target)),
                Err(error) if error.is_silence() => {
                    self.note(&error);
                    " -> ?".to_owned()
                }
                Err(_) => String::new(),
            },
            _ => String::new(),
        };
        let time = words::time_short(attr.mtime);
        let columns = [&attr.nlink as &dyn Display, &attr.uid, &attr.gid, &attr.size, &time];
        out::line(format!("{} {shown}{target}{first}", long(&words::mode(attr.kind, attr.mode), columns)))
    }
}

/// The columns of a long listing before the name: links, owner, group, size and time after the mode.
fn long(mode: &str, [nlink, uid, gid, size, time]: [&dyn Display; 5]) -> String {
    let [nlink, uid, gid, size] = [nlink, uid, gid, size].map(ToString::to_string);
    format!("{mode} {nlink:>3} {uid:>5} {gid:>5} {size:>12} {time:<20}")
}

/// The known facts of an entry that has no attributes, because a server does not answer.
enum Known<'a> {
    /// Its inode's server.
    Nothing,
    /// A server of its bytes or, of a directory, of its shards: these are the values of the inode's server.
    Own(&'a Attr),
}

impl Known<'_> {
    /// Its columns, with `?` in those that are unknown.
    fn columns(&self, kind: Kind) -> String {
        const UNKNOWN: &dyn Display = &'?';
        match self {
            Known::Nothing => long(&words::mode_unknown(kind), [UNKNOWN; 5]),
            Known::Own(attr) => {
                let nlink: &dyn Display = if kind == Kind::Directory { UNKNOWN } else { &attr.nlink };
                long(&words::mode(kind, attr.mode), [nlink, &attr.uid, &attr.gid, UNKNOWN, UNKNOWN])
            }
        }
    }

    /// The same as JSON, with null for unknown values.
    fn json(&self, kind: Kind) -> Value {
        let mut value = match self {
            Known::Nothing => json!({ "kind": kind.word() }),
            Known::Own(attr) => words::attr_json(attr),
        };
        let unknown: &[&str] = match self {
            Known::Nothing => &["mode", "uid", "gid", "links", "size", "mtime_ns"],
            Known::Own(_) if kind == Kind::Directory => &["links", "size", "space", "mtime_ns", "ctime_ns"],
            Known::Own(_) => &["size", "space", "mtime_ns", "ctime_ns"],
        };
        unknown.iter().for_each(|name| value[*name] = Value::Null);
        value
    }
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
