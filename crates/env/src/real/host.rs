//! Users' files on Linux: descriptors of `O_PATH`, and calls that begin at one.
//!
//! Calls that take no such descriptor (to open, to set a mode, extended attributes) take its name in
//! `/proc/self/fd`, which leads to exactly its object. If the object is a symbolic link, the name leads to
//! the link itself.
//!
//! **A new object has the wanted mode and, if the process is root, the wanted owner when its call returns, or
//! is removed again.** The owner and mode of a new file are set through the descriptor that created it. The
//! creation of another kind returns no descriptor, so the new object is looked up by its name. Another
//! program may have put an object of its own there. So owner and mode are set only if the object has the
//! kind, owner and link count of a new object; otherwise the call fails.

mod made;
#[cfg(test)]
mod tests;

use crate::host::{Descriptor, RealDescriptor};
use crate::{
    HostAccess, HostEntry, HostFacts, HostFile, HostFiles, HostListing, HostNode, HostOwner, HostSpace,
    WallTime,
};
use rustix::buffer::spare_capacity;
use rustix::fs::{
    self, AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RawDir, RenameFlags, SeekFrom, Statx,
    StatxFlags, StatxTimestamp, Timespec, Timestamps, XattrFlags,
};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2, pwrite, pwritev2};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Bytes of entries that are taken from the kernel at once: some hundreds of entries.
const LIST_BYTES: usize = 16 * 1024;
/// Most of a value or a list of extended attributes.
const XATTR_BYTES_MAX: usize = 64 * 1024;
/// Room for most of them.
const XATTR_BYTES_MOST: usize = 256;
/// Types of file systems that only one machine uses (`linux/magic.h`): ext2 to ext4, XFS, btrfs, tmpfs, F2FS,
/// ZFS, bcachefs, overlays.
const OF_THIS_MACHINE: [u64; 8] =
    [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994, 0xF2F5_2010, 0x2FC1_2FC1, 0xCA45_1A4E, 0x794C_7630];
/// Numbers of file systems in memory: tmpfs, ramfs.
const MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6];
/// The offset that means the descriptor's own position.
const OWN_POSITION: u64 = u64::MAX;
const NANOS: i64 = 1_000_000_000;

/// See the module.
pub(super) struct RealHost {
    is_root: bool,
}

impl RealHost {
    /// # Errors
    /// If `/proc` is missing.
    pub(super) fn new() -> io::Result<RealHost> {
        fs::statat(CWD, "/proc/self/fd", AtFlags::empty()).map_err(|errno| {
            let error = io::Error::from(errno);
            io::Error::new(error.kind(), format!("/proc/self/fd is needed: mount /proc ({error})"))
        })?;
        Ok(RealHost { is_root: rustix::process::geteuid().is_root() })
    }
}

fn real(descriptor: &Descriptor) -> &RealDescriptor {
    match descriptor {
        Descriptor::Real(real) => real,
        Descriptor::Sim(_) => unreachable!("a world's nodes stay in it"),
    }
}

fn fd(node: &HostNode) -> &OwnedFd {
    &real(&node.0).fd
}

fn open_fd(file: &HostFile) -> &OwnedFd {
    &real(&file.0).fd
}

/// Whether a file is on a file system in memory: a read of it does not wait for a disk (but for one of swap).
fn is_in_memory(fd: &OwnedFd) -> bool {
    fs::fstatfs(fd).is_ok_and(|about| MEMORY.contains(&(about.f_type as u64)))
}

fn descriptor(fd: OwnedFd) -> Descriptor {
    let fd = super::descriptors::out_of_the_way(fd);
    Descriptor::Real(Arc::new(RealDescriptor { fd, appending: Mutex::new(()), in_memory: OnceLock::new() }))
}

/// A descriptor's name, for calls that take a path.
fn path(node: &HostNode) -> String {
    format!("/proc/self/fd/{}", fd(node).as_raw_fd())
}

/// Only a name in the directory itself.
fn name_in(name: &[u8]) -> io::Result<&[u8]> {
    match name {
        b"" | b"." | b".." => Err(Errno::INVAL.into()),
        _ if name.contains(&b'/') => Err(Errno::INVAL.into()),
        _ => Ok(name),
    }
}

/// Repeat a call that a signal ended.
fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

fn moment(at: StatxTimestamp) -> WallTime {
    WallTime(at.tv_sec.saturating_mul(NANOS).saturating_add(at.tv_nsec.into()))
}

