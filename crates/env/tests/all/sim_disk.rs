//! The written data that a simulated disk keeps after a power cut, the end of a process, or a failed sync,
//! and its capacity.
//!
//! Synced data stays. Of the rest a power cut keeps any part: sectors whole or not at all, names as a
//! prefix of their changes. A killed process loses only the write under way.

use bytes::Bytes;
use shoal_env::OpenOptions;
use shoal_env::sim::{Config, Disk, World};
use std::io::ErrorKind;
use std::time::Duration;

const CREATE: OpenOptions =
    OpenOptions { create: true, exclusive: false, direct: false, dsync: false, private: false, apart: false };

#[test]
fn a_power_cut_keeps_what_was_synced_and_may_lose_the_rest() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..40 {
        let world = World::new(seed, Config::default());
        let machine = world.machine("m");
        let process = world.process("p", machine);
        let before = world.complete(process, |env| async move {
            env.create_dir("/d").await.unwrap();
            env.sync_dir("/").await.unwrap();
            let file = env.open("/d/file", CREATE).await.unwrap();
            file.write_at(0, vec![vec![1; 8192].into()]).await.unwrap();
            file.sync().await.unwrap();
            env.sync_dir("/d").await.unwrap();
            file.write_at(8192, vec![vec![2; 4096].into()]).await.unwrap();
            env.open("/d/unsynced", CREATE).await.unwrap();
            env.boot_id()
        });
        world.power_cut(machine);
        let (after, read, names) = world.complete(process, |env| async move {
            let file = env.open("/d/file", OpenOptions::default()).await.unwrap();
            let names = env.list("/d").await.unwrap().len();
            (env.boot_id(), file.read_at(0, 1 << 20).await.unwrap(), names)
        });
        assert_ne!(before, after);
        assert!(read[..8192].iter().all(|byte| *byte == 1), "what was synced is there");
        assert!(read[8192..].iter().all(|byte| [0, 2].contains(byte)));
        kept += usize::from(read.len() > 8192) + usize::from(names == 2);
        lost += usize::from(read.len() == 8192) + usize::from(names == 1);
    }
    assert!(kept > 10 && lost > 10, "{kept} kept, {lost} lost");
}

#[test]
fn a_durable_write_survives_a_power_cut_though_earlier_ones_may_not() {
    for seed in 0..30 {
        let world = World::new(seed, Config::default());
        let machine = world.machine("m");
        let process = world.process("p", machine);
        world.complete(process, |env| async move {
            let options = OpenOptions { direct: true, dsync: true, ..CREATE };
            let journal = env.open("/journal", options).await.unwrap();
            env.sync_dir("/").await.unwrap();
            let buffered = env.open("/journal", OpenOptions::default()).await.unwrap();
            buffered.write_at(0, vec![vec![1; 4096].into()]).await.unwrap();
            journal.write_at(4096, vec![vec![2; 4096].into()]).await.unwrap();
        });
        world.power_cut(machine);
        let read =
            world.complete(process, |env| async move { env.read_file("/journal", 9000).await.unwrap() });
        assert_eq!(read.len(), 8192);
        assert!(read[4096..].iter().all(|byte| *byte == 2));
    }
}

#[test]
fn a_write_in_flight_at_a_power_cut_may_be_torn_by_sectors() {
    let mut torn = 0;
    for seed in 0..60 {
        let world = World::new(seed, Config::default());
        let machine = world.machine("m");
        let process = world.process("p", machine);
        world.complete(process, |env| async move {
            let file = env.open("/journal", CREATE).await.unwrap();
            file.allocate(0, 8192, true).await.unwrap();
            file.sync().await.unwrap();
            env.sync_dir("/").await.unwrap();
        });
        world.start(process, |env| async move {
            let options = OpenOptions { direct: true, dsync: true, ..OpenOptions::default() };
            let journal = env.open("/journal", options).await.unwrap();
            journal.write_at(0, vec![vec![7; 8192].into()]).await.unwrap();
        });
        world.run_for(Duration::from_micros(50));
        assert!(world.is_alive(process), "the write is in flight");
        world.power_cut(machine);
        let read =
            world.complete(process, |env| async move { env.read_file("/journal", 9000).await.unwrap() });
        let sectors: Vec<bool> = read.chunks(512).map(|sector| sector[0] == 7).collect();
        for sector in read.chunks(512) {
            assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is written whole or not at all");
        }
        torn += usize::from(sectors.contains(&true) && sectors.contains(&false));
    }
    assert!(torn > 5, "{torn}");
}

