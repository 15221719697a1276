//! The document of all experiments. For every figure and table of the two papers that an experiment
//! reproduces, it has the claim, our result, the verdict and a picture; for the others, the reason.
//!
//! All experiments together take a quarter of an hour and more. So a run of some of them replaces only their
//! parts of an existing document ([`renewed`]): their sections, their verdicts in the index, and the sum of
//! all verdicts.

use crate::file::Experiment;
use crate::fit::{Sensitivity, sensitivity_table};
use crate::outcome::ExperimentOutcome;
use crate::tell;
use crate::totals::{self, SUMMARY, Totals};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A figure or table that no experiment reproduces, and why.
struct Left {
    paper: &'static str,
    what: &'static str,
    why: &'static str,
}

/// The figures and tables of the papers, in their order.
const PAPERS: &[(&str, &str)] = &[
    ("small-files", "P. Carns et al., *Small-File Access in Parallel File Systems*"),
    ("thesis", "J. Kunkel, *Performance Analysis of the PVFS2 Persistency Layer*"),
];

/// The drawing there is no measurement.
const LEFT: &[Left] = &[
    Left { paper: "small-files", what: "figure 1", why: "the control flow of coalescing, a drawing" },
    Left { paper: "small-files", what: "figure 2", why: "eager and rendezvous writes, a drawing" },
    Left { paper: "small-files", what: "figure 6", why: "the Blue Gene's I/O system, a drawing" },
    Left {
        paper: "thesis",
        what: "figure 10.1",
        why: "one and three key/value databases; our store has one ordered key space, so there is nothing to vary",
    },
];

/// All figures and tables of a paper that show something measured or computed.
pub fn shown(paper: &str) -> Vec<String> {
    let figures = |chapter: u32, to: u32| (1..=to).map(move |n| format!("figure {chapter}.{n}"));
    match paper {
        "small-files" => {
            ["figure 3a", "figure 3b", "figure 4", "figure 5", "figure 7", "figure 8", "figure 9"]
                .into_iter()
                .chain(["table I", "table II"])
                .map(str::to_owned)
                .collect()
        }
        "thesis" => figures(4, 6).chain(figures(7, 69)).chain(["figure 10.2".to_owned()]).collect(),
        _ => Vec::new(),
    }
}

/// An experiment and its outcomes: one per mode.
pub struct Reproduced {
    /// Which.
    pub experiment: Experiment,
    /// The result, with the picture's path from the document.
    pub outcomes: Vec<(ExperimentOutcome, Option<String>)>,
    /// Why a mode has none.
    pub without: Vec<String>,
    /// How its rates move with the costs that its machine was fitted with, where that was requested.
    pub sensitivity: Option<Sensitivity>,
}

/// The document.
pub fn document(all: &[Reproduced], command: &str) -> String {
    let mut text = format!(
        "# Reproduction\n\n\
         Every figure and table of the two papers: what they claim, what comes out here, and whether the claim holds. Written by\n\
         `{command}`; the experiments are files in [lab/experiments/](../../lab/experiments), and [EXPERIMENTS.md](EXPERIMENTS.md) says what is\n\
         in them.\n\n\
         *Simulated* runs are our servers and clients under virtual time, on a machine that costs what its file says (lab/machines/), of\n\
         which much is a guess or fitted: the same seed gives the same figures. *Real* ones ran on the machine that their section names,\n\
         which is none of the papers'. The line below each says of which program it is and how much was run, beside the paper's\n\
         amounts where they differ. A bound is our own estimate of the most ([BOUNDS.md](BOUNDS.md)). A check that does\n\
         not hold is left standing, with the reason where that is known.\n\n"
    );
    let head = text.len();
    for (paper, title) in PAPERS {
        let _ = writeln!(text, "## {title}\n");
        text += &index(paper, all);
        for told in all.iter().filter(|told| told.experiment.source.paper == *paper) {
            text += &section(told);
        }
    }
    let others =
        all.iter().filter(|told| PAPERS.iter().all(|(paper, _)| told.experiment.source.paper != *paper));
    let others: Vec<String> = others.map(section).collect();
    if !others.is_empty() {
        text += "## Further experiments\n\n";
        text += &others.concat();
    }
    text.insert_str(head, &format!("{}\n", Totals::of_lines(text.lines()).markdown(all.len())));
    text
}

