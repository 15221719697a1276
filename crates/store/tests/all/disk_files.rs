//! The files of large streams under power cuts: files that no sync has covered yet, and synced files.

use crate::common;
use crate::common::{bytes, change, handle, info, moment, whole, write};
use shoal_env::sim::{Config, MachineId, ProcessId, World};
use shoal_pattern::ViewRun;
use shoal_store::{Changes, Collection, CollectionConfig, Over, StreamChange, open, settle};
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
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
fn old_bytes_that_are_cut_after_they_were_read_are_not_written_back() {
    let (world, _, process) = world(5);
    world.complete(process, |env| async move {
        let store = open(env.clone(), config()).await.unwrap();
        made(&store).await;
        write(&store, handle(1), 0, bytes(7, 100_000)).await;
        let (reads, own) = (Rc::new(Cell::new(0)), store.clone());
        let seen = reads.clone();
        let merge = move |old: Option<&[u8]>| {
            let mut data = old.expect("the old bytes of a large stream").to_vec();
            seen.set(seen.get() + 1);
            if seen.get() == 1 {
                let mut changes = Changes::default();
                let cut = StreamChange::Resize { generation: 1, size: 50_000, written_at: None };
                changes.stream(handle(1), cut);
                own.apply(changes).unwrap();
            }
            data[..10].fill(1);
            data[39_990..].fill(2);
            (vec![ViewRun { physical: 40_000, packed: 0, len: 40_000 }], data.into())
        };
        let over = Over { span: 40_000..80_000, merge: Rc::new(merge) };
        let info = store.write_over(handle(1), 1, over, moment(2)).await.unwrap();
        assert_eq!((info.size, reads.get()), (80_000, 2));
        let mut expected = bytes(7, 50_000).to_vec();
        expected.resize(80_000, 0);
        expected[40_000..40_010].fill(1);
        expected[79_990..].fill(2);
        assert!(whole(&store, handle(1)).await == expected, "bytes that were cut are there again");
    });
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
                // The removal of its file is complete, in the kernel's memory.
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

#[test]
fn a_cut_that_a_killed_server_made_and_did_not_sync_is_synced_by_the_next_one() {
    let mut met = 0;
    for span in (0..400).step_by(10) {
        let (world, machine, process) = world(1_000 + span);
        world.complete(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            made(&store).await;
            write(&store, handle(1), 0, bytes(7, 100_000)).await;
            store.fsync(handle(1)).await.unwrap();
            let cut = StreamChange::Resize { generation: 1, size: 50_000, written_at: Some(moment(2)) };
            change(&store, handle(1), cut).await;
            settle(&store).await.unwrap();
            // Between the intent and the record of its completion.
            env.sleep(Duration::from_micros(span)).await;
        });
        let cut = world.complete(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            // All records are durable now; nothing else syncs the file.
            settle(&store).await.unwrap();
            env.list("/data/files/streams/01").await.unwrap()[0].len
        });
        met += u32::from(cut == 50_000);
        world.power_cut(machine);
        world.complete(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            let content = whole(&store, handle(1)).await;
            assert!(content == bytes(7, 100_000)[..50_000], "{span} us: {} bytes", content.len());
        });
    }
    assert!(met > 0);
}

#[test]
fn bytes_of_a_move_that_was_overtaken_never_come_back() {
    for span in (0..400).step_by(8) {
        let (world, machine, process) = world(2_000 + span);
        world.complete(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            made(&store).await;
            write(&store, handle(1), 0, vec![9; 12_000].into()).await;
            store.fsync(handle(1)).await.unwrap();
            let own = store.clone();
            let (send, written) = futures_channel::oneshot::channel();
            let _task = env.spawn("writer", async move {
                write(&own, handle(1), 60_000, vec![5; 40_000].into()).await;
                let _ = send.send(());
            });
            // The content is on its way into a file when the stream is emptied.
            env.sleep(Duration::from_micros(span)).await;
            emptied(&store).await;
            written.await.unwrap();
            settle(&store).await.unwrap();
        });
        world.power_cut(machine);
        world.complete(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            assert!(whole(&store, handle(1)).await.iter().all(|byte| *byte != 9), "{span} us");
        });
    }
}

