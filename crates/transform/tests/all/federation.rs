//! Containers over several backends: the names are one tree, whatever backend an object lies on.

use crate::scene::{BOTH, PLAIN, name, run};
use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use shoal_env::Env;
use shoal_proto::{Handle, Kind, Owner, Rights, Status};
use shoal_transform::federation::{self, Federation};
use shoal_transform::{Container, ContainerOptions, Federated, FederationOptions};
use shoal_vfs::conformance::{Promises, check};
use shoal_vfs::{Connect, Error, Listing, Local, LocalOptions, RenameFlags, Result, Vfs, VfsFile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

type Mounted = Container<Federated<Local>>;

const EXCHANGE: RenameFlags = RenameFlags { no_replace: false, exchange: true };

fn owner(mode: u32) -> Owner {
    Owner { mode, uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
}

/// The directories of so many backends, made.
fn backends(dir: &Path, count: usize) -> Vec<PathBuf> {
    let all: Vec<PathBuf> = (0..count).map(|number| dir.join(format!("backend-{number}"))).collect();
    all.iter().for_each(|path| std::fs::create_dir_all(path).unwrap());
    all
}

fn options(backends: &[PathBuf]) -> ContainerOptions<FederationOptions> {
    let over = LocalOptions { inline: true, ..LocalOptions::new(&backends[0]) };
    let over = FederationOptions::new(over, backends[1..].to_vec());
    ContainerOptions::new(FederationOptions { may_be_alone: backends.len() == 1, ..over })
}

async fn mount(env: &Env, backends: &[PathBuf]) -> Mounted {
    let over = options(backends).over.connect(env.clone()).await.unwrap();
    Container::checked(env.clone(), over).await.unwrap()
}

async fn refusal(env: &Env, backends: &[PathBuf]) -> Error {
    match options(backends).connect(env.clone()).await {
        Ok(_) => panic!("{backends:?} are no federation"),
        Err(error) => error,
    }
}

async fn put<V: Vfs>(vfs: &V, dir: Handle, text: &str, bytes: &str) -> Handle {
    let made = vfs.create(dir, &name(text), owner(0o644), false, BOTH).await;
    let (attr, _, file) = made.unwrap_or_else(|error| panic!("{text}: {error}"));
    file.write(0, Bytes::from(bytes.to_owned())).await.unwrap();
    file.close().await.unwrap();
    attr.handle
}

async fn text_of<V: Vfs>(vfs: &V, dir: Handle, text: &str) -> String {
    let file = vfs.open_name(dir, &name(text), Rights::READ).await.unwrap();
    let bytes = file.read(0, 1 << 20).await.unwrap();
    file.close().await.unwrap();
    String::from_utf8(bytes.to_vec()).unwrap()
}

async fn listed<V: Vfs>(vfs: &V, dir: Handle) -> Vec<(String, Kind, Handle)> {
    let (mut listing, mut all) = (vfs.opendir(dir, Duration::from_secs(5)), Vec::new());
    while let Some(entry) = listing.next(true).await.unwrap() {
        let entry = entry.entry;
        assert_eq!(entry.attr.map(|attr| (attr.handle, attr.kind)), Some((entry.handle, entry.kind)));
        all.push((String::from_utf8(entry.name.as_bytes().to_vec()).unwrap(), entry.kind, entry.handle));
    }
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

/// The files below a directory of the host whose names begin so.
fn count(dir: &Path, prefix: &str) -> usize {
    let mut found = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found += count(&entry.path(), prefix),
            false => found += usize::from(entry.file_name().to_string_lossy().starts_with(prefix)),
        }
    }
    found
}

fn is_share(count: usize, of: usize, all: usize) {
    let share = of / all;
    assert!(count * 10 >= share * 8 && count * 10 <= share * 12, "{count} of {of} is no share of {all}");
}

async fn is_whole(mounted: &Mounted) -> Federation {
    let found = federation::check(mounted.over()).await.unwrap();
    assert_eq!((&found.damage, &found.leftovers), (&vec![], &vec![]));
    found
}

#[test]
fn containers_over_four_backends_conform() {
    run(async move |env, dir| {
        // Closes of what is dropped run in the background: so not inline.
        let backends = backends(dir, 4);
        let over = FederationOptions::new(LocalOptions::new(&backends[0]), backends[1..].to_vec());
        let container = ContainerOptions::new(over).connect(env.clone()).await.unwrap();
        let owners = rustix::process::getuid().is_root();
        let promises = Promises {
            links: false,
            counted_directories: false,
            many: 100,
            xattrs: false,
            owners,
            ..Promises::ALL
        };
        check(&container, promises).await;
        container.close().await;
    });
}

#[test]
fn each_backend_has_its_share_of_the_files_and_of_one_file_s_writers() {
    run(async |env, dir| {
        let backends = backends(dir, 4);
        let container = mount(&env, &backends).await;
        let sub = container.mkdir(Handle::ROOT, &name("sub"), owner(0o755)).await.unwrap().handle;
        for number in 0..1000 {
            container
                .mknod(sub, &name(&format!("file-{number}")), owner(0o644), Kind::File, 0)
                .await
                .unwrap();
        }
        let found = is_whole(&container).await;
        for (_, entries) in &found.entries {
            is_share(*entries as usize, 1000, 4);
        }
        assert_eq!(found.metalinks, 0, "a new file lies at the place of its name");
        let (_, _, first) = container.create(sub, &name("one"), owner(0o644), true, BOTH).await.unwrap();
        let mut opened = vec![first];
        for _ in 1..256 {
            opened.push(container.open_name(sub, &name("one"), BOTH).await.unwrap());
        }
        for (number, file) in opened.iter().enumerate() {
            file.write(number as u64 * 4, Bytes::copy_from_slice(&(number as u32).to_le_bytes()))
                .await
                .unwrap();
        }
        for backend in &backends {
            is_share(count(backend, "data."), 256, 4);
        }
        let other = mount(&env, &backends).await;
        let there = other.lookup(Handle::ROOT, &name("sub")).await.unwrap().handle;
        let file = other.open_name(there, &name("one"), BOTH).await.unwrap();
        let read = file.read(0, 4096).await.unwrap();
        let wanted: Vec<u8> = (0..256u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(read, wanted);
        for file in opened {
            file.close().await.unwrap();
        }
        assert!(is_whole(&container).await.metalinks > 0, "its folders lie on all backends");
    });
}

#[derive(Clone, Debug)]
enum Step {
    Put { dir: usize, name: usize },
    Mkdir { dir: usize, name: usize },
    Symlink { dir: usize, name: usize },
    Unlink { dir: usize, name: usize },
    Rmdir { dir: usize, name: usize },
    Rename { from: (usize, usize), to: (usize, usize), flags: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let (dir, name) = (0..6usize, 0..5usize);
    let at = || (0..6usize, 0..5usize);
    prop_oneof![
        4 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Step::Put { dir, name }),
        3 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Step::Mkdir { dir, name }),
        1 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Step::Symlink { dir, name }),
        1 => (dir.clone(), name.clone()).prop_map(|(dir, name)| Step::Unlink { dir, name }),
        1 => (dir, name).prop_map(|(dir, name)| Step::Rmdir { dir, name }),
        6 => (at(), at(), 0..4usize).prop_map(|(from, to, flags)| Step::Rename { from, to, flags }),
    ]
}

