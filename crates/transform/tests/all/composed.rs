//! Composed directories: counts of writes and claims, several processes, compaction, the merged directory.

use crate::scene::{BOTH, compose, name, run};
use bytes::Bytes;
use futures_util::future::join;
use shoal_env::Env;
use shoal_env::sim::{Config, World};
use shoal_proto::{Allocation, Handle, Kind, Owner, Rights, SetAttr, Status};
use shoal_transform::composed::tools;
use shoal_transform::{Composed, ComposedOptions, Wishes};
use shoal_vfs::{AnyVfs, Connect, Listing, LocalOptions, RenameFlags, Vfs, VfsFile};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

type Mounted = Composed<AnyVfs>;
const OWNER: Owner = Owner { mode: 0o644, uid: 0, gid: 0 };
const ROOT: Handle = Handle::ROOT;

/// The same in a simulated world.
fn simulated(body: impl AsyncFnOnce(Env, &Path) + 'static) {
    let world = World::new(1, Config::default());
    let process = world.process("process", world.machine("machine"));
    world.complete(process, |env| async move { body(env, Path::new("/a/directory")).await });
}

async fn put(vfs: &Mounted, text: &str, data: &[u8]) {
    let (_, _, file) = vfs.create(ROOT, &name(text), OWNER, false, BOTH).await.unwrap();
    vfs.truncate(file.handle(), 0, false).await.unwrap();
    file.write(0, Bytes::copy_from_slice(data)).await.unwrap();
    file.close().await.unwrap();
}

async fn get(vfs: &Mounted, text: &str) -> Option<Vec<u8>> {
    let file = vfs.open_name(ROOT, &name(text), Rights::READ).await.ok()?;
    let bytes = file.read(0, 1 << 24).await.unwrap().to_vec();
    file.close().await.unwrap();
    Some(bytes)
}

async fn listed(vfs: &Mounted) -> BTreeSet<String> {
    let (mut listing, mut names) = (vfs.opendir(ROOT, Duration::from_secs(1)), BTreeSet::new());
    while let Some(listed) = listing.next(false).await.unwrap() {
        assert!(names.insert(listed.entry.name.to_string()));
    }
    names
}

fn below(dir: &Path, folder: &str) -> usize {
    std::fs::read_dir(dir.join(folder)).unwrap().count()
}

#[test]
fn a_thousand_small_files_are_eight_writes_of_blocks_and_four_claims() {
    // Blocks are written after some seconds too: time stands still in a simulated world.
    simulated(async |env, below| {
        let vfs = compose(&env, below, "buffer=block,names=own").await.unwrap();
        for n in 0..1000 {
            put(&vfs, &format!("file-{n:04}"), &[n as u8; 8192]).await;
        }
        vfs.publish().await.unwrap();
        assert_eq!(vfs.counts(), (8, 8, 4), "blocks, writes, claims");
        let facts = tools::facts(&vfs).await.unwrap();
        assert_eq!((facts.files, facts.claims, facts.writers), (1000, 4, 1));
        vfs.close().await;
        let again = compose(&env, below, "").await.unwrap();
        assert_eq!(listed(&again).await.len(), 1000);
        assert_eq!(get(&again, "file-0777").await.unwrap(), vec![777u16 as u8; 8192]);
        // The claims, and nothing else: no marker of a name, no file of the writer.
        for (folder, entries) in [("claims", 4), ("names", 0)] {
            let dir = again.over().lookup(ROOT, &name(folder)).await.unwrap().handle;
            let mut listing = again.over().opendir(dir, Duration::from_secs(1));
            let mut count = 0;
            while listing.next(false).await.unwrap().is_some() {
                count += 1;
            }
            assert_eq!(count, entries, "{folder}");
        }
    });
}

#[test]
fn by_default_a_file_is_one_write_and_no_marker_stays() {
    run(async |env, dir| {
        let vfs = compose(&env, dir, "").await.unwrap();
        for n in 0..100 {
            put(&vfs, &format!("file-{n:04}"), &[n as u8; 8192]).await;
        }
        assert_eq!(vfs.counts(), (1, 100, 1));
        // The file whose links all markers but the first few were.
        let left = fs::read_dir(dir.join("names")).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
        assert_eq!(left.map(|left| left.nlink()).collect::<Vec<_>>(), [1]);
        vfs.close().await;
        assert_eq!(below(dir, "names"), 0);
    });
}