#[test]
fn a_stream_removed_while_it_moves_leaves_no_file() {
    for span in (0..400).step_by(8) {
        let (world, _, process) = world(3_000 + span);
        world.complete(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            made(&store).await;
            write(&store, handle(1), 0, vec![9; 12_000].into()).await;
            let own = store.clone();
            let (send, written) = futures_channel::oneshot::channel();
            let _task = env.spawn("writer", async move {
                let run = shoal_pattern::ViewRun { physical: 60_000, packed: 0, len: 40_000 };
                let done = own.write(handle(1), 1, vec![run], vec![5; 40_000].into(), moment(3)).await;
                drop(send.send(done));
            });
            env.sleep(Duration::from_micros(span)).await;
            change(&store, handle(1), StreamChange::Remove).await;
            settle(&store).await.unwrap();
            drop(written.await.unwrap());
            env.sleep(Duration::from_millis(5)).await;
            let left = env.list("/data/files/streams/01").await.unwrap();
            assert!(left.is_empty(), "{span} us: {left:?}");
        });
    }
}

#[test]
fn a_file_that_is_closed_to_make_room_is_synced_and_a_failure_of_that_is_not_lost() {
    let (world, machine, process) = world(4_000);
    let faults = world.clone();
    world.complete(process, |env| async move {
        let store = open(env.clone(), config()).await.unwrap();
        for n in 1..=6 {
            change(&store, handle(n), StreamChange::Create { generation: 1 }).await;
        }
        // Four files may be open.
        for n in 1..=5 {
            write(&store, handle(n), 0, bytes(n, 100_000)).await;
        }
        settle(&store).await.unwrap();
        env.sleep(Duration::from_millis(50)).await;
        store.health().unwrap();
        faults.fail_syncs(machine, 1);
        write(&store, handle(6), 0, bytes(6, 100_000)).await;
        env.sleep(Duration::from_millis(5)).await;
        assert!(store.health().is_err(), "bytes of stream 2 were lost without an error");
    });
}

#[test]
fn a_write_that_a_stop_met_is_there_in_part_at_most_and_touches_nothing_else() {
    let (mut none, mut some, mut all) = (0, 0, 0);
    for span in 0..60 {
        let (world, machine, process) = world(5_000 + span);
        let ready = std::rc::Rc::new(std::cell::Cell::new(false));
        let begun = ready.clone();
        world.start(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            made(&store).await;
            write(&store, handle(1), 0, vec![1; 300_000].into()).await;
            store.fsync(handle(1)).await.unwrap();
            begun.set(true);
            write(&store, handle(1), 50_000, vec![2; 200_000].into()).await;
            std::future::pending::<()>().await;
        });
        let limit = world.now() + Duration::from_secs(10);
        assert!(world.run_until_true(limit, || ready.get()));
        world.run_for(Duration::from_micros(span));
        if span % 2 == 0 {
            world.crash(process)
        } else {
            world.power_cut(machine)
        }
        let written = world.complete(process, |env| async move {
            let store = open(env.clone(), config()).await.unwrap();
            let content = whole(&store, handle(1)).await;
            assert_eq!(content.len(), 300_000);
            let (before, rest) = content.split_at(50_000);
            let (met, behind) = rest.split_at(200_000);
            assert!(before.iter().chain(behind).all(|byte| *byte == 1), "{span} us: beside the write");
            assert!(met.iter().all(|byte| *byte == 1 || *byte == 2), "{span} us: bytes that nobody wrote");
            met.iter().filter(|byte| **byte == 2).count()
        });
        match written {
            0 => none += 1,
            200_000 => all += 1,
            _ => some += 1,
        }
    }
    assert!(none > 0 && some > 0 && all > 0, "{none} {some} {all}");
}

#[test]
fn of_two_fsyncs_of_a_file_at_once_none_succeeds_where_the_one_sync_fails() {
    let (world, machine, process) = world(11);
    let control = world.clone();
    world.complete(process, |env| async move {
        let store = open(env.clone(), config()).await.unwrap();
        made(&store).await;
        write(&store, handle(1), 0, bytes(7, 100_000)).await;
        settle(&store).await.unwrap();
        // The kernel reports an error of writing back once: to the sync of one of the two.
        control.fail_syncs(machine, 1);
        let both = futures_util::future::join(store.fsync(handle(1)), store.fsync(handle(1))).await;
        assert!(both.0.is_err() && both.1.is_err(), "{both:?}");
    });
}

#[test]
fn a_write_far_beyond_the_end_takes_the_space_of_its_bytes_and_not_of_its_hole() {
    let (world, _, process) = world(1);
    world.complete(process, |env| async move {
        let store = open(env.clone(), config()).await.unwrap();
        made(&store).await;
        let first = write(&store, handle(1), 0, bytes(7, 100_000)).await;
        assert_eq!(first.space, 100_000);
        write(&store, handle(1), 1 << 30, bytes(7, 5_000)).await;
        // Half of it lies within the stream, and counts already.
        let last = write(&store, handle(1), (1 << 30) + 2_500, bytes(7, 5_000)).await;
        assert_eq!((last.size, last.space), ((1 << 30) + 7_500, 107_500));
    });
}
