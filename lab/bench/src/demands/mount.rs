//! The requirements of a mount, relative to a pass-through mount with the same cache times in the same run.
//!
//! With metadata durable at reply, create and remove must reach a share of the rate P ÷ (the pass-through's
//! time + round trips + syncs): the rate of P processes that each wait for their call. With metadata durable
//! at fsync, as ext4 promises, create and remove must reach a share of the pass-through's own rate. Stats
//! must always reach a share of the pass-through's rate. With files that are read twice, the second epoch
//! must reach a share of the rate of a pass-through that leaves the kernel its pages.

use super::{DemandVerdict, share};
use crate::bounds::{Bound, Limit};
use crate::epochs::names::SECOND;
use crate::report::Report;
use crate::spread::percent;
use crate::whole::names;
use shoal_model::short;

/// Shares, percent.
const DURABLE_OF_WAITING: f64 = 70.0;
const STAT_OF_WAY: f64 = 60.0;
const EPOCH_OF_WAY: f64 = 80.0;
const CHANGES_OF_WAY_EMBEDDED: f64 = 80.0;
const CHANGES_OF_WAY_REMOTE: f64 = 40.0;

/// The kind of a target of such a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Its servers are in its own process.
    pub is_embedded: bool,
    /// A change of metadata is durable when it is answered.
    pub is_durable: bool,
    /// Processes that use it at once.
    pub processes: usize,
}

impl std::fmt::Display for Mount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let way = if self.is_embedded { "embedded" } else { "networked" };
        let durable = if self.is_durable { "reply" } else { "fsync" };
        let processes = if self.processes == 1 { "process" } else { "processes" };
        write!(f, "{way}, durable at {durable}, {} {processes}", self.processes)
    }
}

/// The demands on a target of a run of empty whole files, whose reference is the pass-through.
pub fn mount(report: &Report, target: &str, mount: Mount) -> Vec<DemandVerdict> {
    let changes = [(names::CREATE_EMPTY, "create"), (names::REMOVE, "remove")].map(|(phase, verb)| {
        let wanted = if mount.is_embedded { CHANGES_OF_WAY_EMBEDDED } else { CHANGES_OF_WAY_REMOTE };
        match mount.is_durable {
            true => of_waiting(report, target, mount, phase, verb),
            false => of_way(report, target, mount, phase, verb, wanted),
        }
    });
    let stat = of_way(report, target, mount, names::STAT, "stat", STAT_OF_WAY);
    changes.into_iter().chain([stat]).flatten().collect()
}

/// The demand on a target of a run of epochs, whose reference is a pass-through that leaves the kernel its
/// pages.
pub fn epochs(report: &Report, target: &str, mount: Mount) -> Option<DemandVerdict> {
    of_way(report, target, mount, SECOND, SECOND, EPOCH_OF_WAY)
}

fn of_waiting(report: &Report, target: &str, mount: Mount, phase: &str, verb: &str) -> Option<DemandVerdict> {
    let held = report.target(target)?.held(phase)?;
    share(held, &mount.to_string(), verb, &[Limit::Way, Limit::Trip, Limit::Sync], DURABLE_OF_WAITING)
}

