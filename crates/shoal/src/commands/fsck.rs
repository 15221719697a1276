//! `shoal fsck`: is every object where it belongs? See [`crate::fsck`] for how.

use crate::address::Place;
use crate::cli::Fsck;
use crate::fsck::aside::Aside;
use crate::fsck::cause;
use crate::fsck::mend::Site;
use crate::fsck::rounds::{Checker, Found, Mending};
use crate::fsck::{Problem, undecided};
use crate::{connect, out, words};
use anyhow::{Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use shoal_client::Client;
use shoal_proto::{Owner, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Pauses before the further looks at what the first look suspects.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(200), Duration::from_millis(800), Duration::from_secs(3)];
/// A server that answers nothing for so long cannot be checked.
const PATIENCE: Duration = Duration::from_secs(10);

/// Check, and mend if asked to. 0: clean or all mended; 1: damage.
pub fn run(args: Fsck) -> Result<ExitCode> {
    let place = Place::find(&args.place, args.key.key.as_deref())?;
    if let Some(save) = &args.save {
        let folder = save.parent().filter(|folder| !folder.as_os_str().is_empty());
        if folder.is_some_and(|folder| !folder.is_dir()) || save.is_dir() {
            bail!("cannot keep rows in {}: give a file in a folder that exists", save.display());
        }
    }
    let bar = progress(args.quiet);
    let name = place.address.name.clone();
    let mut aside = Aside::new(args.save.clone().unwrap_or_else(|| save_file(&name)));
    let clean = connect::with_client_within(&place, PATIENCE, |env, client| async move {
        let checker = Checker { env: &env, client: &client, bar: &bar, pauses: &PAUSES };
        let found = checker.find().await?;
        let mut mended = BTreeMap::new();
        let mut left = found.problems.clone();
        let has_lost = !cause::of_lost_stores(&found.problems, &client.map()).is_empty();
        if args.repair && !left.is_empty() && (!has_lost || args.lost_stores) {
            left = checker.repair(&found, &mut aside, &mut mended).await?;
        }
        bar.finish_and_clear();
        let report = Report { name: &name, client: &client, found: &found, mended: &mended, left: &left };
        if args.json {
            out::json(&report.json(&aside))?;
        } else {
            report.words(args.repair, args.lost_stores, &aside)?;
        }
        Ok(left.is_empty())
    })?;
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where rows go that are removed, if nothing else is said.
fn save_file(name: &str) -> PathBuf {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| span.as_secs());
    PathBuf::from(format!("fsck-{name}-{seconds}.jsonl"))
}

fn progress(quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}: {human_pos} rows, {per_sec}") {
        bar.set_style(style);
    }
    bar
}

/// What is told at the end.
pub struct Report<'a> {
    /// The file system's name.
    pub name: &'a str,
    /// Of it.
    pub client: &'a Client,
    /// What was found first.
    pub found: &'a Found,
    /// What became of it, and of what repairs uncovered.
    pub mended: &'a BTreeMap<Problem, Mending>,
    /// What is wrong still.
    pub left: &'a BTreeSet<Problem>,
}

impl Report<'_> {
    fn all(&self) -> BTreeSet<&Problem> {
        self.found.problems.iter().chain(self.mended.keys()).chain(self.left).collect()
    }

    /// For programs.
    pub fn json(&self, aside: &Aside) -> Value {
        let problems: Vec<Value> = self
            .all()
            .into_iter()
            .map(|problem| {
                json!({
                    "problem": problem.word(),
                    "words": problem.to_string(),
                    "mended": !self.left.contains(problem),
                    "mending": self.mending(problem),
                    "repair": self.foreseen(problem),
                })
            })
            .collect();
        let tables = &self.found.tables;
        json!({
            "file_system": self.name,
            "servers": self.client.map().servers.len(),
            "objects": tables.objects.len(),
            "entries": tables.entries.len(),
            "datafiles": tables.datafiles.len(),
            "streams": tables.streams.len(),
            "orphans": tables.orphans.len(),
            "to_reap": tables.reaps.len(),
            "clean": self.left.is_empty(),
            "removed_rows": aside.path(),
            "problems": problems,
        })
    }

    /// What a repair would do with a transaction that it was not asked to end.
    fn foreseen(&self, problem: &Problem) -> Option<String> {
        if self.mended.contains_key(problem) {
            return None;
        }
        let owner = Owner { mode: 0o700, uid: 0, gid: 0 };
        undecided::foreseen(problem, &self.found.tables, &Site::of(&self.client.map(), owner, Time(0)))
    }

    /// What became of a problem, in words.
    fn mending(&self, problem: &Problem) -> Option<String> {
        let mending = self.mended.get(problem)?;
        Some(match (mending, self.left.contains(problem)) {
            (Mending::Mended(Some(note)), false) => format!("mended: {note}"),
            (_, false) => "mended".to_owned(),
            (Mending::Mended(_), true) => "not mended: it was done, and is wrong again".to_owned(),
            (Mending::Later, true) => "not mended: another repair has to come first".to_owned(),
            (Mending::Left(words), true) => format!("not mended: {words}"),
            (Mending::Failed(error), true) => format!("not mended: {error}"),
        })
    }

    fn words(&self, repair: bool, lost_stores: bool, aside: &Aside) -> Result<()> {
        let all = self.all();
        let map = self.client.map();
        let lost = cause::of_lost_stores(all.iter().copied(), &map);
        for (server, problems) in &lost {
            out::line(format!(
                "a store of server {server} was given up, and {} of that: {}",
                words::many(problems.len() as u64, "problem")
                    + if problems.len() == 1 { " comes" } else { " come" },
                cause::kinds(problems)
            ))?;
        }
        if repair && !lost.is_empty() && !lost_stores {
            out::line("nothing was mended: --lost-stores says that names of what was lost may be removed")?;
        }
        let is_grouped = |problem: &&Problem| {
            // What a transaction concerns, and how it would end, is said of each.
            let is_listed =
                self.mended.contains_key(*problem) || matches!(problem, Problem::Undecided { .. });
            !is_listed && lost.values().any(|of_it| of_it.contains(*problem))
        };
        for problem in all.iter().filter(|problem| !is_grouped(problem)) {
            let said = self.mending(problem).or_else(|| self.foreseen(problem));
            let mending = said.map_or(String::new(), |words| format!("  [{words}]"));
            out::line(format!("{problem}{mending}"))?;
        }
        if let Some(path) = aside.path() {
            out::line(format!("rows that were removed are kept in {}", path.display()))?;
        }
        let count = |n: usize, what: &str| words::many(n as u64, what);
        let verdict = match (all.len(), self.left.len()) {
            (0, _) => "clean".to_owned(),
            (n, 0) => format!("{} mended", count(n, "problem")),
            (_, n) if repair => format!("{} left", count(n, "problem")),
            (_, n) => format!("{}; --repair mends what can be mended", count(n, "problem")),
        };
        let tables = &self.found.tables;
        out::line(format!(
            "{}: {}, {}, {} on {}: {verdict}",
            self.name,
            count(tables.objects.len(), "object"),
            match tables.entries.len() {
                1 => "1 entry".to_owned(),
                n => format!("{} entries", words::count(n as u64)),
            },
            count(tables.datafiles.len(), "datafile"),
            count(self.client.map().servers.len(), "server"),
        ))
    }
}
