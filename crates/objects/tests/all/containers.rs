//! Containers over an object store: byte for byte what plain files are; kills; requests.

use crate::scene::{BOTH, OWNER, name};
use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use shoal_env::Env;
use shoal_env::sim::{Config, World};
use shoal_objects::memory::Conduct;
use shoal_objects::{MemoryStore, Objects, ObjectsOptions, Requests};
use shoal_proto::{Handle, Rights, Status};
use shoal_transform::container::tools;
use shoal_transform::{Container, ContainerFile, ContainerOptions};
use shoal_vfs::{AnyVfs, Connect, RenameFlags, Vfs, VfsFile};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

const SIZE: u64 = 400;

type Mounted = Container<AnyVfs>;

async fn mount(env: &Env, memory: &MemoryStore) -> Mounted {
    let over = ObjectsOptions::new(memory.clone(), "scratch");
    ContainerOptions::new(over).connect(env.clone()).await.unwrap()
}

/// Do it in a simulated world.
fn run<T: 'static>(seed: u64, body: impl AsyncFnOnce(Env) -> T + 'static) -> T {
    let world = World::new(seed, Config::default());
    let process = world.process("process", world.machine("machine"));
    world.complete(process, async move |env| body(env).await)
}

#[derive(Clone, Debug)]
enum Step {
    Open { process: usize, file: usize },
    Close { which: usize },
    Sync { which: usize },
    Write { which: usize, at: u64, len: usize, count: u64, stride: i64 },
    Append { which: usize, len: usize },
    Truncate { process: usize, file: usize, size: u64 },
    Read { which: usize, at: u64, len: usize },
    Unlink { process: usize, file: usize },
    Rename { process: usize, from: usize, to: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let (process, file, which) = (0..3usize, 0..3usize, 0..6usize);
    prop_oneof![
        4 => (process.clone(), file.clone()).prop_map(|(process, file)| Step::Open { process, file }),
        3 => which.clone().prop_map(|which| Step::Close { which }),
        1 => which.clone().prop_map(|which| Step::Sync { which }),
        6 => (which.clone(), 0..300u64, 1..40usize, 1..12u64, -60..60i64)
            .prop_map(|(which, at, len, count, stride)| Step::Write { which, at, len, count, stride }),
        2 => (which.clone(), 1..50usize).prop_map(|(which, len)| Step::Append { which, len }),
        1 => (process.clone(), file.clone(), 0..500u64)
            .prop_map(|(process, file, size)| Step::Truncate { process, file, size }),
        3 => (which, 0..400u64, 1..300usize).prop_map(|(which, at, len)| Step::Read { which, at, len }),
        1 => (process.clone(), file.clone()).prop_map(|(process, file)| Step::Unlink { process, file }),
        1 => (process, file.clone(), file).prop_map(|(process, from, to)| Step::Rename { process, from, to }),
    ]
}

/// An open file: the process that opened it, and the number of its bytes.
struct Open {
    process: usize,
    plain: usize,
    file: ContainerFile<AnyVfs>,
}

/// Files as plain ones would be. One process at a time has a file open, so that what each sees is certain.
struct Files {
    mounts: Vec<Mounted>,
    plains: Vec<Vec<u8>>,
    names: BTreeMap<usize, usize>,
    opens: Vec<Open>,
    fill: u8,
}

impl Files {
    fn is_elsewhere(&self, process: usize, file: usize) -> bool {
        let plain = self.names.get(&file);
        plain.is_some_and(|plain| {
            self.opens.iter().any(|open| open.plain == *plain && open.process != process)
        })
    }

    fn bytes(&mut self, len: usize) -> Bytes {
        self.fill = self.fill % 250 + 1;
        Bytes::from(vec![self.fill; len])
    }

