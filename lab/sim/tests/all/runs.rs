//! The runs every change must pass: some seeds, a run that is the same twice, and the parts of the run.

use shoal_proto::Switches;
use shoal_sim::{
    ClusterConfig, Fault, Faults, MetadataSync, Outcome, RunConfig, RunReport, SyncModes, combinations, run,
    run_with,
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

/// Bytes that were appended while they were read, and so many changes at once that room of the journal was
/// short.
#[test]
fn without_faults_every_operation_has_an_answer_however_many_run_at_once() {
    for (seed, clients) in [(5223, 8), (5303, 12)] {
        let cluster = ClusterConfig { clients, ..ClusterConfig::default() };
        let report = run_with(seed, &RunConfig { cluster, ..with(&[]) });
        good(&report);
        assert_eq!(report.unknown, 0, "seed {seed}, {clients} clients");
    }
}

#[test]
fn many_faults_in_one_run_are_stood() {
    let rough = [(Fault::Crash, 3), (Fault::PowerCut, 3), (Fault::Partition, 2), (Fault::Pause, 2)];
    good(&run_with(11, &with(&rough)));
}

#[test]
fn every_technique_alone_and_every_pair_of_them_is_right() {
    let all = combinations::singles().into_iter().chain(combinations::covering());
    for (seed, switches) in (100..).zip(all) {
        let cluster = ClusterConfig { clients: 4, ..ClusterConfig::default() };
        let config = RunConfig { cluster, switches: Some(switches), operations: 25, ..with(&[]) };
        let report = run_with(seed, &config);
        assert!(report.violations.is_empty(), "{switches}, seed {seed}:\n{}", report.violations.join("\n"));
    }
}

#[test]
fn files_made_step_by_step_are_whole_or_gone_whoever_dies() {
    let faults = [(Fault::ClientCrash, 4), (Fault::Crash, 2), (Fault::PowerCut, 1), (Fault::StopAt, 2)];
    for (seed, words) in
        [(1, "baseline"), (2, "paper"), (3, "ours,compound=off"), (4, "baseline,stuffing=on")]
    {
        let switches = Some(words.parse().unwrap());
        good(&run_with(seed, &RunConfig { switches, ..with(&faults) }));
    }
}

#[test]
fn some_seeds_are_stood() {
    (24..27).for_each(|seed| good(&run(seed)));
}

#[test]
fn forked_files_are_made_used_and_removed_by_all_clients_over_crashes() {
    let mut made = 0;
    for seed in [2, 8] {
        let faults = [(Fault::Crash, 2), (Fault::PowerCut, 1), (Fault::ClientCrash, 2)];
        let report = run_with(seed, &RunConfig { forks: Some(true), ..with(&faults) });
        good(&report);
        made += report.kinds["mkforked"][0];
        // Operations that a forked file does not allow are never done.
        assert_eq!(report.kinds["refused"][0], 0, "{:?}", report.kinds);
    }
    assert!(made > 10, "{made} forked files were made");
}

#[test]
fn histories_of_contended_names_are_judged() {
    let report = run(5);
    assert!(report.registers > 5, "{} judged, {} not", report.registers, report.registers_skipped);
    assert!(report.kinds.len() > 15, "{:?}", report.kinds);
}

#[test]
fn servers_that_never_sync_are_caught() {
    let sync_modes = SyncModes { metadata: MetadataSync::Never, ..SyncModes::default() };
    let cluster = ClusterConfig { sync_modes, ..ClusterConfig::default() };
    let (switches, promised) = (Some(Switches::OURS), Some(SyncModes::default()));
    let careless = RunConfig { cluster, switches, promised, ..with(&[(Fault::PowerCut, 3)]) };
    let caught = (1..17).any(|seed| !run_with(seed, &careless).violations.is_empty());
    assert!(caught, "what was acknowledged and lost by a power cut was not missed");
}

#[test]
fn a_server_with_an_older_copy_of_its_folder_is_refused_and_has_everything_with_the_newest() {
    let mut refused = 0;
    for seed in 1..5 {
        let report = run_with(seed, &with(&[(Fault::OlderCopy, 2), (Fault::Crash, 1)]));
        good(&report);
        refused += report.outcomes[&Outcome::OlderCopyRefused];
    }
    assert!(refused >= 4, "{refused} starts were refused");
}

#[test]
fn servers_are_added_while_clients_work_and_hold_what_is_made_from_then_on() {
    let mut used = 0;
    for seed in 1..5 {
        let report = run_with(seed, &with(&[(Fault::AddServer, 2), (Fault::Crash, 1)]));
        good(&report);
        used += report.outcomes[&Outcome::AddedServerUsed];
    }
    assert!(used > 20, "{used} objects are on servers that were added");
}
