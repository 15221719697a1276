//! Stores that are away for longer than a deadline, do a request late, list wrongly, or were changed by
//! another program: no byte is lost, each file can be written on, and each call has an end.

use crate::held::Held;
use crate::scene::{BOTH, OWNER, mount, name, run};
use bytes::Bytes;
use shoal_env::Env;
use shoal_objects::memory::Conduct;
use shoal_objects::{
    BESIDE_NAME_MAX, BUFFERED_BYTES_MAX, Keys, MemoryStore, ObjectBytes, ObjectFile, Objects, ObjectsOptions,
    PART_BYTES_MAX, PART_BYTES_MIN, Reaches, Reply, Store, Tag, When,
};
use shoal_proto::{Handle, Rights, Status};
use shoal_vfs::{Connect, Vfs, VfsFile};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

async fn make(vfs: &Objects, text: &str) -> ObjectFile {
    vfs.create(Handle::ROOT, &name(text), OWNER, true, BOTH).await.unwrap().2
}

fn bytes(from: usize, len: usize) -> Bytes {
    (from..from + len).map(|at| (at / 251 + at) as u8).collect()
}

/// All requests are done, and no answer arrives.
fn outage() -> Conduct {
    Conduct { loses_each: 1, ..Conduct::default() }
}

async fn is_whole(env: &Env, memory: &MemoryStore, text: &str, len: usize) {
    let other = mount(env, memory).await;
    let file = other.open_name(Handle::ROOT, &name(text), Rights::READ).await.unwrap();
    assert_eq!(file.read(0, len + 1).await.unwrap().len(), len, "{text}");
    assert!(file.read(0, len + 1).await.unwrap() == bytes(0, len), "{text}: other bytes");
}

#[test]
fn a_put_whose_answer_is_lost_past_the_deadline_is_known_as_its_own_and_the_file_is_written_on() {
    run(5, async |env, memory| {
        // Beside the name, at the first part, in a short part, and where a part gets full.
        for before in
            [0, 10, BESIDE_NAME_MAX - 5, BESIDE_NAME_MAX + 5, PART_BYTES_MIN + 9, PART_BYTES_MAX - 9]
        {
            for more in [7, 40, PART_BYTES_MIN] {
                let (vfs, text) = (mount(&env, &memory).await, format!("{before} and {more}"));
                let file = make(&vfs, &text).await;
                file.write(0, bytes(0, before)).await.unwrap();
                file.fsync().await.unwrap();
                memory.conduct(outage());
                let written = file.write(before as u64, bytes(before, more)).await;
                let refused = written.and(file.fsync().await).unwrap_err();
                assert_eq!(refused.status, Status::TimedOut, "{refused}");
                // It goes on in memory, and a second try is lost too.
                let at = before + more;
                let _ = file.write(at as u64, bytes(at, 20)).await;
                assert_eq!(file.fsync().await.unwrap_err().status, Status::TimedOut);
                memory.conduct(Conduct::default());
                file.write(at as u64, bytes(at, 30)).await.unwrap();
                file.fsync().await.unwrap_or_else(|error| panic!("{text}: {error}"));
                is_whole(&env, &memory, &text, at + 30).await;
                file.close().await.unwrap();
                is_whole(&env, &memory, &text, at + 30).await;
            }
        }
    });
}

#[test]
fn a_sync_that_is_given_up_does_not_make_the_next_one_take_its_bytes_for_another_process_s() {
    run(5, async |env, memory| {
        for before in [10, BESIDE_NAME_MAX + 5, PART_BYTES_MIN + 9] {
            let (vfs, text) = (mount(&env, &memory).await, format!("{before}"));
            let file = make(&vfs, &text).await;
            file.write(0, bytes(0, before)).await.unwrap();
            file.fsync().await.unwrap();
            file.write(before as u64, bytes(before, 10)).await.unwrap();
            memory.conduct(outage());
            let given_up = env.deadline(env.now() + Duration::from_millis(20), file.fsync()).await;
            assert!(given_up.is_err());
            memory.conduct(Conduct::default());
            file.write(before as u64 + 10, bytes(before + 10, 10)).await.unwrap();
            file.fsync().await.unwrap();
            is_whole(&env, &memory, &text, before + 20).await;
        }
    });
}

