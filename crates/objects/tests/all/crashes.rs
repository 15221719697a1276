//! A process ends between any two changes of the store: each name leads where it did before the call that was
//! under way or where it would have led after it, to synced bytes, and nothing is left for ever.

use crate::scene::{BOTH, EXCHANGE, OWNER, PLAIN, mount, name};
use bytes::Bytes;
use shoal_env::Env;
use shoal_env::sim::{Config, World};
use shoal_objects::memory::Conduct;
use shoal_objects::{MemoryStore, ObjectFile, Objects, PART_BYTES_MIN};
use shoal_proto::{Handle, Kind, Name, SetAttr, Status};
use shoal_vfs::{Listing, Vfs, VfsFile};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// Two parts, and one that is put again with more bytes.
const LARGE: usize = 2 * PART_BYTES_MIN + 100;

/// An object by its path: a directory, or a file of one byte repeated, of a length between the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plain {
    Dir,
    File { fill: u8, synced: usize, written: usize },
}

type Tree = BTreeMap<&'static str, Plain>;

/// The tree before and after the call that is under way.
#[derive(Clone, Default)]
struct Model {
    before: Tree,
    after: Tree,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Mkdir(&'static str),
    /// Make a file and write so many bytes, in so many turns, each synced.
    Make(&'static str, u8, usize, usize),
    /// Append so many, and close.
    Grow(&'static str, usize),
    Cut(&'static str, usize),
    Chmod(&'static str),
    Rename(&'static str, &'static str),
    Exchange(&'static str, &'static str),
    Unlink(&'static str),
    Rmdir(&'static str),
    /// Remove it while it is open, write on, and close.
    UnlinkOpen(&'static str),
}
use Step::{Chmod, Cut, Exchange, Grow, Make, Mkdir, Rename, Rmdir, Unlink, UnlinkOpen};

const STEPS: &[Step] = &[
    Mkdir("d"),
    Make("d/small", 1, 100, 2),
    Make("large", 2, LARGE, 3),
    Rename("d/small", "moved"),
    Rename("large", "d/large"),
    Grow("d/large", 5_000),
    Grow("moved", 100_000),
    Chmod("moved"),
    Make("x", 3, LARGE, 1),
    Rename("x", "d/large"),
    Exchange("moved", "d/large"),
    Mkdir("d/e"),
    Mkdir("d/f"),
    Rename("d/e", "d/f"),
    Exchange("d/f", "moved"),
    Cut("d/f", PART_BYTES_MIN + 7),
    Cut("d/f", 10),
    Unlink("d/large"),
    Rmdir("moved"),
    UnlinkOpen("d/f"),
    Rmdir("d"),
];

fn names(path: &str) -> (Option<&str>, &str) {
    path.split_once('/').map_or((None, path), |(dir, name)| (Some(dir), name))
}

async fn place(vfs: &Objects, path: &str) -> (Handle, Name) {
    let (dir, last) = names(path);
    let dir = match dir {
        Some(dir) => vfs.lookup(Handle::ROOT, &name(dir)).await.unwrap().handle,
        None => Handle::ROOT,
    };
    (dir, name(last))
}

impl Model {
    fn plan(&mut self, step: Step) {
        let tree = &mut self.after;
        match step {
            Mkdir(path) => drop(tree.insert(path, Plain::Dir)),
            Make(path, fill, written, _) => {
                tree.insert(path, Plain::File { fill, synced: 0, written });
            }
            Grow(path, more) => {
                let Plain::File { written, .. } = tree.get_mut(path).unwrap() else { panic!() };
                *written += more;
            }
            Cut(path, size) => {
                let Plain::File { written, synced, .. } = tree.get_mut(path).unwrap() else { panic!() };
                (*written, *synced) = (size, size);
            }
            Chmod(_) => {}
            Rename(from, to) => {
                let moved = tree.remove(from).unwrap();
                tree.insert(to, moved);
            }
            Exchange(a, b) => {
                let (one, two) = (tree[a], tree[b]);
                tree.insert(a, two);
                tree.insert(b, one);
            }
            Unlink(path) | Rmdir(path) | UnlinkOpen(path) => drop(tree.remove(path)),
        }
    }

    fn synced(&mut self, path: &str, len: usize) {
        let Plain::File { synced, .. } = self.after.get_mut(path).unwrap() else { panic!() };
        *synced = len;
        self.before = self.after.clone();
    }
}

async fn open(vfs: &Objects, path: &str) -> ObjectFile {
    let (dir, name) = place(vfs, path).await;
    vfs.open_name(dir, &name, BOTH).await.unwrap()
}

async fn work(env: Env, memory: MemoryStore, model: Rc<RefCell<Model>>) {
    let vfs = mount(&env, &memory).await;
    for step in STEPS {
        model.borrow_mut().plan(*step);
        match *step {
            Mkdir(path) => {
                let (dir, name) = place(&vfs, path).await;
                vfs.mkdir(dir, &name, OWNER).await.unwrap();
            }
            Make(path, fill, len, turns) => {
                let (dir, name) = place(&vfs, path).await;
                let (_, _, file) = vfs.create(dir, &name, OWNER, true, BOTH).await.unwrap();
                for turn in 0..turns {
                    let (at, end) = (len * turn / turns, len * (turn + 1) / turns);
                    file.write(at as u64, Bytes::from(vec![fill; end - at])).await.unwrap();
                    file.fsync().await.unwrap();
                    model.borrow_mut().synced(path, end);
                }
                file.close().await.unwrap();
            }
            Grow(path, more) => {
                let Plain::File { fill, written, .. } = model.borrow().after[path] else { panic!() };
                let file = open(&vfs, path).await;
                file.append(Bytes::from(vec![fill; more])).await.unwrap();
                file.close().await.unwrap();
                model.borrow_mut().synced(path, written);
            }
            Cut(path, size) => {
                let (dir, name) = place(&vfs, path).await;
                let handle = vfs.lookup(dir, &name).await.unwrap().handle;
                vfs.truncate(handle, size as u64, false).await.unwrap();
            }
            Chmod(path) => {
                let (dir, name) = place(&vfs, path).await;
                let handle = vfs.lookup(dir, &name).await.unwrap().handle;
                let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
                vfs.setattr(handle, set).await.unwrap();
            }
            Rename(from, to) | Exchange(from, to) => {
                let flags = if matches!(step, Rename(..)) { PLAIN } else { EXCHANGE };
                let ((from, name), (to, to_name)) = (place(&vfs, from).await, place(&vfs, to).await);
                vfs.rename(from, &name, to, &to_name, flags).await.unwrap();
            }
            Unlink(path) => {
                let (dir, name) = place(&vfs, path).await;
                vfs.unlink(dir, &name).await.unwrap();
            }
            Rmdir(path) => {
                let (dir, name) = place(&vfs, path).await;
                vfs.rmdir(dir, &name).await.unwrap();
            }
            UnlinkOpen(path) => {
                let file = open(&vfs, path).await;
                let (dir, name) = place(&vfs, path).await;
                vfs.unlink(dir, &name).await.unwrap();
                file.append(Bytes::from(vec![9; LARGE])).await.unwrap();
                vfs.sync_all().await.unwrap();
                file.close().await.unwrap();
            }
        }
        let mut model = model.borrow_mut();
        model.before = model.after.clone();
    }
}

/// All objects with their paths; each comes once.
async fn tree(vfs: &Objects) -> Vec<(String, Kind, Handle)> {
    let (mut todo, mut all) = (vec![(String::new(), Handle::ROOT)], Vec::new());
    while let Some((path, dir)) = todo.pop() {
        let mut listing = vfs.opendir(dir, Duration::ZERO);
        while let Some(listed) = listing.next(false).await.unwrap() {
            let (entry, below) =
                (listed.entry, if path.is_empty() { String::new() } else { format!("{path}/") });
            let own = format!("{below}{}", entry.name);
            if entry.kind == Kind::Directory {
                todo.push((own.clone(), entry.handle));
            }
            all.push((own, entry.kind, entry.handle));
        }
    }
    let once: BTreeSet<Handle> = all.iter().map(|(_, _, handle)| *handle).collect();
    assert_eq!(once.len(), all.len(), "an object has two names: {all:?}");
    all
}

/// Whether the tree is this one, cut files included.
async fn is(
    vfs: &Objects,
    found: &[(String, Kind, Handle)],
    wanted: &Tree,
    under_way: Step,
) -> Result<(), String> {
    let paths: BTreeSet<&str> = found.iter().map(|(path, ..)| &path[..]).collect();
    if paths != wanted.keys().copied().collect() {
        return Err(format!("{paths:?}"));
    }
    for (path, kind, handle) in found {
        let plain = wanted[&path[..]];
        let Plain::File { fill, synced, written } = plain else {
            if *kind != Kind::Directory {
                return Err(format!("{path} is no directory"));
            }
            continue;
        };
        if *kind != Kind::File {
            return Err(format!("{path} is no file"));
        }
        let read = vfs.open(*handle, BOTH).await.unwrap().read(0, 10 * LARGE).await.unwrap();
        let least = match under_way {
            Cut(cut, size) if cut == path => size.min(synced),
            _ => synced,
        };
        if !(least..=written).contains(&read.len()) || read.iter().any(|byte| *byte != fill) {
            return Err(format!("{path} has {} bytes of {:?}: {plain:?}", read.len(), read.first()));
        }
    }
    Ok(())
}

/// After the end of a process: the tree is one of the two, all names can be used, and nothing is left.
async fn check(env: Env, memory: MemoryStore, model: Model, under_way: Step) {
    let vfs = mount(&env, &memory).await;
    let found = tree(&vfs).await;
    if let Err(before) = is(&vfs, &found, &model.before, under_way).await
        && let Err(after) = is(&vfs, &found, &model.after, under_way).await
    {
        panic!(
            "not as before: {before}\nnor as after: {after}\n{model:?}",
            model = (model.before, model.after)
        );
    }
    vfs.sync_all().await.unwrap();
    for (path, kind, _) in found.iter().rev() {
        let (dir, name) = place(&vfs, path).await;
        match kind {
            Kind::Directory => vfs.rmdir(dir, &name).await.unwrap(),
            _ => vfs.unlink(dir, &name).await.unwrap(),
        }
    }
    let begun = env.now();
    for path in ["d", "d/small", "d/large", "d/e", "d/f", "moved", "large", "x"] {
        let (dir, name) = place(&vfs, path).await;
        match path {
            "d" => drop(vfs.mkdir(dir, &name, OWNER).await.unwrap()),
            _ => drop(vfs.create(dir, &name, OWNER, true, BOTH).await.unwrap()),
        }
    }
    assert!(env.now() - begun < Duration::from_secs(100), "a name that was left is made anew");
    for path in ["d/small", "d/large", "d/e", "d/f", "moved", "large", "x"] {
        let (dir, name) = place(&vfs, path).await;
        vfs.unlink(dir, &name).await.unwrap();
    }
    let kept = vfs.rmdir(Handle::ROOT, &name("x")).await.unwrap_err();
    assert_eq!(kept.status, Status::NotFound);
    vfs.rmdir(Handle::ROOT, &name("d")).await.unwrap();
    vfs.recover(true).await.unwrap();
    let left: Vec<String> = memory.objects().into_keys().collect();
    assert_eq!(left, ["root"], "{under_way:?} {:?}\n{:?}", model.before, model.after);
}

#[test]
fn a_process_that_ends_between_any_two_changes_leaves_each_name_as_before_or_after() {
    let mut ended = 0;
    for changes in 0.. {
        let memory = MemoryStore::default();
        memory.conduct(Conduct { ends_after: Some(changes), ..Conduct::default() });
        let world = World::new(changes + 1, Config::default());
        let machine = world.machine("machine");
        let process = world.process("process", machine);
        let (model, is_done) = (Rc::new(RefCell::new(Model::default())), Rc::new(RefCell::new(false)));
        let (own, done, store) = (model.clone(), is_done.clone(), memory.clone());
        world.start(process, move |env| async move {
            work(env, store, own).await;
            done.replace(true);
        });
        let over = || memory.has_ended() || *is_done.borrow();
        assert!(world.run_until_true(world.now() + Duration::from_secs(100), over));
        if *is_done.borrow() {
            break;
        }
        ended += 1;
        world.crash(process);
        memory.conduct(Conduct::default());
        let model = model.borrow().clone();
        let under_way = *STEPS.iter().find(|step| is_under_way(step, &model)).unwrap_or(&STEPS[0]);
        world.complete(process, {
            let memory = memory.clone();
            move |env| check(env, memory, model, under_way)
        });
    }
    assert!(ended > 50, "{ended} moments");
}

/// Whether a step leads from the one tree to the other, and cuts.
fn is_under_way(step: &Step, model: &Model) -> bool {
    let Cut(path, size) = step else { return false };
    matches!(model.after.get(path), Some(Plain::File { written, .. }) if written == size)
        && model.before.get(path) != model.after.get(path)
}
