//! `shoal composed`: the commands for composed directories. Each command is one function.

mod picture;
mod tree;

use crate::bytes_size::human;
use crate::cli::{Composed as Command, ExtractComposed, LsComposed, MapComposed, OneComposed, PackComposed};
use crate::{out, words};
use anyhow::{Context as _, Result};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use shoal_env::{Env, real};
use shoal_proto::{Handle, Kind, Name};
use shoal_transform::composed::tools::{self, Block};
use shoal_transform::{Composed, ComposedOptions, Wishes};
use shoal_vfs::{AnyVfs, Connect, Listing, LocalOptions, Vfs};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Run one of them.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Ls(args) => ls(args),
        Command::Map(args) => map(&args),
        Command::Check(args) => check(&args),
        Command::Extract(args) => extract(args),
        Command::Pack(args) => pack(args),
        Command::Compact(args) => compact(&args),
    }
}

const LOOKS: Wishes = Wishes {
    block: None,
    files: None,
    buffers_blocks: false,
    own_names: false,
    publishes_writes: false,
    read_only: true,
};

/// Do something with a composed directory.
fn with<T: Send + 'static>(
    dir: &Path,
    wishes: Wishes,
    work: impl AsyncFnOnce(Env, &Composed<AnyVfs>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let words = format!("cannot use {} as a composed directory", dir.display());
    with_words(dir, wishes, words, work)
}

/// The same; `words`: where an error of the work has occurred.
fn with_words<T: Send + 'static>(
    dir: &Path,
    wishes: Wishes,
    words: String,
    work: impl AsyncFnOnce(Env, &Composed<AnyVfs>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (path, unusable) = (dir.to_owned(), format!("cannot use {} as a composed directory", dir.display()));
    real::run("composed", move |env| async move {
        let options = ComposedOptions { over: LocalOptions::new(path), wishes };
        let composed = options.connect(env.clone()).await.context(unusable)?;
        let done = work(env, &composed).await.context(words);
        composed.close().await;
        done
    })
}

/// A bar of extents or objects.
fn bar(quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_bar:.dim} {pos}/{len}") {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, done: u64, all: u64) {
    bar.set_length(all);
    bar.set_position(done);
}

/// The object of a path within.
async fn walk(composed: &Composed<AnyVfs>, path: Option<&Path>) -> Result<Handle> {
    let path = path.unwrap_or(Path::new(""));
    let attr = composed.walk_path(path.as_os_str().as_bytes(), true).await;
    Ok(attr.with_context(|| format!("cannot look at {} in it", path.display()))?.handle)
}

