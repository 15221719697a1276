//! Mishaps. Each test repeats one, and checks that nothing is lost or wrong any more.

use crate::scene::{BOTH, find, mount, name, owner, run};
use bytes::Bytes;
use shoal_proto::{Handle, Rights};
use shoal_transform::container::tools;
use shoal_transform::record::{Record, Records};
use shoal_vfs::{RenameFlags, Vfs, VfsFile};
use std::path::{Path, PathBuf};

fn logs(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for h in std::fs::read_dir(dir)
        .unwrap()
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with("h."))
    {
        for e in std::fs::read_dir(h.path()).unwrap().flatten() {
            if e.file_name().to_string_lossy().starts_with(prefix) {
                all.push(e.path());
            }
        }
    }
    all
}

#[test]
fn a_cut_in_a_strided_record_leaves_bytes_that_come_later() {
    run(async |env, dir| {
        let (one, two) = (mount(&env, dir).await, mount(&env, dir).await);
        let (_, _, first) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        first.write(0, Bytes::from_static(&[1; 10])).await.unwrap();
        first.write(100, Bytes::from_static(&[1; 10])).await.unwrap();
        first.write(200, Bytes::from_static(&[1; 5])).await.unwrap();
        two.truncate(find(&two, "f").await, 0, false).await.unwrap();
        // after the truncation returned
        first.write(205, Bytes::from_static(&[3; 5])).await.unwrap();
        first.close().await.unwrap();
        let seen = mount(&env, dir).await;
        let file = seen.open(find(&seen, "f").await, Rights::READ).await.unwrap();
        let got = file.read(0, 1000).await.unwrap();
        assert_eq!((got.len(), got.get(205..210)), (210, Some(&[3u8; 5][..])));
    });
}

fn last_record_start(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let ends: Vec<u64> = Records::new(&bytes).map(|(_, end)| end).collect();
    ends[ends.len() - 2]
}

#[test]
fn a_lost_end_of_an_index_log_leaves_the_file_readable() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, base) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        base.write(0, Bytes::from(vec![1; 300])).await.unwrap();
        base.write(1000, Bytes::from(vec![2; 10])).await.unwrap();
        base.write(100, Bytes::from(vec![3; 10])).await.unwrap();
        base.fsync().await.unwrap();
        base.write(5000, Bytes::from(vec![9; 10])).await.unwrap();
        let index = logs(&dir.join("f"), "index.").pop().unwrap();
        let cut = last_record_start(&index);
        std::fs::OpenOptions::new().write(true).open(&index).unwrap().set_len(cut).unwrap();
        let seen = mount(&env, dir).await;
        let looked = seen.lookup(Handle::ROOT, &name("f")).await.map(|a| a.size);
        let object = seen.over().lookup(Handle::ROOT, &name("f")).await.unwrap().handle;
        // Its writer runs: it is left alone.
        let recovered = tools::recover(&seen, object, tools::Allowed::default()).await;
        let recovered = recovered.map_err(|error| error.status);
        let opened = seen.open(object, Rights::READ).await.map(drop);
        std::mem::forget(base);
        assert_eq!(recovered, Err(shoal_proto::Status::Busy));
        assert!(looked.is_ok() && opened.is_ok(), "{looked:?} {opened:?}");
    });
}

#[test]
fn an_unlink_against_a_rename_of_another_mount_takes_no_other_file() {
    run(async |env, dir| {
        let (one, two) = (mount(&env, dir).await, mount(&env, dir).await);
        let mut lost = 0;
        for turn in 0..400 {
            let (f, g) = (name(&format!("f{turn}")), name(&format!("g{turn}")));
            let (_, _, file) = two.create(Handle::ROOT, &f, owner(), true, BOTH).await.unwrap();
            file.write(0, Bytes::from_static(b"precious")).await.unwrap();
            file.close().await.unwrap();
            let (_, _, t) =
                two.create(Handle::ROOT, &name(&format!("t{turn}")), owner(), true, BOTH).await.unwrap();
            t.close().await.unwrap();
            let rm = one.unlink(Handle::ROOT, &f);
            let mv = async {
                for _ in 0..turn % 8 {
                    let _ = two.over().getattr(Handle::ROOT).await;
                }
                let moved =
                    two.over().rename(Handle::ROOT, &f, Handle::ROOT, &g, RenameFlags::default()).await;
                // a new f, by the file system's own rename
                let _ = two
                    .over()
                    .rename(
                        Handle::ROOT,
                        &name(&format!("t{turn}")),
                        Handle::ROOT,
                        &f,
                        RenameFlags { no_replace: true, exchange: false },
                    )
                    .await;
                moved
            };
            let (_removed, moved) = futures_util::join!(rm, mv);
            if moved.is_ok() {
                for _ in 0..20 {
                    let _ = two.over().getattr(Handle::ROOT).await;
                }
                let later = mount(&env, dir).await;
                let got = async {
                    let a = later.lookup(Handle::ROOT, &g).await.map_err(|e| e.to_string())?;
                    let f = later.open(a.handle, Rights::READ).await.map_err(|e| e.to_string())?;
                    f.read(0, 100).await.map_err(|e| e.to_string())
                }
                .await;
                if got.as_deref().ok() != Some(b"precious") {
                    lost += 1;
                    if lost < 4 {}
                }
            }
        }
        assert_eq!(lost, 0);
    });
}

