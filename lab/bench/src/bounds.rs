//! The best possible rate of an operation on this machine: the arithmetic, in one place.
//!
//! An operation costs *round trips*, *syncs* one after the other, and *bytes* on the disk. Through a mount
//! it also costs the *way* through the kernel. The machine gives each of these at a rate measured in the
//! same run ([`MachineRates`]). With P clients that each wait for their answer, a rate is bounded by
//!
//! ```text
//!   waiting   P ÷ (way + round trips × trip + syncs × sync)
//!   echo      plain echo's rate with the same clients ÷ round trips
//!   disk      the disk's bytes a second ÷ bytes an operation
//!   way       the pass-through's own rate
//! ```
//!
//! The least of these limits *binds*. The rule that makes a bound from terms, and the length of a wait, are
//! [`shoal_model`]'s arithmetic. The input differs. `shoal_model::bound` takes a whole machine from a file,
//! before anything is run on it (docs/lab/BOUNDS.md), with processor time, links and the cost of bytes.
//! Here the input is a few medians, measured with each repetition, with the same clients, message sizes and
//! journal writes as in the run. So a machine that is slow at the moment is compared with itself. Source:
//! the thesis's chapter 4 ("estimated upper bound").

use serde::{Deserialize, Serialize};
use shoal_model::{Part, short, waiting};

/// The machine's rates during the run: medians.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineRates {
    /// One round trip of plain echo, with as many clients and the same sizes, microseconds.
    pub trip_us: f64,
    /// Plain echo's rate, all clients together.
    pub echo_per_s: f64,
    /// One sync of a group of the run's own size, with a writer a server (but no more than clients),
    /// microseconds.
    pub sync_us: f64,
    /// The disk's rate of large durable writes from as many writers, 10^6 bytes a second.
    pub disk_mb_per_s: f64,
    /// The pass-through's rate of the same operation, all clients together; 0: no mount is involved.
    pub way_per_s: f64,
}

/// The cost of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Clients that wait for their answers.
    pub clients: usize,
    /// Round trips one after the other.
    pub round_trips: f64,
    /// Syncs one after the other.
    pub syncs: f64,
    /// Bytes written to the disk, all that follows from it included.
    pub bytes: f64,
}

/// The possible limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Each client waits for round trips alone.
    Trip,
    /// Each client waits, most of it for syncs.
    Sync,
    /// Each client waits, most of it for the way through the kernel.
    Way,
    /// Messages.
    Echo,
    /// Bytes on the disk.
    Disk,
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Limit::Trip => "round trip",
            Limit::Sync => "sync",
            Limit::Way => "kernel and FUSE",
            Limit::Echo => "messages",
            Limit::Disk => "disk",
        })
    }
}

/// One bound, and where it comes from.
pub type Term = shoal_model::Term<Limit>;
/// All bounds of an operation; the first is the least, which binds.
pub type Bound = shoal_model::Bound<Limit>;

impl Cost {
    /// The rate that it allows on a machine; `None` where no bound is known.
    pub fn bound(&self, machine: &MachineRates) -> Option<Bound> {
        let terms = [wait(self, machine), echo(self, machine), disk(self, machine)];
        let bound = Bound::least_of(terms.into_iter().flatten());
        (!bound.terms.is_empty()).then_some(bound)
    }
}

/// Each client waits for its answer.
fn wait(cost: &Cost, machine: &MachineRates) -> Option<Term> {
    let clients = cost.clients as f64;
    let way_us = if machine.way_per_s > 0.0 { clients / machine.way_per_s * 1e6 } else { 0.0 };
    let part = |limit, name: &str, times, each_us| Part { limit, name: name.to_owned(), times, each_us };
    let parts = vec![
        part(Limit::Way, "way", 1.0, way_us),
        part(Limit::Trip, "trip", cost.round_trips, machine.trip_us),
        part(Limit::Sync, "sync", cost.syncs, machine.sync_us),
    ];
    waiting(cost.clients as u64, parts, |Part { name, times, each_us, .. }| match *times == 1.0 {
        true => format!("{name} {each_us:.1} µs"),
        false => format!("{} × {name} {each_us:.1} µs", fraction(*times)),
    })
}

fn echo(cost: &Cost, machine: &MachineRates) -> Option<Term> {
    (machine.echo_per_s > 0.0 && cost.round_trips > 0.0).then(|| Term {
        limit: Limit::Echo,
        per_s: machine.echo_per_s / cost.round_trips,
        arithmetic: match cost.round_trips == 1.0 {
            true => format!("echo {}/s", short(machine.echo_per_s)),
            false => format!("echo {}/s ÷ {}", short(machine.echo_per_s), fraction(cost.round_trips)),
        },
    })
}

/// A number of times that is not whole: of a batch it is a small part.
fn fraction(times: f64) -> String {
    if times < 0.1 { format!("{times:.4}") } else { format!("{times:.2}") }
}

fn disk(cost: &Cost, machine: &MachineRates) -> Option<Term> {
    (machine.disk_mb_per_s > 0.0 && cost.bytes > 0.0).then(|| Term {
        limit: Limit::Disk,
        per_s: machine.disk_mb_per_s * 1e6 / cost.bytes,
        arithmetic: format!("disk {:.0} MB/s ÷ {:.0} bytes", machine.disk_mb_per_s, cost.bytes),
    })
}

