//! The measurements, as data and as a table.
//!
//! A [`Report`] holds every single run, and also the medians, spreads and ratios made of them. So a reader of
//! the JSON needs no arithmetic, and all figures can be checked.

mod table;

pub(crate) use table::plain_table;

use anyhow::{Context, Result};
use comfy_table::ContentArrangement;
use serde::{Deserialize, Serialize};

use crate::beside::{Beside, HeldPhase};
use crate::clock::seconds;
use crate::counts::Counts;
use crate::probe::ProbeReport;
use crate::probe::layout::Layout;
use crate::spread::Spread;
use crate::workload::Workload;

/// The unit of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Operations a second; of a listing, entries a second.
    #[default]
    OpsPerSecond,
    /// 10^6 bytes a second.
    MegabytesPerSecond,
}

impl Unit {
    /// As written after a number.
    pub fn symbol(self) -> &'static str {
        match self {
            Unit::OpsPerSecond => "/s",
            Unit::MegabytesPerSecond => "MB/s",
        }
    }
}

/// One phase of one run, all workers together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    /// Its name.
    pub phase: String,
    /// The unit its rates are in.
    pub unit: Unit,
    /// Operations of all workers. 0: the target does not offer the phase's operation.
    pub ops: u64,
    /// Bytes moved by all workers.
    pub bytes: u64,
    /// Algorithm 1: the largest time any worker needed, nanoseconds.
    pub longest_ns: u64,
    /// Algorithm 2 (mdtest): the first worker's time up to the end of the second barrier, nanoseconds.
    pub rank0_ns: u64,
    /// From the first worker's beginning to the last one's end, nanoseconds.
    pub wall_ns: u64,
    /// Its costs, where the target counts.
    #[serde(default)]
    pub counts: Option<Counts>,
}

impl PhaseResult {
    /// The rate by Algorithm 1; `None` if nothing was done.
    pub fn rate(&self) -> Option<f64> {
        self.over(self.longest_ns)
    }

    /// The rate by Algorithm 2, as mdtest would report it.
    pub fn rate_rank0(&self) -> Option<f64> {
        self.over(self.rank0_ns)
    }

    /// The rate by the watch on the wall.
    pub fn rate_wall(&self) -> Option<f64> {
        self.over(self.wall_ns)
    }

    fn over(&self, ns: u64) -> Option<f64> {
        let done = match self.unit {
            Unit::OpsPerSecond => self.ops as f64,
            Unit::MegabytesPerSecond => self.bytes as f64 / 1e6,
        };
        (self.ops > 0).then(|| done / seconds(ns))
    }
}

/// One run of the workload over one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The phases in their order.
    pub phases: Vec<PhaseResult>,
}

/// One phase over all repetitions on one target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseSummary {
    /// Its name.
    pub phase: String,
    /// The unit of the rates.
    pub unit: Unit,
    /// Rates by Algorithm 1; `None` if the target does not offer the phase's operation.
    pub rate: Option<Spread>,
    /// Rates by Algorithm 2 (mdtest's).
    pub rate_rank0: Option<Spread>,
    /// Rates by the watch on the wall.
    pub rate_wall: Option<Spread>,
    /// The median rate (Algorithm 1) as a multiple of the reference target's; of the reference itself 1.
    pub ratio: Option<f64>,
}

/// One target over all repetitions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetSummary {
    /// Its name.
    pub name: String,
    /// The phases in their order.
    pub phases: Vec<PhaseSummary>,
    /// Every run.
    pub runs: Vec<RunResult>,
    /// Phases next to their bounds, where requested.
    #[serde(default)]
    pub held: Vec<HeldPhase>,
    /// The layout of plain echo.
    #[serde(default)]
    pub layout: Option<Layout>,
}

impl TargetSummary {
    /// A phase next to its bound.
    pub fn held(&self, phase: &str) -> Option<&HeldPhase> {
        self.held.iter().find(|held| held.phase == phase)
    }

    /// The summary of a phase by its name.
    pub fn phase(&self, name: &str) -> Option<&PhaseSummary> {
        self.phases.iter().find(|phase| phase.phase == name)
    }
}

/// A comparison: one workload over one or more targets in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The workload.
    pub workload: Workload,
    /// The workers: `4 processes`.
    pub team: String,
    /// Times each target was measured.
    pub repetitions: usize,
    /// The target all ratios are to.
    pub reference: String,
    /// The targets in the order they were given.
    pub targets: Vec<TargetSummary>,
    /// The machine's own rates in the same run, if requested.
    pub machine: Option<ProbeReport>,
}

impl Report {
    /// The summary of a target by its name.
    pub fn target(&self, name: &str) -> Option<&TargetSummary> {
        self.targets.iter().find(|target| target.name == name)
    }

