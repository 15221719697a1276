//! The pass-through mount, mounted: it behaves as its source directory.
//!
//! These tests mount. Where there is no `/dev/fuse` they cannot run, and say so.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use shoal_bench::passthrough::{Mounted, PassthroughOptions, spawn};
use shoal_bench::{Concurrency, Directory, IoOptions, SharedLayout, SmallOptions, Team, Workload};
use tempfile::TempDir;

#[path = "../../../tests/skipped.rs"]
mod skipped;
use skipped::skipped;

struct Mount {
    // Dropped in this order: first the mount, then the directories.
    mounted: Mounted,
    source: TempDir,
    _point: TempDir,
}

impl Mount {
    /// `None` where this machine has no FUSE.
    fn new(options: PassthroughOptions) -> Option<Mount> {
        if !Path::new("/dev/fuse").exists() {
            skipped("no /dev/fuse");
            return None;
        }
        // Not in /tmp, which may have no extended attributes.
        let (source, point) = (tempfile::tempdir_in(".").unwrap(), tempfile::tempdir().unwrap());
        let mounted = spawn(source.path(), point.path(), &options).unwrap();
        Some(Mount { mounted, source, _point: point })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mounted.mountpoint().join(name)
    }

    fn behind(&self, name: &str) -> PathBuf {
        self.source.path().join(name)
    }
}

fn small(workers: usize) -> (Team, Workload) {
    let options = SmallOptions { files: 150, bytes: 5000, verify: true, readdirplus: false };
    (Team { workers, concurrency: Concurrency::Threads }, Workload::Small(options))
}

#[test]
fn both_workloads_run_through_the_mount_however_it_caches() {
    let ttl = PassthroughOptions::default().ttl;
    for (ttl, direct_io, readdirplus) in
        [(ttl, false, true), (Duration::ZERO, false, true), (ttl, true, false)]
    {
        let options = PassthroughOptions { ttl, direct_io, readdirplus, ..PassthroughOptions::default() };
        let Some(mount) = Mount::new(options) else { return };
        let target = Directory::new("passthrough", mount.mounted.mountpoint());
        let (team, workload) = small(3);
        let run = team.run(&target, &workload).unwrap();
        assert_eq!(run.phases[1].ops, 450);
        let shared = Some(SharedLayout::Strided);
        let io = IoOptions { bytes: 940_160, block: 47_008, shared, verify: true, ..IoOptions::default() };
        team.run(&target, &Workload::Io(io)).unwrap();
        assert_eq!(fs::read_dir(mount.source.path()).unwrap().count(), 0);
    }
}

