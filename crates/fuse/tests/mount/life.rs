//! Mounting and unmounting.

use crate::cluster::Cluster;
use crate::{Mounted, is_root};
use shoal_client::Client;
use shoal_fuse::{MountError, MountOptions, clear_dead_mount, unmount};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(30);

fn kind_and_source(point: &Path) -> Option<(String, String)> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == point.to_str())?;
    let mut words = line.split(" - ").nth(1)?.split(' ');
    Some((words.next()?.to_owned(), words.next()?.to_owned()))
}

#[test]
fn the_table_of_mounts_names_the_file_system_and_its_address() {
    let name = "shoal://127.0.0.1:7441,127.0.0.1:7442/demo".to_owned();
    let fs_ = Mounted::with(&MountOptions { name: name.clone(), ..MountOptions::default() });
    let point = fs_.handle.mountpoint().to_owned();
    assert_eq!(kind_and_source(&point), Some(("fuse.shoal".to_owned(), name)));
    fs_.handle.stop(LONG).unwrap();
    assert_eq!(kind_and_source(&point), None);
}

#[test]
fn a_live_mount_and_a_full_directory_are_not_mounted_over() {
    let fs_ = Mounted::new();
    let refused = |at: &Path| match fs_.cluster.try_mount(at, &MountOptions::default()) {
        Err(MountError::Refused(words)) => words,
        other => panic!("{other:?}"),
    };
    assert!(refused(fs_.handle.mountpoint()).contains("mounted at"));
    let full = TempDir::new().unwrap();
    fs::write(full.path().join("file"), b"").unwrap();
    assert!(refused(full.path()).contains("not empty"));
}

#[test]
fn an_unmount_by_somebody_else_is_noticed() {
    let fs_ = Mounted::new();
    fs::write(fs_.path("f"), b"x").unwrap();
    assert!(!fs_.handle.has_ended());
    unmount(fs_.handle.mountpoint(), false).unwrap();
    fs_.handle.wait();
    assert!(fs_.handle.has_ended());
    // It can be mounted again, and all is there.
    let again = fs_.cluster.mount(fs_.handle.mountpoint(), &MountOptions::default());
    assert_eq!(fs::read(again.mountpoint().join("f")).unwrap(), b"x");
}

fn mount_tmpfs(point: &Path) {
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("other", point, "tmpfs", flags, None).unwrap();
}

/// So often a race between an end and the next beginning is tried.
const TRIES: usize = 20;

#[test]
fn what_is_mounted_at_the_place_of_a_mount_that_ends_stays() {
    if !is_root("mount over a mount") {
        return;
    }
    let (cluster, dir) = (Cluster::start(1), TempDir::new().unwrap());
    for _ in 0..TRIES {
        let handle = cluster.mount(dir.path(), &MountOptions::default());
        let point = handle.mountpoint().to_owned();
        rustix::mount::unmount(&point, rustix::mount::UnmountFlags::empty()).unwrap();
        mount_tmpfs(&point);
        handle.wait();
        drop(handle);
        assert_eq!(kind_and_source(&point).map(|(kind, _)| kind).as_deref(), Some("tmpfs"));
        rustix::mount::unmount(&point, rustix::mount::UnmountFlags::empty()).unwrap();
    }
}

#[test]
fn a_mount_that_follows_another_at_its_place_stays_when_the_first_has_ended() {
    let (cluster, dir) = (Cluster::start(1), TempDir::new().unwrap());
    let mut handle = cluster.mount(dir.path(), &MountOptions::default());
    for n in 0..TRIES {
        unmount(handle.mountpoint(), false).unwrap();
        let next = cluster.mount(dir.path(), &MountOptions::default());
        handle.wait();
        drop(handle);
        fs::write(dir.path().join(format!("{n}")), b"x").unwrap();
        assert!(next.mountpoint().join("0").exists());
        handle = next;
    }
}

#[test]
fn a_mount_that_another_one_covers_is_not_ended_and_that_is_said_at_once() {
    if !is_root("mount over a mount") {
        return;
    }
    let fs_ = Mounted::new();
    let point = fs_.handle.mountpoint().to_owned();
    mount_tmpfs(&point);
    let refused = fs_.handle.stop(LONG).unwrap_err();
    assert!(matches!(&refused, MountError::Refused(words) if words.contains("tmpfs")), "{refused}");
    rustix::mount::unmount(&point, rustix::mount::UnmountFlags::empty()).unwrap();
    assert_eq!(kind_and_source(&point).unwrap().0, "fuse.shoal");
    unmount(&point, false).unwrap();
    assert_eq!(kind_and_source(&point), None);
}

