//! What an operation could reach at best on this machine: the arithmetic, in one place.
//!
//! An operation costs *round trips*, *syncs* one after the other, *bytes* on the disk, and, through a mount, the *way*
//! through the kernel. The machine gives each of these at a rate measured in the same run ([`Machine`]). With P clients that
//! each wait for their answer, a rate is bounded by
//!
//! ```text
//!   waiting   P ÷ (way + round trips × trip + syncs × sync)
//!   echo      plain echo's rate with the same clients ÷ round trips
//!   disk      the disk's bytes a second ÷ bytes an operation
//!   way       the pass-through's own rate
//! ```
//!
//! and the least of them *binds*. (Of a machine as a whole, before anything is run on it, `shoal_model::bound` tells the same
//! from a file: docs/BOUNDS.md.) Source: the thesis's chapter 4 ("estimated upper bound"), and the design's section 6.

use serde::{Deserialize, Serialize};

use crate::spread::percent;
use shoal_model::short;

/// What the machine did beside the run: medians.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// One round trip of plain echo, with as many clients and the same sizes, microseconds.
    pub trip_us: f64,
    /// Plain echo's rate, all clients together.
    pub echo_per_s: f64,
    /// One sync of a group of the run's own size, with a writer a server (but no more than clients), microseconds.
    pub sync_us: f64,
    /// What the disk takes of large durable writes from as many writers, 10^6 bytes a second.
    pub disk_mb_per_s: f64,
    /// The pass-through's rate of the same operation, all clients together; 0: no mount is involved.
    pub way_per_s: f64,
}

/// What one operation costs.
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

/// What may bind.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// What it is.
    pub limit: Limit,
    /// Operations a second.
    pub per_s: f64,
    /// The arithmetic, with the numbers in it.
    pub arithmetic: String,
}

/// All bounds of an operation; the first is the least, which binds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// From the least on.
    pub terms: Vec<Term>,
}

impl Bound {
    /// Of an operation's cost on a machine; `None` where nothing is known that bounds it.
    pub fn of(cost: &Cost, machine: &Machine) -> Option<Bound> {
        let mut terms: Vec<Term> = [waiting(cost, machine), echo(cost, machine), disk(cost, machine)]
            .into_iter()
            .flatten()
            .collect();
        terms.sort_by(|a, b| a.per_s.total_cmp(&b.per_s));
        (!terms.is_empty()).then_some(Bound { terms })
    }

    /// Operations a second, at most.
    pub fn per_s(&self) -> f64 {
        self.terms.first().map_or(f64::INFINITY, |term| term.per_s)
    }

    /// What binds.
    pub fn binds(&self) -> Option<Limit> {
        self.terms.first().map(|term| term.limit)
    }

    /// `measured` as a percentage of the bound.
    pub fn percent(&self, measured: f64) -> Option<f64> {
        percent(measured, self.per_s())
    }

    /// One term of it.
    pub fn term(&self, limits: &[Limit]) -> Option<&Term> {
        self.terms.iter().find(|term| limits.contains(&term.limit))
    }
}

/// Each client waits for its answer.
fn waiting(cost: &Cost, machine: &Machine) -> Option<Term> {
    let clients = cost.clients as f64;
    let way_us = if machine.way_per_s > 0.0 { clients / machine.way_per_s * 1e6 } else { 0.0 };
    let parts = [
        (Limit::Way, "way", 1.0, way_us),
        (Limit::Trip, "trip", cost.round_trips, machine.trip_us),
        (Limit::Sync, "sync", cost.syncs, machine.sync_us),
    ];
    let known = || parts.iter().filter(|(_, _, times, each_us)| times * each_us > 0.0);
    let most = known().max_by(|a, b| (a.2 * a.3).total_cmp(&(b.2 * b.3)))?;
    let all_us: f64 = known().map(|(_, _, times, each_us)| times * each_us).sum();
    let word = |(_, name, times, each_us): &(Limit, &str, f64, f64)| match *times == 1.0 {
        true => format!("{name} {each_us:.1} µs"),
        false => format!("{} × {name} {each_us:.1} µs", fraction(*times)),
    };
    let sum: Vec<String> = known().map(word).collect();
    let arithmetic = format!("{} ÷ ({})", cost.clients, sum.join(" + "));
    Some(Term { limit: most.0, per_s: clients / (all_us * 1e-6), arithmetic })
}

