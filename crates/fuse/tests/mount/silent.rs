//! A server that does not answer, among others that do.
//!
//! Times are compared only with limits that are far apart: they distinguish a call that fails at once from
//! one that waits for the limit.

use super::cluster::Cluster;
use super::{errno, names_in};
use rustix::process::{Pid, Signal, kill_process};
use shoal_client::Client;
use shoal_fuse::MountHandle;
use shoal_proto::Handle;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The time limit of the mount.
const LIMIT: Duration = Duration::from_secs(6);
/// Beyond it, for a machine that is busy with other tests.
const GRACE: Duration = Duration::from_secs(3);
/// Bytes of a strip in these file systems.
const STRIP: usize = 64 << 10;
/// The server that falls silent.
const SILENT: u16 = 2;

/// A mount with, on each server, a directory, and a file in it; and a directory with entries of all servers.
struct Scene {
    mount: MountHandle<Client>,
    // After the mount.
    cluster: Cluster,
    _dir: TempDir,
    /// By the server of the directory.
    dirs: Vec<PathBuf>,
    mixed: PathBuf,
}

fn server_of(path: &Path) -> u16 {
    Handle(fs::symlink_metadata(path).unwrap().ino()).server().0
}

impl Scene {
    fn new() -> Scene {
        let (cluster, dir) = (Cluster::start(3), TempDir::new().unwrap());
        let mount = cluster.mount_with_limit(&dir.path().join("mnt"), LIMIT);
        let root = mount.mountpoint().to_owned();
        let mut dirs = vec![PathBuf::new(); 3];
        // New directories go round over the servers.
        for n in 0.. {
            let path = root.join(format!("d{n}"));
            fs::create_dir(&path).unwrap();
            let server = usize::from(server_of(&path));
            if dirs[server].as_os_str().is_empty() {
                fs::write(path.join("f"), "before").unwrap();
                dirs[server] = path;
            }
            if dirs.iter().all(|dir| !dir.as_os_str().is_empty()) {
                break;
            }
        }
        // A file stays where it was made when it moves.
        let mixed = dirs[0].join("mixed");
        let mixed = (0..).map(|n| mixed.with_extension(n.to_string())).find(|path| {
            fs::create_dir(path).unwrap();
            server_of(path) != SILENT
        });
        let mixed = mixed.unwrap();
        for (server, dir) in dirs.iter().enumerate() {
            let name = format!("of-{server}");
            fs::write(dir.join(&name), &name).unwrap();
            fs::rename(dir.join(&name), mixed.join(&name)).unwrap();
            assert_eq!(usize::from(server_of(&mixed.join(&name))), server);
        }
        Scene { mount, cluster, _dir: dir, dirs, mixed }
    }

    fn silent_file(&self) -> PathBuf {
        self.dirs[usize::from(SILENT)].join("f")
    }

    /// Let a whole limit pass: calls to the server wait for it, then no more.
    fn learn(&self) {
        let begun = Instant::now();
        assert_eq!(errno(&fs::metadata(self.silent_file()).unwrap_err()), libc::ETIMEDOUT);
        assert!(begun.elapsed() < LIMIT + GRACE, "one path call takes one limit: {:?}", begun.elapsed());
    }
}

fn in_time<T>(limit: Duration, what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let value = work();
    assert!(begun.elapsed() < limit, "{what} took {:?}", begun.elapsed());
    value
}