fn ls(args: LsComposed) -> Result<ExitCode> {
    let dir = args.dir.clone();
    with(&dir, LOOKS, async move |_, composed| {
        let mut todo = vec![(String::new(), walk(composed, args.path.as_deref()).await?)];
        while let Some((above, dir)) = todo.pop() {
            let mut listing = composed.opendir(dir, Duration::from_secs(1));
            while let Some(listed) = listing.next(true).await? {
                let Some(attr) = listed.entry.attr else { continue };
                let path = format!("{above}{}", shown(&listed.entry.name));
                let is_dir = attr.kind == Kind::Directory;
                match args.json {
                    true => {
                        out::json_line(&json!({ "path": path, "kind": attr.kind.word(), "size": attr.size,
                        "stored": attr.space, "mode": attr.mode }))?
                    }
                    false => {
                        let size = if is_dir { "directory".to_owned() } else { human(attr.size) };
                        out::line(format!("{size:>12}  {path}{}", if is_dir { "/" } else { "" }))?;
                    }
                }
                if is_dir && args.recursive {
                    todo.push((format!("{path}/"), attr.handle));
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn shown(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

fn map(args: &MapComposed) -> Result<ExitCode> {
    let bar = bar(args.quiet);
    let shown = bar.clone();
    let (blocks, facts, settings) = with(&args.dir, LOOKS, async move |_, composed| {
        let blocks = tools::map(composed, |done, all| show(&shown, done, all)).await?;
        Ok((blocks, tools::facts(composed).await?, composed.settings()))
    })?;
    bar.finish_and_clear();
    if let Some(path) = &args.svg {
        let svg = picture::svg(&args.dir.to_string_lossy(), settings.block, &blocks);
        std::fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        let all: Vec<Value> = blocks.iter().map(block_as_json).collect();
        out::json(&json!({ "block": settings.block, "physical_files": settings.files, "files": facts.files,
            "directories": facts.directories, "live": facts.live, "used": facts.used, "claims": facts.claims,
            "writers": facts.writers, "blocks": all }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let of = if settings.files == 1 { "one file".to_owned() } else { format!("{} files", settings.files) };
    out::line(format!("blocks    {} of {} in {of}", blocks.len(), human(u64::from(settings.block))))?;
    out::line(format!("holds     {}, {}", words::many(facts.files, "file"), directories(facts.directories)))?;
    out::line(format!("lives     {} of {} stored", human(facts.live), human(facts.used)))?;
    out::line(format!(
        "writers   {} running or killed, {}",
        facts.writers,
        words::many(facts.claims, "claim")
    ))?;
    for block in blocks.iter().take(args.blocks) {
        out::line(format!(
            "  blocks.{} {:>8}  {}  no. {:<6} {:>10} stored {:>10} live",
            block.file,
            block.number,
            &block.writer.to_string()[..8],
            block.sequence,
            human(block.used),
            human(block.live)
        ))?;
    }
    if blocks.len() > args.blocks {
        let left = words::count((blocks.len() - args.blocks) as u64);
        out::line(format!("  … and {left} more (--blocks N, --json, --svg FILE)"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn directories(count: u64) -> String {
    if count == 1 { "1 directory".to_owned() } else { format!("{} directories", words::count(count)) }
}

fn block_as_json(block: &Block) -> Value {
    json!({ "file": block.file, "number": block.number, "writer": block.writer.to_string(),
            "sequence": block.sequence, "stored": block.used, "live": block.live })
}

fn check(args: &OneComposed) -> Result<ExitCode> {
    let bar = bar(args.quiet);
    let shown = bar.clone();
    let checked = with(&args.dir, LOOKS, async move |_, composed| {
        Ok(tools::check(composed, |done, all| show(&shown, done, all)).await?)
    });
    bar.finish_and_clear();
    let found = match checked {
        Ok(found) => found,
        Err(error) => {
            eprintln!("shoal: {error:#}");
            return Ok(ExitCode::from(2));
        }
    };
    match args.json {
        true => out::json(&json!({ "damage": found }))?,
        false if found.is_empty() => out::line(format!("{} is whole", args.dir.display()))?,
        false => found.iter().try_for_each(out::line)?,
    }
    Ok(ExitCode::from(u8::from(!found.is_empty())))
}

fn extract(args: ExtractComposed) -> Result<ExitCode> {
    let bar = bar(args.quiet);
    let (shown, dir, json) = (bar.clone(), args.dir.clone(), args.json);
    let words = format!("cannot extract {} to {}", dir.display(), args.target.display());
    let copied = with_words(&dir, LOOKS, words, async move |env, composed| {
        let from = walk(composed, args.path.as_deref()).await?;
        // A path that leads to no directory is refused before the target is made.
        composed.opendir(from, Duration::ZERO).next(false).await?;
        let is_new = !args.target.exists();
        std::fs::create_dir_all(&args.target)
            .with_context(|| format!("cannot make {}", args.target.display()))?;
        let copied = async {
            let target = LocalOptions::new(&args.target).connect(env).await?;
            let copied = tree::copy(composed, from, &target, Handle::ROOT, &shown).await?;
            target.sync_all().await?;
            target.close().await;
            Ok(copied)
        };
        let copied = copied.await;
        if copied.is_err() && is_new {
            // It stays if there is something in it.
            let _ = std::fs::remove_dir(&args.target);
        }
        copied
    })?;
    bar.finish_and_clear();
    say(copied, json)
}

fn pack(args: PackComposed) -> Result<ExitCode> {
    // Before the directory is made a composed one.
    std::fs::read_dir(&args.source).with_context(|| format!("cannot read {}", args.source.display()))?;
    let bar = bar(args.quiet);
    let (shown, dir, json) = (bar.clone(), args.dir.clone(), args.json);
    let wishes = Wishes { buffers_blocks: true, ..args.settings };
    let words = format!("cannot pack {} into {}", args.source.display(), dir.display());
    let copied = with_words(&dir, wishes, words, async move |env, composed| {
        let mut options = LocalOptions::new(&args.source);
        options.read_only = true;
        let source = options.connect(env).await?;
        let copied = tree::copy(&source, Handle::ROOT, composed, Handle::ROOT, &shown).await?;
        composed.sync_all().await?;
        source.close().await;
        Ok(copied)
    })?;
    bar.finish_and_clear();
    say(copied, json)
}

fn say(copied: tree::Copied, json: bool) -> Result<ExitCode> {
    match json {
        true => out::json(&json!({ "files": copied.files, "directories": copied.directories,
            "others": copied.others, "bytes": copied.bytes, "skipped": copied.skipped,
            "failed": copied.failed }))?,
        false => {
            let files = words::many(copied.files, "file");
            let folders = directories(copied.directories);
            let skipped = match copied.skipped {
                0 => String::new(),
                skipped => format!("; {} skipped, which were there already", words::count(skipped)),
            };
            out::line(format!("{files} and {folders}, {} copied{skipped}", human(copied.bytes)))?;
        }
    }
    Ok(if copied.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn compact(args: &OneComposed) -> Result<ExitCode> {
    let bar = bar(args.quiet);
    let shown = bar.clone();
    let wishes = Wishes { buffers_blocks: true, ..Wishes::default() };
    let done = with(&args.dir, wishes, async move |_, composed| {
        Ok(tools::compact(composed, |done, all| show(&shown, done, all)).await?)
    })?;
    bar.finish_and_clear();
    match args.json {
        true => out::json(
            &json!({ "extents": done.extents, "given_back": done.given_back, "written": done.moved }),
        )?,
        false => out::line(format!(
            "{} of blocks given back, {} of blocks written anew",
            human(done.given_back),
            human(done.moved)
        ))?,
    }
    Ok(ExitCode::SUCCESS)
}
