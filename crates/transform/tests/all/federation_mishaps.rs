//! Containers over several backends when something goes wrong: kills, power cuts, full disks, races.

use crate::scene::{BOTH, Draw, PLAIN, name, run};
use bytes::Bytes;
use shoal_env::sim::{Config, World};
use shoal_env::{Env, real};
use shoal_proto::{Handle, Owner, Rights, Status};
use shoal_transform::federation;
use shoal_transform::{Container, Federated, FederationOptions};
use shoal_vfs::{Connect, Listing, Local, LocalOptions, RenameFlags, Result, Vfs, VfsFile};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::skipped::skipped;

type Mounted = Container<Federated<Local>>;

const EXCHANGE: RenameFlags = RenameFlags { no_replace: false, exchange: true };
const OWNER: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };

fn owner() -> Owner {
    Owner { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw(), ..OWNER }
}

fn paths(dir: &Path, count: usize) -> Vec<PathBuf> {
    (0..count).map(|number| dir.join(format!("backend-{number}"))).collect()
}

fn backends(dir: &Path, count: usize) -> Vec<PathBuf> {
    let all = paths(dir, count);
    all.iter().for_each(|path| std::fs::create_dir_all(path).unwrap());
    all
}

async fn mount(env: &Env, backends: &[PathBuf]) -> Mounted {
    let over = LocalOptions { inline: true, ..LocalOptions::new(&backends[0]) };
    let over = FederationOptions::new(over, backends[1..].to_vec());
    Container::checked(env.clone(), over.connect(env.clone()).await.unwrap()).await.unwrap()
}

async fn put<V: Vfs>(vfs: &V, dir: Handle, text: &str, bytes: &str) -> Result<Handle> {
    let (attr, _, file) = vfs.create(dir, &name(text), owner(), false, BOTH).await?;
    file.write(0, Bytes::from(bytes.to_owned())).await?;
    file.fsync().await?;
    file.close().await?;
    Ok(attr.handle)
}

async fn text_of<V: Vfs>(vfs: &V, dir: Handle, text: &str) -> String {
    let file = vfs.open_name(dir, &name(text), Rights::READ).await.unwrap();
    let bytes = file.read(0, 1 << 20).await.unwrap();
    file.close().await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn names<V: Vfs>(vfs: &V, dir: Handle) -> Result<Vec<String>> {
    let (mut listing, mut all) = (vfs.opendir(dir, Duration::from_secs(5)), Vec::new());
    while let Some(listed) = listing.next(true).await? {
        all.push(String::from_utf8(listed.entry.name.as_bytes().to_vec()).unwrap());
    }
    all.sort();
    Ok(all)
}

async fn is_whole(mounted: &Mounted) {
    let found = federation::check(mounted.over()).await.unwrap();
    assert_eq!((&found.damage, &found.leftovers), (&vec![], &vec![]));
}

/// Files below a directory of the host.
fn files(dir: &Path) -> usize {
    let count = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path) } else { 1 }
    };
    std::fs::read_dir(dir).unwrap().map(count).sum()
}

#[test]
fn two_names_are_swapped_for_ever_and_their_metalinks_stay_few() {
    run(async |env, dir| {
        let all = backends(dir, 4);
        let mounted = mount(&env, &all).await;
        for number in 0..8 {
            put(&mounted, Handle::ROOT, &format!("n{number}"), &format!("{number}")).await.unwrap();
        }
        let swap = async |turn: usize| {
            let (one, other) = (name(&format!("n{}", turn % 8)), name(&format!("n{}", (turn * 3 + 1) % 8)));
            mounted.rename(Handle::ROOT, &one, Handle::ROOT, &other, EXCHANGE).await.unwrap();
        };
        for turn in 0..40 {
            swap(turn).await;
        }
        let before: usize = all.iter().map(|backend| files(backend)).sum();
        for turn in 40..160 {
            swap(turn).await;
        }
        let after: usize = all.iter().map(|backend| files(backend)).sum();
        assert!(after <= before + 8, "{before} files became {after}");
        let mut seen = Vec::new();
        for number in 0..8 {
            seen.push(text_of(&mounted, Handle::ROOT, &format!("n{number}")).await);
        }
        seen.sort();
        assert_eq!(seen, ["0", "1", "2", "3", "4", "5", "6", "7"]);
        is_whole(&mounted).await;
    });
}

