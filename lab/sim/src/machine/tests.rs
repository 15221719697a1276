//! A cluster on a machine, as a whole.

use super::*;
use shoal_proto::op::Owner;

const OWNER: Owner = Owner { mode: 0o755, uid: 1, gid: 1 };

pub(super) fn machine(name: &str) -> Machine {
    Machine::named(name).expect("it comes with the program")
}

/// A small cluster of a machine.
pub(super) fn small(machine: &Machine) -> Simulated<'_> {
    Simulated {
        machine,
        servers: 2,
        metadata_only: 0,
        client_nodes: 2,
        processes: 4,
        switches: Switches::default(),
        sync_modes: SyncModes::default(),
        module: ModuleKind::Disk,
        strip: 64 << 10,
        seed: 1,
    }
}

/// Each process makes a directory of its own and files in it; nanoseconds it took.
async fn creates(seat: Seat, files: u32) -> u64 {
    let begun = seat.env.now();
    for file in 0..files {
        let path = format!("/{}-{file}", seat.index);
        seat.client.mkdir_at(path.as_bytes(), OWNER).await.expect("made");
    }
    seat.together.wait().await;
    seat.env.now().since(begun).as_nanos() as u64
}

#[test]
fn every_machine_runs_a_cluster_and_twice_the_same() {
    for name in shoal_model::builtin() {
        let machine = machine(name);
        let run = || small(&machine).run_told(&Manner::default(), |seat| creates(seat, 5)).expect(name);
        let (first, second) = (run(), run());
        assert_eq!(first, second, "{name}");
        assert_eq!(first.values.len(), 4, "{name}");
        assert!(first.values.iter().all(|&ns| ns > 0), "{name}");
    }
}

#[test]
fn what_an_operation_takes_does_not_grow_with_how_many_wait_beside_it() {
    let machine = machine("bgp");
    // Each change has a sync of its own, so all wait at once, and the journal has as many groups as there are
    // changes.
    let events = |processes: u32| {
        let of = Simulated { processes, switches: Switches::BASELINE, ..small(&machine) };
        of.run_told(&Manner::uncached(), |seat| creates(seat, 1)).expect("run").events
    };
    let more = |few: u32, many: u32| (events(many) - events(few)) as f64 / f64::from(many - few);
    // Up to some hundred processes other things differ, too (27 events a process among 64, 36 from 256 on); a
    // cost that grows with the waiting ones doubles with each doubling of them.
    let (among_few, among_many) = (more(256, 512), more(512, 1024));
    assert!(
        among_many < 1.3 * among_few,
        "{among_few:.0} events a process among 512, {among_many:.0} among 1,024"
    );
}

