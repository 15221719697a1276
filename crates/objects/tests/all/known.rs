//! A mount knows names that other processes, or its own calls, changed since: it changes no wrong object, and
//! what it was given is not lost.

use crate::held::Held;
use crate::scene::{BOTH, EXCHANGE, OWNER, PLAIN, mount, name, run};
use bytes::Bytes;
use futures_util::future::{join, join4};
use shoal_env::Env;
use shoal_objects::memory::Conduct;
use shoal_objects::{MemoryStore, ObjectFile, Objects, ObjectsOptions, PART_BYTES_MIN};
use shoal_proto::{Allocation, Handle, Kind, Rights, SetAttr, Status, Time};
use shoal_transform::ContainerOptions;
use shoal_vfs::{Connect, Listing, Vfs, VfsFile};
use std::time::Duration;

async fn make(vfs: &Objects, text: &str) -> ObjectFile {
    vfs.create(Handle::ROOT, &name(text), OWNER, true, BOTH).await.unwrap().2
}

async fn mv(vfs: &Objects, from: &str, to: &str) -> shoal_vfs::Result<()> {
    vfs.rename(Handle::ROOT, &name(from), Handle::ROOT, &name(to), PLAIN).await
}

async fn content(env: &Env, memory: &MemoryStore, text: &str) -> Vec<u8> {
    let file = mount(env, memory).await.open_name(Handle::ROOT, &name(text), Rights::READ).await.unwrap();
    file.read(0, 1 << 20).await.unwrap().to_vec()
}

#[test]
fn a_directory_is_not_moved_below_itself_where_another_process_moved_the_new_one_there() {
    run(1, async |env, memory| {
        for flags in [PLAIN, EXCHANGE] {
            let memory = MemoryStore::default();
            let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
            let a = one.mkdir(Handle::ROOT, &name("a"), OWNER).await.unwrap().handle;
            let b = one.mkdir(Handle::ROOT, &name("b"), OWNER).await.unwrap().handle;
            let c = one.mkdir(b, &name("c"), OWNER).await.unwrap().handle;
            one.mknod(c, &name("x"), OWNER, Kind::Fifo, 0).await.unwrap();
            assert_eq!(two.lookup(Handle::ROOT, &name("b")).await.unwrap().handle, b);
            assert_eq!(two.lookup(b, &name("c")).await.unwrap().handle, c);
            one.rename(Handle::ROOT, &name("b"), a, &name("b"), PLAIN).await.unwrap();
            // Each of the two names may be the one that lies too deep.
            let refused = match flags.exchange {
                true => two.rename(c, &name("x"), Handle::ROOT, &name("a"), flags).await,
                false => two.rename(Handle::ROOT, &name("a"), c, &name("y"), flags).await,
            };
            assert_eq!(refused.unwrap_err().status, Status::Invalid);
            let fresh = mount(&env, &memory).await;
            let a = fresh.lookup(Handle::ROOT, &name("a")).await.unwrap().handle;
            let b = fresh.lookup(a, &name("b")).await.unwrap().handle;
            assert_eq!(fresh.lookup(b, &name("c")).await.unwrap().handle, c);
            // Once it does not lie there any more, it can be moved.
            one.rename(a, &name("b"), Handle::ROOT, &name("b"), PLAIN).await.unwrap();
            two.rename(Handle::ROOT, &name("a"), c, &name("y"), PLAIN).await.unwrap();
            let found = fresh.check().await.unwrap();
            assert_eq!((found.leftovers, found.damage), (Vec::new(), Vec::new()));
        }
        drop(memory);
    });
}

#[test]
fn a_directory_is_not_moved_into_one_that_cannot_be_found() {
    run(2, async |env, memory| {
        let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
        let a = one.mkdir(Handle::ROOT, &name("a"), OWNER).await.unwrap().handle;
        let b = one.mkdir(Handle::ROOT, &name("b"), OWNER).await.unwrap().handle;
        one.mkdir(b, &name("c"), OWNER).await.unwrap();
        two.lookup(Handle::ROOT, &name("b")).await.unwrap();
        let c = two.lookup(b, &name("c")).await.unwrap().handle;
        one.rename(Handle::ROOT, &name("b"), a, &name("b"), PLAIN).await.unwrap();
        // The hint to it is lost.
        let hint = memory.objects().into_keys().find(|key| key.contains("m/")).unwrap();
        memory.set(&hint, None);
        let refused = two.rename(Handle::ROOT, &name("a"), c, &name("x"), PLAIN).await.unwrap_err();
        assert_eq!(refused.status, Status::Stale, "{refused}");
        assert!(refused.words.contains("look"), "{refused}");
        let fresh = mount(&env, &memory).await;
        assert_eq!(fresh.lookup(Handle::ROOT, &name("a")).await.unwrap().handle, a);
    });
}

