//! Other programs change the directory; and nothing outside it is touched.

use super::{BOTH, DIR_OWNER, OWNER, name, run};
use crate::skipped::skipped;
use bytes::Bytes;
use shoal_proto::{Handle, Kind, Rights, SetAttr, Status};
use shoal_vfs::{Listing, LocalOptions, Vfs, VfsFile};
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

#[test]
fn what_others_made_is_found_under_its_number() {
    let room = tempfile::tempdir().unwrap();
    let dir = room.path().to_owned();
    run(LocalOptions::new(&dir), |vfs, _| async move {
        std::fs::write(dir.join("theirs"), "theirs").unwrap();
        let attr = vfs.lookup(Handle::ROOT, &name("theirs")).await.unwrap();
        assert_eq!(attr.handle.0, std::fs::metadata(dir.join("theirs")).unwrap().ino());
        let file = vfs.open(attr.handle, BOTH).await.unwrap();
        assert_eq!(&file.read(0, 99).await.unwrap()[..], b"theirs");
        file.write(0, Bytes::from_static(b"ours")).await.unwrap();
        assert_eq!(std::fs::read_to_string(dir.join("theirs")).unwrap(), "oursrs");
        std::fs::rename(dir.join("theirs"), dir.join("moved")).unwrap();
        assert_eq!(vfs.lookup(Handle::ROOT, &name("moved")).await.unwrap().handle, attr.handle);
        std::fs::remove_file(dir.join("moved")).unwrap();
        assert_eq!(vfs.getattr(attr.handle).await.unwrap().nlink, 0, "it is open");
        drop(file);
        assert_eq!(vfs.getattr(attr.handle).await.unwrap_err().status, Status::Stale);
    });
}

#[test]
fn a_number_that_is_used_again_is_another_object() {
    let room = tempfile::tempdir().unwrap();
    let dir = room.path().to_owned();
    // Without descriptors the host may use a number again at once.
    let options = LocalOptions { descriptors: Some(0), ..LocalOptions::new(&dir) };
    run(options, |vfs, _| async move {
        for round in 0..50 {
            let file = vfs.create(Handle::ROOT, &name("file"), OWNER, true, BOTH).await.unwrap().0.handle;
            vfs.referred(file);
            std::fs::remove_file(dir.join("file")).unwrap();
            std::fs::write(dir.join("file"), "another").unwrap();
            let another = vfs.lookup(Handle::ROOT, &name("file")).await.unwrap().handle;
            assert_ne!(another, file, "round {round}");
            assert_eq!(vfs.getattr(file).await.unwrap_err().status, Status::Stale);
            assert_eq!(vfs.getattr(another).await.unwrap().size, 7);
            std::fs::remove_file(dir.join("file")).unwrap();
        }
    });
}

#[test]
fn links_lead_nowhere_by_themselves() {
    let room = tempfile::tempdir().unwrap();
    let (dir, outside) = (room.path().join("inside"), room.path().join("outside"));
    std::fs::create_dir(&dir).unwrap();
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("file"), "outside").unwrap();
    std::os::unix::fs::symlink("../outside", dir.join("to directory")).unwrap();
    std::os::unix::fs::symlink("../outside/file", dir.join("to file")).unwrap();
    std::os::unix::fs::symlink("../outside/new", dir.join("to nothing")).unwrap();
    run(LocalOptions::new(&dir), |vfs, _| async move {
        let look = async |text| vfs.lookup(Handle::ROOT, &name(text)).await.unwrap();
        let to_directory = look("to directory").await;
        assert_eq!(to_directory.kind, Kind::Symlink);
        let inside = vfs.lookup(to_directory.handle, &name("file")).await;
        assert_eq!(inside.unwrap_err().status, Status::NotDirectory);
        let to_file = look("to file").await.handle;
        assert!(vfs.open(to_file, Rights::READ).await.is_err());
        assert!(vfs.truncate(to_file, 0, false).await.is_err());
        assert!(vfs.setxattr(to_file, b"user.x", b"", false, false).await.is_err());
        // Linux has no modes of links.
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        assert!(vfs.setattr(to_file, set).await.is_err());
        let made = vfs.create(Handle::ROOT, &name("to nothing"), OWNER, false, BOTH).await;
        assert_eq!(made.map(|made| made.0).unwrap_err().status, Status::Loop);
        let path = vfs.walk_path(b"to file", true).await;
        assert_eq!(path.unwrap_err().status, Status::NotFound, "`..` of the root is the root");
        vfs.link(to_file, Handle::ROOT, &name("linked")).await.unwrap();
        assert_eq!(look("linked").await.kind, Kind::Symlink);
    });
    let file = std::fs::metadata(outside.join("file")).unwrap();
    assert_eq!((file.len(), file.nlink()), (7, 1));
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}