#[test]
fn a_dropping_that_knew_the_name_of_a_cut_and_not_its_record_is_not_believed() {
    run(async |env, dir| {
        let (one, two) = (mount(&env, dir).await, mount(&env, dir).await);
        let (_, _, b) = two.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        b.write(0, Bytes::from(vec![1; 100])).await.unwrap();
        let id = std::fs::read_dir(dir.join("f"))
            .unwrap()
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .find(|n| n.starts_with("w."))
            .unwrap()[2..]
            .to_owned();
        // two: in the middle of its cut, the name is there, the record not yet
        let cut_name = dir.join("f").join(format!("c.{id}.0"));
        std::fs::write(&cut_name, "").unwrap();
        let a = one.open(find(&one, "f").await, BOTH).await.unwrap();
        a.write(10, Bytes::from(vec![2; 10])).await.unwrap();
        a.close().await.unwrap();
        std::fs::remove_file(&cut_name).unwrap();
        // ... and now goes on
        two.truncate(b.handle(), 5, false).await.unwrap();
        b.close().await.unwrap();
        let seen = mount(&env, dir).await;
        let attr = seen.lookup(Handle::ROOT, &name("f")).await.unwrap();
        let opened = seen.open(attr.handle, Rights::READ).await.unwrap();
        let len = opened.read(0, 1000).await.unwrap().len() as u64;
        assert_eq!(attr.size, len);
    });
}

fn peak() -> u64 {
    let s = std::fs::read_to_string("/proc/self/status").unwrap();
    s.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap().trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_read_of_scattered_bytes_fetches_little_more_than_those() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        let block = Bytes::from(vec![7; 60 << 10]);
        for n in 0..6000u64 {
            file.write(n * 8, Bytes::from_static(b"12345678")).await.unwrap();
            file.write((1 << 30) + n * (60 << 10), block.clone()).await.unwrap();
        }
        let before = peak();
        let got = file.read(0, 48_000).await.unwrap();
        assert_eq!(got.len(), 48_000);
        let after = peak();
        assert!(after - before < 20_000, "peak rose by {} kB for a read of 48 kB", after - before);
    });
}

#[test]
fn a_compaction_keeps_extended_attributes() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (attr, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        file.write(0, Bytes::from_static(b"12345678")).await.unwrap();
        file.close().await.unwrap();
        one.setxattr(attr.handle, b"user.a", b"v", false, false).await.unwrap();
        tools::compact(&one, Handle::ROOT, &name("f")).await.unwrap();
        let now = find(&one, "f").await;
        assert_eq!(one.getxattr(now, b"user.a").await.map(|v| v.to_vec()), Ok(b"v".to_vec()));
    });
}

#[test]
fn two_opens_of_one_mount_append_without_a_loss() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (attr, _, a) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        a.append(Bytes::from_static(b"aaaa")).await.unwrap();
        let b = one.open(attr.handle, BOTH).await.unwrap();
        b.append(Bytes::from_static(b"bbbb")).await.unwrap();
        a.append(Bytes::from_static(b"cccc")).await.unwrap();
        assert_eq!(&a.read(0, 100).await.unwrap()[..], b"aaaabbbbcccc");
    });
}

#[test]
fn names_in_a_container_are_none_for_its_users() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (attr, _, a) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        a.write(0, Bytes::from(vec![1; 10])).await.unwrap();
        let l = one.lookup(attr.handle, &name(".shoal-container")).await.map(|a| a.kind);
        let m = one.mkdir(attr.handle, &name("h.0x"), owner()).await.map(|a| a.kind);
        assert!(l.is_err() && m.is_err(), "{l:?} {m:?}");
    });
}

