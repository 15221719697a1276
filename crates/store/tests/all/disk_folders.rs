//! Folders of streams' files on further disks: the choice of a folder, folders that are added, moved,
//! missing, or owned by another store, and power cuts.

use crate::common;
use crate::common::{bytes, change, handle, whole, write};
use futures_util::future::{join, join_all};
use shoal_env::Env;
use shoal_env::sim::{Config, World};
use shoal_store::conformance::{Promises, check};
use shoal_store::{Collection, CollectionConfig, Identity, StoreError, StreamChange, open, settle};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Handles of files in these tests.
const FILES: u64 = 24;

fn config(dir: &Path, streams: &[PathBuf]) -> CollectionConfig {
    CollectionConfig { stream_folders: streams.to_vec(), ..common::config(dir) }
}

/// A store in a temporary folder, beside its disks.
struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Site {
        Site(tempfile::tempdir().unwrap())
    }

    fn disk(&self, number: usize) -> PathBuf {
        let parent = self.0.path().join(format!("disk{number}"));
        std::fs::create_dir_all(&parent).unwrap();
        parent.join("demo")
    }

    fn disks(&self, count: usize) -> Vec<PathBuf> {
        (1..=count).map(|number| self.disk(number)).collect()
    }

    fn config(&self, streams: &[PathBuf]) -> CollectionConfig {
        config(&self.0.path().join("store"), streams)
    }

    /// One life of the store, ended cleanly.
    fn serve<F: Future<Output = ()>>(&self, streams: &[PathBuf], body: impl FnOnce(Env, Collection) -> F) {
        let config = self.config(streams);
        common::life(|env| async move {
            let store = open(env.clone(), config).await.unwrap_or_else(|error| panic!("{error}"));
            body(env, store.clone()).await;
            store.close().await.unwrap();
        });
    }

    /// Why it does not open.
    fn refusal(&self, streams: &[PathBuf]) -> StoreError {
        let config = self.config(streams);
        let opened = common::life(|env| async move { open(env, config).await.map(drop) });
        opened.expect_err("it opened")
    }

    /// The files of streams in each folder: the store's own, then the disks'.
    fn counts(&self, disks: usize) -> Vec<usize> {
        let own = self.0.path().join("store/streams");
        std::iter::once(own).chain(self.disks(disks)).map(|folder| files_in(&folder)).collect()
    }
}

fn files_in(folder: &Path) -> usize {
    let parts = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    parts.filter(|part| part.is_dir()).map(|part| std::fs::read_dir(part).unwrap().count()).sum()
}

fn content(n: u64) -> bytes::Bytes {
    bytes(n, 30_000 + 1_000 * n as usize)
}

async fn make(store: &Collection, numbers: impl Iterator<Item = u64>) {
    for n in numbers {
        change(store, handle(n), StreamChange::Create { generation: 1 }).await;
        write(store, handle(n), 0, content(n)).await;
    }
}

async fn all_there(store: &Collection, numbers: impl Iterator<Item = u64>) {
    for n in numbers {
        assert!(whole(store, handle(n)).await == content(n), "the bytes of stream {n}");
    }
}

#[test]
fn files_are_spread_over_the_folders_and_found_again_also_without_being_named() {
    let site = Site::new();
    site.serve(&site.disks(3), async |_, store| make(&store, 0..FILES).await);
    let counts = site.counts(3);
    assert_eq!((counts[0], counts.iter().sum::<usize>()), (0, FILES as usize));
    assert!(counts[1..].iter().all(|count| *count >= 3), "{counts:?}");
    // The store's own list names them.
    site.serve(&[], async |_, store| {
        all_there(&store, 0..FILES).await;
        let removed = StreamChange::Resize { generation: 2, size: 0, written_at: None };
        for n in 0..FILES {
            change(&store, handle(n), removed.clone()).await;
        }
        settle(&store).await.unwrap();
    });
    assert_eq!(site.counts(3).iter().sum::<usize>(), 0, "files that are no home are gone");
}

#[test]
fn a_folder_that_is_added_later_takes_new_files_and_moves_none() {
    let site = Site::new();
    site.serve(&[], async |_, store| make(&store, 0..FILES).await);
    site.serve(&site.disks(1), async |_, store| {
        all_there(&store, 0..FILES).await;
        make(&store, 100..100 + FILES).await;
    });
    assert_eq!(site.counts(1), [FILES as usize; 2]);
    site.serve(&site.disks(2), async |_, store| make(&store, 200..200 + 2 * FILES).await);
    let counts = site.counts(2);
    assert_eq!(counts[0], FILES as usize);
    assert!(counts[1] > FILES as usize + 8 && counts[2] > 8, "{counts:?}");
    site.serve(&[], async |_, store| {
        all_there(&store, 0..FILES).await;
        all_there(&store, 100..100 + FILES).await;
        all_there(&store, 200..200 + 2 * FILES).await;
    });
}

