//! Names, directories, locks, and facts of the machine.
//!
//! All calls that touch a directory may block and run on the pool. Locks are `flock`s: they belong to an
//! open file, so two environments of one process exclude each other too. They are released when the
//! environment ends, and with the process at the latest. A child process has all its parent's open files
//! until it calls `exec`, so closing a file is not enough: a lock is released explicitly.

use super::file::{Desk, RealFile};
use super::polling::Polling;
use super::pool::Pool;
use crate::{Counters, DirEntry, DiskSpace, File, FileDoor, OpenOptions};
use futures_util::future::LocalBoxFuture;
use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// Files hold users' data: only their owner reads them.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// The same for directories, and for the parents that are made.
const DIR_MODE: u32 = 0o700;

/// The file system, for one environment.
pub(super) struct RealFiles {
    desk: Desk,
    locks: Rc<RefCell<Vec<Lock>>>,
}

/// A file that is locked as long as this value lives.
struct Lock(OwnedFd);

impl Drop for Lock {
    fn drop(&mut self) {
        // Unlocking a locked file cannot fail. If it did, closing would unlock it, unless a child is just
        // starting.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl RealFiles {
    pub(super) fn new(pool: Rc<Pool>, counters: Arc<Counters>, polling: Rc<Polling>) -> RealFiles {
        RealFiles { desk: Desk { pool, counters, polling, inline: Rc::default() }, locks: Rc::default() }
    }

    /// The environment ends: no call continues after it, and its locks are free.
    pub(super) fn end(&self) {
        self.desk.pool.end();
        self.locks.borrow_mut().clear();
    }

    fn call<T: Send + 'static>(
        &self,
        path: &Path,
        work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
    ) -> LocalBoxFuture<'static, io::Result<T>> {
        Counters::add(&self.desk.counters.file_calls, 1);
        let path = path.to_owned();
        self.desk.call(move || work(&path))
    }
}

fn open(path: &Path, options: OpenOptions) -> io::Result<OwnedFd> {
    let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
    flags.set(OFlags::CREATE, options.create);
    flags.set(OFlags::EXCL, options.create && options.exclusive);
    flags.set(OFlags::DSYNC, options.dsync);
    // Without blocking: what lies there may be a pipe.
    flags.set(OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY, options.private);
    let opened = rustix::io::retry_on_intr(|| rustix::fs::open(path, flags, FILE_MODE));
    if !options.private {
        return Ok(opened?);
    }
    if matches!(opened, Err(Errno::LOOP)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a symbolic link is in its place"));
    }
    let fd = opened?;
    check_private(&rustix::fs::fstat(&fd)?)?;
    Ok(fd)
}

/// Refuse a file that other users could have made, read or changed.
fn check_private(stat: &Stat) -> io::Result<()> {
    let (own, mode) = (rustix::process::geteuid().as_raw(), stat.st_mode & 0o777);
    let words = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_uid != own => {
            format!("it belongs to user {}, and this process is of user {own}", stat.st_uid)
        }
        FileType::RegularFile if mode & 0o027 != 0 => {
            format!("others may read or change it: its mode is {mode:o}, and may be 600 or 640")
        }
        FileType::RegularFile if stat.st_nlink > 1 => {
            format!("it has {} names: one of them may be elsewhere", stat.st_nlink)
        }
        FileType::RegularFile => return Ok(()),
        _ => "it is no regular file".to_owned(),
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, words))
}

fn list(path: &Path) -> io::Result<Vec<DirEntry>> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let meta = match entry.metadata() {
            // Removed since the directory was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        let name = entry.file_name().into_string().map_err(|name| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} holds the name {name:?}, not UTF-8", path.display()),
            )
        })?;
        entries.push(DirEntry {
            name,
            is_dir: meta.is_dir(),
            len: if meta.is_dir() { 0 } else { meta.len() },
        });
    }
    entries.sort();
    Ok(entries)
}

fn lock(path: &Path) -> io::Result<Lock> {
    let fd = open(path, OpenOptions { create: true, ..OpenOptions::default() })?;
    rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
    Ok(Lock(fd))
}

fn space(path: &Path) -> io::Result<DiskSpace> {
    let stat = rustix::fs::statvfs(path)?;
    Ok(DiskSpace {
        total: stat.f_blocks.saturating_mul(stat.f_frsize),
        available: stat.f_bavail.saturating_mul(stat.f_frsize),
        disk: disk(rustix::fs::stat(path)?.st_dev),
    })
}