#[test]
fn what_is_lost_of_a_disk_in_another_machine_has_another_boot_id_when_the_disk_is_back() {
    let world = World::new(3, Config::default());
    let (near, far) = (world.machine("near"), world.machine("far"));
    let process = world.process("p", near);
    let boot_id = || world.complete(process, |env| async move { env.boot_id() });
    let before = boot_id();
    world.exchange_disks(near, far);
    world.exchange_disks(near, far);
    assert_eq!(boot_id(), before, "nothing was lost");
    world.exchange_disks(near, far);
    world.power_cut(far);
    world.exchange_disks(near, far);
    assert_ne!(boot_id(), before);
}

#[test]
fn a_crash_keeps_what_was_written_and_the_boot_id_and_frees_locks() {
    let world = World::new(5, Config::default());
    let process = world.process("p", world.machine("m"));
    let before = world.complete(process, |env| async move {
        env.lock("/lock").await.unwrap();
        let file = env.open("/file", CREATE).await.unwrap();
        file.write_at(0, vec![vec![1; 100_000].into()]).await.unwrap();
        env.boot_id()
    });
    world.start(process, |env| async move {
        env.lock("/lock").await.unwrap();
        std::future::pending::<()>().await;
    });
    world.run_for(Duration::from_millis(1));
    world.crash(process);
    let (after, read) = world.complete(process, |env| async move {
        env.lock("/lock").await.unwrap();
        (env.boot_id(), env.read_file("/file", 1 << 20).await.unwrap())
    });
    assert_eq!(before, after);
    assert!(read.len() == 100_000 && read.iter().all(|byte| *byte == 1));
}

#[test]
fn a_write_in_flight_at_a_crash_is_done_up_to_some_byte() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..20 {
        let world = World::new(seed, Config::default());
        let process = world.process("p", world.machine("m"));
        world.start(process, |env| async move {
            let file = env.open("/file", CREATE).await.unwrap();
            file.write_at(0, vec![vec![7; 1 << 20].into()]).await.unwrap();
            std::future::pending::<()>().await;
        });
        world.run_for(Duration::from_micros(50));
        world.crash(process);
        let read =
            world.complete(process, |env| async move { env.read_file("/file", 1 << 20).await.unwrap() });
        assert!(read.iter().all(|byte| *byte == 7));
        lengths.insert(read.len());
    }
    assert!(lengths.len() > 10);
}

#[test]
fn names_survive_a_power_cut_as_a_prefix_of_what_was_done() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let world = World::new(seed, Config::default());
        let machine = world.machine("m");
        let process = world.process("p", machine);
        world.complete(process, |env| async move {
            for number in 0..5 {
                env.open(format!("/{number}"), CREATE).await.unwrap();
            }
        });
        world.power_cut(machine);
        let names = world.complete(process, |env| async move { env.list("/").await.unwrap() });
        let found: Vec<String> = names.into_iter().map(|entry| entry.name).collect();
        let prefix: Vec<String> = (0..found.len()).map(|number| number.to_string()).collect();
        assert_eq!(found, prefix);
        lengths.insert(found.len());
    }
    assert!(lengths.len() > 3);
}

#[test]
fn a_file_is_replaced_whole_or_not_at_all_by_a_power_cut() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let world = World::new(seed, Config::default());
        let machine = world.machine("m");
        let process = world.process("p", machine);
        world.complete(process, |env| async move {
            env.replace_file("/config", Bytes::from_static(b"old")).await.unwrap();
        });
        world.start(process, |env| async move {
            env.replace_file("/config", Bytes::from(vec![b'n'; 9000])).await.unwrap();
        });
        world.run_for(Duration::from_micros(seed * 7));
        world.power_cut(machine);
        let read =
            world.complete(process, |env| async move { env.read_file("/config", 10_000).await.unwrap() });
        assert!(read[..] == *b"old" || read[..] == [b'n'; 9000], "seed {seed}: {} bytes", read.len());
        seen.insert(read.len());
    }
    assert_eq!(seen.len(), 2);
}