/// A measured rate next to its bound: every benchmark prints these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateAndBound {
    /// Operations a second.
    pub measured: f64,
    /// The bound.
    pub bound: Option<Bound>,
}

impl RateAndBound {
    /// Compare a rate with the bound from its cost.
    pub fn new(measured: f64, cost: &Cost, machine: &MachineRates) -> RateAndBound {
        RateAndBound { measured, bound: cost.bound(machine) }
    }

    /// Percentage of the bound.
    pub fn percent(&self) -> Option<f64> {
        self.bound.as_ref()?.percent(self.measured)
    }

    /// Cells of a table: measured, bound, percent, the binding limit.
    pub fn cells(&self) -> [String; 4] {
        let nothing = || "–".to_owned();
        let rate = |per_s: f64| format!("{}/s", short(per_s));
        [
            rate(self.measured),
            self.bound.as_ref().map_or_else(nothing, |bound| rate(bound.per_s())),
            self.percent().map_or_else(nothing, |percent| format!("{percent:.0} %")),
            self.bound.as_ref().and_then(Bound::binds).map_or_else(nothing, |limit| limit.to_string()),
        ]
    }

    /// The arithmetic of every term, the one that binds first.
    pub fn explain(&self) -> Vec<String> {
        let terms = self.bound.iter().flat_map(|bound| &bound.terms);
        terms
            .map(|t| format!("{:<15} {:>10}/s = {}", t.limit.to_string(), short(t.per_s), t.arithmetic))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: MachineRates = MachineRates {
        trip_us: 100.0,
        echo_per_s: 120_000.0,
        sync_us: 300.0,
        disk_mb_per_s: 480.0,
        way_per_s: 0.0,
    };

    fn create(clients: usize) -> Cost {
        Cost { clients, round_trips: 1.0, syncs: 1.0, bytes: 12_000.0 }
    }

    #[test]
    fn a_durable_create_waits_for_a_round_trip_and_a_sync() {
        let bound = create(4).bound(&MACHINE).expect("bounded");
        assert!((bound.per_s() - 10_000.0).abs() < 1e-6, "4 ÷ 400 µs, not {}", bound.per_s());
        assert_eq!(bound.binds(), Some(Limit::Sync));
        assert_eq!(bound.terms[0].arithmetic, "4 ÷ (trip 100.0 µs + sync 300.0 µs)");
        assert_eq!(bound.percent(5_000.0), Some(50.0));
    }

    #[test]
    fn with_many_clients_bytes_bind_and_then_messages() {
        let bound = create(64).bound(&MACHINE).expect("bounded");
        assert_eq!((bound.binds(), bound.per_s()), (Some(Limit::Disk), 40_000.0));
        let small = Cost { bytes: 1_000.0, ..create(64) };
        let bound = small.bound(&MACHINE).expect("bounded");
        assert_eq!((bound.binds(), bound.per_s()), (Some(Limit::Echo), 120_000.0));
    }

    #[test]
    fn a_stat_has_neither_sync_nor_bytes() {
        let stat = Cost { clients: 16, round_trips: 1.0, ..Cost::default() };
        let bound = stat.bound(&MACHINE).expect("bounded");
        assert_eq!(bound.terms.iter().map(|t| t.limit).collect::<Vec<_>>(), [Limit::Echo, Limit::Trip]);
    }

    #[test]
    fn a_mount_adds_its_way_to_what_is_waited_for() {
        let machine = MachineRates { way_per_s: 10_000.0, echo_per_s: 0.0, disk_mb_per_s: 0.0, ..MACHINE };
        let cost = Cost { clients: 4, round_trips: 3.0, syncs: 1.0, bytes: 0.0 };
        let bound = cost.bound(&machine).expect("bounded");
        // 400 µs of way, 300 of trips, 300 of a sync.
        assert!((bound.per_s() - 4_000.0).abs() < 1e-6, "{}", bound.per_s());
        assert_eq!(bound.binds(), Some(Limit::Way));
        assert_eq!(bound.terms[0].arithmetic, "4 ÷ (way 400.0 µs + 3.00 × trip 100.0 µs + sync 300.0 µs)");
    }

    #[test]
    fn what_is_not_known_bounds_nothing() {
        assert_eq!(create(4).bound(&MachineRates::default()), None);
        let held = RateAndBound::new(7.0, &create(4), &MachineRates::default());
        assert_eq!(held.percent(), None);
        assert_eq!(held.cells(), ["7.00/s", "–", "–", "–"].map(str::to_owned));
        assert!(held.explain().is_empty());
    }

    #[test]
    fn every_term_is_explained_with_its_numbers() {
        let explained = RateAndBound::new(5_000.0, &create(4), &MACHINE).explain().join("\n");
        for words in ["4 ÷ (trip 100.0 µs + sync 300.0 µs)", "disk 480 MB/s ÷ 12000 bytes", "echo 120 k/s"]
        {
            assert!(explained.contains(words), "{words} is missing in\n{explained}");
        }
    }
}