#[test]
fn ten_tasks_of_two_mounts_read_their_own_bytes_whatever_the_others_do() {
    run(async |env, dir| {
        let mounts = [mount(&env, dir).await, mount(&env, dir).await];
        let (_, _, file) = mounts[0].create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        file.close().await.unwrap();
        let task = async |who: u64| {
            let m = &mounts[(who % 2) as usize];
            let mut rng = who.wrapping_mul(0x9E3779B97F4A7C15) | 1;
            let mut next = |n: u64| {
                rng ^= rng << 13;
                rng ^= rng >> 7;
                rng ^= rng << 17;
                rng % n
            };
            let base = who * 1000;
            let mut plain = vec![0u8; 1000];
            for turn in 0..40u64 {
                let h = find(m, "f").await;
                let f = m.open(h, BOTH).await.unwrap();
                for _ in 0..next(6) {
                    let (at, len) = (next(900), 1 + next(90));
                    let fill = (turn % 250 + 1) as u8;
                    f.write(base + at, Bytes::from(vec![fill; len as usize])).await.unwrap();
                    plain[at as usize..(at + len) as usize].fill(fill);
                }
                if next(4) == 0 {
                    m.truncate(h, 100_000 + next(1000), false).await.unwrap();
                }
                if next(5) == 0 {
                    f.fsync().await.unwrap();
                }
                let got = f.read(base, 1000).await.unwrap();
                let mut whole = got.to_vec();
                whole.resize(1000, 0);
                if whole != plain {
                    return Err(format!("task {who} turn {turn}: own bytes"));
                }
                if next(3) == 0 { drop(f) } else { f.close().await.unwrap() }
            }
            Ok(plain)
        };
        let all = futures_util::future::join_all((0..10).map(task)).await;
        let m = mount(&env, dir).await;
        let f = m.open(find(&m, "f").await, BOTH).await.unwrap();
        for (who, plain) in all.into_iter().enumerate() {
            let plain = plain.unwrap();
            let mut got = f.read(who as u64 * 1000, 1000).await.unwrap().to_vec();
            got.resize(1000, 0);
            assert!(got == plain, "task {who} at the end");
        }
    });
}

#[test]
fn an_index_log_that_is_one_hole_costs_no_memory() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, a) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        a.write(0, Bytes::from(vec![1; 10])).await.unwrap();
        let index = logs(&dir.join("f"), "index.").pop().unwrap();
        std::fs::OpenOptions::new().write(true).open(&index).unwrap().set_len(1 << 30).unwrap();
        let before = peak();
        let two = mount(&env, dir).await;
        let _ = two.lookup(Handle::ROOT, &name("f")).await;
        assert!(peak() - before < 100_000, "{} kB", peak() - before);
    });
}

#[test]
fn a_damaged_container_is_looked_up_so_that_it_can_be_removed() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, a) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        a.write(0, Bytes::from(vec![1; 10])).await.unwrap();
        let index = logs(&dir.join("f"), "index.").pop().unwrap();
        let mut bytes = std::fs::read(&index).unwrap();
        let entry =
            shoal_transform::record::Entry { logical: 0, record: 0, stride: 5, physical: 5, stamp: 9 };
        bytes.extend(Record::Entry(entry).encode());
        std::fs::write(&index, bytes).unwrap();
        let two = mount(&env, dir).await;
        let got = two.lookup(Handle::ROOT, &name("f")).await.map(|a| a.size);
        assert!(got.is_ok(), "{got:?}");
    });
}

#[test]
fn a_file_is_made_though_the_bin_was_removed_below() {
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, a) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        a.close().await.unwrap();
        std::fs::remove_dir(dir.join(".shoal")).unwrap();
        one.create(Handle::ROOT, &name("g"), owner(), true, BOTH).await.map(drop).unwrap();
    });
}

#[test]
fn the_bytes_of_a_file_that_only_its_owner_may_read_are_closed_to_others_below_too() {
    use std::os::unix::fs::PermissionsExt;
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (attr, _, a) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        a.write(0, Bytes::from_static(b"secret")).await.unwrap();
        let set = shoal_proto::SetAttr { mode: Some(0o600), ..Default::default() };
        one.setattr(attr.handle, set).await.unwrap();
        let mode = std::fs::metadata(dir.join("f")).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0);
    });
}
