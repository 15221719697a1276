//! Mounting and unmounting.

use crate::cluster::Cluster;
use crate::{Mounted, is_root};
use shoal_fuse::{MountError, MountOptions, clear_dead_mount, unmount};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
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
    // What a killed process leaves behind: a mount whose device nobody holds.
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
fn space_and_counts_are_told() {
    let fs_ = Mounted::new();
    let space = rustix::fs::statvfs(fs_.handle.mountpoint()).unwrap();
    assert!(space.f_blocks > 0 && space.f_bavail <= space.f_blocks);
    assert_eq!(space.f_namemax, 255);
    fs::create_dir(fs_.path("d")).unwrap();
    assert_eq!(fs_.handle.counts().of(shoal_fuse::Verb::Mkdir), 1);
    let counters = fs_.handle.client_counters(LONG).unwrap();
    assert!(counters.messages_all() > 0);
}