#[test]
fn a_directory_in_which_a_file_is_open_is_known_however_many_names_are_made_meanwhile() {
    run(3, async |env, memory| {
        let over = ObjectsOptions::new(memory.clone(), "");
        let vfs = ContainerOptions::new(over).connect(env.clone()).await.unwrap();
        let file = vfs.create(Handle::ROOT, &name("file"), OWNER, true, BOTH).await.unwrap().2;
        file.write(0, Bytes::from_static(b"bytes")).await.unwrap();
        for number in 0..66_000 {
            vfs.mknod(Handle::ROOT, &name(&format!("{number}")), OWNER, Kind::Fifo, 0).await.unwrap();
        }
        file.fsync().await.unwrap();
        file.write(5, Bytes::from_static(b" and more")).await.unwrap();
        file.close().await.unwrap();
        let over = ObjectsOptions::new(memory.clone(), "");
        let fresh = ContainerOptions::new(over).connect(env.clone()).await.unwrap();
        let file = fresh.open_name(Handle::ROOT, &name("file"), Rights::READ).await.unwrap();
        assert_eq!(&file.read(0, 99).await.unwrap()[..], b"bytes and more");
    });
}

#[test]
fn an_entry_that_a_listing_got_before_its_move_or_removal_does_not_change_where_the_object_is() {
    run(4, async |env, memory| {
        for (way, plus) in
            ["move", "unlink", "replace"].into_iter().flat_map(|way| [(way, false), (way, true)])
        {
            let memory = MemoryStore::default();
            let vfs = mount(&env, &memory).await;
            for text in ["a", "d"] {
                make(&vfs, text).await.close().await.unwrap();
            }
            let file = make(&vfs, "b").await;
            file.write(0, Bytes::from_static(b"bytes")).await.unwrap();
            let mut listing = vfs.opendir(Handle::ROOT, Duration::from_secs(1));
            assert_eq!(listing.next(plus).await.unwrap().unwrap().entry.name, name("a"));
            match way {
                "move" => mv(&vfs, "b", "c").await.unwrap(),
                "unlink" => vfs.unlink(Handle::ROOT, &name("b")).await.unwrap(),
                _ => mv(&vfs, "d", "b").await.unwrap(),
            }
            let mut found = Vec::new();
            while let Some(listed) = listing.next(plus).await.unwrap() {
                found.push((listed.entry.name.to_string(), listed.entry.handle == file.handle()));
            }
            // A name that was there all the time is listed, and leads to its new object.
            let left = if way == "replace" { "b" } else { "d" };
            assert_eq!(found, [(left.to_owned(), false)], "{way}");
            file.fsync().await.unwrap();
            file.write(5, Bytes::from_static(b" and more")).await.unwrap();
            let attr = vfs.getattr(file.handle()).await.unwrap();
            assert_eq!((attr.size, attr.nlink), (14, u32::from(way == "move")), "{way}");
            file.close().await.unwrap();
            let there = if way == "move" { "c" } else { left };
            let bytes: &[u8] = if way == "move" { b"bytes and more" } else { b"" };
            assert_eq!(content(&env, &memory, there).await, bytes, "{way}");
        }
        drop(memory);
    });
}

#[test]
fn a_file_that_is_opened_while_another_process_moves_it_loses_no_byte_that_was_synced() {
    run(5, async |env, memory| {
        let (held, other) = (Held::new(&memory), mount(&env, &memory).await);
        let vfs = held.mount(&env).await;
        let file = make(&vfs, "from").await;
        file.write(0, Bytes::from_static(b"bytes")).await.unwrap();
        file.close().await.unwrap();
        held.hold("put", "/to", 0);
        let mut opened = None;
        let work = held.meanwhile(&env, async || {
            let file = other.open_name(Handle::ROOT, &name("from"), BOTH).await.unwrap();
            file.write(5, Bytes::from_static(b" and more")).await.unwrap();
            let synced = env.deadline(env.now() + Duration::from_secs(1), file.fsync()).await;
            opened = Some((file, matches!(synced, Ok(Ok(())))));
        });
        let (moved, ()) = join(mv(&vfs, "from", "to"), work).await;
        let (file, mut is_synced) = opened.unwrap();
        if !is_synced {
            moved.unwrap();
            // Its new name is looked up, and it is written on.
            assert_eq!(other.lookup(Handle::ROOT, &name("to")).await.unwrap().handle, file.handle());
            is_synced = file.fsync().await.is_ok();
            assert!(is_synced);
        }
        let mut there = Vec::new();
        for text in ["from", "to"] {
            if mount(&env, &memory).await.lookup(Handle::ROOT, &name(text)).await.is_ok() {
                there.push(content(&env, &memory, text).await);
            }
        }
        assert_eq!(there, [b"bytes and more"]);
    });
}

