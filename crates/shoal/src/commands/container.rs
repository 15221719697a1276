//! `shoal container`: the commands for containers in the directory below a mount. Each command is one
//! function.
//!
//! A path leads to the directory in which a container's logs lie. The root of the containers' file system is
//! the nearest directory, from this path upwards, with a `.shoal` folder. Containers are made in that folder.
//! In a bucket the root is the longest prefix of the path that has files ([`below`]).

mod below;
mod check;
mod extract;
mod picture;

use crate::bytes_size::human;
use crate::cli::{Container as Command, MapContainer, One, RecoverContainer};
use crate::{out, words};
use anyhow::{Context as _, Result, bail};
use below::{Found, Mounted, Place};
use serde_json::{Value, json};
use shoal_proto::Kind;
use shoal_transform::WriterId;
use shoal_transform::container::tools::{self, Facts, Part};
use shoal_vfs::{Listing, Vfs};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;
/// Parts that `--json` lists and `--svg` draws, at most.
const PARTS_MAX: usize = 65_536;

/// Run one of them.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Ls(args) => ls(&args),
        Command::Stat(args) => stat(&args),
        Command::Map(args) => map(&args),
        Command::Check(args) => check::check(&args),
        Command::Flatten(args) => flatten(&args),
        Command::Compact(args) => compact(&args),
        Command::Recover(args) => recover(&args),
        Command::Extract(args) => extract::extract(&args),
    }
}

fn ls(args: &One) -> Result<ExitCode> {
    let listed = Place::find(&args.path)?.with(async |container, found| {
        let mut listing = container.opendir(found.object, Duration::from_secs(1));
        let mut all = Vec::new();
        while let Some(entry) = listing.next(true).await? {
            let Some(attr) = entry.entry.attr.filter(|attr| attr.kind == Kind::File) else { continue };
            let name = String::from_utf8_lossy(entry.entry.name.as_bytes()).into_owned();
            match tools::facts(container, attr.handle).await {
                Ok(facts) => all.push((name, attr, Some(facts))),
                Err(error) => {
                    eprintln!("shoal: {name}: {error}");
                    all.push((name, attr, None));
                }
            }
        }
        Ok(all)
    })?;
    let is_damaged = listed.iter().any(|(_, _, facts)| facts.is_none());
    if args.json {
        let all = listed.iter().map(|(name, attr, facts)| {
            json!({ "name": name, "size": attr.size, "stored": facts.as_ref().map(|facts| facts.stored),
                    "writers": facts.as_ref().map(|facts| facts.writers.len()) })
        });
        out::json(&all.collect::<Vec<Value>>())?;
    } else {
        for (name, attr, facts) in &listed {
            let writers = facts.as_ref().map_or("?".to_owned(), |facts| facts.writers.len().to_string());
            let stored = facts.as_ref().map_or("?".to_owned(), |facts| human(facts.stored));
            out::line(format!(
                "{:>12}  {stored:>12} stored  {writers:>6} writers  {name}",
                human(attr.size)
            ))?;
        }
    }
    Ok(ExitCode::from(u8::from(is_damaged)))
}

