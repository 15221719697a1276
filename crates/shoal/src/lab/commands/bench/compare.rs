//! `shoal bench compare`: compares two revisions of this project, or two programs. Both run the same
//! benchmark in turns.
//!
//! ```text
//!   `--turns 1`     round 1   A: up, bench, stop   B: up, bench, stop
//!                   round 2   B: up, bench, stop   A: up, bench, stop   …
//!   `--turns 250`   round 1   A: up, bench         B: up, bench
//!                   round 2   B: bench             A: bench             …   round 250: stop both
//! ```
//! A shared machine becomes faster and slower by a third from one tenth of a second to the next. Only two
//! short turns, one right after the other, find it at the same speed. So if file systems stay up for several
//! rounds, their clients stay up too ([`client`]): a turn then starts no program, and may take only some
//! milliseconds. A first turn on each such file system warms it up and does not count. After `--turns` rounds
//! both file systems are made anew, so that they lie elsewhere in memory.
//!
//! The servers and the client of a side are of the same program, so the comparison covers both. Revisions are
//! built in worktrees of their own, one after the other into one target folder, so that common parts are
//! built once.

mod client;
mod proof;

use super::cluster::{Cluster, Scratch};
use crate::lab::cli::BenchCompare;
use crate::out;
use anyhow::{Context as _, Result, bail};
use client::Client;
use serde_json::json;
use shoal_bench::Progress;
use shoal_bench::compare::{REPETITIONS_MAX, order};
use shoal_bench::sides::{Rates, compare, rates, table};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// The names of the two.
const NAMES: [&str; 2] = ["A", "B"];
/// Rounds where nothing is said.
const ROUNDS: usize = 10;
/// Words of a benchmark that are chosen here.
const OURS: [&str; 7] =
    ["--target", "--repeat", "--json", "--quiet", "--reference", "--explain", "--stepwise"];

/// A side: a program, its own arguments after those of the benchmark, and its file system while that is up.
struct Side<'a> {
    program: &'a Path,
    own: &'a [&'a str],
    /// Echo and syncs are no part of this; the first versions measured none.
    unbound: bool,
    /// It can run repeatedly.
    stepwise: bool,
    cluster: Option<Cluster>,
    client: Option<Client>,
}