#[test]
fn processes_are_spread_evenly_and_told_in_order() {
    let machine = machine("bgp");
    let of = Simulated { client_nodes: 3, processes: 8, ..small(&machine) };
    let seats = of.run(|seat| async move { (seat.index, seat.of, seat.client.id()) }).expect("run");
    assert_eq!(seats.iter().map(|seat| seat.0).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    let mut of_client: Vec<usize> = Vec::new();
    for group in seats.chunk_by(|a, b| a.2 == b.2) {
        of_client.push(group.len());
    }
    of_client.sort_unstable();
    assert_eq!(of_client, [2, 3, 3]);
}

#[test]
fn all_go_on_at_the_moment_when_the_last_one_came_however_busy_their_client_is() {
    let machine = machine("bgp");
    let of = Simulated { client_nodes: 1, processes: 5, ..small(&machine) };
    let told = of.run(|seat| async move {
        let begun = seat.env.now();
        seat.env.sleep(Duration::from_millis(10 * u64::from(seat.index))).await;
        let met = seat.meet().await;
        // Each call keeps the client for 400 us and more: the process that is woken last begins later than
        // the others.
        let first = seat.client.getattr(shoal_proto::Handle::ROOT).await.is_ok();
        (begun, met, seat.meet().await, first)
    });
    let told = told.expect("run");
    assert!(told.iter().all(|one| (one.1, one.2) == (told[0].1, told[0].2) && one.3), "{told:?}");
    assert!(told[0].1 >= told[0].0 + Duration::from_millis(40), "the last one slept so long: {told:?}");
    assert!(told[0].2 >= told[0].1 + Duration::from_millis(2), "five calls, one after the other: {told:?}");
}

#[test]
fn what_has_no_sense_is_refused_with_the_remedy() {
    let machine = machine("bgp");
    let refused = |of: Simulated<'_>| of.run(|_| async {}).expect_err("refused").to_string();
    assert_eq!(refused(Simulated { servers: 0, ..small(&machine) }), "servers is 0: write 1 to 256");
    assert_eq!(refused(Simulated { processes: 1, ..small(&machine) }), "processes is 1: write 2 to 65536");
    assert!(refused(Simulated { metadata_only: 2, ..small(&machine) }).starts_with("metadata_only is 2"));
}

#[test]
fn a_process_that_waits_for_ever_is_told() {
    let machine = machine("bgp");
    let manner = Manner { work_max: Duration::from_secs(60), ..Manner::default() };
    let stands = small(&machine).run_told(&manner, |seat| async move {
        if seat.index == 0 {
            std::future::pending::<()>().await;
        }
    });
    assert!(matches!(stands, Err(SimulatedError::Stands { ended: 3, of: 4, seed: 1, .. })));
}

/// Few files: the binding limit shows at once.
const EXTENT: phases::WorkExtent =
    phases::WorkExtent { files: 12, small_bytes: 4096, large_bytes: 8 << 20, block_bytes: 1 << 20 };

/// One cost binds an operation, another does not: halved, the one moves its rate, the other leaves it.
fn binds(of: &Simulated<'_>, phase: phases::Phase, one: halved::Parameter, other: halved::Parameter) {
    let gain = |parameter| halved::gain(of, EXTENT, phase, parameter).expect("simulated");
    let (moved, stayed) = (gain(one), gain(other));
    let words = format!(
        "{}, {}: {} halved {moved:.2}, {} {stayed:.2}",
        of.machine.name,
        phase.name(),
        one.name,
        other.name
    );
    assert!(moved > 1.4, "{words}");
    assert!((0.95..1.08).contains(&stayed), "{words}");
}

#[test]
fn stats_through_the_i_o_nodes_of_a_blue_gene_are_bound_by_their_processors_and_not_by_syncs() {
    let machine = machine("bgp");
    let of = Simulated { processes: 32, servers: 4, ..small(&machine) };
    binds(&of, phases::Phase::Stat, halved::CLIENT_CPU, halved::SYNC);
}

#[test]
fn creates_of_the_linux_cluster_are_bound_by_syncs_and_not_by_the_network() {
    let machine = machine("pvfs-linux");
    let switches = Switches { coalescing: shoal_proto::Coalescing::PerOp, ..Switches::default() };
    let of = Simulated { servers: 1, client_nodes: 4, processes: 8, switches, ..small(&machine) };
    binds(&of, phases::Phase::Create, halved::SYNC, halved::LINK);
}

#[test]
fn creates_of_the_thesis_s_cluster_are_bound_by_disk_accesses_and_not_by_processors() {
    let machine = machine("thesis-cluster");
    // All at one disk: with two at each, round trips count nearly as much.
    let of = Simulated { servers: 1, ..small(&machine) };
    binds(&of, phases::Phase::Create, halved::ACCESS, halved::SERVER_CPU);
}

#[test]
fn stats_of_a_client_alone_are_bound_by_round_trips_and_not_by_disks() {
    let machine = machine("thesis-cluster");
    let of = Simulated { client_nodes: 1, processes: 1, module: ModuleKind::Memory, ..small(&machine) };
    binds(&of, phases::Phase::Stat, halved::ROUND_TRIP, halved::ACCESS);
}

#[test]
fn large_reads_from_memory_are_bound_by_links_and_not_by_disks() {
    let machine = machine("thesis-cluster");
    let of = Simulated { module: ModuleKind::Memory, ..small(&machine) };
    binds(&of, phases::Phase::LargeRead, halved::LINK, halved::TRANSFER);
}

#[test]
fn stats_of_many_are_bound_by_a_server_s_processor_and_not_by_round_trips() {
    let machine = machine("thesis-cluster");
    let of = Simulated {
        servers: 1,
        client_nodes: 24,
        processes: 24,
        module: ModuleKind::Memory,
        ..small(&machine)
    };
    binds(&of, phases::Phase::Stat, halved::SERVER_CPU, halved::ROUND_TRIP);
}

#[test]
fn processor_time_is_simulated_as_it_usually_is_where_the_machine_says_so() {
    let least = Machine { usual: None, ..machine("pvfs-linux") };
    let mut usual = least.cpu.clone();
    usual.server.operation_us += 500.0;
    let slower = Machine { usual: Some(usual), ..least.clone() };
    let took = |machine: &Machine| {
        small(machine).run_told(&Manner::default(), |seat| creates(seat, 5)).expect("run").took
    };
    assert!(took(&slower) > took(&least));
}
