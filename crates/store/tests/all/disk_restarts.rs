//! The state after a restart: after a kill, after a clean stop, after unfinished work of every kind.

use crate::common;
use crate::common::{
    bytes, change, copy, get_row, handle, info, killed, life, moment, opening, put_row, read, whole, write,
};
use proptest::prelude::*;
use shoal_store::{
    Changes, CollectionConfig, Identity, MetadataSync, StoreError, StreamChange, SyncModes, look, open,
    settle,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn put(seed: u64, len: usize) -> StreamChange {
    StreamChange::Put { content: bytes(seed, len), size: len as u64, written_at: moment(1) }
}

/// The local file of a stream.
fn file_of(dir: &Path, n: u64) -> PathBuf {
    let raw = handle(n).0;
    dir.join(format!("streams/{:02x}/{raw:016x}", raw & 0xff))
}

#[test]
fn a_killed_server_has_everything_that_was_durable() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path(), |store| async move {
        for n in 0..300 {
            put_row(&store, &format!("Drow-{n:04}"), &format!("value {n}")).await;
            change(&store, handle(n), StreamChange::Create { generation: 1 }).await;
            change(&store, handle(n), put(n, n as usize * 50)).await;
        }
        for n in 0..100 {
            let mut changes = Changes::default();
            changes.remove(format!("Drow-{n:04}"));
            store.apply(changes).unwrap();
        }
        write(&store, handle(7), 0, bytes(1007, 100_000)).await;
        store.fsync(handle(7)).await.unwrap();
        settle(&store).await.unwrap();
    });
    for _ in 0..3 {
        killed(dir.path(), |store| async move {
            for n in 0..300 {
                let expected = (n >= 100).then(|| format!("value {n}"));
                assert_eq!(get_row(&store, &format!("Drow-{n:04}")).await, expected);
                let content = if n == 7 { bytes(1007, 100_000) } else { bytes(n, n as usize * 50) };
                assert_eq!(whole(&store, handle(n)).await, content, "stream {n}");
            }
            let (scan, _) = look(&store, |view| view.scan(b"Drow-", None, 4000)).await.unwrap();
            assert!(scan.rows.len() <= 200);
        });
    }
}

#[test]
fn a_store_says_how_far_it_was_when_it_was_opened_whatever_recovery_writes() {
    let dir = tempfile::tempdir().unwrap();
    let last = killed(dir.path(), |store| async move {
        change(&store, handle(1), StreamChange::Create { generation: 1 }).await;
        write(&store, handle(1), 0, bytes(1, 100_000)).await;
        store.fsync(handle(1)).await.unwrap();
        settle(&store).await.unwrap();
        store.applied()
    });
    // As if a write had reached the file, and its size not the journal.
    let mut file = std::fs::read(file_of(dir.path(), 1)).unwrap();
    file.extend_from_slice(b"and more");
    std::fs::write(file_of(dir.path(), 1), file).unwrap();
    killed(dir.path(), |store| async move {
        // The first one writes the corrected size to the journal, the second one waits for it.
        settle(&store).await.unwrap();
        settle(&store).await.unwrap();
        assert!(store.durable() > last, "recovery wrote the size");
        assert_eq!(store.opened_at(), last);
    });
}

#[test]
fn what_was_written_to_the_kernel_survives_a_kill_in_mode_at_fsync() {
    let dir = tempfile::tempdir().unwrap();
    let modes = SyncModes { metadata: MetadataSync::AtFsync, ..SyncModes::default() };
    killed(dir.path(), |store| async move {
        store.set_sync_modes(modes).await.unwrap();
        let mut last = store.applied();
        for n in 0..200 {
            last = put_row(&store, &format!("Drow-{n}"), "v").await;
        }
        while store.written() < last {
            store.progress().wait().await;
        }
        change(&store, handle(1), StreamChange::Create { generation: 1 }).await;
        write(&store, handle(1), 0, bytes(1, 50_000)).await;
        write(&store, handle(1), 70_000, bytes(2, 10)).await;
    });
    killed(dir.path(), |store| async move {
        assert_eq!(store.sync_modes(), modes);
        for n in 0..200 {
            assert!(get_row(&store, &format!("Drow-{n}")).await.is_some());
        }
        // The record of the size may not have been written: the file itself is the witness.
        assert_eq!(info(&store, handle(1)).await.unwrap().size, 70_010);
        assert_eq!(read(&store, handle(1), 70_000, 10).await, bytes(2, 10));
    });
}