/// The directory of a number: the root, or one of a walk over those that are there.
async fn directory<V: Vfs>(vfs: &V, number: usize) -> Handle {
    let mut at = Handle::ROOT;
    for turn in 0..number {
        let all = listed(vfs, at).await;
        let dirs: Vec<_> = all.iter().filter(|(_, kind, _)| *kind == Kind::Directory).collect();
        if dirs.is_empty() {
            return at;
        }
        at = dirs[(number + turn) % dirs.len()].2;
    }
    at
}

async fn take<V: Vfs>(vfs: &V, step: &Step, fill: usize) -> Result<()> {
    let called = |number: usize| name(&format!("n{number}"));
    match *step {
        Step::Put { dir, name } => {
            let dir = directory(vfs, dir).await;
            let (_, _, file) = vfs.create(dir, &called(name), owner(0o644), false, BOTH).await?;
            file.write(0, Bytes::from(format!("{fill:4}"))).await?;
            file.close().await
        }
        Step::Mkdir { dir, name } => {
            vfs.mkdir(directory(vfs, dir).await, &called(name), owner(0o755)).await.map(drop)
        }
        Step::Symlink { dir, name } => {
            let dir = directory(vfs, dir).await;
            vfs.symlink(dir, &called(name), owner(0o777), format!("to {fill}").as_bytes()).await.map(drop)
        }
        Step::Unlink { dir, name } => vfs.unlink(directory(vfs, dir).await, &called(name)).await,
        Step::Rmdir { dir, name } => vfs.rmdir(directory(vfs, dir).await, &called(name)).await,
        Step::Rename { from, to, flags } => {
            let (source, target) = (directory(vfs, from.0).await, directory(vfs, to.0).await);
            let flags = RenameFlags { no_replace: flags == 1, exchange: flags == 2 };
            vfs.rename(source, &called(from.1), target, &called(to.1), flags).await
        }
    }
}