fn echo(cost: &Cost, machine: &Machine) -> Option<Term> {
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

fn disk(cost: &Cost, machine: &Machine) -> Option<Term> {
    (machine.disk_mb_per_s > 0.0 && cost.bytes > 0.0).then(|| Term {
        limit: Limit::Disk,
        per_s: machine.disk_mb_per_s * 1e6 / cost.bytes,
        arithmetic: format!("disk {:.0} MB/s ÷ {:.0} bytes", machine.disk_mb_per_s, cost.bytes),
    })
}

/// A measured rate beside its bound: what every benchmark prints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Held {
    /// Operations a second.
    pub measured: f64,
    /// What could be.
    pub bound: Option<Bound>,
}

impl Held {
    /// Hold a rate against what its cost allows.
    pub fn new(measured: f64, cost: &Cost, machine: &Machine) -> Held {
        Held { measured, bound: Bound::of(cost, machine) }
    }

    /// Percentage of the bound.
    pub fn percent(&self) -> Option<f64> {
        self.bound.as_ref()?.percent(self.measured)
    }

    /// Cells of a table: measured, bound, percent, what binds.
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

    const MACHINE: Machine = Machine {
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
        let bound = Bound::of(&create(4), &MACHINE).expect("bounded");
        assert!((bound.per_s() - 10_000.0).abs() < 1e-6, "4 ÷ 400 µs, not {}", bound.per_s());
        assert_eq!(bound.binds(), Some(Limit::Sync));
        assert_eq!(bound.terms[0].arithmetic, "4 ÷ (trip 100.0 µs + sync 300.0 µs)");
        assert_eq!(bound.percent(5_000.0), Some(50.0));
    }

    #[test]
    fn with_many_clients_bytes_bind_and_then_messages() {
        let bound = Bound::of(&create(64), &MACHINE).expect("bounded");
        assert_eq!((bound.binds(), bound.per_s()), (Some(Limit::Disk), 40_000.0));
        let small = Cost { bytes: 1_000.0, ..create(64) };
        let bound = Bound::of(&small, &MACHINE).expect("bounded");
        assert_eq!((bound.binds(), bound.per_s()), (Some(Limit::Echo), 120_000.0));
    }

    #[test]
    fn a_stat_has_neither_sync_nor_bytes() {
        let stat = Cost { clients: 16, round_trips: 1.0, ..Cost::default() };
        let bound = Bound::of(&stat, &MACHINE).expect("bounded");
        assert_eq!(bound.terms.iter().map(|t| t.limit).collect::<Vec<_>>(), [Limit::Echo, Limit::Trip]);
    }

    #[test]
    fn a_mount_adds_its_way_to_what_is_waited_for() {
        let machine = Machine { way_per_s: 10_000.0, echo_per_s: 0.0, disk_mb_per_s: 0.0, ..MACHINE };
        let cost = Cost { clients: 4, round_trips: 3.0, syncs: 1.0, bytes: 0.0 };
        let bound = Bound::of(&cost, &machine).expect("bounded");
        // 400 µs of way, 300 of trips, 300 of a sync.
        assert!((bound.per_s() - 4_000.0).abs() < 1e-6, "{}", bound.per_s());
        assert_eq!(bound.binds(), Some(Limit::Way));
        assert_eq!(bound.terms[0].arithmetic, "4 ÷ (way 400.0 µs + 3.00 × trip 100.0 µs + sync 300.0 µs)");
    }

    #[test]
    fn what_is_not_known_bounds_nothing() {
        assert_eq!(Bound::of(&create(4), &Machine::default()), None);
        let held = Held::new(7.0, &create(4), &Machine::default());
        assert_eq!(held.percent(), None);
        assert_eq!(held.cells(), ["7.00/s", "–", "–", "–"].map(str::to_owned));
        assert!(held.explain().is_empty());
    }

    #[test]
    fn every_term_is_explained_with_its_numbers() {
        let explained = Held::new(5_000.0, &create(4), &MACHINE).explain().join("\n");
        for words in ["4 ÷ (trip 100.0 µs + sync 300.0 µs)", "disk 480 MB/s ÷ 12000 bytes", "echo 120 k/s"]
        {
            assert!(explained.contains(words), "{words} is missing in\n{explained}");
        }
    }
}