/// A document with these experiments anew; `None` where it has not all of them.
pub fn renewed(document: &str, all: &[Reproduced]) -> Option<String> {
    let mut lines: Vec<String> = document.lines().map(str::to_owned).collect();
    for told in all {
        let name = &told.experiment.name;
        let heading = format!("### {name}");
        let begins = lines.iter().position(|line| *line == heading)?;
        let is_next = |line: &String| line.starts_with("## ") || line.starts_with("### ");
        let ends = lines[begins + 1..].iter().position(is_next).map_or(lines.len(), |at| begins + 1 + at);
        lines.splice(begins..ends, section(told).lines().map(str::to_owned));
        let row = format!(" | [{name}](#{name}) | ");
        for line in lines.iter_mut().filter(|line| line.starts_with("| ") && line.contains(&row)) {
            let what = line.split(" | ").next().unwrap_or_default();
            *line = format!("{what}{row}{} |", counted(told));
        }
    }
    let experiments = lines.iter().filter(|line| line.starts_with("### ")).count();
    let totals = Totals::of_lines(lines.iter().map(String::as_str)).markdown(experiments);
    if let Some(begins) = lines.iter().position(|line| line.contains(SUMMARY)) {
        let table = lines[begins..].iter().skip(2).position(|line| !line.starts_with('|'));
        let ends = table.map_or(lines.len(), |rows| begins + 2 + rows);
        lines.splice(begins..ends, totals.lines().map(str::to_owned));
    }
    Some(lines.join("\n") + "\n")
}

/// Each figure and table, with the experiment that reproduces it.
fn index(paper: &str, all: &[Reproduced]) -> String {
    let mut of: BTreeMap<&str, &Reproduced> = BTreeMap::new();
    for told in all.iter().filter(|told| told.experiment.source.paper == paper) {
        of.extend(told.experiment.source.reproduces.iter().map(|what| (what.as_str(), told)));
    }
    let mut text = "| figure, table | experiment | checks that hold |\n|---|---|---|\n".to_owned();
    for what in shown(paper) {
        let (name, verdicts) = match of.get(what.as_str()) {
            Some(told) => (format!("[{0}](#{0})", told.experiment.name), counted(told)),
            None => ("not run".to_owned(), String::new()),
        };
        let _ = writeln!(text, "| {what} | {name} | {verdicts} |");
    }
    for left in LEFT.iter().filter(|left| left.paper == paper) {
        let _ = writeln!(text, "| {} | none: {} | |", left.what, left.why);
    }
    text.push('\n');
    text
}

fn counted(told: &Reproduced) -> String {
    let of = |(outcome, _): &(ExperimentOutcome, Option<String>)| {
        let mode = totals::word(outcome.mode);
        let seen = outcome.checks.iter().filter(|c| !matches!(c.verdict, crate::Verdict::NotSeen(_))).count();
        format!("{mode} {} of {seen}", seen - outcome.failures().count())
    };
    told.outcomes.iter().map(of).collect::<Vec<_>>().join(", ")
}

