//! Stores that answer what they did not do, do requests late, or name one version twice; and names and parts
//! to which nothing leads.

use crate::held::Held;
use crate::scene::{BOTH, OWNER, PLAIN, keys, mount, name, run};
use bytes::Bytes;
use futures_util::future::join;
use shoal_env::Env;
use shoal_env::sim::{Config, World};
use shoal_objects::memory::Conduct;
use shoal_objects::{
    Keys, MemoryStore, ObjectBytes, ObjectsOptions, PART_BYTES_MAX, Reaches, Refusal, Reply, Store, Tag, When,
};
use shoal_proto::{Handle, Kind, Rights, SetAttr, Status};
use shoal_vfs::{Connect, RenameFlags, Vfs, VfsFile};
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

#[test]
fn a_store_that_answers_that_nothing_is_there_is_refused_and_ends_each_call() {
    run(1, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        let dir = vfs.mkdir(Handle::ROOT, &name("dir"), OWNER).await.unwrap().handle;
        memory.conduct(Conduct { refuses: Some(Refusal::Absent), ..Conduct::default() });
        let other = ObjectsOptions::new(memory.clone(), "other").connect(env.clone()).await.map(drop);
        let made = vfs.mkdir(Handle::ROOT, &name("new"), OWNER).await.map(drop);
        let file = vfs.create(dir, &name("new"), OWNER, false, BOTH).await.map(drop);
        for refused in [other, made, file] {
            let error = refused.unwrap_err();
            assert_eq!(error.status, Status::Io, "{error}");
            for words in ["make the bucket", "AWS_ENDPOINT_URL"] {
                assert!(error.words.contains(words), "`{words}` in: {error}");
            }
        }
    });
}

#[test]
fn a_store_that_answers_removals_and_does_not_do_them_ends_each_call() {
    run(2, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        for text in ["open", "closed"] {
            let file = vfs.create(Handle::ROOT, &name(text), OWNER, true, BOTH).await.unwrap().2;
            // More parts than one page of a listing has.
            for at in 0..1100u64 {
                file.write(at << 18, Bytes::from(vec![1; 1 << 18])).await.unwrap();
                file.fsync().await.unwrap();
            }
            file.close().await.unwrap();
        }
        let open = vfs.open_name(Handle::ROOT, &name("open"), BOTH).await.unwrap();
        memory.conduct(Conduct { ignores_removals: true, ..Conduct::default() });
        vfs.unlink(Handle::ROOT, &name("closed")).await.unwrap();
        vfs.unlink(Handle::ROOT, &name("open")).await.unwrap();
        let within = env.now() + Duration::from_secs(200);
        env.deadline(within, Box::pin(open.close())).await.unwrap().unwrap();
        env.deadline(within, Box::pin(vfs.recover(true))).await.unwrap().unwrap();
        memory.conduct(Conduct::default());
        vfs.recover(true).await.unwrap();
        assert_eq!(keys(&memory, "d/"), Vec::<String>::new());
    });
}

#[test]
fn a_process_that_ends_while_it_tries_a_store_leaves_no_root_in_one_that_ignores_conditions() {
    for puts in 0..8 {
        run(3, async move |env, memory| {
            memory.conduct(Conduct {
                ignores_conditions: true,
                ends_after: Some(puts),
                ..Conduct::default()
            });
            let options = ObjectsOptions::new(memory.clone(), "");
            let options = ObjectsOptions { timeout: Duration::from_secs(5), ..options };
            assert!(options.connect(env.clone()).await.is_err());
            assert_eq!(keys(&memory, "root"), Vec::<String>::new(), "after {puts} changes");
            // And what it left is removed.
            memory.conduct(Conduct::default());
            let vfs = mount(&env, &memory).await;
            let left = keys(&memory, "t/").len();
            assert_eq!(vfs.check().await.unwrap().leftovers.len(), left);
            vfs.recover(true).await.unwrap();
            assert_eq!(keys(&memory, "t/"), Vec::<String>::new());
        });
    }
}

