//! Names of composed directories that several processes change at the same time: one succeeds, the others
//! find the name gone, or there.

use crate::scene::{BOTH, PLAIN, compose, name, run};
use bytes::Bytes;
use futures_util::future::join;
use shoal_env::Env;
use shoal_env::sim::{Config, World};
use shoal_proto::{Handle, Kind, Owner, Status};
use shoal_transform::composed::tools;
use shoal_transform::{Composed, WriterId};
use shoal_vfs::{AnyVfs, RenameFlags, Result, Vfs, VfsFile};
use std::fs;
use std::future::Future;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

type Mounted = Composed<AnyVfs>;
const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
const FOLDER: Owner = Owner { mode: 0o755, ..OWNER };
const ROOT: Handle = Handle::ROOT;
const SEEDS: u64 = 30;

/// The same in simulated worlds, in each of which the calls take other times.
fn in_worlds(body: impl AsyncFn(Env, &Path) + Copy + 'static) {
    for seed in 1..=SEEDS {
        let world = World::new(seed, Config::default());
        let process = world.process("process", world.machine("machine"));
        world.complete(process, move |env| async move { body(env, Path::new("/a/directory")).await });
    }
}

async fn put(vfs: &Mounted, text: &str, data: &[u8]) -> Handle {
    let (attr, _, file) = vfs.create(ROOT, &name(text), OWNER, false, BOTH).await.unwrap();
    file.write(0, Bytes::copy_from_slice(data)).await.unwrap();
    file.close().await.unwrap();
    attr.handle
}

/// The object of a name, as a process finds it that opens the directory now.
async fn object(env: &Env, dir: &Path, text: &str) -> Option<Handle> {
    let vfs = compose(env, dir, "").await.unwrap();
    vfs.lookup(ROOT, &name(text)).await.ok().map(|attr| attr.handle)
}

/// A change of the name `job` of one of two processes.
#[derive(Clone, Copy, Debug)]
enum Change {
    Remove,
    Rename,
    RenameNew,
    Exchange,
}

async fn make(vfs: &Mounted, change: Change, own: &str, is_dir: bool) -> Result<()> {
    let flags = RenameFlags {
        no_replace: matches!(change, Change::RenameNew),
        exchange: matches!(change, Change::Exchange),
    };
    match change {
        Change::Remove if is_dir => vfs.rmdir(ROOT, &name("job")).await,
        Change::Remove => vfs.unlink(ROOT, &name("job")).await,
        _ => vfs.rename(ROOT, &name("job"), ROOT, &name(own), flags).await,
    }
}

#[test]
fn of_processes_that_rename_or_remove_one_name_one_succeeds() {
    in_worlds(async |env, dir| {
        let one = compose(&env, dir, "").await.unwrap();
        let two = compose(&env, dir, "").await.unwrap();
        let changes = [Change::Remove, Change::Rename, Change::RenameNew];
        for (n, (first, second)) in
            changes.iter().flat_map(|first| changes.iter().map(move |second| (*first, *second))).enumerate()
        {
            for is_dir in [false, true] {
                let job = match is_dir {
                    true => one.mkdir(ROOT, &name("job"), FOLDER).await.unwrap().handle,
                    false => put(&one, "job", b"work").await,
                };
                // Both have seen it.
                assert_eq!(two.lookup(ROOT, &name("job")).await.unwrap().handle, job);
                let (a, b) = (format!("{n} {is_dir} a"), format!("{n} {is_dir} b"));
                let done = join(make(&one, first, &a, is_dir), make(&two, second, &b, is_dir)).await;
                let case = format!("{first:?} and {second:?}, directory: {is_dir}: {done:?}");
                let (is_one, is_two) = (done.0.is_ok(), done.1.is_ok());
                assert!(is_one != is_two, "{case}");
                let lost = done.0.err().or(done.1.err()).unwrap();
                assert_eq!(lost.status, Status::NotFound, "{case}");
                for (text, change, is_made) in [(&a, first, is_one), (&b, second, is_two)] {
                    let wanted = Some(job).filter(|_| is_made && !matches!(change, Change::Remove));
                    assert_eq!(object(&env, dir, text).await, wanted, "{case}");
                }
                assert_eq!(object(&env, dir, "job").await, None, "{case}");
            }
        }
        // Nothing but the files whose links the markers were.
        let marks = one.over().lookup(ROOT, &name("names")).await.unwrap().handle;
        let left = one.over().names(marks).await.unwrap();
        assert!(left.iter().all(|name| name.as_bytes().starts_with(b"t.")), "{left:?}");
    });
}

