//! Tests with machines made for the purpose: each term, and that no bound grows when a cost grows.

use super::*;
use crate::machine::{Congestion, Echo, Sync};
use crate::operations::{Operation, Set};
use proptest::prelude::*;

fn machine() -> Machine {
    let mut machine = Machine::named("thesis-cluster").expect("it is there");
    machine.link.echo = [(1, 64, 10e3), (16, 64, 120e3), (1, 8192, 8e3), (16, 8192, 60e3)]
        .map(|(outstanding, bytes, per_s)| Echo {
            outstanding,
            bytes,
            idle_us: 100.0,
            idle_per_s: per_s,
            awake_us: 50.0,
            awake_per_s: 2.0 * per_s,
        })
        .to_vec();
    machine.sync = [(4096, 1, 100.0, 10e3), (65_536, 1, 200.0, 5e3), (4096, 4, 300.0, 12e3)]
        .map(|(bytes, writers, sync_us, sync_per_s)| Sync {
            method: "o_dsync".to_owned(),
            bytes,
            writers,
            sync_us,
            sync_per_s,
            cpu_us: 0.0,
        })
        .to_vec();
    machine.link.congestion = Some(Congestion { free_senders: 4, loss_percent: 2.0, loss_percent_max: 50.0 });
    machine.cpu.client = Side {
        message_us: 5.0,
        operation_us: 3.0,
        change_us: 2.0,
        entry_us: 0.2,
        megabyte_us: 100.0,
        ..Side::default()
    };
    machine.cpu.server = machine.cpu.client.clone();
    machine.check_again();
    machine
}

impl Machine {
    fn check_again(&self) {
        let text = self.to_text("a test").expect("written");
        Machine::parse(&text, "test.toml").expect("a machine");
    }
}

fn setting(clients: u32, servers: Servers) -> Setting {
    Setting { servers, ..Setting::of(&machine(), clients) }
}

#[test]
fn a_durable_change_waits_for_its_trips_and_its_syncs() {
    let mut machine = machine();
    machine.cpu = crate::machine::Cpu::default();
    let counts = Counts { round_trips: 2.0, waited_syncs: 3.0, ..Counts::default() };
    let bound = Bound::of(&counts, &machine, &setting(1, Servers::Both(4)));
    assert_eq!(bound.binds(), Some(Limit::RoundTrip));
    assert!((bound.per_s() - 1e6 / (2.0 * 520.0 + 3.0 * 100.0)).abs() < 1e-9);
    assert_eq!(bound.terms[0].arithmetic, "1 ÷ (2 × round trip 520 µs + 3 × sync 100 µs)");
    assert_eq!(bound.explain().len(), bound.terms.len());
}

#[test]
fn where_no_sync_was_measured_it_is_a_disk_access() {
    let mut machine = machine();
    machine.sync.clear();
    let counts = Counts { waited_syncs: 1.0, ..Counts::default() };
    let bound = Bound::of(&counts, &machine, &setting(1, Servers::Both(1)));
    assert!((bound.per_s() - 1e6 / 8500.0).abs() < 1e-9);
}

#[test]
fn who_syncs_alone_waits_no_longer_than_among_others() {
    let mut machine = machine();
    (machine.cpu, machine.disk.shared) = (crate::machine::Cpu::default(), true);
    let asleep = machine.sync[0].clone();
    // 4 ms alone, 300 µs of each of four.
    (machine.sync[0].sync_us, machine.sync[0].sync_per_s) = (4000.0, 250.0);
    (machine.sync[1].sync_us, machine.sync[1].sync_per_s) = (4100.0, 240.0);
    let share = Share { syncs: 1.0, ..Share::default() };
    let counts = Counts { waited_syncs: 1.0, metadata: share, ..Counts::default() };
    let bound = |machine: &Machine| Bound::of(&counts, machine, &setting(1, Servers::Both(4)));
    assert!((bound(&machine).term(Limit::Sync).expect("it waits").per_s - 1e6 / 300.0).abs() < 1e-9);
    assert!((bound(&machine).term(Limit::Syncs).expect("it syncs").per_s - 12e3 / 4.0).abs() < 1e-9);
    machine.sync[0] = asleep;
    assert!((bound(&machine).term(Limit::Sync).expect("it waits").per_s - 1e6 / 100.0).abs() < 1e-9);
}