#[test]
fn what_a_failed_sync_covered_is_never_durable_though_a_later_sync_succeeds() {
    for seed in 0..20 {
        let world = World::new(seed, Config::default());
        let machine = world.machine("m");
        let process = world.process("p", machine);
        world.complete(process, |env| async move {
            env.open("/file", CREATE).await.unwrap();
            env.sync_dir("/").await.unwrap();
        });
        world.fail_syncs(machine, 1);
        world.complete(process, |env| async move {
            let file = env.open("/file", OpenOptions::default()).await.unwrap();
            file.write_at(0, vec![vec![1; 4096].into()]).await.unwrap();
            assert!(file.sync().await.is_err());
            file.write_at(4096, vec![vec![2; 4096].into()]).await.unwrap();
            file.sync().await.unwrap();
            assert_eq!(file.read_at(0, 1).await.unwrap()[0], 1, "the cache still shows it");
        });
        world.power_cut(machine);
        let read = world.complete(process, |env| async move { env.read_file("/file", 9000).await.unwrap() });
        assert!(read[..4096].iter().all(|byte| *byte == 0));
        assert!(read[4096..].iter().all(|byte| *byte == 2));
    }
}

#[test]
fn a_full_disk_says_so_and_freed_space_counts_again() {
    let mut config = Config::default();
    config.machine.disk.capacity = 100 * 4096;
    let world = World::new(1, config);
    let machine = world.machine("m");
    let process = world.process("p", machine);
    world.complete(process, |env| async move {
        let file = env.open("/big", CREATE).await.unwrap();
        file.write_at(0, vec![vec![1; 90 * 4096].into()]).await.unwrap();
        let full = file.write_at(90 * 4096, vec![vec![1; 11 * 4096].into()]).await.unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        assert_eq!(file.allocate(0, 101 * 4096, false).await.unwrap_err().kind(), ErrorKind::StorageFull);
        file.write_at(0, vec![vec![2; 90 * 4096].into()]).await.unwrap();
        file.truncate(4096).await.unwrap();
        file.write_at(4096, vec![vec![1; 99 * 4096].into()]).await.unwrap();
        let space = env.space("/").await.unwrap();
        assert_eq!((space.total, space.available), (100 * 4096, 0));
        drop(file);
        env.remove("/big").await.unwrap();
        assert_eq!(env.space("/").await.unwrap().available, 0, "the removal is not durable yet");
        env.sync_dir("/").await.unwrap();
        assert_eq!(env.space("/").await.unwrap().available, 100 * 4096);
    });
    world.set_disk(machine, Disk { capacity: 4096, ..Disk::default() });
    assert_eq!(world.disk_space(machine), (4096, 4096));
}

#[test]
fn a_copy_of_a_disk_is_what_was_durable_and_the_newest_one_comes_back_whole() {
    let world = World::new(1, Config::default());
    let machine = world.machine("m");
    let process = world.process("p", machine);
    let (spare, clock) = (std::rc::Rc::new(std::cell::RefCell::new(None)), world.clone());
    let taken = spare.clone();
    let before = world.complete(process, |env| async move {
        let file = env.open("/file", CREATE).await.unwrap();
        file.write_at(0, vec![vec![1; 5000].into()]).await.unwrap();
        file.sync().await.unwrap();
        env.sync_dir("/").await.unwrap();
        file.write_at(0, vec![vec![2; 5000].into()]).await.unwrap();
        env.open("/new", CREATE).await.unwrap();
        taken.replace(Some(clock.copy_disk(machine)));
        file.sync().await.unwrap();
        file.write_at(5000, vec![vec![3; 100].into()]).await.unwrap();
        env.boot_id()
    });
    let mut spare = spare.take().unwrap();
    let look = || {
        world.complete(process, |env| async move {
            let file = env.open("/file", OpenOptions::default()).await.unwrap();
            let names = env.list("/").await.unwrap().len();
            (env.boot_id(), names, file.read_at(0, 1 << 20).await.unwrap())
        })
    };
    world.exchange_disk(machine, &mut spare);
    let (boot, names, bytes) = look();
    assert!(boot != before && names == 1 && *bytes == [1; 5000]);
    world.exchange_disk(machine, &mut spare);
    let (boot, names, bytes) = look();
    assert!(boot == before && names == 2 && *bytes == *[vec![2; 5000], vec![3; 100]].concat());
}