#[test]
fn a_removal_that_the_store_does_late_does_not_take_a_directory_that_says_again_what_it_said() {
    run(4, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        vfs.mkdir(Handle::ROOT, &name("dir"), OWNER).await.unwrap();
        let late = Duration::from_secs(100);
        let options = ObjectsOptions::new(memory.clone(), "");
        let given_up = ObjectsOptions { timeout: Duration::from_secs(5), ..options };
        let given_up = given_up.connect(env.clone()).await.unwrap();
        given_up.lookup(Handle::ROOT, &name("dir")).await.unwrap();
        memory.conduct(Conduct { late_each: (1, late), ..Conduct::default() });
        assert_eq!(given_up.rmdir(Handle::ROOT, &name("dir")).await.unwrap_err().status, Status::TimedOut);
        // Another removal is refused, as an entry is made meanwhile, and gives the name back.
        memory.conduct(Conduct::default());
        let two = mount(&env, &memory).await;
        memory.conduct(Conduct { delay: Duration::from_millis(10), ..Conduct::default() });
        let dir = two.lookup(Handle::ROOT, &name("dir")).await.unwrap().handle;
        let make = async {
            env.sleep(Duration::from_millis(12)).await;
            two.create(dir, &name("file"), OWNER, true, BOTH).await
        };
        let (removed, made) = futures_util::future::join(vfs.rmdir(Handle::ROOT, &name("dir")), make).await;
        assert_eq!(removed.unwrap_err().status, Status::NotEmpty);
        made.unwrap().2.close().await.unwrap();
        memory.conduct(Conduct::default());
        env.sleep(late).await;
        let dir = mount(&env, &memory).await.lookup(Handle::ROOT, &name("dir")).await.unwrap().handle;
        assert_eq!(two.names(dir).await.unwrap(), [name("file")]);
    });
}

#[test]
fn what_is_made_or_moved_in_a_directory_that_another_process_removes_is_there_or_is_refused() {
    let (mut kept, mut gone) = (0, 0);
    for turn in 0..90u64 {
        let outcome = Rc::new(Cell::new(false));
        let seen = outcome.clone();
        let world = World::new(turn, Config::default());
        let process = world.process("process", world.machine("machine"));
        world.complete(process, async move |env: Env| {
            let memory = MemoryStore::default();
            let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
            one.mkdir(Handle::ROOT, &name("dir"), OWNER).await.unwrap();
            one.create(Handle::ROOT, &name("old"), OWNER, true, BOTH).await.unwrap();
            let dir = two.lookup(Handle::ROOT, &name("dir")).await.unwrap().handle;
            memory.conduct(Conduct { delay: Duration::from_millis(10), ..Conduct::default() });
            let change = async {
                env.sleep(Duration::from_millis(turn / 3 * 4)).await;
                match turn % 3 {
                    0 => two.create(dir, &name("f"), OWNER, true, BOTH).await.map(drop),
                    1 => two.mkdir(dir, &name("f"), OWNER).await.map(drop),
                    _ => {
                        let flags = RenameFlags::default();
                        two.rename(Handle::ROOT, &name("old"), dir, &name("f"), flags).await
                    }
                }
            };
            let (removed, changed) =
                futures_util::future::join(one.rmdir(Handle::ROOT, &name("dir")), change).await;
            memory.conduct(Conduct::default());
            let fresh = mount(&env, &memory).await;
            let dir = fresh.lookup(Handle::ROOT, &name("dir")).await;
            assert_eq!(removed.is_ok(), dir.is_err(), "turn {turn}: {removed:?}");
            match &changed {
                Ok(()) => {
                    let dir =
                        dir.unwrap_or_else(|error| panic!("turn {turn}: lost without an error: {error}"));
                    fresh.lookup(dir.handle, &name("f")).await.unwrap();
                }
                Err(error) => {
                    assert!(matches!(error.status, Status::Stale | Status::NotFound), "turn {turn}: {error}");
                    fresh.lookup(Handle::ROOT, &name("old")).await.unwrap();
                }
            }
            // Nothing is left to which no name leads.
            env.sleep(Duration::from_secs(1)).await;
            let left = fresh.check().await.unwrap();
            assert_eq!(left.leftovers, Vec::<String>::new(), "turn {turn}");
            seen.set(changed.is_ok());
        });
        (kept, gone) = (kept + u32::from(outcome.get()), gone + u32::from(!outcome.get()));
    }
    assert!(kept > 5 && gone > 5, "{kept} and {gone}");
}

