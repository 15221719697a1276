//! Other programs and other processes change a bucket meanwhile: objects whose keys are no names of ours,
//! cuts of open files, and opens beside closes; and stores that do not remove.

use crate::held::Held;
use crate::scene::{BOTH, OWNER, mount, name, run};
use bytes::Bytes;
use futures_util::future::join;
use shoal_env::Env;
use shoal_objects::memory::Conduct;
use shoal_objects::{
    Keys, MemoryStore, ObjectBytes, ObjectFile, Objects, ObjectsOptions, PART_BYTES_MAX, PART_BYTES_MIN,
    Reaches, Refusal, Reply, Store, Tag, When,
};
use shoal_proto::{Handle, Rights, Status};
use shoal_vfs::{Connect, Vfs, VfsFile};
use std::ops::Range;
use std::rc::Rc;

async fn make(vfs: &Objects, text: &str) -> ObjectFile {
    vfs.create(Handle::ROOT, &name(text), OWNER, true, BOTH).await.unwrap().2
}

async fn content(env: &Env, memory: &MemoryStore, text: &str) -> Vec<u8> {
    let file = mount(env, memory).await.open_name(Handle::ROOT, &name(text), Rights::READ).await.unwrap();
    file.read(0, 1 << 20).await.unwrap().to_vec()
}

fn bytes(len: usize) -> Bytes {
    (0..len).map(|at| (at / 251 + at) as u8).collect()
}

/// A store without removals: it answers that there is no such thing.
#[derive(Clone)]
struct Keeping(MemoryStore);

struct KeepingStore(Rc<dyn Store>);

impl Reaches for Keeping {
    fn reach(&self, env: &Env) -> Result<Rc<dyn Store>, String> {
        Ok(Rc::new(KeepingStore(self.0.reach(env)?)))
    }
}

impl Store for KeepingStore {
    fn called(&self) -> String {
        self.0.called()
    }

    fn put(&self, key: &str, data: Bytes, when: When) -> Reply<Tag> {
        self.0.put(key, data, when)
    }

    fn get(&self, key: &str, range: Range<u64>) -> Reply<ObjectBytes> {
        self.0.get(key, range)
    }

    fn list(&self, prefix: &str, after: Option<&str>, most: usize) -> Reply<Keys> {
        self.0.list(prefix, after, most)
    }

    fn delete(&self, _: &str) -> Reply<()> {
        Box::pin(async { Err(Refusal::Absent) })
    }
}

#[test]
fn a_store_that_does_not_remove_is_refused_at_the_start_and_by_each_removal_that_it_denies() {
    run(1, async |env, memory| {
        let denies = ObjectsOptions::new(Keeping(memory.clone()), "a").connect(env.clone()).await.map(drop);
        memory.conduct(Conduct { ignores_removals: true, ..Conduct::default() });
        let ignores = ObjectsOptions::new(memory.clone(), "b").connect(env.clone()).await.map(drop);
        memory.conduct(Conduct::default());
        for refused in [denies, ignores] {
            let error = refused.unwrap_err();
            assert!(error.words.contains("remov"), "{error}");
        }
        assert!(memory.objects().keys().all(|key| !key.contains("root")));
        // One that came to be so later.
        let vfs = mount(&env, &memory).await;
        let file = make(&vfs, "f").await;
        file.write(0, bytes(PART_BYTES_MIN)).await.unwrap();
        file.close().await.unwrap();
        let vfs = ObjectsOptions::new(Keeping(memory.clone()), "").connect(env.clone()).await.unwrap();
        let attr = vfs.lookup(Handle::ROOT, &name("f")).await.unwrap();
        let cut = vfs.truncate(attr.handle, 0, false).await.map(drop);
        assert_eq!(cut.unwrap_err().status, Status::Io);
    });
}

#[test]
fn objects_of_other_programs_are_left_out_of_listings_kept_by_removals_and_named_by_the_check() {
    run(2, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        let dir = vfs.mkdir(Handle::ROOT, &name("dir"), OWNER).await.unwrap().handle;
        let file = vfs.create(dir, &name("f"), OWNER, true, BOTH).await.unwrap().2;
        file.write(0, bytes(PART_BYTES_MIN)).await.unwrap();
        file.close().await.unwrap();
        let of = |part: &str, end: &str| {
            let keys = memory.objects().into_keys();
            let key = keys.into_iter().find(|key| key.starts_with(part) && key.ends_with(end)).unwrap();
            key.strip_suffix(end).unwrap().to_owned()
        };
        let (in_dir, in_file) = (of("n/", "/f"), of("d/", "/0000000000000000"));
        let foreign = [
            format!("{in_dir}//x"),
            format!("{in_dir}/../y"),
            format!("{in_dir}/a\u{1}b"),
            format!("{in_file}//x"),
        ];
        foreign.iter().for_each(|key| memory.set(key, Some(bytes(50))));
        assert_eq!(vfs.names(dir).await.unwrap(), [name("f")]);
        let found = vfs.check().await.unwrap();
        let said = [found.damage, found.leftovers].concat();
        for key in &foreign[..3] {
            assert!(
                said.iter().any(|words| words.contains(key) && words.contains("no name")),
                "{key}: {said:?}"
            );
        }
        vfs.unlink(dir, &name("f")).await.unwrap();
        vfs.rmdir(Handle::ROOT, &name("dir")).await.unwrap();
        env.sleep(std::time::Duration::from_secs(1)).await;
        let left: Vec<String> = memory.objects().into_keys().filter(|key| key != "root").collect();
        let mut kept = foreign.to_vec();
        kept.sort();
        assert_eq!(left, kept);
        let found = vfs.check().await.unwrap();
        let said = [found.damage, found.leftovers].concat();
        for key in &foreign {
            let is_named = |words: &String| words.contains(key) && words.contains("another program");
            assert!(said.iter().any(is_named), "{key}: {said:?}");
        }
    });
}

