//! Files over an object store: parts, tails, the last close; one writer; damage.

use crate::scene::{BOTH, OWNER, name};
use bytes::Bytes;
use shoal_env::{Env, real};
use shoal_objects::{MemoryStore, ObjectFile, Objects, ObjectsOptions, PART_BYTES_MAX, PART_BYTES_MIN};
use shoal_proto::{Attr, Handle, SetAttr, Status, Time};
use shoal_vfs::{Connect, RenameFlags, Vfs, VfsFile};

async fn mount(env: &Env, memory: &MemoryStore) -> Objects {
    ObjectsOptions::new(memory.clone(), "p").connect(env.clone()).await.unwrap()
}

async fn make(vfs: &Objects, text: &str) -> (Attr, ObjectFile) {
    let (attr, _, file) = vfs.create(Handle::ROOT, &name(text), OWNER, true, BOTH).await.unwrap();
    (attr, file)
}

async fn open(vfs: &Objects, text: &str) -> ObjectFile {
    vfs.open_name(Handle::ROOT, &name(text), BOTH).await.unwrap()
}

fn run(body: impl AsyncFnOnce(Env, MemoryStore)) {
    real::run("test", async move |env| body(env, MemoryStore::default()).await);
}

fn bytes(len: usize) -> Bytes {
    (0..len).map(|at| (at / 251 + at) as u8).collect()
}

/// Keys of parts, by the end of the key.
fn parts(memory: &MemoryStore) -> Vec<(u64, usize)> {
    let objects = memory.objects();
    let parts = objects.iter().filter(|(key, _)| key.starts_with("p/d/"));
    parts.map(|(key, data)| (u64::from_str_radix(&key[key.len() - 16..], 16).unwrap(), data.len())).collect()
}

#[test]
fn a_large_file_is_parts_that_another_process_reads_as_they_were_written() {
    run(async |env, memory| {
        let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
        let (_, file) = make(&one, "f").await;
        let all = bytes(2 * PART_BYTES_MAX + 100_000);
        for part in [0..5_000, 5_000..PART_BYTES_MAX + 7, PART_BYTES_MAX + 7..all.len()] {
            file.write(part.start as u64, all.slice(part)).await.unwrap();
        }
        file.close().await.unwrap();
        let max = PART_BYTES_MAX as u64;
        assert_eq!(parts(&memory), [(0, PART_BYTES_MAX), (max, PART_BYTES_MAX), (2 * max, 100_000)]);
        let file = open(&two, "f").await;
        assert_eq!(file.read(0, all.len() + 1).await.unwrap(), all);
        assert_eq!(file.read(max - 3, 9).await.unwrap(), all.slice(max as usize - 3..max as usize + 6));
        assert_eq!(two.lookup(Handle::ROOT, &name("f")).await.unwrap().size, all.len() as u64);
        // It goes on where the last part ends, which was short.
        file.write(all.len() as u64, bytes(PART_BYTES_MIN)).await.unwrap();
        file.close().await.unwrap();
        assert_eq!(parts(&memory)[2..], [(2 * max, 100_000 + PART_BYTES_MIN)]);
        let file = open(&one, "f").await;
        let last = file.read(all.len() as u64 - 10, PART_BYTES_MAX).await.unwrap();
        assert_eq!((&last[..10], &last[10..]), (&all[all.len() - 10..], &bytes(PART_BYTES_MIN)[..]));
    });
}

#[test]
fn many_syncs_make_few_parts_and_a_small_file_lies_beside_its_name() {
    run(async |env, memory| {
        let vfs = mount(&env, &memory).await;
        let (_, file) = make(&vfs, "small").await;
        for turn in 0..50u64 {
            file.write(turn * 100, bytes(100)).await.unwrap();
            file.fsync().await.unwrap();
        }
        assert_eq!((parts(&memory).len(), memory.objects().len()), (0, 2), "the root, and the file");
        let (_, file) = make(&vfs, "log").await;
        let mut len = 0;
        for _ in 0..500 {
            file.append(bytes(4_000)).await.unwrap();
            file.fsync().await.unwrap();
            len += 4_000;
        }
        assert!(parts(&memory).len() <= len / PART_BYTES_MIN + 1, "{:?}", parts(&memory));
        let seen = open(&mount(&env, &memory).await, "log").await.read(0, len + 1).await.unwrap();
        assert!(seen.len() == len && seen.chunks(4_000).all(|chunk| chunk == bytes(4_000)));
    });
}