#[test]
fn a_silent_server_costs_one_limit_and_then_only_what_lies_on_it() {
    let scene = Scene::new();
    let silenced = scene.cluster.silence(SILENT);
    // The silence is not known yet: a listing waits for attributes no longer than a moment.
    let names = ["of-0", "of-1", "of-2"];
    assert_eq!(in_time(LIMIT - GRACE / 2, "the first listing", || names_in(&scene.mixed)), names);
    scene.learn();

    let soon = LIMIT / 2;
    assert_eq!(in_time(soon, "a listing", || names_in(&scene.mixed)), names);
    let error = in_time(soon, "a look", || fs::metadata(scene.mixed.join("of-2")).unwrap_err());
    assert_eq!(errno(&error), libc::ETIMEDOUT);
    in_time(soon, "df", || rustix::fs::statvfs(scene.mount.mountpoint()).unwrap());
    std::thread::scope(|scope| {
        for n in 0..64 {
            let (dir, mixed) = (&scene.dirs[n % 2], &scene.mixed);
            scope.spawn(move || {
                in_time(soon, "everything elsewhere", || {
                    assert_eq!(fs::read_to_string(mixed.join(format!("of-{}", n % 2))).unwrap().len(), 4);
                    fs::write(dir.join(format!("new-{n}")), "new").unwrap();
                    assert_eq!(fs::metadata(dir.join(format!("new-{n}"))).unwrap().len(), 3);
                    assert_eq!(fs::read_to_string(dir.join("f")).unwrap(), "before");
                });
            });
        }
        // Under the kernel's lock of one directory.
        for n in 0..8 {
            let path = scene.silent_file().with_extension(n.to_string());
            scope.spawn(move || {
                let error = in_time(soon, "a creation", || fs::write(&path, "").unwrap_err());
                assert_eq!(errno(&error), libc::ETIMEDOUT);
            });
        }
    });

    drop(silenced);
    let begun = Instant::now();
    while let Err(error) = fs::read(scene.silent_file()) {
        assert_eq!(errno(&error), libc::ETIMEDOUT);
        assert!(begun.elapsed() < 2 * LIMIT, "it is not found again");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(names_in(&scene.dirs[usize::from(SILENT)]), ["f"], "what was not sent was not done");
    assert_eq!(fs::read_to_string(scene.mixed.join("of-2")).unwrap(), "of-2");
}

#[test]
fn an_entry_without_attributes_has_its_kind_and_inode_number_and_spoils_nothing_that_is_known() {
    let scene = Scene::new();
    let path = scene.mixed.join("of-2");
    let open = fs::File::open(&path).unwrap();
    let inode = open.metadata().unwrap().ino();
    let silenced = scene.cluster.silence(SILENT);
    scene.learn();
    // The cached facts about it expire first.
    std::thread::sleep(Duration::from_millis(200));
    let listed: Vec<fs::DirEntry> = fs::read_dir(&scene.mixed).unwrap().map(|entry| entry.unwrap()).collect();
    let entry = listed.iter().find(|entry| entry.file_name() == "of-2").unwrap();
    use std::os::unix::fs::DirEntryExt as _;
    assert_eq!((entry.ino(), entry.file_type().unwrap().is_file()), (inode, true));
    assert_eq!(errno(&entry.metadata().unwrap_err()), libc::ETIMEDOUT);
    for entry in listed.iter().filter(|entry| entry.file_name() != "of-2") {
        assert_eq!(entry.metadata().unwrap().len(), 4);
    }
    drop(silenced);
    let until = Instant::now() + 2 * LIMIT;
    while open.metadata().is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(open.metadata().unwrap().len(), 4);
    assert_eq!(io::read_to_string(open).unwrap(), "of-2");
}

/// A program that looks at a file, and how it ended.
fn looks_at(path: &Path, signal: Signal) -> (std::process::ExitStatus, Duration) {
    let mut program = Command::new("stat").arg(path).stdout(std::process::Stdio::null()).spawn().unwrap();
    let pid = Pid::from_child(&program);
    let place = format!("/proc/{}/wchan", program.id());
    let waits = || fs::read_to_string(&place).unwrap_or_default().contains("request_wait_answer");
    let begun = Instant::now();
    while !waits() {
        assert!(begun.elapsed() < LIMIT, "it never waited for the server");
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(pid, signal).unwrap();
    let signalled = Instant::now();
    (program.wait().unwrap(), signalled.elapsed())
}

#[test]
fn a_program_that_waits_for_a_silent_server_is_killed_after_a_second() {
    let scene = Scene::new();
    let path = scene.silent_file();
    std::thread::sleep(Duration::from_millis(200));
    let _silenced = scene.cluster.silence(SILENT);
    // A program of a shell's background ignores SIGINT.
    for signal in [Signal::TERM, Signal::KILL] {
        let (status, took) = looks_at(&path, signal);
        assert_eq!(status.signal(), Some(signal.as_raw()));
        assert!(took < LIMIT / 2 + GRACE / 2, "{signal:?} took {took:?}");
    }
}

/// Read all strips of a file over all servers; which of them failed, for want of an answer.
fn strips_without_an_answer(file: &fs::File, content: &[u8]) -> Vec<usize> {
    // Direct reads need an aligned place.
    let mut buf = vec![0; STRIP + 4096];
    let from = buf.as_ptr().align_offset(4096);
    let place = &mut buf[from..from + STRIP];
    let mut failed = Vec::new();
    for (n, expected) in content.chunks(STRIP).enumerate() {
        match file.read_exact_at(place, (n * STRIP) as u64) {
            Ok(()) => assert!(place == expected, "strip {n}"),
            Err(error) => {
                assert_eq!(errno(&error), libc::ETIMEDOUT, "strip {n}: {error}");
                failed.push(n);
            }
        }
    }
    failed
}

#[test]
fn an_open_file_is_read_where_its_servers_answer_and_a_new_open_fails_at_the_limit() {
    let scene = Scene::new();
    let path = scene.dirs[0].join("striped");
    let content: Vec<u8> = (0..6 * STRIP).map(|at| (at / STRIP) as u8 + 1).collect();
    fs::write(&path, &content).unwrap();
    // The pages that the writes left are not to answer.
    let direct = || fs::File::options().read(true).custom_flags(libc::O_DIRECT).open(&path);
    let opened = [direct().unwrap(), fs::File::open(&path).unwrap()];
    // Its cached size expires.
    std::thread::sleep(Duration::from_millis(200));
    let silenced = scene.cluster.silence(SILENT);
    let failed = in_time(LIMIT + GRACE, "the first reads", || strips_without_an_answer(&opened[0], &content));
    assert_eq!(failed, [2, 5], "one of three servers is silent");
    let soon = LIMIT / 2;
    for file in &opened {
        assert_eq!(in_time(soon, "more reads", || strips_without_an_answer(file, &content)), failed);
    }
    for what in [fs::metadata(&path).map(drop), direct().map(drop), fs::File::open(&path).map(drop)] {
        assert_eq!(errno(&what.unwrap_err()), libc::ETIMEDOUT, "its size is not known");
    }
    drop(silenced);
    let until = Instant::now() + 2 * LIMIT;
    while direct().is_err() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    for file in [&opened[0], &opened[1], &direct().unwrap()] {
        assert!(strips_without_an_answer(file, &content).is_empty());
    }
}