#[test]
fn a_cut_that_was_intended_and_not_done_is_done_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path(), |store| async move {
        change(&store, handle(1), StreamChange::Create { generation: 1 }).await;
        write(&store, handle(1), 0, bytes(1, 100_000)).await;
        store.fsync(handle(1)).await.unwrap();
    });
    let saved = std::fs::read(file_of(dir.path(), 1)).unwrap();
    killed(dir.path(), |store| async move {
        let cut = StreamChange::Resize { generation: 2, size: 30_001, written_at: None };
        let lsn = change(&store, handle(1), cut).await;
        while store.durable() < lsn {
            store.progress().wait().await;
        }
    });
    // Killed between the intent and the cut.
    std::fs::write(file_of(dir.path(), 1), &saved).unwrap();
    killed(dir.path(), |store| async move {
        let facts = info(&store, handle(1)).await.unwrap();
        assert_eq!((facts.size, facts.generation), (30_001, 2));
        change(&store, handle(1), StreamChange::Resize { generation: 3, size: 50_000, written_at: None })
            .await;
        let mut expected = bytes(1, 30_001).to_vec();
        expected.resize(50_000, 0);
        assert_eq!(whole(&store, handle(1)).await, expected);
        // Another redo does not cut a write of the new generation.
        write(&store, handle(1), 40_000, bytes(3, 20_000)).await;
        store.fsync(handle(1)).await.unwrap();
    });
    killed(dir.path(), |store| async move {
        assert_eq!(read(&store, handle(1), 40_000, 20_000).await, bytes(3, 20_000));
        assert_eq!(info(&store, handle(1)).await.unwrap().size, 60_000);
    });
}

#[test]
fn local_files_that_are_nobodys_home_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path(), |store| async move {
        for n in 1..4 {
            change(&store, handle(n), StreamChange::Create { generation: 1 }).await;
        }
        write(&store, handle(1), 0, bytes(1, 40_000)).await;
        settle(&store).await.unwrap();
    });
    // A copy whose record was never written, and the file of a stream that was removed.
    std::fs::write(file_of(dir.path(), 2), b"half a copy").unwrap();
    std::fs::write(file_of(dir.path(), 9), b"removed").unwrap();
    killed(dir.path(), |store| async move {
        assert_eq!(whole(&store, handle(1)).await, bytes(1, 40_000));
        assert_eq!(info(&store, handle(2)).await.unwrap().size, 0);
    });
    assert!(file_of(dir.path(), 1).exists());
    assert!(!file_of(dir.path(), 2).exists() && !file_of(dir.path(), 9).exists());
}

#[test]
fn a_missing_local_file_is_damage_and_not_zeros() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path(), |store| async move {
        change(&store, handle(1), StreamChange::Create { generation: 1 }).await;
        write(&store, handle(1), 0, bytes(1, 40_000)).await;
        // Until then a power cut may lose it, and it is made again.
        store.fsync(handle(1)).await.unwrap();
    });
    std::fs::remove_file(file_of(dir.path(), 1)).unwrap();
    killed(dir.path(), |store| async move {
        let run = shoal_pattern::ViewRun { physical: 0, packed: 0, len: 10 };
        let answer = store.read(handle(1), 1, vec![run], 10).await;
        assert!(matches!(answer, Err(StoreError::Damaged(_))), "{answer:?}");
    });
}

