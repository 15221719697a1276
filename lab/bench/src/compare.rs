//! Runs one workload over several targets in one run, in turns.
//!
//! Machines drift: another program starts, a disk cleans up. So targets take turns within each repetition.
//! Every other repetition goes through them backwards, so that no target always runs right after the same
//! other. The machine's own limits ([`crate::probe`]), if requested, take their turn in every repetition too.

use std::collections::HashSet;

use anyhow::{Context, Result, bail};

use crate::beside::{Beside, TargetSetting};
use crate::probe::{Probe, ProbeOptions};
use crate::progress::Progress;
use crate::report::{Report, RunResult};
use crate::target::Target;
use crate::team::Team;
use crate::workload::Workload;

/// The most repetitions of one comparison.
pub const REPETITIONS_MAX: usize = 1000;

/// How targets are compared.
#[derive(Clone, Debug, PartialEq)]
pub struct CompareOptions {
    /// The workers.
    pub team: Team,
    /// Times each target is measured.
    pub repetitions: usize,
    /// The target ratios are to, by name; `None`: the first.
    pub reference: Option<String>,
    /// Measure the machine's own limits in the same run.
    pub probe: Option<ProbeOptions>,
    /// Targets whose every phase is compared with a bound, by name.
    pub settings: Vec<(String, TargetSetting)>,
}

impl Default for CompareOptions {
    fn default() -> CompareOptions {
        CompareOptions {
            team: Team::default(),
            repetitions: 3,
            reference: None,
            probe: None,
            settings: Vec::new(),
        }
    }
}

/// Measures the targets in turn. `progress` is called between measurements, never during one. With one target
/// this is simply a measurement of it.
pub fn compare(
    targets: &[&dyn Target],
    workload: &Workload,
    options: &CompareOptions,
    mut progress: impl FnMut(Progress),
) -> Result<Report> {
    let reference = check(targets, workload, options)?;
    let mut runs: Vec<(String, Vec<RunResult>)> =
        targets.iter().map(|target| (target.name(), Vec::new())).collect();
    let mut probe = options.probe.as_ref().map(Probe::new).transpose()?;
    let mut beside = options
        .settings
        .iter()
        .map(|(name, setting)| Ok((name.clone(), Beside::new(setting, options.team.workers)?)))
        .collect::<Result<Vec<_>>>()?;
    let turns = targets.len() + usize::from(probe.is_some());
    progress(Progress::Begin { steps: (turns * options.repetitions) as u64 });
    let mut step = 0;
    let mut tell = |what: String, repetition: usize| {
        progress(Progress::Step { step, what, repetition });
        step += 1;
    };
    for repetition in 1..=options.repetitions {
        if let Some(probe) = &mut probe {
            tell("machine".to_owned(), repetition);
            probe.round()?;
        }
        for index in order(targets.len(), repetition) {
            let name = targets[index].name();
            tell(name.clone(), repetition);
            let run = options.team.run(targets[index], workload).with_context(|| format!("{name} failed"))?;
            if let Some((_, beside)) = beside.iter_mut().find(|(target, _)| *target == name) {
                beside.round(workload, &run).context("cannot measure the machine")?;
            }
            runs[index].1.push(run);
        }
    }
    progress(Progress::End);
    let mut report = Report::new(workload.clone(), options.team.describe(), reference, runs);
    for ((name, beside), (_, setting)) in beside.iter().zip(&options.settings) {
        report.hold(name, beside, setting.way.as_deref());
    }
    report.machine = probe.map(|probe| probe.report());
    Ok(report)
}

/// The targets' turns: forwards in odd repetitions, backwards in even ones.
pub fn order(targets: usize, repetition: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..targets).collect();
    if repetition.is_multiple_of(2) {
        order.reverse();
    }
    order
}

/// Refuses settings that make no comparison; returns the reference's name.
fn check(targets: &[&dyn Target], workload: &Workload, options: &CompareOptions) -> Result<String> {
    workload.validate(options.team.workers)?;
    if options.repetitions == 0 || options.repetitions > REPETITIONS_MAX {
        bail!("repetitions must be between 1 and {REPETITIONS_MAX}, not {}", options.repetitions);
    }
    let Some(first) = targets.first() else { bail!("nothing to measure: name at least one target") };
    let mut names = HashSet::new();
    for target in targets {
        if !names.insert(target.name()) {
            bail!("two targets are called {}; names in a comparison must differ", target.name());
        }
    }
    let reference = options.reference.clone().unwrap_or_else(|| first.name());
    if !names.contains(&reference) {
        bail!("the reference {reference} is none of the targets");
    }
    Ok(reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_take_turns_forwards_and_backwards() {
        assert_eq!(order(3, 1), [0, 1, 2]);
        assert_eq!(order(3, 2), [2, 1, 0]);
    }
}