#[test]
fn files_are_those_of_the_directory_behind() {
    let Some(mount) = Mount::new(PassthroughOptions::default()) else { return };
    fs::write(mount.path("a"), b"through the mount").unwrap();
    assert_eq!(fs::read(mount.behind("a")).unwrap(), b"through the mount");
    fs::write(mount.behind("b"), b"from behind").unwrap();
    assert_eq!(fs::read(mount.path("b")).unwrap(), b"from behind");
    let (front, back) = (fs::metadata(mount.path("a")).unwrap(), fs::metadata(mount.behind("a")).unwrap());
    assert_eq!((front.ino(), front.len(), front.mode()), (back.ino(), back.len(), back.mode()));

    let mut file = OpenOptions::new().read(true).append(true).open(mount.path("a")).unwrap();
    file.write_all(b", appended").unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(mount.behind("a")).unwrap(), b"through the mount, appended");
    file.set_len(7).unwrap();
    assert_eq!(fs::read(mount.path("a")).unwrap(), b"through");
    fs::remove_file(mount.path("a")).unwrap();
    let mut rest = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "through", "a removed file can be read while it is open");
    assert!(!mount.behind("a").exists());
    assert_eq!(File::open(mount.path("a")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn names_links_and_kinds_are_those_of_the_directory_behind() {
    let Some(mount) = Mount::new(PassthroughOptions::default()) else { return };
    fs::create_dir(mount.path("d")).unwrap();
    assert_eq!(fs::create_dir(mount.path("d")).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    fs::write(mount.path("d/a"), b"x").unwrap();
    assert_eq!(fs::remove_dir(mount.path("d")).unwrap_err().kind(), std::io::ErrorKind::DirectoryNotEmpty);
    fs::hard_link(mount.path("d/a"), mount.path("b")).unwrap();
    assert_eq!(fs::metadata(mount.path("d/a")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(mount.path("d/a")).unwrap().ino(), fs::metadata(mount.path("b")).unwrap().ino());
    symlink("d/a", mount.path("s")).unwrap();
    assert_eq!(fs::read_link(mount.path("s")).unwrap(), Path::new("d/a"));
    assert_eq!(fs::read(mount.path("s")).unwrap(), b"x");
    fs::rename(mount.path("b"), mount.path("d/c")).unwrap();
    assert!(mount.behind("d/c").exists() && !mount.path("b").exists());
    rustix::fs::mkfifoat(rustix::fs::CWD, mount.path("pipe"), rustix::fs::Mode::RUSR).unwrap();
    assert!(fs::symlink_metadata(mount.behind("pipe")).unwrap().file_type().is_fifo());
    assert!(rustix::fs::statvfs(mount.mounted.mountpoint()).unwrap().f_blocks > 0);
}

#[test]
fn attributes_that_are_set_arrive_and_come_back() {
    let Some(mount) = Mount::new(PassthroughOptions::default()) else { return };
    fs::write(mount.path("a"), b"x").unwrap();
    fs::set_permissions(mount.path("a"), fs::Permissions::from_mode(0o640)).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    File::open(mount.path("a")).unwrap().set_modified(long_ago).unwrap();
    for path in [mount.path("a"), mount.behind("a")] {
        let metadata = fs::metadata(path).unwrap();
        assert_eq!(metadata.mode() & 0o7777, 0o640);
        assert_eq!(metadata.modified().unwrap(), long_ago);
    }
    let (name, none) = ("user.shoal", rustix::fs::XattrFlags::empty());
    rustix::fs::setxattr(mount.path("a"), name, b"a value", none).unwrap();
    let mut value = [0u8; 64];
    let len = rustix::fs::getxattr(mount.path("a"), name, &mut value).unwrap();
    assert_eq!(&value[..len], b"a value");
    let len = rustix::fs::listxattr(mount.path("a"), &mut value).unwrap();
    assert_eq!(&value[..len], b"user.shoal\0");
    assert_eq!(rustix::fs::getxattr(mount.path("a"), name, &mut value[..2]), Err(rustix::io::Errno::RANGE));
    rustix::fs::removexattr(mount.path("a"), name).unwrap();
    assert!(rustix::fs::getxattr(mount.behind("a"), name, &mut value).is_err());
}

#[test]
fn a_mount_without_extended_attributes_says_so_and_one_that_asks_for_changes_sees_them() {
    let options =
        PassthroughOptions { xattr: false, auto_inval: true, ttl: Duration::ZERO, ..Default::default() };
    let Some(mount) = Mount::new(options) else { return };
    fs::write(mount.path("a"), b"old").unwrap();
    let mut value = [0u8; 8];
    let result = rustix::fs::getxattr(mount.path("a"), "user.shoal", &mut value);
    assert_eq!(result, Err(rustix::io::Errno::OPNOTSUPP));
    let open = File::open(mount.path("a")).unwrap();
    open.read_exact_at(&mut value[..3], 0).unwrap();
    fs::write(mount.behind("a"), b"newer").unwrap();
    open.read_exact_at(&mut value[..5], 0).unwrap();
    assert_eq!(&value[..5], b"newer", "though it was open all the time");
}

/// Runs a shell in the mount.
fn shell(mount: &Mount, uid: u32, script: &str) {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script).current_dir(mount.mounted.mountpoint());
    if uid != rustix::process::getuid().as_raw() {
        command.uid(uid).gid(uid);
    }
    assert!(command.status().unwrap().success(), "{script}");
}

#[test]
fn a_mode_asked_for_is_given_though_our_own_umask_would_take_from_it() {
    let Some(mount) = Mount::new(PassthroughOptions::default()) else { return };
    shell(&mount, rustix::process::getuid().as_raw(), "umask 0; : > f; mkdir d; mkfifo p");
    let mode = |name: &str| fs::symlink_metadata(mount.behind(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("f"), mode("d"), mode("p")), (0o666, 0o777, 0o666));
}

#[test]
fn what_another_user_makes_is_that_users_and_a_write_takes_privileges_away() {
    const NOBODY: u32 = 65_534;
    if !rustix::process::getuid().is_root() {
        skipped("only root can become another user");
        return;
    }
    let Some(mount) = Mount::new(PassthroughOptions { allow_other: true, ..PassthroughOptions::default() })
    else {
        return;
    };
    fs::set_permissions(mount.source.path(), fs::Permissions::from_mode(0o777)).unwrap();
    shell(&mount, NOBODY, "umask 077; : > f; mkdir d; ln -s f s; mkfifo p");
    for name in ["f", "d", "s", "p"] {
        let metadata = fs::symlink_metadata(mount.behind(name)).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (NOBODY, NOBODY), "{name}");
    }
    assert_eq!(fs::metadata(mount.behind("d")).unwrap().mode() & 0o7777, 0o700);

    for (name, script) in [("written", "echo x >> written"), ("emptied", ": > emptied")] {
        fs::write(mount.behind(name), b"program").unwrap();
        fs::set_permissions(mount.behind(name), fs::Permissions::from_mode(0o6777)).unwrap();
        shell(&mount, NOBODY, script);
        assert_eq!(fs::metadata(mount.behind(name)).unwrap().mode() & 0o7777, 0o777, "{name}");
    }
}

#[test]
fn a_large_directory_is_listed_whole_from_any_place() {
    let Some(mount) = Mount::new(PassthroughOptions::default()) else { return };
    for i in 0..1500 {
        File::create(mount.behind(&format!("a-name-of-some-length-{i:05}"))).unwrap();
    }
    let names = |dir: &Path| {
        let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let all = names(mount.source.path());
    assert_eq!(all.len(), 1500);
    assert_eq!(names(mount.mounted.mountpoint()), all);
    let mut dir = rustix::fs::Dir::new(File::open(mount.mounted.mountpoint()).unwrap()).unwrap();
    let first: Vec<_> = dir.by_ref().take(700).map(|entry| entry.unwrap().file_name().to_owned()).collect();
    dir.rewind();
    let again: Vec<_> = dir.by_ref().map(|entry| entry.unwrap().file_name().to_owned()).collect();
    assert_eq!(again.len(), 1502, "with . and ..");
    assert_eq!(again[..700], first);
}

#[test]
fn holes_are_found_made_and_copied_around() {
    let Some(mount) = Mount::new(PassthroughOptions::default()) else { return };
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(mount.path("a")).unwrap();
    file.write_all_at(b"end", 1 << 20).unwrap();
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).unwrap(), 1 << 20);
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 2 << 20).unwrap();
    assert_eq!(fs::metadata(mount.behind("a")).unwrap().len(), 2 << 20);
    assert_eq!(fs::copy(mount.path("a"), mount.path("b")).unwrap(), 2 << 20);
    assert_eq!(fs::read(mount.behind("a")).unwrap(), fs::read(mount.behind("b")).unwrap());
}

#[test]
fn unmounting_leaves_an_empty_directory_and_a_mount_in_use_is_detached() {
    let Some(mount) = Mount::new(PassthroughOptions::default()) else { return };
    let point = mount.mounted.mountpoint().to_owned();
    fs::write(mount.path("a"), b"x").unwrap();
    mount.mounted.unmount().unwrap();
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0);

    let mounted = spawn(mount.source.path(), &point, &PassthroughOptions::default()).unwrap();
    let mut open = File::open(point.join("a")).unwrap();
    let error = mounted.unmount().unwrap_err();
    assert!(format!("{error:#}").contains("still in use"), "{error:#}");
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0, "its name is free");
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "x", "who has it open can go on");
}

#[test]
fn a_mount_that_would_contain_itself_is_refused() {
    let source = tempfile::tempdir().unwrap();
    let point = source.path().join("point");
    fs::create_dir(&point).unwrap();
    assert!(spawn(source.path(), &point, &PassthroughOptions::default()).is_err());
    let none = PassthroughOptions { threads: 0, ..PassthroughOptions::default() };
    assert!(spawn(&point, source.path(), &none).is_err());
}