#[test]
fn a_file_that_was_in_one_folder_and_is_made_again_in_another_is_one_file() {
    let site = Site::new();
    site.serve(&[], async |_, store| make(&store, 0..FILES).await);
    site.serve(&site.disks(2), async |_, store| {
        for n in 0..FILES {
            let cut = StreamChange::Resize { generation: 1, size: 0, written_at: None };
            change(&store, handle(n), cut).await;
            write(&store, handle(n), 0, content(n)).await;
            store.fsync(handle(n)).await.unwrap();
        }
        all_there(&store, 0..FILES).await;
    });
    let counts = site.counts(2);
    assert_eq!((counts[0], counts[1] + counts[2]), (0, FILES as usize));
    site.serve(&[], async |_, store| all_there(&store, 0..FILES).await);
}

#[test]
fn a_disk_that_is_not_mounted_is_named_and_never_taken_for_a_new_folder() {
    let site = Site::new();
    let disks = site.disks(2);
    site.serve(&disks, async |_, store| make(&store, 0..FILES).await);
    let (there, away) = (&disks[1], site.0.path().join("away"));
    std::fs::rename(there, &away).unwrap();
    for named in [&disks[..], &[]] {
        let refused = site.refusal(named);
        assert!(matches!(refused, StoreError::DiskMissing(_)), "{refused}");
        let words = refused.to_string();
        assert!(words.contains("stream folder 2") && words.contains(there.to_str().unwrap()), "{words}");
        assert!(words.contains("not mounted"), "{words}");
    }
    // An empty folder in its place, as a mount point is; and a new one named beside.
    std::fs::create_dir(there).unwrap();
    let three = site.disks(3);
    for named in [&disks[..], &three[..], &[]] {
        assert!(matches!(site.refusal(named), StoreError::DiskMissing(_)));
    }
    assert_eq!(std::fs::read_dir(there).unwrap().count(), 0, "nothing was made in it");
    std::fs::remove_dir(there).unwrap();
    std::fs::rename(&away, there).unwrap();
    site.serve(&disks, async |_, store| all_there(&store, 0..FILES).await);
    // One that is no longer named.
    let words = site.refusal(&disks[..1]).to_string();
    assert!(words.contains("stream folder 2") && words.contains("name it again"), "{words}");
    // One part of it is lost.
    std::fs::rename(there.join("07"), site.0.path().join("07")).unwrap();
    let words = site.refusal(&disks).to_string();
    assert!(words.contains("demo/07 is not there"), "{words}");
}

#[test]
fn a_folder_may_move_and_what_is_not_a_free_folder_is_refused_untouched() {
    let site = Site::new();
    site.serve(&site.disks(1), async |_, store| make(&store, 0..FILES).await);
    let moved = site.disk(7);
    std::fs::rename(site.disk(1), &moved).unwrap();
    site.serve(std::slice::from_ref(&moved), async |_, store| all_there(&store, 0..FILES).await);
    site.serve(&[], async |_, store| all_there(&store, 0..FILES).await);
    // Another store's folder, one with other things, one whose disk is not there.
    let other = Site::new();
    other.serve(&other.disks(1), async |_, store| make(&store, 0..1).await);
    let refused = site.refusal(&[moved.clone(), other.disk(1)]);
    assert!(matches!(refused, StoreError::Foreign(_)), "{refused}");
    let full = site.disk(8);
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("thesis.tex"), "all of it").unwrap();
    let words = site.refusal(&[moved.clone(), full.clone()]).to_string();
    assert!(words.contains("thesis.tex") && words.contains("empty folder"), "{words}");
    assert_eq!(std::fs::read_dir(&full).unwrap().count(), 1);
    let words = site.refusal(&[moved, site.0.path().join("nowhere/demo")]).to_string();
    assert!(words.contains("nowhere is not there"), "{words}");
    other.serve(&[], async |_, store| all_there(&store, 0..1).await);
}