#[test]
fn a_mount_whose_connection_somebody_ended_is_taken_away() {
    let control = Path::new("/sys/fs/fuse/connections");
    if !is_root("mount over a mount") || !control.is_dir() {
        return;
    }
    let fs_ = Mounted::new();
    let point = fs_.handle.mountpoint().to_owned();
    let device = fs::metadata(&point).unwrap().dev();
    let abort = control.join(rustix::fs::minor(device).to_string()).join("abort");
    if !abort.exists() {
        // The control file system is not mounted.
        return;
    }
    fs::write(abort, b"1").unwrap();
    fs_.handle.wait();
    assert_eq!(kind_and_source(&point), None);
}

#[test]
fn a_mount_in_use_is_not_unmounted_but_stopped_it_is_taken_away() {
    let fs_ = Mounted::new();
    let mut file = File::create(fs_.path("f")).unwrap();
    file.write_all(b"x").unwrap();
    assert!(matches!(unmount(fs_.handle.mountpoint(), false), Err(MountError::Busy(_))));
    let point = fs_.handle.mountpoint().to_owned();
    if is_root("end a mount that is in use") {
        fs_.handle.stop(Duration::from_millis(50)).unwrap();
        assert_eq!(kind_and_source(&point), None);
        assert!(file.write_all(b"y").is_err());
    }
}

#[test]
fn a_dead_mount_is_cleared_and_mounted_on() {
    if !is_root("make a mount without a process") {
        return;
    }
    let (cluster, dir) = (Cluster::start(1), TempDir::new().unwrap());
    let point = dir.path().canonicalize().unwrap();
    // The remains of a killed process: a mount whose device no process holds.
    let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&device);
    let data = std::ffi::CString::new(format!("fd={fd},rootmode=40000,user_id=0,group_id=0")).unwrap();
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("dead", &point, "fuse", flags, &*data).unwrap();
    assert!(!clear_dead_mount(&std::env::temp_dir()).unwrap());
    drop(device);
    assert!(fs::read_dir(&point).is_err());
    let handle = cluster.mount(&point, &MountOptions::default());
    fs::write(point.join("f"), b"alive").unwrap();
    assert_eq!(kind_and_source(&point).unwrap().0, "fuse.shoal");
    assert!(!clear_dead_mount(&point).unwrap());
    handle.stop(LONG).unwrap();
}

#[test]
fn a_mount_of_a_file_system_that_is_not_there_fails_in_words() {
    let dir = TempDir::new().unwrap();
    let options = {
        let cluster = Cluster::start(1);
        shoal_client::Options { timeout: Duration::from_millis(300), ..cluster.client() }
    };
    let error = shoal_fuse::Mount::start(options, dir.path(), &MountOptions::default()).unwrap_err();
    assert!(matches!(error, MountError::Client(_)), "{error}");
    assert_eq!(kind_and_source(dir.path()), None);
}

#[test]
fn a_read_only_mount_changes_nothing() {
    let fs_ = Mounted::new();
    fs::write(fs_.path("f"), b"x").unwrap();
    let second = fs_.second(&MountOptions { read_only: true, ..MountOptions::default() });
    assert_eq!(fs::read(second.mountpoint().join("f")).unwrap(), b"x");
    let refused = fs::write(second.mountpoint().join("g"), b"").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
}

#[test]
fn a_read_only_mount_changes_nothing_though_its_kernel_was_told_to_write() {
    if !is_root("mount over a mount") {
        return;
    }
    let fs_ = Mounted::new();
    fs::write(fs_.path("f"), b"x").unwrap();
    let second = fs_.second(&MountOptions { read_only: true, ..MountOptions::default() });
    let point = second.mountpoint().to_owned();
    rustix::mount::mount_remount(&point, rustix::mount::MountFlags::NOSUID, "").unwrap();
    let at = |name: &str| point.join(name);
    let refused = |done: std::io::Result<()>| assert_eq!(done.unwrap_err().raw_os_error(), Some(libc::EROFS));
    refused(fs::write(at("g"), b""));
    refused(File::options().append(true).open(at("f")).map(drop));
    refused(fs::create_dir(at("d")));
    refused(fs::remove_file(at("f")));
    refused(fs::rename(at("f"), at("g")));
    refused(fs::set_permissions(at("f"), fs::Permissions::from_mode(0o600)));
    refused(xattr::set(at("f"), "user.a", b""));
    assert_eq!(fs::read(at("f")).unwrap(), b"x");
    assert_eq!(crate::names_in(&point), ["f"]);
    second.stop(LONG).unwrap();
}

