//! The requirements of the native client and of the mount, and the check of a run against them. Each
//! requirement is a line that can fail.

mod mount;

pub use mount::{Mount, epochs, mount};

use serde::{Deserialize, Serialize};

use crate::beside::HeldPhase;
use crate::bounds::Limit;
use crate::many::{BATCHED, Gain, gains};
use crate::report::Report;
use crate::spread::percent;
use crate::whole::names;
use shoal_model::short;

/// Shares of the bounds, percent.
const CREATE_OF_WAITING: f64 = 60.0;
const CREATE_OF_MACHINE: f64 = 50.0;
const STAT_OF_ECHO: f64 = 60.0;
const READ_OF_ECHO: f64 = 50.0;
/// Clients of the rates below, and the rates a second.
const CLIENTS: usize = 16;
const CREATES_PER_S: f64 = 18_000.0;
const STATS_PER_S: f64 = 40_000.0;
const REMOVES_PER_S: f64 = 18_000.0;
/// The gain of a batch over the same one by one: creates; writes and reads.
const BATCHED_CREATES: f64 = 20.0;
const BATCHED_DATA: f64 = 8.0;
/// Of messages or the disk, percent, where these bind before such a gain is reached.
const BATCHED_OF_MACHINE: f64 = 60.0;
/// A lone client's create takes at most so many times a round trip and a sync.
const LONE_CREATE: f64 = 1.5;

/// One demand, held against a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DemandVerdict {
    /// The requirement.
    pub demand: String,
    /// The measured values, and their references.
    pub measured: String,
    /// Whether that is enough.
    pub is_met: bool,
}

impl std::fmt::Display for DemandVerdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = if self.is_met { "met    " } else { "NOT MET" };
        write!(f, "{word}  {}: {}", self.demand, self.measured)
    }
}

/// The demands on a run of whole files with so many clients.
pub fn native(report: &Report, clients: usize, is_awake: bool) -> Vec<DemandVerdict> {
    let Some(target) = report.targets.first() else { return Vec::new() };
    let of =
        |name: &str, judge: &dyn Fn(&HeldPhase) -> Option<DemandVerdict>| target.held(name).and_then(judge);
    let who = match (clients, is_awake) {
        (1, false) => "1 client, idle cores".to_owned(),
        (1, true) => "1 client, awake cores".to_owned(),
        (n, _) => format!("{n} clients"),
    };
    let mut all = vec![
        of(names::STAT, &|one| share(one, &who, "stat", &[Limit::Echo], STAT_OF_ECHO)),
        of(names::READ, &|one| share(one, &who, "open+read+close", &[Limit::Echo], READ_OF_ECHO)),
    ];
    all.push(of(names::CREATE, &|one| match clients {
        1 => lone_create(one, &who),
        64.. => share(one, &who, "create+write+close", &[Limit::Echo, Limit::Disk], CREATE_OF_MACHINE),
        _ => share(one, &who, "create+write+close", &[Limit::Sync, Limit::Trip], CREATE_OF_WAITING),
    }));
    if clients == CLIENTS {
        for (name, per_s) in
            [(names::CREATE, CREATES_PER_S), (names::STAT, STATS_PER_S), (names::REMOVE, REMOVES_PER_S)]
        {
            all.push(of(name, &|one| Some(rate(one, &who, per_s))));
        }
    }
    all.into_iter().flatten().collect()
}

