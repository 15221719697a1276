//! The result of a check and its repair, for programs and for people.

use super::aside::Aside;
use super::mend::Site;
use super::rounds::{CheckResult, Mending};
use super::{Problem, cause, undecided};
use serde_json::{Value, json};
use shoal_client::Client;
use shoal_config::numbers;
use shoal_proto::{Owner, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The outcome of a check.
pub struct Report<'a> {
    /// The file system's name.
    pub name: &'a str,
    /// Of it.
    pub client: &'a Client,
    /// The problems that were found first.
    pub found: &'a CheckResult,
    /// The results for these problems, and for those that repairs uncovered.
    pub mended: &'a BTreeMap<Problem, Mending>,
    /// The problems that remain.
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

    /// The effect that a repair would have on a transaction that it was not asked to end, in words.
    fn foreseen(&self, problem: &Problem) -> Option<String> {
        if self.mended.contains_key(problem) {
            return None;
        }
        let owner = Owner { mode: 0o700, uid: 0, gid: 0 };
        undecided::foreseen(problem, &self.found.tables, &Site::of(&self.client.map(), owner, Time(0)))
    }

    /// The result for a problem, in words.
    fn mending(&self, problem: &Problem) -> Option<String> {
        let mending = self.mended.get(problem)?;
        Some(match (mending, self.left.contains(problem)) {
            (Mending::Mended(Some(note)), false) => format!("repaired: {note}"),
            (_, false) => "repaired".to_owned(),
            (Mending::Mended(_), true) => "not repaired: it was done, and is wrong again".to_owned(),
            (Mending::Later, true) => "not repaired: another repair has to come first".to_owned(),
            (Mending::Left(words), true) => format!("not repaired: {words}"),
            (Mending::Failed(error), true) => format!("not repaired: {error}"),
        })
    }

    /// For people: a line for each problem, and the verdict. `repair`: a repair was requested; `lost_stores`:
    /// also of the problems that a lost store caused.
    pub fn text(&self, repair: bool, lost_stores: bool, aside: &Aside) -> Vec<String> {
        let mut lines = Vec::new();
        let all = self.all();
        let map = self.client.map();
        let lost = cause::of_lost_stores(all.iter().copied(), &map);
        for (server, problems) in &lost {
            lines.push(format!(
                "a store of server {server} was given up, and {} of that: {}",
                numbers::many(problems.len() as u64, "problem")
                    + if problems.len() == 1 { " comes" } else { " come" },
                cause::kinds(problems)
            ));
        }
        if repair && !lost.is_empty() && !lost_stores {
            lines.push(
                "nothing was repaired: --lost-stores permits removing the names of lost objects".to_owned(),
            );
        }
        let is_grouped = |problem: &&Problem| {
            // Each transaction is listed with its objects and how it would end.
            let is_listed =
                self.mended.contains_key(*problem) || matches!(problem, Problem::Undecided { .. });
            !is_listed && lost.values().any(|of_it| of_it.contains(*problem))
        };
        for problem in all.iter().filter(|problem| !is_grouped(problem)) {
            let said = self.mending(problem).or_else(|| self.foreseen(problem));
            let mending = said.map_or(String::new(), |words| format!("  [{words}]"));
            lines.push(format!("{problem}{mending}"));
        }
        if let Some(path) = aside.path() {
            lines.push(format!("rows that were removed are kept in {}", path.display()));
        }
        let count = |n: usize, what: &str| numbers::many(n as u64, what);
        let verdict = match (all.len(), self.left.len()) {
            (0, _) => "clean".to_owned(),
            (n, 0) => format!("{} repaired", count(n, "problem")),
            (_, n) if repair => format!("{} left", count(n, "problem")),
            (_, n) => format!("{}; --repair repairs those that can be repaired", count(n, "problem")),
        };
        let tables = &self.found.tables;
        lines.push(format!(
            "{}: {}, {}, {} on {}: {verdict}",
            self.name,
            count(tables.objects.len(), "object"),
            match tables.entries.len() {
                1 => "1 entry".to_owned(),
                n => format!("{} entries", numbers::count(n as u64)),
            },
            count(tables.datafiles.len(), "datafile"),
            count(self.client.map().servers.len(), "server"),
        ));
        lines
    }
}
