//! The waits of `cp -a` and `tar -x`: a change of attributes alone waits for no sync of the servers' disks.

use crate::cluster::{Cluster, switches};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags};
use shoal_client::Client;
use shoal_fuse::{MountHandle, MountOptions};
use shoal_server::CounterSnapshot;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Small files of one measurement.
const FILES: usize = 60;

struct Scene {
    // Dropped in this order.
    handle: MountHandle<Client>,
    cluster: Cluster,
    dir: TempDir,
}

impl Scene {
    fn new() -> Scene {
        let dir = TempDir::new().unwrap();
        let cluster = Cluster::start_in(1, switches(), Some(dir.path().join("servers")));
        let handle = cluster.mount(&dir.path().join("mnt"), &MountOptions::default());
        Scene { handle, cluster, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.handle.mountpoint().join(name)
    }

    /// Replies that waited for a sync while this was done, and all changes of attributes meanwhile.
    fn waits(&self, body: impl FnOnce()) -> (u64, u64) {
        let [before, after] = self.counts(body);
        let changes = |counts: &CounterSnapshot| {
            let of = |op| counts.ops.get(op).copied().unwrap_or(0);
            of("setattr") + of("setxattr")
        };
        (after.sync_waits - before.sync_waits, changes(&after) - changes(&before))
    }

    /// The server's counts before this was done and after it.
    fn counts(&self, body: impl FnOnce()) -> [CounterSnapshot; 2] {
        let before = self.cluster.counts(0);
        body();
        [before, self.cluster.counts(0)]
    }
}

/// Small files with modes, times and extended attributes of their own, in two folders.
fn make_source(at: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for n in 0..FILES {
        let folder = PathBuf::from(format!("d{}", n % 2));
        fs::create_dir_all(at.join(&folder)).unwrap();
        let file = folder.join(format!("f{n}"));
        let path = at.join(&file);
        fs::write(&path, vec![7; 100 + 50 * n]).unwrap();
        rustix::fs::setxattr(&path, "user.a", format!("{n}").as_bytes(), XattrFlags::empty()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600 + (n as u32 % 0o70))).unwrap();
        let then = Timespec { tv_sec: 1_000_000 + n as i64, tv_nsec: 17 };
        let times = Timestamps { last_access: then, last_modification: then };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        files.push(file);
    }
    files
}