    async fn step(&mut self, step: &Step) {
        match *step {
            Step::Open { process, file } if self.opens.len() < 6 && !self.is_elsewhere(process, file) => {
                let called = name(&file.to_string());
                let made = self.mounts[process].create(Handle::ROOT, &called, OWNER, false, BOTH).await;
                let (attr, is_new, opened) = made.unwrap();
                assert_eq!(is_new, !self.names.contains_key(&file));
                let plain = *self.names.entry(file).or_insert_with(|| {
                    self.plains.push(Vec::new());
                    self.plains.len() - 1
                });
                assert_eq!(attr.size, self.plains[plain].len() as u64);
                self.opens.push(Open { process, plain, file: opened });
            }
            Step::Close { which } if which < self.opens.len() => {
                self.opens.remove(which).file.close().await.unwrap();
            }
            Step::Sync { which } if which < self.opens.len() => self.opens[which].file.fsync().await.unwrap(),
            Step::Write { which, at, len, count, stride } if which < self.opens.len() => {
                for at in (0..count as i64).filter_map(|turn| u64::try_from(at as i64 + turn * stride).ok()) {
                    let bytes = self.bytes(len);
                    self.opens[which].file.write(at, bytes.clone()).await.unwrap();
                    let plain = &mut self.plains[self.opens[which].plain];
                    plain.resize(plain.len().max(at as usize + len), 0);
                    plain[at as usize..at as usize + len].copy_from_slice(&bytes);
                }
            }
            Step::Append { which, len } if which < self.opens.len() => {
                let bytes = self.bytes(len);
                let plain = &mut self.plains[self.opens[which].plain];
                let at = self.opens[which].file.append(bytes.clone()).await.unwrap();
                assert_eq!(at, plain.len() as u64);
                plain.extend_from_slice(&bytes);
            }
            Step::Truncate { process, file, size } if !self.is_elsewhere(process, file) => {
                let Some(plain) = self.names.get(&file) else { return };
                let mount = &self.mounts[process];
                let object = mount.lookup(Handle::ROOT, &name(&file.to_string())).await.unwrap().handle;
                assert_eq!(mount.truncate(object, size, false).await.unwrap().size, size);
                self.plains[*plain].resize(size as usize, 0);
            }
            Step::Read { which, at, len } if which < self.opens.len() => {
                let read = self.opens[which].file.read(at, len).await.unwrap();
                let plain = &self.plains[self.opens[which].plain];
                let from = (at as usize).min(plain.len());
                assert_eq!(read[..], plain[from..(from + len).min(plain.len())]);
            }
            Step::Unlink { process, file } if !self.is_elsewhere(process, file) => {
                let removed = self.mounts[process].unlink(Handle::ROOT, &name(&file.to_string())).await;
                match self.names.remove(&file) {
                    Some(_) => removed.unwrap(),
                    None => assert_eq!(removed.unwrap_err().status, Status::NotFound),
                }
            }
            Step::Rename { process, from, to } if !self.is_elsewhere(process, to) => {
                let (old, new) = (name(&from.to_string()), name(&to.to_string()));
                let mount = &self.mounts[process];
                let moved =
                    mount.rename(Handle::ROOT, &old, Handle::ROOT, &new, RenameFlags::default()).await;
                match self.names.get(&from).copied() {
                    Some(plain) => {
                        moved.unwrap();
                        self.names.remove(&from);
                        self.names.insert(to, plain);
                    }
                    None => assert_eq!(moved.unwrap_err().status, Status::NotFound),
                }
            }
            _ => {}
        }
    }

