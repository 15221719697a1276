//! No simulated figure is above its bound: else a clock, a count, a bound or a machine's file is wrong.
//!
//! The tests run all experiments, shortened. This takes half a minute in an optimised build and many minutes
//! in any other build, so only an optimised build has these tests: `cargo test --profile quick -p
//! shoal-experiment --test bounds`. `tests/run short paper` runs them.

#![cfg(not(debug_assertions))]

use shoal_experiment::run::{Amount, Memo, Run, RunError, SimulatedGround};
use shoal_experiment::{Experiment, builtin};
use shoal_model::Machine;
use std::time::Duration;

/// A phase's first and last moments may take it so far above.
const PERCENT_MAX: f64 = 103.0;

/// The cells of an experiment's short run that are above their bounds, in words.
fn above(experiment: &Experiment, memo: &mut Memo) -> Vec<String> {
    let machine = Machine::named(&experiment.machine).expect("it comes with the program");
    let amount = Amount { quick: true, ..Amount::default() };
    let run = Run { experiment, amount, patience: Duration::from_secs(600) };
    let outcome = match run.go(&mut SimulatedGround { machine, seed: 1 }, memo, &mut |_| {}) {
        Err(RunError::Skipped { .. }) => return Vec::new(),
        other => other.expect("it runs"),
    };
    let mut above = Vec::new();
    for curve in &outcome.curves {
        for point in &curve.points {
            let percent = point.percent(curve.metric).unwrap_or(0.0);
            if percent > PERCENT_MAX {
                above.push(format!("{}, {} at {}: {percent:.1} %", outcome.name, curve.name, point.x));
            }
        }
    }
    above
}

/// All experiments of which something is run and whose names begin so.
fn none_is_above(begins: &str) {
    let mut memo = Memo::default();
    let all = builtin::all().expect("they are right");
    let of = all.iter().filter(|experiment| experiment.name.starts_with(begins));
    let run = of.filter(|experiment| !experiment.workload.is_computed());
    let above: Vec<String> = run.flat_map(|experiment| above(experiment, &mut memo)).collect();
    assert!(above.is_empty(), "above their bounds:\n{}", above.join("\n"));
}

#[test]
fn nothing_on_the_linux_cluster_of_the_small_file_paper_is_above_its_bound() {
    none_is_above("pvfs-");
}

#[test]
fn nothing_on_the_blue_gene_is_above_its_bound() {
    none_is_above("bgp-");
}

#[test]
fn no_block_or_large_file_of_the_thesis_is_above_its_bound() {
    ["thesis-7-blocks", "thesis-7-large", "thesis-7-1d"].into_iter().for_each(none_is_above);
}

#[test]
fn no_create_of_the_thesis_is_above_its_bound() {
    let rest = ["thesis-7-create", "thesis-7-clients", "thesis-7-1m", "thesis-7-chiba"];
    rest.into_iter().for_each(none_is_above);
}
