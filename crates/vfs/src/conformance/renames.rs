//! Renames, with all flags.

use super::{DIR_OWNER, Ground, name};
use crate::{RenameFlags, Result, Vfs, VfsFile};
use bytes::Bytes;
use shoal_proto::{Handle, Status};

const PLAIN: RenameFlags = RenameFlags { no_replace: false, exchange: false };
const NO_REPLACE: RenameFlags = RenameFlags { no_replace: true, exchange: false };
const EXCHANGE: RenameFlags = RenameFlags { no_replace: false, exchange: true };

impl<V: Vfs> Ground<'_, V> {
    async fn rename(&self, from: (Handle, &str), to: (Handle, &str), flags: RenameFlags) -> Result<()> {
        self.vfs.rename(from.0, &name(from.1), to.0, &name(to.1), flags).await
    }

    async fn leads_to(&self, dir: Handle, text: &str, object: Handle) {
        let found = self.ok(self.vfs.lookup(dir, &name(text)).await);
        assert_eq!(found.handle, object, "{}: {text}", self.title);
    }
}

pub(super) async fn a_rename_moves_the_object<V: Vfs>(ground: &Ground<'_, V>) {
    let dir = ground.dir;
    let inner = ground.directory("inner").await.handle;
    let (attr, file) = ground.file("a").await;
    for flags in [PLAIN, NO_REPLACE] {
        ground.ok(ground.rename((dir, "a"), (dir, "b"), flags).await);
        ground.is_absent(dir, "a").await;
        ground.leads_to(dir, "b", attr.handle).await;
        ground.ok(ground.rename((dir, "b"), (inner, "c"), flags).await);
        ground.is_absent(dir, "b").await;
        ground.leads_to(inner, "c", attr.handle).await;
        ground.ok(ground.rename((inner, "c"), (dir, "a"), flags).await);
    }
    ground.ok(file.write(0, Bytes::from_static(b"on")).await);
    assert_eq!(ground.attr(attr.handle).await.nlink, 1);
    ground.fails(ground.rename((dir, "nothing"), (dir, "x"), PLAIN).await, Status::NotFound);
}

pub(super) async fn a_rename_replaces_its_target<V: Vfs>(ground: &Ground<'_, V>) {
    let (vfs, dir) = (ground.vfs, ground.dir);
    let (new, _) = ground.file("new").await;
    let (old, file) = ground.file("old").await;
    ground.ok(file.write(0, Bytes::from_static(b"former")).await);
    ground.ok(ground.rename((dir, "new"), (dir, "old"), PLAIN).await);
    ground.leads_to(dir, "old", new.handle).await;
    ground.is_absent(dir, "new").await;
    assert_eq!(ground.attr(old.handle).await.nlink, 0);
    assert_eq!(ground.ok(file.read(0, 99).await).len(), 6);
    ground.ok(file.close().await);
    ground.fails(vfs.getattr(old.handle).await, Status::Stale);
    let (one, empty) = (ground.directory("one").await.handle, ground.directory("empty").await.handle);
    ground.ok(vfs.mkdir(one, &name("inner"), DIR_OWNER).await);
    ground.ok(ground.rename((dir, "one"), (dir, "empty"), PLAIN).await);
    ground.leads_to(dir, "empty", one).await;
    ground.fails(vfs.getattr(empty).await, Status::Stale);
}

pub(super) async fn a_rename_without_replacement_is_refused<V: Vfs>(ground: &Ground<'_, V>) {
    let dir = ground.dir;
    let (a, b) = (ground.file("a").await.0.handle, ground.file("b").await.0.handle);
    ground.fails(ground.rename((dir, "a"), (dir, "b"), NO_REPLACE).await, Status::Exists);
    ground.leads_to(dir, "a", a).await;
    ground.leads_to(dir, "b", b).await;
}

pub(super) async fn an_exchange_swaps_two_entries<V: Vfs>(ground: &Ground<'_, V>) {
    let (vfs, dir) = (ground.vfs, ground.dir);
    let inner = ground.directory("inner").await.handle;
    let one = ground.ok(vfs.mkdir(inner, &name("directory"), DIR_OWNER).await).handle;
    let (file, _) = ground.file("file").await;
    ground.ok(ground.rename((dir, "file"), (inner, "directory"), EXCHANGE).await);
    ground.leads_to(dir, "file", one).await;
    ground.leads_to(inner, "directory", file.handle).await;
    assert_eq!(ground.attr(one).await.parent, dir);
    ground.fails(ground.rename((dir, "file"), (dir, "nothing"), EXCHANGE).await, Status::NotFound);
}

pub(super) async fn a_rename_fits_its_target<V: Vfs>(ground: &Ground<'_, V>) {
    let (vfs, dir) = (ground.vfs, ground.dir);
    let outer = ground.directory("outer").await.handle;
    let inner = ground.ok(vfs.mkdir(outer, &name("inner"), DIR_OWNER).await).handle;
    ground.file("file").await;
    ground.directory("other").await;
    ground.fails(ground.rename((dir, "other"), (dir, "outer"), PLAIN).await, Status::NotEmpty);
    ground.fails(ground.rename((dir, "file"), (dir, "other"), PLAIN).await, Status::IsDirectory);
    ground.fails(ground.rename((dir, "other"), (dir, "file"), PLAIN).await, Status::NotDirectory);
    for flags in [PLAIN, NO_REPLACE] {
        ground.fails(ground.rename((dir, "outer"), (inner, "x"), flags).await, Status::Invalid);
        ground.fails(ground.rename((dir, "outer"), (outer, "x"), flags).await, Status::Invalid);
    }
    ground.leads_to(dir, "outer", outer).await;
}

pub(super) async fn two_names_of_one_object_stay<V: Vfs>(ground: &Ground<'_, V>) {
    if !ground.promises.links {
        return;
    }
    let dir = ground.dir;
    let file = ground.file("a").await.0.handle;
    ground.ok(ground.vfs.link(file, dir, &name("b")).await);
    ground.ok(ground.rename((dir, "a"), (dir, "b"), PLAIN).await);
    ground.leads_to(dir, "a", file).await;
    ground.leads_to(dir, "b", file).await;
    ground.ok(ground.rename((dir, "a"), (dir, "a"), PLAIN).await);
    assert_eq!(ground.attr(file).await.nlink, 2);
}

pub(super) async fn a_moved_directory_has_another_parent<V: Vfs>(ground: &Ground<'_, V>) {
    let (vfs, dir) = (ground.vfs, ground.dir);
    let (from, to) = (ground.directory("from").await.handle, ground.directory("to").await.handle);
    let moved = ground.ok(vfs.mkdir(from, &name("moved"), DIR_OWNER).await);
    assert_eq!(moved.parent, from);
    let child = ground.ok(vfs.mkdir(moved.handle, &name("child"), DIR_OWNER).await);
    ground.ok(ground.rename((from, "moved"), (to, "elsewhere"), PLAIN).await);
    assert_eq!(ground.attr(moved.handle).await.parent, to);
    assert_eq!(ground.attr(child.handle).await.parent, moved.handle);
    ground.leads_to(moved.handle, "child", child.handle).await;
    ground.ok(vfs.rmdir(dir, &name("from")).await);
    if ground.promises.counted_directories {
        assert_eq!(ground.attr(to).await.nlink, 3);
    }
}
