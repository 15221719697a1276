//! Several processes in a composed directory at the same time: one syncs what another one wrote,
//! removes a directory that another one fills, or moves it.

use crate::scene::{BOTH, PLAIN, compose, name, run};
use bytes::Bytes;
use futures_util::future::join;
use shoal_env::sim::{Config, World};
use shoal_proto::{Allocation, Handle, Owner, Rights, Status};
use shoal_transform::Composed;
use shoal_transform::composed::{ComposedFile, tools};
use shoal_vfs::{AnyVfs, Vfs, VfsFile};
use std::cell::RefCell;
use std::path::Path;

type Mounted = Composed<AnyVfs>;
const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
const FOLDER: Owner = Owner { mode: 0o755, ..OWNER };
const ROOT: Handle = Handle::ROOT;

async fn put(vfs: &Mounted, dir: Handle, text: &str, data: &'static [u8]) {
    let (_, _, file) = vfs.create(dir, &name(text), OWNER, false, BOTH).await.unwrap();
    file.write(0, Bytes::from_static(data)).await.unwrap();
    file.close().await.unwrap();
}

async fn get(vfs: &Mounted, dir: Handle, text: &str) -> Vec<u8> {
    let file = vfs.open_name(dir, &name(text), Rights::READ).await.unwrap();
    let bytes = file.read(0, 1 << 24).await.unwrap().to_vec();
    file.close().await.unwrap();
    bytes
}

/// The file of a directory that others removed, as a process finds it that opens the composed directory now.
async fn is_kept(vfs: &Mounted) {
    let d = vfs.lookup(ROOT, &name("d")).await.unwrap();
    assert_eq!(get(vfs, d.handle, "f").await, b"kept");
}

#[test]
fn an_fsync_makes_durable_what_another_process_wrote() {
    let below = Path::new("/a/directory");
    for (seed, words) in (1..=12).zip(["files=1", "files=4", "files=16"].into_iter().cycle()) {
        let world = World::new(seed, Config::default());
        let machine = world.machine("machine");
        let process = world.process("process", machine);
        world.complete(process, move |env| async move {
            let writer = compose(&env, below, words).await.unwrap();
            let syncing = compose(&env, below, words).await.unwrap();
            if seed % 2 == 0 {
                // It has blocks of its own.
                put(&syncing, ROOT, "own", b"own").await;
            }
            put(&writer, ROOT, "file", b"of another").await;
            let file = syncing.open_name(ROOT, &name("file"), Rights::READ).await.unwrap();
            file.fsync().await.unwrap();
            // Neither ends its log.
            std::mem::forget((writer, syncing, file));
        });
        world.crash(process);
        world.power_cut(machine);
        world.complete(process, move |env| async move {
            let vfs = compose(&env, below, "").await.unwrap();
            assert_eq!(get(&vfs, ROOT, "file").await, b"of another", "seed {seed}, {words}");
        });
    }
}

/// Both need the claim of the block to be durable. A sync of the simulated disk takes all names with it, so
/// a power cut would not show it.
#[test]
fn an_fsync_does_not_return_before_one_under_way_that_makes_the_same_claim_durable() {
    let world = World::new(1, Config::default());
    let process = world.process("process", world.machine("machine"));
    world.complete(process, |env| async move {
        let vfs = compose(&env, Path::new("/a/directory"), "").await.unwrap();
        put(&vfs, ROOT, "file", b"synced").await;
        let one = vfs.open_name(ROOT, &name("file"), BOTH).await.unwrap();
        let other = one.again();
        let returned = RefCell::new(Vec::new());
        let sync = async |number: u8, file: &ComposedFile<AnyVfs>| {
            file.fsync().await.unwrap();
            returned.borrow_mut().push(number);
        };
        join(sync(1, &one), sync(2, &other)).await;
        assert_eq!(returned.into_inner(), [1, 2]);
    });
}

#[test]
fn a_file_in_a_directory_whose_removal_is_found_before_its_making_is_found() {
    run(async |env, dir| {
        let removing = compose(&env, dir, "files=1").await.unwrap();
        // Its block is the first that is scanned.
        put(&removing, ROOT, "first", b"").await;
        let filling = compose(&env, dir, "").await.unwrap();
        let made = filling.mkdir(ROOT, &name("d"), FOLDER).await.unwrap();
        let (_, _, file) = filling.create(made.handle, &name("f"), OWNER, false, BOTH).await.unwrap();
        file.write(0, Bytes::from_static(b"kept")).await.unwrap();
        removing.rmdir(ROOT, &name("d")).await.unwrap();
        file.close().await.unwrap();
        is_kept(&compose(&env, dir, "").await.unwrap()).await;
        removing.close().await;
        filling.close().await;
        let tool = compose(&env, dir, "").await.unwrap();
        is_kept(&tool).await;
        tools::compact(&tool, |_, _| {}).await.unwrap();
        tool.close().await;
        is_kept(&compose(&env, dir, "").await.unwrap()).await;
    });
}

