//! The runs every change must stand: some seeds, a run that is the same twice, and what the run is made of.

use shoal_sim::{ClusterConfig, DataSync, MetadataSync, RunConfig, RunReport, SyncModes, run, run_with};

fn good(report: &RunReport) {
    assert!(
        report.violations.is_empty(),
        "seed {}:\n{}\nfaults:\n{}",
        report.seed,
        report.violations.join("\n"),
        report.faults.join("\n")
    );
}

#[test]
fn one_seed_is_one_run_and_another_is_another() {
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first.trace_hash, run(2).trace_hash);
}

#[test]
fn a_crash_and_a_power_cut_take_nothing_that_was_acknowledged() {
    let report = run(7);
    good(&report);
    assert!(report.faults.iter().any(|fault| fault.contains("is killed")), "{:?}", report.faults);
    assert!(report.faults.iter().any(|fault| fault.contains("loses its power")), "{:?}", report.faults);
    assert!(report.operations >= 500 && report.acknowledged > 300, "{report:?}");
}

#[test]
fn without_faults_every_outcome_is_known() {
    let calm = RunConfig { crashes: 0, power_cuts: 0, partitions: 0, pauses: 0, ..RunConfig::default() };
    let report = run_with(3, &calm);
    good(&report);
    assert!(report.faults.is_empty());
    assert_eq!(report.operations, report.acknowledged + report.refused + report.unknown);
}

#[test]
fn many_faults_in_one_run_are_stood() {
    let rough = RunConfig { crashes: 3, power_cuts: 3, partitions: 2, pauses: 2, ..RunConfig::default() };
    good(&run_with(11, &rough));
}

#[test]
fn some_seeds_are_stood() {
    (24..27).for_each(|seed| good(&run(seed)));
}

#[test]
fn servers_that_never_sync_are_caught() {
    let sync_modes = SyncModes { metadata: MetadataSync::Never, data: DataSync::AtFsync };
    let cluster = ClusterConfig { sync_modes, ..ClusterConfig::default() };
    let careless = RunConfig { cluster, crashes: 0, power_cuts: 3, ..RunConfig::default() };
    let caught = (1..5).any(|seed| !run_with(seed, &careless).violations.is_empty());
    assert!(caught, "what was acknowledged and lost by a power cut was not missed");
}
