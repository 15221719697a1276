//! Compares the paper's techniques with its baseline: tables, and checks of the shape of the results. Each
//! check can fail.
//!
//! Source: "Small-File Access in Parallel File Systems", section IV-A. Its findings as checks, with a margin
//! for the drift of medians of few repetitions:
//!
//! * precreate raises creates, and stuffing in addition to precreate raises them further (Figure 3a);
//! * coalescing raises them further with several clients and costs nothing with one;
//! * stuffing raises stats and removes (Figures 3b and 5);
//! * stats of written files reach at least 95 % of the rate of stats of empty files (in the paper they were
//!   slower);
//! * eager I/O raises small reads and writes (Figure 4).

use serde::{Deserialize, Serialize};

use crate::report::RunResult;
use crate::spread::Spread;
use shoal_model::short;

/// The measured sets: the baseline, each technique alone, all, ours, and the sets that the checks compare all
/// with.
pub const COMBINATIONS: [&str; 10] = [
    "baseline",
    "baseline,precreate=on",
    "baseline,stuffing=on",
    "baseline,coalescing=watermark",
    "baseline,eager=on",
    "baseline,readdirplus=on",
    "baseline,precreate=on,stuffing=on",
    "baseline,precreate=on,stuffing=on,coalescing=watermark",
    "paper",
    "ours",
];

const BASELINE: &str = COMBINATIONS[0];
const STUFFED: &str = COMBINATIONS[6];
const COALESCED: &str = COMBINATIONS[7];

/// The insignificant drift of medians.
const MARGIN: f64 = 0.05;
/// Several clients, as far as coalescing is concerned.
const SEVERAL: usize = 4;

/// The phases of the tables, by their names in [`crate::small`].
const PHASES: [&str; 8] = [
    "create",
    "write",
    "read",
    "readdir+stat, empty",
    "readdir+stat, written",
    "readdirplus, empty",
    "readdirplus, written",
    "remove",
];

/// Runs so far.
#[derive(Clone, Debug, Default)]
pub struct Study {
    runs: Vec<(String, usize, RunResult)>,
}

impl Study {
    /// A run of a combination with so many clients.
    pub fn add(&mut self, words: &str, clients: usize, run: RunResult) {
        self.runs.push((words.to_owned(), clients, run));
    }

    /// Medians, and the checks over them.
    pub fn outcome(&self) -> TechniqueFigures {
        let mut cells: Vec<Cell> = Vec::new();
        for (words, clients, _) in &self.runs {
            for phase in PHASES {
                let is_known = |cell: &Cell| {
                    (&cell.switches, cell.clients, cell.phase.as_str()) == (words, *clients, phase)
                };
                if !cells.iter().any(is_known) {
                    cells.extend(self.cell(words, *clients, phase));
                }
            }
        }
        let mut outcome = TechniqueFigures { cells, checks: Vec::new() };
        outcome.checks = checks(&outcome);
        outcome
    }

    fn cell(&self, words: &str, clients: usize, phase: &str) -> Option<Cell> {
        let runs = self.runs.iter().filter(|(a, b, _)| a == words && *b == clients);
        let rates: Vec<f64> = runs
            .filter_map(|(_, _, run)| run.phases.iter().find(|one| one.phase == phase)?.rate_wall())
            .collect();
        let per_s = Spread::of(&rates)?;
        Some(Cell { switches: words.to_owned(), clients, phase: phase.to_owned(), per_s })
    }
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The switches, in words.
    pub switches: String,
    /// Clients.
    pub clients: usize,
    /// The phase.
    pub phase: String,
    /// Operations a second, by the watch on the wall.
    pub per_s: Spread,
}

/// One check of a shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The paper's finding.
    pub what: String,
    /// The ratio that was found here.
    pub ratio: f64,
    /// Its required minimum.
    pub wanted: f64,
    /// Whether it is so.
    pub holds: bool,
}

/// All figures and checks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TechniqueFigures {
    /// The figures.
    pub cells: Vec<Cell>,
    /// The checks.
    pub checks: Vec<Check>,
}

impl TechniqueFigures {
    /// Whether all checks hold.
    pub fn has_the_papers_shape(&self) -> bool {
        self.checks.iter().all(|check| check.holds)
    }

    fn rate(&self, switches: &str, clients: usize, phase: &str) -> Option<f64> {
        let is = |cell: &&Cell| cell.switches == switches && cell.clients == clients && cell.phase == phase;
        self.cells.iter().find(is).map(|cell| cell.per_s.median)
    }

    fn clients(&self) -> Vec<usize> {
        let all: std::collections::BTreeSet<usize> = self.cells.iter().map(|cell| cell.clients).collect();
        all.into_iter().collect()
    }

    /// Tables and checks for docs.
    pub fn to_markdown(&self) -> String {
        let mut text = String::new();
        for clients in self.clients() {
            let s = if clients == 1 { "" } else { "s" };
            text.push_str(&format!("**{clients} client{s}**, operations a second:\n\n| switches |"));
            text.extend(PHASES.iter().map(|phase| format!(" {phase} |")));
            text.push_str(&format!("\n|---|{}\n", "---|".repeat(PHASES.len())));
            for words in COMBINATIONS {
                text.push_str(&format!("| {words} |"));
                for phase in PHASES {
                    let rate = self.rate(words, clients, phase).map_or("–".to_owned(), short);
                    text.push_str(&format!(" {rate} |"));
                }
                text.push('\n');
            }
            text.push('\n');
        }
        for check in &self.checks {
            let word = if check.holds { "holds" } else { "**DOES NOT HOLD**" };
            text.push_str(&format!(
                "- {}: {:.2} (at least {:.2}): {word}\n",
                check.what, check.ratio, check.wanted
            ));
        }
        text
    }
}

