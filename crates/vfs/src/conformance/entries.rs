//! Checks that entries are made, found and removed.

use super::{BOTH, DIR_OWNER, Ground, OWNER, bytes_of, name};
use crate::{NewFile, Vfs, VfsFile};
use bytes::Bytes;
use shoal_proto::{Handle, Kind, Name, Rights, Status};

pub(super) async fn a_name_leads_to_the_object_that_was_made<V: Vfs>(ground: &Ground<'_, V>) {
    let vfs = ground.vfs;
    let made = [
        ("file", ground.file("file").await.0),
        ("directory", ground.directory("directory").await),
        ("link", ground.ok(vfs.symlink(ground.dir, &name("link"), OWNER, b"file").await)),
        ("fifo", ground.ok(vfs.mknod(ground.dir, &name("fifo"), OWNER, Kind::Fifo, 0).await)),
        ("socket", ground.ok(vfs.mknod(ground.dir, &name("socket"), OWNER, Kind::Socket, 0).await)),
        ("node", ground.ok(vfs.mknod(ground.dir, &name("node"), OWNER, Kind::File, 0).await)),
    ];
    let kinds = [Kind::File, Kind::Directory, Kind::Symlink, Kind::Fifo, Kind::Socket, Kind::File];
    for ((text, attr), kind) in made.iter().zip(kinds) {
        let found = ground.look(text).await;
        assert_eq!((found.handle, found.kind), (attr.handle, kind), "{text}");
        assert_eq!(ground.attr(attr.handle).await.kind, kind, "{text}");
        assert_eq!(found.mode, attr.mode, "{text}");
    }
    let mut handles: Vec<Handle> = made.iter().map(|(_, attr)| attr.handle).collect();
    handles.sort_unstable();
    handles.dedup();
    assert_eq!(handles.len(), made.len(), "no two objects have one handle");
    assert_eq!(ground.look("directory").await.parent, ground.dir);
}

pub(super) async fn a_name_that_leads_nowhere_is_not_found<V: Vfs>(ground: &Ground<'_, V>) {
    ground.is_absent(ground.dir, "nothing").await;
    let (file, _) = ground.file("file").await;
    ground.fails(ground.vfs.lookup(file.handle, &name("in a file")).await, Status::NotDirectory);
    ground.fails(ground.vfs.mkdir(file.handle, &name("in a file"), DIR_OWNER).await, Status::NotDirectory);
    ground.fails(ground.vfs.unlink(ground.dir, &name("nothing")).await, Status::NotFound);
    ground.fails(ground.vfs.rmdir(ground.dir, &name("nothing")).await, Status::NotFound);
}

pub(super) async fn names_are_bytes<V: Vfs>(ground: &Ground<'_, V>) {
    let longest = [b'n'; 255];
    for bytes in [&b"\xff\xfe\x01 \n"[..], b"...", b" ", &longest] {
        let name = Name::new(bytes).expect("a name");
        let (attr, ..) = ground.ok(ground.vfs.create(ground.dir, &name, OWNER, true, Rights::READ).await);
        assert_eq!(ground.ok(ground.vfs.lookup(ground.dir, &name).await).handle, attr.handle);
    }
}

pub(super) async fn an_exclusive_creation_needs_a_new_name<V: Vfs>(ground: &Ground<'_, V>) {
    let (vfs, dir) = (ground.vfs, ground.dir);
    ground.file("taken").await;
    let taken = name("taken");
    ground.fails(vfs.create(dir, &taken, OWNER, true, BOTH).await.map(|made| made.0), Status::Exists);
    ground.fails(vfs.mkdir(dir, &taken, DIR_OWNER).await, Status::Exists);
    ground.fails(vfs.symlink(dir, &taken, OWNER, b"x").await, Status::Exists);
    ground.fails(vfs.mknod(dir, &taken, OWNER, Kind::Fifo, 0).await, Status::Exists);
}

pub(super) async fn a_creation_opens_the_file_that_is_there<V: Vfs>(ground: &Ground<'_, V>) {
    let (vfs, dir) = (ground.vfs, ground.dir);
    let (attr, file) = ground.file("file").await;
    ground.ok(file.write(0, Bytes::from_static(b"kept")).await);
    let (again, is_new, other) = ground.ok(vfs.create(dir, &name("file"), OWNER, false, Rights::READ).await);
    assert_eq!((again.handle, is_new, again.size), (attr.handle, false, 4));
    assert_eq!(other.handle(), attr.handle);
    assert_eq!(ground.ok(other.read(0, 9).await).len(), 4);
    ground.directory("directory").await;
    ground.ok(vfs.symlink(dir, &name("link"), OWNER, b"file").await);
    let open = async |text| vfs.create(dir, &name(text), OWNER, false, BOTH).await.map(|made| made.0);
    ground.fails(open("directory").await, Status::IsDirectory);
    ground.fails(open("link").await, Status::Loop);
}

