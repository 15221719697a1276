//! Each workload on a small simulated cluster: it does its stated work, in each set of techniques.

use super::*;
use crate::seat::{Phase, together};
use crate::simulated;
use shoal_model::Machine;
use std::time::Duration;

fn all() -> Vec<Workload> {
    use Workload::*;
    vec![NinePhases {}, Mdtest {}, MpiIoTest {}, MpiMdMore {}, Pvfs2Bench {}, Ls {}, Lookups {}, Unstuff {}]
}

fn setting(switches: &str) -> Setting {
    Setting {
        servers: 2,
        clients: 2,
        processes: 3,
        switches: switches.to_owned(),
        strip_bytes: 64 << 10,
        files: 4,
        total_bytes: 900_000,
        block_bytes: 30_000,
        lookups: 5,
        ..Setting::default()
    }
}

fn run(workload: &Workload, mut setting: Setting) -> Vec<(String, Phase)> {
    workload.settle(&mut setting);
    let machine = Machine::named("pvfs-linux").expect("it is there");
    let plan = Plan::new(workload, &setting, Duration::from_secs(300));
    let all =
        simulated::run(&plan, &machine, 1).unwrap_or_else(|words| panic!("{}: {words}", workload.word()));
    together(workload, &all).unwrap_or_else(|words| panic!("{}: {words}", workload.word()))
}

fn ops(phases: &[(String, Phase)], name: &str) -> u64 {
    phases.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no phase {name}")).1.ops
}

#[test]
fn every_workload_ends_well_with_each_set_of_techniques() {
    for workload in all() {
        for switches in ["baseline", "paper", "ours"] {
            let phases = run(&workload, setting(switches));
            assert_eq!(phases.len(), workload.phases().len());
            for (name, phase) in phases.iter().filter(|(name, _)| !name.starts_with("prepare")) {
                // A close has nothing to say to servers.
                let takes_time = phase.longest_ns > 0 || name == "close";
                assert!(phase.ops > 0 && takes_time, "{}, {switches}: {name}", workload.word());
            }
        }
    }
}

#[test]
fn amounts_are_those_of_all_processes() {
    let nine = run(&Workload::NinePhases {}, setting("ours"));
    assert_eq!((ops(&nine, "create"), ops(&nine, "mkdir")), (12, 3));
    let total = run(&Workload::MpiMdMore {}, Setting { files_total: 7, ..setting("ours") });
    assert_eq!((ops(&total, "create"), ops(&total, "resize")), (7, 7));
    let io = run(&Workload::MpiIoTest {}, setting("ours"));
    assert_eq!(ops(&io, "write"), 30, "900,000 bytes in blocks of 30,000");
    assert_eq!(ops(&run(&Workload::Lookups {}, setting("ours")), "absent_random"), 15);
}

#[test]
fn the_rates_of_each_second_add_up_to_all_operations() {
    let phases = run(&Workload::Pvfs2Bench {}, setting("paper"));
    for (name, phase) in phases.iter().filter(|(name, _)| !name.starts_with("prepare")) {
        assert_eq!(phase.per_second.iter().sum::<u64>(), phase.ops, "{name}");
    }
}

#[test]
fn two_runs_of_one_plan_are_the_same() {
    assert_eq!(run(&Workload::Mdtest {}, setting("paper")), run(&Workload::Mdtest {}, setting("paper")));
}

#[test]
fn a_process_whose_time_is_over_says_so_and_nobody_waits_for_it() {
    let (workload, setting) = (Workload::NinePhases {}, setting("ours"));
    let machine = Machine::named("pvfs-linux").expect("it is there");
    let plan = Plan::new(&workload, &setting, Duration::ZERO);
    let all = simulated::run(&plan, &machine, 1).expect("it ends");
    let words = together(&workload, &all).expect_err("there was no time");
    assert!(words.contains("--scale") && words.contains("create"), "{words}");
}
