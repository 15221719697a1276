//! Carries out each FUSE request on the source directory. [`super::protocol`] receives the requests and sends
//! the answers.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use fuser::{FileAttr, TimeOrNow};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timestamps, Uid};
use rustix::io::{Errno, Result};
use rustix::process::{getegid, geteuid};

use super::PassthroughOptions;
use super::attributes::{attributes, decode_device, key, timespec};
use super::directory::Stream;
use super::inodes::{Inodes, Table};

/// Set-user-id and set-group-id.
const PRIVILEGES: u32 = 0o6000;
/// Open flags that are not handed on: the first two would act on our descriptor instead of the object; direct
/// I/O would ask our buffers to be aligned, and is the kernel's own business with the caller.
const NOT_HANDED_ON: OFlags = OFlags::NOFOLLOW.union(OFlags::PATH).union(OFlags::DIRECT);

/// The requester.
#[derive(Clone, Copy)]
pub(super) struct Caller {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// The attributes to set of an object.
pub(super) struct Change {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) atime: Option<TimeOrNow>,
    pub(super) mtime: Option<TimeOrNow>,
}

/// The directory that is handed on, and all that the kernel holds of it.
pub(super) struct Source {
    pub(super) ttl: Duration,
    pub(super) direct_io: bool,
    pub(super) keep_cache: bool,
    pub(super) auto_inval: bool,
    pub(super) xattr: bool,
    pub(super) readdirplus: bool,
    pub(super) inodes: Inodes,
    pub(super) files: Table<OwnedFd>,
    pub(super) directories: Table<Mutex<Stream>>,
    /// Ourselves.
    own: Caller,
    /// The bits our own creations would lose.
    umask: u32,
}