#[test]
fn two_servers_that_add_one_folder_at_once_are_one_that_does_and_one_that_is_refused() {
    let site = Site::new();
    let folder = site.disk(1);
    let of = |server: u16| {
        let config = config(&site.0.path().join(format!("store{server}")), std::slice::from_ref(&folder));
        CollectionConfig { identity: Identity { server, ..config.identity }, ..config }
    };
    common::life(|env| async move {
        let (a, b) = join(open(env.clone(), of(0)), open(env.clone(), of(1))).await;
        assert_eq!(usize::from(a.is_ok()) + usize::from(b.is_ok()), 1, "both have it");
        let words = a.as_ref().err().or(b.as_ref().err()).unwrap().to_string();
        assert!(words.contains("in use by another server"), "{words}");
    });
}

#[test]
fn a_folder_that_is_named_twice_by_whatever_path_is_refused_and_once_it_serves() {
    let site = Site::new();
    let one = site.disk(1);
    let words = site.refusal(&[one.clone(), one.clone()]).to_string();
    assert!(words.contains("twice"), "{words}");
    std::os::unix::fs::symlink(one.parent().unwrap(), site.0.path().join("alias")).unwrap();
    let alias = site.0.path().join("alias/demo");
    let words = site.refusal(&[one.clone(), alias]).to_string();
    assert!(words.contains("two paths"), "{words}");
    // The store's own folder, what is in it, and a folder in another one.
    for own in ["store", "store/streams", "store/other", "disk1/demo/00"] {
        let refused = site.refusal(&[one.clone(), site.0.path().join(own)]);
        assert!(matches!(refused, StoreError::Refused(_)), "{own}: {refused}");
    }
    site.serve(std::slice::from_ref(&one), async |_, store| make(&store, 0..FILES).await);
    site.serve(&[], async |_, store| all_there(&store, 0..FILES).await);
}

#[test]
fn of_a_folder_and_its_copy_neither_is_taken_silently() {
    let site = Site::new();
    let (one, copy) = (site.disk(1), site.disk(2));
    site.serve(std::slice::from_ref(&one), async |_, store| make(&store, 0..FILES).await);
    std::fs::create_dir(&copy).unwrap();
    common::copy(&one, &copy);
    for named in [[one.clone(), copy.clone()], [copy.clone(), one.clone()]] {
        let words = site.refusal(&named).to_string();
        assert!(words.contains(one.to_str().unwrap()) && words.contains(copy.to_str().unwrap()), "{words}");
        assert!(words.contains("copy"), "{words}");
    }
    site.serve(&[one], async |_, store| all_there(&store, 0..FILES).await);
}

#[test]
fn an_older_copy_of_a_folder_is_refused_and_gone_on_with_only_by_word() {
    let site = Site::new();
    let (one, old) = (site.disk(1), site.0.path().join("old"));
    site.serve(std::slice::from_ref(&one), async |_, store| make(&store, 0..FILES).await);
    std::fs::create_dir(&old).unwrap();
    common::copy(&one, &old);
    site.serve(&[], async |_, store| {
        for n in 0..FILES {
            write(&store, handle(n), 80_000, content(n)).await;
            store.fsync(handle(n)).await.unwrap();
        }
    });
    std::fs::rename(&one, site.0.path().join("new")).unwrap();
    std::fs::rename(&old, &one).unwrap();
    for named in [std::slice::from_ref(&one), &[]] {
        let words = site.refusal(named).to_string();
        assert!(words.contains("stream folder 1") && words.contains("older copy"), "{words}");
    }
    let marker = one.join("stream-folder");
    let text = std::fs::read_to_string(&marker).unwrap();
    std::fs::write(&marker, text.replace("starts 1", "starts 2")).unwrap();
    site.serve(&[], async |_, _| ());
    // The newest one is refused then, too.
    std::fs::rename(&one, &old).unwrap();
    std::fs::rename(site.0.path().join("new"), &one).unwrap();
    assert!(site.refusal(&[]).to_string().contains("older copy"));
}

#[test]
fn a_list_that_is_gone_is_damage_and_no_store_without_folders() {
    let site = Site::new();
    site.serve(&site.disks(1), async |_, store| make(&store, 0..FILES).await);
    let (list, away) = (site.0.path().join("store/stream-folders"), site.0.path().join("list"));
    std::fs::rename(&list, &away).unwrap();
    for named in [site.disks(1), Vec::new()] {
        let refused = site.refusal(&named);
        assert!(matches!(refused, StoreError::Damaged(_)), "{refused}");
        assert!(refused.to_string().contains("stream-folders is not there"), "{refused}");
    }
    std::fs::rename(&away, &list).unwrap();
    site.serve(&[], async |_, store| all_there(&store, 0..FILES).await);
}

