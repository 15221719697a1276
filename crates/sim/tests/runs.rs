//! The runs every change must stand: some seeds, a run that is the same twice, and what the run is made of.

use shoal_sim::{
    ClusterConfig, DataSync, Fault, Faults, MetadataSync, RunConfig, RunReport, SyncModes, run, run_with,
};

fn good(report: &RunReport) {
    assert!(
        report.violations.is_empty(),
        "seed {}:\n{}\nfaults:\n{}",
        report.seed,
        report.violations.join("\n"),
        report.faults.join("\n")
    );
}

fn with(faults: &[(Fault, u32)]) -> RunConfig {
    RunConfig { faults: Some(Faults::of(faults)), ..RunConfig::default() }
}

#[test]
fn one_seed_is_one_run_and_another_is_another() {
    let first = run(1);
    assert_eq!(first, run(1));
    assert_ne!(first.trace_hash, run(2).trace_hash);
}

#[test]
fn a_crash_and_a_power_cut_take_nothing_that_was_acknowledged() {
    let report = run_with(7, &with(&[(Fault::Crash, 1), (Fault::PowerCut, 1)]));
    good(&report);
    assert!(report.faults.iter().any(|fault| fault.contains("is killed")), "{:?}", report.faults);
    assert!(report.faults.iter().any(|fault| fault.contains("loses its power")), "{:?}", report.faults);
    assert!(report.operations >= 500 && report.acknowledged > 300, "{report:?}");
}

#[test]
fn without_faults_every_outcome_is_known() {
    let report = run_with(3, &with(&[]));
    good(&report);
    assert!(report.faults.is_empty());
    assert_eq!(report.operations, report.acknowledged + report.refused + report.unknown);
}

#[test]
fn many_faults_in_one_run_are_stood() {
    let rough = [(Fault::Crash, 3), (Fault::PowerCut, 3), (Fault::Partition, 2), (Fault::Pause, 2)];
    good(&run_with(11, &with(&rough)));
}

#[test]
fn some_seeds_are_stood() {
    (24..27).for_each(|seed| good(&run(seed)));
}

#[test]
fn seeds_that_once_broke_a_promise_are_stood() {
    [126, 541, 1024, 1280, 20_043, 40_008].into_iter().for_each(|seed| good(&run(seed)));
}

#[test]
fn histories_of_contended_names_are_judged() {
    let report = run(5);
    assert!(report.registers > 5, "{} judged, {} not", report.registers, report.registers_skipped);
    assert!(report.kinds.len() > 15, "{:?}", report.kinds);
}

#[test]
fn servers_that_never_sync_are_caught() {
    let sync_modes = SyncModes { metadata: MetadataSync::Never, data: DataSync::AtFsync };
    let cluster = ClusterConfig { sync_modes, ..ClusterConfig::default() };
    let careless = RunConfig { cluster, ..with(&[(Fault::PowerCut, 3)]) };
    let caught = (1..5).any(|seed| !run_with(seed, &careless).violations.is_empty());
    assert!(caught, "what was acknowledged and lost by a power cut was not missed");
}

#[test]
fn each_kind_of_fault_is_stood() {
    for fault in Fault::ALL {
        good(&run_with(5, &with(&[(fault, 2)])));
    }
}