/// All names with their contents.
async fn tree<V: Vfs>(vfs: &V, dir: Handle, path: String, all: &mut BTreeMap<String, String>) {
    for (text, kind, handle) in listed(vfs, dir).await {
        let here = format!("{path}/{text}");
        assert_eq!(vfs.lookup(dir, &name(&text)).await.unwrap().handle, handle, "{here}");
        let words = match kind {
            Kind::Directory => {
                Box::pin(tree(vfs, handle, here.clone(), all)).await;
                "directory".to_owned()
            }
            Kind::Symlink => String::from_utf8(vfs.readlink(handle).await.unwrap().to_vec()).unwrap(),
            _ => text_of(vfs, dir, &text).await,
        };
        all.insert(here, words);
    }
}

async fn trees_are_equal<A: Vfs, B: Vfs>(one: &A, other: &B) {
    let (mut wanted, mut found) = (BTreeMap::new(), BTreeMap::new());
    tree(one, Handle::ROOT, String::new(), &mut wanted).await;
    tree(other, Handle::ROOT, String::new(), &mut found).await;
    assert_eq!(found, wanted);
}

/// Remove all that is below a directory.
async fn is_emptied<V: Vfs>(vfs: &V, dir: Handle) {
    for (text, kind, handle) in listed(vfs, dir).await {
        if kind == Kind::Directory {
            Box::pin(is_emptied(vfs, handle)).await;
            vfs.rmdir(dir, &name(&text)).await.unwrap();
        } else {
            vfs.unlink(dir, &name(&text)).await.unwrap();
        }
    }
}

fn names_are_those_of_a_plain_directory(steps: Vec<Step>, number: usize) {
    run(async move |env, dir| {
        let plain = dir.join("plain");
        std::fs::create_dir(&plain).unwrap();
        let plain =
            LocalOptions { inline: true, ..LocalOptions::new(plain) }.connect(env.clone()).await.unwrap();
        let backends = backends(dir, number);
        let mounts = [mount(&env, &backends).await, mount(&env, &backends).await];
        for (fill, step) in steps.iter().enumerate() {
            let wanted = take(&plain, step, fill).await.map_err(|error| error.status);
            let mounted = &mounts[fill % 2];
            let done = take(mounted, step, fill).await;
            let status = done.as_ref().copied().map_err(|error| error.status);
            assert_eq!(status, wanted, "step {fill}, {step:?}: {done:?}");
            if fill % 8 == 7 || fill + 1 == steps.len() {
                trees_are_equal(&plain, &mounts[(fill + 1) % 2]).await;
            }
        }
        for mounted in &mounts {
            mounted.close().await;
        }
        let again = mount(&env, &backends[..1]).await;
        trees_are_equal(&plain, &again).await;
        is_whole(&again).await;
        is_emptied(&again, Handle::ROOT).await;
        again.close().await;
        let left: usize = backends.iter().map(|backend| count(backend, "")).sum();
        let own = if number == 1 { 0 } else { number + 1 };
        let of_the_bin = usize::from(backends[0].join(".shoal/.shoal-folder").exists());
        assert_eq!(left - of_the_bin, own, "nothing but identities and the list");
    });
}

