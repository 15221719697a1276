//! Kills and power cuts of a simulated machine: what returned is there after a kill, what was synced after a
//! power cut.

use crate::scene::{BOTH, Draw};
use bytes::Bytes;
use shoal_env::Env;
use shoal_env::sim::{Config, World};
use shoal_proto::{Handle, Name, Owner, Rights};
use shoal_transform::container::tools;
use shoal_transform::{Container, ContainerFile, ContainerOptions};
use shoal_vfs::{AnyVfs, Connect, LocalOptions, Vfs, VfsFile};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
const SIZE: u64 = 400;

/// The bytes that the file must hold: as they were last written, and as they were last synced; a byte that
/// was written after the sync may be either.
#[derive(Clone, Default)]
struct Model {
    now: Vec<u8>,
    synced: Vec<u8>,
    is_touched: Vec<bool>,
}

impl Model {
    fn write(&mut self, at: usize, data: &[u8]) {
        self.now.resize(self.now.len().max(at + data.len()), 0);
        self.now[at..at + data.len()].copy_from_slice(data);
        self.touch(at, data.len());
    }

    fn touch(&mut self, at: usize, len: usize) {
        self.is_touched.resize(self.is_touched.len().max(at + len), false);
        self.is_touched[at..at + len].fill(true);
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

fn name() -> Name {
    Name::new(b"file").unwrap()
}

async fn mount(env: &Env) -> Container<AnyVfs> {
    let over = LocalOptions::new("/a/directory");
    ContainerOptions::new(over).connect(env.clone()).await.unwrap()
}

async fn work(env: Env, seed: u64, model: Rc<RefCell<Model>>) {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let vfs = mount(&env).await;
    let made = vfs.create(Handle::ROOT, &name(), OWNER, true, BOTH).await.unwrap();
    let object = made.0.handle;
    let mut files: Vec<ContainerFile<AnyVfs>> = vec![made.2];
    vfs.fsync_directory(Handle::ROOT).await.unwrap();
    for turn in 0..2 + draw.below(30) {
        let which = draw.below(files.len() as u64) as usize;
        match draw.below(10) {
            0 | 1 => {
                files[which].fsync().await.unwrap();
                model.borrow_mut().sync();
            }
            2 if files.len() < 3 => files.push(vfs.open(object, BOTH).await.unwrap()),
            3 if files.len() > 1 => files.remove(which).close().await.unwrap(),
            4 => {
                let size = draw.below(SIZE);
                vfs.truncate(object, size, false).await.unwrap();
                model.borrow_mut().truncate(size as usize);
            }
            _ => {
                let (mut at, len, stride) =
                    (draw.below(SIZE), 1 + draw.below(20), draw.below(60) as i64 - 30);
                for _ in 0..=draw.below(5) {
                    let data = vec![(turn * 7 % 250) as u8 + 1; len as usize];
                    files[which].write(at, Bytes::from(data.clone())).await.unwrap();
                    model.borrow_mut().write(at as usize, &data);
                    let Some(next) = at.checked_add_signed(stride) else { break };
                    at = next;
                }
            }
        }
    }
    // Nothing is closed: the process ends here.
    std::mem::forget(files);
}

async fn contents(env: Env) -> Vec<u8> {
    let vfs = mount(&env).await;
    let attr = vfs.lookup(Handle::ROOT, &name()).await.unwrap();
    let file = vfs.open(attr.handle, Rights::READ).await.unwrap();
    let read = file.read(0, 10_000).await.unwrap().to_vec();
    assert_eq!(read.len() as u64, attr.size);
    read
}

#[test]
fn what_returned_is_there_after_a_kill_and_what_was_synced_after_a_power_cut() {
    let seeds = std::env::var("SHOAL_TRANSFORM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(300);
    for seed in 1..=seeds {
        let world = World::new(seed, Config::default());
        let machine = world.machine("machine");
        let process = world.process("process", machine);
        let model = Rc::new(RefCell::new(Model::default()));
        let own = model.clone();
        world.complete(process, move |env| work(env, seed, own));
        world.crash(process);
        let killed = world.complete(process, contents);
        let model = model.borrow();
        assert!(killed == model.now, "seed {seed}: after a kill");
        world.power_cut(machine);
        let cut = world.complete(process, contents);
        for (at, synced) in model.synced.iter().enumerate() {
            let is_touched = model.is_touched.get(at).is_some_and(|touched| *touched);
            assert!(is_touched || cut.get(at) == Some(synced), "seed {seed}: byte {at} after a power cut");
        }
    }
}

/// A file of several closed writers, one of which cut it; all of it durable. Its bytes.
async fn closed_writers(env: Env, seed: u64) -> Vec<u8> {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut model = Model::default();
    for turn in 0..3 + draw.below(4) {
        let vfs = mount(&env).await;
        let file = match turn {
            0 => vfs.create(Handle::ROOT, &name(), OWNER, true, BOTH).await.unwrap().2,
            _ => {
                let attr = vfs.lookup(Handle::ROOT, &name()).await.unwrap();
                vfs.open(attr.handle, BOTH).await.unwrap()
            }
        };
        for _ in 0..1 + draw.below(4) {
            let (at, data) = (draw.below(SIZE), vec![turn as u8 + 1; 1 + draw.below(40) as usize]);
            file.write(at, Bytes::from(data.clone())).await.unwrap();
            model.write(at as usize, &data);
        }
        if draw.below(3) == 0 {
            let size = draw.below(SIZE);
            vfs.truncate(file.handle(), size, false).await.unwrap();
            model.truncate(size as usize);
        }
        file.fsync().await.unwrap();
        file.close().await.unwrap();
        vfs.fsync_directory(Handle::ROOT).await.unwrap();
    }
    model.now
}

async fn fold(env: Env) {
    let vfs = mount(&env).await;
    tools::compact(&vfs, Handle::ROOT, &name()).await.unwrap();
    vfs.close().await;
}

#[test]
fn a_fold_that_is_killed_or_loses_its_power_changes_no_byte() {
    let seeds = std::env::var("SHOAL_TRANSFORM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let (mut ended, mut folded) = (0, 0);
    for seed in 1..=seeds {
        let world = World::new(seed, Config::default());
        let machine = world.machine("machine");
        let process = world.process("process", machine);
        let plain = world.complete(process, move |env| closed_writers(env, seed));
        let done = Rc::new(RefCell::new(false));
        let is_done = done.clone();
        world.start(process, move |env| async move {
            fold(env).await;
            is_done.replace(true);
        });
        // It waits for a second first. Then it is killed anywhere: most often while it makes the new log.
        let within = if seed.is_multiple_of(2) { 30_000 } else { 250_000 };
        let later = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % within;
        world.run_for(Duration::from_micros(1_000_000 + later));
        ended += u64::from(*done.borrow());
        world.crash(process);
        if seed.is_multiple_of(3) {
            world.power_cut(machine);
        }
        assert!(world.complete(process, contents) == plain, "seed {seed}: after {later} microseconds");
        let is_folded = world.complete(process, async |env: Env| {
            let vfs = mount(&env).await;
            let object = vfs.lookup(Handle::ROOT, &name()).await.unwrap().handle;
            assert_eq!(tools::check(&vfs, object).await.unwrap(), Vec::<String>::new());
            tools::facts(&vfs, object).await.unwrap().writers.len() == 1
        });
        folded += u64::from(is_folded);
        // Droppings that a power cut took are repaired, and the fold is done again.
        world.complete(process, async |env: Env| {
            let vfs = mount(&env).await;
            let object = vfs.lookup(Handle::ROOT, &name()).await.unwrap().handle;
            let allowed = tools::Allowed { lossy: false, ended: true };
            let _ = tools::recover(&vfs, object, allowed).await;
            let _ = tools::compact(&vfs, Handle::ROOT, &name()).await;
        });
        assert!(world.complete(process, contents) == plain, "seed {seed}: after the next fold");
    }
    assert!(ended < seeds && folded > 0 && folded < seeds, "{ended} ended and {folded} folded of {seeds}");
}