fn run(command: &mut Command) {
    let out = command.output().unwrap();
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

fn assert_same(source: &Path, copy: &Path, files: &[PathBuf], has_xattrs: bool) {
    for file in files {
        let [source, copy] = [source, copy].map(|at| at.join(file));
        let of = |path: &Path| {
            let stat = fs::metadata(path).unwrap();
            (stat.mode(), stat.uid(), stat.gid(), stat.mtime(), stat.mtime_nsec(), stat.len())
        };
        assert_eq!(of(&source), of(&copy), "{}", copy.display());
        if has_xattrs {
            assert_eq!(xattr::get(&copy, "user.a").unwrap(), xattr::get(&source, "user.a").unwrap());
        }
        assert_eq!(fs::read(&source).unwrap(), fs::read(&copy).unwrap());
    }
}

#[test]
fn each_call_of_a_copy_waits_for_one_sync_or_for_none() {
    const TIMES: usize = 20;
    let scene = Scene::new();
    let path = |n: usize, name: &str| scene.path(&format!("{name}-{n}"));
    // Waits of the changes that the call makes, and of replies that it needs to see: on a slow machine the
    // kernel asks again for what it knew, and the reply shows a change of attributes.
    let each = |what: &str, changing: u64, seeing: u64, call: &dyn Fn(usize)| {
        let [before, after] = scene.counts(|| (0..TIMES).for_each(call));
        let shown = after.shown_waits - before.shown_waits;
        let changed = after.sync_waits - before.sync_waits - shown;
        assert_eq!(changed, changing * TIMES as u64, "{what}, {TIMES} times");
        let looks = ["lookup", "getattr", "readdir"].iter();
        let of = |counts: &CounterSnapshot, op| counts.ops.get(op).copied().unwrap_or(0);
        let looks: u64 = looks.map(|op| of(&after, op) - of(&before, op)).sum();
        let seen = seeing * TIMES as u64;
        assert!((seen..=seen + looks).contains(&shown), "{what}, {TIMES} times: {shown}, {looks} looks");
    };
    let then = Timespec { tv_sec: 1_000_000, tv_nsec: 17 };
    let times = Timestamps { last_access: then, last_modification: then };
    let chmod = |n| fs::set_permissions(path(n, ".file"), Permissions::from_mode(0o640)).unwrap();
    let opened: std::cell::RefCell<Vec<fs::File>> = std::cell::RefCell::default();
    each("mkdir", 1, 0, &|n| fs::create_dir(path(n, "dir")).unwrap());
    each("open(O_CREAT | O_EXCL)", 1, 0, &|n| {
        opened.borrow_mut().push(fs::File::create_new(path(n, ".file")).unwrap());
    });
    each("write", 0, 0, &|n| opened.borrow()[n].write_all_at(&[7; 5_000], 0).unwrap());
    each("fchown", 0, 0, &|n| std::os::unix::fs::fchown(&opened.borrow()[n], Some(1), Some(1)).unwrap());
    each("fsetxattr", 0, 0, &|n| {
        rustix::fs::fsetxattr(&opened.borrow()[n], "user.a", b"value", XattrFlags::empty()).unwrap();
    });
    each("close", 0, 0, &|_| drop(opened.borrow_mut().pop().unwrap()));
    each("utimensat", 0, 0, &|n| {
        rustix::fs::utimensat(CWD, path(n, ".file"), &times, AtFlags::empty()).unwrap();
    });
    each("chmod", 0, 0, &chmod);
    // A reply that shows a change of attributes waits for it.
    each("chmod and open", 0, 1, &|n| {
        chmod(n);
        opened.borrow_mut().push(fs::File::options().write(true).open(path(n, ".file")).unwrap());
    });
    each("chmod and write", 0, 1, &|n| {
        chmod(n);
        opened.borrow()[n].write_all_at(&[8; 5_000], 0).unwrap();
    });
    opened.borrow_mut().clear();
    each("rename", 1, 0, &|n| fs::rename(path(n, ".file"), path(n, "file")).unwrap());
    each("symlink", 1, 0, &|n| std::os::unix::fs::symlink("file", path(n, "symlink")).unwrap());
    each("link", 1, 0, &|n| fs::hard_link(path(n, "file"), path(n, "link")).unwrap());
    each("unlink", 1, 0, &|n| fs::remove_file(path(n, "link")).unwrap());
    for n in 0..TIMES {
        let stat = fs::metadata(path(n, "file")).unwrap();
        assert_eq!((stat.mode() & 0o777, stat.uid(), stat.len()), (0o640, 1, 5_000));
    }
}

#[test]
fn a_copy_of_small_files_by_rsync_waits_for_four_syncs_a_file_at_most() {
    if Command::new("rsync").arg("--version").output().is_err() {
        crate::skipped::skipped("no program `rsync`");
        return;
    }
    let scene = Scene::new();
    let source = scene.dir.path().join("source");
    let files = make_source(&source);
    for option in ["-a", "-aX"] {
        let copy = scene.path(option);
        let (waits, changes) = scene.waits(|| {
            run(Command::new("rsync").arg(option).arg(source.join("")).arg(&copy));
        });
        println!(
            "rsync {option}: {waits} waits for a sync, {changes} changes of attributes for {FILES} files"
        );
        assert!(changes >= 2 * FILES as u64, "{changes}: this test says nothing");
        assert!(waits <= FILES as u64 * 4 + 10, "{waits} waits for a sync for {FILES} files");
        assert_same(&source, &copy, &files, option == "-aX");
    }
}

#[test]
fn a_copy_of_small_files_with_their_attributes_waits_for_one_sync_a_file_and_a_half_at_most() {
    let scene = Scene::new();
    let (source, copy) = (scene.dir.path().join("source"), scene.path("copy"));
    let files = make_source(&source);
    let archive = scene.dir.path().join("archive");
    run(Command::new("tar").arg("-C").arg(&source).args(["--format=posix", "-cf"]).arg(&archive).arg("."));
    let most = FILES as u64 * 3 / 2;
    for (what, at) in [("cp -a", copy), ("tar -x", scene.path("untarred"))] {
        let (waits, changes) = scene.waits(|| match what {
            "cp -a" => run(Command::new("cp").arg("-a").arg(&source).arg(&at)),
            _ => {
                fs::create_dir(&at).unwrap();
                run(Command::new("tar").arg("-C").arg(&at).args(["-pxf"]).arg(&archive));
            }
        });
        println!("{what}: {waits} waits for a sync, {changes} changes of attributes for {FILES} files");
        assert!(changes >= 2 * FILES as u64, "{what}: {changes}: this test says nothing");
        assert!(waits <= most, "{what}: {waits} waits for a sync for {FILES} files");
        assert_same(&source, &at, &files, what == "cp -a");
    }
}