fn facts_of(stat: Statx) -> HostFacts {
    let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    HostFacts {
        dev: fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        ino: stat.stx_ino,
        mode: stat.stx_mode.into(),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: stat.stx_nlink,
        rdev: fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
        size: stat.stx_size,
        blocks: stat.stx_blocks,
        atime: moment(stat.stx_atime),
        mtime: moment(stat.stx_mtime),
        ctime: moment(stat.stx_ctime),
        btime: has_birth.then(|| moment(stat.stx_btime)),
    }
}

fn look(dir: &OwnedFd, name: &[u8], flags: AtFlags) -> io::Result<HostFacts> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(facts_of(fs::statx(dir, name, flags | AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, wanted)?))
}

fn facts(fd: &OwnedFd) -> io::Result<HostFacts> {
    look(fd, b"", AtFlags::EMPTY_PATH)
}

fn access_flags(access: HostAccess) -> OFlags {
    let access = match (access.read, access.write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    };
    access | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::LARGEFILE
}

fn timespec(at: Option<WallTime>) -> Timespec {
    match at {
        Some(WallTime(at)) => Timespec { tv_sec: at.div_euclid(NANOS), tv_nsec: at.rem_euclid(NANOS) as _ },
        None => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT as _ },
    }
}

/// A directory's own descriptor for reading.
fn open_dir(dir: &HostNode) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(fd(dir), ".", flags, Mode::empty())?)
}

/// Bytes from a call that fills a buffer, or says that it is too small.
fn fitting(call: impl Fn(&mut Vec<u8>) -> rustix::io::Result<usize>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(XATTR_BYTES_MOST);
    match call(&mut bytes) {
        Err(Errno::RANGE) => {
            bytes.reserve(XATTR_BYTES_MAX);
            call(&mut bytes)?;
        }
        done => drop(done?),
    }
    Ok(bytes)
}

