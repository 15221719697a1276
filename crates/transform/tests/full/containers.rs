//! Containers: a write, an append, an open that fails leaves nothing half made.

use crate::limits::{alone, limit_descriptors, with_files_up_to};
use crate::scene::{BOTH, mount, name, owner, run};
use bytes::Bytes;
use futures_util::future::{join, join3};
use shoal_proto::{Handle, Rights};
use shoal_transform::ContainerOptions;
use shoal_vfs::{Connect, LocalOptions, Vfs, VfsFile};
use std::path::Path;
use std::time::Duration;

#[test]
fn an_append_that_fails_leaves_no_hole() {
    let _alone = alone();
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        file.append(Bytes::from(vec![1; 600 << 10])).await.unwrap();
        let long = file.append(Bytes::from(vec![2; 500 << 10]));
        let failed = with_files_up_to(600 << 10, long).await;
        assert!(failed.is_err());
        let at = file.append(Bytes::from_static(b"next")).await.unwrap();
        assert_eq!(at, 600 << 10, "{failed:?}");
    });
}

#[test]
fn a_write_that_waited_for_one_that_fails_goes_to_another_log() {
    let _alone = alone();
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        file.append(Bytes::from(vec![1; 500 << 10])).await.unwrap();
        let long = file.write(500 << 10, Bytes::from(vec![2; 200 << 10]));
        let both = join(long, file.write(0, Bytes::from_static(b"waited")));
        let (failed, waited) = with_files_up_to(600 << 10, both).await;
        assert!(failed.is_err());
        waited.unwrap();
        let two = mount(&env, dir).await;
        let there = two.open_name(Handle::ROOT, &name("f"), Rights::READ).await.unwrap();
        assert_eq!(there.read(0, 8).await.unwrap()[..], *b"waited\x01\x01");
    });
}

#[test]
fn a_write_that_failed_hides_no_later_write_of_another_open_file() {
    let _alone = alone();
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        let other = file.again();
        other.write(0, Bytes::from_static(b"0123456789")).await.unwrap();
        file.write(1 << 30, Bytes::from(vec![1; 500 << 10])).await.unwrap();
        // A part of it lands.
        let long = file.write(10, Bytes::from(vec![2; 200 << 10]));
        assert!(with_files_up_to(600 << 10, long).await.is_err());
        other.write(10, Bytes::from_static(b"kept")).await.unwrap();
        for mount in [one.clone(), mount(&env, dir).await] {
            let there = mount.open_name(Handle::ROOT, &name("f"), Rights::READ).await.unwrap();
            assert_eq!(there.read(0, 15).await.unwrap()[..], *b"0123456789kept\x02");
        }
    });
}

#[test]
fn appends_beside_one_that_fails_follow_each_other() {
    let _alone = alone();
    for is_one_handle in [true, false] {
        run(async move |env, dir| {
            let one = mount(&env, dir).await;
            let (_, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
            file.append(Bytes::from(vec![1; 500 << 10])).await.unwrap();
            let [second, third] = [(); 2].map(|()| if is_one_handle { file.clone() } else { file.again() });
            let (long, small) = (vec![2; 200 << 10], Bytes::from_static(b"small"));
            let all = join3(file.append(long.into()), second.append(small.clone()), third.append(small));
            let (failed, second, third) = with_files_up_to(600 << 10, all).await;
            assert!(failed.is_err());
            assert_eq!((second.unwrap(), third.unwrap()), (500 << 10, (500 << 10) + 5));
            let next = file.append(Bytes::from_static(b"next")).await.unwrap();
            assert_eq!(next, (500 << 10) + 10);
            let bytes = file.read(500 << 10, 14).await.unwrap();
            assert_eq!(bytes[..], *b"smallsmallnext");
        });
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_create_or_write_without_descriptors_leaves_nothing_half_made() {
    let _alone = alone();
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let mut failed = 0;
        for more in 0..24 {
            let f = format!("f{more}");
            // Descriptors of a removal in the background would be free for the next creation.
            let is_removing =
                || std::fs::read_dir(dir.join(".shoal")).is_ok_and(|mut all| all.next().is_some());
            let until = env.now() + Duration::from_secs(30);
            while is_removing() && env.now() < until {
                env.sleep(Duration::from_millis(1)).await;
            }
            limit_descriptors(Some(more));
            let written = async {
                let (_, _, file) = one.create(Handle::ROOT, &name(&f), owner(), true, BOTH).await?;
                let written = file.write(0, Bytes::from_static(b"hello")).await;
                drop(file);
                written
            };
            let written = written.await;
            limit_descriptors(None);
            failed += u64::from(written.is_err());
            if let Err(error) = written {
                assert_eq!(error.errno(), 24, "{error}");
            }
        }
        assert!(failed > 3, "{failed}");
        // The close waits for the removals in the background.
        one.close().await;
        assert_eq!(names(&dir.join(".shoal")), Vec::<String>::new());
        for f in names(dir).into_iter().filter(|f| f != ".shoal") {
            let inner = names(&dir.join(&f));
            let count = |kind: &str| inner.iter().filter(|name| name.starts_with(kind)).count();
            assert_eq!(count("w."), count("d."), "{f} has a writer that looks open: {inner:?}");
        }
    });
}

#[test]
fn an_open_for_writing_fails_as_that_of_a_plain_file_where_the_directory_is_read_only() {
    let _alone = alone();
    run(async |env, dir| {
        let one = mount(&env, dir).await;
        let (attr, _, file) = one.create(Handle::ROOT, &name("f"), owner(), true, BOTH).await.unwrap();
        file.write(0, Bytes::from_static(b"hello")).await.unwrap();
        file.close().await.unwrap();
        let over = LocalOptions { read_only: true, ..LocalOptions::new(dir) };
        let two = ContainerOptions::new(over).connect(env.clone()).await.unwrap();
        let there = two.lookup(Handle::ROOT, &name("f")).await.unwrap();
        let opened = two.open(there.handle, BOTH).await.map(drop);
        assert_eq!(opened.unwrap_err().status, shoal_proto::Status::ReadOnly);
        two.open(there.handle, Rights::READ).await.map(drop).unwrap();
        let cut = two.truncate(there.handle, 0, false).await;
        assert_eq!(cut.unwrap_err().status, shoal_proto::Status::ReadOnly);
        let again = two.create(Handle::ROOT, &name("f"), owner(), false, BOTH).await;
        assert!(again.is_err());
        assert_eq!(one.getattr(attr.handle).await.unwrap().size, 5);
    });
}

#[test]
fn a_mount_that_is_gone_keeps_no_descriptor() {
    let _alone = alone();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let round = || {
        run(async |env, dir| {
            let one = mount(&env, dir).await;
            for turn in 0..50 {
                let text = name(&format!("f{turn}"));
                let (_, _, file) = one.create(Handle::ROOT, &text, owner(), true, BOTH).await.unwrap();
                file.write(0, Bytes::from_static(b"hello")).await.unwrap();
                file.close().await.unwrap();
            }
            let (_, _, last) = one.create(Handle::ROOT, &name("last"), owner(), true, BOTH).await.unwrap();
            last.write(0, Bytes::from_static(b"hello")).await.unwrap();
            // The mount is gone before its last file.
            drop(one);
            last.close().await.unwrap();
        });
    };
    // A process opens some files once.
    round();
    let before = open();
    round();
    assert_eq!(open(), before);
}
