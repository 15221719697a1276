//! `shoal cp`: files in, out, or within, by the native client.
//!
//! Workers take the objects to copy from a stack (so that the stack stays as small as the tree is deep, not
//! as it is wide): a directory puts its entries there, any other object is copied. Objects that cannot be
//! copied are named, and the rest continues. Attributes of directories follow at the end, the deepest first,
//! because copying into one changes its times.

use crate::address::Place;
use crate::cli::{Cp, TimeLimit};
use crate::copy::{Copier, How, Made, Spot, Task};
use crate::{connect, out, words};
use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use shoal_client::{Client, Options};
use shoal_env::{Env, real};
use shoal_proto::Kind;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

/// Files under way at once, at most.
const JOBS_MAX: usize = 1024;

/// An argument: on a ShoalFS or not.
enum Given {
    Local(PathBuf),
    Shoal(Box<Place>),
}

/// Copy all; 1 if something could not be copied.
pub fn run(args: Cp) -> Result<ExitCode> {
    if args.jobs == 0 || args.jobs > JOBS_MAX {
        bail!("--jobs is 1 to {JOBS_MAX}, not {}", args.jobs);
    }
    let given = |text: &String| Given::find(text, &args);
    let source = |text: &String| match args.recursive || args.no_dereference {
        true => Given::find_link(text, &args),
        false => given(text),
    };
    let sources = args.sources.iter().map(source).collect::<Result<Vec<_>>>()?;
    let target = given(&args.target)?;
    if sources.iter().chain([&target]).all(|one| matches!(one, Given::Local(_))) {
        bail!("none of these is on a ShoalFS: use cp, or write an address (shoal://HOST:PORT/NAME/PATH)");
    }
    let bar = progress(args.quiet);
    let begin = Instant::now();
    let made = real::run("shoal", |env| copy(env, &args, sources, target, bar.clone()))?;
    bar.finish_and_clear();
    say(&args, &made, begin.elapsed().as_secs_f64())?;
    Ok(if made.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn progress(quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let style = "{spinner} {msg} {wide_bar:.dim} {bytes}/{total_bytes} {bytes_per_sec}";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

fn say(args: &Cp, made: &Made, seconds: f64) -> Result<()> {
    if args.json {
        return out::json_line(&json!({
            "files": made.files,
            "directories": made.directories,
            "symlinks": made.symlinks,
            "others": made.others,
            "bytes": made.bytes,
            "failed": made.failed,
            "seconds": seconds,
        }));
    }
    if !args.quiet && std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        let rate = made.bytes as f64 / seconds.max(1e-9);
        eprintln!(
            "{}, {} in {seconds:.1} s ({}/s)",
            words::many(made.files, "file"),
            crate::bytes_size::human(made.bytes),
            crate::bytes_size::human(rate as u64)
        );
    }
    Ok(())
}

impl Given {
    fn find(text: &str, args: &Cp) -> Result<Given> {
        Ok(match Place::find_mounted(text, args.key.key.as_deref())? {
            Some(place) => Given::Shoal(Box::new(place)),
            None => Given::Local(PathBuf::from(text)),
        })
    }

    /// The same of something that is not followed if it is a symbolic link: it is where its directory is.
    fn find_link(text: &str, args: &Cp) -> Result<Given> {
        let path = std::path::absolute(text)?;
        let (true, Some(above), Some(name)) = (path.is_symlink(), path.parent(), path.file_name()) else {
            return Given::find(text, args);
        };
        Ok(match Place::find_mounted(&above.to_string_lossy(), args.key.key.as_deref())? {
            Some(mut place) => {
                let dir = place.address.path.trim_end_matches('/');
                place.address.path = format!("{dir}/{}", name.to_string_lossy());
                Given::Shoal(Box::new(place))
            }
            None => Given::Local(path),
        })
    }

    fn name(&self) -> String {
        match self {
            Given::Local(path) => path.display().to_string(),
            Given::Shoal(place) => place.address.to_string(),
        }
    }

    /// The last name of its path: its name inside another directory.
    fn last_name(&self) -> Option<Vec<u8>> {
        let path = match self {
            // Of `.` and `..` only a walk knows it; a symbolic link has its own.
            Given::Local(path) if path.file_name().is_none() => path.canonicalize().ok()?,
            Given::Local(path) => path.clone(),
            Given::Shoal(place) => PathBuf::from(&place.address.path),
        };
        Some(std::os::unix::ffi::OsStrExt::as_bytes(path.file_name()?).to_vec())
    }

    async fn spot(&self, clients: &mut Clients) -> Result<Spot> {
        match self {
            Given::Local(path) => Ok(Spot::Local(path.clone())),
            Given::Shoal(place) => {
                let client = clients.of(place).await?;
                Spot::walk(&client, &place.address).await
            }
        }
    }
}

/// One client for each file system that is named.
struct Clients {
    env: Env,
    limit: TimeLimit,
    made: BTreeMap<[u8; 16], Client>,
}

impl Clients {
    async fn of(&mut self, place: &Place) -> Result<Client> {
        let options = Options { timeout: self.limit.span(), ..connect::options(place)? };
        if let Some(client) = self.made.get(&options.fs_id) {
            return Ok(client.clone());
        }
        let fs_id = options.fs_id;
        let client = connect::client(self.env.clone(), place, options).await?;
        self.made.insert(fs_id, client.clone());
        Ok(client)
    }
}

async fn copy(env: Env, args: &Cp, sources: Vec<Given>, target: Given, bar: ProgressBar) -> Result<Made> {
    let mut clients = Clients { env: env.clone(), limit: args.limit, made: BTreeMap::new() };
    let to = target.spot(&mut clients).await.with_context(|| format!("cannot copy to {}", target.name()))?;
    let into = to.look(true).await?.is_some_and(|meta| meta.kind == Kind::Directory);
    if sources.len() > 1 && !into {
        bail!("cannot copy several to {}: it is not a directory", target.name());
    }
    let how = How {
        recursive: args.recursive,
        preserve: args.preserve,
        no_dereference: args.no_dereference,
        jobs: args.jobs,
    };
    let copier = Rc::new(Copier::new(env, how, bar));
    for source in &sources {
        let task = async {
            let from = source.spot(&mut clients).await?;
            let to = match (into, source.last_name()) {
                (true, Some(name)) => to.inside(&name, None)?,
                _ => to.clone(),
            };
            Ok(Task { from, to, is_given: true })
        };
        match task.await {
            Ok(task) => copier.push(task),
            Err(error) => copier.failed(&source.name(), &error),
        }
    }
    copier.run().await;
    for client in clients.made.values() {
        client.close().await;
    }
    Ok(copier.made())
}