#[test]
fn a_damaged_list_is_seen_and_a_start_that_ended_before_the_list_is_repeated() {
    let site = Site::new();
    site.serve(&site.disks(1), async |_, store| make(&store, 0..FILES).await);
    let list = site.0.path().join("store/stream-folders");
    let text = std::fs::read_to_string(&list).unwrap();
    std::fs::write(&list, text.replace("disk1", "disk2")).unwrap();
    let words = site.refusal(&[]).to_string();
    assert!(words.contains("stream-folders") && words.contains("damaged"), "{words}");
    std::fs::write(&list, &text).unwrap();
    // The second folder got its marker; the list was not written any more.
    let two = site.disks(2);
    site.serve(&two, async |_, _| ());
    std::fs::write(&list, &text).unwrap();
    site.serve(&two, async |_, store| {
        make(&store, 100..100 + FILES).await;
        all_there(&store, 0..FILES).await;
    });
    assert!(site.counts(2)[2] > 3);
    // With files in it, it is not begun anew.
    std::fs::write(&list, &text).unwrap();
    let refused = site.refusal(&two);
    assert!(matches!(refused, StoreError::Foreign(_)), "{refused}");
}

#[test]
fn module_disk_conforms_with_several_folders() {
    let world = World::new(1, Config::default());
    let process = world.process("server", world.machine("m"));
    world.complete(process, |env| async move {
        for disk in ["/disk1", "/disk2"] {
            env.create_dir(disk).await.unwrap();
        }
        check(Promises { bytes: true }, |name| {
            let streams = ["/disk1", "/disk2"].map(|disk| Path::new(disk).join(name));
            open(env.clone(), config(&Path::new("/data").join(name), &streams))
        })
        .await;
    });
}

#[test]
fn what_was_synced_survives_power_cuts_with_folders_added_between() {
    for seed in 0..30 {
        let world = World::new(seed, Config::default());
        let machine = world.machine("m");
        let process = world.process("server", machine);
        let streams = |count: usize| {
            let of = |number| PathBuf::from(format!("/disk{number}/demo"));
            config(Path::new("/data/store"), &(1..=count).map(of).collect::<Vec<_>>())
        };
        for round in 0..4_u64 {
            let config = streams(round as usize);
            world.complete(process, |env| async move {
                for number in 1..=round {
                    env.create_dir(format!("/disk{number}")).await.unwrap();
                    env.sync_dir("/").await.unwrap();
                }
                let store = open(env.clone(), config).await.unwrap();
                all_there(&store, 0..round * 5).await;
                make(&store, round * 5..round * 5 + 7).await;
                for n in round * 5..round * 5 + 5 {
                    store.fsync(handle(n)).await.unwrap();
                }
                // The last two are not synced; of an earlier one a new life begins elsewhere.
                if round > 0 {
                    let old = handle(round * 5 - 1);
                    let cut = StreamChange::Resize { generation: 1, size: 0, written_at: None };
                    change(&store, old, cut).await;
                    write(&store, old, 0, content(round * 5 - 1)).await;
                    store.fsync(old).await.unwrap();
                }
            });
            world.power_cut(machine);
        }
        world.complete(process, |env| async move {
            let store = open(env.clone(), streams(0)).await.unwrap();
            all_there(&store, 0..20).await;
        });
    }
}

/// The virtual time that a store with so many disks takes for writes of 64 streams, durable each.
fn writing(disks: usize) -> Duration {
    const STREAMS: u64 = 64;
    let world = World::new(7, Config::default());
    let machine = world.machine("m");
    let process = world.process("server", machine);
    let streams: Vec<PathBuf> = (1..=disks).map(|disk| PathBuf::from(format!("/disk{disk}/demo"))).collect();
    for disk in 1..=disks {
        world.further_disk(machine, format!("/disk{disk}")).unwrap();
    }
    world.complete(process, |env| async move {
        let store = open(env.clone(), config(Path::new("/data/store"), &streams)).await.unwrap();
        for n in 0..STREAMS {
            change(&store, handle(n), StreamChange::Create { generation: 1 }).await;
        }
        let began = env.now();
        let one = |n| {
            let store = store.clone();
            async move {
                for part in 0..2 {
                    write(&store, handle(n), part << 20, bytes(n, 1 << 20)).await;
                }
                store.fsync(handle(n)).await.unwrap();
            }
        };
        join_all((0..STREAMS).map(one)).await;
        env.now().since(began)
    })
}

#[test]
fn two_disks_write_at_least_1_6_times_as_much_as_one() {
    let (one, two) = (writing(1), writing(2));
    assert!(two.as_secs_f64() * 1.6 <= one.as_secs_f64(), "{one:?} by one disk, {two:?} by two");
}