#[test]
fn a_new_file_that_another_process_moves_before_its_creation_is_answered_loses_no_byte_that_was_synced() {
    run(6, async |env, memory| {
        let (held, held_too) = (Held::new(&memory), Held::new(&memory));
        let (one, two) = (held.mount(&env).await, held_too.mount(&env).await);
        // It is done, and its answer comes late, and is lost.
        held.hold("put", "/from", 0);
        held.gate.lock().unwrap().loses = true;
        held_too.hold("put", "/to", 0);
        let mut made = None;
        let first = async {
            let file = make(&one, "from").await;
            file.write(0, Bytes::from_static(b"bytes")).await.unwrap();
            let synced = env.deadline(env.now() + Duration::from_secs(1), file.fsync()).await;
            made = Some((file, matches!(synced, Ok(Ok(())))));
        };
        let second = async {
            while !held.is_reached() {
                env.sleep(Duration::from_millis(1)).await;
            }
            mv(&two, "from", "to").await
        };
        let work = async {
            let is_claimed = async || {
                while !held_too.is_reached() {
                    env.sleep(Duration::from_millis(1)).await;
                }
            };
            held.meanwhile(&env, is_claimed).await;
            held_too.meanwhile(&env, async || env.sleep(Duration::from_secs(3)).await).await;
        };
        let (((), moved), ()) = join(join(first, second), work).await;
        let (file, is_synced) = made.unwrap();
        if !is_synced {
            moved.unwrap();
            assert_eq!(one.lookup(Handle::ROOT, &name("to")).await.unwrap().handle, file.handle());
            file.fsync().await.unwrap();
        }
        let mut there = Vec::new();
        for text in ["from", "to"] {
            if mount(&env, &memory).await.lookup(Handle::ROOT, &name(text)).await.is_ok() {
                there.push(content(&env, &memory, text).await);
            }
        }
        assert_eq!(there, [b"bytes"]);
    });
}

#[test]
fn a_file_that_is_written_after_a_move_whose_last_step_failed_has_no_old_name_once_it_is_removed() {
    run(7, async |env, memory| {
        let (held, other) = (Held::new(&memory), mount(&env, &memory).await);
        let vfs = held.mount(&env).await;
        let file = make(&vfs, "from").await;
        file.write(0, Bytes::from_static(b"bytes")).await.unwrap();
        file.fsync().await.unwrap();
        held.hold("delete", "/from", 0);
        mv(&vfs, "from", "to").await.unwrap();
        assert!(held.is_reached());
        file.write(5, Bytes::from_static(b" and more")).await.unwrap();
        file.close().await.unwrap();
        other.unlink(Handle::ROOT, &name("to")).await.unwrap();
        for text in ["from", "to"] {
            let found = mount(&env, &memory).await.lookup(Handle::ROOT, &name(text)).await;
            assert_eq!(found.map(|found| found.size).unwrap_err().status, Status::NotFound, "{text}");
        }
    });
}

#[test]
fn attributes_that_two_processes_change_of_an_open_file_are_all_kept() {
    run(8, async |env, memory| {
        let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
        let file = make(&one, "file").await;
        file.write(0, Bytes::from_static(b"bytes")).await.unwrap();
        file.fsync().await.unwrap();
        let there = two.lookup(Handle::ROOT, &name("file")).await.unwrap().handle;
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        two.setattr(there, mode).await.unwrap();
        let times = SetAttr { mtime: Some(Time(7)), atime: Some(Time(8)), ..SetAttr::default() };
        one.setattr(file.handle(), times).await.unwrap();
        file.close().await.unwrap();
        let found = mount(&env, &memory).await.lookup(Handle::ROOT, &name("file")).await.unwrap();
        assert_eq!((found.mode & 0o777, found.mtime, found.atime), (0o600, Time(7), Time(8)));
    });
}