fn section(told: &Reproduced) -> String {
    let experiment = &told.experiment;
    let source = &experiment.source;
    let mut text = format!("### {}\n\n**{}**\n\n", experiment.name, experiment.title);
    let _ = writeln!(
        text,
        "Claim ({}; {}): {}\n",
        source.reproduces.join(", "),
        source.section,
        experiment.claim.trim()
    );
    if !source.missing.is_empty() {
        let _ = writeln!(text, "{}\n", source.missing.trim());
    }
    for (outcome, picture) in &told.outcomes {
        text += &tell::markdown(experiment, outcome, picture.as_deref());
        text.push('\n');
    }
    if let Some(sensitivity) = &told.sensitivity {
        text += "Sensitivity: by how many percent each rate moves when one fitted cost of the machine is half as large, and half as \
                 large again.\n\n";
        text += &sensitivity_table(experiment, sensitivity);
        text.push('\n');
    }
    for why in &told.without {
        let _ = writeln!(text, "*{why}.*\n");
    }
    let derived = experiment.published.iter().filter(|point| !point.derived.is_empty());
    for point in derived {
        let _ = writeln!(
            text,
            "Published by arithmetic: {} at {}: {} ({}).\n",
            point.series, point.x, point.derived, point.place
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

    #[test]
    fn every_figure_and_table_of_the_papers_has_an_experiment() {
        let all = builtin::all().expect("all are experiments");
        for (paper, _) in PAPERS {
            let own = || all.iter().filter(|experiment| experiment.source.paper == *paper);
            for what in shown(paper) {
                assert!(
                    own().any(|e| e.source.reproduces.contains(&what)),
                    "{paper}: nothing reproduces {what}"
                );
            }
            for experiment in own() {
                for what in &experiment.source.reproduces {
                    let is_known = shown(paper).contains(what) || what.starts_with("section");
                    assert!(is_known, "{}: {paper} has no {what}", experiment.name);
                }
            }
        }
    }

    fn told(name: &str, checks: &[crate::Verdict]) -> Reproduced {
        let experiment = builtin::find(name).expect("it comes with the program");
        let mut outcome = crate::made::outcome(name, crate::Mode::Simulated, Vec::new());
        let all = experiment.check.iter().zip(checks);
        outcome.checks = all
            .map(|(check, verdict)| crate::outcome::Checked {
                check: check.clone(),
                counts_as: check.kind_in(outcome.mode),
                verdict: verdict.clone(),
            })
            .collect();
        Reproduced { experiment, outcomes: vec![(outcome, None)], without: Vec::new(), sensitivity: None }
    }

    #[test]
    fn what_was_run_again_takes_the_place_of_what_was_there_and_nothing_else_does() {
        let (good, bad) = (crate::Verdict::Holds("so".into()), crate::Verdict::Fails("not so".into()));
        let others =
            || [told("pvfs-5", &[good.clone(), bad.clone()]), told("thesis-4-1", std::slice::from_ref(&bad))];
        let all = |bgp: Reproduced| {
            let [first, last] = others();
            [first, bgp, last]
        };
        let old = all(told("bgp-7", &[bad.clone(), bad.clone(), bad.clone()]));
        let new = || told("bgp-7", &[good.clone(), bad.clone()]);
        let document_of = |all: &[Reproduced]| document(all, "a command");
        let renewed_one = renewed(&document_of(&old), &[new()]).expect("it is in it");
        assert_eq!(renewed_one, document_of(&all(new())));
        assert!(renewed(&document_of(&others()), &[new()]).is_none(), "it is not in it");
    }

    #[test]
    fn the_head_counts_each_check_of_each_section_under_its_own_kind() {
        use crate::check::Kind;
        let (good, bad) = (crate::Verdict::Holds("so".into()), crate::Verdict::Fails("not so".into()));
        let names = ["pvfs-3a", "pvfs-table1", "thesis-4-1", "bgp-table2"];
        let mut all: Vec<Reproduced> = names.map(|name| told(name, &vec![good.clone(); 20])).into();
        let last = &mut all[3].outcomes[0].0.checks;
        last.iter_mut().skip(5).for_each(|checked| checked.verdict = bad.clone());
        let real = crate::made::outcome("pvfs-table1", crate::Mode::Real, Vec::new());
        all[1].outcomes.push((real, None));
        let check = all[1].experiment.check.clone();
        all[1].outcomes[1].0.judge(&check);
        let outcomes = || all.iter().flat_map(|told| &told.outcomes).map(|(outcome, _)| outcome);
        let totals = Totals::of(outcomes());
        let text = document(&all, "a command");
        assert_eq!(totals, Totals::of_lines(text.lines()));
        let counted: usize =
            Kind::ALL.map(|kind| totals.of_kind(kind)).iter().map(|c| c.hold + c.fail + c.unseen).sum();
        let of_outcome = |outcome: &'_ ExperimentOutcome| {
            let name =
                |c: &crate::outcome::Checked| (outcome.name.clone(), c.counts_as, c.check.claim.clone());
            outcome.checks.iter().map(name).collect::<Vec<_>>()
        };
        let names: std::collections::BTreeSet<_> = outcomes().flat_map(of_outcome).collect();
        assert_eq!(counted, names.len());
        let of = |kind| (totals.of_kind(kind).hold, totals.of_kind(kind).fail);
        assert_eq!((of(Kind::Fitted), of(Kind::OwnBound)), ((7, 3), (4, 0)));
        assert!(text.contains(&totals.markdown(all.len())));
    }

    #[test]
    fn the_document_has_each_experiment_and_what_has_none() {
        let all: Vec<Reproduced> = builtin::all()
            .expect("all are experiments")
            .into_iter()
            .map(|experiment| Reproduced {
                experiment,
                outcomes: Vec::new(),
                without: vec!["not run".into()],
                sensitivity: None,
            })
            .collect();
        let text = document(&all, "shoal paper --all");
        for told in &all {
            assert!(text.contains(&format!("### {}\n", told.experiment.name)));
        }
        for left in LEFT {
            assert!(text.contains(left.why));
        }
    }
}