impl HostFiles for RealHost {
    fn root(&self, path: &Path) -> io::Result<HostNode> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(HostNode(descriptor(fs::openat(CWD, path, flags, Mode::empty())?)))
    }

    fn lookup(&self, dir: &HostNode, name: &[u8]) -> io::Result<(HostNode, HostFacts)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = fs::openat(fd(dir), name_in(name)?, flags, Mode::empty())?;
        let facts = facts(&found)?;
        Ok((HostNode(descriptor(found)), facts))
    }

    fn look(&self, dir: &HostNode, name: &[u8]) -> io::Result<HostFacts> {
        look(fd(dir), name_in(name)?, AtFlags::empty())
    }

    fn facts(&self, node: &HostNode) -> io::Result<HostFacts> {
        facts(fd(node))
    }

    fn parent(&self, dir: &HostNode) -> io::Result<HostFacts> {
        look(fd(dir), b"..", AtFlags::empty())
    }

    fn open(&self, node: &HostNode, access: HostAccess) -> io::Result<HostFile> {
        let opened = retry(|| fs::openat(CWD, path(node), access_flags(access), Mode::empty()))?;
        Ok(HostFile(descriptor(opened)))
    }

    fn create(
        &self,
        dir: &HostNode,
        name: &[u8],
        owner: HostOwner,
        access: HostAccess,
    ) -> io::Result<(HostFile, HostFacts)> {
        let flags = access_flags(access) | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let name = name_in(name)?;
        let made = retry(|| fs::openat(fd(dir), name, flags, made::mode(owner)))?;
        let file = HostFile(descriptor(made));
        let facts = self.made(dir, &file.node(), owner);
        let facts = facts.inspect_err(|_| self.take_back(dir, name, AtFlags::empty()))?;
        Ok((file, facts))
    }

    fn mkdir(&self, dir: &HostNode, name: &[u8], owner: HostOwner) -> io::Result<(HostNode, HostFacts)> {
        fs::mkdirat(fd(dir), name_in(name)?, made::mode(owner))?;
        self.made_at(dir, name, owner, libc::S_IFDIR)
    }

    fn mknod(
        &self,
        dir: &HostNode,
        name: &[u8],
        owner: HostOwner,
        kind: u32,
        device: u64,
    ) -> io::Result<(HostNode, HostFacts)> {
        let file_type = FileType::from_raw_mode(kind);
        fs::mknodat(fd(dir), name_in(name)?, file_type, made::mode(owner), device)?;
        self.made_at(dir, name, owner, kind)
    }

    fn symlink(
        &self,
        dir: &HostNode,
        name: &[u8],
        owner: HostOwner,
        target: &[u8],
    ) -> io::Result<(HostNode, HostFacts)> {
        fs::symlinkat(target, fd(dir), name_in(name)?)?;
        self.made_at(dir, name, owner, libc::S_IFLNK)
    }

    fn readlink(&self, node: &HostNode) -> io::Result<Vec<u8>> {
        match fs::readlinkat(fd(node), "", Vec::new()) {
            // Linux's answer for the empty path of an object that is no link.
            Err(Errno::NOENT) => Err(Errno::INVAL.into()),
            target => Ok(target?.into_bytes()),
        }
    }

    fn link(&self, node: &HostNode, dir: &HostNode, name: &[u8]) -> io::Result<()> {
        Ok(fs::linkat(CWD, path(node), fd(dir), name_in(name)?, AtFlags::SYMLINK_FOLLOW)?)
    }

    fn unlink(&self, dir: &HostNode, name: &[u8]) -> io::Result<()> {
        Ok(fs::unlinkat(fd(dir), name_in(name)?, AtFlags::empty())?)
    }

    fn rmdir(&self, dir: &HostNode, name: &[u8]) -> io::Result<()> {
        Ok(fs::unlinkat(fd(dir), name_in(name)?, AtFlags::REMOVEDIR)?)
    }

    fn rename(&self, from: (&HostNode, &[u8]), to: (&HostNode, &[u8]), flags: u32) -> io::Result<()> {
        let flags = RenameFlags::from_bits_retain(flags);
        Ok(fs::renameat_with(fd(from.0), name_in(from.1)?, fd(to.0), name_in(to.1)?, flags)?)
    }

    fn set_mode(&self, node: &HostNode, mode: u32) -> io::Result<()> {
        Ok(fs::chmodat(CWD, path(node), Mode::from_raw_mode(mode), AtFlags::empty())?)
    }

    fn set_owner(&self, node: &HostNode, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
        let (uid, gid) = (uid.map(fs::Uid::from_raw), gid.map(fs::Gid::from_raw));
        Ok(fs::chownat(fd(node), "", uid, gid, AtFlags::EMPTY_PATH)?)
    }

    fn set_times(&self, node: &HostNode, atime: Option<WallTime>, mtime: Option<WallTime>) -> io::Result<()> {
        let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
        Ok(fs::utimensat(CWD, path(node), &times, AtFlags::empty())?)
    }

    fn truncate(&self, file: &HostFile, size: u64) -> io::Result<()> {
        if size > i64::MAX as u64 {
            return Err(Errno::FBIG.into());
        }
        retry(|| fs::ftruncate(open_fd(file), size))
    }

    fn read(&self, file: &HostFile, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() && offset.saturating_add(done as u64) <= i64::MAX as u64 {
            let read = retry(|| pread(open_fd(file), &mut into[done..], offset + done as u64))?;
            if read == 0 {
                break;
            }
            done += read;
        }
        Ok(done)
    }

    fn read_now(&self, file: &HostFile, offset: u64, into: &mut [u8]) -> io::Result<Option<usize>> {
        let in_memory = &real(&file.0).in_memory;
        if in_memory.get() == Some(&true) {
            return self.read(file, offset, into).map(Some);
        }
        let mut done = 0;
        // Beyond, the number would mean the descriptor's own position.
        while done < into.len() && offset.saturating_add(done as u64) <= i64::MAX as u64 {
            let (at, rest) = (offset + done as u64, &mut into[done..]);
            match preadv2(open_fd(file), &mut [IoSliceMut::new(rest)], at, ReadWriteFlags::NOWAIT) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP) if *in_memory.get_or_init(|| is_in_memory(open_fd(file))) => {
                    return self.read(file, offset, into).map(Some);
                }
                // Not in memory; not every file system knows; a read that waits says what else is wrong.
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(done))
    }

    fn write(&self, file: &HostFile, offset: u64, data: &[u8], durable: bool) -> io::Result<()> {
        let (mut at, mut rest, mut durable) = (offset, data, durable);
        while !rest.is_empty() {
            if at > i64::MAX as u64 {
                return Err(Errno::FBIG.into());
            }
            let written = match durable {
                true => retry(|| pwritev2(open_fd(file), &[IoSlice::new(rest)], at, ReadWriteFlags::DSYNC)),
                false => retry(|| pwrite(open_fd(file), rest, at)),
            };
            let written = match written {
                Err(error) if durable && error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    durable = false;
                    continue;
                }
                written => written?,
            };
            (at, rest) = (at + written as u64, &rest[written..]);
        }
        Ok(())
    }

    fn append(&self, file: &HostFile, data: &[u8]) -> io::Result<u64> {
        let RealDescriptor { fd, appending, .. } = real(&file.0);
        let _turn = appending.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut began, mut rest) = (None, data);
        while !rest.is_empty() {
            let flags = ReadWriteFlags::APPEND;
            let written = retry(|| pwritev2(fd, &[IoSlice::new(rest)], OWN_POSITION, flags))?;
            // Only appends move the position, and they take turns.
            let at = fs::tell(fd)? - written as u64;
            let began = *began.get_or_insert(at);
            if at - began != (data.len() - rest.len()) as u64 {
                return Err(io::Error::other("another append came between two parts of this one"));
            }
            rest = &rest[written..];
        }
        began.map_or_else(|| Ok(facts(fd)?.size), Ok)
    }

    fn allocate(&self, file: &HostFile, mode: u32, offset: u64, len: u64) -> io::Result<()> {
        retry(|| fs::fallocate(open_fd(file), FallocateFlags::from_bits_retain(mode), offset, len))
    }

    fn sync(&self, file: &HostFile) -> io::Result<()> {
        retry(|| fs::fsync(open_fd(file)))
    }

    fn lock(&self, file: &HostFile) -> io::Result<bool> {
        match fs::flock(open_fd(file), fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn is_of_this_machine(&self, node: &HostNode) -> io::Result<bool> {
        Ok(OF_THIS_MACHINE.contains(&(fs::fstatfs(fd(node))?.f_type as u64)))
    }

    fn drop_pages(&self, file: &HostFile) -> io::Result<()> {
        retry(|| fs::fadvise(open_fd(file), 0, None, fs::Advice::DontNeed))
    }

    fn sync_dir(&self, dir: &HostNode) -> io::Result<()> {
        let opened = open_dir(dir)?;
        retry(|| fs::fsync(&opened))
    }

    fn getxattr(&self, node: &HostNode, name: &[u8]) -> io::Result<Vec<u8>> {
        let path = path(node);
        fitting(|value| fs::getxattr(&path, name, spare_capacity(value)))
    }

    fn setxattr(&self, node: &HostNode, name: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
        Ok(fs::setxattr(path(node), name, value, XattrFlags::from_bits_retain(flags))?)
    }

    fn listxattr(&self, node: &HostNode) -> io::Result<Vec<Vec<u8>>> {
        let path = path(node);
        let list = fitting(|list| fs::listxattr(&path, spare_capacity(list)))?;
        Ok(list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn removexattr(&self, node: &HostNode, name: &[u8]) -> io::Result<()> {
        Ok(fs::removexattr(path(node), name)?)
    }

    fn list(&self, dir: &HostNode) -> io::Result<HostListing> {
        Ok(HostListing(descriptor(open_dir(dir)?)))
    }

    fn entries(&self, listing: &mut HostListing) -> io::Result<Vec<HostEntry>> {
        let mut buffer = [MaybeUninit::uninit(); LIST_BYTES];
        let mut raw = RawDir::new(&real(&listing.0).fd, &mut buffer);
        let mut entries = Vec::new();
        while let Some(entry) = raw.next() {
            let entry = entry?;
            let (name, ino, place) =
                (entry.file_name().to_bytes().to_vec(), entry.ino(), entry.next_entry_cookie());
            entries.push(HostEntry { name, ino, place });
            if raw.is_buffer_empty() {
                break;
            }
        }
        Ok(entries)
    }

    fn seek(&self, listing: &mut HostListing, place: u64) -> io::Result<()> {
        fs::seek(&real(&listing.0).fd, SeekFrom::Start(place))?;
        Ok(())
    }

    fn space(&self, node: &HostNode) -> io::Result<HostSpace> {
        let space = fs::fstatvfs(fd(node))?;
        Ok(HostSpace {
            total: space.f_blocks.saturating_mul(space.f_frsize),
            available: space.f_bavail.saturating_mul(space.f_frsize),
            objects: space.f_files.saturating_sub(space.f_ffree),
        })
    }

    fn sync_all(&self, dir: &HostNode) -> io::Result<()> {
        let opened = open_dir(dir)?;
        retry(|| fs::syncfs(&opened))
    }

    fn descriptors_max(&self) -> u64 {
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
    }
}