#[test]
fn bytes_up_to_the_smallest_sync_measured_cost_nothing_beside_it() {
    let mut machine = machine();
    (machine.cpu, machine.disk.shared) = (crate::machine::Cpu::default(), true);
    let syncs = |write_bytes| {
        let share = Share { syncs: 1.0, write_bytes, ..Share::default() };
        let counts = Counts { metadata: share, ..Counts::default() };
        let bound = Bound::of(&counts, &machine, &setting(1, Servers::Both(1)));
        bound.term(Limit::Syncs).expect("it syncs").per_s
    };
    assert!((syncs(0.0) - 10e3).abs() < 1e-6 && (syncs(4096.0) - 10e3).abs() < 1e-6);
    assert!((syncs(65_536.0) - 5e3).abs() < 1e-6, "{}", syncs(65_536.0));
}

#[test]
fn what_is_not_known_bounds_nothing() {
    let mut machine = machine();
    machine.disk = crate::machine::Disk::default();
    (machine.cpu, machine.sync, machine.link.echo) = Default::default();
    let counts = Counts { waited_syncs: 1.0, waited_reads: 5.0, ..Counts::default() };
    let bound = Bound::of(&counts, &machine, &setting(1, Servers::Both(1)));
    assert_eq!((bound.per_s(), bound.binds()), (f64::INFINITY, None));
    assert!(bound.explain().is_empty());
}

#[test]
fn one_sync_completes_all_that_wait_unless_a_policy_says_how_many() {
    let group = |clients, per_sync| Setting { per_sync, ..setting(clients, Servers::Both(4)) }.group();
    assert_eq!(
        [group(64, None), group(64, Some(9)), group(2, None), group(64, Some(1))],
        [16.0, 9.0, 1.0, 1.0]
    );
}

#[test]
fn many_senders_make_a_receiver_slower() {
    let counts = Counts { data: Share { bytes_out: 1e6, ..Share::default() }, ..Counts::default() };
    let link = |clients| {
        let bound = Bound::of(&counts, &machine(), &setting(clients, Servers::Both(1)));
        bound.term(Limit::ServerLink).expect("bytes").per_s
    };
    assert!((link(4) - 107.0).abs() < 1e-9);
    assert!((link(9) - 107.0 * 0.9).abs() < 1e-9);
    assert!((link(1000) - 107.0 * 0.5).abs() < 1e-9);
}

#[test]
fn the_busiest_of_split_servers_decides() {
    let share = |messages| Share { messages, ..Share::default() };
    let counts = Counts { metadata: share(3.0), data: share(10.0), ..Counts::default() };
    let of = |servers: Servers| servers.busiest(&counts, |s| s.messages);
    assert_eq!(of(Servers::Split { metadata: 1, data: 5 }), 3.0);
    assert_eq!(of(Servers::Split { metadata: 1, data: 2 }), 5.0);
    assert_eq!(of(Servers::Both(13)), 1.0);
}

/// Every cost of a machine, each grown by a factor of its own; a rate shrinks by it.
fn grown(machine: &Machine, by: &[f64]) -> Machine {
    let mut by = by.iter().cycle().copied();
    let mut m = machine.clone();
    let mut next = || by.next().unwrap_or(1.0);
    m.link.round_trip_us *= next();
    let factor = next();
    m.link.round_trip_awake_us = m.link.round_trip_awake_us.map(|us| us * factor);
    m.link.bandwidth_mb_per_s /= next();
    let factor = next();
    for echo in &mut m.link.echo {
        echo.idle_per_s /= factor;
        echo.awake_per_s /= factor;
    }
    if let Some(congestion) = &mut m.link.congestion {
        congestion.loss_percent *= next();
    }
    for seek in [&mut m.disk.seek_average_us, &mut m.disk.seek_max_us, &mut m.disk.seek_track_us]
        .into_iter()
        .flatten()
    {
        *seek *= next();
    }
    m.disk.rotation_us += next() - 1.0;
    let rates = [
        &mut m.disk.read_mb_per_s,
        &mut m.disk.write_mb_per_s,
        &mut m.disk.cache_read_mb_per_s,
        &mut m.disk.cache_write_mb_per_s,
    ];
    for rate in rates.into_iter().flatten() {
        *rate /= next();
    }
    let factor = next();
    for sync in &mut m.sync {
        sync.sync_us *= factor;
        sync.sync_per_s /= factor;
    }
    for side in [&mut m.cpu.client, &mut m.cpu.server] {
        for us in [
            &mut side.message_us,
            &mut side.operation_us,
            &mut side.change_us,
            &mut side.object_us,
            &mut side.removal_us,
            &mut side.entry_us,
            &mut side.megabyte_us,
        ] {
            *us *= next();
        }
    }
    m
}