pub(super) async fn removals_take_the_kind_that_they_are_for<V: Vfs>(ground: &Ground<'_, V>) {
    let (vfs, dir) = (ground.vfs, ground.dir);
    let full = ground.directory("full").await;
    ground.ok(vfs.mkdir(full.handle, &name("inner"), DIR_OWNER).await);
    let (file, open) = ground.file("file").await;
    ground.ok(open.close().await);
    ground.fails(vfs.unlink(dir, &name("full")).await, Status::IsDirectory);
    ground.fails(vfs.rmdir(dir, &name("file")).await, Status::NotDirectory);
    ground.fails(vfs.rmdir(dir, &name("full")).await, Status::NotEmpty);
    ground.ok(vfs.rmdir(full.handle, &name("inner")).await);
    ground.ok(vfs.rmdir(dir, &name("full")).await);
    ground.ok(vfs.unlink(dir, &name("file")).await);
    ground.is_absent(dir, "file").await;
    ground.is_absent(dir, "full").await;
    ground.fails(vfs.getattr(file.handle).await, Status::Stale);
}

pub(super) async fn a_removed_directory_is_stale<V: Vfs>(ground: &Ground<'_, V>) {
    let vfs = ground.vfs;
    let gone = ground.directory("gone").await.handle;
    ground.ok(vfs.rmdir(ground.dir, &name("gone")).await);
    ground.fails(vfs.getattr(gone).await, Status::Stale);
    ground.fails(vfs.lookup(gone, &name("x")).await, Status::Stale);
    ground.fails(vfs.mkdir(gone, &name("x"), DIR_OWNER).await, Status::Stale);
    ground.fails(vfs.create(gone, &name("x"), OWNER, true, BOTH).await.map(|made| made.0), Status::Stale);
}

pub(super) async fn many_files_are_made_and_read_whole_each_with_its_own_result<V: Vfs>(
    ground: &Ground<'_, V>,
) {
    let (vfs, dir) = (ground.vfs, ground.dir);
    ground.directory("there").await;
    ground.ok(vfs.symlink(dir, &name("link"), OWNER, b"f1").await);
    ground.ok(vfs.mknod(dir, &name("fifo"), OWNER, Kind::Fifo, 0).await);
    let len = |number: usize| number * 1000;
    let mut files: Vec<NewFile> = (0..5)
        .map(|number| NewFile { dir, name: name(&format!("f{number}")), data: bytes_of(len(number), 9) })
        .collect();
    files.insert(2, NewFile { dir, name: name("there"), data: bytes_of(10, 9) });
    let mut made = vfs.create_many(files, OWNER).await;
    assert_eq!(made.len(), 6);
    ground.fails(made.remove(2), Status::Exists);
    for (number, made) in made.into_iter().enumerate() {
        let (made, found) = (ground.ok(made), ground.look(&format!("f{number}")).await);
        assert_eq!((found.handle, found.size), (made.handle, len(number) as u64), "{number}");
    }
    assert!(vfs.create_many(Vec::new(), OWNER).await.is_empty() && vfs.read_many(&[]).await.is_empty());
    let wanted = |text: &str, max: usize| (dir, name(text), max);
    let wanted = [
        wanted("f0", 100),
        wanted("none", 100),
        wanted("f2", 2000),
        wanted("f3", 2999),
        wanted("link", 5000),
        wanted("there", 5000),
        wanted("fifo", 5000),
        wanted("f4", 1 << 20),
    ];
    let mut read = vfs.read_many(&wanted).await.into_iter();
    let mut next = || read.next().expect("a result for each");
    for (number, is_whole) in [(0, true), (9, false), (2, true), (3, false)] {
        if number == 9 {
            ground.fails(next(), Status::NotFound);
            continue;
        }
        let (attr, data) = ground.ok(next());
        assert_eq!((attr.size, data.is_some()), (len(number) as u64, is_whole), "{number}");
        let is_same = |data: Bytes| data == bytes_of(len(number), 9) || !ground.promises.bytes;
        assert!(data.is_none_or(is_same), "{number}");
    }
    ground.fails(next(), Status::Loop);
    ground.fails(next(), Status::IsDirectory);
    assert!(next().is_err(), "a FIFO has no contents, and no open waits for its other end");
    assert_eq!(ground.ok(next()).1.map(|data| data.len()), Some(len(4)));
}
