//! Folding: many small or dead logs become one, while others read and begin to write.

use crate::scene::{BOTH, mount, name, owner, run};
use bytes::Bytes;
use shoal_proto::{Handle, Rights};
use shoal_transform::Container;
use shoal_transform::container::tools;
use shoal_vfs::{AnyVfs, Vfs, VfsFile};
use std::path::Path;

type Mounted = Container<AnyVfs>;

async fn open(mount: &Mounted, rights: Rights) -> shoal_transform::ContainerFile<AnyVfs> {
    let attr = mount.lookup(Handle::ROOT, &name("f")).await.unwrap();
    mount.open(attr.handle, rights).await.unwrap()
}

async fn make(mount: &Mounted) {
    let (_, _, file) = mount.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
    file.close().await.unwrap();
}

/// Files and folders below, and bytes of the files.
fn below(dir: &Path) -> (u64, u64) {
    std::fs::read_dir(dir).unwrap().flatten().fold((0, 0), |(files, bytes), entry| {
        let (inner, inner_bytes) = if entry.path().is_dir() { below(&entry.path()) } else { (0, 0) };
        (files + inner + 1, bytes + inner_bytes + entry.metadata().map_or(0, |facts| facts.len()))
    })
}

#[test]
fn appends_by_many_processes_leave_few_files() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        make(&one).await;
        let mut plain = Vec::new();
        for turn in 0..300 {
            // Each is a process of its own, that knows no writer to go on with.
            let own = mount(&env, dir).await;
            let file = open(&own, BOTH).await;
            let line = format!("line {turn}\n");
            assert_eq!(file.append(Bytes::from(line.clone())).await.unwrap(), plain.len() as u64);
            plain.extend_from_slice(line.as_bytes());
            file.close().await.unwrap();
            let (files, _) = below(&dir.join("f"));
            assert!(files < 100, "{files} files after {turn} appends");
        }
        let read = open(&one, Rights::READ).await.read(0, 100_000).await.unwrap();
        assert!(read[..] == plain[..]);
        assert_eq!(one.lookup(Handle::ROOT, &name("f")).await.unwrap().size, plain.len() as u64);
    });
}

#[test]
fn rewrites_of_a_file_give_the_space_of_the_old_bytes_back() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        make(&one).await;
        for turn in 0..100u64 {
            let file = open(&one, BOTH).await;
            if turn.is_multiple_of(3) {
                one.truncate(file.handle(), 0, false).await.unwrap();
            }
            file.write(0, Bytes::from(vec![turn as u8; 1 << 20])).await.unwrap();
            file.close().await.unwrap();
            let (_, bytes) = below(&dir.join("f"));
            assert!(bytes < 40 << 20, "{bytes} bytes after {turn} rewrites");
        }
        let read = open(&mount(&env, dir).await, BOTH).await.read(0, 2 << 20).await.unwrap();
        assert!(read[..] == vec![99; 1 << 20][..]);
    });
}

/// Writers of several mounts write, cut and read the same places while one compacts, against a plain file.
#[test]
fn readers_writers_and_cuts_of_other_mounts_see_no_fold() {
    run(async |env, dir| {
        let mounts = [mount(&env, dir).await, mount(&env, dir).await, mount(&env, dir).await];
        make(&mounts[0]).await;
        let reader = open(&mounts[2], Rights::READ).await;
        let mut plain: Vec<u8> = Vec::new();
        let (mut rng, mut folds) = (88_172_645_463_325_252u64, 0);
        let mut next = |n: u64| {
            rng ^= rng << 13;
            rng ^= rng >> 7;
            rng ^= rng << 17;
            rng % n
        };
        for turn in 0..120u64 {
            let who = &mounts[next(2) as usize];
            let file = open(who, BOTH).await;
            for _ in 0..next(4) {
                let (at, len) = (next(3000) as usize, 1 + next(300) as usize);
                let fill = (turn % 250) as u8 + 1;
                file.write(at as u64, Bytes::from(vec![fill; len])).await.unwrap();
                plain.resize(plain.len().max(at + len), 0);
                plain[at..at + len].fill(fill);
            }
            if next(3) == 0 {
                let size = next(3500);
                who.truncate(file.handle(), size, false).await.unwrap();
                plain.resize(size as usize, 0);
            }
            file.close().await.unwrap();
            if next(6) == 0 {
                folds += u64::from(
                    tools::compact(&mounts[next(3) as usize], Handle::ROOT, &name("f")).await.is_ok(),
                );
            }
            // An open of another mount sees all that returned, and one that was open before can still read.
            let seen = open(&mounts[1], Rights::READ).await;
            let read = seen.read(0, 10_000).await.unwrap();
            assert!(read[..] == plain[..], "turn {turn}: {} bytes, not {}", read.len(), plain.len());
            seen.close().await.unwrap();
            reader.read(0, 10_000).await.unwrap();
            let attr = mounts[1].lookup(Handle::ROOT, &name("f")).await.unwrap();
            assert_eq!(attr.size, plain.len() as u64, "turn {turn}");
        }
        assert!(folds > 5, "{folds}");
        assert_eq!(tools::check(&mounts[0], reader.handle()).await.unwrap(), Vec::<String>::new());
    });
}

#[test]
fn a_writer_that_begins_and_cuts_while_others_are_folded_loses_nothing_and_cuts_all() {
    run(async |env, dir| {
        let round = async |turn: u64| {
            let home = dir.join(format!("{turn}"));
            std::fs::create_dir(&home).unwrap();
            let (one, two) = (mount(&env, &home).await, mount(&env, &home).await);
            make(&one).await;
            for at in 0..3 {
                let file = open(&mount(&env, &home).await, BOTH).await;
                file.write(at * 100, Bytes::from(vec![1; 100])).await.unwrap();
                file.close().await.unwrap();
            }
            let fold = async {
                let attr = one.lookup(Handle::ROOT, &name("f")).await.unwrap();
                let state = tools::compact(&one, Handle::ROOT, &name("f")).await;
                drop((attr, state));
            };
            let write = async {
                // Compaction waits for caches first.
                env.sleep(std::time::Duration::from_micros(1_000_000 + turn * 400)).await;
                let file = open(&two, BOTH).await;
                file.write(0, Bytes::from(vec![2; 10])).await.unwrap();
                two.truncate(file.handle(), 50, false).await.unwrap();
                file.write(120, Bytes::from(vec![3; 10])).await.unwrap();
                file.close().await.unwrap();
            };
            futures_util::join!(fold, write);
            let mut plain = [0; 130];
            plain[..50].fill(1);
            plain[..10].fill(2);
            plain[120..].fill(3);
            let read = open(&mount(&env, &home).await, BOTH).await.read(0, 1000).await.unwrap();
            assert!(read[..] == plain[..], "turn {turn}: {:?}", &read[..]);
        };
        futures_util::future::join_all((0..40).map(round)).await;
    });
}