/// A small file system, while it lasts.
struct Small(PathBuf);

impl Small {
    /// `None`: it needs the rights of root.
    fn mount(at: &Path) -> Option<Small> {
        let done = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k,nr_inodes=120", "none"])
            .arg(at)
            .output()
            .ok()?;
        done.status.success().then(|| Small(at.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).output();
    }
}

#[test]
fn a_full_backend_fails_what_needs_it_and_loses_nothing() {
    run(async |env, dir| {
        let all = backends(dir, 3);
        let Some(_small) = Small::mount(&all[1]) else {
            skipped("it mounts a small file system, which needs root");
            return;
        };
        let mounted = mount(&env, &all).await;
        let mut there = BTreeMap::new();
        let mut full = 0;
        for number in 0..150 {
            let (text, bytes) = (format!("file-{number}"), format!("bytes {number}"));
            match put(&mounted, Handle::ROOT, &text, &bytes).await {
                Ok(_) => drop(there.insert(text, bytes)),
                Err(error) => {
                    assert!(error.status == Status::NoSpace && error.words.contains("backend-1"), "{error}");
                    full += 1;
                    // It may have been made, and have no bytes.
                    let _ = mounted.unlink(Handle::ROOT, &name(&format!("file-{number}"))).await;
                }
            }
        }
        assert!(full > 20 && there.len() > 60, "{full} failed and {} did not", there.len());
        // Renames need room on the backend of the new name, and an exchange on both.
        let mut failed = 0;
        for (number, flags) in (0..40).map(|number| (number, if number % 2 == 0 { PLAIN } else { EXCHANGE }))
        {
            let names: Vec<String> = there.keys().cloned().collect();
            let from = names[number % names.len()].clone();
            let to = match flags.exchange {
                true => names[(number * 7 + 3) % names.len()].clone(),
                false => format!("moved-{number}"),
            };
            match mounted.rename(Handle::ROOT, &name(&from), Handle::ROOT, &name(&to), flags).await {
                Ok(()) => {
                    let moved = there.remove(&from).unwrap();
                    if let Some(old) = there.insert(to, moved) {
                        there.insert(from, old);
                    }
                }
                Err(error) => {
                    assert_eq!(error.status, Status::NoSpace, "{error}");
                    failed += 1;
                }
            }
        }
        assert!(failed > 5, "{failed} renames failed");
        let checked = federation::check(mounted.over()).await.unwrap();
        assert_eq!(checked.damage, Vec::<String>::new());
        for (text, bytes) in &there {
            assert_eq!(text_of(&mounted, Handle::ROOT, text).await, *bytes);
            mounted.unlink(Handle::ROOT, &name(text)).await.unwrap();
        }
        mounted.close().await;
        let again = mount(&env, &all).await;
        for number in 0..30 {
            let made = put(&again, Handle::ROOT, &format!("again-{number}"), "").await;
            made.unwrap_or_else(|error| panic!("there is room again: {error}"));
        }
        again.close().await;
    });
}

#[test]
fn a_program_with_a_former_list_is_refused_where_it_could_miss_or_lose_a_file() {
    run(async |env, dir| {
        let all = backends(dir, 3);
        let old = mount(&env, &all[..2]).await;
        let sub = old.mkdir(Handle::ROOT, &name("sub"), owner()).await.unwrap().handle;
        put(&old, sub, "known", "bytes").await.unwrap();
        let new = mount(&env, &all).await;
        let there = new.lookup(Handle::ROOT, &name("sub")).await.unwrap().handle;
        for number in 0..12 {
            put(&new, there, &format!("new-{number}"), "new").await.unwrap();
        }
        assert_eq!(text_of(&old, sub, "known").await, "bytes", "what is there is read");
        let refusals = [
            old.unlink(sub, &name("known")).await.err(),
            put(&old, sub, "another", "").await.err(),
            old.mkdir(sub, &name("dir"), owner()).await.err(),
            old.lookup(sub, &name("none")).await.err(),
            old.rmdir(Handle::ROOT, &name("sub")).await.err(),
            old.rename(Handle::ROOT, &name("sub"), Handle::ROOT, &name("to"), PLAIN).await.err(),
            names(&old, sub).await.err(),
        ];
        for refusal in refusals {
            let refusal = refusal.expect("a former list is not used");
            assert!(
                refusal.words.contains("has changed") && refusal.words.contains("start it again"),
                "{refusal}"
            );
        }
        assert_eq!(names(&new, there).await.unwrap().len(), 13);
        is_whole(&new).await;
    });
}

#[test]
fn a_directory_whose_removal_was_killed_takes_no_new_file_until_it_is_recovered() {
    run(async |env, dir| {
        let all = backends(dir, 4);
        let mounted = mount(&env, &all).await;
        let sub = mounted.mkdir(Handle::ROOT, &name("sub"), owner()).await.unwrap().handle;
        std::fs::write(all[0].join("sub/.shoal-leaving"), "").unwrap();
        let mut refused = None;
        for number in 0..20 {
            match put(&mounted, sub, &format!("file-{number}"), "bytes").await {
                Ok(_) => {}
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        let refused = refused.expect("some of the names have their place elsewhere");
        assert_eq!(refused.status, Status::Busy);
        assert!(refused.words.contains("recover --ended"), "{refused}");
        let checked = federation::check(mounted.over()).await.unwrap();
        assert_eq!((checked.leftovers.len(), checked.damage.len()), (1, 0), "{checked:?}");
        assert_eq!(federation::recover(mounted.over()).await.unwrap().removed, 1);
        for number in 0..20 {
            put(&mounted, sub, &format!("file-{number}"), "bytes").await.unwrap();
        }
        assert_eq!(names(&mounted, sub).await.unwrap().len(), 20);
        is_whole(&mounted).await;
    });
}

#[test]
fn programs_that_begin_together_with_a_new_list_agree_on_it() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..8 {
        let all = backends(&dir.path().join(format!("{round}")), 3);
        let begun: Vec<_> = (0..4)
            .map(|number| {
                let all = all.clone();
                std::thread::spawn(move || {
                    real::run("beginner", move |env| async move {
                        let mounted = mount(&env, &all).await;
                        put(&mounted, Handle::ROOT, &format!("file-{number}"), "bytes").await.unwrap();
                        mounted.close().await;
                    });
                })
            })
            .collect();
        begun.into_iter().for_each(|thread| thread.join().unwrap());
        real::run("reader", move |env| async move {
            let mounted = mount(&env, &all[..1]).await;
            assert_eq!(names(&mounted, Handle::ROOT).await.unwrap().len(), 4);
            is_whole(&mounted).await;
        });
    }
}

#[test]
fn a_removal_of_a_directory_and_a_creation_in_it_never_both_succeed() {
    const ROUNDS: usize = 150;
    let dir = tempfile::tempdir().unwrap();
    let all = backends(dir.path(), 4);
    let made = all.clone();
    real::run("first", move |env| async move { mount(&env, &made).await.close().await });
    let barrier = Arc::new(Barrier::new(2));
    let (first, second) = (all.clone(), all.clone());
    let (own, other) = (barrier.clone(), barrier);
    let creator = std::thread::spawn(move || {
        real::run("creator", move |env| async move {
            let mounted = mount(&env, &second).await;
            let mut made = Vec::new();
            for round in 0..ROUNDS {
                other.wait();
                let found = mounted.lookup(Handle::ROOT, &name("dir")).await.unwrap().handle;
                other.wait();
                made.push(put(&mounted, found, &format!("f-{round}"), "bytes").await.is_ok());
                other.wait();
            }
            made
        })
    });
    let removed = real::run("remover", move |env| async move {
        let mounted = mount(&env, &first).await;
        let mut removed = Vec::new();
        for round in 0..ROUNDS {
            let made = mounted.mkdir(Handle::ROOT, &name("dir"), owner()).await.unwrap();
            own.wait();
            own.wait();
            let is_removed = mounted.rmdir(Handle::ROOT, &name("dir")).await.is_ok();
            removed.push(is_removed);
            own.wait();
            if !is_removed {
                for entry in names(&mounted, made.handle).await.unwrap() {
                    assert_eq!(text_of(&mounted, made.handle, &entry).await, "bytes", "round {round}");
                    mounted.unlink(made.handle, &name(&entry)).await.unwrap();
                }
                mounted.rmdir(Handle::ROOT, &name("dir")).await.unwrap();
            }
        }
        // A creation that came too late may leave its folder, empty.
        let found = federation::check(mounted.over()).await.unwrap();
        let is_empty_folder = |left: &String| left.starts_with("no name leads to the folder");
        assert!(found.damage.is_empty(), "{:?}", found.damage);
        assert!(found.leftovers.iter().all(is_empty_folder), "{:?}", found.leftovers);
        removed
    });
    let made = creator.join().unwrap();
    for (round, (made, removed)) in made.iter().zip(&removed).enumerate() {
        assert!(!(*made && *removed), "round {round}: the file of a directory that is gone");
    }
}

/// Names and contents; a name may have either of two while a rename is under way.
type Model = Rc<RefCell<BTreeMap<String, String>>>;

async fn simulated(env: &Env) -> Mounted {
    let all = paths(Path::new("/a"), 4);
    let over = FederationOptions::new(LocalOptions::new(&all[0]), all[1..].to_vec());
    Container::checked(env.clone(), over.connect(env.clone()).await.unwrap()).await.unwrap()
}

/// Files, renamed for ever. A content leaves the model before the rename that replaces it.
async fn renames(env: Env, seed: u64, model: Model) {
    let mut draw = Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mounted = simulated(&env).await;
    let sub = mounted.mkdir(Handle::ROOT, &name("sub"), OWNER).await.unwrap().handle;
    mounted.fsync_directory(Handle::ROOT).await.unwrap();
    for turn in 0.. {
        let dir = |at: u64| if at < 6 { Handle::ROOT } else { sub };
        let (one, other) = (draw.below(12), draw.below(12));
        let (from, to) = (format!("n{one}"), format!("n{other}"));
        let is_there = model.borrow().contains_key(&from);
        if !is_there {
            let text = format!("content {turn}");
            put(&mounted, dir(one), &from, &text).await.unwrap();
            mounted.fsync_directory(dir(one)).await.unwrap();
            model.borrow_mut().insert(from, text);
            continue;
        }
        let replaced = model.borrow().get(&to).cloned();
        let exchange = replaced.is_some() && draw.below(3) == 0;
        if !exchange && one != other {
            model.borrow_mut().remove(&to);
        }
        let flags = if exchange { EXCHANGE } else { PLAIN };
        mounted.rename(dir(one), &name(&from), dir(other), &name(&to), flags).await.unwrap();
        if one != other {
            let mut model = model.borrow_mut();
            let moved = model.remove(&from).unwrap();
            model.insert(to, moved);
            if let Some(replaced) = replaced.filter(|_| exchange) {
                model.insert(from, replaced);
            }
        }
    }
}

async fn found(env: Env) -> Vec<String> {
    let mounted = simulated(&env).await;
    let checked = federation::check(mounted.over()).await.unwrap();
    assert_eq!(checked.damage, Vec::<String>::new());
    federation::recover(mounted.over()).await.unwrap();
    is_whole(&mounted).await;
    let sub = mounted.lookup(Handle::ROOT, &name("sub")).await.unwrap().handle;
    let mut all = Vec::new();
    for dir in [Handle::ROOT, sub] {
        for entry in names(&mounted, dir).await.unwrap() {
            if entry != "sub" {
                all.push(text_of(&mounted, dir, &entry).await);
            }
        }
    }
    all
}

#[test]
fn renames_that_are_killed_or_lose_their_power_lose_no_file() {
    let seeds = std::env::var("SHOAL_FEDERATION_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    for seed in 1..=seeds {
        let world = World::new(seed, Config::default());
        let machine = world.machine("machine");
        let process = world.process("process", machine);
        let model = Model::default();
        let own = model.clone();
        world.start(process, move |env| renames(env, seed, own));
        let later = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 400_000;
        world.run_for(Duration::from_micros(100_000 + later));
        world.crash(process);
        if seed.is_multiple_of(2) {
            world.power_cut(machine);
        }
        let found = world.complete(process, found);
        for (at, text) in model.borrow().iter() {
            assert!(found.contains(text), "seed {seed}: {text} of {at} is not among {found:?}");
        }
    }
}