#[test]
fn an_allocation_that_waits_for_a_write_does_not_cut_the_file() {
    run(9, async |env, memory| {
        let held = Held::new(&memory);
        let vfs = held.mount(&env).await;
        let file = make(&vfs, "file").await;
        file.write(0, Bytes::from(vec![1; 10])).await.unwrap();
        held.hold("put", "/file", 0);
        let work = held.meanwhile(&env, async || env.sleep(Duration::from_millis(10)).await);
        let write = file.write(10, Bytes::from(vec![1; 190]));
        let allocation = file.allocate(0, 100, Allocation::Extend);
        let (synced, written, allocated, ()) = join4(file.fsync(), write, allocation, work).await;
        synced.and(written).and(allocated).unwrap();
        assert!(file.read(0, 999).await.unwrap() == vec![1; 200], "it was cut");
        file.allocate(0, 300, Allocation::Extend).await.unwrap();
        file.close().await.unwrap();
        assert_eq!(content(&env, &memory, "file").await, [vec![1; 200], vec![0; 100]].concat());
    });
}

#[test]
fn a_file_whose_cut_was_given_up_is_written_on_where_it_ends_then() {
    run(10, async |env, memory| {
        // The part at the end is in memory, or is not; the removal of a part is done, or is not.
        for turn in 0..10 {
            let (memory, parts) = (MemoryStore::default(), 3);
            let (more, size, passing) = match turn {
                0..8 => ([0, 9][turn % 2], 100, [0, 1][turn / 4]),
                _ => (9, parts * PART_BYTES_MIN, 0),
            };
            let loses = if turn < 8 { turn / 2 % 2 == 0 } else { turn == 8 };
            let held = Held::new(&memory);
            let vfs = held.mount(&env).await;
            let file = make(&vfs, "file").await;
            for number in 0..parts {
                let at = number * PART_BYTES_MIN;
                file.write(at as u64, Bytes::from(vec![number as u8; PART_BYTES_MIN])).await.unwrap();
                file.fsync().await.unwrap();
            }
            file.write((parts * PART_BYTES_MIN) as u64, Bytes::from(vec![parts as u8; more])).await.unwrap();
            file.fsync().await.unwrap();
            let before = content(&env, &memory, "file").await;
            held.hold("delete", "d/", passing);
            held.gate.lock().unwrap().loses = loses;
            let cut = vfs.truncate(file.handle(), size as u64, false);
            assert!(env.deadline(env.now() + Duration::from_secs(5), Box::pin(cut)).await.is_err());
            let at = file.append(Bytes::from_static(b"more")).await.unwrap() as usize;
            file.fsync().await.unwrap();
            let there = content(&env, &memory, "file").await;
            assert!(there[..at] == before[..at], "turn {turn}: {at}");
            assert_eq!(&there[at..], b"more", "turn {turn}");
            vfs.truncate(file.handle(), size as u64, false).await.unwrap();
            file.close().await.unwrap();
            assert!(content(&env, &memory, "file").await == before[..size], "turn {turn}");
        }
        drop(memory);
    });
}

#[test]
fn a_new_file_that_another_process_writes_before_its_creation_is_answered_keeps_those_bytes() {
    run(11, async |env, _| {
        for (is_late, len) in [(false, 6), (false, PART_BYTES_MIN), (true, 6), (true, PART_BYTES_MIN)] {
            let memory = MemoryStore::default();
            let (held, other) = (Held::new(&memory), mount(&env, &memory).await);
            let vfs = held.mount(&env).await;
            let write = async || {
                let file = other.open_name(Handle::ROOT, &name("f"), BOTH).await.unwrap();
                file.write(0, Bytes::from(vec![2; len])).await.unwrap();
                file.fsync().await.unwrap();
            };
            if is_late {
                let late_each = (1, Duration::from_millis(20));
                memory.conduct(Conduct { late_each, ..Conduct::default() });
            } else {
                held.hold("put", "/f", 0);
                held.gate.lock().unwrap().loses = true;
            }
            let work = async {
                if is_late {
                    env.sleep(Duration::from_millis(10)).await;
                    memory.conduct(Conduct::default());
                    env.sleep(Duration::from_millis(15)).await;
                    write().await;
                } else {
                    held.meanwhile(&env, write).await;
                }
            };
            let (file, ()) = join(make(&vfs, "f"), work).await;
            file.write(0, Bytes::from_static(b"own")).await.unwrap();
            let synced = file.fsync().await.map_err(|error| error.status);
            assert!(content(&env, &memory, "f").await == vec![2; len], "late: {is_late}, {len}");
            assert_eq!(synced, Err(Status::Busy));
        }
    });
}