#[test]
fn published_bytes_do_not_change_and_far_ends_are_refused_with_the_remedy() {
    run(async |env, memory| {
        let vfs = mount(&env, &memory).await;
        let (_, file) = make(&vfs, "f").await;
        file.write(0, bytes(PART_BYTES_MAX)).await.unwrap();
        for offset in [0, PART_BYTES_MAX as u64 - 1, 1 << 40] {
            let refused = file.write(offset, bytes(1)).await.unwrap_err();
            assert_eq!(refused.status, Status::NotSupported);
            assert!(refused.words.contains("use containers"), "{refused}");
        }
        assert_eq!(file.read(0, PART_BYTES_MAX + 1).await.unwrap(), bytes(PART_BYTES_MAX));
        let linked = vfs.link(file.handle(), Handle::ROOT, &name("g")).await.unwrap_err();
        assert_eq!(linked.status, Status::NotPermitted);
        assert_eq!(vfs.listxattr(file.handle()).await.unwrap_err().status, Status::NotSupported);
    });
}

#[test]
fn a_file_is_cut_in_a_part_between_parts_and_beside_its_name() {
    run(async |env, memory| {
        let all = bytes(PART_BYTES_MAX + PART_BYTES_MIN + 50);
        for size in [PART_BYTES_MAX + PART_BYTES_MIN + 1, PART_BYTES_MAX, PART_BYTES_MAX - 9, 10_000, 700, 0]
        {
            let vfs = mount(&env, &memory).await;
            let text = format!("cut to {size}");
            let (attr, file) = make(&vfs, &text).await;
            file.write(0, all.slice(..1_000)).await.unwrap();
            file.fsync().await.unwrap();
            file.write(1_000, all.slice(1_000..)).await.unwrap();
            file.close().await.unwrap();
            let other = mount(&env, &memory).await;
            let handle = other.lookup(Handle::ROOT, &name(&text)).await.unwrap().handle;
            assert_eq!(other.truncate(handle, size as u64, false).await.unwrap().size, size as u64);
            assert_eq!(vfs.getattr(attr.handle).await.unwrap().size, size as u64);
            let file = open(&vfs, &text).await;
            assert_eq!(file.read(0, all.len()).await.unwrap(), all.slice(..size), "{size}");
            file.append(bytes(5)).await.unwrap();
            file.close().await.unwrap();
            let read = open(&other, &text).await.read(0, all.len()).await.unwrap();
            assert!(read[..size] == all[..size] && read[size..] == bytes(5), "{size} and 5 more");
        }
    });
}

#[test]
fn the_second_of_two_writers_is_refused_and_no_byte_of_the_first_is_lost() {
    run(async |env, memory| {
        let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
        for len in [100, PART_BYTES_MIN] {
            let text = format!("{len}");
            let (_, first) = make(&one, &text).await;
            let second = open(&two, &text).await;
            first.write(0, bytes(len)).await.unwrap();
            second.write(0, Bytes::from(vec![9; len + 50])).await.unwrap();
            first.fsync().await.unwrap();
            let refused = second.fsync().await.unwrap_err();
            assert_eq!(refused.status, Status::Busy);
            assert!(refused.words.contains("one writer"), "{refused}");
            let read = open(&mount(&env, &memory).await, &text).await.read(0, len + 99).await.unwrap();
            assert_eq!(read, bytes(len));
        }
    });
}