impl Source {
    pub(super) fn open(path: &Path, options: &PassthroughOptions) -> Result<Source> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&root)?;
        Ok(Source {
            ttl: options.ttl,
            direct_io: options.direct_io,
            keep_cache: options.keep_cache,
            auto_inval: options.auto_inval,
            xattr: options.xattr,
            readdirplus: options.readdirplus,
            inodes: Inodes::new(root, key(&stat)),
            files: Table::new(),
            directories: Table::new(),
            own: Caller { uid: geteuid().as_raw(), gid: getegid().as_raw() },
            umask: own_umask(),
        })
    }

    pub(super) fn lookup(&self, parent: u64, name: &OsStr) -> Result<FileAttr> {
        let parent = self.inodes.get(parent)?;
        let stat = rustix::fs::statat(&parent.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if let Some(id) = self.inodes.seen(key(&stat)) {
            return Ok(attributes(id, &stat));
        }
        let fd = rustix::fs::openat(
            &parent.fd,
            name,
            OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        self.enter(fd)
    }

    /// Counts an answer that names the object of an `O_PATH` descriptor.
    fn enter(&self, fd: OwnedFd) -> Result<FileAttr> {
        let stat = rustix::fs::fstat(&fd)?;
        let id = self.inodes.enter(key(&stat), fd);
        Ok(attributes(id, &stat))
    }

    pub(super) fn getattr(&self, id: u64) -> Result<FileAttr> {
        let inode = self.inodes.get(id)?;
        Ok(attributes(id, &rustix::fs::fstat(&inode.fd)?))
    }

    pub(super) fn setattr(
        &self,
        caller: Caller,
        id: u64,
        file: Option<u64>,
        change: Change,
    ) -> Result<FileAttr> {
        let inode = self.inodes.get(id)?;
        if let Some(mode) = change.mode {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::chmodat(CWD, through(&inode.fd)?.as_c_str(), mode, AtFlags::empty())?;
        }
        if change.uid.is_some() || change.gid.is_some() {
            let (uid, gid) = (change.uid.map(Uid::from_raw), change.gid.map(Gid::from_raw));
            rustix::fs::chownat(&inode.fd, c"", uid, gid, AtFlags::EMPTY_PATH)?;
        }
        if let Some(size) = change.size {
            match file {
                Some(file) => truncate(self.files.get(file)?.as_fd(), size, caller)?,
                None => truncate(reopen(&inode.fd, OFlags::WRONLY)?.as_fd(), size, caller)?,
            }
        }
        if change.atime.is_some() || change.mtime.is_some() {
            let times =
                Timestamps { last_access: timespec(change.atime), last_modification: timespec(change.mtime) };
            rustix::fs::utimensat(&inode.fd, c"", &times, AtFlags::EMPTY_PATH)?;
        }
        Ok(attributes(id, &rustix::fs::fstat(&inode.fd)?))
    }

    pub(super) fn readlink(&self, id: u64) -> Result<CString> {
        rustix::fs::readlinkat(&self.inodes.get(id)?.fd, c"", Vec::new())
    }

    pub(super) fn mknod(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        rdev: u32,
    ) -> Result<FileAttr> {
        let dir = self.inodes.get(parent)?;
        let kind = FileType::from_raw_mode(mode);
        rustix::fs::mknodat(&dir.fd, name, kind, Mode::from_raw_mode(mode & 0o7777), decode_device(rdev))?;
        self.made(caller, parent, name, mode)
    }

    pub(super) fn mkdir(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32) -> Result<FileAttr> {
        let dir = self.inodes.get(parent)?;
        rustix::fs::mkdirat(&dir.fd, name, Mode::from_raw_mode(mode & 0o7777))?;
        self.made(caller, parent, name, mode)
    }

    pub(super) fn symlink(&self, caller: Caller, parent: u64, name: &OsStr, to: &Path) -> Result<FileAttr> {
        let dir = self.inodes.get(parent)?;
        rustix::fs::symlinkat(to, &dir.fd, name)?;
        // A link's mode is always the same, so no bit of it can have been lost.
        self.made(caller, parent, name, 0)
    }

    /// Answers for an object just made by name: gives it to its maker, with the mode requested.
    fn made(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32) -> Result<FileAttr> {
        let attr = self.lookup(parent, name)?;
        if !self.needs_correction(caller, mode) {
            return Ok(attr);
        }
        let inode = self.inodes.get(attr.ino.0)?;
        self.correct(inode.fd.as_fd(), caller, mode)?;
        self.getattr(attr.ino.0)
    }

    fn needs_correction(&self, caller: Caller, mode: u32) -> bool {
        caller.uid != self.own.uid || caller.gid != self.own.gid || mode & self.umask != 0
    }

    fn correct(&self, fd: BorrowedFd<'_>, caller: Caller, mode: u32) -> Result<()> {
        if caller.uid != self.own.uid || caller.gid != self.own.gid {
            // Of a directory with the set-group-id bit new objects inherit the group, which then is not ours.
            let stat = rustix::fs::fstat(fd)?;
            let gid = (stat.st_gid == self.own.gid).then(|| Gid::from_raw(caller.gid));
            rustix::fs::chownat(fd, c"", Some(Uid::from_raw(caller.uid)), gid, AtFlags::EMPTY_PATH)?;
        }
        if mode & self.umask != 0 {
            let mode = Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::chmodat(CWD, through(fd)?.as_c_str(), mode, AtFlags::empty())?;
        }
        Ok(())
    }

    pub(super) fn remove(&self, parent: u64, name: &OsStr, flags: AtFlags) -> Result<()> {
        rustix::fs::unlinkat(&self.inodes.get(parent)?.fd, name, flags)
    }

    pub(super) fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), flags: u32) -> Result<()> {
        let (source, target) = (self.inodes.get(from.0)?, self.inodes.get(to.0)?);
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags);
        rustix::fs::renameat_with(&source.fd, from.1, &target.fd, to.1, flags)
    }

    pub(super) fn link(&self, id: u64, parent: u64, name: &OsStr) -> Result<FileAttr> {
        let (inode, dir) = (self.inodes.get(id)?, self.inodes.get(parent)?);
        rustix::fs::linkat(CWD, through(&inode.fd)?.as_c_str(), &dir.fd, name, AtFlags::SYMLINK_FOLLOW)?;
        self.lookup(parent, name)
    }

    pub(super) fn open_file(&self, caller: Caller, id: u64, flags: i32) -> Result<u64> {
        let flags = OFlags::from_bits_retain(flags as u32);
        let fd = reopen(&self.inodes.get(id)?.fd, flags - OFlags::CREATE - OFlags::EXCL)?;
        if flags.contains(OFlags::TRUNC) && caller.uid != 0 {
            drop_privileges(fd.as_fd())?;
        }
        Ok(self.files.insert(fd))
    }

    pub(super) fn create(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> Result<(FileAttr, u64)> {
        let dir = self.inodes.get(parent)?;
        let asked = OFlags::from_bits_retain(flags as u32) - NOT_HANDED_ON;
        let flags = asked | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |flags| rustix::fs::openat(&dir.fd, name, flags, Mode::from_raw_mode(mode & 0o7777));
        // Exclusively at first, to know whether it is new and so to be given to its maker. The kernel asks to
        // create a file that it takes for missing, so this is the only try except in races.
        let file = match open(flags | OFlags::EXCL) {
            Ok(file) => {
                if self.needs_correction(caller, mode) {
                    self.correct(file.as_fd(), caller, mode)?;
                }
                file
            }
            Err(Errno::EXIST) if !asked.contains(OFlags::EXCL) => open(flags)?,
            Err(errno) => return Err(errno),
        };
        let stat = rustix::fs::fstat(&file)?;
        let attr = match self.inodes.seen(key(&stat)) {
            Some(id) => attributes(id, &stat),
            // Through the open file, not by its name again: the name may lead elsewhere by now.
            None => self.enter(reopen(&file, OFlags::PATH)?)?,
        };
        Ok((attr, self.files.insert(file)))
    }

    pub(super) fn open_directory(&self, id: u64) -> Result<u64> {
        let fd = reopen(&self.inodes.get(id)?.fd, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(self.directories.insert(Mutex::new(Stream::new(fd))))
    }

    pub(super) fn write(&self, file: u64, offset: u64, data: &[u8], clear_privileges: bool) -> Result<usize> {
        let file = self.files.get(file)?;
        if clear_privileges {
            drop_privileges(file.as_fd())?;
        }
        rustix::io::pwrite(file.as_ref(), data, offset)
    }

    /// The path through which calls for extended attributes, which take no `O_PATH` descriptor, reach an
    /// object. `ENOSYS` if there are none: the kernel then asks no more.
    pub(super) fn xattr_path(&self, id: u64) -> Result<CString> {
        if !self.xattr {
            return Err(Errno::NOSYS);
        }
        through(&self.inodes.get(id)?.fd)
    }
}

/// `/proc/self/fd/N`: the kernel follows it to the very object, whatever its name is by now.
fn through(fd: impl AsFd) -> Result<CString> {
    CString::new(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())).map_err(|_| Errno::INVAL)
}

fn reopen(fd: impl AsFd, flags: OFlags) -> Result<OwnedFd> {
    let path = flags & OFlags::PATH;
    rustix::fs::open(through(fd)?.as_c_str(), (flags - NOT_HANDED_ON) | path | OFlags::CLOEXEC, Mode::empty())
}

fn truncate(fd: BorrowedFd<'_>, size: u64, caller: Caller) -> Result<()> {
    rustix::fs::ftruncate(fd, size)?;
    if caller.uid != 0 { drop_privileges(fd) } else { Ok(()) }
}

/// Takes set-user-id and set-group-id from a file that someone else than root changed; the kernel leaves that
/// to us.
fn drop_privileges(fd: BorrowedFd<'_>) -> Result<()> {
    let mode = rustix::fs::fstat(fd)?.st_mode;
    if mode & PRIVILEGES == 0 {
        return Ok(());
    }
    rustix::fs::fchmod(fd, Mode::from_raw_mode(mode & 0o7777 & !PRIVILEGES))
}

/// Our process's umask, read where reading does not change it.
fn own_umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    umask.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o022)
}
