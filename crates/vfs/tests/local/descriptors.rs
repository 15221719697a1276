//! Objects beyond the limit of descriptors.

use super::{BOTH, DIR_OWNER, OWNER, name, run};
use bytes::Bytes;
use shoal_proto::{Handle, Rights, Status};
use shoal_vfs::{Listing, Local, LocalOptions, RenameFlags, Vfs, VfsFile};
use std::path::Path;
use std::time::Duration;

const LIMIT: usize = 64;
const DIRECTORIES: usize = 60;
const FILES: usize = 50;

/// Descriptors of this process that lead into a directory, but to the directory itself.
fn held_in(dir: &Path) -> usize {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let targets = entries.filter_map(|link| std::fs::read_link(link).ok());
    targets.filter(|target| target.starts_with(dir) && target != dir).count()
}

/// The handles of all directories, each with those of its files.
async fn tree(vfs: &Local) -> Vec<(Handle, Vec<Handle>)> {
    let mut directories = Vec::new();
    for d in 0..DIRECTORIES {
        // Every other one lies in the one before it.
        let parent = if d % 2 == 1 { directories.last().map(|(dir, _)| *dir).unwrap() } else { Handle::ROOT };
        let dir = vfs.mkdir(parent, &name(&format!("d{d}")), DIR_OWNER).await.unwrap().handle;
        vfs.referred(dir);
        let mut files = Vec::new();
        for f in 0..FILES {
            let (attr, _, file) = vfs.create(dir, &name(&format!("f{f}")), OWNER, true, BOTH).await.unwrap();
            vfs.referred(attr.handle);
            file.write(0, Bytes::from(format!("{d} {f}"))).await.unwrap();
            files.push(attr.handle);
        }
        directories.push((dir, files));
    }
    directories
}

async fn contents(vfs: &Local, object: Handle) -> String {
    let file = vfs.open(object, Rights::READ).await.unwrap();
    String::from_utf8(file.read(0, 99).await.unwrap().to_vec()).unwrap()
}

#[test]
fn a_tree_of_thousands_of_objects_is_served_with_few_descriptors() {
    let room = tempfile::tempdir().unwrap();
    let dir = room.path().canonicalize().unwrap();
    let options = LocalOptions { descriptors: Some(LIMIT), ..LocalOptions::new(&dir) };
    run(options, |vfs, _| async move {
        let tree = tree(&vfs).await;
        assert!(held_in(&dir) <= LIMIT, "{} are held", held_in(&dir));
        for (d, (directory, files)) in tree.iter().enumerate() {
            let mut listing = vfs.opendir(*directory, Duration::ZERO);
            while let Some(listed) = listing.next(true).await.unwrap() {
                vfs.referred(listed.entry.handle);
            }
            for (f, file) in files.iter().enumerate() {
                assert_eq!(contents(&vfs, *file).await, format!("{d} {f}"));
            }
        }
        assert!(held_in(&dir) <= LIMIT, "{} are held", held_in(&dir));
        // Moved here: found at their new place.
        for d in (0..DIRECTORIES).step_by(2) {
            let (from, to) = (name(&format!("d{d}")), name(&format!("moved {d}")));
            vfs.rename(Handle::ROOT, &from, Handle::ROOT, &to, RenameFlags::default()).await.unwrap();
        }
        for (d, (_, files)) in tree.iter().enumerate() {
            assert_eq!(contents(&vfs, files[7]).await, format!("{d} 7"));
        }
        // Forgotten: nothing is held for them.
        for (directory, files) in &tree {
            for object in files.iter().chain([directory]) {
                vfs.forgotten(*object, 2);
            }
        }
        assert!(held_in(&dir) <= LIMIT, "{} are held", held_in(&dir));
    });
}

#[test]
fn an_object_that_others_moved_is_stale_until_it_is_looked_up_again() {
    let room = tempfile::tempdir().unwrap();
    let dir = room.path().to_owned();
    let options = LocalOptions { descriptors: Some(0), ..LocalOptions::new(&dir) };
    run(options, |vfs, _| async move {
        let inner = vfs.mkdir(Handle::ROOT, &name("inner"), DIR_OWNER).await.unwrap().handle;
        let file = vfs.create(inner, &name("file"), OWNER, true, BOTH).await.unwrap().0.handle;
        vfs.referred(inner);
        vfs.referred(file);
        assert_eq!(vfs.getattr(file).await.unwrap().handle, file);
        std::fs::rename(dir.join("inner"), dir.join("elsewhere")).unwrap();
        std::fs::create_dir(dir.join("inner")).unwrap();
        std::fs::write(dir.join("inner/file"), "another").unwrap();
        assert_eq!(vfs.getattr(file).await.unwrap_err().status, Status::Stale);
        assert_eq!(vfs.getattr(inner).await.unwrap_err().status, Status::Stale);
        assert_eq!(vfs.lookup(Handle::ROOT, &name("elsewhere")).await.unwrap().handle, inner);
        assert_eq!(vfs.getattr(file).await.unwrap().handle, file, "its place is in the moved directory");
        let another = vfs.lookup(Handle::ROOT, &name("inner")).await.unwrap().handle;
        assert_ne!(vfs.lookup(another, &name("file")).await.unwrap().handle, file);
    });
}

#[test]
fn a_removed_object_that_a_kernel_refers_to_stays() {
    let room = tempfile::tempdir().unwrap();
    let dir = room.path().to_owned();
    let options = LocalOptions { descriptors: Some(0), ..LocalOptions::new(&dir) };
    run(options, |vfs, _| async move {
        let file = vfs.create(Handle::ROOT, &name("file"), OWNER, true, BOTH).await.unwrap().0.handle;
        vfs.referred(file);
        vfs.link(file, Handle::ROOT, &name("other")).await.unwrap();
        vfs.unlink(Handle::ROOT, &name("other")).await.unwrap();
        assert_eq!(vfs.getattr(file).await.unwrap().nlink, 1);
        assert_eq!(vfs.lookup(Handle::ROOT, &name("file")).await.unwrap().handle, file);
        let open = vfs.open(file, BOTH).await.unwrap();
        vfs.unlink(Handle::ROOT, &name("file")).await.unwrap();
        assert_eq!(vfs.getattr(file).await.unwrap().nlink, 0);
        drop(open);
        // The number may be used again only when it is forgotten.
        let canonical = dir.canonicalize().unwrap();
        assert_eq!(held_in(&canonical), 1);
        vfs.forgotten(file, 1);
        assert_eq!(held_in(&canonical), 0);
    });
}