#[test]
fn segments_are_used_again_and_contents_stay_readable() {
    let dir = tempfile::tempdir().unwrap();
    killed(dir.path(), |store| async move {
        for n in 0..40 {
            change(&store, handle(n), StreamChange::Create { generation: 1 }).await;
            change(&store, handle(n), put(n, 9000)).await;
        }
        // Half of the streams are rewritten many times: the others' segments grow poor and are collected.
        for round in 1..40 {
            for n in (0..40).step_by(2) {
                change(&store, handle(n), put(n + round * 100, 9000)).await;
            }
            settle(&store).await.unwrap();
        }
        store.checkpoint().await.unwrap();
        for _ in 0..200 {
            if store.counters().segments <= 8 {
                break;
            }
            // Collection and freeing continue in the background.
            store.space().await.unwrap();
            put_row(&store, "Dtick", "tock").await;
            settle(&store).await.unwrap();
        }
        assert!(store.counters().segments <= 12, "{:?}", store.counters());
        assert!(store.counters().cleaned_bytes > 0, "{:?}", store.counters());
        for n in 0..40 {
            let seed = if n % 2 == 0 { n + 3900 } else { n };
            assert_eq!(whole(&store, handle(n)).await, bytes(seed, 9000), "stream {n}");
        }
    });
    killed(dir.path(), |store| async move {
        for n in 0..40 {
            let seed = if n % 2 == 0 { n + 3900 } else { n };
            assert_eq!(whole(&store, handle(n)).await, bytes(seed, 9000), "stream {n}, after the restart");
        }
        for n in 0..40 {
            change(&store, handle(n), StreamChange::Remove).await;
        }
        settle(&store).await.unwrap();
        store.checkpoint().await.unwrap();
        put_row(&store, "Dtick", "tock").await;
        settle(&store).await.unwrap();
        store.checkpoint().await.unwrap();
    });
    killed(dir.path(), |store| async move {
        assert!(store.counters().segments <= 3, "nothing lives: {:?}", store.counters());
    });
}

#[test]
fn the_tables_map_grows_when_it_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let value = "v".repeat(300);
    killed(dir.path(), |store| async move {
        for n in 0..8000 {
            put_row(&store, &format!("Drow-{n:06}"), &value).await;
            if n % 100 == 0 {
                drop(
                    store
                        .admit(shoal_store::Ask { journal_bytes: 40_000, ..Default::default() })
                        .await
                        .unwrap(),
                );
            }
        }
        store.checkpoint().await.unwrap();
        store.close().await.unwrap();
    });
    killed(dir.path(), |store| async move {
        assert!(
            get_row(&store, "Drow-007999").await.is_some() && get_row(&store, "Drow-000000").await.is_some()
        );
    });
}

