//! `shoal cp`: files between any two file systems: a ShoalFS (by the native client), this machine's files,
//! and directories that show containers or one composed directory.
//!
//! Workers take the objects to copy from a stack. A directory puts its entries on the stack, any other object
//! is copied. A stack instead of a queue keeps the list short: it holds entries of the directories that the
//! workers are in, and not those of a whole level of the tree. Objects that cannot be copied are named, and
//! the copy of the others continues. Attributes of directories are set at the end, the deepest first, because
//! copies into a directory change its times.

use crate::address::CommandTarget;
use crate::cli::{Cp, TimeLimit};
use crate::copy::{Copier, CopyTree, How, Made, Spot, Task};
use crate::{connect, out, words};
use anyhow::{Context as _, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use shoal_client::Options;
use shoal_env::{Env, real};
use shoal_proto::Kind;
use shoal_transform::{ComposedOptions, ContainerOptions, FederationOptions, Followed, Wishes};
use shoal_vfs::{Connect as _, LocalOptions, Vfs as _};
use shoal_world::{Over, Shown, settings_of};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

/// Files under way at once, at most.
const JOBS_MAX: usize = 1024;

/// An argument: the file system that it is in, and where there.
enum Given {
    Local(PathBuf),
    Shoal(Box<CommandTarget>),
    /// Below a directory of `--over`.
    Over(Below),
}

/// A path below a directory of `--over`.
struct Below {
    /// The number of the directory.
    over: usize,
    /// The path from there.
    path: PathBuf,
    /// For people.
    shown: String,
}

/// Copy all; 1 if something could not be copied.
pub fn run(args: Cp) -> Result<ExitCode> {
    if args.jobs == 0 || args.jobs > JOBS_MAX {
        bail!("--jobs is 1 to {JOBS_MAX}, not {}", args.jobs);
    }
    let overs = args.over.iter().map(|text| Over::parse(text, args.key.key.as_deref()));
    let overs = overs.collect::<Result<Vec<_>>>()?;
    Over::apart(&overs)?;
    let given = |text: &String| Given::find(text, &args, &overs);
    let source = |text: &String| match args.recursive || args.no_dereference {
        true => Given::find_link(text, &args, &overs),
        false => given(text),
    };
    let sources = args.sources.iter().map(source).collect::<Result<Vec<_>>>()?;
    let target = given(&args.target)?;
    if sources.iter().chain([&target]).all(|one| matches!(one, Given::Local(_))) {
        bail!("none of these is on a ShoalFS: use cp, or write an address (shoal://HOST:PORT/NAME/PATH)");
    }
    let bar = progress(args.quiet);
    let begin = Instant::now();
    let made = real::run("shoal", |env| copy(env, &args, overs, sources, target, bar.clone()))?;
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
    fn find(text: &str, args: &Cp, overs: &[Over]) -> Result<Given> {
        if let Some(over) = Given::find_over(text, overs)? {
            return Ok(over);
        }
        Ok(match CommandTarget::find_mounted(text, args.key.key.as_deref())? {
            Some(place) => Given::Shoal(Box::new(place)),
            None => Given::Local(PathBuf::from(text)),
        })
    }

    /// A path below a directory of `--over`, by its text: there is no such object on the host.
    fn find_over(text: &str, overs: &[Over]) -> Result<Option<Given>> {
        let path = std::path::absolute(text)?;
        let below = |over: &Over| path.strip_prefix(&over.given).or(path.strip_prefix(&over.dir)).ok();
        let found = overs.iter().enumerate().find_map(|(index, over)| Some((index, below(over)?)));
        let Some((index, below)) = found.filter(|_| !text.contains("://")) else { return Ok(None) };
        if path.components().any(|part| part == Component::ParentDir) {
            bail!("`{text}` leads through `..`: write it without");
        }
        Ok(Some(Given::Over(Below { over: index, path: below.to_path_buf(), shown: text.to_owned() })))
    }

    /// The same of something that is not followed if it is a symbolic link: it is where its directory is.
    fn find_link(text: &str, args: &Cp, overs: &[Over]) -> Result<Given> {
        let path = std::path::absolute(text)?;
        let (true, Some(above), Some(name)) = (path.is_symlink(), path.parent(), path.file_name()) else {
            return Given::find(text, args, overs);
        };
        if let Some(over) = Given::find_over(text, overs)? {
            return Ok(over);
        }
        Ok(match CommandTarget::find_mounted(&above.to_string_lossy(), args.key.key.as_deref())? {
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
            Given::Over(below) => below.shown.clone(),
        }
    }

    /// The last name of its path: its name inside another directory.
    fn last_name(&self) -> Option<Vec<u8>> {
        let path = match self {
            // Of `.` and `..` only a walk knows it; a symbolic link has its own.
            Given::Local(path) if path.file_name().is_none() => path.canonicalize().ok()?,
            Given::Local(path) => path.clone(),
            Given::Shoal(place) => PathBuf::from(&place.address.path),
            Given::Over(below) => below.path.clone(),
        };
        Some(path.file_name()?.as_bytes().to_vec())
    }

    /// `follow`: a symbolic link that is named is followed.
    async fn spot(&self, trees: &mut Trees, follow: bool) -> Result<Spot> {
        let path = match self {
            Given::Local(path) => host_path(path, follow, &trees.overs)?,
            Given::Shoal(place) => PathBuf::from(&place.address.path),
            Given::Over(below) => below.path.clone(),
        };
        let tree = trees.of(self).await?;
        Spot::walk(&tree, path.as_os_str().as_bytes(), self.name()).await
    }

    /// Whether the object here holds the directory of `--over` that another path is in.
    fn holds(&self, other: &Given, overs: &[Over]) -> bool {
        let (Given::Local(path), Given::Over(below)) = (self, other) else { return false };
        !path.is_symlink() && path.canonicalize().is_ok_and(|path| overs[below.over].dir.starts_with(path))
    }
}

/// A path of this machine, absolute, its directory without symbolic links. The names in it lead to its
/// object.
fn host_path(path: &Path, follow: bool, overs: &[Over]) -> Result<PathBuf> {
    let cannot = |path: &Path| format!("{} cannot be used", path.display());
    let whole = match path.file_name() {
        Some(name) => {
            let whole = std::path::absolute(path)?;
            let above = whole.parent().unwrap_or(Path::new("/"));
            by_names(above).with_context(|| cannot(above))?.join(name)
        }
        // Of `.` and `..` only a walk knows the name.
        None => by_names(path).with_context(|| cannot(path))?,
    };
    if follow && whole.is_symlink() && whole.exists() {
        by_names(&whole).with_context(|| cannot(&whole))?;
    }
    match overs.iter().find(|over| whole.starts_with(&over.dir)) {
        Some(over) => bail!("it is in {}: write it as a path below that", over.given.display()),
        None => Ok(whole),
    }
}

/// A path without symbolic links. It is an error if it leads to another object, as through `/proc/PID/root`:
/// what such links say is not where they lead.
fn by_names(path: &Path) -> Result<PathBuf> {
    let place = |path: &Path| path.metadata().map(|facts| (facts.dev(), facts.ino()));
    let there = place(path)?;
    match path.canonicalize() {
        Ok(names) if place(&names).is_ok_and(|place| place == there) => Ok(names),
        _ => {
            bail!("a link on the way is the kernel's own, as those in /proc: write the path that it leads to")
        }
    }
}

/// Each file system that is named, once.
struct Trees {
    env: Env,
    limit: TimeLimit,
    overs: Vec<Over>,
    made: BTreeMap<TreeKey, Rc<CopyTree>>,
}

/// Which file system.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum TreeKey {
    Local,
    Shoal([u8; 16]),
    Over(usize),
}

impl Trees {
    async fn of(&mut self, given: &Given) -> Result<Rc<CopyTree>> {
        let client = match given {
            Given::Shoal(place) => {
                Some((place, Options { timeout: self.limit.span(), ..connect::options(place)? }))
            }
            _ => None,
        };
        let key = match (given, &client) {
            (_, Some((_, options))) => TreeKey::Shoal(options.fs_id),
            (Given::Over(below), _) => TreeKey::Over(below.over),
            _ => TreeKey::Local,
        };
        if let Some(tree) = self.made.get(&key) {
            return Ok(tree.clone());
        }
        let tree = match (client, given) {
            (Some((place, options)), _) => {
                let client = connect::client(self.env.clone(), place, options).await?;
                CopyTree::of_servers(Followed::new(self.env.clone(), client))
            }
            (None, Given::Over(below)) => over(self.env.clone(), &self.overs[below.over]).await?,
            // All paths of this machine are of one tree: the same file is then seen to be the same.
            _ => CopyTree::of_host(LocalOptions::new("/").connect(self.env.clone()).await?),
        };
        Ok(self.made.entry(key).or_insert(Rc::new(tree)).clone())
    }
}

/// The file system over a directory.
async fn over(env: Env, over: &Over) -> Result<CopyTree> {
    let local = LocalOptions::new(&over.dir);
    Ok(match &over.shown {
        Shown::Plain => bail!("{} needs no --over: its files are this machine's", over.given.display()),
        Shown::Container(words) => {
            let options = ContainerOptions::new(local).with(&settings_of(words)?, None);
            CopyTree::of_host(options.connect(env).await?)
        }
        Shown::Federation(words) => {
            let settings = settings_of(words)?;
            let over = FederationOptions::new(local, settings.backends.clone());
            CopyTree::of_host(ContainerOptions::new(over).with(&settings, None).connect(env).await?)
        }
        Shown::Composed(words) => {
            let wishes = Wishes::parse(words).map_err(|why| anyhow!("composed: {why}"))?;
            CopyTree::of_host(ComposedOptions { over: local, wishes }.connect(env).await?)
        }
        Shown::Bucket { address, .. } => {
            bail!("{address} is copied through a mount, or by `shoal container extract {address}/PATH FILE`")
        }
        Shown::Shoal { address, .. } => bail!("{address} needs no --over: write the address with the path"),
    })
}

async fn copy(
    env: Env,
    args: &Cp,
    overs: Vec<Over>,
    sources: Vec<Given>,
    target: Given,
    bar: ProgressBar,
) -> Result<Made> {
    let mut trees = Trees { env, limit: args.limit, overs, made: BTreeMap::new() };
    let to =
        target.spot(&mut trees, true).await.with_context(|| format!("cannot copy to {}", target.name()))?;
    let into = to.look(true).await?.is_some_and(|attr| attr.kind == Kind::Directory);
    if sources.len() > 1 && !into {
        bail!("cannot copy several to {}: it is not a directory", target.name());
    }
    let how = How {
        recursive: args.recursive,
        preserve: args.preserve,
        no_dereference: args.no_dereference,
        jobs: args.jobs,
    };
    let copier = Rc::new(Copier::new(how, bar));
    for source in &sources {
        let task = async {
            if args.recursive && source.holds(&target, &trees.overs) {
                bail!("{} is inside it", target.name());
            }
            let from = source.spot(&mut trees, !args.recursive && !args.no_dereference).await?;
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
    for tree in trees.made.values() {
        tree.vfs().close().await;
    }
    Ok(copier.made())
}
