//! Counts the checks of each kind that hold, from outcomes or from the lines of a document. A check that
//! was evaluated on a simulated and on a real run counts once.
//!
//! When a document is renewed, some of its sections are older than the program, so its head is counted from
//! its own lines, and a test compares that with the outcomes.

use crate::check::{Kind, Verdict};
use crate::outcome::ExperimentOutcome;
use crate::run::Mode;
use crate::tell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::AddAssign;

/// Verdicts of some checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Those that hold.
    pub hold: usize,
    /// Those that do not.
    pub fail: usize,
    /// Those of which nothing was run.
    pub unseen: usize,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.hold += other.hold;
        self.fail += other.fail;
        self.unseen += other.unseen;
    }
}

impl Count {
    /// Of the verdicts of one check: it holds where it holds in every run in which it was seen.
    fn as_one(self) -> Count {
        match self {
            Count { fail: 1.., .. } => Count { fail: 1, ..Count::default() },
            Count { hold: 1.., .. } => Count { hold: 1, ..Count::default() },
            _ => Count { unseen: 1, ..Count::default() },
        }
    }
}

/// The words of a verdict's line between its kind and its numbers.
fn verdicts() -> [(&'static str, Count); 3] {
    let none = Count::default();
    [
        ("holds: ", Count { hold: 1, ..none }),
        ("DOES NOT HOLD: ", Count { fail: 1, ..none }),
        ("not seen: ", Count { unseen: 1, ..none }),
    ]
}

/// A check as it was seen in one mode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    kind: Kind,
    mode: &'static str,
    experiment: String,
    claim: String,
}

/// Verdicts of checks, each with its name: the experiment's, and its claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals(BTreeMap<Seen, Count>);

/// How runs are made, in a word: the columns.
const MODES: [&str; 3] = ["simulated", "real", "computed"];

/// A mode's word.
pub fn word(mode: Option<Mode>) -> &'static str {
    mode.map_or("computed", Mode::word)
}

impl Totals {
    /// Of outcomes.
    pub fn of<'a>(outcomes: impl Iterator<Item = &'a ExperimentOutcome>) -> Totals {
        let mut totals = Totals::default();
        for outcome in outcomes {
            for checked in &outcome.checks {
                let one = match checked.verdict {
                    Verdict::Holds(_) => Count { hold: 1, ..Count::default() },
                    Verdict::Fails(_) => Count { fail: 1, ..Count::default() },
                    Verdict::NotSeen(_) => Count { unseen: 1, ..Count::default() },
                };
                let (experiment, claim) = (outcome.name.clone(), checked.check.claim.clone());
                let seen = Seen { kind: checked.counts_as, mode: word(outcome.mode), experiment, claim };
                *totals.0.entry(seen).or_default() += one;
            }
        }
        totals
    }

    /// Of a document's lines.
    pub fn of_lines<'a>(lines: impl Iterator<Item = &'a str>) -> Totals {
        let (mut totals, mut mode, mut experiment) = (Totals::default(), "", "");
        for line in lines {
            experiment = line.strip_prefix("### ").unwrap_or(experiment);
            let begins =
                |(_, words): &(&str, &str)| line.strip_prefix('*').is_some_and(|l| l.starts_with(words));
            if let Some((word, _)) = tell::HOW.iter().find(|how| begins(how)) {
                mode = word;
            }
            if let Some((kind, claim, one)) = read(line) {
                let (experiment, claim) = (experiment.to_owned(), claim.to_owned());
                *totals.0.entry(Seen { kind, mode, experiment, claim }).or_default() += one;
            }
        }
        totals
    }

    /// The checks of one kind, each once.
    pub fn of_kind(&self, kind: Kind) -> Count {
        self.checks(|seen| seen.kind == kind)
    }

    /// The selected checks, each once.
    fn checks(&self, is_meant: impl Fn(&Seen) -> bool) -> Count {
        let mut checks: BTreeMap<(&str, &str), Count> = BTreeMap::new();
        for (seen, count) in self.0.iter().filter(|(seen, _)| is_meant(seen)) {
            *checks.entry((&seen.experiment, &seen.claim)).or_default() += *count;
        }
        let mut sum = Count::default();
        checks.into_values().for_each(|verdicts| sum += verdicts.as_one());
        sum
    }

    /// For a document: a line, and a table.
    pub fn markdown(&self, experiments: usize) -> String {
        let predicted = self.of_kind(Kind::Predicted);
        let [simulated, real, _] =
            MODES.map(|mode| cell(self.checks(|seen| seen.kind == Kind::Predicted && seen.mode == mode)));
        let mut text = format!(
            "{experiments}{SUMMARY}the last column counts a check once, and it holds if it holds in every run in which it was seen). \
             Of {} findings of a paper that were seen in runs of which no cost was fitted on them, {} hold: simulated {simulated}, \
             real {real}. None of them was predicted blindly: they were all there to be read while the program and the machines' \
             files were made. The other kinds show less:\n\n",
            predicted.hold + predicted.fail,
            predicted.hold
        );
        let _ = writeln!(text, "| kind of check | what it shows | {} | all |", MODES.join(" | "));
        text += "|---|---|---|---|---|---|\n";
        for kind in Kind::ALL {
            let cells = MODES.map(|mode| cell(self.checks(|seen| seen.kind == kind && seen.mode == mode)));
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} |",
                kind.word(),
                kind.meaning(),
                cells.join(" | "),
                cell(self.of_kind(kind))
            );
        }
        let cells = MODES.map(|mode| cell(self.checks(|seen| seen.mode == mode)));
        let _ = writeln!(text, "| all | | {} | {} |", cells.join(" | "), cell(self.checks(|_| true)));
        text
    }
}

