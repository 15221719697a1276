//! Objects that are removed while the kernel still refers to them.

use crate::{Mounted, errno};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags};
use shoal_fuse::MountOptions;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

fn mounts() -> [Mounted; 2] {
    let caching = |cache| Mounted::with(&MountOptions { cache, ..MountOptions::default() });
    [caching(Duration::ZERO), caching(Duration::from_secs(3600))]
}

fn links(object: impl AsFd) -> u32 {
    rustix::fs::statx(object, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).unwrap().stx_nlink
}

fn listed(dir: impl AsFd) -> usize {
    rustix::fs::Dir::read_from(dir).unwrap().filter_map(Result::ok).count()
}

fn make_removed(path: &Path, how: &str) -> File {
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o751)).unwrap();
    let held = File::open(path).unwrap();
    match how {
        "removed" => fs::remove_dir(path).unwrap(),
        _ => {
            let other = path.with_extension("other");
            fs::create_dir(&other).unwrap();
            fs::rename(&other, path).unwrap();
        }
    }
    held
}

#[test]
fn a_removed_directory_that_is_held_open_is_as_on_a_local_file_system() {
    for (fs_, how) in mounts().iter().flat_map(|fs_| [(fs_, "removed"), (fs_, "replaced")]) {
        let path = fs_.path(how);
        let held = make_removed(&path, how);
        let stat = held.metadata().unwrap();
        assert!(stat.is_dir());
        assert_eq!((stat.nlink(), stat.mode() & 0o7777), (0, 0o751));
        assert_eq!(stat.uid(), rustix::process::geteuid().as_raw());
        assert_ne!(fs::metadata(&path).map(|there| there.ino()).ok(), Some(stat.ino()));
        assert_eq!(listed(&held), 0);
        let again =
            rustix::fs::openat(&held, ".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert_eq!((links(&again), listed(&again)), (0, 0));
        let make = OFlags::CREATE | OFlags::WRONLY;
        let mode = Mode::from_raw_mode(0o600);
        let noent = rustix::io::Errno::NOENT;
        assert_eq!(rustix::fs::openat(&held, "new", make, mode).map(drop), Err(noent));
        assert_eq!(rustix::fs::mkdirat(&held, "new", mode), Err(noent));
        assert_eq!(rustix::fs::statat(&held, "new", AtFlags::empty()).map(drop), Err(noent));
        held.set_permissions(fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(held.metadata().unwrap().mode() & 0o7777, 0o700);
        held.sync_all().unwrap();
        // A new directory of that name is another one.
        let there = fs::metadata(&path).is_ok();
        assert_eq!(there, how == "replaced");
        assert!(!there || fs::metadata(&path).unwrap().nlink() == 2);
    }
}

#[test]
fn a_removed_working_directory_is_empty_and_takes_nothing() {
    for fs_ in mounts() {
        fs::create_dir(fs_.path("d")).unwrap();
        let script =
            "rmdir \"$PWD\"; stat -c '%h %F' . && ls -la . && ! touch x 2>/dev/null && ! mkdir y 2>/dev/null";
        let said = Command::new("sh").args(["-c", script]).current_dir(fs_.path("d")).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        assert_eq!(String::from_utf8(said.stdout).unwrap(), "0 directory\ntotal 0\n");
    }
}

#[test]
fn what_a_descriptor_of_a_path_led_to_has_no_links_when_it_is_removed() {
    for fs_ in mounts() {
        let path = |name: &str| fs_.path(name);
        fs::write(path("file"), b"x").unwrap();
        fs::create_dir(path("dir")).unwrap();
        std::os::unix::fs::symlink("nowhere", path("link")).unwrap();
        rustix::fs::mknodat(CWD, path("fifo"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        fs::write(path("two"), b"xy").unwrap();
        fs::hard_link(path("two"), path("further")).unwrap();
        for name in ["file", "dir", "link", "fifo"] {
            let flags = libc::O_PATH | libc::O_NOFOLLOW;
            let held = OpenOptions::new().read(true).custom_flags(flags).open(path(name)).unwrap();
            let kind = fs::symlink_metadata(path(name)).unwrap().file_type();
            match kind.is_dir() {
                true => fs::remove_dir(path(name)).unwrap(),
                false => fs::remove_file(path(name)).unwrap(),
            }
            let stat = held.metadata().unwrap();
            assert_eq!((stat.nlink(), stat.file_type()), (0, kind), "{name}");
            assert_eq!(fs::symlink_metadata(path(name)).map_err(|e| errno(&e)).unwrap_err(), libc::ENOENT);
        }
        let held = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path("two")).unwrap();
        fs::remove_file(path("two")).unwrap();
        assert_eq!(links(&held), 1);
        fs::remove_file(path("further")).unwrap();
        let stat = held.metadata().unwrap();
        assert_eq!((stat.nlink(), stat.len()), (0, 2));
    }
}

#[test]
fn a_directory_that_another_mount_removed_is_stale() {
    let strict = MountOptions { cache: Duration::ZERO, ..MountOptions::default() };
    let fs_ = Mounted::with(&strict);
    let second = fs_.second(&strict);
    fs::create_dir(fs_.path("d")).unwrap();
    let held = File::open(fs_.path("d")).unwrap();
    fs::remove_dir(second.mountpoint().join("d")).unwrap();
    assert_eq!(held.metadata().map(drop).map_err(|e| errno(&e)), Err(libc::ESTALE));
    assert_eq!(fs::metadata(fs_.path("d")).map(drop).map_err(|e| errno(&e)), Err(libc::ENOENT));
}

#[test]
fn trees_are_removed_from_within_as_programs_do() {
    for fs_ in mounts() {
        let tree = fs_.path("tree");
        for dir in ["a/b/c", "a/d", "e"] {
            fs::create_dir_all(tree.join(dir)).unwrap();
            fs::write(tree.join(dir).join("f"), b"x").unwrap();
        }
        let script = "find . -depth -mindepth 1 -exec rm -r {} \\; && ls -A . && cd .. && rmdir tree";
        let said = Command::new("sh").args(["-c", script]).current_dir(&tree).output().unwrap();
        assert!(said.status.success() && said.stdout.is_empty() && said.stderr.is_empty(), "{said:?}");
        assert!(!tree.exists());
    }
}
