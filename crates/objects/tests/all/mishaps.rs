//! Damage, wrong settings, stores that refuse, hang or list late: each is an error with the object and the
//! remedy, and nothing else is touched.

use crate::scene::{BOTH, OWNER, keys, mount, name, run};
use bytes::Bytes;
use shoal_env::Env;
use shoal_objects::memory::Conduct;
use shoal_objects::{MemoryStore, ObjectsOptions, PART_BYTES_MAX, Refusal};
use shoal_proto::{Handle, Kind, Name, Rights, Status};
use shoal_transform::{Container, ContainerOptions};
use shoal_vfs::{AnyVfs, Connect, Error, Listing, Vfs, VfsFile};
use std::time::Duration;

async fn containers(env: &Env, memory: &MemoryStore) -> Container<AnyVfs> {
    let over = ObjectsOptions::new(memory.clone(), "");
    ContainerOptions::new(over).connect(env.clone()).await.unwrap()
}

async fn put(vfs: &impl Vfs, text: &str, len: usize) -> Handle {
    let (attr, _, file) = vfs.create(Handle::ROOT, &name(text), OWNER, true, BOTH).await.unwrap();
    file.write(0, Bytes::from(vec![7; len])).await.unwrap();
    file.close().await.unwrap();
    attr.handle
}

async fn names(vfs: &impl Vfs) -> Vec<String> {
    vfs.names(Handle::ROOT).await.unwrap().iter().map(Name::to_string).collect()
}

fn says(error: &Error, status: Status, words: &[&str]) {
    assert_eq!(error.status, status, "{error}");
    for word in words {
        assert!(error.words.contains(word), "`{word}` in: {error}");
    }
}

#[test]
fn a_damaged_name_is_named_and_all_other_files_work() {
    run(3, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        put(&vfs, "a", 10).await;
        put(&vfs, "b", 10).await;
        let key = keys(&memory, "/a").remove(0);
        let good = memory.objects()[&key].clone();
        let mut damaged = Vec::new();
        for at in [0, 9, 20, good.len() - 1] {
            let mut bytes = good.to_vec();
            bytes[at] ^= 4;
            damaged.push((bytes, if at == 9 { "use the version of ShoalFS" } else { "restore a version" }));
        }
        for len in [1, 39, 40] {
            damaged.push((good[..len].to_vec(), "restore a version"));
        }
        damaged.push((Vec::new(), "range"));
        for (bytes, remedy) in damaged {
            memory.set(&key, Some(bytes.into()));
            let error = vfs.lookup(Handle::ROOT, &name("a")).await.unwrap_err();
            says(&error, Status::Io, &[&key, remedy]);
            assert_eq!(names(&vfs).await, ["a", "b"]);
            assert_eq!(vfs.lookup(Handle::ROOT, &name("b")).await.unwrap().size, 10);
            for plus in [false, true] {
                let mut listing = vfs.opendir(Handle::ROOT, Duration::from_secs(1));
                let mut found = Vec::new();
                while let Some(listed) = listing.next(plus).await.unwrap() {
                    found.push((listed.entry.name.to_string(), listed.is_unknown));
                }
                assert_eq!(found, [("a".to_owned(), true), ("b".to_owned(), false)], "plus: {plus}");
            }
        }
        memory.set(&key, Some(good));
        assert_eq!(vfs.lookup(Handle::ROOT, &name("a")).await.unwrap().size, 10);
    });
}

#[test]
fn a_part_that_is_missing_or_of_another_length_is_named_and_the_file_can_be_removed() {
    run(3, async |env, memory| {
        for damage in 0..4 {
            let vfs = mount(&env, &memory).await;
            let handle = put(&vfs, "f", 3 * PART_BYTES_MAX).await;
            let held = vfs.open(handle, Rights::READ).await.unwrap();
            let key = keys(&memory, "d/").remove(1);
            let whole = memory.objects()[&key].clone();
            let damaged = match damage {
                0 => None,
                1 => Some(whole.slice(1..)),
                2 => Some([&whole[..], b"x"].concat().into()),
                _ => Some(Bytes::new()),
            };
            memory.set(&key, damaged.clone());
            let refused = mount(&env, &memory).await;
            let handle = refused.lookup(Handle::ROOT, &name("f")).await.unwrap().handle;
            let error = refused.open(handle, Rights::READ).await.map(|file| file.handle()).unwrap_err();
            says(&error, Status::Io, &[if damage == 1 { "d/" } else { &key }, "restore a version"]);
            if damage < 2 {
                let error = held.read(0, 3 * PART_BYTES_MAX).await.unwrap_err();
                says(&error, Status::Io, &[&key, "restore a version"]);
            }
            drop(held);
            vfs.sync_all().await.unwrap();
            refused.unlink(Handle::ROOT, &name("f")).await.unwrap();
            assert_eq!(keys(&memory, "d/"), Vec::<String>::new());
        }
    });
}

