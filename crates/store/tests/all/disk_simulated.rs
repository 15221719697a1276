//! Module `disk` in the simulated world: the suite, power cuts, failing syncs, a full disk.

use crate::common;
use crate::common::{bytes, change, get_row, handle, info, moment, put_row, whole, write};
use shoal_env::sim::{Config, MachineId, ProcessId, World};
use shoal_proto::Coalescing;
use shoal_store::conformance::{Promises, check};
use shoal_store::{
    Ask, Changes, Collection, CollectionConfig, MetadataSync, StoreError, StreamChange, SyncModes, look,
    open, settle,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

fn config(name: &str) -> CollectionConfig {
    // Few rows a part, so that cuts and kills fall between the parts of a checkpoint.
    CollectionConfig {
        segment_bytes: 64 << 10,
        part_rows_max: 9,
        ..common::config(&Path::new("/data").join(name))
    }
}

fn world(seed: u64) -> (World, MachineId, ProcessId) {
    let world = World::new(seed, Config::default());
    let machine = world.machine("m");
    let process = world.process("server", machine);
    (world, machine, process)
}

#[test]
fn module_disk_conforms_on_a_simulated_disk() {
    let (world, _, process) = world(1);
    world.complete(process, |env| async move {
        check(Promises { bytes: true }, |name| {
            open(env.clone(), CollectionConfig { segment_bytes: 256 << 10, ..config(name) })
        })
        .await;
    });
}

/// The applied batches, in order, and the promises.
#[derive(Default)]
struct History {
    /// Rows and contents after each batch of this life, by its number.
    states: Vec<State>,
    /// Batches up to this number were durable.
    durable: usize,
    /// Bytes of the large stream that an fsync covered.
    synced: Vec<u8>,
    seed: u64,
}

#[derive(Clone, Default, PartialEq, Debug)]
struct State {
    rows: BTreeMap<String, String>,
    contents: BTreeMap<u64, (u64, usize)>,
}

impl History {
    fn random(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }
}

const LARGE: u64 = 1000;

/// Change things for ever.
async fn work(store: Collection, history: Rc<RefCell<History>>) {
    let mut numbers = BTreeMap::new();
    if info(&store, handle(LARGE)).await.is_none() {
        change(&store, handle(LARGE), StreamChange::Create { generation: 1 }).await;
        settle(&store).await.unwrap();
    }
    loop {
        let (changes, dice) = next_batch(&mut history.borrow_mut());
        let admission = store.admit(Ask { journal_bytes: 20_000, ..Ask::default() }).await.unwrap();
        for (handle, _) in &changes.streams {
            look(&store, |view| view.stream(*handle)).await.unwrap();
        }
        let lsn = store.apply(changes).unwrap();
        drop(admission);
        numbers.insert(lsn, history.borrow().states.len() - 1);
        if dice == 0 {
            grow(&store, &history).await;
        }
        if dice < 4 {
            settle(&store).await.unwrap();
        }
        if dice == 5 {
            store.checkpoint().await.unwrap();
        }
        let durable = numbers.range(..=store.durable()).next_back().map(|(_, number)| *number);
        let mut history = history.borrow_mut();
        history.durable = durable.unwrap_or(0).max(history.durable);
    }
}

fn next_batch(history: &mut History) -> (Changes, u64) {
    let mut state = history.states.last().cloned().unwrap_or_default();
    let mut changes = Changes::default();
    let number = history.states.len().to_string();
    for _ in 0..=history.random(4) {
        let key = format!("D{:02}", history.random(60));
        if history.random(3) == 0 {
            changes.remove(key.clone());
            state.rows.remove(&key);
        } else {
            changes.put(key.clone(), number.clone());
            state.rows.insert(key, number.clone());
        }
    }
    let (n, seed, len) = (history.random(20), history.random(1 << 20), history.random(8_000) as usize);
    if !state.contents.contains_key(&n) {
        changes.stream(handle(n), StreamChange::Create { generation: 1 });
    }
    let put = StreamChange::Put { content: bytes(seed, len), size: len as u64, written_at: moment(1) };
    changes.stream(handle(n), put);
    state.contents.insert(n, (seed, len));
    history.states.push(state);
    (changes, history.random(10))
}

/// Append to the large stream, durably.
async fn grow(store: &Collection, history: &Rc<RefCell<History>>) {
    let (at, data) = {
        let mut history = history.borrow_mut();
        let seed = history.random(1 << 20);
        (history.synced.len() as u64, bytes(seed, 20_000))
    };
    write(store, handle(LARGE), at, data.clone()).await;
    store.fsync(handle(LARGE)).await.unwrap();
    history.borrow_mut().synced.extend_from_slice(&data);
}

/// The recovered state is the one after some batch that is not older than the newest durable one.
async fn found(store: &Collection, history: &mut History) {
    let (scan, _) = look(store, |view| view.scan(b"D", None, 1000)).await.unwrap();
    assert_eq!(scan.resume, None);
    let text = |bytes: &bytes::Bytes| String::from_utf8(bytes.to_vec()).unwrap();
    let rows: BTreeMap<String, String> = scan.rows.iter().map(|(k, v)| (text(k), text(v))).collect();
    let mut contents = BTreeMap::new();
    for n in 0..20 {
        if info(store, handle(n)).await.is_some() {
            contents.insert(n, whole(store, handle(n)).await);
        }
    }
    let is = |state: &State| {
        state.rows == rows
            && state.contents.len() == contents.len()
            && state
                .contents
                .iter()
                .all(|(n, (seed, len))| contents.get(n).is_some_and(|c| *c == bytes(*seed, *len)))
    };
    let none = State::default();
    let at = history.states.iter().rposition(is).or_else(|| is(&none).then_some(0));
    let at = at.unwrap_or_else(|| panic!("what is found was never the state: {rows:?}"));
    assert!(at >= history.durable, "batch {} was durable, {at} is found", history.durable);
    history.states.truncate(at + 1);
    history.durable = 0;
    if !history.synced.is_empty() {
        let large = whole(store, handle(LARGE)).await;
        assert!(large.len() >= history.synced.len(), "an fsynced size");
        assert!(large[..history.synced.len()] == history.synced, "fsynced bytes");
        // Bytes of a write that no fsync covered may be there; the next write overwrites them.
    }
}

fn survives(seed: u64, modes: SyncModes, cut: impl Fn(&World, MachineId, ProcessId)) {
    let (world, machine, process) = world(seed);
    let history = Rc::new(RefCell::new(History { seed, ..History::default() }));
    for round in 0..6 {
        let (at_work, of_config) = (history.clone(), CollectionConfig { sync_modes: modes, ..config("cut") });
        world.start(process, |env| async move {
            let store = open(env, of_config).await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            if round > 0 {
                let mut history = std::mem::take(&mut *at_work.borrow_mut());
                found(&store, &mut history).await;
                *at_work.borrow_mut() = history;
            }
            work(store, at_work).await;
        });
        let span = 3_000 + seed.wrapping_mul(7919).wrapping_add(round * 104_729) % 30_000;
        world.run_for(Duration::from_micros(span));
        // A life that was cut while it opened has promised nothing; the next finds the state of the one
        // before.
        cut(&world, machine, process);
        if history.borrow().states.is_empty() && round > 0 {
            // Cut in the middle of the check itself: which changes it lost is not known any more.
            return;
        }
    }
}

#[test]
fn what_was_durable_survives_power_cuts() {
    for seed in 0..10 {
        survives(seed, SyncModes::default(), |world, machine, _| world.power_cut(machine));
    }
}

#[test]
fn what_was_durable_survives_power_cuts_in_mode_at_fsync() {
    let modes = SyncModes { metadata: MetadataSync::AtFsync, ..SyncModes::default() };
    for seed in 100..110 {
        survives(seed, modes, |world, machine, _| world.power_cut(machine));
    }
}

#[test]
fn what_was_durable_survives_power_cuts_whichever_changes_share_a_sync() {
    let marks = Coalescing::Watermark { low: 3, high: 4 };
    for (at, coalescing) in [Coalescing::PerOp, Coalescing::PAPER, marks].into_iter().enumerate() {
        for metadata in [MetadataSync::AtReply, MetadataSync::AtFsync] {
            let modes = SyncModes { metadata, coalescing, ..SyncModes::default() };
            for seed in 300..304 {
                survives(seed + 10 * at as u64, modes, |world, machine, _| world.power_cut(machine));
            }
        }
    }
}

#[test]
fn what_was_durable_survives_kills() {
    for seed in 200..206 {
        survives(seed, SyncModes::default(), |world, _, process| world.crash(process));
    }
}

/// One life: one row after the other, each durable, for ever.
async fn rows_for_ever(store: Collection, life: &'static str, durable: Rc<RefCell<Vec<String>>>) {
    for n in 0.. {
        let key = format!("D{life}{n}");
        put_row(&store, &key, "1").await;
        settle(&store).await.unwrap();
        durable.borrow_mut().push(key);
    }
}

#[test]
fn what_is_written_to_a_segment_that_a_killed_server_left_survives_a_power_cut() {
    // Killed while a segment was prepared, or while the first group was written to one: the next life finds
    // it free.
    for seed in 0..100 {
        let (world, machine, process) = world(seed);
        let durable = Rc::new(RefCell::new(Vec::<String>::new()));
        for (life, span) in [("a", 300 + seed * 61), ("b", 10_000), ("c", 10_000)] {
            let (at_work, looked) = (durable.clone(), Rc::new(std::cell::Cell::new(false)));
            let seen = looked.clone();
            world.start(process, |env| async move {
                let store = open(env, config("left")).await;
                let store = store.unwrap_or_else(|error| panic!("seed {seed}, life {life}: {error}"));
                let keys = at_work.borrow().clone();
                for key in keys {
                    assert!(get_row(&store, &key).await.is_some(), "seed {seed}, life {life}: a row");
                }
                seen.set(true);
                rows_for_ever(store, life, at_work).await;
            });
            world.run_for(Duration::from_micros(span));
            match life {
                "a" => world.crash(process),
                _ => {
                    assert!(looked.get(), "the start ended");
                    world.power_cut(machine);
                }
            }
        }
    }
}

#[test]
fn a_failed_sync_poisons_the_store_and_is_counted() {
    let (world, machine, process) = world(5);
    let faults = world.clone();
    world.complete(process, |env| async move {
        let store = open(env.clone(), config("poison")).await.unwrap();
        put_row(&store, "Dbefore", "1").await;
        settle(&store).await.unwrap();
        let before = store.loss_id();
        faults.fail_syncs(machine, 1);
        let lost = put_row(&store, "Dlost", "1").await;
        assert!(matches!(settle(&store).await, Err(StoreError::Poisoned(_))));
        assert!(store.durable() < lost);
        assert!(matches!(store.apply(changes_of("Dafter")), Err(StoreError::Poisoned(_))));
        assert!(matches!(store.admit(Ask::default()).await, Err(StoreError::Poisoned(_))));
        assert_ne!(store.loss_id(), before, "an fsync with the old id fails");
        env.sleep(Duration::from_secs(1)).await;
    });
    world.complete(process, |env| async move {
        let store = open(env, config("poison")).await.unwrap();
        assert_eq!(get_row(&store, "Dbefore").await.as_deref(), Some("1"));
        assert_eq!(store.loss_id().poisonings, 1);
        put_row(&store, "Dafter", "1").await;
        settle(&store).await.unwrap();
    });
}

#[test]
fn a_poisoning_is_counted_although_the_disk_takes_nothing_more() {
    for (failing, later) in [(2, 2_000), (1_000, 50)] {
        let (world, machine, process) = world(12);
        let faults = world.clone();
        world.complete(process, |env| async move {
            let store = open(env.clone(), config("count")).await.unwrap();
            faults.fail_syncs(machine, failing);
            put_row(&store, "Dlost", "1").await;
            assert!(settle(&store).await.is_err());
            env.sleep(Duration::from_millis(later)).await;
        });
        world.fail_syncs(machine, 0);
        world.complete(process, |env| async move {
            let store = open(env, config("count")).await.unwrap();
            assert_eq!(store.loss_id().poisonings, 1, "an fsync of the lost bytes would succeed");
        });
    }
}

#[test]
fn a_count_of_poisonings_that_cannot_be_read_is_none_that_was_told() {
    let (world, _, process) = world(13);
    world.complete(process, |env| async move {
        let store = open(env.clone(), config("count")).await.unwrap();
        store.close().await.unwrap();
        env.replace_file("/data/count/poisonings", "many".into()).await.unwrap();
    });
    let count = || {
        world.complete(process, |env| async move {
            let store = open(env, config("count")).await.unwrap();
            store.loss_id().poisonings
        })
    };
    let drawn = count();
    assert_ne!(drawn, 0);
    assert_eq!(count(), drawn, "what was written since the first start is not lost by the second one");
}

#[test]
fn an_fsync_waits_for_its_own_sync_however_much_is_written_behind_it() {
    let (world, machine, process) = world(14);
    // Faster than the writers: a sync takes as long as it takes, not as long as its backlog.
    world.set_disk(machine, shoal_env::sim::Disk { write_bytes_per_s: 0, ..Default::default() });
    world.complete(process, |env| async move {
        // No segment ends in between: that would make the journal sync anyway.
        let config = CollectionConfig { segment_bytes: 16 << 20, ..config("haste") };
        let store = open(env.clone(), config).await.unwrap();
        for n in 0..3 {
            change(&store, handle(n), StreamChange::Create { generation: 1 }).await;
        }
        settle(&store).await.unwrap();
        let writer = |n: u64| {
            let (own, env) = (store.clone(), env.clone());
            async move {
                env.sleep(Duration::from_nanos(n * 700)).await;
                loop {
                    write(&own, handle(n), 0, bytes(n, 2_500)).await;
                }
            }
        };
        let _writers = [1, 2].map(|n| env.spawn("writer", writer(n)));
        for n in 0..400 {
            env.sleep(Duration::from_nanos(n * 37)).await;
            let begun = env.now();
            store.fsync(handle(0)).await.unwrap();
            let took = env.now().since(begun);
            assert!(took < Duration::from_millis(1), "fsync {n} took {took:?}");
        }
    });
}

#[test]
fn a_failed_sync_of_a_streams_file_poisons_too() {
    let (world, machine, process) = world(6);
    let faults = world.clone();
    world.complete(process, |env| async move {
        let store = open(env.clone(), config("poison")).await.unwrap();
        change(&store, handle(1), StreamChange::Create { generation: 1 }).await;
        write(&store, handle(1), 0, bytes(1, 50_000)).await;
        settle(&store).await.unwrap();
        faults.fail_syncs(machine, 1);
        assert!(store.fsync(handle(1)).await.is_err());
        assert!(matches!(store.health(), Err(StoreError::Poisoned(_))));
    });
}

fn changes_of(key: &'static str) -> Changes {
    let mut changes = Changes::default();
    changes.put(key, "1");
    changes
}

#[test]
fn a_full_disk_is_an_answer_and_removals_still_work() {
    let (world, machine, process) = world(7);
    let disks = world.clone();
    world.complete(process, |env| async move {
        let store = open(env.clone(), config("full")).await.unwrap();
        for n in 0..20 {
            change(&store, handle(n), StreamChange::Create { generation: 1 }).await;
            write(&store, handle(n), 0, bytes(n, 40_000)).await;
        }
        store.checkpoint().await.unwrap();
        let (total, available) = disks.disk_space(machine);
        let full = shoal_env::sim::Disk { capacity: total - available, ..Config::default().machine.disk };
        disks.set_disk(machine, full);
        // Free space is sampled now and then; another process may have filled the disk since.
        env.sleep(Duration::from_secs(1)).await;
        drop(store.admit(Ask::default()).await);
        env.sleep(Duration::from_secs(1)).await;
        let asked = Ask { journal_bytes: 500, stream_bytes: 100_000, stream: None, frees: false };
        let answer = store.admit(asked).await.map(drop);
        assert!(matches!(answer, Err(StoreError::NoSpace { .. })), "{answer:?}");
        // A write that was admitted before the disk filled up fails with an error, and none of it stays.
        let run = shoal_pattern::ViewRun { physical: 40_000, packed: 0, len: 60_000 };
        let answer = store.write(handle(1), 1, vec![run], bytes(1, 60_000), moment(2)).await;
        assert!(matches!(answer, Err(StoreError::NoSpace { .. })), "{answer:?}");
        store.health().unwrap();
        assert_eq!(whole(&store, handle(1)).await, bytes(1, 40_000));
        for n in 0..20 {
            let asked = Ask { journal_bytes: 200, stream_bytes: 0, stream: None, frees: true };
            let admission = store.admit(asked).await.unwrap();
            change(&store, handle(n), StreamChange::Remove).await;
            drop(admission);
        }
        settle(&store).await.unwrap();
        env.sleep(Duration::from_secs(1)).await;
        disks.set_disk(machine, Config::default().machine.disk);
        env.sleep(Duration::from_secs(1)).await;
        drop(store.admit(asked).await.unwrap());
    });
}

#[test]
fn what_a_failed_sync_left_in_the_page_cache_is_made_durable_by_the_next_start() {
    let (world, machine, process) = world(8);
    let faults = world.clone();
    let put = || StreamChange::Put { content: bytes(3, 8_000), size: 8_000, written_at: moment(1) };
    world.complete(process, |env| async move {
        let store = open(env.clone(), config("cache")).await.unwrap();
        // The segment is more than half alive, so that nothing is copied out of it.
        for n in 1..6 {
            change(&store, handle(n), StreamChange::Create { generation: 1 }).await;
            change(&store, handle(n), put()).await;
        }
        change(&store, handle(6), StreamChange::Create { generation: 1 }).await;
        settle(&store).await.unwrap();
        faults.fail_syncs(machine, 1);
        change(&store, handle(6), put()).await;
        assert!(matches!(settle(&store).await, Err(StoreError::Poisoned(_))));
        env.sleep(Duration::from_secs(1)).await;
    });
    // The server alone starts again: it reads the kernel's page cache, and continues after it.
    let found = world.complete(process, |env| async move {
        let store = open(env, config("cache")).await.unwrap();
        put_row(&store, "Dafter", "1").await;
        settle(&store).await.unwrap();
        store.fsync(handle(6)).await.unwrap();
        whole(&store, handle(6)).await
    });
    world.power_cut(machine);
    world.complete(process, |env| async move {
        let store = open(env, config("cache")).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(get_row(&store, "Dafter").await.as_deref(), Some("1"));
        assert!(whole(&store, handle(6)).await == found, "what was seen stays");
    });
}

/// A large stream of `len` bytes, all of it durable.
async fn large(store: &Collection, len: usize) {
    change(store, handle(1), StreamChange::Create { generation: 1 }).await;
    write(store, handle(1), 0, bytes(1, len)).await;
    store.fsync(handle(1)).await.unwrap();
}

fn resize(size: u64) -> StreamChange {
    StreamChange::Resize { generation: 1, size, written_at: Some(moment(2)) }
}

#[test]
fn a_write_that_meets_a_cut_on_its_way_is_done_behind_the_cut() {
    for (append, delay) in (0..12).map(|n| (n % 2 == 0, n / 2)) {
        let (world, _, process) = world(9);
        world.complete(process, |env| async move {
            let store = open(env.clone(), config("meet")).await.unwrap();
            large(&store, 100_000).await;
            let data = bytes(5, 60_000);
            let (own, given) = (store.clone(), data.clone());
            let (send, written) = futures_channel::oneshot::channel();
            let _task = env.spawn("writer", async move {
                let run = shoal_pattern::ViewRun { physical: 80_000, packed: 0, len: 60_000 };
                let done = match append {
                    true => own.append(handle(1), 1, u64::MAX, given, moment(3)).await.map(|(at, _)| at),
                    false => own.write(handle(1), 1, vec![run], given, moment(3)).await.map(|_| 80_000),
                };
                drop(send.send(done));
            });
            // It has passed the gate and its bytes are on the way when the stream is cut.
            env.sleep(Duration::from_micros(delay)).await;
            change(&store, handle(1), resize(50_000)).await;
            let at = written.await.unwrap().unwrap() as usize;
            let content = whole(&store, handle(1)).await;
            assert!(content[..50_000] == bytes(1, 100_000)[..50_000]);
            if content.len() == 50_000 {
                return; // The write came first.
            }
            assert_eq!(content.len(), at + 60_000);
            assert!(
                content[at..] == data,
                "append {append} after {delay} us: its bytes are not there, at {at}"
            );
            assert!(content[50_000..at].iter().all(|byte| *byte == 0), "what was cut came back");
        });
    }
}

#[test]
fn an_append_that_meets_a_cut_within_its_bytes_is_there_once() {
    let mut moved = 0;
    for delay in 0..12 {
        let (world, _, process) = world(9);
        moved += world.complete(process, move |env| async move {
            let store = open(env.clone(), config("once")).await.unwrap();
            large(&store, 100_000).await;
            let data = bytes(5, 60_000);
            let (own, given) = (store.clone(), data.clone());
            let (send, appended) = futures_channel::oneshot::channel();
            let _task = env.spawn("writer", async move {
                let done = own.append(handle(1), 1, u64::MAX, given, moment(3)).await;
                drop(send.send(done.map(|(at, _)| at)));
            });
            env.sleep(Duration::from_micros(delay)).await;
            // The stream grows over the bytes that are on their way, and is cut within them.
            change(&store, handle(1), resize(150_000)).await;
            change(&store, handle(1), resize(130_000)).await;
            let at = appended.await.unwrap().unwrap() as usize;
            let content = whole(&store, handle(1)).await;
            assert!(content[..100_000] == bytes(1, 100_000)[..]);
            if at == 100_000 {
                return 0;
            }
            assert!(content[at..] == data, "after {delay} us: its bytes are not there, at {at}");
            assert!(
                content[100_000..at].iter().all(|byte| *byte == 0),
                "after {delay} us: it is there twice"
            );
            1
        });
    }
    assert!(moved > 0, "no append met the cut");
}

#[test]
fn an_append_that_meets_a_new_generation_leaves_no_bytes_within_the_grown_stream() {
    for (power_cut, delay) in (0..12).map(|n| (n % 2 == 0, n / 2)) {
        let (world, machine, process) = world(9);
        let (stale, seen) = (Rc::new(std::cell::Cell::new(false)), Rc::new(std::cell::Cell::new(false)));
        let (is_stale, is_seen) = (stale.clone(), seen.clone());
        world.start(process, move |env| async move {
            let store = open(env.clone(), config("grown")).await.unwrap();
            large(&store, 100_000).await;
            store.fsync(handle(1)).await.unwrap();
            let own = store.clone();
            let (send, written) = futures_channel::oneshot::channel();
            let _task = env.spawn("writer", async move {
                let done = own.append(handle(1), 1, u64::MAX, bytes(5, 60_000), moment(3)).await;
                drop(send.send(done));
            });
            env.sleep(Duration::from_micros(delay)).await;
            let grown = StreamChange::Resize { generation: 2, size: 200_000, written_at: Some(moment(2)) };
            change(&store, handle(1), grown).await;
            is_stale.set(written.await.unwrap().is_err());
            let content = whole(&store, handle(1)).await;
            assert!(!is_stale.get() || content[100_000..].iter().all(|byte| *byte == 0), "after {delay} us");
            is_seen.set(true);
            std::future::pending::<()>().await;
        });
        let limit = world.now() + Duration::from_secs(10);
        assert!(world.run_until_true(limit, || seen.get()));
        match power_cut {
            true => world.power_cut(machine),
            false => world.crash(process),
        }
        world.complete(process, move |env| async move {
            let store = open(env, config("grown")).await.unwrap();
            let content = whole(&store, handle(1)).await;
            assert!(
                !stale.get() || content[100_000..].iter().all(|byte| *byte == 0),
                "after a restart, power cut {power_cut}"
            );
        });
    }
}

#[test]
fn a_second_cut_does_not_make_the_first_forgotten() {
    for span in (0..1_200).step_by(400) {
        let (world, _, process) = world(10);
        let done = Rc::new(std::cell::Cell::new(false));
        let ready = done.clone();
        world.start(process, |env| async move {
            let store = open(env.clone(), config("twice")).await.unwrap();
            large(&store, 100_000).await;
            store.checkpoint().await.unwrap();
            // Cut short, grown, and cut again, before the file was touched.
            change(&store, handle(1), resize(1_000)).await;
            change(&store, handle(1), resize(90_000)).await;
            change(&store, handle(1), resize(50_000)).await;
            settle(&store).await.unwrap();
            ready.set(true);
            std::future::pending::<()>().await;
        });
        let limit = world.now() + Duration::from_secs(10);
        assert!(world.run_until_true(limit, || done.get()));
        world.run_for(Duration::from_micros(span));
        world.crash(process);
        world.complete(process, |env| async move {
            let store = open(env, config("twice")).await.unwrap();
            let content = whole(&store, handle(1)).await;
            assert_eq!(content.len(), 50_000);
            assert!(content[..1_000] == bytes(1, 100_000)[..1_000]);
            assert!(content[1_000..].iter().all(|byte| *byte == 0), "what was cut came back, {span} us");
        });
    }
}

#[test]
fn a_streams_row_that_is_damaged_is_an_error_of_who_asks_for_it() {
    let (world, _, process) = world(11);
    world.complete(process, |env| async move {
        let store = open(env.clone(), config("row")).await.unwrap();
        let mut changes = Changes::default();
        changes.put(store.stream_key(handle(1)), "no stream's row");
        store.apply(changes).unwrap();
        let asked = look(&store, |view| view.stream(handle(1)));
        let limit = env.now() + Duration::from_secs(1);
        let answer = env.deadline(limit, asked).await.expect("it ends").map(drop);
        assert!(matches!(answer, Err(StoreError::Damaged(_))), "{answer:?}");
    });
}