#[test]
fn names_renames_and_listings_are_those_of_a_plain_directory_over_one_and_four_backends() {
    let cases =
        std::env::var("SHOAL_FEDERATION_PROGRAMS").ok().and_then(|text| text.parse().ok()).unwrap_or(40);
    for number in [1, 4] {
        let mut runner =
            TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..Default::default() });
        let steps = prop::collection::vec(step(), 1..50);
        let done = runner.run(&steps, |steps| {
            names_are_those_of_a_plain_directory(steps, number);
            Ok(())
        });
        if let Err(TestError::Fail(why, steps)) = done {
            panic!("{number} backends, {steps:?}: {why}");
        }
        done.unwrap();
    }
}

#[test]
fn a_further_backend_moves_nothing_and_all_files_are_found() {
    run(async |env, dir| {
        let all = backends(dir, 3);
        // One directory of containers becomes the first of two.
        let alone = ContainerOptions::new(LocalOptions::new(&all[0])).connect(env.clone()).await.unwrap();
        for number in 0..20 {
            put(&alone, Handle::ROOT, &format!("alone-{number}"), "a").await;
        }
        alone.close().await;
        let two = mount(&env, &all[..2]).await;
        for number in 0..40 {
            put(&two, Handle::ROOT, &format!("two-{number}"), "b").await;
        }
        let before = [count(&all[0], "data."), count(&all[1], "data.")];
        assert!(before[0] >= 20 && before[1] > 0, "{before:?}");
        let three = mount(&env, &all).await;
        assert_eq!([count(&all[0], "data."), count(&all[1], "data.")], before);
        for number in 0..60 {
            put(&three, Handle::ROOT, &format!("three-{number}"), "c").await;
        }
        assert!(count(&all[2], "data.") > 0);
        // The given names stand on the first backend, and the former mount finds its own files.
        let read = mount(&env, &all[..1]).await;
        for (prefix, most, text) in [("alone", 20, "a"), ("two", 40, "b"), ("three", 60, "c")] {
            for number in 0..most {
                assert_eq!(text_of(&read, Handle::ROOT, &format!("{prefix}-{number}")).await, text);
            }
        }
        assert_eq!(listed(&read, Handle::ROOT).await.len(), 120);
        for number in 0..40 {
            let (from, to) = (name(&format!("two-{number}")), name(&format!("moved-{number}")));
            read.rename(Handle::ROOT, &from, Handle::ROOT, &to, PLAIN).await.unwrap();
            assert_eq!(text_of(&three, Handle::ROOT, &format!("moved-{number}")).await, "b");
            let new = three.create(Handle::ROOT, &to, owner(0o644), true, BOTH).await;
            assert_eq!(new.err().map(|error| error.status), Some(Status::Exists));
        }
        assert!(is_whole(&read).await.metalinks > 0);
        for (text, _, _) in listed(&read, Handle::ROOT).await {
            read.unlink(Handle::ROOT, &name(&text)).await.unwrap();
        }
        read.close().await;
        let none: Vec<usize> = all.iter().map(|backend| count(backend, "data.")).collect();
        assert_eq!(none, [0, 0, 0]);
        assert_eq!(is_whole(&three).await.metalinks, 0);
    });
}

