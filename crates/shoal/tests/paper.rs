//! `shoal paper` from outside: the list, a computed experiment, a short run in each mode, the exit status,
//! the document.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn run(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shoal"));
    command.env_remove("SHOAL_KEY").env_remove("SHOAL_LOG").env("XDG_DATA_HOME", folder).current_dir(folder);
    command.arg("paper").args(args).output().expect("the program starts")
}

fn said(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "shoal paper {args:?} failed: {words}");
    String::from_utf8(output.stdout).expect("text")
}

fn refused(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert_eq!(output.status.code(), Some(1), "shoal paper {args:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// An experiment small enough to be run by a program that is not optimised.
const SMALL: &str = r#"
name = "small"
title = "a small one"
claim = "more clients do more"
machine = "pvfs-linux"
source = { paper = "none", section = "none", reproduces = [] }
workload = { kind = "mpi_md_more" }
parameters = { servers = 2, files = 4, switches = "ours" }
axis = { varies = "clients", values = [1, 2], label = "clients", value_label = "creates/s" }
quick = { scale = 0.5 }
series = [{ name = "creates", phase = "create" }]

[[check]]
claim = "nothing is above its bound"
kind = "own_bound"
shape = { below_bound = { series = "creates", percent = 5 } }
"#;

#[test]
fn the_experiments_are_listed() {
    let data = folder();
    let told = said(data.path(), &["--list"]);
    for words in ["pvfs-3a", "table II", "thesis-4-1", "lookups"] {
        assert!(told.contains(words), "{words} is missing in\n{told}");
    }
    let all: Value = serde_json::from_str(&said(data.path(), &["--list", "--json"])).expect("JSON");
    let one = &all.as_array().expect("a list")[0];
    assert_eq!((one["name"].as_str(), one["workload"].as_str()), (Some("pvfs-3a"), Some("nine_phases")));
}

#[test]
fn a_computed_experiment_is_told_drawn_and_held_against_the_paper() {
    let data = folder();
    let told = said(data.path(), &["thesis-4-1", "--out", "out"]);
    for words in ["computed for the machine thesis-cluster", "480.8", "worst access", "holds:"] {
        let words = words.replace("480.8", "481 /s");
        assert!(told.contains(&words), "{words} is missing in\n{told}");
    }
    let csv = std::fs::read_to_string(data.path().join("out/thesis-4-1-computed.csv")).expect("written");
    assert!(
        csv.starts_with("series,x,unit,ours") && csv.contains("\"worst access\",\"1\",\"/s\",6.57"),
        "{csv}"
    );
    let svg = std::fs::read_to_string(data.path().join("out/thesis-4-1-computed.svg")).expect("written");
    assert!(svg.contains("worst access: published"));
}

#[test]
fn a_claim_that_does_not_hold_is_told_and_is_the_exit_status() {
    let data = folder();
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/experiments/thesis-4-1.toml"),
    );
    let wrong = text.expect("it is there").replace("value = 6.6", "value = 66");
    std::fs::write(data.path().join("wrong.toml"), wrong).expect("written");
    let words = refused(data.path(), &["./wrong.toml"]);
    assert!(
        words.contains("Worst accesses: 6.6/s (arithmetic): DOES NOT HOLD") && words.contains("published 66"),
        "{words}"
    );
}

#[test]
fn a_file_of_ones_own_runs_simulated_and_real_and_the_document_has_both() {
    let data = folder();
    std::fs::write(data.path().join("small.toml"), SMALL).expect("written");
    let args = ["./small.toml", "--quick", "--quiet", "--json", "--reproduction", "doc/ALL.md"];
    let told: Value = serde_json::from_str(&said(data.path(), &args)).expect("JSON");
    let outcomes = told[0]["outcomes"].as_array().expect("a list");
    let modes: Vec<&str> = outcomes.iter().filter_map(|outcome| outcome["mode"].as_str()).collect();
    assert_eq!(modes, ["simulated", "real"]);
    for outcome in outcomes {
        let points = outcome["curves"][0]["points"].as_array().expect("a list");
        assert!(points.iter().all(|point| point["ours"]["median"].as_f64().is_some_and(|rate| rate > 0.0)));
    }
    assert_eq!(outcomes[0]["checks"][0]["verdict"], "holds", "under virtual time it is the same everywhere");
    let page = std::fs::read_to_string(data.path().join("doc/ALL.md")).expect("written");
    assert!(page.contains("### small") && page.contains("(figures/small-simulated.svg)"), "{page}");
    assert!(data.path().join("doc/figures/small-real.svg").exists());
    // The real run is printed again, next to a simulated one of another time.
    std::fs::write(data.path().join("real.json"), told.to_string()).expect("written");
    let again =
        "./small.toml --quick --simulated --beside real.json --quiet --json --reproduction doc/AGAIN.md";
    let again: Value =
        serde_json::from_str(&said(data.path(), &again.split(' ').collect::<Vec<_>>())).expect("JSON");
    assert_eq!(again[0]["outcomes"][1], outcomes[1]);
    let (page, again) = (page, std::fs::read_to_string(data.path().join("doc/AGAIN.md")).expect("written"));
    let tables = |page: &str| -> Vec<String> {
        page.lines().filter(|line| line.starts_with('|')).map(str::to_owned).collect()
    };
    assert_eq!(tables(&page), tables(&again));
}

#[test]
fn what_cannot_be_run_is_refused_with_the_remedy() {
    let data = folder();
    assert!(refused(data.path(), &["pvfs-99"]).contains("shoal paper --list"));
    std::fs::write(data.path().join("bad.toml"), SMALL.replace("claim", "claims")).expect("written");
    assert!(refused(data.path(), &["bad.toml"]).contains("docs/lab/EXPERIMENTS.md"));
    let output = run(data.path(), &["pvfs-3a", "--scale", "0"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("above 0"));
}
