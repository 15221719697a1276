//! Tests of operations on users' files that need several calls of the kernel.

use super::*;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

const BOTH: HostAccess = HostAccess { read: true, write: true };

fn host() -> (RealHost, tempfile::TempDir, HostNode) {
    let (host, room) = (RealHost::new().unwrap(), tempfile::tempdir().unwrap());
    let root = host.root(room.path()).unwrap();
    (host, room, root)
}

fn owner(mode: u32) -> HostOwner {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    HostOwner { mode, uid, gid }
}

#[test]
fn appends_from_many_threads_return_their_places() {
    const APPENDS: usize = 50;
    let (host, _room, root) = host();
    let (file, _) = host.create(&root, b"file", owner(0o600), BOTH).unwrap();
    let other = host.open(&file.node(), BOTH).unwrap();
    let placed: Vec<(u64, Vec<u8>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u8)
            .map(|thread| {
                let (host, file) = (&host, if thread < 2 { &file } else { &other });
                scope.spawn(move || {
                    let data = |n: usize| vec![thread * 50 + n as u8; 1 + 37 * n];
                    let append = |n| (host.append(file, &data(n)).unwrap(), data(n));
                    (0..APPENDS).map(append).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    for (at, data) in placed {
        let mut read = vec![0; data.len()];
        assert_eq!(host.read(&file, at, &mut read).unwrap(), data.len());
        assert!(read == data, "an append is whole at its place");
    }
    let size = host.facts(&file.node()).unwrap().size;
    assert_eq!(host.append(&file, b"").unwrap(), size);
}

#[test]
fn a_read_that_does_not_wait_has_all_or_nothing() {
    let (host, _room, root) = host();
    let (file, _) = host.create(&root, b"file", owner(0o600), BOTH).unwrap();
    host.write(&file, 0, &[7; 10_000], true).unwrap();
    let mut into = [0; 6000];
    for (at, len) in [(0, 6000), (8000, 2000), (10_000, 0), (u64::MAX, 0)] {
        match host.read_now(&file, at, &mut into).unwrap() {
            Some(read) => assert!(read == len && into[..len] == [7; 6000][..len], "from {at}"),
            None => assert!(!can_say(&host, &root), "it was just written"),
        }
    }
}

/// Not every file system can say what it has in memory.
fn can_say(host: &RealHost, root: &HostNode) -> bool {
    let (file, _) = host.create(root, b"probe", owner(0o600), BOTH).unwrap();
    host.write(&file, 0, b"x", false).unwrap();
    host.read_now(&file, 0, &mut [0]).unwrap().is_some()
}

#[test]
fn a_read_of_a_file_in_memory_does_not_wait() {
    let Ok(room) = tempfile::tempdir_in("/dev/shm") else { return };
    let host = RealHost::new().unwrap();
    let root = host.root(room.path()).unwrap();
    let (file, _) = host.create(&root, b"file", owner(0o600), BOTH).unwrap();
    if !is_in_memory(open_fd(&file)) {
        return;
    }
    host.write(&file, 0, &[7; 10_000], true).unwrap();
    let mut into = [0; 6000];
    for (at, len) in [(0, 6000), (8000, 2000), (10_000, 0), (u64::MAX, 0)] {
        assert_eq!(host.read_now(&file, at, &mut into).unwrap(), Some(len), "from {at}");
        assert!(into[..len] == [7; 6000][..len]);
    }
}

#[test]
fn a_name_is_in_its_directory() {
    let (host, room, root) = host();
    std::fs::create_dir(room.path().join("d")).unwrap();
    for name in [&b""[..], b".", b"..", b"d/x", b"/", b"../x", b"a\0b"] {
        let invalid = |error: io::Error| error.raw_os_error() == Some(libc::EINVAL);
        assert!(host.lookup(&root, name).is_err_and(invalid), "{name:?}");
        assert!(host.look(&root, name).is_err_and(invalid), "{name:?}");
        assert!(host.mkdir(&root, name, owner(0o700)).is_err_and(invalid), "{name:?}");
        assert!(host.create(&root, name, owner(0o600), BOTH).is_err_and(invalid), "{name:?}");
        assert!(host.symlink(&root, name, owner(0o777), b"x").is_err_and(invalid), "{name:?}");
        assert!(host.unlink(&root, name).is_err_and(invalid), "{name:?}");
        assert!(host.rename((&root, b"d"), (&root, name), 0).is_err_and(invalid), "{name:?}");
    }
    assert_eq!(std::fs::read_dir(room.path()).unwrap().count(), 1);
}

#[test]
fn a_new_object_has_its_mode_whatever_the_mask_is() {
    let (host, room, root) = host();
    let former = rustix::process::umask(Mode::from_raw_mode(0o077));
    let made = [
        host.create(&root, b"file", owner(0o4757), BOTH).map(|made| made.1),
        host.mkdir(&root, b"dir", owner(0o1777)).map(|made| made.1),
        host.mknod(&root, b"fifo", owner(0o666), libc::S_IFIFO, 0).map(|made| made.1),
    ];
    rustix::process::umask(former);
    for (made, (name, mode)) in made.into_iter().zip([("file", 0o4757), ("dir", 0o1777), ("fifo", 0o666)]) {
        assert_eq!(made.unwrap().mode & 0o7777, mode, "{name}");
        let there = std::fs::symlink_metadata(room.path().join(name)).unwrap();
        assert_eq!(there.permissions().mode() & 0o7777, mode, "{name}");
        assert_eq!(there.uid(), owner(0).uid);
    }
}
