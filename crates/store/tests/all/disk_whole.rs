//! A sync of a whole collection covers large streams too, also those that an earlier run of the server wrote.

use crate::common;
use crate::common::{bytes, change, handle, whole, write};
use shoal_env::sim::{Config, World};
use shoal_store::{Collection, CollectionConfig, StreamChange, open};
use std::path::Path;

const LARGE: usize = 50_000;

fn config() -> CollectionConfig {
    CollectionConfig { open_files: 4, ..common::config(Path::new("/data/whole")) }
}

async fn create(store: &Collection, n: u64) {
    change(store, handle(n), StreamChange::Create { generation: 1 }).await;
}

/// Large streams are written, and synced as a whole in this life or, after a kill, in the next; then power
/// is cut.
fn survives_power_cut(killed_before: bool) {
    for seed in 0..20 {
        let world = World::new(seed, Config::default());
        let machine = world.machine("m");
        let process = world.process("server", machine);
        // More than the number of open files.
        let streams = 1..=10_u64;
        let all = streams.clone();
        world.complete(process, |env| async move {
            let store = open(env, config()).await.unwrap();
            for n in all.clone() {
                create(&store, n).await;
            }
            store.sync().await.unwrap();
            for n in all {
                write(&store, handle(n), 0, bytes(n, LARGE)).await;
            }
            if !killed_before {
                store.sync().await.unwrap();
            }
        });
        if killed_before {
            world.crash(process);
            world.complete(process, |env| async move {
                let store = open(env, config()).await.unwrap();
                store.sync().await.unwrap();
            });
        }
        world.power_cut(machine);
        world.complete(process, |env| async move {
            let store = open(env, config()).await.unwrap();
            for n in streams {
                assert!(whole(&store, handle(n)).await == bytes(n, LARGE), "seed {seed}: stream {n}");
            }
        });
    }
}

#[test]
fn a_sync_of_all_makes_large_streams_durable() {
    survives_power_cut(false);
}

#[test]
fn a_sync_of_all_makes_durable_what_a_former_life_wrote_to_large_streams() {
    survives_power_cut(true);
}

#[test]
fn a_sync_of_all_costs_what_a_sync_of_the_journal_costs_where_no_file_was_changed() {
    let world = World::new(1, Config::default());
    let process = world.process("server", world.machine("m"));
    world.complete(process, |env| async move {
        let store = open(env.clone(), config()).await.unwrap();
        let cost = async |write_large: bool| {
            create(&store, if write_large { 1 } else { 2 }).await;
            if write_large {
                write(&store, handle(1), 0, bytes(1, LARGE)).await;
            }
            let before = env.counters().snapshot().syncs;
            store.sync().await.unwrap();
            env.counters().snapshot().syncs - before
        };
        let without = cost(false).await;
        assert!(cost(true).await > without);
    });
}
