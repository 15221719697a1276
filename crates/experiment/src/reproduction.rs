//! The document of all experiments: every figure and table of the two papers, the claim, ours, the verdict, the picture.

use crate::file::Experiment;
use crate::outcome::Outcome;
use crate::tell;
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

/// What is drawn there is no measurement.
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

/// An experiment and what came out of it: one outcome a mode.
pub struct Told {
    /// Which.
    pub experiment: Experiment,
    /// What came out, with the picture's path from the document.
    pub outcomes: Vec<(Outcome, Option<String>)>,
    /// Why a mode has none.
    pub without: Vec<String>,
}

/// The document.
pub fn document(all: &[Told], command: &str) -> String {
    let mut text = format!(
        "# Reproduction\n\n\
         Every figure and table of the two papers: what they claim, what comes out here, and whether the claim holds. Written by\n\
         `{command}`; the experiments are files in [experiments/](../experiments), and [EXPERIMENTS.md](EXPERIMENTS.md) says what is\n\
         in them.\n\n\
         *Simulated* runs are our servers and clients under virtual time, on a machine that costs what its file says (machines/);\n\
         *real* ones ran on the machine that wrote this page. A bound is the estimated upper bound of [BOUNDS.md](BOUNDS.md). A check\n\
         that does not hold is left standing, with the reason where that is known.\n\n"
    );
    text += &summary(all);
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
    text
}

fn summary(all: &[Told]) -> String {
    let (mut holds, mut fails, mut unseen) = (0, 0, 0);
    let checks = all.iter().flat_map(|told| &told.outcomes).flat_map(|(outcome, _)| &outcome.checks);
    for checked in checks {
        match &checked.verdict {
            crate::Verdict::Holds(_) => holds += 1,
            crate::Verdict::Fails(_) => fails += 1,
            crate::Verdict::NotSeen(_) => unseen += 1,
        }
    }
    format!(
        "{} experiments; of their checks {holds} hold, {fails} do not, {unseen} were not seen (they are of the other kind of run).\n\n",
        all.len()
    )
}

/// Each figure and table, with the experiment that reproduces it.
fn index(paper: &str, all: &[Told]) -> String {
    let mut of: BTreeMap<&str, &Told> = BTreeMap::new();
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

fn counted(told: &Told) -> String {
    let of = |(outcome, _): &(Outcome, Option<String>)| {
        let mode = outcome.mode.map_or("computed", |mode| mode.word());
        let seen = outcome.checks.iter().filter(|c| !matches!(c.verdict, crate::Verdict::NotSeen(_))).count();
        format!("{mode} {} of {seen}", seen - outcome.failures().count())
    };
    told.outcomes.iter().map(of).collect::<Vec<_>>().join(", ")
}

fn section(told: &Told) -> String {
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

    #[test]
    fn the_document_has_each_experiment_and_what_has_none() {
        let all: Vec<Told> = builtin::all()
            .expect("all are experiments")
            .into_iter()
            .map(|experiment| Told { experiment, outcomes: Vec::new(), without: vec!["not run".into()] })
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