fn share(v: &[f64]) -> Share {
    Share {
        messages: v[0],
        operations: v[1],
        changes: v[2],
        objects: v[2],
        removals: v[2] / 2.0,
        entries: v[3],
        bytes_out: 1e4 * v[4],
        bytes_in: 1e4 * v[5],
        syncs: v[6],
        reads: v[7],
        writes: v[8],
        read_bytes: 1e4 * v[9],
        write_bytes: 1e4 * v[10],
        buffered_bytes: 1e4 * v[11],
    }
}

fn counts(v: &[f64]) -> Counts {
    Counts {
        round_trips: v[0],
        waited_syncs: v[1],
        waited_objects: v[1],
        waited_removals: v[1] / 2.0,
        waited_reads: v[2],
        waited_writes: v[3],
        metadata: share(&v[4..16]),
        data: share(&v[16..28]),
        calls: v[28],
    }
}

fn settings() -> impl Strategy<Value = Setting> {
    let servers = prop_oneof![
        (1_u32..40).prop_map(Servers::Both),
        (1_u32..5, 1_u32..40).prop_map(|(metadata, data)| Servers::Split { metadata, data })
    ];
    let access = prop_oneof![Just(Access::Average), Just(Access::Worst), Just(Access::Track)];
    let caching = prop_oneof![Just(Caching::Nothing), Just(Caching::Reads), Just(Caching::Everything)];
    let per_sync = proptest::option::of(1_u32..20);
    (1_u32..200, any::<bool>(), servers, access, caching, per_sync).prop_map(
        |(clients, awake, servers, access, caching, per_sync)| Setting {
            clients,
            awake,
            servers,
            access,
            caching,
            per_sync,
        },
    )
}

fn machines() -> impl Strategy<Value = Machine> {
    (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(one, shared, synced, echoed)| {
        let mut machine = machine();
        (machine.nodes.one_machine, machine.disk.shared) = (one, shared);
        if !synced {
            machine.sync.clear();
        }
        if !echoed {
            machine.link.echo.clear();
        }
        machine
    })
}

proptest! {
    #[test]
    fn a_bound_never_grows_when_a_cost_of_the_machine_grows(
        machine in machines(),
        setting in settings(),
        values in proptest::collection::vec(0.0..20.0_f64, 29),
        by in proptest::collection::vec(1.0..4.0_f64, 25),
    ) {
        let counts = counts(&values);
        let before = Bound::of(&counts, &machine, &setting).per_s();
        let after = Bound::of(&counts, &grown(&machine, &by), &setting).per_s();
        prop_assert!(after <= before * (1.0 + 1e-9), "{before} grew to {after}");
    }

    #[test]
    fn a_bound_never_grows_when_a_count_grows(
        machine in machines(),
        setting in settings(),
        values in proptest::collection::vec(0.0..20.0_f64, 29),
        at in 0_usize..29,
        more in 0.0..20.0_f64,
    ) {
        let before = Bound::of(&counts(&values), &machine, &setting).per_s();
        let mut grown = values.clone();
        grown[at] += more;
        let after = Bound::of(&counts(&grown), &machine, &setting).per_s();
        prop_assert!(after <= before * (1.0 + 1e-9), "{before} grew to {after}");
    }

    #[test]
    fn more_servers_never_lower_a_bound_of_separate_computers(
        values in proptest::collection::vec(0.0..20.0_f64, 29),
        servers in 1_u32..30,
    ) {
        let mut machine = machine();
        machine.link.congestion = None;
        // A sync of every operation its own: groups shrink when clients are dealt to more servers.
        let of = |servers| {
            let setting = Setting { per_sync: Some(1), ..setting(8, Servers::Both(servers)) };
            Bound::of(&counts(&values), &machine, &setting)
        };
        prop_assert!(of(servers + 1).per_s() >= of(servers).per_s() * (1.0 - 1e-9));
    }

    #[test]
    fn every_term_of_an_operation_is_explained(
        clients in 1_u32..100,
        operation in proptest::sample::select(Operation::all()),
        set in proptest::sample::select(Set::all()),
    ) {
        let bound = Bound::of(&operation.counts(set, 4), &machine(), &setting(clients, Servers::Both(4)));
        prop_assert!(bound.per_s() > 0.0 && bound.per_s().is_finite());
        prop_assert!(bound.terms.iter().all(|term| term.arithmetic.contains(|c: char| c.is_ascii_digit())));
        prop_assert!(bound.terms.is_sorted_by(|a, b| a.per_s <= b.per_s));
    }
}
