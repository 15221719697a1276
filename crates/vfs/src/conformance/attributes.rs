//! Attributes.

use super::{Ground, OWNER, name};
use crate::{Vfs, VfsFile};
use bytes::Bytes;
use shoal_proto::{Attr, Kind, SetAttr, Status, Time};

fn parts(attr: &Attr) -> (u32, u32, u32, Time, Time) {
    (attr.mode, attr.uid, attr.gid, attr.atime, attr.mtime)
}

pub(super) async fn changes_of_attributes_are_returned_and_stay<V: Vfs>(ground: &Ground<'_, V>) {
    let vfs = ground.vfs;
    let file = ground.file("file").await.0.handle;
    let inner = ground.directory("directory").await.handle;
    let link = ground.ok(vfs.symlink(ground.dir, &name("link"), OWNER, b"file").await).handle;
    for object in [file, inner] {
        let before = ground.attr(object).await;
        let set = SetAttr { mode: Some(0o1751), ..SetAttr::default() };
        let after = ground.ok(vfs.setattr(object, set).await);
        assert_eq!(parts(&after), (0o1751, before.uid, before.gid, before.atime, before.mtime));
        assert!(after.ctime >= before.ctime);
        assert_eq!(parts(&ground.attr(object).await), parts(&after));
    }
    if ground.promises.owners {
        for object in [file, inner, link] {
            let set = SetAttr { gid: Some(78), ..SetAttr::default() };
            let before = ground.attr(object).await;
            let after = ground.ok(vfs.setattr(object, set).await);
            assert_eq!((after.uid, after.gid), (before.uid, 78));
            let set = SetAttr { uid: Some(77), ..SetAttr::default() };
            let after = ground.ok(vfs.setattr(object, set).await);
            assert_eq!((after.uid, after.gid), (77, 78));
        }
    }
}

pub(super) async fn times_are_kept_to_the_nanosecond<V: Vfs>(ground: &Ground<'_, V>) {
    let vfs = ground.vfs;
    let file = ground.file("file").await.0.handle;
    let inner = ground.directory("directory").await.handle;
    let link = ground.ok(vfs.symlink(ground.dir, &name("link"), OWNER, b"file").await).handle;
    for object in [file, inner, link] {
        for time in [Time(1_234_567_890_123_456_789), Time(7), Time(-1_000_000_001)] {
            let before = ground.attr(object).await;
            let set = SetAttr { mtime: Some(time), ..SetAttr::default() };
            let after = ground.ok(vfs.setattr(object, set).await);
            assert_eq!((after.atime, after.mtime), (before.atime, time));
            let set = SetAttr { atime: Some(Time(time.0 + 1)), ..SetAttr::default() };
            ground.ok(vfs.setattr(object, set).await);
            let seen = ground.attr(object).await;
            assert_eq!((seen.atime, seen.mtime), (Time(time.0 + 1), time));
        }
    }
}

pub(super) async fn a_size_cuts_and_grows_with_zeros<V: Vfs>(ground: &Ground<'_, V>) {
    let vfs = ground.vfs;
    let (attr, file) = ground.file("file").await;
    ground.ok(file.write(0, Bytes::from_static(b"abcdef")).await);
    assert_eq!(ground.ok(vfs.truncate(attr.handle, 3, false).await).size, 3);
    assert_eq!(ground.ok(vfs.truncate(attr.handle, 70_000, false).await).size, 70_000);
    let read = ground.ok(file.read(0, 100_000).await);
    assert_eq!(read.len(), 70_000);
    if ground.promises.bytes {
        assert_eq!(&read[..3], b"abc");
    }
    assert!(read[3..].iter().all(|byte| *byte == 0));
    drop(file);
    assert_eq!(ground.ok(vfs.truncate(attr.handle, 0, false).await).size, 0);
    assert_eq!(ground.attr(attr.handle).await.size, 0);
    ground.fails(vfs.truncate(attr.handle, u64::MAX, false).await, Status::FileTooBig);
}

pub(super) async fn privileges_are_cleared_where_it_is_asked_for<V: Vfs>(ground: &Ground<'_, V>) {
    let vfs = ground.vfs;
    let file = ground.file("file").await.0.handle;
    let with_mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    let kill = SetAttr { kill_privileges: true, ..SetAttr::default() };
    for (mode, left) in [(0o6755, 0o755), (0o6745, 0o2745), (0o755, 0o755), (0o1711, 0o1711)] {
        ground.ok(vfs.setattr(file, with_mode(mode)).await);
        let kept = ground.ok(vfs.truncate(file, 1, false).await).mode;
        // A host clears them with each cut by another than root.
        assert!(kept == mode || kept == left && !ground.promises.owners, "{kept:o} instead of {mode:o}");
        assert_eq!(ground.ok(vfs.truncate(file, 2, true).await).mode, left);
        ground.ok(vfs.setattr(file, with_mode(mode)).await);
        assert_eq!(ground.ok(vfs.setattr(file, kill.clone()).await).mode, left);
    }
    let inner = ground.directory("directory").await.handle;
    ground.ok(vfs.setattr(inner, with_mode(0o2755)).await);
    assert_eq!(ground.ok(vfs.setattr(inner, kill).await).mode, 0o2755);
    if ground.promises.owners {
        ground.ok(vfs.setattr(file, with_mode(0o4755)).await);
        let set = SetAttr { uid: Some(5), ..SetAttr::default() };
        assert_eq!(ground.ok(vfs.setattr(file, set).await).mode, 0o755);
    }
}

pub(super) async fn a_write_moves_the_time_of_the_data<V: Vfs>(ground: &Ground<'_, V>) {
    let vfs = ground.vfs;
    let (attr, file) = ground.file("file").await;
    let past = SetAttr { mtime: Some(Time(1_000)), ..SetAttr::default() };
    ground.ok(vfs.setattr(attr.handle, past.clone()).await);
    ground.ok(file.write(0, Bytes::from_static(b"x")).await);
    assert!(ground.attr(attr.handle).await.mtime > Time(1_000));
    ground.ok(vfs.setattr(ground.dir, past).await);
    ground.file("another").await;
    assert!(ground.attr(ground.dir).await.mtime > Time(1_000));
}

pub(super) async fn only_files_have_a_size_to_set<V: Vfs>(ground: &Ground<'_, V>) {
    let vfs = ground.vfs;
    ground.fails(vfs.truncate(ground.dir, 0, false).await, Status::IsDirectory);
    let fifo = ground.ok(vfs.mknod(ground.dir, &name("fifo"), OWNER, Kind::Fifo, 0).await);
    ground.fails(vfs.truncate(fifo.handle, 0, false).await, Status::Invalid);
}
