//! Bytes of open files.

use super::{BOTH, Ground, OWNER, bytes_of, name};
use crate::{Vfs, VfsFile};
use bytes::Bytes;
use futures_util::future::join_all;
use shoal_proto::{Allocation, Handle, Kind, Rights, Status};

pub(super) async fn bytes_are_read_as_written_and_short_only_at_the_end<V: Vfs>(ground: &Ground<'_, V>) {
    let (attr, file) = ground.file("file").await;
    let mut model = Vec::new();
    for (at, len) in [(0, 1), (1, 5000), (4000, 70_000), (2, 3), (300_000, 17), (131_071, 2)] {
        let data = bytes_of(len, at as u64);
        ground.ok(file.write(at as u64, data.clone()).await);
        model.resize(model.len().max(at + len), 0);
        model[at..at + len].copy_from_slice(&data);
        assert_eq!(ground.attr(attr.handle).await.size, model.len() as u64);
    }
    for (at, len) in [(0, 1), (0, 400_000), (3999, 3), (299_990, 100), (300_017, 1), (1 << 40, 5)] {
        let read = ground.ok(file.read(at as u64, len).await);
        let wanted = &model[at.min(model.len())..(at + len).min(model.len())];
        assert_eq!(read.len(), wanted.len(), "{len} bytes from {at}");
        assert!(!ground.promises.bytes || read == wanted, "{len} bytes from {at}");
    }
    assert!(ground.ok(file.read(0, 0).await).is_empty());
    ground.ok(file.write(7, Bytes::new()).await);
    let file = ground.ok(ground.vfs.open(attr.handle, Rights::READ).await);
    let read = ground.ok(file.read(0, model.len() + 1).await);
    assert!(!ground.promises.bytes || read == model, "as it was written, through another open");
}

pub(super) async fn holes_are_zeros<V: Vfs>(ground: &Ground<'_, V>) {
    let (attr, file) = ground.file("file").await;
    ground.ok(file.write(5 << 20, Bytes::from_static(b"end")).await);
    assert_eq!(ground.attr(attr.handle).await.size, (5 << 20) + 3);
    let read = ground.ok(file.read(1 << 20, 1 << 20).await);
    assert_eq!(read.len(), 1 << 20);
    assert!(read.iter().all(|byte| *byte == 0));
}

pub(super) async fn a_file_is_used_only_as_it_was_opened<V: Vfs>(ground: &Ground<'_, V>) {
    let object = ground.file("file").await.0.handle;
    let reader = ground.ok(ground.vfs.open(object, Rights::READ).await);
    let writer = ground.ok(ground.vfs.open(object, Rights::WRITE).await);
    assert_eq!((reader.rights(), writer.rights()), (Rights::READ, Rights::WRITE));
    let data = Bytes::from_static(b"x");
    ground.ok(writer.write(0, data.clone()).await);
    ground.fails(writer.read(0, 1).await, Status::BadCapability);
    ground.ok(reader.read(0, 1).await);
    ground.fails(reader.write(0, data.clone()).await, Status::BadCapability);
    ground.fails(reader.append(data).await, Status::BadCapability);
    ground.fails(reader.allocate(0, 1, Allocation::Extend).await, Status::BadCapability);
}

pub(super) async fn appends_are_whole_and_each_at_its_place<V: Vfs>(ground: &Ground<'_, V>) {
    const APPENDS: usize = 48;
    let (attr, first) = ground.file("file").await;
    let second = ground.ok(ground.vfs.open(attr.handle, BOTH).await);
    let data: Vec<Bytes> = (0..APPENDS).map(|n| bytes_of(100 + 1000 * (n % 7), n as u64)).collect();
    let append = |n: usize| if n.is_multiple_of(2) { &first } else { &second }.append(data[n].clone());
    let appended = join_all((0..APPENDS).map(append)).await;
    let mut placed: Vec<(u64, usize)> =
        appended.into_iter().enumerate().map(|(n, at)| (ground.ok(at), n)).collect();
    placed.sort_unstable();
    let mut end = 0;
    for (at, n) in placed {
        assert_eq!(at, end, "no gap, and no overlap");
        end += data[n].len() as u64;
        let read = ground.ok(first.read(at, data[n].len()).await);
        assert!(!ground.promises.bytes || read == data[n], "append {n} is whole");
    }
    assert_eq!(ground.attr(attr.handle).await.size, end);
}