#[test]
fn a_rename_leaves_the_bytes_on_their_backend_and_open_files_go_on() {
    run(async |env, dir| {
        let all = backends(dir, 4);
        let mounted = mount(&env, &all).await;
        let sub = mounted.mkdir(Handle::ROOT, &name("sub"), owner(0o755)).await.unwrap().handle;
        let object = put(&mounted, Handle::ROOT, "start", "bytes").await;
        let open = mounted.open(object, BOTH).await.unwrap();
        let before: Vec<usize> = all.iter().map(|backend| count(backend, "data.")).collect();
        let mut at = (Handle::ROOT, "start".to_owned());
        for turn in 0..12 {
            let to = (if turn % 2 == 0 { sub } else { Handle::ROOT }, format!("place-{turn}"));
            mounted.rename(at.0, &name(&at.1), to.0, &name(&to.1), PLAIN).await.unwrap();
            let found = mounted.lookup(to.0, &name(&to.1)).await.unwrap();
            assert_eq!(found.handle, object, "one handle whatever its name");
            assert_eq!(mounted.lookup(at.0, &name(&at.1)).await.unwrap_err().status, Status::NotFound);
            at = to;
        }
        open.write(5, Bytes::from_static(b" more")).await.unwrap();
        assert_eq!(text_of(&mounted, at.0, &at.1).await, "bytes more");
        put(&mounted, sub, "target", "old").await;
        mounted.rename(at.0, &name(&at.1), sub, &name("target"), PLAIN).await.unwrap();
        assert_eq!(text_of(&mounted, sub, "target").await, "bytes more");
        put(&mounted, Handle::ROOT, "swapped", "other").await;
        for turn in 0..6 {
            let here = (sub, name("target"));
            mounted.rename(here.0, &here.1, Handle::ROOT, &name("swapped"), EXCHANGE).await.unwrap();
            let wanted = if turn % 2 == 0 { "other" } else { "bytes more" };
            assert_eq!(text_of(&mounted, sub, "target").await, wanted);
        }
        open.close().await.unwrap();
        mounted.unlink(Handle::ROOT, &name("swapped")).await.unwrap();
        let after: Vec<usize> = all.iter().map(|backend| count(backend, "data.")).collect();
        assert!(before.iter().zip(&after).all(|(before, after)| after >= before), "{before:?} {after:?}");
        // The directory of one with entries elsewhere is removed when they are gone, and only then.
        let full = mounted.rmdir(Handle::ROOT, &name("sub")).await;
        assert_eq!(full.unwrap_err().status, Status::NotEmpty);
        mounted.unlink(sub, &name("target")).await.unwrap();
        mounted.rmdir(Handle::ROOT, &name("sub")).await.unwrap();
        mounted.close().await;
        is_whole(&mount(&env, &all).await).await;
    });
}

#[test]
fn a_backend_that_is_gone_or_another_one_is_named_with_the_remedy_and_nothing_is_touched() {
    run(async |env, dir| {
        let all = backends(dir, 4);
        let mounted = mount(&env, &all[..3]).await;
        put(&mounted, Handle::ROOT, "file", "bytes").await;
        mounted.close().await;
        let kept = dir.join("kept");
        std::fs::rename(&all[1], &kept).unwrap();
        let gone = refusal(&env, &all[..1]).await;
        assert!(gone.words.contains("backend-1") && gone.words.contains("Mount the disk"), "{gone}");
        std::fs::create_dir(&all[1]).unwrap();
        for given in [&all[..1], &all[..3]] {
            let empty = refusal(&env, given).await;
            assert!(empty.words.contains("backend-1 is not backend 2"), "{empty}");
        }
        assert_eq!(std::fs::read_dir(&all[1]).unwrap().count(), 0, "the empty directory is not taken");
        std::fs::remove_dir(&all[1]).unwrap();
        std::fs::rename(&kept, &all[1]).unwrap();
        let swapped = [all[0].clone(), all[2].clone(), all[1].clone()];
        let changed = refusal(&env, &swapped).await;
        assert!(changed.words.contains("in the order of the list"), "{changed}");
        let fewer = refusal(&env, &all[..2]).await;
        assert!(fewer.words.contains("lacks backend 3") && fewer.words.contains("backend-2"), "{fewer}");
        let second = refusal(&env, &all[1..3]).await;
        assert!(second.words.contains("already"), "{second}");
        let plain = ContainerOptions::new(LocalOptions::new(&all[0])).connect(env.clone()).await;
        let plain = plain.err().expect("one backend alone is not the whole");
        assert!(plain.words.contains("backends"), "{plain}");
        let list = all[0].join(".shoal-federation/list.1");
        let text = std::fs::read(&list).unwrap();
        std::fs::write(&list, &text[..text.len() - 2]).unwrap();
        let damaged = refusal(&env, &all[..1]).await;
        assert!(damaged.words.contains("list 1"), "{damaged}");
        std::fs::write(&list, &text).unwrap();
        assert_eq!(text_of(&mount(&env, &all[..3]).await, Handle::ROOT, "file").await, "bytes");
        // A backend that moved is found where it is said to be from then on.
        std::fs::rename(&all[1], &all[3]).unwrap();
        let moved = [all[0].clone(), all[3].clone(), all[2].clone()];
        assert_eq!(text_of(&mount(&env, &moved).await, Handle::ROOT, "file").await, "bytes");
        assert_eq!(text_of(&mount(&env, &all[..1]).await, Handle::ROOT, "file").await, "bytes");
    });
}