#[test]
fn a_cut_after_a_lost_put_leaves_a_file_that_can_be_written_on() {
    run(5, async |env, memory| {
        for size in [0, 100, BESIDE_NAME_MAX + 100] {
            let (vfs, text) = (mount(&env, &memory).await, format!("{size}"));
            let file = make(&vfs, &text).await;
            file.write(0, bytes(0, BESIDE_NAME_MAX + 5)).await.unwrap();
            memory.conduct(outage());
            assert_eq!(file.fsync().await.unwrap_err().status, Status::TimedOut);
            memory.conduct(Conduct::default());
            file.fsync().await.unwrap();
            file.write(BESIDE_NAME_MAX as u64 + 5, bytes(BESIDE_NAME_MAX + 5, 200)).await.unwrap();
            memory.conduct(outage());
            assert_eq!(file.fsync().await.unwrap_err().status, Status::TimedOut);
            memory.conduct(Conduct::default());
            vfs.truncate(file.handle(), size as u64, false).await.unwrap();
            is_whole(&env, &memory, &text, size).await;
            file.write(size as u64, bytes(size, 50)).await.unwrap();
            file.close().await.unwrap();
            is_whole(&env, &memory, &text, size + 50).await;
        }
    });
}

#[test]
fn an_exclusive_creation_that_the_store_does_late_is_not_taken_for_another_process_s() {
    run(5, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        for turn in 0..20 {
            memory.conduct(Conduct { late_each: (1, Duration::from_millis(20)), ..Conduct::default() });
            let (memory, world) = (memory.clone(), env.clone());
            env.spawn("the store recovers", async move {
                world.sleep(Duration::from_millis(10)).await;
                memory.conduct(Conduct::default());
            });
            let made = vfs.mkdir(Handle::ROOT, &name(&format!("{turn}")), OWNER).await;
            let handle = made.unwrap_or_else(|error| panic!("{error}")).handle;
            env.sleep(Duration::from_secs(1)).await;
            assert_eq!(vfs.lookup(Handle::ROOT, &name(&format!("{turn}"))).await.unwrap().handle, handle);
        }
    });
}

#[test]
fn open_files_together_keep_a_bounded_number_of_bytes_in_memory() {
    run(5, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        let (count, len) = (2 * BUFFERED_BYTES_MAX / PART_BYTES_MAX, PART_BYTES_MAX - 1);
        let data = bytes(0, len);
        let mut files = Vec::new();
        for number in 0..count {
            let file = make(&vfs, &format!("{number}")).await;
            file.write(0, data.clone()).await.unwrap();
            files.push(file);
        }
        let published: usize = memory.objects().values().map(Bytes::len).sum();
        assert!(
            count * len - published <= BUFFERED_BYTES_MAX,
            "{published} of {} are published",
            count * len
        );
        for file in files {
            file.close().await.unwrap();
        }
        is_whole(&env, &memory, "0", len).await;
        is_whole(&env, &memory, &format!("{}", count - 1), len).await;
    });
}

/// A store whose listings are wrong.
#[derive(Clone)]
struct Odd {
    memory: MemoryStore,
    way: u8,
}

struct OddStore {
    store: Rc<dyn Store>,
    way: u8,
}

impl Reaches for Odd {
    fn reach(&self, env: &Env) -> Result<Rc<dyn Store>, String> {
        Ok(Rc::new(OddStore { store: self.memory.reach(env)?, way: self.way }))
    }
}

impl Store for OddStore {
    fn called(&self) -> String {
        self.store.called()
    }

    fn endpoint(&self) -> Option<String> {
        Some("http://10.0.0.9:9000 (AWS_ENDPOINT_URL)".to_owned())
    }

    fn put(&self, key: &str, data: Bytes, when: When) -> Reply<Tag> {
        self.store.put(key, data, when)
    }

    fn get(&self, key: &str, range: Range<u64>) -> Reply<ObjectBytes> {
        self.store.get(key, range)
    }

    fn list(&self, prefix: &str, after: Option<&str>, most: usize) -> Reply<Keys> {
        let after = if self.way == 0 { None } else { after };
        let (listed, way) = (self.store.list(prefix, after, most), self.way);
        Box::pin(async move {
            let mut keys = listed.await?;
            match way {
                0 => keys.has_more = true,
                1 => keys = Keys { found: Vec::new(), has_more: true },
                _ => keys.found.reverse(),
            }
            Ok(keys)
        })
    }

    fn delete(&self, key: &str) -> Reply<()> {
        self.store.delete(key)
    }
}