#[test]
fn a_name_is_made_without_a_read_of_all_that_others_published_and_what_concerns_it_is_seen_at_once() {
    simulated(async |env, dir| {
        let one = compose(&env, dir, "").await.unwrap();
        let two = compose(&env, dir, "").await.unwrap();
        for n in 0..200 {
            put(&one, &format!("of one {n}"), b"1").await;
            put(&two, &format!("of two {n}"), b"2").await;
        }
        // A name reads three of 4,096 numbers, and some of them others have changed.
        let begun = two.refreshes();
        assert!((1..60).contains(&begun), "{begun} of 200");
        for n in 0..200 {
            let text = format!("of one {n}");
            match n % 4 {
                0 => one.unlink(ROOT, &name(&text)).await.unwrap(),
                1 => put(&one, &text, b"changed").await,
                2 => one
                    .truncate(two.lookup(ROOT, &name(&text)).await.unwrap().handle, 9, false)
                    .await
                    .map(drop)
                    .unwrap(),
                _ => {
                    let flags = RenameFlags { no_replace: false, exchange: false };
                    one.rename(ROOT, &name(&text), ROOT, &name(&format!("moved {n}")), flags).await.unwrap();
                }
            }
            match n % 4 {
                0 => assert_eq!(get(&two, &text).await, None),
                1 => assert_eq!(get(&two, &text).await.unwrap(), b"changed"),
                2 => assert_eq!(two.lookup(ROOT, &name(&text)).await.unwrap().size, 9),
                _ => {
                    assert_eq!(get(&two, &text).await, None);
                    assert_eq!(get(&two, &format!("moved {n}")).await.unwrap(), b"1");
                }
            }
        }
    });
}

#[test]
fn beside_a_writer_over_a_network_each_new_name_reads_what_was_published() {
    simulated(async |env, dir| {
        let one = compose(&env, dir, "").await.unwrap();
        put(&one, "first", b"1").await;
        // As a writer does that reaches the directory by another file system.
        let plain = LocalOptions::new(dir).connect(env.clone()).await.unwrap();
        let claims = plain.lookup(ROOT, &name("claims")).await.unwrap().handle;
        plain.create(claims, &name("shared"), OWNER, false, BOTH).await.unwrap().2.close().await.unwrap();
        env.sleep(Duration::from_secs(1)).await;
        put(&one, "second", b"2").await;
        let begun = one.refreshes();
        for n in 0..20 {
            put(&one, &format!("{n}"), b"n").await;
        }
        assert!(one.refreshes() >= begun + 20, "{begun} to {}", one.refreshes());
    });
}

#[test]
fn an_open_that_meets_the_marker_of_a_link_leaves_mode_and_owner_as_they_are() {
    simulated(async |env, dir| {
        let (one, two) =
            (compose(&env, dir, "buffer=block").await.unwrap(), compose(&env, dir, "").await.unwrap());
        let private = Owner { mode: 0o600, uid: 7, gid: 7 };
        one.create(ROOT, &name("x"), private, true, BOTH).await.unwrap().2.close().await.unwrap();
        one.publish().await.unwrap();
        let x = one.lookup(ROOT, &name("x")).await.unwrap();
        // It is published with its block.
        one.link(x.handle, ROOT, &name("y")).await.unwrap();
        let (attr, is_new, _file) = two.create(ROOT, &name("y"), OWNER, false, BOTH).await.unwrap();
        assert_eq!((attr.handle, attr.mode & 0o777, attr.uid, is_new), (x.handle, 0o600, 7, false));
    });
}

#[test]
fn bytes_of_a_token_that_holds_another_name_are_not_believed() {
    run(async |env, dir| {
        let (vfs, other) = (compose(&env, dir, "").await.unwrap(), compose(&env, dir, "").await.unwrap());
        for n in 0..8 {
            put(&other, &format!("{n}"), b"n").await;
        }
        // A marker that its maker gave back while another process opened it, and one of another program.
        let names = dir.join("names");
        let token = fs::read_dir(&names).unwrap().next().unwrap().unwrap().path();
        fs::hard_link(&token, names.join("0000000000000001.late")).unwrap();
        let refused = vfs.create(ROOT, &name("late"), OWNER, true, BOTH).await.err().unwrap();
        assert_eq!(refused.status, Status::Busy, "{refused}");
        fs::write(names.join("0000000000000001.foreign"), "not of this program").unwrap();
        let refused = vfs.create(ROOT, &name("foreign"), OWNER, true, BOTH).await.err().unwrap();
        assert!(refused.to_string().contains("is not a marker of this program"), "{refused}");
        // As a power cut leaves them: its maker does not run, and a token's bytes are not on the disk.
        other.close().await;
        fs::write(names.join("0000000000000001.empty"), "").unwrap();
        fs::write(names.join("0000000000000001.zeros"), [0; 66]).unwrap();
        let third = compose(&env, dir, "").await.unwrap();
        for text in ["late", "empty", "zeros"] {
            put(&third, text, b"now").await;
            assert_eq!(get(&vfs, text).await.unwrap(), b"now");
        }
        assert!(names.join("0000000000000001.foreign").exists());
        vfs.close().await;
        third.close().await;
    });
}

#[test]
fn a_name_that_is_not_published_yet_is_made_again_after_its_removal_or_rename() {
    simulated(async |env, dir| {
        let vfs = compose(&env, dir, "buffer=block").await.unwrap();
        put(&vfs, "tmp", b"first").await;
        vfs.rename(ROOT, &name("tmp"), ROOT, &name("f"), RenameFlags { no_replace: false, exchange: false })
            .await
            .unwrap();
        put(&vfs, "tmp", b"second").await;
        assert_eq!(get(&vfs, "f").await.unwrap(), b"first");
        assert_eq!(get(&vfs, "tmp").await.unwrap(), b"second");
        put(&vfs, "x", b"a").await;
        vfs.unlink(ROOT, &name("x")).await.unwrap();
        put(&vfs, "x", b"b").await;
        assert_eq!(get(&vfs, "x").await.unwrap(), b"b");
        for _ in 0..2 {
            vfs.mkdir(ROOT, &name("d"), OWNER).await.unwrap();
            vfs.rmdir(ROOT, &name("d")).await.unwrap();
        }
    });
}