pub(super) async fn a_removed_file_stays_while_it_is_open<V: Vfs>(ground: &Ground<'_, V>) {
    let vfs = ground.vfs;
    let (attr, file) = ground.file("file").await;
    ground.ok(file.write(0, Bytes::from_static(b"kept")).await);
    ground.ok(vfs.unlink(ground.dir, &name("file")).await);
    ground.is_absent(ground.dir, "file").await;
    let left = ground.attr(attr.handle).await;
    assert_eq!((left.nlink, left.size), (0, 4));
    assert!(vfs.has_open(attr.handle));
    ground.ok(file.write(4, Bytes::from_static(b" on")).await);
    assert_eq!(ground.ok(file.read(0, 99).await).len(), 7);
    assert_eq!(ground.ok(vfs.truncate(attr.handle, 2, false).await).size, 2);
    let held = ground.ok(vfs.open_held(attr.handle, Rights::READ).await);
    assert_eq!(ground.ok(held.read(0, 99).await).len(), 2);
    // The name may be another file's meanwhile.
    assert_ne!(ground.file("file").await.0.handle, attr.handle);
    ground.ok(held.close().await);
    ground.ok(file.close().await);
    assert!(!vfs.has_open(attr.handle));
    ground.fails(vfs.getattr(attr.handle).await, Status::Stale);
    if ground.promises.gone {
        ground.fails(vfs.open(attr.handle, Rights::READ).await.map(|file| file.handle()), Status::Stale);
    }
}

pub(super) async fn clones_and_further_opens_keep_a_file_open<V: Vfs>(ground: &Ground<'_, V>) {
    let vfs = ground.vfs;
    let (attr, file) = ground.file("file").await;
    let (clone, again) = (file.clone(), file.again());
    assert_eq!((again.handle(), again.rights()), (attr.handle, BOTH));
    drop(file);
    ground.ok(clone.write(0, Bytes::from_static(b"by a clone")).await);
    drop(clone);
    assert!(vfs.has_open(attr.handle));
    assert_eq!(ground.ok(again.read(0, 99).await).len(), 10);
    drop(again);
    assert!(!vfs.has_open(attr.handle));
}

pub(super) async fn allocation_keeps_contents<V: Vfs>(ground: &Ground<'_, V>) {
    const MIB: u64 = 1 << 20;
    let (attr, file) = ground.file("file").await;
    let data = bytes_of(3 << 20, 1);
    ground.ok(file.write(0, data.clone()).await);
    let mut model = data.to_vec();
    let steps = [
        (Allocation::KeepSize, 2 * MIB, 5 * MIB, 3 * MIB),
        (Allocation::Extend, MIB, 3 * MIB, 4 * MIB),
        (Allocation::Punch, 100, MIB, 4 * MIB),
        (Allocation::Zero, 2 * MIB, 3 * MIB, 5 * MIB),
        (Allocation::ZeroKeepSize, 7, 60_000, 5 * MIB),
    ];
    for (mode, at, len, size) in steps {
        match file.allocate(at, len, mode).await {
            // Not every host has every kind.
            Err(error) if error.status == Status::NotSupported => break,
            done => ground.ok(done),
        }
        model.resize(size as usize, 0);
        if !matches!(mode, Allocation::KeepSize | Allocation::Extend) {
            let end = (at + len).min(size) as usize;
            model[at as usize..end].fill(0);
        }
        assert_eq!(ground.attr(attr.handle).await.size, size, "{mode:?}");
        let read = ground.ok(file.read(0, model.len() + 1).await);
        assert!(!ground.promises.bytes || read == model, "{mode:?}");
    }
}

pub(super) async fn durable_writes_and_syncs_succeed<V: Vfs>(ground: &Ground<'_, V>) {
    let (attr, file) = ground.file("file").await;
    ground.ok(file.write_durable(10, Bytes::from_static(b"durable")).await);
    ground.ok(file.write_pages(17, Bytes::from_static(b"!")).await);
    ground.ok(file.fsync().await);
    ground.ok(ground.vfs.fsync_directory(ground.dir).await);
    assert_eq!(ground.attr(attr.handle).await.size, 18);
}

pub(super) async fn only_files_are_opened<V: Vfs>(ground: &Ground<'_, V>) {
    let vfs = ground.vfs;
    let open = async |object: Handle| vfs.open(object, Rights::READ).await.map(|file| file.handle());
    ground.fails(open(ground.dir).await, Status::IsDirectory);
    let fifo = ground.ok(vfs.mknod(ground.dir, &name("fifo"), OWNER, Kind::Fifo, 0).await);
    assert!(open(fifo.handle).await.is_err(), "a FIFO has no data of its own");
    let link = ground.ok(vfs.symlink(ground.dir, &name("link"), OWNER, b"fifo").await);
    assert!(open(link.handle).await.is_err(), "nor has a link");
    let by_name = vfs.open_name(ground.dir, &name("link"), Rights::READ).await;
    ground.fails(by_name.map(|file| file.handle()), Status::Loop);
    let (file, _open) = ground.file("file").await;
    let opened = ground.ok(vfs.open_name(ground.dir, &name("file"), Rights::READ).await);
    assert_eq!(opened.handle(), file.handle);
}
