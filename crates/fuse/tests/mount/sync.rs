//! The coverage and the errors of an fsync: of a file that is open several times, of a directory over several
//! servers, of a whole mount.

use crate::cluster::Cluster;
use crate::{Mounted, errno};
use rustix::mm::{MapFlags, ProtFlags};
use shoal_client::Client;
use shoal_fuse::{MountHandle, MountOptions};
use shoal_proto::Switches;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// Over all three servers.
const LARGE: usize = 4 * (64 << 10);

fn read_write(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// Messages so far that a sync of this kind sent.
fn messages(handle: &MountHandle<Client>, kind: &str) -> u64 {
    let counters = handle.ask(Duration::from_secs(10), Client::counters).expect("the mount answers");
    counters.messages.get(kind).copied().unwrap_or(0)
}

/// A mount whose kernel asks for no attributes by itself: those of a file that a server has lost are an
/// error.
fn believing() -> Mounted {
    Mounted::with(&MountOptions { cache: Duration::from_secs(3600), ..MountOptions::default() })
}

fn eio(synced: std::io::Result<()>) -> bool {
    synced.is_err_and(|error| errno(&error) == libc::EIO)
}

#[test]
fn an_fsync_covers_what_was_written_through_another_descriptor_and_each_tells_of_a_loss_once() {
    let mut fs_ = believing();
    let path = fs_.path("f");
    // Opened on the empty file: as one that only syncs what others write.
    let (syncing, writing) = (read_write(&path), read_write(&path));
    writing.write_all_at(&[1; LARGE], 0).unwrap();
    let before = messages(&fs_.handle, "fsync");
    syncing.sync_all().unwrap();
    assert!(messages(&fs_.handle, "fsync") >= before + 3, "all servers have some of it");
    writing.write_all_at(&[2; LARGE], 0).unwrap();
    fs_.cluster.lose(2);
    assert!(eio(syncing.sync_all()));
    syncing.sync_all().unwrap();
    let later = read_write(&path);
    later.sync_all().unwrap();
    assert!(eio(writing.sync_all()), "it was open before anybody was told");
    writing.sync_all().unwrap();
}

#[test]
fn a_directory_is_synced_where_a_message_has_one_operation() {
    let switches = Switches { compound: false, ..Switches::OURS };
    let (cluster, dir) = (Cluster::start_with(2, switches), TempDir::new().unwrap());
    let handle = cluster.mount(&dir.path().join("mnt"), &MountOptions::default());
    fs::create_dir(handle.mountpoint().join("d")).unwrap();
    File::open(handle.mountpoint().join("d")).unwrap().sync_all().unwrap();
    assert_eq!(messages(&handle, "fsyncdir"), 1);
}

#[test]
fn a_loss_of_what_was_written_through_a_closed_descriptor_is_told() {
    let mut fs_ = believing();
    let path = fs_.path("f");
    fs::write(&path, [1; LARGE]).unwrap();
    fs_.cluster.lose(2);
    let file = read_write(&path);
    assert!(eio(file.sync_all()));
    file.sync_all().unwrap();
}

#[test]
fn a_loss_of_what_was_stored_in_a_mapping_is_told_through_any_descriptor() {
    let mut fs_ = Mounted::new();
    let path = fs_.path("f");
    let (syncing, mapping) = (read_write(&path), read_write(&path));
    fs::write(&path, [0; LARGE]).unwrap();
    syncing.sync_all().unwrap();
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice; the file has `LARGE` bytes and is not cut
    // meanwhile.
    let map = unsafe { rustix::mm::mmap(std::ptr::null_mut(), LARGE, prot, MapFlags::SHARED, &mapping, 0) };
    let map = map.unwrap();
    // SAFETY: the mapping has `LARGE` bytes, is ours alone, and is not used after its end below.
    unsafe { std::slice::from_raw_parts_mut(map.cast::<u8>(), LARGE) }.fill(7);
    // The kernel writes the stored bytes to the servers, and syncs nothing. `munmap` would do so too, but
    // with the process's memory locked, in which the servers of this test are: so it finds nothing to do.
    rustix::fs::syncfs(&mapping).unwrap();
    assert!(fs::read(&path).unwrap() == [7; LARGE]);
    // SAFETY: the mapping made above, whole.
    unsafe { rustix::mm::munmap(map, LARGE) }.unwrap();
    drop(mapping);
    fs_.cluster.lose(2);
    assert!(eio(syncing.sync_all()));
    syncing.sync_all().unwrap();
}

#[test]
fn an_fsync_of_a_directory_over_several_servers_asks_them_all() {
    let switches = Switches { split_entries: 16, ..Switches::OURS };
    let (cluster, dir) = (Cluster::start_with(3, switches), TempDir::new().unwrap());
    let handle = cluster.mount(&dir.path().join("mnt"), &MountOptions::default());
    let path = handle.mountpoint().join("d");
    fs::create_dir(&path).unwrap();
    let open = File::open(&path).unwrap();
    let sync = || {
        let before = messages(&handle, "fsyncdir");
        open.sync_all().unwrap();
        messages(&handle, "fsyncdir") - before
    };
    assert_eq!(sync(), 1);
    for n in 0..64 {
        File::create(path.join(format!("{n}"))).unwrap();
    }
    assert_eq!(sync(), 3, "each server has a shard");
    drop(open);
    drop(handle);
}

#[test]
fn syncfs_sends_nothing_and_a_sync_of_the_mount_asks_all_servers_and_tells_of_a_loss_once() {
    let mut fs_ = Mounted::new();
    let (path, point) = (fs_.path("f"), fs_.handle.mountpoint().to_owned());
    fs::write(&path, [1; LARGE]).unwrap();
    let before = (messages(&fs_.handle, "sync"), messages(&fs_.handle, "fsync"));
    rustix::fs::syncfs(File::open(&point).unwrap()).unwrap();
    let after = (messages(&fs_.handle, "sync"), messages(&fs_.handle, "fsync"));
    assert_eq!(before, after, "the kernel now asks: let the mount answer FUSE_SYNCFS");
    shoal_fuse::sync_all(&point).unwrap();
    // Each server, and the file's one for its layout.
    assert_eq!(messages(&fs_.handle, "sync"), before.0 + 3 + 1);
    fs::write(&path, [2; LARGE]).unwrap();
    fs_.cluster.lose(2);
    assert!(eio(shoal_fuse::sync_all(&point)));
    shoal_fuse::sync_all(&point).unwrap();
    let elsewhere = TempDir::new().unwrap();
    let refused = shoal_fuse::sync_all(elsewhere.path()).unwrap_err();
    assert_eq!(errno(&refused), libc::ENOTTY);
}