/// An id of a device of this machine. Device numbers of two machines are often equal, their boot ids are
/// not.
fn disk(device: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (boot_id(), device).hash(&mut hasher);
    hasher.finish().max(1)
}

/// The kernel's boot id. If it cannot be read: a random one that lives as long as this process. Then every
/// restart looks like a reboot, which errs on the safe side.
fn boot_id() -> [u8; 16] {
    static BOOT_ID: OnceLock<[u8; 16]> = OnceLock::new();
    *BOOT_ID.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        parse_uuid(text.trim()).unwrap_or_else(|| {
            let mut id = [0; 16];
            getrandom::fill(&mut id).expect("Linux's random source, once the machine is up, does not fail");
            id
        })
    })
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let mut id = [0; 16];
    if digits.len() != 2 * id.len() {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(id)
}

impl FileDoor for RealFiles {
    fn open(&self, path: &Path, options: OpenOptions) -> LocalBoxFuture<'static, io::Result<File>> {
        let fd = self.call(path, move |path| open(path, options));
        let desk = self.desk.clone();
        Box::pin(async move { Ok(Rc::new(RealFile::new(fd.await?, options, desk)) as File) })
    }

    fn remove(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>> {
        self.call(path, |path| std::fs::remove_file(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> LocalBoxFuture<'static, io::Result<()>> {
        let to = to.to_owned();
        self.call(from, move |from| std::fs::rename(from, to))
    }

    fn create_dir(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>> {
        self.call(path, |path| std::fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(path))
    }

    fn list(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<Vec<DirEntry>>> {
        self.call(path, list)
    }

    fn sync_dir(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>> {
        Counters::add(&self.desk.counters.syncs, 1);
        let path = path.to_owned();
        self.desk.call(move || std::fs::File::open(path)?.sync_all())
    }

    fn sync_all(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>> {
        Counters::add(&self.desk.counters.syncs, 1);
        let path = path.to_owned();
        self.desk.call(move || Ok(rustix::fs::syncfs(std::fs::File::open(path)?)?))
    }

    fn lock(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<()>> {
        let locked = self.call(path, lock);
        let locks = self.locks.clone();
        Box::pin(async move {
            let lock = locked.await?;
            locks.borrow_mut().push(lock);
            Ok(())
        })
    }

    fn space(&self, path: &Path) -> LocalBoxFuture<'static, io::Result<DiskSpace>> {
        self.call(path, space)
    }

    fn boot_id(&self) -> [u8; 16] {
        boot_id()
    }

    fn native_path(&self, path: &Path) -> Option<PathBuf> {
        Some(path.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_given_back_is_free_though_a_child_still_has_the_file_open() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = lock(&path).unwrap();
        let of_a_child = held.0.try_clone().unwrap();
        assert!(lock(&path).is_err(), "locked once already");
        drop(held);
        lock(&path).unwrap();
        drop(of_a_child);
    }

    #[test]
    fn a_private_file_is_a_regular_file_of_this_user_alone_and_no_link_is_followed() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let options = OpenOptions { create: true, private: true, ..OpenOptions::default() };
        let mode_of = |name: &str| std::fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        let refused = |name: &str| open(&at(name), options).unwrap_err().to_string();
        open(&at("new"), options).unwrap();
        assert_eq!(mode_of("new"), 0o600);
        std::os::unix::fs::symlink(at("elsewhere"), at("link")).unwrap();
        assert!(refused("link").contains("symbolic link"));
        assert!(!at("elsewhere").exists());
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        assert!(refused("pipe").contains("no regular file"));
        for (mode, is_private) in [(0o600, true), (0o640, true), (0o660, false), (0o604, false)] {
            std::fs::set_permissions(at("new"), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(open(&at("new"), options).is_ok(), is_private, "{mode:o}");
        }
        std::fs::set_permissions(at("new"), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::hard_link(at("new"), at("second")).unwrap();
        assert!(refused("new").contains("it has 2 names"));
        std::fs::remove_file(at("second")).unwrap();
        assert!(open(&at("new"), options).is_ok());
        if rustix::process::geteuid().is_root() {
            std::fs::set_permissions(at("new"), std::fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(at("new"), Some(65_534), None).unwrap();
            assert!(refused("new").contains("belongs to user 65534"));
        }
    }
}