#[test]
fn a_compaction_keeps_a_removed_directory_that_a_running_process_fills() {
    run(async |env, dir| {
        let making = compose(&env, dir, "files=1").await.unwrap();
        let made = making.mkdir(ROOT, &name("old name"), FOLDER).await.unwrap();
        making.rename(ROOT, &name("old name"), ROOT, &name("d"), PLAIN).await.unwrap();
        making.close().await;
        let filling = compose(&env, dir, "").await.unwrap();
        let (_, _, file) = filling.create(made.handle, &name("f"), OWNER, false, BOTH).await.unwrap();
        file.write(0, Bytes::from_static(b"kept")).await.unwrap();
        // The name is not published yet: for this one the directory is empty.
        let tool = compose(&env, dir, "").await.unwrap();
        tool.rmdir(ROOT, &name("d")).await.unwrap();
        tool.close().await;
        for _ in 0..2 {
            let tool = compose(&env, dir, "").await.unwrap();
            let done = tools::compact(&tool, |_, _| {}).await.unwrap();
            assert!(done.extents > 0);
            tool.close().await;
        }
        file.close().await.unwrap();
        filling.publish().await.unwrap();
        is_kept(&compose(&env, dir, "").await.unwrap()).await;
    });
}

#[test]
fn a_name_in_a_directory_that_a_compaction_forgot_is_refused() {
    run(async |env, dir| {
        let making = compose(&env, dir, "").await.unwrap();
        let made = making.mkdir(ROOT, &name("d"), FOLDER).await.unwrap();
        put(&making, ROOT, "other", b"other").await;
        making.close().await;
        // It has written nothing, and knows the directory from before.
        let idle = compose(&env, dir, "").await.unwrap();
        idle.lookup(ROOT, &name("d")).await.unwrap();
        let tool = compose(&env, dir, "").await.unwrap();
        tool.rmdir(ROOT, &name("d")).await.unwrap();
        tools::compact(&tool, |_, _| {}).await.unwrap();
        tool.close().await;
        let tool = compose(&env, dir, "").await.unwrap();
        tools::compact(&tool, |_, _| {}).await.unwrap();
        tool.close().await;
        let made = idle.create(made.handle, &name("f"), OWNER, false, BOTH).await;
        assert_eq!(made.err().map(|error| error.status), Some(Status::Stale));
        put(&idle, ROOT, "g", b"kept").await;
        assert_eq!(std::fs::read_dir(dir.join("names")).unwrap().count(), 0);
    });
}

#[test]
fn an_allocation_leaves_bytes_that_another_process_has_not_published_yet() {
    run(async |env, dir| {
        let writing = compose(&env, dir, "").await.unwrap();
        put(&writing, ROOT, "f", b"").await;
        let allocating = compose(&env, dir, "").await.unwrap();
        let file = writing.open_name(ROOT, &name("f"), BOTH).await.unwrap();
        writing.truncate(file.handle(), 10, false).await.unwrap();
        writing.publish().await.unwrap();
        let other = allocating.open_name(ROOT, &name("f"), BOTH).await.unwrap();
        file.write(0, Bytes::from(vec![7; 1000])).await.unwrap();
        let before = allocating.getattr(file.handle()).await.unwrap();
        other.allocate(0, 500, Allocation::Extend).await.unwrap();
        let after = allocating.getattr(file.handle()).await.unwrap();
        assert_eq!((before.size, after.size), (10, 500));
        assert!(after.mtime > before.mtime, "the size changed");
        other.allocate(500, 1000, Allocation::Zero).await.unwrap();
        other.close().await.unwrap();
        file.close().await.unwrap();
        let there = compose(&env, dir, "").await.unwrap();
        let bytes = get(&there, ROOT, "f").await;
        assert!(bytes[..500] == [7; 500], "byte {:?}", bytes.iter().position(|byte| *byte != 7));
        assert_eq!(bytes.len(), 1500);
    });
}

#[test]
fn directories_that_two_processes_moved_into_each_other_are_named_by_the_check() {
    run(async |env, dir| {
        // Their moves are published later than they are made.
        let (one, other) = (
            compose(&env, dir, "buffer=block").await.unwrap(),
            compose(&env, dir, "buffer=block").await.unwrap(),
        );
        let a = one.mkdir(ROOT, &name("a"), FOLDER).await.unwrap().handle;
        let b = one.mkdir(ROOT, &name("b"), FOLDER).await.unwrap().handle;
        put(&one, a, "f", b"in a").await;
        one.publish().await.unwrap();
        other.refreshed().await.unwrap();
        one.rename(ROOT, &name("a"), b, &name("a"), PLAIN).await.unwrap();
        other.rename(ROOT, &name("b"), a, &name("b"), PLAIN).await.unwrap();
        one.publish().await.unwrap();
        other.publish().await.unwrap();
        let vfs = compose(&env, dir, "").await.unwrap();
        assert!(vfs.lookup(ROOT, &name("a")).await.is_err() && vfs.lookup(ROOT, &name("b")).await.is_err());
        let found = tools::check(&vfs, |_, _| {}).await.unwrap();
        for words in [format!("`a` of directory {:x}", b.0), format!("`f` of directory {:x}", a.0)] {
            assert!(found.iter().any(|line| line.contains(&words)), "{words}: {found:#?}");
        }
        assert_eq!(found.len(), 3, "{found:#?}");
    });
}