#[test]
fn a_removed_file_takes_its_parts_with_its_last_close() {
    run(async |env, memory| {
        let vfs = mount(&env, &memory).await;
        for open_at_removal in [false, true] {
            let (_, file) = make(&vfs, "f").await;
            file.write(0, bytes(PART_BYTES_MAX + 5)).await.unwrap();
            file.fsync().await.unwrap();
            let held = open_at_removal.then(|| file.again());
            file.close().await.unwrap();
            vfs.unlink(Handle::ROOT, &name("f")).await.unwrap();
            if let Some(held) = held {
                assert_eq!(held.read(0, 9).await.unwrap(), bytes(9));
                held.append(bytes(3)).await.unwrap();
                assert_eq!(held.read(PART_BYTES_MAX as u64 + 5, 9).await.unwrap(), bytes(3));
                assert!(!parts(&memory).is_empty());
                held.close().await.unwrap();
            }
            assert_eq!(memory.objects().into_keys().collect::<Vec<_>>(), ["p/root"]);
        }
        let (_, old) = make(&vfs, "old").await;
        old.write(0, bytes(PART_BYTES_MAX)).await.unwrap();
        old.close().await.unwrap();
        make(&vfs, "new").await.1.close().await.unwrap();
        let (old, new) = (name("old"), name("new"));
        vfs.rename(Handle::ROOT, &new, Handle::ROOT, &old, RenameFlags::default()).await.unwrap();
        assert_eq!(memory.objects().len(), 2, "what was replaced is gone too");
    });
}

#[test]
fn times_that_were_set_stay_until_the_file_grows() {
    run(async |env, memory| {
        let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
        let (attr, file) = make(&one, "f").await;
        file.write(0, bytes(PART_BYTES_MIN)).await.unwrap();
        let set = SetAttr { mtime: Some(Time(5)), ..SetAttr::default() };
        one.setattr(attr.handle, set).await.unwrap();
        file.close().await.unwrap();
        let mtime = async |vfs: &Objects| vfs.lookup(Handle::ROOT, &name("f")).await.unwrap().mtime;
        assert_eq!((mtime(&one).await, mtime(&two).await), (Time(5), Time(5)));
        // Also where all is published, and the file is open.
        let file = open(&one, "f").await;
        file.append(bytes(PART_BYTES_MIN)).await.unwrap();
        file.fsync().await.unwrap();
        let set = SetAttr { mtime: Some(Time(6)), ..SetAttr::default() };
        assert_eq!(one.setattr(attr.handle, set).await.unwrap().mtime, Time(6));
        file.close().await.unwrap();
        assert_eq!((mtime(&one).await, mtime(&two).await), (Time(6), Time(6)));
        let file = open(&two, "f").await;
        file.append(bytes(PART_BYTES_MIN)).await.unwrap();
        file.close().await.unwrap();
        assert!(mtime(&one).await > Time(6));
    });
}

#[test]
fn a_writer_whose_file_another_process_cut_is_refused_and_the_file_can_be_read() {
    run(async |env, memory| {
        let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
        for (size, more) in [(100_000, 5), (PART_BYTES_MIN, PART_BYTES_MIN), (0, 5)] {
            let text = format!("cut to {size}");
            let (attr, file) = make(&one, &text).await;
            for _ in 0..2 {
                file.append(bytes(PART_BYTES_MIN)).await.unwrap();
                file.fsync().await.unwrap();
            }
            two.lookup(Handle::ROOT, &name(&text)).await.unwrap();
            two.truncate(attr.handle, size as u64, false).await.unwrap();
            file.append(bytes(more)).await.unwrap();
            let synced = file.fsync().await.map_err(|error| error.status);
            let there = open(&mount(&env, &memory).await, &text).await;
            assert!(there.read(0, 1 << 20).await.unwrap() == bytes(PART_BYTES_MIN).slice(..size), "{size}");
            assert_eq!(synced, Err(Status::Busy), "{size}");
            assert_eq!(file.fsync().await.unwrap_err().status, Status::Busy, "{size}");
            let other = open(&two, &text).await;
            assert_eq!(other.append(bytes(5)).await.unwrap(), size as u64);
            other.close().await.unwrap();
        }
    });
}
