//! Fits on machines whose rates are a formula.

use super::*;
use crate::made;
use crate::outcome::{FigureSeries, Point};
use crate::run::Mode;
use shoal_bench::Spread;

const TEXT: &str = r#"
name = "a"
title = "t"
claim = "c"
machine = "bgp"
source = { paper = "p", section = "s", reproduces = [] }
workload = { kind = "mdtest" }
parameters = { files = 10 }
axis = { varies = "phase", values = ["file_stat", "directory_stat", "file_removal"], label = "operation", value_label = "a second" }
series = [{ name = "baseline" }, { name = "optimized" }]
published = [
  { series = "baseline", x = "file_stat", value = 2000, unit = "/s", where = "there" },
  { series = "baseline", x = "directory_stat", value = 40000, unit = "/s", where = "there" },
  { series = "baseline", x = "file_removal", value = 1000, unit = "/s", where = "there" },
  { series = "optimized", x = "file_stat", value = 50000, unit = "/s", where = "there" },
]
fit = [
  { cost = "cpu.client.message_us", series = "baseline", x = "file_stat" },
  { cost = "cpu.client.operation_us", series = "baseline", x = "directory_stat" },
]
"#;

fn experiment() -> Experiment {
    Experiment::parse(TEXT, "a.toml").expect("right")
}

/// 33 messages a file's stat, one a directory's, and a removal that is something else.
fn formula(experiment: &Experiment, machine: &Machine) -> Result<ExperimentOutcome, String> {
    let client = &machine.cpu.client;
    let us = |place: &str| match place {
        "file_stat" => client.operation_us + 33.0 * client.message_us,
        "directory_stat" => client.operation_us + client.message_us,
        _ => 100_000.0,
    };
    let point = |x: &AxisPlace| {
        let ours = Spread::of(&[64e6 / us(&x.to_string())]);
        Point { x: x.clone(), ours, bound: None, published: None }
    };
    let curve = |name: &str| FigureSeries {
        name: name.to_owned(),
        metric: Metric::PerS,
        points: experiment.axis.values.iter().map(point).collect(),
        per_second: Vec::new(),
    };
    let curves = experiment.series.iter().map(|series| curve(&series.name)).collect();
    Ok(made::outcome("a", Mode::Simulated, curves))
}

#[test]
fn costs_are_found_and_every_row_that_was_run_is_told_with_its_residual() {
    let mut machine = Machine::named("bgp").expect("it is there");
    (machine.cpu.client.message_us, machine.cpu.client.operation_us) = (420.5, 379.5);
    let mut seen = 0;
    let mut simulate = |experiment: &Experiment, machine: &Machine| {
        seen += 1;
        assert_eq!(experiment.series.len(), 1, "what is not fitted on is not even run");
        formula(experiment, machine)
    };
    let fitted = fit(&experiment(), &machine, &mut simulate).expect("fitted");
    // 33 m + o = 32,000 µs and m + o = 1,600 µs.
    let close = |found: &FittedCost, wanted: f64| (found.after / wanted - 1.0).abs() < 0.02;
    assert!(close(&fitted.costs[0], 950.0) && close(&fitted.costs[1], 650.0), "{fitted:?}");
    assert_eq!((fitted.runs, fitted.is_near), (seen, true));
    let told: Vec<(&str, bool)> =
        fitted.rows.iter().map(|row| (row.cost.as_str(), row.percent.abs() < 1.1)).collect();
    assert_eq!(told, [("cpu.client.message_us", true), ("cpu.client.operation_us", true), ("", false)]);
    let table = fit_table(&fitted);
    assert!(table.contains("| baseline, file_removal | 1000 | 640 | -36.0 % | – |"), "{table}");
}

#[test]
fn costs_that_the_rows_do_not_tell_apart_are_not_fitted() {
    let machine = Machine::named("bgp").expect("it is there");
    let mut same = experiment();
    same.fit[1] = Fit { x: AxisPlace::Word("file_removal".into()), ..same.fit[1].clone() };
    let words = fit(&same, &machine, &mut formula).expect_err("no cost moves that row");
    assert!(words.contains("fit fewer costs"), "{words}");
    same.fit.clear();
    assert!(fit(&same, &machine, &mut formula).expect_err("nothing").contains("[[fit]]"));
}

#[test]
fn a_fit_that_does_not_come_near_says_so() {
    let machine = Machine::named("bgp").expect("it is there");
    // Whatever the message costs, a file's stat takes more than the 32,000 µs that were published.
    let mut slow = |experiment: &Experiment, machine: &Machine| {
        let mut machine = machine.clone();
        machine.cpu.client.message_us = 1000.0 + machine.cpu.client.message_us / 10.0;
        formula(experiment, &machine)
    };
    let fitted = fit(&experiment(), &machine, &mut slow).expect("it ends");
    assert!(!fitted.is_near, "{fitted:?}");
    assert!(fit_table(&fitted).contains("NOT FITTED"), "{fitted:?}");
}

#[test]
fn a_rate_moves_with_what_it_is_made_of() {
    let machine = Machine::named("bgp").expect("it is there");
    let costs = ["cpu.client.message_us".to_owned(), "link.round_trip_us".to_owned()];
    let told = sensitivity(&experiment(), &costs, &machine, &mut formula).expect("told");
    assert_eq!(told.rows.len(), 6);
    let (less, more) = told.rows[0].percent[0];
    assert!(less > 90.0 && more < -30.0, "{told:?}");
    assert_eq!(told.rows[0].percent[1], (0.0, 0.0));
    let table = sensitivity_table(&experiment(), &told);
    assert!(table.contains("link.round_trip_us −50 / +50 % |") && table.contains(" +0 / +0 |"), "{table}");
}

#[test]
fn what_a_fit_refers_to_must_be_there() {
    for (from, to, words) in [
        ("x = \"directory_stat\" },\n]\n", "x = \"file_creation\" },\n]\n", "published"),
        ("cost = \"cpu.client.operation_us\"", "cost = \"cpu.client.message_us\"", "twice"),
    ] {
        assert!(TEXT.contains(from), "{from}");
        let told = Experiment::parse(&TEXT.replace(from, to), "a.toml").expect_err(to).to_string();
        assert!(told.contains(words), "{told}");
    }
}