    async fn check(mut self) {
        for open in self.opens.drain(..) {
            open.file.close().await.unwrap();
        }
        for (file, plain) in &self.names {
            for mount in &self.mounts {
                let attr = mount.lookup(Handle::ROOT, &name(&file.to_string())).await.unwrap();
                let opened = mount.open(attr.handle, Rights::READ).await.unwrap();
                assert_eq!(opened.read(0, 10_000).await.unwrap()[..], self.plains[*plain][..]);
                assert_eq!(attr.size, self.plains[*plain].len() as u64);
                opened.close().await.unwrap();
                assert_eq!(tools::check(mount, attr.handle).await.unwrap(), Vec::<String>::new());
            }
        }
        for mount in &self.mounts {
            mount.close().await;
        }
    }
}

#[test]
fn containers_over_an_object_store_are_byte_for_byte_what_plain_files_are() {
    let cases = std::env::var("SHOAL_OBJECTS_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(80);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let strategy = (any::<u64>(), any::<bool>(), proptest::collection::vec(step(), 1..40));
    let tried = TestRunner::new(config).run(&strategy, |(seed, is_shaky, steps)| {
        run(seed, async move |env| {
            let memory = MemoryStore::default();
            if is_shaky {
                let delay = Duration::from_millis(3);
                memory.conduct(Conduct { fails_each: 17, loses_each: 19, delay, ..Conduct::default() });
            }
            let mut mounts = Vec::new();
            for _ in 0..3 {
                mounts.push(mount(&env, &memory).await);
            }
            let (plains, names, opens) = (Vec::new(), BTreeMap::new(), Vec::new());
            let mut files = Files { mounts, plains, names, opens, fill: 0 };
            for step in &steps {
                files.step(step).await;
            }
            files.check().await;
        });
        Ok(())
    });
    match tried {
        Err(TestError::Fail(why, steps)) => panic!("{why}\n{steps:#?}"),
        Err(TestError::Abort(why)) => panic!("{why}"),
        Ok(()) => {}
    }
}

/// The bytes that a file must hold after a kill: as they were synced or closed last; a byte that was written
/// since may be either.
#[derive(Clone, Default)]
struct Model {
    is_made: bool,
    now: Vec<u8>,
    synced: Vec<u8>,
    is_touched: Vec<bool>,
}

impl Model {
    fn touch(&mut self, at: usize, len: usize) {
        self.is_touched.resize(self.is_touched.len().max(at + len), false);
        self.is_touched[at..at + len].fill(true);
    }

    fn write(&mut self, at: usize, data: &[u8]) {
        self.touch(at, data.len());
        self.now.resize(self.now.len().max(at + data.len()), 0);
        self.now[at..at + data.len()].copy_from_slice(data);
    }

    fn truncate(&mut self, size: usize) {
        let (from, to) = (size.min(self.now.len()), size.max(self.now.len()));
        self.touch(from, to - from);
        self.now.resize(size, 0);
    }

    fn sync(&mut self) {
        self.synced = self.now.clone();
        self.is_touched.clear();
    }
}

/// A small generator: a seed repeats its run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// One file, by one process, with one open at a time.
async fn write_on(env: Env, memory: MemoryStore, seed: u64, model: Rc<RefCell<Model>>) {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let vfs = mount(&env, &memory).await;
    let mut file = vfs.create(Handle::ROOT, &name("file"), OWNER, true, BOTH).await.unwrap().2;
    let object = file.handle();
    model.borrow_mut().is_made = true;
    for turn in 0..4 + draw.below(20) {
        match draw.below(8) {
            0 | 1 => {
                file.fsync().await.unwrap();
                model.borrow_mut().sync();
            }
            2 => {
                file.close().await.unwrap();
                model.borrow_mut().sync();
                file = vfs.open(object, BOTH).await.unwrap();
            }
            3 => {
                let size = draw.below(SIZE);
                model.borrow_mut().truncate(size as usize);
                vfs.truncate(object, size, false).await.unwrap();
            }
            _ => {
                let (mut at, len, stride) =
                    (draw.below(SIZE), 1 + draw.below(20), draw.below(60) as i64 - 30);
                for _ in 0..=draw.below(5) {
                    let data = vec![(turn * 7 % 250) as u8 + 1; len as usize];
                    model.borrow_mut().write(at as usize, &data);
                    file.write(at, Bytes::from(data)).await.unwrap();
                    let Some(next) = at.checked_add_signed(stride) else { break };
                    at = next;
                }
            }
        }
    }
    file.close().await.unwrap();
    model.borrow_mut().sync();
}

async fn contents(env: Env, memory: MemoryStore) -> Option<Vec<u8>> {
    let vfs = mount(&env, &memory).await;
    let attr = match vfs.lookup(Handle::ROOT, &name("file")).await {
        Err(error) if error.status == Status::NotFound => return None,
        found => found.unwrap(),
    };
    let file = vfs.open(attr.handle, Rights::READ).await.unwrap();
    let read = file.read(0, 10_000).await.unwrap().to_vec();
    assert_eq!(read.len() as u64, attr.size);
    Some(read)
}

fn is_kept(model: &Model, found: Option<&Vec<u8>>, words: &str) {
    assert!(found.is_some() || !model.is_made, "{words}: the file is gone");
    for (at, synced) in model.synced.iter().enumerate() {
        let is_touched = model.is_touched.get(at).is_some_and(|touched| *touched);
        let is = found.and_then(|bytes| bytes.get(at));
        assert!(is_touched || is == Some(synced), "{words}: byte {at} is {is:?} and was {synced}");
    }
}

#[test]
fn what_was_synced_or_closed_is_there_after_a_kill_between_any_two_changes() {
    let seeds = std::env::var("SHOAL_OBJECTS_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    let mut killed = 0;
    for seed in 1..=seeds {
        let memory = MemoryStore::default();
        let ends_after = Some(Draw((seed * 77) | 1).below(10 + seed % 80));
        memory.conduct(Conduct { ends_after, ..Conduct::default() });
        let world = World::new(seed, Config::default());
        let process = world.process("process", world.machine("machine"));
        let (model, is_done) = (Rc::new(RefCell::new(Model::default())), Rc::new(RefCell::new(false)));
        let (own, done, store) = (model.clone(), is_done.clone(), memory.clone());
        world.start(process, move |env| async move {
            write_on(env, store, seed, own).await;
            done.replace(true);
        });
        let over = || memory.has_ended() || *is_done.borrow();
        assert!(world.run_until_true(world.now() + Duration::from_secs(100), over));
        killed += u64::from(!*is_done.borrow());
        world.crash(process);
        memory.conduct(Conduct::default());
        let model = model.borrow().clone();
        let store = memory.clone();
        let found = world.complete(process, move |env| contents(env, store));
        is_kept(&model, found.as_ref(), &format!("seed {seed}"));
        let store = memory.clone();
        let again = world.complete(process, async move |env: Env| {
            let vfs = mount(&env, &store).await;
            let allowed = tools::Allowed { lossy: true, ended: true };
            if let Ok(attr) = vfs.lookup(Handle::ROOT, &name("file")).await {
                match tools::recover(&vfs, attr.handle, allowed).await {
                    // The killed process is the one of this test.
                    Err(error) => assert_eq!(error.status, Status::Busy, "{error}"),
                    Ok(recovered) => assert_eq!(recovered.deleted, 0),
                }
            }
            tools::empty_bin(&vfs, allowed).await.unwrap();
            vfs.close().await;
            contents(env, store).await
        });
        assert_eq!(again, found, "seed {seed}: after recovery");
    }
    assert!(killed > seeds / 2, "{killed} of {seeds} were killed");
}

#[test]
fn what_was_written_before_a_write_that_an_outage_failed_is_there_after_the_close() {
    run(7, async |env| {
        for is_synced in [false, true] {
            let (memory, vfs_name) = (MemoryStore::default(), name("file"));
            let vfs = mount(&env, &memory).await;
            let (_, _, file) = vfs.create(Handle::ROOT, &vfs_name, OWNER, true, BOTH).await.unwrap();
            let bytes = |len: usize, seed: u8| Bytes::from(vec![seed; len]);
            let first = 5 << 20;
            file.write(0, bytes(first, 1)).await.unwrap();
            file.write(20 << 20, bytes(1 << 20, 2)).await.unwrap();
            memory.conduct(Conduct { fails_each: 1, ..Conduct::default() });
            let refused = file.write(first as u64, bytes(4 << 20, 3)).await.unwrap_err();
            assert_eq!(refused.status, Status::TimedOut, "{refused}");
            memory.conduct(Conduct::default());
            file.write(first as u64, bytes(4 << 20, 3)).await.unwrap();
            if is_synced {
                file.fsync().await.unwrap();
            } else {
                file.close().await.unwrap();
            }
            // The process ends here: another one sees what is in the store.
            let other = mount(&env, &memory).await;
            let file = other.open_name(Handle::ROOT, &vfs_name, Rights::READ).await.unwrap();
            let read = file.read(0, 30 << 20).await.unwrap();
            assert_eq!(read.len(), 21 << 20, "{is_synced}");
            let of = |at: usize| read[at << 20];
            assert_eq!((of(0), of(4), of(5), of(8), of(10), of(20)), (1, 1, 3, 3, 0, 2), "{is_synced}");
        }
    });
}

/// The same, and the file system below, which counts its requests.
async fn counted(env: &Env, memory: &MemoryStore) -> (Mounted, Objects) {
    let over = ObjectsOptions::new(memory.clone(), "scratch").connect(env.clone()).await.unwrap();
    let vfs = Container::checked(env.clone(), AnyVfs::of(over.clone())).await.unwrap();
    (vfs, over)
}

fn since(over: &Objects, before: Requests) -> Requests {
    let now = over.requests();
    Requests {
        puts: now.puts - before.puts,
        gets: now.gets - before.gets,
        lists: now.lists - before.lists,
        deletes: now.deletes - before.deletes,
        bytes_put: now.bytes_put - before.bytes_put,
        bytes_got: now.bytes_got - before.bytes_got,
    }
}

#[test]
fn a_writer_and_a_reader_of_a_checkpoint_cost_these_requests() {
    run(1, async |env| {
        let memory = MemoryStore::default();
        let (vfs, over) = counted(&env, &memory).await;
        let made = over.requests();
        let (attr, _, file) = vfs.create(Handle::ROOT, &name("f"), OWNER, true, BOTH).await.unwrap();
        let created = since(&over, made);
        assert!(created.puts <= 8 && created.gets <= 12, "a file: {created:?}");
        let (before, objects) = (over.requests(), memory.objects().len());
        let record = Bytes::from(vec![7; 47_008]);
        for turn in 0..500u64 {
            file.write((turn * 8 + 3) * 47_008, record.clone()).await.unwrap();
        }
        file.close().await.unwrap();
        let wrote = since(&over, before);
        // 23.5 MB are three parts. The others are names, the index, and the time.
        assert!(wrote.puts <= 3 + 17 && wrote.gets <= 30 && wrote.lists <= 2, "a writer: {wrote:?}");
        assert!(wrote.bytes_put < 500 * 47_008 + 20_000, "a writer: {wrote:?}");
        assert!(memory.objects().len() - objects <= 8, "a writer's objects");
        vfs.close().await;
        let (other, over) = counted(&env, &memory).await;
        let before = over.requests();
        let file = other.open_name(Handle::ROOT, &name("f"), Rights::READ).await.unwrap();
        let opened = since(&over, before);
        assert!(opened.gets <= 20 && opened.lists <= 6, "an open: {opened:?}");
        let before = over.requests();
        let read = file.read(3 * 47_008, 47_008).await.unwrap();
        assert_eq!(read, record);
        let read = since(&over, before);
        assert!(read.gets <= 6 && read.bytes_got < 47_008 + 20_000, "a read: {read:?}");
        assert_eq!(attr.size, 0);
    });
}

#[test]
fn names_of_a_container_cost_one_request_a_thousand_however_many_writers_it_has() {
    run(1, async |env| {
        let memory = MemoryStore::default();
        for writer in 0..40u64 {
            let vfs = mount(&env, &memory).await;
            let opened = vfs.create(Handle::ROOT, &name("f"), OWNER, false, BOTH).await;
            let file = opened.unwrap().2;
            file.write(writer * 10, Bytes::from(vec![writer as u8 + 1; 10])).await.unwrap();
            file.close().await.unwrap();
        }
        let (vfs, over) = counted(&env, &memory).await;
        let before = over.requests();
        let attr = vfs.lookup(Handle::ROOT, &name("f")).await.unwrap();
        let looked = since(&over, before);
        assert_eq!(attr.size, 400);
        assert!(looked.gets + looked.lists <= 8, "a look-up: {looked:?}");
    });
}
