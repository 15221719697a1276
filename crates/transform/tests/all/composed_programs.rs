//! Random programs of several processes against a plain model; kills at any call, and power cuts.

use crate::scene::{BOTH, Draw};
use bytes::Bytes;
use shoal_env::sim::{Config, World};
use shoal_env::{Env, Instant};
use shoal_proto::{Handle, Name, Owner, Rights, Status};
use shoal_transform::composed::tools;
use shoal_transform::{Composed, ComposedOptions, Wishes};
use shoal_vfs::{AnyVfs, Connect, Listing, LocalOptions, RenameFlags, Vfs, VfsFile};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
const ROOT: Handle = Handle::ROOT;
type Mounted = Composed<AnyVfs>;
/// A path of two parts, the first one a directory or empty, and its contents.
type Tree = BTreeMap<(u64, u64), Vec<u8>>;

fn seeds(usual: u64) -> u64 {
    std::env::var("SHOAL_TRANSFORM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn name(text: String) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

async fn mount(env: &Env, words: &str) -> Mounted {
    let wishes = Wishes::parse(words).unwrap();
    let over = LocalOptions::new("/a/directory");
    ComposedOptions { over, wishes }.connect(env.clone()).await.unwrap()
}

async fn dir_of(vfs: &Mounted, dir: u64) -> Handle {
    if dir == 0 {
        return ROOT;
    }
    let owner = Owner { mode: 0o755, ..OWNER };
    let text = name(format!("d{dir}"));
    match vfs.mkdir(ROOT, &text, owner).await {
        Ok(made) => made.handle,
        Err(error) => {
            assert_eq!(error.status, Status::Exists, "{error}");
            vfs.lookup(ROOT, &text).await.unwrap().handle
        }
    }
}

async fn listed(vfs: &Mounted, dir: Handle) -> Vec<(Name, Handle)> {
    let (mut listing, mut found) = (vfs.opendir(dir, Duration::from_secs(1)), Vec::new());
    while let Some(listed) = listing.next(false).await.unwrap() {
        found.push((listed.entry.name, listed.entry.handle));
    }
    found
}

/// All files as they are seen.
async fn tree(vfs: &Mounted) -> Tree {
    let mut tree = Tree::new();
    for (outer, object) in listed(vfs, ROOT).await {
        let outer = String::from_utf8(outer.as_bytes().to_vec()).unwrap();
        let number = |text: &str| text[1..].parse::<u64>().unwrap();
        match outer.starts_with('d') {
            true => {
                for (inner, object) in listed(vfs, object).await {
                    let inner = String::from_utf8(inner.as_bytes().to_vec()).unwrap();
                    tree.insert((number(&outer), number(&inner)), contents(vfs, object).await);
                }
            }
            false => drop(tree.insert((0, number(&outer)), contents(vfs, object).await)),
        }
    }
    tree
}

async fn contents(vfs: &Mounted, object: Handle) -> Vec<u8> {
    let file = vfs.open(object, Rights::READ).await.unwrap();
    let bytes = file.read(0, 1 << 22).await.unwrap().to_vec();
    file.close().await.unwrap();
    bytes
}

/// One change by one process; what the tree is after it. `touches` gets its paths before it begins.
async fn change(
    vfs: &Mounted,
    draw: &mut Draw,
    before: &Tree,
    turn: u64,
    touches: impl Fn((u64, u64)),
) -> Tree {
    let mut after = before.clone();
    let path = (draw.below(3), draw.below(6));
    touches(path);
    let dir = dir_of(vfs, path.0).await;
    let text = name(format!("f{}", path.1));
    match draw.below(10) {
        0 if before.contains_key(&path) => {
            vfs.unlink(dir, &text).await.unwrap();
            after.remove(&path);
        }
        1 | 2 if before.contains_key(&path) => {
            let other = (draw.below(3), draw.below(6));
            touches(other);
            let to = dir_of(vfs, other.0).await;
            vfs.rename(dir, &text, to, &name(format!("f{}", other.1)), RenameFlags::default()).await.unwrap();
            let moved = after.remove(&path).unwrap();
            after.insert(other, moved);
        }
        3 if before.contains_key(&path) => {
            let object = vfs.lookup(dir, &text).await.unwrap().handle;
            let size = draw.below(40_000);
            vfs.truncate(object, size, false).await.unwrap();
            after.get_mut(&path).unwrap().resize(size as usize, 0);
        }
        4 if path.0 > 0 => {
            // An empty directory goes; one that is not stays.
            let is_empty = !before.keys().any(|(dir, _)| *dir == path.0);
            let removed = vfs.rmdir(ROOT, &name(format!("d{}", path.0))).await;
            assert_eq!(removed.is_ok(), is_empty, "{removed:?}");
        }
        _ => {
            let (_, is_new, file) = vfs.create(dir, &text, OWNER, false, BOTH).await.unwrap();
            assert_eq!(is_new, !before.contains_key(&path));
            let bytes = after.entry(path).or_default();
            for part in 0..=draw.below(3) {
                let (at, len) = (draw.below(30_000) as usize, 1 + draw.below(12_000) as usize);
                let data: Vec<u8> =
                    (0..len).map(|n| ((turn * 31 + part * 7 + n as u64) % 255) as u8 + 1).collect();
                bytes.resize(bytes.len().max(at + len), 0);
                bytes[at..at + len].copy_from_slice(&data);
                file.write(at as u64, Bytes::from(data)).await.unwrap();
            }
            file.close().await.unwrap();
        }
    }
    after
}

const WORDS: [&str; 3] = ["block=16K", "block=64K,files=2", "block=16K,files=3"];

#[test]
fn processes_that_take_turns_see_one_tree_as_a_plain_directory_has_it() {
    for seed in 1..=seeds(50) {
        let world = World::new(seed, Config::default());
        let process = world.process("process", world.machine("machine"));
        world.complete(process, move |env| async move {
            let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
            let words = WORDS[draw.below(3) as usize];
            let mut mounts = Vec::new();
            for _ in 0..1 + draw.below(4) {
                mounts.push(mount(&env, words).await);
            }
            let mut model = Tree::new();
            for turn in 0..20 + draw.below(60) {
                let which = draw.below(mounts.len() as u64) as usize;
                match draw.below(25) {
                    // One ends, cleanly or not, and another one begins.
                    0 => {
                        mounts[which].close().await;
                        mounts[which] = mount(&env, words).await;
                    }
                    1 => {
                        drop(mounts.remove(which));
                        mounts.push(mount(&env, words).await);
                    }
                    2 => drop(tools::compact(&mounts[which], |_, _| {}).await.unwrap()),
                    _ => {
                        model = change(&mounts[which], &mut draw, &model, turn, |_| {}).await;
                    }
                }
                if draw.below(8) == 0 {
                    let which = draw.below(mounts.len() as u64) as usize;
                    assert!(tree(&mounts[which]).await == model, "seed {seed}, turn {turn}");
                }
            }
            mounts.push(mount(&env, words).await);
            for vfs in &mounts {
                assert!(tree(vfs).await == model, "seed {seed}: at the end");
                assert_eq!(tools::check(vfs, |_, _| {}).await.unwrap(), Vec::<String>::new(), "seed {seed}");
            }
        });
    }
}

/// The promises to a run: the tree after the last change that returned, whether one was under way, and the
/// tree at the last sync, with the paths that were changed since.
#[derive(Default)]
struct Promised {
    acknowledged: Tree,
    under_way: bool,
    /// The paths of the change that is under way.
    touched: BTreeSet<(u64, u64)>,
    synced: Option<Tree>,
    changed: BTreeSet<(u64, u64)>,
}

async fn work(env: Env, seed: u64, promised: Rc<RefCell<Promised>>) {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let words = WORDS[draw.below(3) as usize];
    let vfs = mount(&env, words).await;
    let other = mount(&env, words).await;
    for turn in 0..40 {
        let vfs = if draw.below(4) == 0 { &other } else { &vfs };
        if draw.below(6) == 0 {
            vfs.sync_all().await.unwrap();
            other.sync_all().await.unwrap();
            let mut promised = promised.borrow_mut();
            promised.synced = Some(promised.acknowledged.clone());
            promised.changed.clear();
            continue;
        }
        if draw.below(12) == 0 {
            tools::compact(vfs, |_, _| {}).await.unwrap();
            continue;
        }
        let before = promised.borrow().acknowledged.clone();
        promised.borrow_mut().under_way = true;
        let touches = |path| {
            promised.borrow_mut().touched.insert(path);
        };
        let after = change(vfs, &mut draw, &before, turn, touches).await;
        let mut promised = promised.borrow_mut();
        let paths = before.keys().chain(after.keys()).copied().collect::<Vec<_>>();
        promised.changed.extend(paths.into_iter().filter(|path| before.get(path) != after.get(path)));
        (promised.acknowledged, promised.under_way) = (after, false);
        promised.touched.clear();
    }
}

#[test]
fn a_kill_at_any_call_takes_nothing_that_returned_and_a_power_cut_nothing_that_was_synced() {
    let (mut midway, mut whole, mut powerless) = (0, 0, 0);
    for seed in 1..=seeds(60) {
        let world = World::new(seed, Config::default());
        let machine = world.machine("machine");
        let process = world.process("process", machine);
        let promised = Rc::new(RefCell::new(Promised::default()));
        let own = promised.clone();
        world.start(process, move |env| work(env, seed, own));
        let (mut events, limit) = (0u64, 1 + seed * 7919 % 2500);
        world.run_until_true(Instant(3_600_000_000_000), || {
            events += 1;
            events >= limit
        });
        let is_power = seed % 3 == 0;
        world.crash(process);
        if is_power {
            world.power_cut(machine);
        }
        let found = world.complete(process, |env| async move {
            let vfs = mount(&env, "").await;
            let found = tree(&vfs).await;
            vfs.close().await;
            // From the merged directory it is the same.
            let again = mount(&env, "").await;
            assert!(tree(&again).await == found);
            found
        });
        let promised = promised.borrow();
        *(if promised.under_way { &mut midway } else { &mut whole }) += 1;
        let wanted = if is_power {
            promised.synced.clone().unwrap_or_default()
        } else {
            promised.acknowledged.clone()
        };
        // The files of the change under way, and after a power cut those that changed since the last sync.
        let is_open = |path| promised.touched.contains(path) || is_power && promised.changed.contains(path);
        let mut compared = 0;
        for (path, bytes) in wanted.iter().filter(|(path, _)| !is_open(path)) {
            assert!(found.get(path) == Some(bytes), "seed {seed}: {path:?}, power cut: {is_power}");
            compared += 1;
        }
        powerless += u64::from(is_power && compared > 0);
        for path in found.keys().filter(|path| !is_open(path)) {
            assert!(wanted.contains_key(path), "seed {seed}: {path:?} is invented, power cut: {is_power}");
        }
    }
    eprintln!("{midway} midway {whole} between, {powerless} power cuts with files that stay");
    assert!(
        midway > 5 && whole > 5 && powerless > 5,
        "kills come in the middle of changes ({midway}) and between them ({whole}), and {powerless} power cuts take nothing \
         of some files"
    );
}