fn stat(args: &One) -> Result<ExitCode> {
    let facts = facts(&args.path)?;
    if args.json {
        out::json(&facts_as_json(&facts))?;
        return Ok(ExitCode::SUCCESS);
    }
    out::line(format!("size      {}", human(facts.size)))?;
    let dead = facts.stored.saturating_sub(facts.live);
    out::line(format!("stored    {} ({} overwritten or cut)", human(facts.stored), human(dead)))?;
    let open = facts.writers.iter().filter(|writer| writer.is_open).count();
    out::line(format!("writers   {} ({open} open, or ended without closing)", facts.writers.len()))?;
    out::line(format!("cuts      {}", facts.cuts))?;
    let index = if facts.is_flattened { "flattened" } else { "one log a writer" };
    out::line(format!("index     {index}"))?;
    for writer in facts.writers.iter().take(40) {
        let state = if writer.is_open { "open" } else { "closed" };
        out::line(format!(
            "  {}  {:>12}  {:>8} entries  {state:6}  {}",
            &writer.id.to_string()[..8],
            human(writer.data),
            writer.entries,
            writer.words
        ))?;
    }
    if facts.writers.len() > 40 {
        out::line(format!("  … and {} more (--json lists all)", facts.writers.len() - 40))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn facts(path: &Path) -> Result<Facts> {
    let look = async |container: &Mounted, found: &Found| Ok(tools::facts(container, found.object).await?);
    Place::find(path)?.with(look).with_context(|| format!("cannot look at {}", path.display()))
}

fn facts_as_json(facts: &Facts) -> Value {
    let writers = facts.writers.iter().map(|writer| {
        json!({ "id": writer.id.to_string(), "by": writer.words, "data": writer.data,
                "entries": writer.entries, "open": writer.is_open })
    });
    json!({ "size": facts.size, "stored": facts.stored, "live": facts.live, "cuts": facts.cuts,
            "flattened": facts.is_flattened, "writers": writers.collect::<Vec<_>>() })
}

fn map(args: &MapContainer) -> Result<ExitCode> {
    let (parts, more, facts) = Place::find(&args.path)?.with(async |container, found| {
        let (mut parts, mut more) = (Vec::new(), 0u64);
        let keep = |part: Part| match parts.len() < PARTS_MAX {
            true => parts.push(part),
            false => more += 1,
        };
        tools::map(container, found.object, keep).await?;
        Ok((parts, more, tools::facts(container, found.object).await?))
    })?;
    let number = |id: WriterId| facts.writers.iter().position(|writer| writer.id == id);
    if let Some(path) = &args.svg {
        let svg = picture::svg(&args.path.to_string_lossy(), facts.size, &parts, number);
        std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        let all = parts.iter().map(|part| {
            json!({ "offset": part.logical, "length": part.len, "place": part.physical,
                    "writer": part.writer.map(|id| id.to_string()) })
        });
        let all: Vec<Value> = all.collect();
        out::json(&json!({ "size": facts.size, "parts": all, "more": more }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for part in parts.iter().take(args.parts) {
        let by = part.writer.map_or("hole".to_owned(), |id| {
            let by = facts.writers.iter().find(|writer| writer.id == id).map(|writer| writer.words.as_str());
            format!("{}  {}", &id.to_string()[..8], by.unwrap_or_default())
        });
        out::line(format!("{:>16}  {:>12}  {by}", words::count(part.logical), human(part.len)))?;
    }
    let left = parts.len().saturating_sub(args.parts) as u64 + more;
    if left > 0 {
        out::line(format!("… and {} more parts (--parts N, --json, --svg FILE)", words::count(left)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn flatten(args: &One) -> Result<ExitCode> {
    let work = async |container: &Mounted, found: &Found| Ok(tools::flatten(container, found.object).await?);
    let logs = Place::find(&args.path)?.with(work)?;
    match args.json {
        true => out::json(&json!({ "logs": logs }))?,
        false => out::line(format!("the indexes of {logs} writers are one file"))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn compact(args: &One) -> Result<ExitCode> {
    let given = Place::find(&args.path)?.with(async |container, found| {
        let Some(name) = &found.name else { bail!("it is the directory itself: name a container") };
        Ok(tools::compact(container, found.dir, name).await?)
    })?;
    match args.json {
        true => out::json(&json!({ "given_back": given }))?,
        false => out::line(format!("{} given back; one log", human(given)))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn recover(args: &RecoverContainer) -> Result<ExitCode> {
    let allowed = tools::Allowed { lossy: args.lossy, ended: args.ended };
    let recovered = Place::find(&args.path)?.with(async move |container, found| match found.kind {
        Kind::Directory => {
            let mut recovered = tools::empty_bin(container, allowed).await?;
            found.below.recover_names(allowed, &mut recovered).await?;
            Ok(recovered)
        }
        _ => Ok(tools::recover(container, found.object, allowed).await?),
    })?;
    let tools::Recovered { closed, deleted, kept, lost, named } = recovered;
    if args.json {
        out::json(
            &json!({ "closed": closed, "deleted": deleted, "kept": kept, "lost": lost, "named": named }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    out::line(format!("{closed} writers closed, {deleted} leftovers deleted"))?;
    if kept > 0 {
        out::line(format!("{kept} leftovers kept: their programs run, or may run elsewhere (--ended)"))?;
    }
    if named > 0 {
        out::line(format!("{named} files that had no name are `recovered-ID` in the root"))?;
    }
    lost.iter().try_for_each(|words| out::line(format!("given up: {words}")))?;
    Ok(ExitCode::SUCCESS)
}