/// Measure.
pub fn run(args: BenchCompare) -> Result<ExitCode> {
    let rounds_max = REPETITIONS_MAX;
    if args.repeat.is_some_and(|repeat| repeat == 0 || repeat > rounds_max) {
        bail!("--repeat {}: rounds are between 1 and {rounds_max}", args.repeat.unwrap_or_default());
    }
    if args.turns == Some(0) {
        bail!("--turns 0: file systems stay up for a round or more");
    }
    if !(0.0..100.0).contains(&args.least) {
        bail!("--least {}: a difference is between 0 and 100 percent", args.least);
    }
    if let Some(times) = args.prove {
        return proof::run(args, times);
    }
    check(&args.words)?;
    let folder = Scratch::new(args.own.folder.as_deref())?;
    let programs = match (&args.a, &args.b, args.revisions.as_slice()) {
        (Some(a), Some(b), []) => [found(a)?, found(b)?],
        (None, None, [a, b]) => {
            let revisions = [revision(&args.repo, a)?, revision(&args.repo, b)?];
            let build = |at: usize| build(&args, &folder, NAMES[at], &revisions[at]);
            [build(0)?, build(1)?]
        }
        _ => {
            bail!("name two revisions, or two programs: compare REV REV, or compare --a PROGRAM --b PROGRAM")
        }
    };
    let mut draw = super::draw(&args.own.tell);
    let repeat = args.repeat.unwrap_or(ROUNDS);
    draw(Progress::Begin { steps: 2 * repeat as u64 });
    let extent = Extent { rounds: repeat, turns: args.turns.unwrap_or(1) };
    let seen = rounds(&args, extent, &programs, [&[], &[]], folder.path(), &mut |step, what, repetition| {
        draw(Progress::Step { step, what: what.to_owned(), repetition });
    })?;
    draw(Progress::End);
    let least = args.least / 100.0;
    let phases = compare(&seen[0], &seen[1], least);
    if args.own.tell.json {
        out::json(&json!({ "rounds": repeat, "phases": phases, "a": seen[0], "b": seen[1] }))?;
    } else {
        for (name, what) in NAMES.iter().zip(names(&args)) {
            out::line(format!("{name}: {what}"))?;
        }
        out::bytes(table(&phases, repeat, least).as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How much is measured.
#[derive(Clone, Copy)]
struct Extent {
    rounds: usize,
    /// For so many the file systems stay up.
    turns: usize,
}

/// All rounds of both sides, each with arguments of its own after those of the benchmark; `tell` receives
/// each turn.
fn rounds(
    args: &BenchCompare,
    extent: Extent,
    programs: &[PathBuf; 2],
    own: [&[&str]; 2],
    folder: &Path,
    tell: &mut dyn FnMut(u64, &str, usize),
) -> Result<[Vec<Rates>; 2]> {
    let mut seen: [Vec<Rates>; 2] = [Vec::new(), Vec::new()];
    let mut sides = Vec::new();
    for (program, own) in programs.iter().zip(own) {
        let unbound = knows(program, &args.words[0], "--unbound")?;
        let stepwise = extent.turns > 1 && knows(program, &args.words[0], "--stepwise")?;
        sides.push(Side { program, own, unbound, stepwise, cluster: None, client: None });
    }
    for repetition in 1..=extent.rounds {
        let anew = (repetition - 1).is_multiple_of(extent.turns);
        for (turn, at) in order(2, repetition).into_iter().enumerate() {
            tell((2 * (repetition - 1) + turn) as u64, NAMES[at], repetition);
            let side = &mut sides[at];
            let words = format!("{} failed: {}", NAMES[at], side.program.display());
            if anew {
                side.anew(args, folder, extent.turns > 1).with_context(|| words.clone())?;
            }
            seen[at].push(side.measure(args).context(words)?);
            if extent.turns == 1 {
                side.stop()?;
            }
        }
    }
    sides.iter_mut().try_for_each(Side::stop)?;
    Ok(seen)
}

fn names(args: &BenchCompare) -> Vec<String> {
    let programs = args.a.iter().chain(&args.b).map(|path| path.display().to_string());
    args.revisions.iter().cloned().chain(programs).collect()
}

/// Refuses benchmarks that take no target, and words that are chosen here.
fn check(words: &[String]) -> Result<()> {
    if !matches!(words.first().map(String::as_str), Some("small" | "io")) {
        bail!(
            "after -- come the words of `shoal bench small` or `shoal bench io`, such as: -- small --files 500"
        );
    }
    let is_ours = |word: &&String| OURS.iter().any(|ours| word.split('=').next() == Some(ours));
    match words.iter().find(is_ours) {
        Some(word) => bail!("{word} is chosen by the comparison: leave it out"),
        None => Ok(()),
    }
}

fn found(program: &Path) -> Result<PathBuf> {
    program.canonicalize().with_context(|| format!("cannot find the program {}", program.display()))
}

impl Side<'_> {
    /// End the file system that was, and start another.
    fn anew(&mut self, args: &BenchCompare, folder: &Path, warm: bool) -> Result<()> {
        self.stop()?;
        let up: Vec<&str> = args.up.iter().map(String::as_str).collect();
        let cluster = match args.mounted {
            true => Cluster::embedded(self.program, Some(folder), args.servers, &up)?,
            false => Cluster::start_with(self.program, Some(folder), args.servers, &up)?,
        };
        let cluster = self.cluster.insert(cluster);
        if self.stepwise {
            let words = words(args, cluster, self.own, self.unbound, &["--stepwise"]);
            self.client = Some(Client::start(self.program, &words)?);
        }
        if warm {
            self.measure(args)?;
        }
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        self.client.take().map_or(Ok(()), Client::stop)?;
        self.cluster.take().map_or(Ok(()), Cluster::stop)
    }

    /// The benchmark, once.
    fn measure(&mut self, args: &BenchCompare) -> Result<Rates> {
        if let Some(client) = &mut self.client {
            return rates(&client.run()?);
        }
        let cluster = self.cluster.as_ref().context("its file system is not up: this is a bug")?;
        let words = words(args, cluster, self.own, self.unbound, &["--repeat", "1", "--json", "--quiet"]);
        let told = Command::new(self.program).args(&words).stderr(Stdio::piped()).output();
        let told = told.context("cannot start it")?;
        if !told.status.success() {
            bail!("`shoal {}`: {}", words.join(" "), String::from_utf8_lossy(&told.stderr).trim());
        }
        rates(&String::from_utf8_lossy(&told.stdout))
    }
}

/// The words of the benchmark.
fn words(args: &BenchCompare, cluster: &Cluster, own: &[&str], unbound: bool, how: &[&str]) -> Vec<String> {
    let target = match args.mounted {
        true => format!("mount:{}", cluster.mountpoint().display()),
        false => format!("native:{}", cluster.data().display()),
    };
    let mut words = vec!["bench".to_owned()];
    words.extend(args.words.iter().cloned());
    words.extend(["--target".to_owned(), target]);
    let unbound = unbound.then_some(&"--unbound");
    words.extend(how.iter().chain(own).chain(unbound).map(|word| (*word).to_owned()));
    words
}

fn knows(program: &Path, benchmark: &str, option: &str) -> Result<bool> {
    let help = Command::new(program).args(["bench", benchmark, "--help"]).output();
    Ok(String::from_utf8_lossy(&help.context("cannot start it")?.stdout).contains(option))
}

fn git(repo: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(repo);
    git
}

/// The commit that a word means.
fn revision(repo: &Path, word: &str) -> Result<String> {
    let wanted = format!("{word}^{{commit}}");
    let told = git(repo).args(["rev-parse", "--verify", "--quiet", "--end-of-options", &wanted]).output();
    let told = told.context("cannot start git")?;
    let commit = String::from_utf8_lossy(&told.stdout).trim().to_owned();
    if !told.status.success() || commit.is_empty() {
        bail!("`{word}` is no revision of the project in {}: see --repo", repo.display());
    }
    Ok(commit)
}

/// A worktree that is removed at the end.
struct Worktree<'a> {
    repo: &'a Path,
    at: PathBuf,
}

impl Drop for Worktree<'_> {
    fn drop(&mut self) {
        let _ = git(self.repo).args(["worktree", "remove", "--force"]).arg(&self.at).output();
    }
}