/// The summary's line after the number of experiments.
pub const SUMMARY: &str = " experiments (*hold* of *seen* checks; ";

fn cell(count: Count) -> String {
    match count.hold + count.fail {
        0 => "–".to_owned(),
        seen => format!("{} of {seen}", count.hold),
    }
}

/// The kind, the claim and the verdict of a line of a document.
fn read(line: &str) -> Option<(Kind, &str, Count)> {
    let line = line.strip_prefix("- ")?;
    Kind::ALL.into_iter().find_map(|kind| {
        verdicts().into_iter().find_map(|(words, one)| {
            let (claim, _) = line.split_once(&format!(" ({}): {words}", kind.word()))?;
            Some((kind, claim, one))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// The document as it stands in the repository.
    fn document() -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab/REPRODUCTION.md");
        std::fs::read_to_string(path).expect("it is there")
    }

    /// The head's table, kind by kind: the checks that hold, and those that were seen.
    fn head(text: &str) -> Vec<(String, String)> {
        let rows = text.lines().skip_while(|line| !line.starts_with("| kind of check |")).skip(2);
        let rows = rows.take_while(|line| line.starts_with('|'));
        rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>())
            .map(|cells| (cells[0].to_owned(), cells[cells.len() - 1].to_owned()))
            .collect()
    }

    /// Counted independently of the head's counts: of names, those that do not fail anywhere, of those that
    /// were seen.
    fn counted(text: &str, word: &str) -> String {
        let names = |verdict: &str| {
            let (mut names, mut section) = (BTreeSet::new(), "");
            for line in text.lines() {
                match line.split_once(&format!("{word}): {verdict}")) {
                    Some((claim, _)) if line.starts_with("- ") => {
                        let claim = if word.is_empty() { claim.rsplit_once(" (").unwrap().0 } else { claim };
                        names.insert((section, claim));
                    }
                    _ if line.starts_with("### ") => section = line,
                    _ => {}
                }
            }
            names
        };
        let (holds, fails) = (names("holds: "), names("DOES NOT HOLD: "));
        match holds.union(&fails).count() {
            0 => "–".to_owned(),
            seen => format!("{} of {seen}", holds.difference(&fails).count()),
        }
    }

    #[test]
    fn a_check_that_was_seen_in_two_kinds_of_runs_counts_once_and_holds_if_it_holds_in_both() {
        let text = "### a\n*Simulated on x, 1*\n- Both (predicted): holds: so\n- One (fitted): holds: so\n- Odd (predicted): holds: so\n\
                    *Real servers on this machine*\n- Both (predicted): holds: so\n- One (predicted): holds: so\n- Odd (predicted): DOES NOT HOLD: no\n\
                    ### b\n*Real servers on this machine*\n- Both (predicted): not seen: no\n- None (ours): not seen: no\n";
        let totals = Totals::of_lines(text.lines());
        let of = |kind| totals.of_kind(kind);
        assert_eq!(of(Kind::Predicted), Count { hold: 2, fail: 1, unseen: 1 });
        assert_eq!(of(Kind::Fitted), Count { hold: 1, fail: 0, unseen: 0 });
        let head = totals.markdown(2);
        assert!(head.contains("Of 3 findings"), "{head}");
        assert!(head.contains("2 hold: simulated 2 of 2, real 2 of 3."), "{head}");
        assert!(head.contains("| all | | 3 of 3 | 2 of 3 | – | 2 of 3 |"), "{head}");
    }

    #[test]
    fn the_document_counts_each_check_as_the_kind_that_its_file_has() {
        let (all, text) = (builtin::all().expect("all are experiments"), document());
        for seen in Totals::of_lines(text.lines()).0.into_keys() {
            let experiment = all.iter().find(|one| one.name == seen.experiment).expect(&seen.experiment);
            let check = experiment.check.iter().find(|check| check.claim == seen.claim).expect(&seen.claim);
            let mode = [Some(Mode::Simulated), Some(Mode::Real), None]
                .into_iter()
                .find(|&mode| word(mode) == seen.mode);
            assert_eq!(
                seen.kind,
                check.kind_in(mode.expect(seen.mode)),
                "{}: {}",
                seen.experiment,
                seen.claim
            );
        }
    }

    #[test]
    fn the_head_of_the_document_is_the_sum_of_its_sections() {
        let text = document();
        let rows = head(&text);
        assert_eq!(rows.len(), Kind::ALL.len() + 1, "a row a kind, and the sum");
        for (word, told) in &rows[..Kind::ALL.len()] {
            assert_eq!(*told, counted(&text, &format!(" ({word}")), "{word}");
        }
        assert_eq!(rows[Kind::ALL.len()].1, counted(&text, ""));
        let indexed = text.lines().filter(|line| line.starts_with("### ")).count();
        assert!(text.contains(&Totals::of_lines(text.lines()).markdown(indexed)), "as the command writes it");
    }

    #[test]
    fn every_section_of_the_document_says_of_which_program_it_is_and_how_much_was_run() {
        let text = document();
        let lines: Vec<&str> = text.lines().collect();
        let is_outcome = |line: &str| {
            tell::HOW.iter().any(|(_, words)| line.strip_prefix('*').is_some_and(|l| l.starts_with(words)))
        };
        let mut seen = 0;
        for (at, line) in
            lines.iter().enumerate().filter(|(_, line)| is_outcome(line) && line.ends_with(".*"))
        {
            let after = lines[at + 1..].iter().find(|line| !line.is_empty()).expect("something");
            assert!(after.starts_with(tell::OF), "line {}: {line}: {after}", at + 1);
            assert!(line.starts_with("*Computed") || after.contains(tell::SIZES), "{line}: {after}");
            seen += 1;
        }
        assert!(seen > 50, "{seen}");
    }
}
