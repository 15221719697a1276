//! Links, paths, and the owners of new objects.

use super::{BOTH, DIR_OWNER, Ground, OWNER, name};
use crate::{Vfs, VfsFile};
use bytes::Bytes;
use shoal_proto::{Handle, Kind, Owner, SetAttr, Status};

pub(super) async fn links_share_one_object<V: Vfs>(ground: &Ground<'_, V>) {
    if !ground.promises.links {
        return;
    }
    let (vfs, dir) = (ground.vfs, ground.dir);
    let (attr, file) = ground.file("first").await;
    let linked = ground.ok(vfs.link(attr.handle, dir, &name("second")).await);
    assert_eq!((linked.handle, linked.nlink), (attr.handle, 2));
    ground.ok(file.write(0, Bytes::from_static(b"one")).await);
    drop(file);
    assert_eq!(ground.look("second").await.size, 3);
    ground.ok(vfs.unlink(dir, &name("second")).await);
    assert_eq!(ground.attr(attr.handle).await.nlink, 1);
    ground.ok(vfs.link(attr.handle, dir, &name("third")).await);
    ground.ok(vfs.unlink(dir, &name("first")).await);
    assert_eq!(ground.look("third").await.handle, attr.handle);
    assert_eq!(ground.attr(attr.handle).await.nlink, 1);
}

pub(super) async fn a_link_needs_a_file_and_a_new_name<V: Vfs>(ground: &Ground<'_, V>) {
    if !ground.promises.links {
        return;
    }
    let (vfs, dir) = (ground.vfs, ground.dir);
    let (file, _open) = ground.file("file").await;
    let inner = ground.directory("directory").await;
    ground.fails(vfs.link(file.handle, dir, &name("directory")).await, Status::Exists);
    ground.fails(vfs.link(inner.handle, dir, &name("new")).await, Status::NotPermitted);
}

pub(super) async fn a_symbolic_link_keeps_its_target<V: Vfs>(ground: &Ground<'_, V>) {
    let vfs = ground.vfs;
    let target = b"../\xff anywhere/at all";
    let link = ground.ok(vfs.symlink(ground.dir, &name("link"), OWNER, target).await);
    assert_eq!((link.kind, link.size), (Kind::Symlink, target.len() as u64));
    assert_eq!(ground.ok(vfs.readlink(link.handle).await), &target[..]);
    let (file, _open) = ground.file("file").await;
    ground.fails(vfs.readlink(file.handle).await, Status::Invalid);
    let long = vec![b'x'; 4096];
    ground.fails(vfs.symlink(ground.dir, &name("long"), OWNER, &long).await, Status::NameTooLong);
}

pub(super) async fn a_path_follows_links_and_no_circle<V: Vfs>(ground: &Ground<'_, V>) {
    let (vfs, dir) = (ground.vfs, ground.dir);
    let inner = ground.directory("inner").await.handle;
    let (file, ..) = ground.ok(vfs.create(inner, &name("file"), OWNER, true, BOTH).await);
    for (text, target) in [("to", "inner"), ("up", "inner/../to/file"), ("circle", "circle")] {
        ground.ok(vfs.symlink(dir, &name(text), OWNER, target.as_bytes()).await);
    }
    let path = |end: &str| format!("/{}/{end}", ground.title).into_bytes();
    for end in ["inner/file", "to/file", "up", "./inner//file"] {
        assert_eq!(ground.ok(vfs.walk_path(&path(end), true).await).handle, file.handle, "{end}");
    }
    assert_eq!(ground.ok(vfs.walk_path(&path("to"), false).await).kind, Kind::Symlink);
    ground.fails(vfs.walk_path(&path("circle"), true).await, Status::Loop);
    ground.fails(vfs.walk_path(&path("up/more"), true).await, Status::NotDirectory);
    assert_eq!(ground.ok(vfs.walk_path(b"/", true).await).handle, Handle::ROOT);
}

pub(super) async fn a_path_that_must_stay_inside_does_not_leave_by_the_root<V: Vfs>(ground: &Ground<'_, V>) {
    let (vfs, dir) = (ground.vfs, ground.dir);
    ground.directory("inner").await;
    for (text, target) in [("root", "/"), ("out", "../.."), ("up", "..")] {
        ground.ok(vfs.symlink(dir, &name(text), OWNER, target.as_bytes()).await);
    }
    let path = |end: &str| format!("/{}/{end}", ground.title).into_bytes();
    for end in ["inner/..", "inner/../inner/..", "up/./", "root/.", "root"] {
        let there = ground.ok(vfs.walk_path(&path(end), true).await);
        assert_eq!(ground.ok(vfs.walk_inside(&path(end), true).await).handle, there.handle, "{end}");
    }
    for end in ["../..", "out", "up/..", "root/..", "out/more", "inner/../../.."] {
        ground.fails(vfs.walk_inside(&path(end), true).await, Status::CrossDevice);
    }
    ground.fails(vfs.walk_inside(b"..", true).await, Status::CrossDevice);
    assert_eq!(ground.ok(vfs.walk_path(b"..", true).await).handle, Handle::ROOT);
}

pub(super) async fn directories_count_their_subdirectories<V: Vfs>(ground: &Ground<'_, V>) {
    let inner = ground.directory("inner").await.handle;
    if !ground.promises.counted_directories {
        return;
    }
    assert_eq!(ground.attr(inner).await.nlink, 2);
    ground.ok(ground.vfs.mkdir(inner, &name("a"), DIR_OWNER).await);
    assert_eq!(ground.attr(inner).await.nlink, 3);
    ground.ok(ground.vfs.rmdir(inner, &name("a")).await);
    assert_eq!(ground.attr(inner).await.nlink, 2);
}

pub(super) async fn a_new_object_has_its_owner_and_mode<V: Vfs>(ground: &Ground<'_, V>) {
    let (vfs, dir) = (ground.vfs, ground.dir);
    let owner = Owner { mode: 0o4757, uid: 1001, gid: 1002 };
    let (file, ..) = ground.ok(vfs.create(dir, &name("file"), owner, true, BOTH).await);
    let made = [
        ground.attr(file.handle).await,
        ground.ok(vfs.mkdir(dir, &name("directory"), owner).await),
        ground.ok(vfs.mknod(dir, &name("fifo"), owner, Kind::Fifo, 0).await),
    ];
    for attr in &made {
        assert_eq!(attr.mode & 0o777, 0o757, "{attr:?}");
    }
    assert_eq!(made[0].mode, 0o4757);
    if !ground.promises.owners {
        return;
    }
    let link = ground.ok(vfs.symlink(dir, &name("link"), owner, b"x").await);
    for attr in made.iter().chain([&link]) {
        assert_eq!((attr.uid, attr.gid), (1001, 1002), "{attr:?}");
    }
    let of_group = ground.directory("of a group").await.handle;
    let set = SetAttr { mode: Some(0o2770), gid: Some(4242), ..SetAttr::default() };
    ground.ok(vfs.setattr(of_group, set).await);
    let (file, ..) = ground.ok(vfs.create(of_group, &name("file"), owner, true, BOTH).await);
    assert_eq!((file.uid, file.gid), (1001, 4242));
    let inner = ground.ok(vfs.mkdir(of_group, &name("inner"), DIR_OWNER).await);
    assert_eq!((inner.gid, inner.mode), (4242, 0o2750));
}
