//! Which operations share a sync, by policy, counted on a simulated disk.

use crate::common;
use shoal_env::Env;
use shoal_env::sim::{Config, World};
use shoal_proto::Coalescing;
use shoal_store::{
    Ask, Changes, Collection, CollectionConfig, Lsn, MetadataSync, StoreCounters, SyncModes, open, settle,
};
use std::path::Path;
use std::time::Duration;

const PER_OP: Coalescing = Coalescing::PerOp;

fn config(name: &str, coalescing: Coalescing) -> CollectionConfig {
    CollectionConfig {
        sync_modes: SyncModes { coalescing, ..SyncModes::default() },
        segment_bytes: 4 << 20,
        ..common::config(&Path::new("/data").join(name))
    }
}

fn run<F: Future<Output = ()> + 'static>(body: impl FnOnce(Env) -> F + 'static) {
    let world = World::new(1, Config::default());
    let machine = world.machine("m");
    let process = world.process("server", machine);
    world.complete(process, body);
}

/// Operations that come in one turn.
fn apply(store: &Collection, count: usize) -> Lsn {
    let mut last = Lsn(0);
    for n in 0..count {
        let mut changes = Changes::default();
        changes.put(format!("Drow-{n}"), vec![7; 100]);
        last = store.apply(changes).unwrap();
    }
    last
}

async fn durable(store: &Collection, lsn: Lsn) {
    while store.durable() < lsn {
        store.progress().wait().await;
    }
}

/// The counts while `count` operations that came at once became durable, without a request for it.
async fn counted(store: &Collection, count: usize) -> StoreCounters {
    let before = store.counters();
    durable(store, apply(store, count)).await;
    let mut after = store.counters();
    after.group_syncs -= before.group_syncs;
    after.operation_syncs -= before.operation_syncs;
    after.operations_synced -= before.operations_synced;
    after.operations -= before.operations;
    for (after, before) in after.operations_per_sync.iter_mut().zip(before.operations_per_sync) {
        *after -= before;
    }
    after
}

#[test]
fn without_coalescing_each_operation_has_a_sync_of_its_own() {
    run(|env| async move {
        let store = open(env, config("per-op", PER_OP)).await.unwrap();
        let counts = counted(&store, 20).await;
        assert_eq!((counts.operations, counts.operation_syncs, counts.group_syncs), (20, 20, 20));
        assert_eq!(counts.operations_per_sync, [20, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!((counts.queue_depth, counts.queue_depth_max), (0, 20));
    });
}

#[test]
fn with_the_papers_marks_a_sync_completes_nine_operations_or_all_there_are() {
    run(|env| async move {
        let store = open(env, config("paper", Coalescing::PAPER)).await.unwrap();
        let counts = counted(&store, 20).await;
        assert_eq!((counts.operations_synced, counts.group_syncs), (20, 3));
        assert_eq!(counts.operations_per_sync, [0, 1, 0, 0, 2, 0, 0, 0], "nine, nine, two");
        assert_eq!(counts.coalescing_depth_max, 8);
        let counts = counted(&store, 1).await;
        assert_eq!(counts.operations_per_sync[0], 1, "one alone waits for nobody");
    });
}

#[test]
fn below_the_low_mark_operations_sync_alone() {
    run(|env| async move {
        let marks = Coalescing::Watermark { low: 3, high: 8 };
        let store = open(env, config("marks", marks)).await.unwrap();
        let counts = counted(&store, 5).await;
        assert_eq!(counts.operations_per_sync, [2, 0, 1, 0, 0, 0, 0, 0], "three, one, one");
        let counts = counted(&store, 30).await;
        assert_eq!(counts.operations_synced, 30);
    });
}

#[test]
fn pipelined_what_came_at_once_goes_at_once() {
    run(|env| async move {
        let store = open(env, config("pipelined", Coalescing::Pipelined)).await.unwrap();
        let counts = counted(&store, 20).await;
        assert_eq!((counts.operations_synced, counts.group_syncs), (20, 1));
    });
}

#[test]
fn a_failed_operation_goes_the_way_of_the_others() {
    run(|env| async move {
        let store = open(env, config("failed", Coalescing::PAPER)).await.unwrap();
        settle(&store).await.unwrap();
        assert_eq!(store.apply_failed(), Lsn(0), "with nobody before it, it waits for nothing");
        let last = apply(&store, 3);
        let operations = store.counters().operations;
        assert_eq!(store.apply_failed(), last);
        assert_eq!(store.counters().operations, operations + 1);
        durable(&store, last).await;
        assert_eq!(store.counters().operations_per_sync[2], 1, "three operations and the failed one");
        assert_eq!(store.apply_failed(), Lsn(0));
    });
}

#[test]
fn a_failed_operation_waits_for_nothing_where_the_journal_is_a_pipeline() {
    run(|env| async move {
        let store = open(env, config("failed", Coalescing::Pipelined)).await.unwrap();
        apply(&store, 3);
        assert_eq!(store.apply_failed(), Lsn(0));
    });
}

#[test]
fn where_replies_do_not_wait_the_marks_sync_behind_them() {
    run(|env| async move {
        for (name, coalescing, behind) in
            [("w", Coalescing::PAPER, true), ("o", PER_OP, false), ("p", Coalescing::Pipelined, false)]
        {
            let mut config = config(name, coalescing);
            config.sync_modes.metadata = MetadataSync::AtFsync;
            let store = open(env.clone(), config).await.unwrap();
            let last = apply(&store, 20);
            env.sleep(Duration::from_secs(1)).await;
            assert_eq!(store.written(), last);
            assert_eq!(store.durable() == last, behind, "{coalescing}");
        }
    });
}

#[test]
fn the_policy_changes_at_run_time_and_is_kept() {
    let world = World::new(1, Config::default());
    let machine = world.machine("m");
    let process = world.process("server", machine);
    let modes = SyncModes { coalescing: PER_OP, ..SyncModes::default() };
    let first = || config("kept", Coalescing::Watermark { low: 100, high: 0 });
    world.complete(process, |env| async move {
        let store = open(env, first()).await.unwrap();
        apply(&store, 20);
        store.set_sync_modes(modes).await.unwrap();
        settle(&store).await.unwrap();
        assert_eq!(counted(&store, 5).await.group_syncs, 5);
        store.close().await.unwrap();
    });
    world.complete(process, |env| async move {
        let store = open(env, first()).await.unwrap();
        assert_eq!(store.sync_modes(), modes);
        assert_eq!(counted(&store, 5).await.group_syncs, 5);
    });
}

#[test]
fn changes_wait_while_too_much_waits_to_be_written() {
    run(|env| async move {
        let limit = 64 << 10;
        let config = CollectionConfig { queue_bytes_max: limit, ..config("queue", Coalescing::Pipelined) };
        let store = open(env, config).await.unwrap();
        let ask = Ask { journal_bytes: 2_000, ..Ask::default() };
        let mut at_once = 0;
        loop {
            let Some(admitted) = futures_util::FutureExt::now_or_never(store.admit(ask)) else { break };
            let _admission = admitted.unwrap();
            let mut changes = Changes::default();
            changes.put(format!("Drow-{at_once}"), vec![7; 1_000]);
            store.apply(changes).unwrap();
            at_once += 1;
            assert!(at_once * 1_000 < limit * 2, "nothing bounds what waits");
        }
        assert!(at_once * 1_000 >= limit - 10_000, "only {at_once} waited");
        drop(store.admit(ask).await.unwrap());
        assert!(store.counters().queue_bytes <= limit as u64);
    });
}