/// A file system in memory, mounted until this is dropped.
struct Mounted<'a>(&'a std::path::Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_file_system_that_is_mounted_below_is_entered() {
    let room = tempfile::tempdir().unwrap();
    let dir = room.path().to_owned();
    let below = dir.join("below");
    std::fs::create_dir(&below).unwrap();
    let mount = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&below).output();
    if !mount.is_ok_and(|done| done.status.success()) {
        return skipped("nothing can be mounted");
    }
    let _mounted = Mounted(&below);
    run(LocalOptions::new(&dir), |vfs, _| async move {
        let below = vfs.lookup(Handle::ROOT, &name("below")).await.unwrap();
        let inner = vfs.mkdir(below.handle, &name("inner"), DIR_OWNER).await.unwrap();
        for attr in [&below, &inner] {
            assert!(attr.handle.0 >= 1 << 63, "{:x} is no number of another device", attr.handle.0);
        }
        assert_eq!(vfs.getattr(below.handle).await.unwrap().parent, Handle::ROOT);
        assert_eq!(vfs.getattr(inner.handle).await.unwrap().parent, below.handle);
        let mut listing = vfs.opendir(Handle::ROOT, Duration::ZERO);
        let listed = listing.next(false).await.unwrap().unwrap();
        assert_eq!(listed.entry.handle, below.handle, "not the directory that the mount hides");
        let made = vfs.create(inner.handle, &name("file"), OWNER, true, BOTH).await.unwrap();
        let moved =
            vfs.rename(inner.handle, &name("file"), Handle::ROOT, &name("x"), Default::default()).await;
        assert_eq!(moved.unwrap_err().errno(), 18, "EXDEV: programs copy then");
        made.2.write(0, Bytes::from_static(b"x")).await.unwrap();
        vfs.sync_all().await.unwrap();
    });
}

#[test]
fn a_file_that_others_change_cut_and_remove_while_it_is_open_is_read_as_it_is_then() {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("file");
    std::fs::write(&path, "0123456789").unwrap();
    run(LocalOptions::new(room.path()), |vfs, _| async move {
        let handle = vfs.lookup(Handle::ROOT, &name("file")).await.unwrap().handle;
        let file = vfs.open(handle, BOTH).await.unwrap();
        let read = async || file.read(0, 99).await.unwrap();
        assert_eq!(&read().await[..], b"0123456789");
        std::fs::File::options().write(true).open(&path).unwrap().set_len(4).unwrap();
        assert_eq!((&read().await[..], vfs.getattr(handle).await.unwrap().size), (&b"0123"[..], 4));
        std::fs::write(&path, "changed").unwrap();
        assert_eq!(&read().await[..], b"changed");
        std::fs::remove_file(&path).unwrap();
        file.write(7, Bytes::from_static(b" and gone")).await.unwrap();
        assert_eq!(&read().await[..], b"changed and gone");
        assert_eq!(vfs.lookup(Handle::ROOT, &name("file")).await.unwrap_err().status, Status::NotFound);
        file.close().await.unwrap();
        assert_eq!(vfs.getattr(handle).await.unwrap_err().status, Status::Stale);
    });
}

#[test]
fn a_full_disk_is_said_and_what_was_written_before_stays() {
    let room = tempfile::tempdir().unwrap();
    let small = ["-t", "tmpfs", "-o", "size=256k", "none"];
    let mount = Command::new("mount").args(small).arg(room.path()).output();
    if !mount.is_ok_and(|done| done.status.success()) {
        return skipped("nothing can be mounted");
    }
    let _mounted = Mounted(room.path());
    run(LocalOptions::new(room.path()), |vfs, _| async move {
        let make = async |text| vfs.create(Handle::ROOT, &name(text), OWNER, true, BOTH).await.unwrap().2;
        let (before, large) = (make("before").await, make("large").await);
        before.write(0, Bytes::from_static(b"kept")).await.unwrap();
        let refused = large.write(0, vec![1; 1 << 20].into()).await.unwrap_err();
        assert_eq!((refused.status, refused.object), (Status::NoSpace, Some(large.handle())));
        assert_eq!(&before.read(0, 99).await.unwrap()[..], b"kept");
        vfs.truncate(large.handle(), 0, false).await.unwrap();
        before.write(4, vec![2; 100 << 10].into()).await.unwrap();
        assert_eq!(vfs.getattr(before.handle()).await.unwrap().size, (100 << 10) + 4);
    });
}