/// The demands on batches of a lone client's files.
pub fn many(report: &Report, batch: usize) -> Vec<DemandVerdict> {
    let Some(target) = report.targets.first() else { return Vec::new() };
    let verdict = |gain: Gain| {
        let batched = format!("{}{BATCHED}", gain.verb);
        let wanted = match gain.verb.as_str() {
            "create" => BATCHED_CREATES,
            "write" | "read" => BATCHED_DATA,
            _ => return None,
        };
        let held = target.held(&batched);
        let binds = held.and_then(|one| one.held.bound.as_ref()?.among(&[Limit::Echo, Limit::Disk]));
        let who = format!("1 client, {batched} of {batch}");
        match binds.filter(|term| gain.verb != "create" && term.per_s < wanted * gain.singly_per_s) {
            Some(_) => share(held?, &who, "files", &[Limit::Echo, Limit::Disk], BATCHED_OF_MACHINE),
            None => Some(DemandVerdict {
                demand: format!("{who} ≥ {wanted:.0} × one by one"),
                measured: format!(
                    "{:.1} ×: {}/s against {}/s",
                    gain.times,
                    short(gain.batched_per_s),
                    short(gain.singly_per_s)
                ),
                is_met: gain.times >= wanted,
            }),
        }
    };
    gains(report).into_iter().filter_map(verdict).collect()
}

/// At least a share of the least of some bounds.
fn share(one: &HeldPhase, who: &str, what: &str, limits: &[Limit], wanted: f64) -> Option<DemandVerdict> {
    let term = one.held.bound.as_ref()?.among(limits)?;
    let reached = percent(one.held.measured, term.per_s)?;
    Some(DemandVerdict {
        demand: format!("{who}, {what} ≥ {wanted:.0} % of its bound ({})", term.limit),
        measured: format!(
            "{reached:.0} %: {}/s of {}/s = {}",
            short(one.held.measured),
            short(term.per_s),
            term.arithmetic
        ),
        is_met: reached >= wanted,
    })
}

fn rate(one: &HeldPhase, who: &str, wanted: f64) -> DemandVerdict {
    DemandVerdict {
        demand: format!("{who}, {} ≥ {}/s", one.phase, short(wanted)),
        measured: format!("{}/s", short(one.held.measured)),
        is_met: one.held.measured >= wanted,
    }
}