#[test]
fn no_file_is_lost_where_the_renames_of_two_processes_meet_at_one_name() {
    in_worlds(async |env, dir| {
        let one = compose(&env, dir, "").await.unwrap();
        let two = compose(&env, dir, "").await.unwrap();
        for round in 0..4 {
            let x = put(&one, "a", b"x").await;
            let y = if round % 2 == 0 { Some(put(&one, "b", b"y").await) } else { None };
            two.lookup(ROOT, &name("a")).await.unwrap();
            let first = async { one.rename(ROOT, &name("a"), ROOT, &name("b"), PLAIN).await };
            let second = async {
                match round {
                    0 | 1 => two.rename(ROOT, &name("b"), ROOT, &name("c"), PLAIN).await,
                    _ => two.unlink(ROOT, &name("b")).await,
                }
            };
            let (first, second) = join(first, second).await;
            first.unwrap();
            let found = [object(&env, dir, "b").await, object(&env, dir, "c").await];
            let case = format!("round {round}: {second:?}, {found:?} of {x:?} and {y:?}");
            // One of the two orders.
            let orders = match (round < 2, second.is_ok(), y) {
                (true, true, Some(_)) => vec![[Some(x), y], [None, Some(x)]],
                (true, true, None) => vec![[None, Some(x)]],
                (false, true, Some(_)) => vec![[Some(x), None], [None, None]],
                (false, true, None) => vec![[None, None]],
                (_, false, None) => vec![[Some(x), None]],
                (_, false, Some(_)) => vec![],
            };
            assert!(orders.contains(&found), "{case}");
            for text in ["b", "c"] {
                let _ = one.unlink(ROOT, &name(text)).await;
            }
        }
    });
}

#[test]
fn two_exchanges_of_one_name_by_two_processes_are_one_after_the_other() {
    in_worlds(async |env, dir| {
        let one = compose(&env, dir, "").await.unwrap();
        let two = compose(&env, dir, "").await.unwrap();
        let job = put(&one, "job", b"job").await;
        let (a, b) = (put(&one, "a", b"a").await, put(&one, "b", b"b").await);
        two.lookup(ROOT, &name("b")).await.unwrap();
        let done =
            join(make(&one, Change::Exchange, "a", false), make(&two, Change::Exchange, "b", false)).await;
        done.0.and(done.1).unwrap();
        let mut found = Vec::new();
        for text in ["job", "a", "b"] {
            found.push(object(&env, dir, text).await.unwrap());
        }
        assert!(found == [b, job, a] || found == [a, b, job], "{found:?} of {job:?}, {a:?}, {b:?}");
    });
}

/// With whole blocks the changes of the first one are published 5 s later.
#[test]
fn a_name_that_another_process_has_changed_and_not_published_is_waited_for() {
    let world = World::new(1, Config::default());
    let process = world.process("process", world.machine("machine"));
    world.complete(process, |env| async move {
        let dir = Path::new("/a/directory");
        let one = compose(&env, dir, "buffer=block").await.unwrap();
        let two = compose(&env, dir, "").await.unwrap();
        for text in ["removed", "moved"] {
            put(&two, text, b"bytes").await;
            one.lookup(ROOT, &name(text)).await.unwrap();
        }
        one.unlink(ROOT, &name("removed")).await.unwrap();
        let refused = two.unlink(ROOT, &name("removed")).await.unwrap_err();
        assert_eq!(refused.status, Status::NotFound, "{refused}");
        one.rename(ROOT, &name("moved"), ROOT, &name("of one"), PLAIN).await.unwrap();
        let refused = two.rename(ROOT, &name("moved"), ROOT, &name("of two"), PLAIN).await.unwrap_err();
        assert_eq!(refused.status, Status::NotFound, "{refused}");
        // Within one process nothing waits, and nothing is published.
        let writes = one.counts().1;
        for n in 0..20 {
            let tmp = format!("tmp {n}");
            put(&one, &tmp, b"next").await;
            one.rename(ROOT, &name(&tmp), ROOT, &name(&format!("{n}")), PLAIN).await.unwrap();
        }
        assert!(one.counts().1 <= writes + 1, "{writes}, then {}", one.counts().1);
    });
}

