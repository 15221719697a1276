//! Output for people: modes, times, numbers, tables.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use serde_json::{Value, json};
pub use shoal_config::numbers::{count, many, rate, span_us};
use shoal_proto::{Attr, Dist, Kind, Template, Time};
use std::io::IsTerminal as _;
use std::time::{Duration, UNIX_EPOCH};

/// Why a server does not serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// It cannot be reached, or does not answer.
    Silent(String),
    /// It answers with a refusal.
    Refuses(String),
}

impl Unserved {
    /// By the error of a call to it.
    pub fn of(error: &shoal_client::Error) -> Unserved {
        let why = error.to_string();
        if error.is_silence() { Unserved::Silent(why) } else { Unserved::Refuses(why) }
    }

    /// By the error of several.
    pub fn of_any(error: &anyhow::Error) -> Unserved {
        let why = format!("{error:#}");
        let is_silent =
            error.downcast_ref::<shoal_client::Error>().is_some_and(shoal_client::Error::is_silence);
        if is_silent { Unserved::Silent(why) } else { Unserved::Refuses(why) }
    }

    /// The reason alone.
    pub fn why(&self) -> &str {
        let (Unserved::Silent(why) | Unserved::Refuses(why)) = self;
        why
    }
}

impl std::fmt::Display for Unserved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unserved::Silent(why) => write!(f, "does not answer: {why}"),
            Unserved::Refuses(why) => write!(f, "does not serve: {why}"),
        }
    }
}

impl Serialize for Unserved {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.why())
    }
}

/// `drwxr-xr-x`.
pub fn mode(kind: Kind, mode: u32) -> String {
    let first = first_letter(kind);
    let mut text = String::from(first);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// The same of an object whose mode is not known.
pub fn mode_unknown(kind: Kind) -> String {
    format!("{}?????????", first_letter(kind))
}

fn first_letter(kind: Kind) -> char {
    match kind {
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice => 'c',
        Kind::BlockDevice => 'b',
        Kind::File | Kind::Datafile => '-',
    }
}

/// A time, in UTC: `2026-11-21T22:10:00.123456789Z`; before 1970 as seconds.
pub fn time(time: Time) -> String {
    match u64::try_from(time.0) {
        Ok(nanos) => humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from_nanos(nanos)).to_string(),
        Err(_) => {
            let (seconds, nanos) = time.parts();
            format!("@{seconds}.{nanos:09}")
        }
    }
}

/// A time to the second.
pub fn time_short(at: Time) -> String {
    match u64::try_from(at.0) {
        Ok(nanos) => humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_nanos(nanos)).to_string(),
        Err(_) => time(at),
    }
}

/// A template, in words.
pub fn template(template: &Template) -> String {
    let width = match template.width {
        0 => "one datafile on every data server".to_owned(),
        1 => "1 datafile".to_owned(),
        n => format!("{n} datafiles"),
    };
    match template.dist {
        Dist::Basic => "basic, all in one datafile".to_owned(),
        Dist::Fork => "forks, each whole beside its entry".to_owned(),
        Dist::Forked { subfiles } => format!("forked, {subfiles} subfiles"),
        Dist::Container { strip } => {
            let strip = crate::bytes_size::human(strip);
            format!("containers, whose logs are striped, strip {strip}, {width}")
        }
        Dist::Composed { strip } => {
            let strip = crate::bytes_size::human(strip);
            format!("composed in blocks of one file, striped, strip {strip}, {width}")
        }
        Dist::SimpleStripe { strip } => {
            format!("striped, strip {}, {width}", crate::bytes_size::human(strip))
        }
    }
}

/// A distribution as JSON.
pub fn dist_json(dist: &Dist) -> Value {
    match dist {
        Dist::Basic => json!({ "distribution": "basic" }),
        Dist::Fork => json!({ "distribution": "fork" }),
        Dist::Forked { subfiles } => json!({ "distribution": "forked", "subfiles": subfiles }),
        Dist::SimpleStripe { strip } => json!({ "distribution": "simple_stripe", "strip": strip }),
        Dist::Container { strip } => json!({ "distribution": "container", "strip": strip }),
        Dist::Composed { strip } => json!({ "distribution": "composed", "strip": strip }),
    }
}

/// The servers of a split directory's shards, in order; null for a whole one.
pub fn shards_json(attr: &Attr) -> Value {
    let servers: Vec<u16> = attr.shards.servers().iter().map(|server| server.0).collect();
    if servers.is_empty() { Value::Null } else { servers.into() }
}

/// The same for people: `split over servers 0, 1, 2`; nothing for a whole one.
pub fn shards(attr: &Attr) -> Option<String> {
    let servers: Vec<String> = attr.shards.servers().iter().map(ToString::to_string).collect();
    (!servers.is_empty()).then(|| format!("split over servers {}", servers.join(", ")))
}

/// Attributes as JSON.
pub fn attr_json(attr: &Attr) -> Value {
    let mut template = dist_json(&attr.template.dist);
    template["width"] = attr.template.width.into();
    let layout = attr.layout.as_ref().map(|layout| {
        let mut value = dist_json(&layout.dist);
        value["datafiles"] = layout.datafiles.iter().map(|h| h.to_string()).collect();
        value
    });
    json!({
        "handle": attr.handle.to_string(),
        "inode": attr.handle.0,
        "kind": attr.kind.word(),
        "mode": format!("{:04o}", attr.mode),
        "uid": attr.uid,
        "gid": attr.gid,
        "links": attr.nlink,
        "size": attr.size,
        "space": attr.space,
        "rdev": attr.rdev,
        "atime_ns": attr.atime.0,
        "mtime_ns": attr.mtime.0,
        "ctime_ns": attr.ctime.0,
        "btime_ns": attr.btime.0,
        "generation": attr.generation.0,
        "template": template,
        "layout": layout,
        "shards": shards_json(attr),
    })
}

/// Counts in sequence: `20 1 0 3`; nothing for a value that is no list.
pub fn list(counts: &Value) -> String {
    let counts = counts.as_array().map_or(&[][..], Vec::as_slice);
    counts.iter().map(|n| count(n.as_u64().unwrap_or(0))).collect::<Vec<_>>().join(" ")
}

/// A word that must not be overlooked: red where a person reads it on a terminal that has colours
/// (<https://no-color.org>).
pub fn alarm(word: &str) -> String {
    let has_colours = std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    if has_colours { format!("\x1b[1;31m{word}\x1b[0m") } else { word.to_owned() }
}

/// A table without lines; all columns but the first to the right.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().copied());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A table as lines without blanks around them.
pub fn plain(table: &Table) -> String {
    let text = table.trim_fmt();
    text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_written_as_ls_writes_them() {
        assert_eq!(mode(Kind::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(mode(Kind::File, 0o4640), "-rwSr-----");
        assert_eq!(mode(Kind::Symlink, 0o777), "lrwxrwxrwx");
    }

    #[test]
    fn times_before_1970_are_shown_too() {
        assert_eq!(time(Time(-1)), "@-1.999999999");
        assert_eq!(time_short(Time(0)), "1970-01-01T00:00:00Z");
    }
}