fn lone_create(one: &HeldPhase, who: &str) -> Option<DemandVerdict> {
    let allowed_us = one.machine.trip_us + one.machine.sync_us;
    let took_us = 1e6 / one.held.measured;
    let times = took_us / allowed_us;
    (allowed_us > 0.0).then(|| DemandVerdict {
        demand: format!("{who}, create+write+close within {LONE_CREATE} × (trip + sync)"),
        measured: format!(
            "{times:.2} ×: {took_us:.0} µs against {:.0} + {:.0}",
            one.machine.trip_us, one.machine.sync_us
        ),
        is_met: times <= LONE_CREATE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::{Cost, MachineRates, RateAndBound};
    use crate::many::ManyOptions;
    use crate::report::{PhaseResult, RunResult, Unit};
    use crate::whole::WholeOptions;
    use crate::workload::Workload;

    const MACHINE: MachineRates = MachineRates {
        trip_us: 100.0,
        echo_per_s: 80_000.0,
        sync_us: 300.0,
        disk_mb_per_s: 600.0,
        way_per_s: 0.0,
    };

    fn report(clients: usize, create_per_s: f64, stat_per_s: f64) -> Report {
        let machine = MACHINE;
        let phase = |phase: &str, measured: f64, syncs: f64, bytes: f64| {
            let cost = Cost { clients, round_trips: 1.0, syncs, bytes };
            let held = RateAndBound::new(measured, &cost, &machine);
            HeldPhase { phase: phase.to_owned(), held, cost, machine, group_bytes: 4096, cpu_us: 0.0 }
        };
        let runs = vec![("native".to_owned(), vec![RunResult { phases: Vec::new() }])];
        let workload = Workload::Whole(WholeOptions::default());
        let mut report = Report::new(workload, "threads".into(), "native".into(), runs);
        report.targets[0].held = vec![
            phase(names::CREATE, create_per_s, 1.0, 12_000.0),
            phase(names::STAT, stat_per_s, 0.0, 0.0),
            phase(names::READ, stat_per_s, 0.0, 0.0),
            phase(names::REMOVE, create_per_s, 1.0, 500.0),
        ];
        report
    }

    fn met(report: &Report, clients: usize) -> Vec<bool> {
        native(report, clients, false).iter().map(|verdict| verdict.is_met).collect()
    }

    #[test]
    fn sixteen_clients_are_held_against_waiting_and_against_rates() {
        // The bound is 16 ÷ 400 µs: 40,000/s.
        assert_eq!(met(&report(16, 24_100.0, 48_100.0), 16), [true; 6]);
        assert_eq!(met(&report(16, 23_900.0, 47_900.0), 16), [false, true, false, true, true, true]);
        assert_eq!(met(&report(16, 17_000.0, 39_000.0), 16), [false, false, false, false, false, false]);
    }

    #[test]
    fn sixty_four_clients_are_held_against_messages_and_the_disk() {
        // The disk binds: 50,000/s.
        assert_eq!(met(&report(64, 25_100.0, 50_000.0), 64), [true; 3]);
        assert_eq!(met(&report(64, 24_900.0, 50_000.0), 64), [true, true, false]);
    }

    #[test]
    fn a_lone_client_is_held_against_a_round_trip_and_a_sync() {
        // 600 µs are allowed.
        let verdicts = native(&report(1, 1_700.0, 50_000.0), 1, true);
        assert!(verdicts[2].is_met && verdicts[2].demand.contains("awake"), "{verdicts:?}");
        assert!(!native(&report(1, 1_600.0, 50_000.0), 1, false)[2].is_met);
    }

    #[test]
    fn a_verdict_says_the_demand_and_the_figures() {
        let words = native(&report(16, 10_000.0, 60_000.0), 16, false)[2].to_string();
        for part in ["NOT MET", "16 clients", "60 %", "25 %", "16 ÷ (trip 100.0 µs + sync 300.0 µs)"] {
            assert!(words.contains(part), "{part} is missing in {words}");
        }
    }

    /// A lone client that does a thousand files a second one by one, and so many in batches of 64.
    fn batches(per_s: f64) -> Report {
        let workload = Workload::Many(ManyOptions::default());
        let phase = |(phase, unit): (String, Unit)| {
            let took_s = if phase.ends_with(BATCHED) { 1024.0 / per_s } else { 1.024 };
            let ns = (took_s * 1e9) as u64;
            let (longest_ns, rank0_ns, wall_ns) = (ns, ns, ns);
            PhaseResult { phase, unit, ops: 1024, bytes: 0, longest_ns, rank0_ns, wall_ns, counts: None }
        };
        let run = RunResult { phases: workload.phases().into_iter().map(phase).collect() };
        let runs = vec![("native".to_owned(), vec![run])];
        Report::new(workload, "1 thread".into(), "native".into(), runs)
    }

    #[test]
    fn batches_are_held_against_the_same_one_by_one() {
        let met = |per_s| -> Vec<bool> { many(&batches(per_s), 64).iter().map(|v| v.is_met).collect() };
        assert_eq!(met(20_100.0), [true; 3]);
        assert_eq!(met(19_900.0), [false, true, true]);
        assert_eq!(met(7_900.0), [false; 3]);
    }

    #[test]
    fn where_the_disk_binds_before_eight_times_the_singles_its_rate_is_asked_for() {
        // The disk allows 600 MB/s ÷ 100,000 bytes: 6,000 files a second.
        let cost = Cost { clients: 1, round_trips: 1.0 / 64.0, syncs: 1.0 / 64.0, bytes: 100_000.0 };
        let verdict = |per_s: f64| {
            let mut report = batches(per_s);
            let held = RateAndBound::new(per_s, &cost, &MACHINE);
            let phase = "write_many".to_owned();
            let held = HeldPhase { phase, held, cost, machine: MACHINE, group_bytes: 0, cpu_us: 0.0 };
            report.targets[0].held = vec![held];
            many(&report, 64).swap_remove(1)
        };
        assert!(verdict(3_700.0).is_met && verdict(3_700.0).demand.contains("60 %"), "{}", verdict(3_700.0));
        assert!(!verdict(3_500.0).is_met, "{}", verdict(3_500.0));
    }
}