/// A file that is open, and was not published yet, has its name reserved all the time.
#[test]
fn a_rename_to_a_name_that_another_process_is_making_does_not_wait_for_its_close() {
    in_worlds(async |env, dir| {
        let one = compose(&env, dir, "").await.unwrap();
        let two = compose(&env, dir, "").await.unwrap();
        let (_, _, open) = one.create(ROOT, &name("log"), OWNER, false, BOTH).await.unwrap();
        let moved = put(&two, "new", b"new").await;
        let began = env.now();
        two.rename(ROOT, &name("new"), ROOT, &name("log"), PLAIN).await.unwrap();
        assert!(env.now().0 - began.0 < 1_000_000_000, "it waited");
        open.write(0, Bytes::from_static(b"old")).await.unwrap();
        open.close().await.unwrap();
        assert_eq!(object(&env, dir, "log").await, Some(moved));
    });
}

#[test]
fn a_directory_and_a_file_are_never_made_by_one_name() {
    in_worlds(async |env, dir| {
        let one = compose(&env, dir, "").await.unwrap();
        let two = compose(&env, dir, "").await.unwrap();
        for round in 0..20 {
            let text = name(&format!("{round}"));
            let first = async {
                match round % 2 {
                    0 => one.mkdir(ROOT, &text, FOLDER).await,
                    _ => one.symlink(ROOT, &text, OWNER, b"elsewhere").await,
                }
            };
            let second = async {
                // At another moment each time.
                let mut draw = [0; 1];
                env.random(&mut draw);
                env.sleep(Duration::from_micros(3 * u64::from(draw[0]))).await;
                let (attr, _, file) = two.create(ROOT, &text, OWNER, false, BOTH).await?;
                file.write(0, Bytes::from_static(b"bytes")).await?;
                file.close().await?;
                Ok::<_, shoal_vfs::Error>(attr)
            };
            let (first, second) = join(first, second).await;
            let case = format!("{first:?}, {second:?}");
            assert!(first.is_ok() != second.is_ok(), "{case}");
            let made = first.or(second).unwrap();
            for vfs in [&one, &two, &compose(&env, dir, "").await.unwrap()] {
                let found = vfs.lookup(ROOT, &text).await.unwrap();
                assert_eq!((found.handle, found.kind), (made.handle, made.kind), "{case}");
            }
        }
    });
}

#[test]
fn a_file_is_not_made_by_the_name_of_a_directory_that_is_not_published_yet() {
    in_worlds(async |env, dir| {
        let one = compose(&env, dir, "buffer=block").await.unwrap();
        let two = compose(&env, dir, "").await.unwrap();
        let made = one.mkdir(ROOT, &name("d"), FOLDER).await.unwrap();
        let refused = two.create(ROOT, &name("d"), OWNER, false, BOTH).await.err().unwrap();
        assert_eq!(refused.status, Status::IsDirectory, "{refused}");
        let refused = two.mkdir(ROOT, &name("d"), FOLDER).await.unwrap_err();
        assert_eq!(refused.status, Status::Exists, "{refused}");
        one.publish().await.unwrap();
        let found = two.lookup(ROOT, &name("d")).await.unwrap();
        assert_eq!((found.handle, found.kind), (made.handle, Kind::Directory));
    });
}