#[test]
fn a_file_that_is_opened_while_it_is_cut_ends_where_it_was_cut() {
    run(12, async |env, memory| {
        let (held, other) = (Held::new(&memory), mount(&env, &memory).await);
        let vfs = held.mount(&env).await;
        let file = make(&other, "file").await;
        for number in 0..3 {
            file.append(Bytes::from(vec![number; PART_BYTES_MIN])).await.unwrap();
            file.fsync().await.unwrap();
        }
        file.close().await.unwrap();
        let before = content(&env, &memory, "file").await;
        let file = vfs.open_name(Handle::ROOT, &name("file"), BOTH).await.unwrap();
        held.hold("delete", "d/", 0);
        let mut again = None;
        let work = held.meanwhile(&env, async || {
            again = Some(vfs.open_name(Handle::ROOT, &name("file"), BOTH).await.unwrap());
        });
        let (cut, ()) = join(vfs.truncate(file.handle(), 100, false), work).await;
        assert_eq!(cut.unwrap().size, 100);
        assert_eq!(again.unwrap().append(Bytes::from_static(b"more")).await.unwrap(), 100);
        file.fsync().await.unwrap();
        assert!(content(&env, &memory, "file").await == [&before[..100], b"more"].concat());
    });
}

#[test]
fn a_new_file_that_another_task_opens_before_its_creation_returns_is_written_by_both() {
    run(13, async |env, memory| {
        let held = Held::new(&memory);
        let vfs = held.mount(&env).await;
        let dir = vfs.mkdir(Handle::ROOT, &name("dir"), OWNER).await.unwrap().handle;
        let (own, mut opened) = (name("f"), None);
        held.hold("get", "/dir", 0);
        let work = held.meanwhile(&env, async || {
            let file = vfs.open_name(dir, &own, BOTH).await.unwrap();
            file.append(Bytes::from_static(b"one")).await.unwrap();
            file.fsync().await.unwrap();
            opened = Some(file);
        });
        let (made, ()) = join(vfs.create(dir, &own, OWNER, true, BOTH), work).await;
        let (file, opened) = (made.unwrap().2, opened.unwrap());
        file.append(Bytes::from_static(b", two")).await.unwrap();
        file.fsync().await.unwrap();
        opened.append(Bytes::from_static(b", three")).await.unwrap();
        opened.close().await.unwrap();
        file.append(Bytes::from_static(b", four")).await.unwrap();
        file.close().await.unwrap();
        let fresh = mount(&env, &memory).await;
        let dir = fresh.lookup(Handle::ROOT, &name("dir")).await.unwrap().handle;
        let there = fresh.open_name(dir, &own, Rights::READ).await.unwrap();
        assert_eq!(there.read(0, 99).await.unwrap(), "one, two, three, four");
    });
}

#[test]
fn attributes_of_an_open_file_can_be_changed_after_another_process_wrote_it_and_hide_no_byte() {
    run(14, async |env, _| {
        for (is_written, len) in [(false, 6), (false, PART_BYTES_MIN), (true, 6), (true, PART_BYTES_MIN)] {
            let memory = MemoryStore::default();
            let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
            let first = make(if is_written { &one } else { &two }, "file").await;
            first.write(0, Bytes::from_static(b"bytes")).await.unwrap();
            first.fsync().await.unwrap();
            let file = one.open_name(Handle::ROOT, &name("file"), Rights::READ).await.unwrap();
            let more = two.open_name(Handle::ROOT, &name("file"), BOTH).await.unwrap();
            more.append(Bytes::from(vec![2; len])).await.unwrap();
            more.fsync().await.unwrap();
            let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
            let attr = one.setattr(file.handle(), set).await.unwrap();
            let now = [b"bytes".to_vec(), vec![2; len]].concat();
            assert_eq!((attr.mode & 0o777, attr.size), (0o600, now.len() as u64), "{is_written}, {len}");
            let again = one.open_name(Handle::ROOT, &name("file"), Rights::READ).await.unwrap();
            assert!(again.read(0, now.len() + 1).await.unwrap() == now, "{is_written}, {len}");
            more.close().await.unwrap();
            assert!(content(&env, &memory, "file").await == now);
        }
    });
}