    /// The report as indented JSON.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).context("cannot write the report as JSON")
    }

    /// Reads the output of [`Report::to_json`].
    pub fn from_json(json: &str) -> Result<Report> {
        serde_json::from_str(json).context("this is no report of a measurement")
    }

    /// The report as text for a terminal: a line with the workload, and a table.
    pub fn to_table(&self) -> String {
        table::render(self, ContentArrangement::Dynamic)
    }

    /// Only the tables of phases next to their bounds.
    pub fn held_table(&self) -> String {
        let tables = self.targets.iter().map(|target| table::held(target, ContentArrangement::Dynamic));
        tables.collect()
    }

    /// The arithmetic of every bound, for interested readers.
    pub fn explain(&self) -> String {
        table::explain(self)
    }

    /// Compares a target's phases with the machine's measurements for it, and with its way's rates.
    pub(crate) fn hold(&mut self, target: &str, beside: &Beside, way: Option<&str>) {
        let way = way.and_then(|name| self.target(name)).cloned();
        let way_per_s = |phase: &str| {
            let rate = way.as_ref().and_then(|way| way.phase(phase)?.rate_wall);
            rate.map_or(0.0, |rate| rate.median)
        };
        let workload = self.workload.clone();
        if let Some(summary) = self.targets.iter_mut().find(|one| one.name == target) {
            summary.held = beside.hold(&workload, &summary.runs, way_per_s);
            summary.layout = Some(beside.layout());
        }
    }

    /// Makes summaries of runs; `runs[target][repetition]`.
    pub(crate) fn new(
        workload: Workload,
        team: String,
        reference: String,
        runs: Vec<(String, Vec<RunResult>)>,
    ) -> Report {
        let mut targets: Vec<TargetSummary> = runs
            .into_iter()
            .map(|(name, runs)| TargetSummary {
                phases: summarize(&workload, &runs),
                name,
                runs,
                held: Vec::new(),
                layout: None,
            })
            .collect();
        let of_reference =
            targets.iter().find(|target| target.name == reference).map(|target| target.phases.clone());
        for target in &mut targets {
            for (phase, base) in target.phases.iter_mut().zip(of_reference.iter().flatten()) {
                phase.ratio = ratio(phase.rate, base.rate);
            }
        }
        let repetitions = targets.first().map_or(0, |target| target.runs.len());
        Report { workload, team, repetitions, reference, targets, machine: None }
    }
}

fn ratio(rate: Option<Spread>, base: Option<Spread>) -> Option<f64> {
    let (rate, base) = (rate?.median, base?.median);
    (base > 0.0).then(|| rate / base)
}

fn summarize(workload: &Workload, runs: &[RunResult]) -> Vec<PhaseSummary> {
    let spread = |index: usize, rate: fn(&PhaseResult) -> Option<f64>| {
        let samples: Vec<f64> = runs.iter().filter_map(|run| run.phases.get(index).and_then(rate)).collect();
        Spread::of(&samples)
    };
    let phases = workload.phases().into_iter().enumerate();
    phases
        .map(|(index, (phase, unit))| PhaseSummary {
            phase,
            unit,
            rate: spread(index, PhaseResult::rate),
            rate_rank0: spread(index, PhaseResult::rate_rank0),
            rate_wall: spread(index, PhaseResult::rate_wall),
            ratio: None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small::SmallOptions;

    fn run(create_ns: u64) -> RunResult {
        let workload = Workload::Small(SmallOptions { files: 100, ..SmallOptions::default() });
        let phase = |(phase, unit)| PhaseResult {
            phase,
            unit,
            ops: 100,
            bytes: 0,
            longest_ns: create_ns,
            rank0_ns: create_ns / 2,
            wall_ns: create_ns * 2,
            counts: None,
        };
        RunResult { phases: workload.phases().into_iter().map(phase).collect() }
    }

    fn report() -> Report {
        let workload = Workload::Small(SmallOptions { files: 100, ..SmallOptions::default() });
        let slow = vec![run(1_000_000), run(4_000_000), run(2_000_000)];
        let fast = vec![run(500_000), run(500_000), run(500_000)];
        Report::new(
            workload,
            "1 thread".into(),
            "slow".into(),
            vec![("slow".into(), slow), ("fast".into(), fast)],
        )
    }

    #[test]
    fn medians_are_taken_over_repetitions_and_ratios_over_medians() {
        let report = report();
        let slow = report.target("slow").and_then(|t| t.phase("create")).expect("measured");
        assert_eq!(slow.rate, Some(Spread { median: 50_000.0, min: 25_000.0, max: 100_000.0 }));
        assert_eq!(slow.rate_rank0.map(|rate| rate.median), Some(100_000.0));
        assert_eq!(slow.rate_wall.map(|rate| rate.median), Some(25_000.0));
        assert_eq!(slow.ratio, Some(1.0));
        let fast = report.target("fast").and_then(|t| t.phase("create")).expect("measured");
        assert_eq!(fast.ratio, Some(4.0));
        assert_eq!(report.repetitions, 3);
    }

    #[test]
    fn a_report_reads_back_from_its_json_unchanged() {
        let report = report();
        let json = report.to_json().expect("written");
        assert_eq!(Report::from_json(&json).expect("read"), report);
        assert!(Report::from_json("{}").is_err());
    }

    #[test]
    fn a_phase_nobody_offers_has_no_rate_and_shows_a_dash() {
        let mut runs = vec![run(1_000_000)];
        runs[0].phases[1].ops = 0;
        let workload = Workload::Small(SmallOptions { files: 100, ..SmallOptions::default() });
        let report = Report::new(workload, "1 thread".into(), "only".into(), vec![("only".into(), runs)]);
        assert_eq!(report.target("only").and_then(|t| t.phase("create")).and_then(|p| p.rate), None);
        assert!(
            table::render(&report, ContentArrangement::Disabled)
                .lines()
                .any(|line| line.contains("create") && line.contains('–'))
        );
    }

    #[test]
    fn the_table_names_every_phase_and_target() {
        let table = table::render(&report(), ContentArrangement::Disabled);
        for word in ["slow", "fast", "create", "rmdir", "50.0 k/s", "4.00 ×"] {
            assert!(table.contains(word), "{word} is missing in\n{table}");
        }
    }
}