#[test]
fn a_name_that_another_process_has_removed_is_free_at_once() {
    in_worlds(async |env, dir| {
        let one = compose(&env, dir, "").await.unwrap();
        let two = compose(&env, dir, "").await.unwrap();
        let x = put(&two, "x", b"x").await;
        let no_replace = RenameFlags { no_replace: true, exchange: false };
        for round in 0..6 {
            let text = name(&format!("{round}"));
            one.mkdir(ROOT, &text, FOLDER).await.unwrap();
            two.lookup(ROOT, &text).await.unwrap();
            one.rmdir(ROOT, &text).await.unwrap();
            let made = match round {
                0 => two.mkdir(ROOT, &text, FOLDER).await.map(drop),
                1 => two.symlink(ROOT, &text, OWNER, b"x").await.map(drop),
                2 => two.mknod(ROOT, &text, OWNER, Kind::Fifo, 0).await.map(drop),
                3 => two.link(x, ROOT, &text).await.map(drop),
                4 => two.create(ROOT, &text, OWNER, true, BOTH).await.map(drop),
                _ => two.rename(ROOT, &name("x"), ROOT, &text, no_replace).await,
            };
            made.unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
    });
}

/// As a kill leaves them while other processes have the directory open.
#[test]
fn markers_that_a_killed_process_left_keep_no_name_from_being_made_or_changed() {
    run(async |env, dir| {
        let vfs = compose(&env, dir, "").await.unwrap();
        let x = put(&vfs, "x", b"x").await;
        for n in 0..16u8 {
            let id = WriterId([n + 1; 16]);
            if n % 2 == 0 {
                fs::write(dir.join(format!("claims/w.{id}")), "killed").unwrap();
            }
            let text = format!("{n}");
            let is_there = n / 2 >= 5;
            if is_there {
                put(&vfs, &text, b"there").await;
            }
            symlink(format!("{id}.abcdef"), dir.join(format!("names/0000000000000001.{text}"))).unwrap();
            let made = name(&text);
            let no_replace = RenameFlags { no_replace: true, exchange: false };
            match n / 2 {
                0 => drop(vfs.mkdir(ROOT, &made, FOLDER).await.unwrap()),
                1 => vfs.create(ROOT, &made, OWNER, true, BOTH).await.unwrap().2.close().await.unwrap(),
                2 => drop(vfs.link(x, ROOT, &made).await.unwrap()),
                3 => vfs.rename(ROOT, &name("x"), ROOT, &made, no_replace).await.unwrap(),
                4 => drop(vfs.symlink(ROOT, &made, OWNER, b"x").await.unwrap()),
                5 => vfs.unlink(ROOT, &made).await.unwrap(),
                6 => vfs.rename(ROOT, &made, ROOT, &name("moved"), PLAIN).await.unwrap(),
                _ => vfs.rename(ROOT, &name("moved"), ROOT, &made, PLAIN).await.unwrap(),
            }
            if n / 2 == 3 {
                vfs.rename(ROOT, &made, ROOT, &name("x"), PLAIN).await.unwrap();
            }
            if n / 2 == 7 {
                vfs.rename(ROOT, &made, ROOT, &name("moved"), PLAIN).await.unwrap();
            }
        }
        vfs.close().await;
        assert_eq!(fs::read_dir(dir.join("names")).unwrap().count(), 0);
    });
}

/// The number is written between the making of `changes` and the next step of its maker.
#[test]
fn the_first_process_overwrites_no_number_of_a_change_that_another_one_has_published() {
    in_worlds(async |env, dir| {
        let vfs = compose(&env, dir, "").await.unwrap();
        let (over, changes) = (vfs.over(), name("changes"));
        over.unlink(ROOT, &changes).await.unwrap();
        let mut opening = pin!(compose(&env, dir, ""));
        let file = loop {
            assert!(!step(&env, opening.as_mut()).await, "it is opened without `changes`");
            if let Ok(file) = over.open_name(ROOT, &changes, BOTH).await {
                break file;
            }
        };
        file.write(8 * 77, Bytes::from_static(b"a number")).await.unwrap();
        opening.await.unwrap();
        assert_eq!(&file.read(8 * 77, 8).await.unwrap()[..], b"a number");
        assert_eq!(file.read(0, 1 << 20).await.unwrap().len(), 8 * 4096, "its space is there");
    });
}

/// Let a call go on to its next wait, and its request end; whether the call has ended.
async fn step<F: Future>(env: &Env, mut call: Pin<&mut F>) -> bool {
    let poll = |cx: &mut Context<'_>| Poll::Ready(call.as_mut().poll(cx).is_ready());
    let has_ended = std::future::poll_fn(poll).await;
    env.sleep(Duration::from_millis(1)).await;
    has_ended
}

/// The list of the last compaction is removed by the next one.
#[test]
fn a_name_is_found_while_compactions_end_at_any_step_of_the_look() {
    let world = World::new(1, Config::default());
    let process = world.process("process", world.machine("machine"));
    world.complete(process, |env| async move {
        let dir = Path::new("/a/directory");
        let compact = async |n: usize| {
            let tool = compose(&env, dir, "block=16K").await.unwrap();
            put(&tool, &format!("{n}"), b"bytes").await;
            tools::compact(&tool, |_, _| {}).await.unwrap();
            tool.close().await;
        };
        compact(0).await;
        let reader = compose(&env, dir, "").await.unwrap();
        for steps in 0..40 {
            // Its next look reads all anew.
            compact(steps).await;
            let mut look = pin!(reader.refreshed());
            let mut has_ended = false;
            for _ in 0..steps {
                has_ended = has_ended || step(&env, look.as_mut()).await;
            }
            if has_ended {
                assert!(steps > 3, "a look of {steps} steps");
                break;
            }
            compact(steps).await;
            look.await.unwrap_or_else(|error| panic!("after {steps} steps: {error}"));
            reader.lookup(ROOT, &name("0")).await.unwrap();
        }
    });
}
