//! FUSE's requests and answers; their work is in [`super::operations`].

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, FallocateFlags, SeekFrom, XattrFlags};
use rustix::io::{Errno, Result};

use super::attributes::kind;
use super::directory::{Entry, is_dot};
use super::operations::{Caller, Change, Source};

/// The largest write and read of one request, bytes: the kernel's default (256 pages).
const TRANSFER_MAX: u32 = 1 << 20;
/// Requests without a waiting program that the kernel may have on the way, such as read-ahead.
const BACKGROUND: u16 = 64;
/// Objects are never another under the same number while the kernel knows them.
const GENERATION: Generation = Generation(0);

thread_local! {
    /// Where data waits between the source and the kernel.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn failed(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

fn caller(req: &Request) -> Caller {
    Caller { uid: req.uid(), gid: req.gid() }
}

fn answer_empty(result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(failed(errno)),
    }
}

impl Source {
    fn answer_entry(&self, result: Result<fuser::FileAttr>, reply: ReplyEntry) {
        match result {
            Ok(attr) => reply.entry(&self.ttl, &attr, GENERATION),
            Err(errno) => reply.error(failed(errno)),
        }
    }

    fn answer_attr(&self, result: Result<fuser::FileAttr>, reply: ReplyAttr) {
        match result {
            Ok(attr) => reply.attr(&self.ttl, &attr),
            Err(errno) => reply.error(failed(errno)),
        }
    }

    fn answer_opened(&self, result: Result<u64>, flags: FopenFlags, reply: ReplyOpen) {
        match result {
            Ok(file) => reply.opened(FileHandle(file), flags),
            Err(errno) => reply.error(failed(errno)),
        }
    }

    /// How the kernel is to treat an open file.
    fn file_flags(&self, flags: i32) -> FopenFlags {
        let direct = self.direct_io || flags & rustix::fs::OFlags::DIRECT.bits() as i32 != 0;
        let mut opened = FopenFlags::empty();
        opened.set(FopenFlags::FOPEN_DIRECT_IO, direct);
        opened.set(FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES, direct);
        opened.set(FopenFlags::FOPEN_KEEP_CACHE, self.keep_cache);
        opened
    }

    fn list(&self, directory: u64, offset: u64, reply: &mut ReplyDirectory) -> Result<()> {
        let directory = self.directories.get(directory)?;
        let mut stream = directory.lock().unwrap_or_else(PoisonError::into_inner);
        stream.go_to(offset)?;
        while let Some(entry) = stream.peek()? {
            let ino = INodeNo(self.inodes.listed(entry.ino));
            if reply.add(ino, entry.next, kind(entry.kind), &entry.name) {
                break;
            }
            stream.pass();
        }
        Ok(())
    }