fn of_way(
    report: &Report,
    target: &str,
    mount: Mount,
    phase: &str,
    verb: &str,
    wanted: f64,
) -> Option<DemandVerdict> {
    let median = |name: &str| Some(report.target(name)?.phase(phase)?.rate_wall?.median);
    let (ours, theirs) = (median(target)?, median(&report.reference)?);
    let reached = percent(ours, theirs)?;
    let held = report.target(target).and_then(|target| target.held(phase));
    let binds = held.and_then(|held| held.held.bound.as_ref().and_then(Bound::binds));
    let binds = binds.map_or(String::new(), |limit| format!("; what binds: {limit}"));
    Some(DemandVerdict {
        demand: format!("{mount}, {verb} ≥ {wanted:.0} % of the pass-through"),
        measured: format!("{reached:.0} %: {}/s of {}/s{binds}", short(ours), short(theirs)),
        is_met: reached >= wanted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::beside::HeldPhase;
    use crate::bounds::{Cost, MachineRates, RateAndBound};
    use crate::report::{PhaseResult, RunResult, Unit};
    use crate::whole::WholeOptions;
    use crate::workload::Workload;

    /// A pass-through of 10,000/s and a mount of so many, with 4 processes.
    fn report(per_s: f64) -> Report {
        let workload = Workload::Whole(WholeOptions { files: 100, bytes: 0 });
        let run = |per_s: f64| {
            let phase = |(phase, unit): (String, Unit)| PhaseResult {
                phase,
                unit,
                ops: 100,
                wall_ns: (100e9 / per_s) as u64,
                ..PhaseResult::default()
            };
            RunResult { phases: workload.phases().into_iter().map(phase).collect() }
        };
        let runs = vec![("way".to_owned(), vec![run(10_000.0)]), ("mount".to_owned(), vec![run(per_s)])];
        let mut report = Report::new(workload.clone(), "4 processes".into(), "way".into(), runs);
        // 400 µs of way, 100 of a trip, 300 of a sync: 5,000/s.
        let machine =
            MachineRates { way_per_s: 10_000.0, trip_us: 100.0, sync_us: 300.0, ..MachineRates::default() };
        let cost = Cost { clients: 4, round_trips: 1.0, syncs: 1.0, bytes: 0.0 };
        let held = |phase: &str| HeldPhase {
            phase: phase.to_owned(),
            held: RateAndBound::new(per_s, &cost, &machine),
            cost,
            machine,
            group_bytes: 0,
            cpu_us: 0.0,
        };
        report.targets[1].held = vec![held(names::CREATE_EMPTY), held(names::REMOVE)];
        report
    }

    fn met(per_s: f64, is_embedded: bool, is_durable: bool) -> Vec<bool> {
        let kind = Mount { is_embedded, is_durable, processes: 4 };
        mount(&report(per_s), "mount", kind).iter().map(|verdict| verdict.is_met).collect()
    }

    #[test]
    fn durable_changes_are_held_against_the_way_the_trips_and_the_syncs() {
        assert_eq!(met(3_600.0, true, true), [true, true, false]);
        assert_eq!(met(3_400.0, false, true), [false, false, false]);
        assert_eq!(met(6_100.0, false, true), [true; 3]);
    }

    #[test]
    fn a_second_epoch_is_held_against_a_pass_through_that_leaves_the_kernel_its_pages() {
        let workload = Workload::Epochs(crate::EpochsOptions { files: 100, ..Default::default() });
        let run = |per_s: f64| {
            let phase = |(phase, unit): (String, Unit)| PhaseResult {
                phase,
                unit,
                ops: 100,
                wall_ns: (100e9 / per_s) as u64,
                ..PhaseResult::default()
            };
            RunResult { phases: workload.phases().into_iter().map(phase).collect() }
        };
        let kind = Mount { is_embedded: true, is_durable: true, processes: 4 };
        for (per_s, is_met) in [(8_100.0, true), (7_900.0, false)] {
            let runs = vec![("way".to_owned(), vec![run(10_000.0)]), ("mount".to_owned(), vec![run(per_s)])];
            let report = Report::new(workload.clone(), "4 processes".into(), "way".into(), runs);
            assert_eq!(epochs(&report, "mount", kind).map(|verdict| verdict.is_met), Some(is_met));
        }
    }

    #[test]
    fn changes_durable_at_fsync_are_held_against_the_pass_through() {
        assert_eq!(met(8_100.0, true, false), [true; 3]);
        assert_eq!(met(7_900.0, true, false), [false, false, true]);
        assert_eq!(met(4_100.0, false, false), [true, true, false]);
        let kind = Mount { is_embedded: false, is_durable: false, processes: 1 };
        let words = mount(&report(3_900.0), "mount", kind)[0].to_string();
        for part in ["NOT MET", "networked, durable at fsync, 1 process", "39 %", "what binds"] {
            assert!(words.contains(part), "{part} is missing in {words}");
        }
    }
}
