//! The files of large streams under power cuts: those that no sync has covered, those that were there before.

mod common;

use common::{bytes, change, handle, info, moment, whole, write};
use shoal_env::sim::{Config, MachineId, ProcessId, World};
use shoal_store::{Collection, CollectionConfig, StreamChange, open, settle};
use std::path::Path;
use std::time::Duration;

fn config() -> CollectionConfig {
    CollectionConfig { segment_bytes: 256 << 10, ..common::config(Path::new("/data/files")) }
}

fn world(seed: u64) -> (World, MachineId, ProcessId) {
    let world = World::new(seed, Config::default());
    let machine = world.machine("m");
    let process = world.process("server", machine);
    (world, machine, process)
}

async fn made(store: &Collection) {
    change(store, handle(1), StreamChange::Create { generation: 1 }).await;
    settle(store).await.unwrap();
}

async fn emptied(store: &Collection) {
    let cut = StreamChange::Resize { generation: 1, size: 0, written_at: Some(moment(2)) };
    change(store, handle(1), cut).await;
    settle(store).await.unwrap();
}

#[test]
fn a_file_that_was_never_synced_may_be_taken_by_a_power_cut_and_its_stream_goes_on() {
    for seed in 0..40 {
        let (world, machine, process) = world(seed);
        let data = bytes(7, 100_000);
        let written = data.clone();
        world.complete(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            made(&store).await;
            write(&store, handle(1), 0, written).await;
            // The row that names the file is durable, the file is not.
            settle(&store).await.unwrap();
        });
        world.power_cut(machine);
        let again = bytes(8, 60_000);
        let (expected, wanted) = (data, again.clone());
        world.complete(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            let content = whole(&store, handle(1)).await;
            let own = |(at, byte): (usize, &u8)| *byte == 0 || expected.get(at) == Some(byte);
            assert!(content.iter().enumerate().all(own), "seed {seed}: bytes that nobody wrote");
            write(&store, handle(1), 0, wanted).await;
            store.fsync(handle(1)).await.unwrap();
        });
        world.power_cut(machine);
        world.complete(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            let content = whole(&store, handle(1)).await;
            assert!(content[..60_000] == again, "seed {seed}: what an fsync covered is gone");
        });
    }
}

#[test]
fn a_file_that_was_never_synced_survives_a_kill() {
    let (world, _, process) = world(3);
    world.complete(process, |env| async move {
        let store = open(env.clone(), config()).await.unwrap();
        made(&store).await;
        write(&store, handle(1), 0, bytes(7, 100_000)).await;
    });
    world.complete(process, |env| async move {
        let store = open(env.clone(), config()).await.unwrap();
        assert!(whole(&store, handle(1)).await == bytes(7, 100_000));
    });
}

#[test]
fn bytes_of_a_file_that_was_emptied_never_come_back() {
    for seed in 0..40 {
        let (world, machine, process) = world(100 + seed);
        world.complete(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            made(&store).await;
            write(&store, handle(1), 0, vec![9; 100_000].into()).await;
            store.fsync(handle(1)).await.unwrap();
            emptied(&store).await;
            if seed % 2 == 0 {
                // The removal of its file has come to its end, in the kernel's memory.
                env.sleep(Duration::from_millis(1)).await;
            }
            write(&store, handle(1), 30_000, vec![5; 10_000].into()).await;
            settle(&store).await.unwrap();
        });
        world.power_cut(machine);
        world.complete(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            let size = info(&store, handle(1)).await.unwrap().size;
            assert!(size <= 40_000, "seed {seed}: {size} bytes");
            assert!(whole(&store, handle(1)).await.iter().all(|byte| *byte != 9), "seed {seed}");
        });
    }
}

#[test]
fn what_was_written_while_a_sync_ran_is_covered_by_the_next_one() {
    for span in (0..400).step_by(10) {
        let (world, machine, process) = world(span);
        world.complete(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            made(&store).await;
            write(&store, handle(1), 0, bytes(1, 100_000)).await;
            let own = store.clone();
            let sync = env.spawn("sync", async move { own.fsync(handle(1)).await.map(drop).unwrap() });
            env.sleep(Duration::from_micros(span)).await;
            write(&store, handle(1), 50_000, bytes(2, 20_000)).await;
            drop(sync);
            store.fsync(handle(1)).await.unwrap();
            // Nothing to do: and nothing is forgotten by it.
            store.fsync(handle(1)).await.unwrap();
        });
        world.power_cut(machine);
        world.complete(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            let content = whole(&store, handle(1)).await;
            assert!(content[50_000..70_000] == bytes(2, 20_000), "{span} us");
            assert!(content[..50_000] == bytes(1, 100_000)[..50_000], "{span} us");
        });
    }
}