#[test]
fn a_store_that_lists_the_same_again_or_nothing_or_out_of_order_is_refused_and_ends_no_call_late() {
    run(5, async |env, memory| {
        let plain = mount(&env, &memory).await;
        let dir = plain.mkdir(Handle::ROOT, &name("dir"), OWNER).await.unwrap();
        for number in 0..3 {
            let file =
                plain.create(dir.handle, &name(&format!("{number}")), OWNER, true, BOTH).await.unwrap().2;
            file.write(0, bytes(0, 3 * PART_BYTES_MAX)).await.unwrap();
            file.close().await.unwrap();
        }
        for way in 0..3 {
            let vfs = ObjectsOptions::new(Odd { memory: memory.clone(), way }, "");
            let vfs = vfs.connect(env.clone()).await.unwrap();
            let dir = vfs.lookup(Handle::ROOT, &name("dir")).await.unwrap().handle;
            for error in [
                vfs.names(dir).await.map(drop).unwrap_err(),
                vfs.open_name(dir, &name("1"), BOTH).await.map(drop).unwrap_err(),
                vfs.check().await.map(drop).unwrap_err(),
            ] {
                assert_eq!(error.status, Status::Io, "{error}");
                assert!(error.words.contains("use "), "{error}");
            }
        }
    });
}

#[test]
fn a_store_that_is_away_is_named_with_its_address_and_the_time() {
    run(5, async |env, memory| {
        let options = ObjectsOptions::new(Odd { memory: memory.clone(), way: 3 }, "");
        let vfs = ObjectsOptions { timeout: Duration::from_secs(45), ..options }
            .connect(env.clone())
            .await
            .unwrap();
        memory.conduct(Conduct { fails_each: 1, ..Conduct::default() });
        let begun = env.now();
        let error = vfs.lookup(Handle::ROOT, &name("f")).await.unwrap_err();
        let took = env.now() - begun;
        assert!(took > Duration::from_secs(40) && took <= Duration::from_secs(45), "{took:?}");
        assert_eq!(error.status, Status::TimedOut);
        for words in ["http://10.0.0.9:9000 (AWS_ENDPOINT_URL)", "the request failed", "times in 4"] {
            assert!(error.words.contains(words), "`{words}` in: {error}");
        }
    });
}

#[test]
fn a_check_of_directories_that_lead_to_each_other_has_an_end_and_names_them() {
    run(5, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        let outer = vfs.mkdir(Handle::ROOT, &name("outer"), OWNER).await.unwrap();
        vfs.mkdir(outer.handle, &name("inner"), OWNER).await.unwrap();
        let objects = memory.objects();
        let key = |part: &str| objects.keys().find(|key| key.ends_with(part)).unwrap().clone();
        memory.set(&key("/inner"), Some(objects[&key("/outer")].clone()));
        let checked = vfs.check().await.unwrap();
        assert_eq!(checked.names, 2);
        assert_eq!(checked.damage.len(), 1, "{:?}", checked.damage);
        assert!(checked.damage[0].contains("restore a version"), "{:?}", checked.damage);
    });
}

#[test]
fn bytes_that_were_synced_are_not_counted_as_bytes_in_memory() {
    run(5, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        let (data, mut files) = (bytes(0, PART_BYTES_MAX - 1), Vec::new());
        for number in 0..=BUFFERED_BYTES_MAX / PART_BYTES_MAX {
            let file = make(&vfs, &format!("{number}")).await;
            file.write(0, data.clone()).await.unwrap();
            file.fsync().await.unwrap();
            files.push(file);
        }
        let parts = || memory.objects().keys().filter(|key| key.starts_with("d/")).count();
        let (file, before) = (make(&vfs, "f").await, parts());
        for _ in 0..PART_BYTES_MAX / PART_BYTES_MIN {
            file.append(data.slice(..PART_BYTES_MIN)).await.unwrap();
        }
        file.close().await.unwrap();
        assert_eq!(parts() - before, 1);
    });
}

#[test]
fn a_file_that_was_cut_in_an_outage_can_be_read_after_a_kill_between_any_two_later_changes() {
    for changes in 0..3 {
        run(5, async move |env, memory| {
            let held = Held::new(&memory);
            let vfs = held.mount(&env).await;
            let file = make(&vfs, "f").await;
            for (at, len) in [(0, 10_000), (10_000, PART_BYTES_MIN)] {
                file.write(at as u64, bytes(at, len)).await.unwrap();
                file.fsync().await.unwrap();
            }
            // Its part is removed, and its name is not put.
            held.hold("put", "/f", 0);
            let cut = Box::pin(vfs.truncate(file.handle(), 100, false));
            assert!(env.deadline(env.now() + Duration::from_secs(5), cut).await.is_err());
            assert!(held.is_reached());
            file.write(100, bytes(100, 50)).await.unwrap();
            memory.conduct(Conduct { ends_after: Some(changes), ..Conduct::default() });
            let synced = env.deadline(env.now() + Duration::from_secs(5), file.fsync()).await;
            assert_eq!(synced.is_err(), changes < 2);
            memory.conduct(Conduct::default());
            is_whole(&env, &memory, "f", [10_000, 100, 150][changes as usize]).await;
        });
    }
}