#[test]
fn what_was_closed_is_seen_by_another_process_and_outlives_its_own() {
    run(async |env, dir| {
        let one = compose(&env, dir, "block=64K").await.unwrap();
        let two = compose(&env, dir, "").await.unwrap();
        put(&one, "a", b"of one").await;
        assert_eq!(get(&two, "a").await.unwrap(), b"of one");
        put(&two, "a", b"of two, and longer").await;
        assert_eq!(get(&one, "a").await.unwrap(), b"of two, and longer");
        let large: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
        put(&one, "large", &large).await;
        assert!(get(&two, "large").await.unwrap() == large);
        one.unlink(ROOT, &name("a")).await.unwrap();
        assert_eq!(get(&two, "a").await, None);
        // Both end without a word; their locks are theirs no more.
        drop((one, two));
        let three = compose(&env, dir, "").await.unwrap();
        assert!(get(&three, "large").await.unwrap() == large);
        assert_eq!(listed(&three).await.into_iter().collect::<Vec<_>>(), ["large"]);
        three.close().await;
    });
}

#[test]
fn of_processes_that_make_one_name_exclusively_one_succeeds() {
    run(async |env, dir| {
        let mut mounts = Vec::new();
        for _ in 0..6 {
            mounts.push(compose(&env, dir, "").await.unwrap());
        }
        for round in 0..30 {
            let text = name(&format!("lock {round}"));
            let tries = mounts.iter().map(|vfs| async {
                match round % 3 {
                    0 => vfs.create(ROOT, &text, OWNER, true, BOTH).await.map(|made| drop(made.2)),
                    1 => vfs.mkdir(ROOT, &text, OWNER).await.map(drop),
                    _ => {
                        let own = name(&format!("{:p}", vfs.over()));
                        vfs.create(ROOT, &own, OWNER, false, BOTH).await?.2.close().await?;
                        let flags = RenameFlags { no_replace: true, exchange: false };
                        vfs.rename(ROOT, &own, ROOT, &text, flags).await
                    }
                }
            });
            let made = futures_util::future::join_all(tries).await;
            assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1, "round {round}: {made:?}");
            assert!(
                made.iter().flat_map(|made| made.as_ref().err()).all(|error| error.status == Status::Exists)
            );
        }
        for vfs in &mounts {
            vfs.close().await;
        }
        assert_eq!(below(dir, "names"), 0);
    });
}

#[test]
fn a_file_that_is_being_made_is_opened_by_another_process_as_the_same_file() {
    run(async |env, dir| {
        let one = compose(&env, dir, "").await.unwrap();
        let two = compose(&env, dir, "").await.unwrap();
        let (first, _, a) = one.create(ROOT, &name("log"), OWNER, false, BOTH).await.unwrap();
        let (second, is_new, b) = two.create(ROOT, &name("log"), OWNER, false, BOTH).await.unwrap();
        assert_eq!((first.handle, is_new), (second.handle, false));
        let refused = two.create(ROOT, &name("log"), OWNER, true, BOTH).await;
        assert_eq!(refused.err().unwrap().status, Status::Exists);
        a.write(0, Bytes::from_static(b"aaaa")).await.unwrap();
        b.write(4, Bytes::from_static(b"bbbb")).await.unwrap();
        a.close().await.unwrap();
        b.close().await.unwrap();
        assert_eq!(get(&one, "log").await.unwrap(), b"aaaabbbb");
        assert_eq!(get(&two, "log").await.unwrap(), b"aaaabbbb");
    });
}

#[test]
fn a_file_made_in_a_directory_that_is_removed_brings_it_back() {
    run(async |env, dir| {
        let one = compose(&env, dir, "").await.unwrap();
        let two = compose(&env, dir, "").await.unwrap();
        let made = one.mkdir(ROOT, &name("d"), Owner { mode: 0o755, ..OWNER }).await.unwrap();
        one.publish().await.unwrap();
        two.lookup(ROOT, &name("d")).await.unwrap();
        let (_, _, file) = one.create(made.handle, &name("f"), OWNER, false, BOTH).await.unwrap();
        file.write(0, Bytes::from_static(b"kept")).await.unwrap();
        // Not published yet: for the other one the directory is empty.
        two.rmdir(ROOT, &name("d")).await.unwrap();
        file.close().await.unwrap();
        one.publish().await.unwrap();
        for vfs in [&one, &two] {
            vfs.refreshed().await.unwrap();
            let d = vfs.lookup(ROOT, &name("d")).await.unwrap();
            assert_eq!((d.kind, d.handle), (Kind::Directory, made.handle));
            let found = vfs.lookup(d.handle, &name("f")).await.unwrap();
            assert_eq!(found.size, 4);
        }
    });
}