#[test]
fn programs_devices_and_set_user_id_are_as_the_options_say() {
    if !is_root("mount over a mount") {
        return;
    }
    let fs_ = Mounted::new();
    let usual = fs_.handle.mountpoint().to_owned();
    fs::write(usual.join("program"), b"#!/bin/sh\nexit 7\n").unwrap();
    fs::set_permissions(usual.join("program"), fs::Permissions::from_mode(0o755)).unwrap();
    let null = rustix::fs::makedev(1, 3);
    let kind = rustix::fs::FileType::CharacterDevice;
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, usual.join("null"), kind, mode, null).unwrap();
    assert!(fs::metadata(usual.join("null")).unwrap().file_type().is_char_device());
    let runs = |point: &Path| Command::new(point.join("program")).status().map(|status| status.code());
    let opens = |point: &Path| File::open(point.join("null")).map(drop).map_err(|error| crate::errno(&error));
    let no_suid = |point: &Path| {
        let flags = rustix::fs::statvfs(point).unwrap().f_flag;
        flags.contains(rustix::fs::StatVfsMountFlags::NOSUID)
    };
    assert_eq!((runs(&usual).unwrap(), opens(&usual), no_suid(&usual)), (Some(7), Err(libc::EACCES), true));
    let options = MountOptions { suid: true, dev: true, exec: false, ..MountOptions::default() };
    let second = fs_.second(&options);
    let other = second.mountpoint();
    assert_eq!(runs(other).unwrap_err().raw_os_error(), Some(libc::EACCES));
    assert_eq!((opens(other), no_suid(other)), (Ok(()), false));
}

#[test]
fn no_handle_outlives_the_kernels_inode_so_none_is_given_out_and_no_time_of_birth_is_told() {
    let fs_ = Mounted::new();
    let path = fs_.path("f");
    fs::write(&path, b"x").unwrap();
    let mask = rustix::fs::StatxFlags::BASIC_STATS | rustix::fs::StatxFlags::BTIME;
    let stat = rustix::fs::statx(rustix::fs::CWD, &path, rustix::fs::AtFlags::empty(), mask).unwrap();
    assert_eq!(stat.stx_mask & rustix::fs::StatxFlags::BTIME.bits(), 0);
    assert_eq!(ask_for_a_handle(&path), Err(libc::EOPNOTSUPP));
}

/// As an NFS server in user space does.
fn ask_for_a_handle(path: &Path) -> Result<(), i32> {
    #[repr(C)]
    struct Room {
        handle: libc::file_handle,
        bytes: [u8; 128],
    }
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let handle = libc::file_handle { handle_bytes: 128, handle_type: 0, f_handle: [] };
    let (mut room, mut mount) = (Room { handle, bytes: [0; 128] }, 0);
    let handle = std::ptr::from_mut(&mut room).cast::<libc::file_handle>();
    // SAFETY: the handle is followed by as many bytes of room as it says, and all outlive the call.
    let done = unsafe { libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), handle, &mut mount, 0) };
    match done {
        0 => Ok(()),
        _ => Err(crate::errno(&std::io::Error::last_os_error())),
    }
}

#[test]
fn files_are_not_counted_and_the_free_ones_are_what_the_free_bytes_have_room_for() {
    let fs_ = Mounted::new();
    let point = fs_.handle.mountpoint();
    let before = rustix::fs::statvfs(point).unwrap();
    (0..50).for_each(|n| fs::write(fs_.path(&format!("f{n}")), b"content").unwrap());
    for space in [before, rustix::fs::statvfs(point).unwrap()] {
        assert_eq!(space.f_files - space.f_ffree, 0, "what `df -i` shows as used");
        assert_eq!((space.f_ffree, space.f_favail), (space.f_bavail * space.f_bsize / 4096, space.f_ffree));
        assert!(space.f_ffree > 0);
    }
}

#[test]
fn space_and_counts_are_told() {
    let fs_ = Mounted::new();
    let space = rustix::fs::statvfs(fs_.handle.mountpoint()).unwrap();
    assert!(space.f_blocks > 0 && space.f_bavail <= space.f_blocks);
    assert_eq!(space.f_namemax, 255);
    fs::create_dir(fs_.path("d")).unwrap();
    assert_eq!(fs_.handle.counts().of(shoal_fuse::Verb::Mkdir), 1);
    let counters = fs_.handle.ask(LONG, Client::counters).unwrap();
    assert!(counters.messages_all() > 0);
}