#[test]
fn a_container_whose_log_lost_a_part_is_refused_by_name_and_can_be_removed() {
    run(3, async |env, memory| {
        let vfs = containers(&env, &memory).await;
        put(&vfs, "f", 2 * PART_BYTES_MAX).await;
        put(&vfs, "g", 10).await;
        let key = keys(&memory, "d/").remove(0);
        memory.set(&key, None);
        let other = containers(&env, &memory).await;
        let attr = other.lookup(Handle::ROOT, &name("f")).await.unwrap();
        let opened = other.open(attr.handle, Rights::READ).await;
        let error = match opened {
            Ok(file) => file.read(0, 100).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.status, Status::Io, "{error}");
        let handle = other.lookup(Handle::ROOT, &name("g")).await.unwrap().handle;
        assert_eq!(other.open(handle, BOTH).await.unwrap().read(0, 99).await.unwrap().len(), 10);
        other.unlink(Handle::ROOT, &name("f")).await.unwrap();
        other.close().await;
        assert_eq!(names(&other).await, ["g"]);
    });
}

#[test]
fn a_container_has_all_its_bytes_while_the_name_that_says_of_an_open_writer_is_damaged() {
    run(3, async |env, memory| {
        let vfs = containers(&env, &memory).await;
        let file = vfs.create(Handle::ROOT, &name("f"), OWNER, true, BOTH).await.unwrap().2;
        file.write(0, Bytes::from_static(b"bytes")).await.unwrap();
        file.fsync().await.unwrap();
        let key = keys(&memory, "/w.").remove(0);
        let whole = memory.objects()[&key].clone();
        let read = async || {
            let other = containers(&env, &memory).await;
            other.open_name(Handle::ROOT, &name("f"), Rights::READ).await?.read(0, 99).await
        };
        for len in [0, 1, 39] {
            memory.set(&key, Some(whole.slice(..len)));
            assert_eq!(read().await.unwrap(), "bytes", "{len} bytes");
        }
        memory.set(&key, Some(whole));
        file.close().await.unwrap();
    });
}

#[test]
fn keys_that_are_none_of_this_file_system_are_passed_over() {
    run(3, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        let dir = vfs.mkdir(Handle::ROOT, &name("dir"), OWNER).await.unwrap();
        let key = keys(&memory, "/dir").remove(0);
        let prefix = key.strip_suffix("dir").unwrap();
        for other in ["!", "!zz", "a/b", "\u{fffd}", "!2e!2e", ""] {
            memory.set(&format!("{prefix}{other}"), Some(Bytes::from(vec![0; 300])));
        }
        assert_eq!(names(&vfs).await, ["dir"]);
        assert_eq!(vfs.lookup(Handle::ROOT, &name("dir")).await.unwrap().handle, dir.handle);
        vfs.rmdir(Handle::ROOT, &name("dir")).await.unwrap();
    });
}

#[test]
fn a_removed_directory_that_another_program_copied_into_itself_can_be_removed() {
    run(3, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        let inner = vfs.mkdir(Handle::ROOT, &name("dir"), OWNER).await.unwrap().handle;
        vfs.mknod(inner, &name("x"), OWNER, Kind::Fifo, 0).await.unwrap();
        let below = keys(&memory, "/x").remove(0);
        vfs.unlink(inner, &name("x")).await.unwrap();
        // A process ends after it said that the directory is removed.
        let over = env.now() + Duration::from_secs(1);
        memory.conduct(Conduct { ends_after: Some(1), ..Conduct::default() });
        assert!(env.deadline(over, vfs.rmdir(Handle::ROOT, &name("dir"))).await.is_err());
        memory.conduct(Conduct::default());
        let ended = memory.objects()[&keys(&memory, "/dir").remove(0)].clone();
        memory.set(&below, Some(ended));
        let fresh = mount(&env, &memory).await;
        fresh.mkdir(Handle::ROOT, &name("dir"), OWNER).await.unwrap();
        fresh.rmdir(Handle::ROOT, &name("dir")).await.unwrap();
        assert_eq!(names(&fresh).await, Vec::<String>::new());
    });
}