#[test]
fn what_killed_steps_leave_is_seen_by_none_and_removed_by_recovery() {
    run(async |env, dir| {
        let all = backends(dir, 4);
        let mounted = mount(&env, &all).await;
        let sub = mounted.mkdir(Handle::ROOT, &name("sub"), owner(0o755)).await.unwrap().handle;
        for number in 0..16 {
            put(&mounted, sub, &format!("file-{number}"), "bytes").await;
            let (from, to) = (name(&format!("file-{number}")), name(&format!("moved-{number}")));
            mounted.rename(sub, &from, sub, &to, PLAIN).await.unwrap();
        }
        let found = is_whole(&mounted).await;
        // A rename that was killed before its object moved, and one that had only made its metalink's object.
        let link = metalinks(dir).pop().expect("one of sixteen has another place than before");
        let text = std::fs::read_to_string(&link).unwrap();
        let backend = text.lines().nth(1).unwrap().split(' ').nth(1).unwrap();
        let target = shoal_transform::WriterId([7; 16]);
        let body = format!("shoal metalink 1\n{target} {backend}");
        let dangling = format!("{body} {:08x}\n", crc32c::crc32c(body.as_bytes()));
        for other in (0..99).map(|number| format!("lost-{number}")) {
            std::fs::write(link.with_file_name(&other), &dangling).unwrap();
            assert_eq!(mounted.lookup(sub, &name(&other)).await.unwrap_err().status, Status::NotFound);
        }
        assert_eq!(listed(&mounted, sub).await.len(), 16);
        let unnamed = shoal_transform::WriterId([8; 16]);
        std::fs::create_dir(all[2].join(format!(".shoal-federation/objects/{unnamed}"))).unwrap();
        std::fs::create_dir(all[3].join(format!(".shoal-federation/dirs/{target}"))).unwrap();
        let checked = federation::check(mounted.over()).await.unwrap();
        assert_eq!((checked.leftovers.len(), checked.damage.len()), (101, 0), "{checked:?}");
        assert_eq!(federation::recover(mounted.over()).await.unwrap().removed, 101);
        assert_eq!(is_whole(&mounted).await.metalinks, found.metalinks);
        assert_eq!(listed(&mounted, sub).await.len(), 16);
        for number in 0..16 {
            assert_eq!(text_of(&mounted, sub, &format!("moved-{number}")).await, "bytes");
        }
    });
}

/// The metalinks below a directory of the host that are names of containers.
fn metalinks(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(metalinks(&path));
        } else if path.file_name().unwrap().to_string_lossy().starts_with("moved-") {
            found.push(path);
        }
    }
    found
}