/// The checks that the figures allow.
fn checks(outcome: &TechniqueFigures) -> Vec<Check> {
    let mut all = Vec::new();
    for clients in outcome.clients() {
        let mut check = |what: &str, of: (&str, &str), to: (&str, &str), wanted: f64| {
            let (of, to) = (outcome.rate(of.0, clients, of.1), outcome.rate(to.0, clients, to.1));
            if let (Some(of), Some(to)) = (of, to) {
                let (ratio, what) = (of / to, format!("{what}, with {clients}"));
                all.push(Check { what, ratio, wanted, holds: ratio >= wanted });
            }
        };
        let (precreate, stuffing, eager) = (COMBINATIONS[1], COMBINATIONS[2], COMBINATIONS[4]);
        let (empty, written) = ("readdir+stat, empty", "readdir+stat, written");
        let raised = 1.0 + MARGIN;
        check("precreate raises creates", (precreate, "create"), (BASELINE, "create"), raised);
        check("stuffing over it raises them further", (STUFFED, "create"), (precreate, "create"), raised);
        match clients {
            1 => check(
                "coalescing costs a lone client nothing",
                (COALESCED, "create"),
                (STUFFED, "create"),
                1.0 - MARGIN,
            ),
            SEVERAL.. => {
                check("coalescing raises them further", (COALESCED, "create"), (STUFFED, "create"), raised)
            }
            _ => {}
        }
        check("stuffing raises stats", (stuffing, written), (BASELINE, written), raised);
        check("stuffing raises removes", (stuffing, "remove"), (BASELINE, "remove"), raised);
        check(
            "a stat of a written file is one of an empty file, all techniques",
            ("paper", written),
            ("paper", empty),
            0.95,
        );
        check(
            "a stat of a written file is one of an empty file, ours",
            ("ours", written),
            ("ours", empty),
            0.95,
        );
        check("eager raises small writes", (eager, "write"), (BASELINE, "write"), raised);
        check("eager raises small reads", (eager, "read"), (BASELINE, "read"), raised);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{PhaseResult, Unit};

    /// A study in which a combination's phase has the rate that `rate` says, or 100.
    fn study(rate: impl Fn(&str, &str) -> Option<f64>) -> TechniqueFigures {
        let mut study = Study::default();
        for words in COMBINATIONS {
            for clients in [1, 4] {
                let phase = |name: &str| PhaseResult {
                    phase: name.to_owned(),
                    unit: Unit::OpsPerSecond,
                    ops: 1000,
                    bytes: 0,
                    longest_ns: 1,
                    rank0_ns: 1,
                    wall_ns: (1e12 / rate(words, name).unwrap_or(100.0)) as u64,
                    counts: None,
                };
                study.add(words, clients, RunResult { phases: PHASES.map(phase).to_vec() });
            }
        }
        study.outcome()
    }

    /// As the paper found it.
    fn paper(words: &str, phase: &str) -> Option<f64> {
        let has = |word: &str| words.contains(word);
        match phase {
            "create" => Some(
                100.0
                    + 20.0 * f64::from(has("precreate"))
                    + 40.0 * f64::from(has("precreate") && has("stuffing"))
                    + 60.0 * f64::from(has("coalescing")),
            ),
            "remove" | "readdir+stat, empty" | "readdir+stat, written" => has("stuffing").then_some(150.0),
            "read" | "write" => has("eager").then_some(130.0),
            _ => None,
        }
    }

    #[test]
    fn the_papers_curves_have_the_papers_shape() {
        let outcome = study(paper);
        let failed: Vec<_> = outcome.checks.iter().filter(|check| !check.holds).collect();
        assert!(failed.is_empty(), "{failed:?}");
        assert_eq!(outcome.checks.len(), 18);
    }

    #[test]
    fn each_wrong_curve_fails_its_check() {
        let wrong = [
            ("precreate raises creates", "baseline,precreate=on", "create", 100.0),
            ("stuffing over it raises", STUFFED, "create", 110.0),
            ("coalescing costs a lone client", COALESCED, "create", 140.0),
            ("coalescing raises them further, with 4", COALESCED, "create", 165.0),
            ("stuffing raises stats", "baseline,stuffing=on", "readdir+stat, written", 101.0),
            ("stuffing raises removes", "baseline,stuffing=on", "remove", 90.0),
            ("one of an empty file, all", "paper", "readdir+stat, written", 90.0),
            ("one of an empty file, ours", "ours", "readdir+stat, written", 94.0),
            ("eager raises small writes", "baseline,eager=on", "write", 104.0),
            ("eager raises small reads", "baseline,eager=on", "read", 99.0),
        ];
        for (what, words, phase, rate) in wrong {
            let outcome = study(|w, p| if (w, p) == (words, phase) { Some(rate) } else { paper(w, p) });
            let failed: Vec<&str> =
                outcome.checks.iter().filter(|check| !check.holds).map(|check| check.what.as_str()).collect();
            assert!(failed.iter().any(|check| check.contains(what)), "{what}: {failed:?}");
            assert!(!outcome.has_the_papers_shape());
        }
    }

    #[test]
    fn the_markdown_has_every_combination_phase_and_check() {
        let outcome = study(paper);
        let text = outcome.to_markdown();
        for word in COMBINATIONS.iter().chain(&PHASES).chain(&["**1 client**", "**4 clients**", "holds"]) {
            assert!(text.contains(word), "{word} is missing in\n{text}");
        }
    }
}