#[test]
fn three_hundred_writers_one_after_the_other_leave_a_directory_that_works() {
    run(async |env, dir| {
        for n in 0..300 {
            let vfs = compose(&env, dir, "block=16K").await.unwrap();
            put(&vfs, &format!("{n}"), format!("of {n}").as_bytes()).await;
            if n % 3 > 0 {
                vfs.close().await;
            }
        }
        let vfs = compose(&env, dir, "").await.unwrap();
        assert_eq!(listed(&vfs).await.len(), 300);
        assert_eq!(below(dir, "claims"), 300);
        let done = tools::compact(&vfs, |_, _| {}).await.unwrap();
        assert_eq!(done.extents, 300);
        for n in 0..300 {
            assert_eq!(get(&vfs, &format!("{n}")).await.unwrap(), format!("of {n}").as_bytes());
        }
        vfs.close().await;
        assert!(below(dir, "claims") < 10);
    });
}

#[test]
fn compaction_gives_space_back_and_leaves_running_writers_and_contents_alone() {
    run(async |env, dir| {
        let one = compose(&env, dir, "block=16K").await.unwrap();
        let running = compose(&env, dir, "").await.unwrap();
        put(&running, "of the running one", &[7; 50_000]).await;
        for n in 0..40 {
            put(&one, &format!("{n}"), &[n as u8; 5000]).await;
        }
        let d = one.mkdir(ROOT, &name("d"), Owner { mode: 0o700, ..OWNER }).await.unwrap();
        let set = SetAttr { mode: Some(0o750), ..SetAttr::default() };
        one.setattr(d.handle, set).await.unwrap();
        one.setxattr(d.handle, b"user.x", b"kept", false, false).await.unwrap();
        one.rename(ROOT, &name("39"), d.handle, &name("moved"), RenameFlags::default()).await.unwrap();
        let sized = one.lookup(ROOT, &name("3")).await.unwrap();
        one.truncate(sized.handle, 100, false).await.unwrap();
        one.truncate(sized.handle, 70_000, false).await.unwrap();
        for n in 5..39 {
            one.unlink(ROOT, &name(&format!("{n}"))).await.unwrap();
        }
        let before = one.lookup(ROOT, &name("3")).await.unwrap();
        one.close().await;
        let reader = compose(&env, dir, "").await.unwrap();
        let file = reader.open_name(ROOT, &name("2"), Rights::READ).await.unwrap();
        file.read(0, 10).await.unwrap();
        let tool = compose(&env, dir, "").await.unwrap();
        let done = tools::compact(&tool, |_, _| {}).await.unwrap();
        assert!(done.extents > 3 && done.given_back > 200_000, "{done:?}");
        tool.close().await;
        assert_eq!(file.read(4990, 100).await.unwrap(), vec![2u8; 10]);
        let fresh = compose(&env, dir, "").await.unwrap();
        for vfs in [&running, &reader, &fresh] {
            vfs.refreshed().await.unwrap();
            assert_eq!(listed(vfs).await.len(), 7);
            assert_eq!(get(vfs, "of the running one").await.unwrap(), vec![7; 50_000]);
            assert_eq!(get(vfs, "4").await.unwrap(), vec![4; 5000]);
            let sized = get(vfs, "3").await.unwrap();
            assert!(
                sized.len() == 70_000
                    && sized[..100] == [3; 100]
                    && sized[100..].iter().all(|byte| *byte == 0)
            );
            assert_eq!(vfs.lookup(ROOT, &name("3")).await.unwrap(), before);
            let d = vfs.lookup(ROOT, &name("d")).await.unwrap();
            assert_eq!(d.mode, 0o750);
            assert_eq!(vfs.getxattr(d.handle, b"user.x").await.unwrap(), &b"kept"[..]);
            assert_eq!(vfs.lookup(d.handle, &name("moved")).await.unwrap().size, 5000);
        }
        assert_eq!(tools::check(&fresh, |_, _| {}).await.unwrap(), Vec::<String>::new());
        let blocks = tools::map(&fresh, |_, _| {}).await.unwrap();
        assert!(blocks.iter().map(|block| block.live).sum::<u64>() > 50_000);
    });
}

