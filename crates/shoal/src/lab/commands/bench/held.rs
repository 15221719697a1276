//! Compares figures with upper bounds, which the crate `model` computes from this machine's file. `shoal
//! bounds` measures the machine and writes the file.
//!
//! Most benchmarks measure echo and syncs beside every repetition ([`shoal_bench::beside`]), and do not use
//! this module. The benchmarks `directory`, `sweep`, `tail` and `techniques` use it, because they make no
//! such measurements. The arithmetic is the same in both cases ([`shoal_model`]). If the machine was never
//! measured, there are no bounds, and a line says how to measure it.

use crate::lab::commands::bounds::shelf;
use crate::{out, words};
use anyhow::Result;
use serde::Serialize;
use shoal_model::{Bound, Counts, Machine, Operation, Servers, Set, Setting, short};

/// A figure that has a bound.
pub struct Figure {
    /// In words.
    pub what: String,
    /// Operations a second; of transfers, those of `counts`.
    pub per_s: f64,
    /// The cost of one.
    pub counts: Counts,
    /// Which techniques: they say how many share a sync.
    pub set: Set,
    /// The circumstances.
    pub run: Run,
}

impl Figure {
    /// Of an operation of the tables.
    pub fn of(what: impl Into<String>, per_s: f64, operation: Operation, set: Set, run: Run) -> Figure {
        let counts = operation.counts(set, run.servers.into());
        Figure { what: what.into(), per_s, counts, set, run }
    }
}

/// The circumstances.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Servers, with metadata and data each.
    pub servers: u16,
    /// Clients, one operation under way each.
    pub clients: usize,
    /// A change is durable when it is answered.
    pub is_durable: bool,
}

/// A figure next to its bound.
#[derive(Serialize)]
pub struct Held {
    what: String,
    measured_per_s: f64,
    bound_per_s: f64,
    percent: f64,
    binds: String,
    arithmetic: Vec<String>,
}

/// The machine of its file; none where it was not measured.
pub struct Kept(Option<Machine>);

impl Kept {
    /// Read it: before anything is measured, so that an unreadable file does not waste a measurement.
    pub fn read() -> Result<Kept> {
        shelf::measured().map(Kept)
    }

    /// All figures of a benchmark, against it.
    pub fn hold(&self, figures: Vec<Figure>) -> Vec<Held> {
        let Some(machine) = &self.0 else { return Vec::new() };
        figures.into_iter().filter_map(|figure| held(figure, machine)).collect()
    }
}

fn held(figure: Figure, machine: &Machine) -> Option<Held> {
    let run = figure.run;
    let counts = if run.is_durable { figure.counts } else { figure.counts.without_syncs() };
    let clients = u32::try_from(run.clients).unwrap_or(u32::MAX);
    let servers = Servers::Both(run.servers.into());
    let setting = Setting { servers, per_sync: figure.set.per_sync(), ..Setting::of(machine, clients) };
    let bound = Bound::of(&counts, machine, &setting);
    Some(Held {
        what: figure.what,
        measured_per_s: figure.per_s,
        bound_per_s: bound.per_s(),
        percent: bound.percent(figure.per_s)?,
        binds: bound.binds()?.to_string(),
        arithmetic: bound.explain(),
    })
}

/// Tell people.
pub fn tell(all: &[Held], explain: bool) -> Result<()> {
    if all.is_empty() {
        return out::line("no bounds: this machine was not measured yet (`shoal bounds`, under a minute)");
    }
    out::line("beside the bounds of this machine, as `shoal bounds` measured it:")?;
    let mut table = words::table(&["", "measured", "bound", "percent", "what binds"]);
    for one in all {
        let rate = |per_s| format!("{}/s", short(per_s));
        let percent = format!("{:.0} %", one.percent);
        let (measured, bound) = (rate(one.measured_per_s), rate(one.bound_per_s));
        table.add_row([one.what.clone(), measured, bound, percent, one.binds.clone()]);
    }
    out::line(words::plain(&table))?;
    if explain {
        for one in all {
            out::line(&one.what)?;
            one.arithmetic.iter().try_for_each(|line| out::line(format!("    {line}")))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_nowhere_is_not_held_against_syncs() {
        let machine = Machine::named("pvfs-linux").expect("it comes with the program");
        let run = Run { servers: 8, clients: 1, is_durable: true };
        let create = |run| Figure::of("create", 100.0, Operation::Create, Set::Ours, run);
        let durable = held(create(run), &machine).expect("it has a bound");
        let scratch = held(create(Run { is_durable: false, ..run }), &machine).expect("it has a bound");
        assert!(durable.bound_per_s < scratch.bound_per_s, "{} {}", durable.bound_per_s, scratch.bound_per_s);
        assert!((durable.percent - 100.0 * 100.0 / durable.bound_per_s).abs() < 1e-9);
        assert!(!durable.arithmetic.is_empty());
    }

    #[test]
    fn each_figure_of_a_benchmark_is_held_under_its_own_circumstances() {
        let machine = Machine::named("pvfs-linux").expect("it comes with the program");
        let bound = |clients| {
            let run = Run { servers: 8, clients, is_durable: true };
            let stat = Figure::of("stat", 100.0, Operation::Stat, Set::Ours, run);
            held(stat, &machine).expect("it has a bound").bound_per_s
        };
        assert!(bound(1) < bound(4), "{} {}", bound(1), bound(4));
    }
}