#[test]
fn a_store_that_refuses_is_named_with_the_remedy() {
    run(3, async |env, memory| {
        let words = "the key is unknown".to_owned();
        let refusals = [
            (Refusal::NoBucket, Status::Io, "make the bucket"),
            (Refusal::Denied(words.clone()), Status::NotPermitted, "AWS_ACCESS_KEY_ID"),
            (Refusal::NotOffered(words.clone()), Status::Io, "conditional puts"),
            (Refusal::Other(words), Status::Io, "memory/"),
            (Refusal::Passing("no route".to_owned()), Status::TimedOut, "AWS_ENDPOINT_URL"),
        ];
        let vfs = mount(&env, &memory).await;
        for (refusal, status, remedy) in refusals {
            memory.conduct(Conduct { refuses: Some(refusal), ..Conduct::default() });
            let refused = ObjectsOptions::new(memory.clone(), "").connect(env.clone()).await;
            says(&refused.map(drop).unwrap_err(), status, &[remedy]);
            says(&vfs.mkdir(Handle::ROOT, &name("d"), OWNER).await.unwrap_err(), status, &[remedy]);
            says(&vfs.unlink(Handle::ROOT, &name("d")).await.unwrap_err(), status, &[remedy]);
        }
        memory.conduct(Conduct::default());
        assert_eq!(names(&vfs).await, Vec::<String>::new());
    });
}

#[test]
fn a_store_that_hangs_fails_each_request_at_its_deadline() {
    run(3, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        put(&vfs, "f", 10).await;
        memory.conduct(Conduct { ends_after: Some(0), ..Conduct::default() });
        let begun = env.now();
        let error = vfs.mkdir(Handle::ROOT, &name("d"), OWNER).await.unwrap_err();
        says(&error, Status::TimedOut, &["/d", "no answer", "AWS_ENDPOINT_URL"]);
        // A creation is one request, and a look whether it was done.
        assert!(env.now() - begun <= Duration::from_secs(71), "{:?}", env.now() - begun);
        let error = vfs.lookup(Handle::ROOT, &name("f")).await.unwrap_err();
        says(&error, Status::TimedOut, &["/f"]);
    });
}

#[test]
fn a_store_that_ignores_conditions_is_refused_and_left_as_it_was() {
    run(3, async |env, memory| {
        memory.conduct(Conduct { ignores_conditions: true, ..Conduct::default() });
        let refused = ObjectsOptions::new(memory.clone(), "").connect(env).await.map(drop).unwrap_err();
        says(&refused, Status::NotSupported, &["If-None-Match", "use a store"]);
        assert!(memory.objects().is_empty());
    });
}

#[test]
fn a_prefix_that_is_none_is_refused_and_a_read_only_one_must_be_there() {
    run(3, async |env, memory| {
        for prefix in ["a//b", "..", "a/../b", "a b", "ä", &"x".repeat(201)] {
            let refused = ObjectsOptions::new(memory.clone(), prefix).connect(env.clone()).await;
            says(&refused.map(drop).unwrap_err(), Status::Invalid, &["prefix"]);
        }
        let read_only = || ObjectsOptions { read_only: true, ..ObjectsOptions::new(memory.clone(), "x") };
        let refused = read_only().connect(env.clone()).await.map(drop).unwrap_err();
        says(&refused, Status::NotFound, &["name another bucket"]);
        ObjectsOptions::new(memory.clone(), "/x/").connect(env.clone()).await.unwrap();
        let vfs = read_only().connect(env).await.unwrap();
        let refused = vfs.mkdir(Handle::ROOT, &name("d"), OWNER).await.unwrap_err();
        assert_eq!(refused.status, Status::ReadOnly);
    });
}

#[test]
fn where_listings_are_late_an_older_state_is_seen_and_nothing_is_invented() {
    run(3, async |env, memory| {
        let late = Duration::from_secs(20);
        let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
        memory.conduct(Conduct { lists_late: late, ..Conduct::default() });
        put(&one, "f", 2 * PART_BYTES_MAX).await;
        // A name is looked up at once, and made once.
        let size = two.lookup(Handle::ROOT, &name("f")).await.unwrap().size;
        assert_eq!((size, names(&two).await.len()), (0, 0));
        let twice = two.create(Handle::ROOT, &name("f"), OWNER, true, BOTH).await;
        assert_eq!(twice.map(|made| made.0).unwrap_err().status, Status::Exists);
        env.sleep(late).await;
        let file = two.open_name(Handle::ROOT, &name("f"), Rights::READ).await.unwrap();
        let read = file.read(0, 3 * PART_BYTES_MAX).await.unwrap();
        assert!(read.len() == 2 * PART_BYTES_MAX && read.iter().all(|byte| *byte == 7));
        assert_eq!(names(&two).await, ["f"]);
    });
}