#[test]
fn parts_and_names_to_which_nothing_leads_are_found_by_the_check() {
    run(6, async |env, memory| {
        let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
        for text in ["gone", "kept"] {
            let file = one.create(Handle::ROOT, &name(text), OWNER, true, BOTH).await.unwrap().2;
            file.write(0, Bytes::from(vec![1; PART_BYTES_MAX])).await.unwrap();
            file.close().await.unwrap();
        }
        let dir = one.mkdir(Handle::ROOT, &name("dir"), OWNER).await.unwrap().handle;
        one.mkdir(dir, &name("below"), OWNER).await.unwrap();
        assert_eq!(one.check().await.unwrap().leftovers, Vec::<String>::new());
        let file = one.open_name(Handle::ROOT, &name("gone"), BOTH).await.unwrap();
        two.unlink(Handle::ROOT, &name("gone")).await.unwrap();
        // A part that its writer puts does not stay.
        let written = file.write(PART_BYTES_MAX as u64, Bytes::from(vec![2; PART_BYTES_MAX])).await;
        assert_eq!(written.unwrap_err().status, Status::Stale);
        assert_eq!(keys(&memory, "d/").iter().filter(|key| key.starts_with("d/")).count(), 1);
        // One stays whose writer is killed.
        memory.set("d/0123456789abcdef0123456789abcdef/0000000000800000", Some(Bytes::from_static(b"part")));
        // And a directory is cut off.
        memory.set(&keys(&memory, "/dir").remove(0), None);
        env.sleep(Duration::from_secs(1)).await;
        let found = two.check().await.unwrap();
        assert_eq!(found.leftovers.len(), 2, "{:?}", found.leftovers);
        assert!(found.leftovers[0].contains("n/") && found.leftovers[0].contains("names of a directory"));
        assert!(found.leftovers[1].contains("d/") && found.leftovers[1].contains("parts of a file"));
        assert_eq!(found.damage, Vec::<String>::new());
        // The parts may be those of a file in that directory.
        for words in found.leftovers {
            assert!(words.contains("keep them") || words.contains("remove nothing"), "{words}");
        }
        drop(file);
    });
}

#[test]
fn attributes_that_are_set_and_set_back_are_other_versions() {
    run(7, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        let dir = vfs.mkdir(Handle::ROOT, &name("dir"), OWNER).await.unwrap().handle;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..5 {
            vfs.setattr(dir, SetAttr { mode: Some(0o755), ..SetAttr::default() }).await.unwrap();
            assert!(seen.insert(memory.objects()[&keys(&memory, "/dir")[0]].clone()));
        }
    });
}

#[test]
fn a_part_has_the_time_that_a_slow_line_needs() {
    run(8, async |env, memory| {
        let vfs = mount(&env, &memory).await;
        // A part takes 27 s.
        memory.conduct(Conduct { rate: 300 << 10, ..Conduct::default() });
        let file = vfs.create(Handle::ROOT, &name("f"), OWNER, true, BOTH).await.unwrap().2;
        let (begun, before) = (env.now(), vfs.requests().puts);
        file.write(0, Bytes::from(vec![1; PART_BYTES_MAX])).await.unwrap();
        file.close().await.unwrap();
        assert!((50..60).contains(&(env.now() - begun).as_secs()), "{:?}", env.now() - begun);
        assert_eq!(vfs.requests().puts - before, 4, "its name, and three tries: of 10, of 20 and of 30 s");
        assert_eq!(mount(&env, &memory).await.lookup(Handle::ROOT, &name("f")).await.unwrap().size, 8 << 20);
    });
}

/// A store that does the first put of a part a second late, and refuses another one meanwhile, as one that
/// answers 409.
#[derive(Clone)]
struct Conflicting(MemoryStore);

struct ConflictingStore {
    store: Rc<dyn Store>,
    env: Env,
    puts: Cell<u8>,
}

impl Reaches for Conflicting {
    fn reach(&self, env: &Env) -> Result<Rc<dyn Store>, String> {
        Ok(Rc::new(ConflictingStore { store: self.0.reach(env)?, env: env.clone(), puts: Cell::new(0) }))
    }
}

impl Store for ConflictingStore {
    fn called(&self) -> String {
        self.store.called()
    }

    fn put(&self, key: &str, data: Bytes, when: When) -> Reply<Tag> {
        let put = self.store.put(key, data, when);
        self.puts.set(self.puts.get() + u8::from(key.starts_with("d/")));
        match self.puts.get() {
            1 if key.starts_with("d/") => {
                let env = self.env.clone();
                self.env.spawn("a late put", async move {
                    env.sleep(Duration::from_secs(1)).await;
                    put.await.unwrap();
                });
                Box::pin(async { Err(Refusal::Passing("no answer".to_owned())) })
            }
            2 if key.starts_with("d/") => Box::pin(async { Err(Refusal::Condition) }),
            _ => put,
        }
    }

    fn get(&self, key: &str, range: Range<u64>) -> Reply<ObjectBytes> {
        self.store.get(key, range)
    }

    fn list(&self, prefix: &str, after: Option<&str>, most: usize) -> Reply<Keys> {
        self.store.list(prefix, after, most)
    }

    fn delete(&self, key: &str) -> Reply<()> {
        self.store.delete(key)
    }
}