#[test]
fn a_writer_whose_file_another_process_cut_in_its_name_is_refused_and_the_file_can_be_read() {
    run(3, async |env, memory| {
        let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
        let file = make(&one, "f").await;
        // The first bytes lie beside the name, and no part follows.
        for len in [10_000, 20_000] {
            file.append(bytes(len)).await.unwrap();
            file.fsync().await.unwrap();
        }
        one.truncate(file.handle(), 10_000, false).await.unwrap();
        let attr = two.lookup(Handle::ROOT, &name("f")).await.unwrap();
        two.truncate(attr.handle, 100, false).await.unwrap();
        file.append(bytes(5)).await.unwrap();
        assert_eq!(file.fsync().await.map_err(|error| error.status), Err(Status::Busy));
        assert_eq!(content(&env, &memory, "f").await, bytes(100));
        assert_eq!(file.close().await.map_err(|error| error.status), Err(Status::Busy));
        assert_eq!(content(&env, &memory, "f").await, bytes(100));
    });
}

#[test]
fn an_open_file_without_a_name_can_grow_by_parts() {
    run(6, async |env, memory| {
        for removed_at in [0, 1, 2] {
            let vfs = mount(&env, &memory).await;
            let file = make(&vfs, "f").await;
            for number in 0..4 {
                if number == removed_at {
                    vfs.unlink(Handle::ROOT, &name("f")).await.unwrap();
                }
                file.append(bytes(PART_BYTES_MAX)).await.unwrap();
            }
            let last = file.read(3 * PART_BYTES_MAX as u64, PART_BYTES_MAX).await.unwrap();
            assert!(last == bytes(PART_BYTES_MAX), "{removed_at}");
            file.close().await.unwrap();
            assert_eq!(memory.objects().into_keys().collect::<Vec<_>>(), ["root"], "{removed_at}");
        }
    });
}

#[test]
fn a_cut_of_an_open_file_removes_what_another_process_appended() {
    for size in [100, PART_BYTES_MIN, PART_BYTES_MIN + 10] {
        run(4, async move |env, memory| {
            let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
            let file = make(&one, "f").await;
            file.append(bytes(PART_BYTES_MIN)).await.unwrap();
            file.fsync().await.unwrap();
            let other = two.open_name(Handle::ROOT, &name("f"), BOTH).await.unwrap();
            for _ in 0..2 {
                other.append(bytes(PART_BYTES_MIN)).await.unwrap();
                other.fsync().await.unwrap();
            }
            other.close().await.unwrap();
            let cut = one.truncate(file.handle(), size as u64, false).await.map_err(|error| error.status);
            let read = content(&env, &memory, "f").await;
            if size > PART_BYTES_MIN {
                // It would have to be continued with bytes that are not known here.
                assert_eq!(cut.map(drop), Err(Status::Busy));
                assert_eq!(read.len(), 3 * PART_BYTES_MIN);
                return;
            }
            assert_eq!(cut.unwrap().size, size as u64);
            assert!(read == bytes(PART_BYTES_MIN)[..size], "{size}: {}", read.len());
            file.append(bytes(7)).await.unwrap();
            file.close().await.unwrap();
            assert_eq!(content(&env, &memory, "f").await.len(), size + 7);
        });
    }
}

#[test]
fn an_open_beside_the_last_close_has_what_that_published_and_can_be_written() {
    // The look at the name, and the one at the parts, is the slow one.
    for (verb, part, before) in [("get", "/file", 100), ("list", "d/", PART_BYTES_MIN)] {
        for len in [5, PART_BYTES_MIN] {
            run(5, async move |env, memory| {
                let held = Held::new(&memory);
                let vfs = held.mount(&env).await;
                let file = make(&vfs, "file").await;
                file.append(bytes(before)).await.unwrap();
                file.close().await.unwrap();
                let file = vfs.open_name(Handle::ROOT, &name("file"), BOTH).await.unwrap();
                held.hold_answer(verb, part, 0);
                let own = name("file");
                let opened = vfs.open_name(Handle::ROOT, &own, BOTH);
                let closed = held.meanwhile(&env, async || {
                    file.append(bytes(len)).await.unwrap();
                    file.close().await.unwrap();
                });
                let file = join(opened, closed).await.0.unwrap();
                let size = before + len;
                assert_eq!(file.read(0, 1 << 20).await.unwrap().len(), size, "{verb} {len}");
                assert_eq!(file.append(bytes(3)).await.unwrap(), size as u64);
                file.close().await.unwrap();
                assert_eq!(content(&env, &memory, "file").await.len(), size + 3);
            });
        }
    }
}