/// Bytes that this thread has read by system calls.
fn read_by_this_thread() -> u64 {
    let counts = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn of_a_short_processs_block_a_new_process_reads_the_first_bytes_only() {
    const WRITERS: u64 = 40;
    run(async |env, dir| {
        let mut writers = Vec::new();
        for n in 0..WRITERS {
            let one = compose(&env, dir, "block=1M,files=1").await.unwrap();
            put(&one, &format!("{n}"), &[n as u8; 1000]).await;
            writers.push(one);
        }
        let over = LocalOptions { inline: true, ..LocalOptions::new(dir) };
        let before = read_by_this_thread();
        let reader = ComposedOptions { over, wishes: Wishes::default() }.connect(env.clone()).await.unwrap();
        let read = read_by_this_thread() - before;
        assert_eq!(listed(&reader).await.len() as u64, WRITERS);
        let most = WRITERS * (65_536 + 4096);
        assert!((WRITERS * 1000..most).contains(&read), "{read} bytes of {WRITERS} blocks, at most {most}");
    });
}

/// The second record begins, or the first one ends, at each byte around the end of what is read first.
#[test]
fn records_that_reach_beyond_what_is_read_first_of_a_block_are_found() {
    run(async |env, dir| {
        for pad in 0..140 {
            let below = dir.join(format!("{pad}"));
            std::fs::create_dir(&below).unwrap();
            let one = compose(&env, &below, "block=1M,files=1").await.unwrap();
            put(&one, "first", &vec![1; 65_536 - pad]).await;
            put(&one, "second", &vec![2; 100 + pad]).await;
            put(&one, "third", &[3; 70_000]).await;
            // As after a kill: nothing says that it ended.
            let two = compose(&env, &below, "").await.unwrap();
            assert_eq!(listed(&two).await.len(), 3, "{pad}");
            assert!(get(&two, "first").await.unwrap() == vec![1; 65_536 - pad], "{pad}");
            assert!(get(&two, "second").await.unwrap() == vec![2; 100 + pad], "{pad}");
            assert!(get(&two, "third").await.unwrap() == vec![3; 70_000], "{pad}");
            put(&one, "fourth", &[4; 10]).await;
            assert!(get(&two, "fourth").await.unwrap() == vec![4; 10], "{pad}");
        }
    });
}

#[test]
fn parts_of_records_that_reach_beyond_what_is_read_first_of_their_blocks_are_read() {
    run(async |env, dir| {
        let one = compose(&env, dir, "block=1M,files=1").await.unwrap();
        put(&one, "file", &vec![1; 800_000]).await;
        let file = one.open_name(ROOT, &name("file"), BOTH).await.unwrap();
        file.write(700_000, Bytes::from(vec![2; 800_000])).await.unwrap();
        file.close().await.unwrap();
        // Each of the two parts ends before its record does.
        let two = compose(&env, dir, "").await.unwrap();
        let file = two.open_name(ROOT, &name("file"), Rights::READ).await.unwrap();
        let read = file.read(0, 1_000_000).await.unwrap();
        assert!(
            read[..700_000].iter().all(|byte| *byte == 1) && read[700_000..].iter().all(|byte| *byte == 2)
        );
        assert_eq!(read.len(), 1_000_000);
    });
}

/// A compaction is between its list of the extents that it takes and the removal of their claims.
#[test]
fn one_that_reads_on_while_a_compaction_gives_an_extent_back_reads_its_next_writer() {
    run(async |env, dir| {
        let one = compose(&env, dir, "block=16K,files=1").await.unwrap();
        put(&one, "first", b"old").await;
        one.unlink(ROOT, &name("first")).await.unwrap();
        one.close().await;
        let reader = compose(&env, dir, "").await.unwrap();
        let claims = dir.join("claims");
        let taken: Vec<_> = std::fs::read_dir(&claims).unwrap().map(|claim| claim.unwrap().path()).collect();
        let text = taken.iter().fold(String::new(), |text, claim| {
            let extent = claim.file_name().unwrap().to_str().unwrap();
            let writer = std::fs::read_link(claim).unwrap();
            text + &format!("{extent} {}\n", writer.to_str().unwrap())
        });
        std::fs::write(claims.join("r.1"), text + "end\n").unwrap();
        assert_eq!(get(&reader, "first").await, None);
        let tool = compose(&env, dir, "").await.unwrap();
        let done = tools::compact(&tool, |_, _| {}).await.unwrap();
        assert_eq!(done.extents, taken.len() as u64, "{done:?}");
        tool.close().await;
        assert!(taken.iter().all(|claim| claim.symlink_metadata().is_err()));
        let two = compose(&env, dir, "").await.unwrap();
        put(&two, "second", b"new").await;
        assert!(taken.iter().all(|claim| claim.symlink_metadata().is_ok()), "it has the same extents");
        assert_eq!(get(&reader, "second").await.unwrap(), b"new");
    });
}

#[test]
fn a_file_that_was_open_before_a_compaction_is_not_read_from_the_next_writer_of_its_block() {
    run(async |env, dir| {
        let one = compose(&env, dir, "block=16K,files=1").await.unwrap();
        // Its last file lies in an extent of a lane in which the compaction needs none.
        for n in 0..40 {
            put(&one, &format!("{n}"), &[n; 5000]).await;
        }
        for n in 0..39 {
            one.unlink(ROOT, &name(&format!("{n}"))).await.unwrap();
        }
        one.close().await;
        let taken: Vec<_> =
            std::fs::read_dir(dir.join("claims")).unwrap().map(|claim| claim.unwrap().path()).collect();
        // They know where the bytes were, and have not read them.
        let readers = [compose(&env, dir, "").await.unwrap(), compose(&env, dir, "").await.unwrap()];
        let mut files = Vec::new();
        for reader in &readers {
            files.push(reader.open_name(ROOT, &name("39"), Rights::READ).await.unwrap());
        }
        let tool = compose(&env, dir, "").await.unwrap();
        tools::compact(&tool, |_, _| {}).await.unwrap();
        tool.close().await;
        assert!(taken.iter().all(|claim| claim.symlink_metadata().is_err()));
        let two = compose(&env, dir, "").await.unwrap();
        for n in 0..40 {
            put(&two, &format!("next {n}"), &[100; 5000]).await;
        }
        assert!(taken.iter().any(|claim| claim.symlink_metadata().is_ok()), "it has some of the extents");
        assert!(files[0].read(0, 5000).await.unwrap() == vec![39; 5000]);
        // The block is known here by what is read of it now.
        for n in 0..40 {
            assert!(get(&readers[1], &format!("next {n}")).await.unwrap() == vec![100; 5000]);
        }
        assert!(files[1].read(0, 5000).await.unwrap() == vec![39; 5000]);
    });
}

/// The read has found its two pieces and waits for the first one, meanwhile the index is read anew.
#[test]
fn a_read_under_way_does_not_take_the_next_writer_of_a_block_for_the_one_that_its_index_named() {
    // Reads of a simulated disk take time.
    simulated(async |env, dir| {
        let claims = async |vfs: &Mounted| {
            let claims = vfs.over().lookup(ROOT, &name("claims")).await.unwrap().handle;
            vfs.over().names(claims).await.unwrap().into_iter().collect::<BTreeSet<_>>()
        };
        let one = compose(&env, dir, "block=16K,files=1").await.unwrap();
        for n in 0..40 {
            put(&one, &format!("{n}"), &[n; 5000]).await;
        }
        for n in 0..39 {
            one.unlink(ROOT, &name(&format!("{n}"))).await.unwrap();
        }
        one.close().await;
        // Its part is in a block of a writer that goes on.
        let live = compose(&env, dir, "").await.unwrap();
        let taken = claims(&live).await;
        let file = live.open_name(ROOT, &name("39"), BOTH).await.unwrap();
        file.write(0, Bytes::from(vec![77; 2000])).await.unwrap();
        file.fsync().await.unwrap();
        let reader = compose(&env, dir, "").await.unwrap();
        let file = reader.open_name(ROOT, &name("39"), Rights::READ).await.unwrap();
        let mut read = std::pin::pin!(file.read(0, 5000));
        let waits = std::future::poll_fn(|cx| std::task::Poll::Ready(read.as_mut().poll(cx).is_pending()));
        assert!(waits.await);
        let tool = compose(&env, dir, "").await.unwrap();
        tools::compact(&tool, |_, _| {}).await.unwrap();
        tool.close().await;
        assert!(claims(&reader).await.is_disjoint(&taken));
        let two = compose(&env, dir, "").await.unwrap();
        for n in 0..40 {
            put(&two, &format!("next {n}"), &[100; 5000]).await;
        }
        assert!(!claims(&reader).await.is_disjoint(&taken), "it has some of the extents");
        assert_eq!(get(&reader, "next 3").await.unwrap(), vec![100; 5000]);
        let bytes = read.await.unwrap();
        assert!(
            bytes[..2000] == vec![77; 2000] && bytes[2000..] == vec![39; 3000],
            "{:?}",
            &bytes[1998..2010]
        );
    });
}

#[test]
fn a_merged_directory_is_one_read_and_a_stale_or_damaged_one_is_not_believed() {
    run(async |env, dir| {
        let one = compose(&env, dir, "block=16K").await.unwrap();
        for n in 0..50 {
            put(&one, &format!("{n}"), &[n as u8; 100]).await;
        }
        one.close().await;
        let merged = std::fs::read(dir.join("merged")).unwrap();
        let two = compose(&env, dir, "").await.unwrap();
        put(&two, "new", b"beside it").await;
        two.unlink(ROOT, &name("7")).await.unwrap();
        drop(two);
        // It covers the first writer only.
        let three = compose(&env, dir, "").await.unwrap();
        let names = listed(&three).await;
        assert!(names.len() == 50 && names.contains("new") && !names.contains("7"));
        tools::compact(&three, |_, _| {}).await.unwrap();
        three.close().await;
        // One of before the compaction, and the present one with another name in its last bytes.
        let mut damaged = fs::read(dir.join("merged")).unwrap();
        assert_ne!(damaged, merged);
        let at = damaged.len() - 25;
        damaged[at] ^= 1;
        for bytes in [merged, damaged] {
            std::fs::write(dir.join("merged"), &bytes).unwrap();
            let four = compose(&env, dir, "").await.unwrap();
            assert_eq!(listed(&four).await, names);
            assert_eq!(get(&four, "3").await.unwrap(), vec![3; 100]);
        }
    });
}

#[test]
fn what_a_process_wrote_is_there_for_the_next_one_though_it_closed_nothing() {
    run(async |env, dir| {
        let open = async || {
            let wishes = Wishes { publishes_writes: true, ..Wishes::default() };
            ComposedOptions { over: LocalOptions::new(dir), wishes }.connect(env.clone()).await.unwrap()
        };
        let first = open().await;
        let (attr, _, file) = first.create(ROOT, &name("f"), OWNER, true, BOTH).await.unwrap();
        file.write(0, Bytes::from_static(b"abc")).await.unwrap();
        file.append(Bytes::from_static(b"de")).await.unwrap();
        first.setxattr(attr.handle, b"user.a", b"1", false, false).await.unwrap();
        // The first one has neither closed nor ended.
        let second = open().await;
        assert_eq!(get(&second, "f").await.unwrap(), b"abcde");
        assert_eq!(&second.getxattr(attr.handle, b"user.a").await.unwrap()[..], b"1");
        // A file without a name is opened by its handle: the processes share its descriptor.
        first.unlink(ROOT, &name("f")).await.unwrap();
        let shared = second.open(attr.handle, BOTH).await.unwrap();
        shared.append(Bytes::from_static(b"f")).await.unwrap();
        assert_eq!(shared.read(0, 10).await.unwrap(), b"abcdef"[..]);
        assert!(second.lookup(ROOT, &name("f")).await.is_err());
    });
}

#[test]
fn a_name_that_is_renamed_to_itself_stays() {
    run(async |env, dir| {
        let vfs = compose(&env, dir, "").await.unwrap();
        let made = vfs.mkdir(ROOT, &name("d"), OWNER).await.unwrap();
        vfs.mkdir(made.handle, &name("inner"), OWNER).await.unwrap();
        let (d, plain) = (name("d"), RenameFlags::default());
        vfs.rename(ROOT, &d, ROOT, &d, plain).await.unwrap();
        let no_replace = RenameFlags { no_replace: true, exchange: false };
        let refused = vfs.rename(ROOT, &d, ROOT, &d, no_replace).await.unwrap_err();
        assert_eq!(refused.status, Status::Exists);
        assert_eq!(vfs.lookup(ROOT, &d).await.unwrap().handle, made.handle);
    });
}

#[test]
fn a_process_sees_at_once_what_another_one_removed_replaced_or_appended() {
    run(async |env, dir| {
        let open = async || {
            let wishes = Wishes { publishes_writes: true, ..Wishes::default() };
            ComposedOptions { over: LocalOptions::new(dir), wishes }.connect(env.clone()).await.unwrap()
        };
        let (one, other) = (open().await, open().await);
        let plain = RenameFlags::default();
        for round in 0..20u8 {
            put(&one, "f", &[round]).await;
            assert_eq!(get(&other, "f").await.unwrap(), [round]);
            other.unlink(ROOT, &name("f")).await.unwrap();
            assert!(one.lookup(ROOT, &name("f")).await.is_err(), "it was removed");
            // The name is a new file's, not the removed one's.
            put(&one, "f", b"new").await;
            assert_eq!(get(&other, "f").await.unwrap(), b"new");
            put(&other, "g", b"g").await;
            other.rename(ROOT, &name("g"), ROOT, &name("f"), plain).await.unwrap();
            let log = one.open_name(ROOT, &name("f"), BOTH).await.unwrap();
            for by in [&other, &one, &other] {
                let file = by.open_name(ROOT, &name("f"), BOTH).await.unwrap();
                file.append(Bytes::from_static(b"+")).await.unwrap();
                log.append(Bytes::from_static(b"-")).await.unwrap();
            }
            assert_eq!(get(&other, "f").await.unwrap(), b"g+-+-+-");
        }
        // Of appends at the same time none is lost.
        let many = (0..40).map(async |at| {
            let by = if at % 2 == 0 { &one } else { &other };
            let file = by.open_name(ROOT, &name("f"), BOTH).await.unwrap();
            file.append(Bytes::from_static(b".")).await.unwrap();
        });
        futures_util::future::join_all(many).await;
        assert_eq!(get(&one, "f").await.unwrap().iter().filter(|byte| **byte == b'.').count(), 40);
    });
}

#[test]
fn a_read_at_the_end_of_an_open_file_returns_what_another_process_appended_before() {
    run(async |env, dir| {
        let open = async || {
            let wishes = Wishes { publishes_writes: true, ..Wishes::default() };
            ComposedOptions { over: LocalOptions::new(dir), wishes }.connect(env.clone()).await.unwrap()
        };
        let (one, other) = (open().await, open().await);
        put(&one, "log", b"0").await;
        let log = one.open_name(ROOT, &name("log"), Rights::READ).await.unwrap();
        let by = other.open_name(ROOT, &name("log"), BOTH).await.unwrap();
        let mut at = log.read(0, 100).await.unwrap().len() as u64;
        for round in 0..20u8 {
            assert_eq!(log.read(at, 100).await.unwrap().len(), 0);
            by.append(Bytes::from(vec![round; 3])).await.unwrap();
            assert_eq!(log.read(at, 2).await.unwrap(), vec![round; 2]);
            // A part of it is known.
            by.append(Bytes::from(vec![round; 2])).await.unwrap();
            assert_eq!(log.read(at, 100).await.unwrap(), vec![round; 5]);
            at += 5;
        }
        // A read within what is known costs nothing, and one at the end no look at what is not the file's.
        let begun = one.refreshes();
        for _ in 0..20 {
            assert_eq!(log.read(0, 10).await.unwrap().len(), 10);
            assert_eq!(log.read(at, 10).await.unwrap().len(), 0);
        }
        assert!(one.refreshes() <= begun + 2, "{begun} to {}", one.refreshes());
    });
}

/// As a power cut leaves it that takes the claim, and not the block.
#[test]
fn records_of_a_lost_claim_do_not_come_back_in_the_block_of_the_next_writer() {
    run(async |env, dir| {
        let one = compose(&env, dir, "block=16K").await.unwrap();
        for text in ["a", "b", "c"] {
            put(&one, text, b"lost").await;
        }
        drop(one);
        for claim in fs::read_dir(dir.join("claims")).unwrap() {
            fs::remove_file(claim.unwrap().path()).unwrap();
        }
        let two = compose(&env, dir, "").await.unwrap();
        assert_eq!(listed(&two).await.len(), 0);
        put(&two, "d", b"kept").await;
        for vfs in [&two, &compose(&env, dir, "").await.unwrap()] {
            assert_eq!(listed(vfs).await.into_iter().collect::<Vec<_>>(), ["d"]);
            assert_eq!(tools::check(vfs, |_, _| {}).await.unwrap(), Vec::<String>::new());
        }
    });
}

#[test]
fn extents_that_a_compaction_gave_back_are_claimed_again_while_later_ones_are_in_use() {
    run(async |env, dir| {
        let mut writers = Vec::new();
        for n in 0..5 {
            let vfs = compose(&env, dir, "block=16K").await.unwrap();
            put(&vfs, &format!("{n}"), b"bytes").await;
            writers.push(vfs);
        }
        // The last extent stays in use.
        let _running = writers.pop().unwrap();
        for vfs in writers {
            vfs.close().await;
        }
        let claims = || {
            let names = fs::read_dir(dir.join("claims")).unwrap().map(|claim| claim.unwrap().file_name());
            let names = names.map(|name| name.into_string().unwrap());
            names.filter(|name| name.starts_with("0.0.")).collect::<BTreeSet<_>>()
        };
        assert_eq!(claims(), (0..5).map(|n| format!("0.0.{n}")).collect());
        let tool = compose(&env, dir, "").await.unwrap();
        tools::compact(&tool, |_, _| {}).await.unwrap();
        tool.close().await;
        assert_eq!(claims(), ["0.0.4", "0.0.5"].map(str::to_owned).into());
        for n in 0..3 {
            let vfs = compose(&env, dir, "").await.unwrap();
            put(&vfs, &format!("later {n}"), b"bytes").await;
            vfs.close().await;
            assert!(claims().contains(&format!("0.0.{n}")), "{:?}", claims());
        }
        let vfs = compose(&env, dir, "").await.unwrap();
        assert_eq!(listed(&vfs).await.len(), 8);
        assert_eq!(tools::check(&vfs, |_, _| {}).await.unwrap(), Vec::<String>::new());
    });
}

#[test]
fn a_composed_directory_is_not_opened_as_one_of_containers() {
    run(async |env, dir| {
        put(&compose(&env, dir, "").await.unwrap(), "f", b"abc").await;
        let options = shoal_transform::ContainerOptions::new(LocalOptions::new(dir));
        let Err(error) = options.connect(env.clone()).await else { panic!("it is opened") };
        assert!(error.to_string().contains("it is a composed directory"), "{error}");
        assert_eq!(
            std::fs::read_dir(dir)
                .unwrap()
                .filter(|entry| entry.as_ref().unwrap().file_name() == ".shoal")
                .count(),
            0
        );
    });
}

#[test]
fn an_allocation_cuts_nothing_that_is_written_meanwhile() {
    run(async |env, dir| {
        let one = compose(&env, dir, "").await.unwrap();
        let (_, _, file) = one.create(ROOT, &name("f"), OWNER, true, BOTH).await.unwrap();
        let long = file.write(0, Bytes::from(vec![7; 8 << 20]));
        let (written, allocated) = join(long, file.allocate(0, 4096, Allocation::Extend)).await;
        written.and(allocated).unwrap();
        assert_eq!(file.read(4096, 9 << 20).await.unwrap(), vec![7; (8 << 20) - 4096]);
        // Another process writes since this one read what was published.
        put(&one, "g", b"").await;
        let (two, own) = (compose(&env, dir, "").await.unwrap(), one.open_name(ROOT, &name("g"), BOTH).await);
        put(&two, "g", &[7; 1000]).await;
        let own = own.unwrap();
        own.allocate(0, 500, Allocation::Extend).await.unwrap();
        own.allocate(500, 1000, Allocation::Extend).await.unwrap();
        own.close().await.unwrap();
        let there = compose(&env, dir, "").await.unwrap();
        assert_eq!(get(&there, "g").await.unwrap()[..], [vec![7; 1000], vec![0; 500]].concat());
    });
}