#[test]
fn a_put_that_is_refused_while_an_earlier_try_is_under_way_is_known_as_its_own_at_the_next_publication() {
    run(9, async |env, memory| {
        let vfs = ObjectsOptions::new(Conflicting(memory.clone()), "").connect(env.clone()).await.unwrap();
        let file = vfs.create(Handle::ROOT, &name("f"), OWNER, true, BOTH).await.unwrap().2;
        file.write(0, Bytes::from(vec![1; 1 << 20])).await.unwrap();
        assert_eq!(file.fsync().await.unwrap_err().status, Status::Busy);
        env.sleep(Duration::from_secs(2)).await;
        file.write(1 << 20, Bytes::from(vec![2; 1 << 20])).await.unwrap();
        file.close().await.unwrap();
        let other = mount(&env, &memory).await;
        let file = other.open_name(Handle::ROOT, &name("f"), Rights::READ).await.unwrap();
        let read = file.read(0, 3 << 20).await.unwrap();
        assert!(read.len() == 2 << 20 && read[..1 << 20].iter().all(|byte| *byte == 1));
    });
}

#[test]
fn an_entry_can_be_made_in_a_directory_that_other_processes_moved_and_not_once_it_is_removed() {
    run(10, async |env, memory| {
        let (one, two) = (mount(&env, &memory).await, mount(&env, &memory).await);
        one.mkdir(Handle::ROOT, &name("0"), OWNER).await.unwrap();
        one.mkdir(Handle::ROOT, &name("other"), OWNER).await.unwrap();
        let dir = two.lookup(Handle::ROOT, &name("0")).await.unwrap().handle;
        let exchange = RenameFlags { no_replace: false, exchange: true };
        for (from, to, flags) in [
            ("0", "1", RenameFlags::default()),
            ("1", "2", RenameFlags::default()),
            ("2", "other", exchange),
            ("2", "other", exchange),
            ("other", "2", exchange),
        ] {
            one.rename(Handle::ROOT, &name(from), Handle::ROOT, &name(to), flags).await.unwrap();
            two.mkdir(dir, &name("f"), OWNER).await.unwrap();
            two.rmdir(dir, &name("f")).await.unwrap();
        }
        one.rmdir(Handle::ROOT, &name("other")).await.unwrap();
        let refused = two.mkdir(dir, &name("f"), OWNER).await.unwrap_err();
        assert_eq!(refused.status, Status::Stale, "{refused}");
        one.rmdir(Handle::ROOT, &name("2")).await.unwrap();
        assert_eq!(memory.objects().into_keys().collect::<Vec<_>>(), ["root"]);
        assert_eq!(one.check().await.unwrap().leftovers, Vec::<String>::new());
    });
}

#[test]
fn a_machine_that_was_suspended_decides_no_move_and_deletes_no_name_late_and_repeats_no_request() {
    for way in ["unlink", "move", "repeat"] {
        let world = World::new(1, Config::default());
        let machine = world.machine("machine");
        let process = world.process("process", machine);
        // The clock of deadlines stands still meanwhile.
        world.at(world.now() + Duration::from_secs(1), move |world| {
            world.jump_wall(machine, 90_000_000_000);
        });
        world.complete(process, async move |env: Env| {
            let (memory, own) = (MemoryStore::default(), name("f"));
            let held = Held::new(&memory);
            let vfs = held.mount(&env).await;
            vfs.mknod(Handle::ROOT, &own, OWNER, Kind::Fifo, 0).await.unwrap();
            let (begun, before) = (env.now(), vfs.requests());
            held.hold("put", "/f", 0);
            let work = held.meanwhile(&env, async || env.sleep(Duration::from_secs(2)).await);
            match way {
                "unlink" => {
                    let (removed, ()) = join(vfs.unlink(Handle::ROOT, &own), work).await;
                    removed.unwrap();
                    assert_eq!(keys(&memory, "/f").len(), 1, "it is left for the next that makes it");
                }
                "move" => {
                    let to = name("to");
                    let moved = vfs.rename(Handle::ROOT, &own, Handle::ROOT, &to, PLAIN);
                    join(moved, work).await.0.unwrap();
                    // A claim that is taken back, and a move.
                    assert_eq!(vfs.requests().puts - before.puts, 4);
                }
                _ => {
                    memory.conduct(Conduct { fails_each: 1, ..Conduct::default() });
                    let found = vfs.lookup(Handle::ROOT, &own).await;
                    assert_eq!(found.map(drop).unwrap_err().status, Status::TimedOut);
                    assert!(env.now() - begun < Duration::from_secs(10), "{:?}", env.now() - begun);
                }
            }
        });
    }
}
