//! Deferred changes: written at once, durable on request, and within a second at the latest; in order
//! always.

use crate::common;
use crate::common::{get_row, put_row};
use shoal_env::Env;
use shoal_env::sim::{Config, World};
use shoal_proto::Coalescing;
use shoal_store::{
    Changes, Collection, CollectionConfig, Lookup, Lsn, MetadataSync, Strength, SyncModes, open,
};
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// The longest time after its reply in which a power cut may lose a change.
const SECOND: Duration = Duration::from_secs(1);

fn config(modes: SyncModes) -> CollectionConfig {
    CollectionConfig { sync_modes: modes, ..common::config(Path::new("/data/deferred")) }
}

fn run<F: Future<Output = ()> + 'static>(
    modes: SyncModes,
    body: impl FnOnce(Env, Collection) -> F + 'static,
) {
    let world = World::new(1, Config::default());
    let process = world.process("server", world.machine("m"));
    world.complete(process, move |env| async move {
        let store = open(env.clone(), config(modes)).await.unwrap();
        put_row(&store, "Dfirst", "1").await;
        // Work left by the start ends.
        env.sleep(Duration::from_secs(5)).await;
        body(env, store).await;
    });
}

fn defer(store: &Collection, key: &str, value: &str) -> Lsn {
    let mut changes = Changes { strength: Strength::Deferred, ..Changes::default() };
    changes.put(key.to_owned(), value.to_owned());
    store.apply(changes).unwrap()
}

async fn until(store: &Collection, is: impl Fn(&Collection) -> bool) {
    while !is(store) {
        let moved = store.progress().wait();
        if !is(store) {
            moved.await;
        }
    }
}

/// The LSN that a reader of the row waits for.
fn seen(store: &Collection, key: &str) -> Lsn {
    match store.lookup(key.as_bytes(), &Default::default()) {
        Lookup::Found(row) => row.lsn,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_deferred_change_is_written_at_once_without_a_sync_and_durable_within_a_second() {
    run(SyncModes::default(), |env, store| async move {
        let (began, syncs) = (env.now(), store.counters().group_syncs);
        let lsn = defer(&store, "Da", "1");
        until(&store, |store| store.written() >= lsn).await;
        assert!(env.now().since(began) < Duration::from_millis(10));
        assert_eq!((store.counters().group_syncs, seen(&store, "Da")), (syncs, lsn));
        // More come all the time, and no task waits.
        let mut newest = lsn;
        while store.durable() < lsn {
            env.sleep(Duration::from_millis(10)).await;
            newest = defer(&store, "Da", "2");
        }
        assert!(env.now().since(began) < SECOND, "{:?}", env.now().since(began));
        let last = env.now();
        until(&store, |store| store.durable() >= newest).await;
        assert!(env.now().since(last) < SECOND);
        let syncs = store.counters().group_syncs - syncs;
        assert!((2..=3).contains(&syncs), "{syncs} syncs for all of them");
    });
}

#[test]
fn a_deferred_change_that_somebody_needs_durable_is_synced_at_once() {
    run(SyncModes::default(), |env, store| async move {
        let (began, lsn) = (env.now(), defer(&store, "Da", "1"));
        until(&store, |store| store.written() >= lsn).await;
        store.want_durable(seen(&store, "Da"));
        until(&store, |store| store.durable() >= lsn).await;
        assert!(env.now().since(began) < Duration::from_millis(100), "{:?}", env.now().since(began));
        // Requested before it is written.
        let (began, lsn) = (env.now(), defer(&store, "Da", "2"));
        store.want_durable(lsn);
        until(&store, |store| store.durable() >= lsn).await;
        assert!(env.now().since(began) < Duration::from_millis(100), "{:?}", env.now().since(began));
    });
}

#[test]
fn the_sync_of_a_later_strong_change_makes_deferred_ones_durable_and_is_not_asked_for_twice() {
    for coalescing in [Coalescing::Pipelined, Coalescing::PAPER, Coalescing::PerOp] {
        run(SyncModes { coalescing, ..SyncModes::default() }, move |env, store| async move {
            let (began, syncs) = (env.now(), store.counters().group_syncs);
            let lsn = defer(&store, "Da", "1");
            until(&store, |store| store.written() >= lsn).await;
            let mut strong = Changes::default();
            strong.put("Db", "1");
            let strong = store.apply(strong).unwrap();
            store.want_durable(lsn);
            store.want_durable(strong);
            until(&store, |store| store.durable() >= strong).await;
            assert!(env.now().since(began) < Duration::from_millis(100));
            assert_eq!(store.counters().group_syncs, syncs + 1, "{coalescing:?}");
            // Nor later, by the clock.
            env.sleep(2 * SECOND).await;
            assert_eq!(store.counters().group_syncs, syncs + 1, "{coalescing:?}");
        });
    }
}

#[test]
fn where_metadata_is_not_durable_at_reply_a_deferred_change_is_not_synced_by_itself() {
    for metadata in [MetadataSync::AtFsync, MetadataSync::Never] {
        run(SyncModes { metadata, ..SyncModes::default() }, |env, store| async move {
            let lsn = defer(&store, "Da", "1");
            env.sleep(3 * SECOND).await;
            assert!(store.written() >= lsn && store.durable() < lsn);
        });
    }
}

/// The remaining changes of a series, 20 ms apart, by the number of replies: over many moments of a power
/// cut, or of a kill.
fn left(power_cut: bool) -> Vec<(usize, usize, bool)> {
    const CHANGES: usize = 120;
    (0..40)
        .map(|seed| {
            let world = World::new(seed, Config::default());
            let machine = world.machine("m");
            let process = world.process("server", machine);
            let answered = Rc::new(Cell::new(0));
            let told = answered.clone();
            world.start(process, move |env| async move {
                let store = open(env.clone(), config(SyncModes::default())).await.unwrap();
                for n in 0..CHANGES {
                    let lsn = defer(&store, &format!("Drow-{n}"), "1");
                    until(&store, |store| store.written() >= lsn).await;
                    told.set(n + 1);
                    env.sleep(Duration::from_millis(20)).await;
                }
                std::future::pending::<()>().await;
            });
            world.run_for(Duration::from_millis(100 + 60 * seed));
            match power_cut {
                true => world.power_cut(machine),
                false => world.crash(process),
            }
            let found = Rc::new(Cell::new((0, true)));
            let finds = found.clone();
            world.complete(process, move |env| async move {
                let store = open(env, config(SyncModes::default())).await.unwrap();
                for n in 0..CHANGES {
                    if get_row(&store, &format!("Drow-{n}")).await.is_some() {
                        let (count, in_order) = finds.get();
                        finds.set((count + 1, in_order && count == n));
                    }
                }
            });
            let (count, in_order) = found.get();
            (answered.get(), count, in_order)
        })
        .collect()
}

#[test]
fn a_power_cut_takes_the_deferred_changes_of_a_last_second_at_most_and_in_order() {
    let left = left(true);
    for &(answered, left, in_order) in &left {
        // A second's worth, and the one whose reply was on its way.
        assert!(in_order && left + 51 >= answered, "{left} of {answered} are left, in order {in_order}");
    }
    assert!(left.iter().any(|(answered, left, _)| left < answered), "none was lost: this test says nothing");
}

#[test]
fn a_kill_takes_no_deferred_change_that_was_answered() {
    for (answered, left, in_order) in left(false) {
        assert!(in_order && left >= answered, "{left} of {answered} are left, in order {in_order}");
    }
}