#[test]
fn foreign_folders_are_refused_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let config = common::config(dir.path());
    let refusal = |config: CollectionConfig| {
        let refused = life(|env| async move { open(env, config).await.map(drop) });
        match refused {
            Err(StoreError::Refused(why) | StoreError::Missing(why) | StoreError::Foreign(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    let why = refusal(CollectionConfig { create: false, ..config.clone() });
    assert!(why.contains("is empty"), "{why}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was made in it");
    let nowhere = CollectionConfig { create: false, dir: dir.path().join("nowhere"), ..config.clone() };
    assert!(refusal(nowhere).contains("is not there"));
    assert!(!dir.path().join("nowhere").exists());
    killed(dir.path(), |_| async {});
    let other = |identity: Identity| CollectionConfig { identity, ..config.clone() };
    let identity = config.identity;
    assert!(refusal(other(Identity { fs: [1; 16], ..identity })).contains("not 01010101"));
    assert!(refusal(other(Identity { server: 9, ..identity })).contains("is of server 2, not 9"));
    assert!(refusal(other(Identity { collection: 1, ..identity })).contains("is of collection 5, not 1"));
    let store = CollectionConfig { store: shoal_proto::StoreId(7), ..config.clone() };
    assert!(refusal(store).contains("is of store "));
    let why = killed(dir.path(), |_| async { refusal_in_a_thread(config.clone()) });
    assert!(why.contains("in use by another server"), "{why}");
    let occupied = tempfile::tempdir().unwrap();
    std::fs::write(occupied.path().join("thesis.tex"), "precious").unwrap();
    let why = refusal(common::config(occupied.path()));
    assert!(why.contains("not empty") && why.contains("thesis.tex"), "{why}");
}

/// Opening, by another run of the world, while one is open.
fn refusal_in_a_thread(config: CollectionConfig) -> String {
    let refused = std::thread::spawn(move || life(|env| async move { open(env, config).await.map(drop) }));
    match refused.join().unwrap() {
        Err(StoreError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_copy_taken_at_any_moment_opens() {
    // A kill at arbitrary moments, not only at quiet ones.
    let dir = tempfile::tempdir().unwrap();
    let copies = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().to_owned(), copies.path().to_owned());
    killed(dir.path(), |store| async move {
        for n in 0..120 {
            change(&store, handle(n), StreamChange::Create { generation: 1 }).await;
            change(&store, handle(n), put(n, 3000)).await;
            settle(&store).await.unwrap();
            // No checkpoint runs here (few rows, one segment at a time), so the tables' file is quiet.
            if n % 10 == 9 {
                copy(&source, &target.join(n.to_string()));
            }
        }
    });
    for n in (9..120).step_by(10) {
        killed(&copies.path().join(n.to_string()), |store| async move {
            for n in 0..=n {
                assert_eq!(whole(&store, handle(n)).await, bytes(n, 3000));
            }
            assert_eq!(info(&store, handle(n + 2)).await, None);
        });
    }
}

#[derive(Clone, Debug)]
enum Step {
    Rows(Vec<(u8, Option<u8>)>),
    Put(u8, u16),
    Write(u8, u32, u16),
    Resize(u8, u32),
    Remove(u8),
    Checkpoint,
    Restart { clean: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let row = (any::<u8>(), proptest::option::of(any::<u8>()));
    prop_oneof![
        6 => proptest::collection::vec(row, 1..20).prop_map(Step::Rows),
        4 => (0..12_u8, 0..16_384_u16).prop_map(|(n, len)| Step::Put(n, len)),
        3 => (0..12_u8, 0..60_000_u32, 1..20_000_u16).prop_map(|(n, at, len)| Step::Write(n, at, len)),
        2 => (0..12_u8, 0..60_000_u32).prop_map(|(n, size)| Step::Resize(n, size)),
        1 => (0..12_u8).prop_map(Step::Remove),
        1 => Just(Step::Checkpoint),
        1 => any::<bool>().prop_map(|clean| Step::Restart { clean }),
    ]
}

#[derive(Default, Clone)]
struct Model {
    rows: BTreeMap<u8, u8>,
    streams: BTreeMap<u8, (u64, Vec<u8>)>,
    seed: u64,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn any_history_with_restarts_agrees_with_a_plain_model(steps in proptest::collection::vec(step(), 1..60)) {
        let dir = tempfile::tempdir().unwrap();
        let mut model = Model::default();
        let mut rest = steps.as_slice();
        loop {
            let at = rest.iter().position(|step| matches!(step, Step::Restart { .. }));
            let (life, behind) = rest.split_at(at.unwrap_or(rest.len()));
            let clean = matches!(behind.first(), Some(Step::Restart { clean: true }));
            model = killed(dir.path(), |store| async move {
                agrees(&store, &model).await;
                for step in life {
                    take(&store, step, &mut model).await;
                }
                agrees(&store, &model).await;
                if clean { store.close().await.unwrap() } else { settle(&store).await.unwrap() }
                model
            });
            match behind.split_first() {
                Some((_, behind)) => rest = behind,
                None => break,
            }
        }
        killed(dir.path(), |store| async move { agrees(&store, &model).await });
    }
}

async fn take(store: &shoal_store::Collection, step: &Step, model: &mut Model) {
    model.seed += 1;
    let seed = model.seed;
    match step {
        Step::Rows(rows) => {
            let mut changes = Changes::default();
            for (key, value) in rows {
                let name = format!("D{key:03}");
                match value {
                    Some(value) => {
                        changes.put(name, vec![*value]);
                        model.rows.insert(*key, *value);
                    }
                    None => {
                        changes.remove(name);
                        model.rows.remove(key);
                    }
                }
            }
            store.apply(changes).unwrap();
        }
        Step::Put(n, len) => {
            ensure(store, *n, model).await;
            change(store, handle((*n).into()), put(seed, (*len).into())).await;
            if let Some((_, content)) = model.streams.get_mut(n) {
                *content = bytes(seed, (*len).into()).to_vec();
            }
        }
        Step::Write(n, at, len) => {
            ensure(store, *n, model).await;
            let data = bytes(seed, (*len).into());
            write(store, handle((*n).into()), (*at).into(), data.clone()).await;
            if let Some((_, content)) = model.streams.get_mut(n) {
                let (from, to) = (*at as usize, *at as usize + data.len());
                content.resize(content.len().max(to), 0);
                content[from..to].copy_from_slice(&data);
            }
        }
        Step::Resize(n, size) => {
            ensure(store, *n, model).await;
            if let Some((generation, content)) = model.streams.get_mut(n) {
                *generation += 1;
                content.resize(*size as usize, 0);
                let resize =
                    StreamChange::Resize { generation: *generation, size: (*size).into(), written_at: None };
                change(store, handle((*n).into()), resize).await;
            }
        }
        Step::Remove(n) => {
            if model.streams.remove(n).is_some() {
                change(store, handle((*n).into()), StreamChange::Remove).await;
            }
        }
        Step::Checkpoint => store.checkpoint().await.unwrap(),
        Step::Restart { .. } => {}
    }
}

async fn ensure(store: &shoal_store::Collection, n: u8, model: &mut Model) {
    if let std::collections::btree_map::Entry::Vacant(vacant) = model.streams.entry(n) {
        vacant.insert((1, Vec::new()));
        change(store, handle(n.into()), StreamChange::Create { generation: 1 }).await;
    }
}

async fn agrees(store: &shoal_store::Collection, model: &Model) {
    let mut rows = BTreeMap::new();
    let mut after: Option<bytes::Bytes> = None;
    loop {
        let (scan, _) = look(store, |view| view.scan(b"D", after.as_deref(), 37)).await.unwrap();
        for (key, value) in scan.rows {
            rows.insert(std::str::from_utf8(&key[1..]).unwrap().parse().unwrap(), value[0]);
        }
        after = scan.resume;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(rows, model.rows);
    for n in 0..12 {
        match model.streams.get(&n) {
            None => assert_eq!(info(store, handle(n.into())).await, None),
            Some((generation, content)) => {
                let facts = info(store, handle(n.into())).await.unwrap();
                assert_eq!((facts.generation, facts.size), (*generation, content.len() as u64));
                assert!(whole(store, handle(n.into())).await == *content, "stream {n}");
            }
        }
    }
}

#[test]
fn a_name_that_is_free_is_known_without_a_load() {
    let dir = tempfile::tempdir().unwrap();
    let config = CollectionConfig { bloom_filter_bytes: 64 << 10, ..common::config(dir.path()) };
    for life in 0..2 {
        let config = config.clone();
        common::life(|env| async move {
            let store = open(env, config).await.unwrap();
            for n in 0..1000 {
                put_row(&store, &format!("D{life}-{n}"), "v").await;
                if n % 50 == 0 {
                    settle(&store).await.unwrap();
                }
            }
            store.checkpoint().await.unwrap();
            // In a second life the keys of the first are read in the background.
            for probe in 0.. {
                let before = store.counters().loads;
                get_row(&store, &format!("Dprobe-{probe}")).await;
                if store.counters().loads == before {
                    break;
                }
                store.space().await.unwrap();
            }
            let before = store.counters().loads;
            for n in 0..1000 {
                assert_eq!(get_row(&store, &format!("Dfree-{life}-{n}")).await, None);
            }
            let loads = store.counters().loads - before;
            assert!(loads < 100, "{loads} loads for 1000 free names");
            for old in 0..=life {
                for n in 0..1000 {
                    assert!(get_row(&store, &format!("D{old}-{n}")).await.is_some());
                }
            }
        });
    }
}

#[test]
fn an_empty_collection_opens_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..4 {
        opening(dir.path()).unwrap();
    }
}

#[test]
fn segments_that_are_added_without_their_contents_are_sealed_ones_at_every_start() {
    let dir = tempfile::tempdir().unwrap();
    let segments = || std::fs::read_dir(dir.path().join("journal")).unwrap().count();
    let add = || {
        let config = common::config(dir.path());
        life(|env| async move { shoal_store::aged::add_segments(&env, &config, 100).await })
    };
    assert!(add().is_err(), "there is no store yet");
    let mut before = 0;
    for round in 0..3 {
        let config = common::config(dir.path());
        life(|env| async move {
            let store = open(env, config).await.unwrap_or_else(|error| panic!("{error}"));
            if round > 0 {
                assert_eq!(get_row(&store, "Drow").await, Some(format!("value {}", round - 1)));
            }
            put_row(&store, "Drow", &format!("value {round}")).await;
            change(&store, handle(round), StreamChange::Create { generation: 1 }).await;
            change(&store, handle(round), put(round, 5000)).await;
            store.close().await.unwrap();
        });
        if round == 0 {
            before = segments();
            add().unwrap();
        }
        // They are neither free nor collected: three fourths of each live.
        assert!(segments() >= before + 100, "{} of {before}", segments());
    }
}