#[test]
fn a_cut_in_the_name_that_is_refused_has_removed_nothing() {
    for size in [5000, 10_000] {
        run(7, async move |env, memory| {
            let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
            let file = make(&one, "f").await;
            for len in [10_000, PART_BYTES_MIN] {
                file.append(bytes(len)).await.unwrap();
                file.fsync().await.unwrap();
            }
            let attr = two.lookup(Handle::ROOT, &name("f")).await.unwrap();
            two.truncate(attr.handle, 100, false).await.unwrap();
            let other = two.open_name(Handle::ROOT, &name("f"), BOTH).await.unwrap();
            for _ in 0..2 {
                other.append(bytes(300 << 10)).await.unwrap();
                other.fsync().await.unwrap();
            }
            other.close().await.unwrap();
            let before = memory.objects();
            let cut = one.truncate(file.handle(), size, false).await.map_err(|error| error.status);
            assert_eq!(cut.map(drop), Err(Status::Busy), "{size}");
            assert!(memory.objects() == before, "{size}: {:?}", memory.objects().keys());
            assert_eq!(content(&env, &memory, "f").await.len(), 100 + 2 * (300 << 10), "{size}");
        });
    }
}

#[test]
fn a_repair_keeps_what_other_programs_put_beside_trials_and_goes_on() {
    run(8, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        let (trial, going) = (format!("t/{}", "0a".repeat(16)), format!("g/{}", "0b".repeat(16)));
        // They fill a page of the listing before those of ours.
        let foreign: Vec<String> =
            ["t//x", "t/2026.csv", "t/sub/x", "g//y", "g/y", "m/z"].map(str::to_owned).into();
        let more = (0..1000).flat_map(|number| [format!("t/#{number}"), format!("g/#{number}")]);
        let foreign: Vec<String> = foreign.into_iter().chain(more).collect();
        foreign.iter().chain([&trial, &going]).for_each(|key| memory.set(key, Some(bytes(50))));
        let found = vfs.check().await.unwrap();
        assert_eq!(
            (found.damage, found.leftovers),
            (
                vec![],
                vec![format!("{going}: parts of a removed file"), format!("{trial}: a trial of the store")]
            )
        );
        vfs.recover(true).await.unwrap();
        let left = memory.objects();
        let gone: Vec<&String> = foreign.iter().filter(|key| !left.contains_key(*key)).collect();
        assert!(gone.is_empty(), "{} keys: {:?}", gone.len(), &gone[..gone.len().min(5)]);
        assert!(!left.contains_key(&trial) && !left.contains_key(&going));
    });
}

#[test]
fn an_object_of_another_program_in_a_directory_is_no_damage_that_keeps_what_is_left_over() {
    run(9, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        vfs.mkdir(Handle::ROOT, &name("dir"), OWNER).await.unwrap();
        make(&vfs, "f").await.close().await.unwrap();
        let key = memory.objects().into_keys().find(|key| key.ends_with("/f")).unwrap();
        let foreign = format!("{}/x", key.strip_suffix("f").unwrap());
        memory.set(&foreign, Some(bytes(50)));
        memory.set(&format!("d/{}/{:016x}", "0a".repeat(16), 0), Some(bytes(50)));
        env.sleep(std::time::Duration::from_secs(1)).await;
        let found = vfs.check().await.unwrap();
        assert_eq!(found.damage, Vec::<String>::new());
        let says = |part: &str, text: &str| {
            found.leftovers.iter().any(|words| words.contains(part) && words.contains(text))
        };
        assert!(says(&foreign, "another program"), "{:?}", found.leftovers);
        assert!(says("d/0a0a", "remove these objects"), "{:?}", found.leftovers);
    });
}

#[test]
fn an_open_beside_an_own_cut_has_the_file_as_it_is_here() {
    run(10, async |env, memory| {
        let held = Held::new(&memory);
        let vfs = held.mount(&env).await;
        let file = make(&vfs, "file").await;
        for len in [10_000, PART_BYTES_MIN] {
            file.append(bytes(len)).await.unwrap();
            file.fsync().await.unwrap();
        }
        held.hold_answer("get", "/file", 0);
        let own = name("file");
        let opened = vfs.open_name(Handle::ROOT, &own, BOTH);
        let cut = held.meanwhile(&env, async || {
            vfs.truncate(file.handle(), 100, false).await.unwrap();
            file.append(bytes(PART_BYTES_MIN)).await.unwrap();
            file.fsync().await.unwrap();
        });
        let again = join(opened, cut).await.0.unwrap();
        assert_eq!(again.read(0, 1 << 20).await.unwrap().len(), 100 + PART_BYTES_MIN);
    });
}
