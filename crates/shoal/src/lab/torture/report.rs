//! The results of a torture, as a table and as JSON.

use super::Plan;
use crate::words;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// One violation.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// In which check or round.
    pub when: String,
    /// The violation; it names the file.
    pub words: String,
    /// The ledger's file and entry, if it is of one.
    pub ledger: Option<String>,
}

/// A check of several clients at once.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// The sentence.
    pub name: String,
    /// How long it took.
    pub seconds: f64,
    /// Whether it holds.
    pub holds: bool,
}

/// See the module.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The seed of the load and the faults.
    pub seed: u64,
    /// The folder.
    pub folder: PathBuf,
    /// Whether it is kept.
    pub kept: bool,
    /// The concurrent checks.
    pub together: Vec<Checked>,
    /// Rounds done.
    pub rounds: usize,
    /// Operations acknowledged, in all rounds.
    pub acknowledged: u64,
    /// Operations refused for lack of space.
    pub refused: u64,
    /// Operations whose client died before the answer.
    pub in_doubt: u64,
    /// The faults of the processes, and how often.
    pub faults: BTreeMap<String, u64>,
    /// The files and directories that were checked after the rounds.
    pub looked_at: u64,
    /// The longest that an operation took, seconds.
    pub longest_wait_seconds: f64,
    /// The parts that could not be done here.
    pub skipped: Vec<String>,
    /// The violations.
    pub violations: Vec<Violation>,
}

impl Report {
    /// Nothing yet.
    pub fn new(plan: &Plan) -> Report {
        Report {
            seed: plan.seed,
            folder: plan.wish.folder.clone(),
            kept: false,
            together: Vec::new(),
            rounds: 0,
            acknowledged: 0,
            refused: 0,
            in_doubt: 0,
            faults: BTreeMap::new(),
            looked_at: 0,
            longest_wait_seconds: 0.0,
            skipped: Vec::new(),
            violations: Vec::new(),
        }
    }

    /// A check ended.
    pub fn checked(&mut self, name: &str, took: Duration, failed: Option<String>) {
        self.together.push(Checked {
            name: name.to_owned(),
            seconds: took.as_secs_f64(),
            holds: failed.is_none(),
        });
        if let Some(words) = failed {
            self.violations.push(Violation { when: name.to_owned(), words, ledger: None });
        }
    }

    /// For people.
    pub fn to_table(&self) -> String {
        let mut text = String::new();
        if !self.together.is_empty() {
            let mut table = words::table(&["several clients at once", "seconds", ""]);
            for one in &self.together {
                let holds = if one.holds { "ok" } else { "WRONG" };
                table.add_row([one.name.replace('_', " "), format!("{:.1}", one.seconds), holds.to_owned()]);
            }
            let _ = writeln!(text, "{table}\n");
        }
        if self.rounds > 0 {
            let mut table = words::table(&["killed under load", ""]);
            let mut row = |what: &str, n: u64| {
                table.add_row([what.to_owned(), words::count(n)]);
            };
            row("rounds", self.rounds as u64);
            row("operations acknowledged", self.acknowledged);
            row("operations refused: no space", self.refused);
            row("operations whose client was killed", self.in_doubt);
            for (fault, times) in &self.faults {
                row(fault, *times);
            }
            row("files and directories looked at", self.looked_at);
            table.add_row([
                "longest wait of an operation".to_owned(),
                format!("{:.1} s", self.longest_wait_seconds),
            ]);
            table.add_row(["violations".to_owned(), words::count(self.violations.len() as u64)]);
            let _ = writeln!(text, "{table}\n");
        }
        for skipped in &self.skipped {
            let _ = writeln!(text, "skipped: {skipped}");
        }
        for Violation { when, words, ledger } in &self.violations {
            let ledger = ledger.as_ref().map(|entry| format!(" ({entry})")).unwrap_or_default();
            let _ = writeln!(text, "WRONG in {when}: {words}{ledger}");
        }
        if self.kept {
            let _ = writeln!(text, "kept: {} (seed {})", self.folder.display(), self.seed);
        }
        let wrong = match self.violations.len() {
            0 => "ok".to_owned(),
            n => format!(
                "{} (`--keep` keeps the folder of a run that ends well, too)",
                words::many(n as u64, "violation")
            ),
        };
        let _ = writeln!(
            text,
            "torture: {} checks of several clients, {}, {} acknowledged: {wrong}",
            self.together.len(),
            words::many(self.rounds as u64, "round"),
            words::count(self.acknowledged),
        );
        text
    }
}