/// Build a commit; the program is kept in `folder`.
fn build(args: &BenchCompare, folder: &Scratch, name: &str, commit: &str) -> Result<PathBuf> {
    let tree = Worktree { repo: &args.repo, at: folder.path().join(format!("tree-{name}")) };
    let added = git(tree.repo).args(["worktree", "add", "--detach"]).arg(&tree.at).arg(commit).output();
    let added = added.context("cannot start git")?;
    if !added.status.success() {
        bail!("cannot check out {commit}: {}", String::from_utf8_lossy(&added.stderr).trim());
    }
    let target = match &args.target_dir {
        Some(given) => std::path::absolute(given)?,
        None => folder.path().join("target"),
    };
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked", "-p", "shoal", "--profile", &args.profile]).current_dir(&tree.at);
    cargo.env("CARGO_TARGET_DIR", &target).stdout(Stdio::null());
    if args.own.tell.quiet {
        cargo.arg("--quiet");
    }
    if !cargo.status().context("cannot start cargo")?.success() {
        bail!("{commit} does not build; what cargo said is above");
    }
    let kept = folder.path().join(format!("shoal-{name}"));
    let built = target.join(if args.profile == "dev" { "debug" } else { &args.profile }).join("shoal");
    std::fs::copy(&built, &kept).with_context(|| format!("cannot copy {}", built.display()))?;
    Ok(kept)
}
