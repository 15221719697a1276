//! The machine's limits are measured, all of them, and reported.

use std::time::Duration;

use shoal_bench::probe::{ProbeOptions, ProbeReport, probe};

#[test]
fn every_limit_is_measured_in_every_round_and_nothing_is_left() {
    let dir = tempfile::tempdir_in(".").unwrap();
    let options = ProbeOptions {
        dir: dir.path().to_owned(),
        duration: Duration::from_millis(10),
        connections: vec![1, 4],
        writers: vec![1, 2],
        copy_bytes: 3 << 20,
        ..ProbeOptions::default()
    };
    let report = probe(&options, 2).unwrap();
    assert_eq!(report.rounds, 2);
    assert_eq!(report.echo.len(), 3, "one and four connections asleep, and one awake");
    assert!(report.echo.iter().all(|echo| echo.round_trips_per_s.min > 0.0));
    assert_eq!(report.sync.len(), 4);
    assert!(report.sync.iter().any(|sync| sync.syncs_per_s.is_some_and(|rate| rate.median > 0.0)));
    assert!(report.copy.as_ref().is_some_and(|copy| copy.mb_per_s.median > 0.0));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    let back: ProbeReport = serde_json::from_str(&report.to_json().unwrap()).unwrap();
    assert_eq!(back, report);
    assert!(report.to_table().contains("TCP round trips, 4 connections"));
}

#[test]
fn a_probe_that_makes_no_sense_is_refused() {
    let options = ProbeOptions { message: 0, ..ProbeOptions::default() };
    assert!(probe(&options, 1).is_err());
    let options = ProbeOptions { connections: vec![0], ..ProbeOptions::default() };
    assert!(probe(&options, 1).is_err());
}