    fn list_plus(
        &self,
        parent: u64,
        directory: u64,
        offset: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Result<()> {
        let directory = self.directories.get(directory)?;
        let mut stream = directory.lock().unwrap_or_else(PoisonError::into_inner);
        stream.go_to(offset)?;
        let mut added = false;
        while let Some(entry) = stream.peek()? {
            let attr = match self.list_entry(parent, entry) {
                Ok(attr) => attr,
                // Removed since it was read.
                Err(Errno::NOENT) => {
                    stream.pass();
                    continue;
                }
                // The added entries are counted already, so they have to be sent; the error comes with the
                // next request.
                Err(_) if added => break,
                Err(errno) => return Err(errno),
            };
            if reply.add(attr.ino, entry.next, &entry.name, &self.ttl, &attr, GENERATION) {
                if !is_dot(&entry.name) {
                    self.inodes.forget(attr.ino.0, 1);
                }
                break;
            }
            added = true;
            stream.pass();
        }
        Ok(())
    }

    /// The attributes of an entry, counted as an answer that names it; of `.` and `..` only the number and
    /// kind matter, and the kernel does not count them, so neither do we.
    fn list_entry(&self, parent: u64, entry: &Entry) -> Result<fuser::FileAttr> {
        if !is_dot(&entry.name) {
            return self.lookup(parent, &entry.name);
        }
        let ino = INodeNo(self.inodes.listed(entry.ino));
        Ok(fuser::FileAttr { ino, ..self.getattr(parent)? })
    }
}

/// With size 0 the length is requested, otherwise the value itself.
fn answer_xattr(size: u32, reply: ReplyXattr, get: impl Fn(&mut [u8]) -> Result<usize>) {
    let mut value = vec![0u8; size.min(TRANSFER_MAX) as usize];
    match get(&mut value) {
        Ok(len) if size == 0 => reply.size(u32::try_from(len).unwrap_or(u32::MAX)),
        Ok(len) => reply.data(&value[..len]),
        Err(errno) => reply.error(failed(errno)),
    }
}

impl Filesystem for Source {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let mut wanted = vec![
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ];
        if self.auto_inval {
            wanted.push(InitFlags::FUSE_AUTO_INVAL_DATA);
        }
        if self.readdirplus {
            wanted.extend([InitFlags::FUSE_DO_READDIRPLUS, InitFlags::FUSE_READDIRPLUS_AUTO]);
        }
        for flag in wanted {
            // Features that an old kernel lacks are not used.
            let _ = config.add_capabilities(flag);
        }
        let limits =
            [config.set_max_write(TRANSFER_MAX).is_ok(), config.set_max_background(BACKGROUND).is_ok()];
        if limits.contains(&false) {
            return Err(std::io::Error::other("FUSE refuses the sizes of requests"));
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.answer_entry(self.lookup(parent.0, name), reply);
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.inodes.forget(ino.0, nlookup);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        self.answer_attr(self.getattr(ino.0), reply);
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = Change { mode, uid, gid, size, atime, mtime };
        self.answer_attr(self.setattr(caller(req), ino.0, fh.map(|fh| fh.0), change), reply);
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.readlink(ino.0) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(errno) => reply.error(failed(errno)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.answer_entry(self.mknod(caller(req), parent.0, name, mode, rdev), reply);
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        self.answer_entry(self.mkdir(caller(req), parent.0, name, mode), reply);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(self.remove(parent.0, name, AtFlags::empty()), reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(self.remove(parent.0, name, AtFlags::REMOVEDIR), reply);
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.answer_entry(self.symlink(caller(req), parent.0, name, target), reply);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer_empty(self.rename((parent.0, name), (newparent.0, newname), flags.bits()), reply);
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        self.answer_entry(self.link(ino.0, newparent.0, newname), reply);
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.answer_opened(self.open_file(caller(req), ino.0, flags.0), self.file_flags(flags.0), reply);
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.create(caller(req), parent.0, name, mode, flags) {
            Ok((attr, file)) => {
                reply.created(&self.ttl, &attr, GENERATION, FileHandle(file), self.file_flags(flags));
            }
            Err(errno) => reply.error(failed(errno)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = match self.files.get(fh.0) {
            Ok(file) => file,
            Err(errno) => return reply.error(failed(errno)),
        };
        BUFFER.with_borrow_mut(|buffer| {
            let size = size.min(TRANSFER_MAX) as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match rustix::io::pread(file.as_ref(), &mut buffer[..size], offset) {
                Ok(len) => reply.data(&buffer[..len]),
                Err(errno) => reply.error(failed(errno)),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let clear_privileges = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match self.write(fh.0, offset, data, clear_privileges) {
            Ok(len) => reply.written(len as u32),
            Err(errno) => reply.error(failed(errno)),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // A close of a copy makes the source do its work of each close.
        let close_copy = |file: Arc<OwnedFd>| rustix::io::fcntl_dupfd_cloexec(file.as_ref(), 0).map(drop);
        answer_empty(self.files.get(fh.0).and_then(close_copy), reply);
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        drop(self.files.remove(fh.0));
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let sync = |fd: &OwnedFd| {
            if datasync { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) }
        };
        answer_empty(self.files.get(fh.0).and_then(|file| sync(&file)), reply);
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.answer_opened(self.open_directory(ino.0), FopenFlags::empty(), reply);
    }

    fn readdir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        match self.list(fh.0, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(failed(errno)),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        match self.list_plus(ino.0, fh.0, offset, &mut reply) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(failed(errno)),
        }
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        drop(self.directories.remove(fh.0));
        reply.ok();
    }

    fn fsyncdir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let result = self.directories.get(fh.0).and_then(|directory| {
            let stream = directory.lock().unwrap_or_else(PoisonError::into_inner);
            if datasync { rustix::fs::fdatasync(stream.fd()) } else { rustix::fs::fsync(stream.fd()) }
        });
        answer_empty(result, reply);
    }

    fn statfs(&self, _req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.inodes.get(ino.0).and_then(|inode| rustix::fs::fstatvfs(&inode.fd)) {
            Ok(fs) => reply.statfs(
                fs.f_blocks,
                fs.f_bfree,
                fs.f_bavail,
                fs.f_files,
                fs.f_ffree,
                fs.f_bsize as u32,
                fs.f_namemax as u32,
                fs.f_frsize as u32,
            ),
            Err(errno) => reply.error(failed(errno)),
        }
    }

    fn setxattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_retain(flags as u32);
        let result =
            self.xattr_path(ino.0).and_then(|path| rustix::fs::setxattr(path.as_c_str(), name, value, flags));
        answer_empty(result, reply);
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.xattr_path(ino.0) {
            Ok(path) => answer_xattr(size, reply, |value| rustix::fs::getxattr(path.as_c_str(), name, value)),
            Err(errno) => reply.error(failed(errno)),
        }
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        match self.xattr_path(ino.0) {
            Ok(path) => answer_xattr(size, reply, |names| rustix::fs::listxattr(path.as_c_str(), names)),
            Err(errno) => reply.error(failed(errno)),
        }
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(
            self.xattr_path(ino.0).and_then(|path| rustix::fs::removexattr(path.as_c_str(), name)),
            reply,
        );
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode as u32);
        let result =
            self.files.get(fh.0).and_then(|file| rustix::fs::fallocate(file.as_ref(), mode, offset, length));
        answer_empty(result, reply);
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        // All other seeks are the kernel's own.
        let to = match (whence, u64::try_from(offset)) {
            (SEEK_DATA, Ok(offset)) => Ok(SeekFrom::Data(offset)),
            (SEEK_HOLE, Ok(offset)) => Ok(SeekFrom::Hole(offset)),
            (SEEK_DATA | SEEK_HOLE, Err(_)) => Err(Errno::NXIO),
            _ => Err(Errno::INVAL),
        };
        let result =
            to.and_then(|to| self.files.get(fh.0).and_then(|file| rustix::fs::seek(file.as_fd(), to)));
        match result {
            Ok(offset) => reply.offset(offset as i64),
            Err(errno) => reply.error(failed(errno)),
        }
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        _ino_in: INodeNo,
        fh_in: FileHandle,
        mut offset_in: u64,
        _ino_out: INodeNo,
        fh_out: FileHandle,
        mut offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The answer has 32 bits.
        let len = len.min(1 << 30) as usize;
        let result = self.files.get(fh_in.0).and_then(|from| {
            let to = self.files.get(fh_out.0)?;
            let (from_at, to_at) = (Some(&mut offset_in), Some(&mut offset_out));
            rustix::fs::copy_file_range(from.as_ref(), from_at, to.as_ref(), to_at, len)
        });
        match result {
            Ok(copied) => reply.written(copied as u32),
            Err(errno) => reply.error(failed(errno)),
        }
    }
}

/// `lseek`'s numbers for the next data and the next hole.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
