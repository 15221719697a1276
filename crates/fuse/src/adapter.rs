//! Decodes the requests of FUSE and sends the replies. The work of a request is done in [`fs`](crate::fs).
//!
//! An event loop decodes a request, counts it, copies the needed parts out of the loop's buffer, and passes
//! it to the world of the client, which does the work and replies. If [`AtOnce`] has the answer, the event
//! loop replies itself. If the client is gone, the reply is dropped, and fuser then answers `EIO`.
//!
//! Some kinds of requests are answered `ENOSYS`, and the kernel then sends none of this kind again: access
//! (the kernel checks permissions itself), lseek for holes, copying of ranges, and polling (the kernel does
//! the simple thing itself). Flush is answered so if the file system reports no error at a close, and has no
//! locks to release. A close needs no flush for its data: `write(2)` returned after the write, and the
//! kernel writes mappings back before it would send the flush.
//!
//! The kernel sends requests for locks if the file system has locks and the mount does not leave them to the
//! kernel. A close of a file releases the record locks of the process, and only a flush reports the close.
//! So each flush is then answered with success or an error; if no lock was requested in this mount yet, the
//! event loop answers it.

mod answer;
mod convert;
pub(crate) mod locks;
mod queue;

pub(crate) use queue::{Message, Queue, queue};

use crate::counts::{RequestCounts, Verb};
use crate::fs::{AtOnce, Caller, Change, Errno, Fs, Write};
use crate::options::{BACKGROUND_MAX, TRANSFER_BYTES_MAX};
use crate::sync_all::SYNC_ALL;
use bytes::Bytes;
use convert::{device_from_kernel, handle, time_from_kernel, when};
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, INodeNo, InitFlags, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl,
    ReplyLock, ReplyLseek, ReplyOpen, ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use shoal_env::real;
use shoal_vfs::{Vfs, VfsFile as _};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

/// Asked of every kernel; each is set where the kernel has it.
const WANTED: [InitFlags; 5] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_ASYNC_DIO,
    // A link's target never changes under the same handle.
    InitFlags::FUSE_CACHE_SYMLINKS,
    // Handles would lead somewhere only as long as the kernel has the inode: an NFS server is refused in
    // time.
    InitFlags::FUSE_NO_EXPORT_SUPPORT,
];

/// Where it has this it says which writes take set-user-id away (Linux 5.11). Nothing else could know.
const NEEDED: InitFlags = InitFlags::FUSE_HANDLE_KILLPRIV_V2;
/// With this flag its pages follow writes past them (Linux 6.6).
const DIRECT_MAPS: InitFlags = InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;

/// Locks are asked for with these.
const LOCKS: InitFlags = InitFlags::FUSE_POSIX_LOCKS.union(InitFlags::FUSE_FLOCK_LOCKS);

/// No program waits for the answer, or an error would lose something: not to be interrupted.
const NO_THREAD: u32 = 0;

/// The kernel's side of a mount.
pub(crate) struct Adapter<V: Vfs> {
    queue: Queue<V>,
    counts: Arc<RequestCounts>,
    at_once: Arc<AtOnce>,
    readahead_bytes: u32,
    readdirplus: bool,
    has_locks: bool,
}

impl<V: Vfs> Adapter<V> {
    pub(crate) fn new(
        queue: Queue<V>,
        counts: Arc<RequestCounts>,
        at_once: Arc<AtOnce>,
        readahead_bytes: u32,
        readdirplus: bool,
        local_locks: bool,
    ) -> Adapter<V> {
        let has_locks = V::HAS_LOCKS && !local_locks;
        Adapter { queue, counts, at_once, readahead_bytes, readdirplus, has_locks }
    }

    /// Count a request of a thread and send it to the client.
    fn run<F>(&self, verb: Verb, thread: u32, request: impl FnOnce(Rc<Fs<V>>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        self.counts.add(verb);
        // The client's own thread is not woken where this one may run the client.
        real::run_woken(|| self.queue.run(thread, request));
    }
}

fn check(offered: InitFlags) -> io::Result<()> {
    match offered.contains(NEEDED) {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel does not say which writes take set-user-id away: Linux 5.11 is the least",
        )),
    }
}

fn caller(req: &Request) -> Caller {
    Caller { uid: req.uid(), gid: req.gid() }
}

fn bytes(name: &OsStr) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

impl<V: Vfs> Filesystem for Adapter<V> {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        check(config.capabilities())?;
        if config.add_capabilities(DIRECT_MAPS).is_err() {
            tracing::warn!(
                "this kernel is older than Linux 6.6: appends, and writes with O_DIRECT, are not seen through descriptors \
                 that are open already; a mount with `direct` (--direct) shows it"
            );
        }
        // Listings with attributes, always, if they are switched on: an entry's attributes are mostly where
        // the entry is.
        let plus = self.readdirplus.then_some(InitFlags::FUSE_DO_READDIRPLUS);
        let locks = self.has_locks.then_some(LOCKS);
        for wanted in WANTED.into_iter().chain([NEEDED]).chain(plus).chain(locks) {
            if config.add_capabilities(wanted).is_err() {
                tracing::debug!("this kernel does not offer {wanted:?}");
            }
        }
        // Each of these returns the nearest value; none is out of range.
        let _ = config.set_max_write(TRANSFER_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        if let Err(most) = config.set_max_readahead(self.readahead_bytes) {
            let _ = config.set_max_readahead(most);
        }
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let dir = handle(parent);
        // A file system that counts the kernel's references answers each lookup itself.
        if !V::HEARS_REFERENCES
            && let Some(listed) = self.at_once.ahead.get(req.pid(), dir, name.as_bytes(), real::now())
            && !V::counts_references(listed.0.handle)
        {
            self.counts.add(Verb::Lookup);
            return answer::entry(Ok(listed), reply);
        }
        let (thread, name) = (req.pid(), bytes(name));
        self.run(Verb::Lookup, req.pid(), move |fs| async move {
            answer::found(&fs, fs.lookup(thread, dir, &name).await, reply)
        });
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.counts.add(Verb::Forget);
        self.at_once.gone.forgotten(handle(ino));
        if V::counts_references(handle(ino)) {
            real::run_woken(|| self.queue.forget(handle(ino), nlookup));
        }
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        let object = handle(ino);
        if let Some(known) = self.at_once.directories.get(object, real::now()) {
            self.counts.add(Verb::Getattr);
            return answer::attr(Ok(known), reply);
        }
        let thread = req.pid();
        self.run(Verb::Getattr, req.pid(), move |fs| async move {
            let attr = fs.getattr_of(thread, object).await;
            answer::attr(attr.map(|attr| (attr, fs.cache())), reply);
        });
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
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (caller, object) = (caller(req), handle(ino));
        let (atime, mtime, ctime) = (atime.map(when), mtime.map(when), ctime.map(time_from_kernel));
        let change = Change { mode, uid, gid, size, atime, mtime, ctime };
        self.run(Verb::Setattr, req.pid(), move |fs| async move {
            let set = fs.setattr(caller, object, change).await;
            answer::attr(set.map(|attr| (attr, fs.cache())), reply);
        });
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        let object = handle(ino);
        self.run(Verb::Readlink, req.pid(), move |fs| async move {
            answer::data(fs.readlink(object).await, reply)
        });
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
        let (caller, dir, name, device) =
            (caller(req), handle(parent), bytes(name), device_from_kernel(rdev));
        self.run(Verb::Mknod, req.pid(), move |fs| async move {
            answer::made(&fs, fs.mknod(caller, dir, &name, mode, device).await, reply);
        });
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let (caller, dir, name) = (caller(req), handle(parent), bytes(name));
        self.run(Verb::Mkdir, req.pid(), move |fs| async move {
            answer::made(&fs, fs.mkdir(caller, dir, &name, mode).await, reply);
        });
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name) = (handle(parent), bytes(name));
        self.run(Verb::Unlink, req.pid(), move |fs| async move {
            answer::empty(fs.unlink(dir, &name).await, reply)
        });
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (dir, name) = (handle(parent), bytes(name));
        self.run(Verb::Rmdir, req.pid(), move |fs| async move {
            answer::empty(fs.rmdir(dir, &name).await, reply)
        });
    }

    fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let (caller, dir, name, target) =
            (caller(req), handle(parent), bytes(name), bytes(target.as_os_str()));
        self.run(Verb::Symlink, req.pid(), move |fs| async move {
            answer::made(&fs, fs.symlink(caller, dir, &name, &target).await, reply);
        });
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((handle(parent), bytes(name)), (handle(new_parent), bytes(new_name)));
        self.run(Verb::Rename, req.pid(), move |fs| async move {
            let (from, to) = ((from.0, &from.1[..]), (to.0, &to.1[..]));
            answer::empty(fs.rename(from, to, flags.bits()).await, reply);
        });
    }

    fn link(&self, req: &Request, ino: INodeNo, new_parent: INodeNo, new_name: &OsStr, reply: ReplyEntry) {
        let (object, dir, name) = (handle(ino), handle(new_parent), bytes(new_name));
        self.run(Verb::Link, req.pid(), move |fs| async move {
            answer::made(&fs, fs.link(object, dir, &name).await, reply)
        });
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (thread, object) = (req.pid(), handle(ino));
        self.run(Verb::Open, req.pid(), move |fs| async move {
            answer::opened(fs.open(thread, object, flags.0).await, reply);
        });
    }

    fn read(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.run(Verb::Read, req.pid(), move |fs| async move {
            answer::data(fs.read(fh.0, offset, size as usize).await, reply)
        });
    }

    fn write(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let len = data.len();
        // Pages written back from a mapping are lost if that fails.
        let thread = if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) { NO_THREAD } else { req.pid() };
        let write = Write {
            offset,
            data: Bytes::copy_from_slice(data),
            append: flags.0 & libc::O_APPEND != 0,
            direct: flags.0 & libc::O_DIRECT != 0,
            write_back: write_flags.contains(WriteFlags::FUSE_WRITE_CACHE),
            kill_privileges: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
            durable: flags.0 & libc::O_DSYNC != 0,
        };
        self.run(Verb::Write, thread, move |fs| async move {
            answer::written(fs.write(fh.0, write).await, len, reply)
        });
    }

    fn flush(&self, req: &Request, _ino: INodeNo, fh: FileHandle, owner: LockOwner, reply: ReplyEmpty) {
        let has_locked = self.has_locks && self.at_once.has_locked();
        if !V::File::REPORTS_CLOSES && !has_locked && !self.at_once.has_reporting() {
            self.counts.add(Verb::Flush);
            // After `ENOSYS` the kernel sends no more.
            let is_needed = self.has_locks || V::File::MAY_REPORT_CLOSES;
            return answer::empty(if is_needed { Ok(()) } else { Err(Errno::NOSYS) }, reply);
        }
        self.run(Verb::Flush, req.pid(), move |fs| async move {
            answer::empty(fs.flush(fh.0, owner.0).await, reply)
        });
    }

    fn getlk(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let asked = locks::asked(lock_owner.0, start, end, typ, pid, false);
        self.run(Verb::Getlk, req.pid(), move |fs| async move {
            let holder = match asked {
                Ok(asked) => fs.lock_holder(fh.0, asked).await,
                Err(errno) => Err(errno),
            };
            answer::holder(holder, reply);
        });
    }

    fn setlk(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        lock_owner: LockOwner,
        start: u64,
        end: u64,
        typ: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        self.at_once.locks();
        let asked = locks::asked(lock_owner.0, start, end, typ, pid, sleep);
        self.run(Verb::Setlk, req.pid(), move |fs| async move {
            let done = match asked {
                Ok(asked) => fs.set_lock(fh.0, asked).await,
                Err(errno) => Err(errno),
            };
            answer::empty(done, reply);
        });
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
        self.run(
            Verb::Release,
            NO_THREAD,
            move |fs| async move { answer::empty(fs.release(fh.0).await, reply) },
        );
    }

    fn fsync(&self, req: &Request, _ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.run(Verb::Fsync, req.pid(), move |fs| async move { answer::empty(fs.fsync(fh.0).await, reply) });
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let dir = handle(ino);
        self.run(Verb::Opendir, req.pid(), move |fs| async move {
            answer::opened_dir(fs.opendir(dir).await, reply);
        });
    }

    fn readdir(&self, req: &Request, _ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        self.run(Verb::Readdir, req.pid(), move |fs| async move {
            answer::readdir(&fs, fh.0, offset, reply).await
        });
    }

    fn readdirplus(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.run(Verb::Readdirplus, req.pid(), move |fs| async move {
            answer::readdirplus(&fs, fh.0, offset, reply).await
        });
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.run(
            Verb::Releasedir,
            NO_THREAD,
            move |fs| async move { answer::empty(fs.releasedir(fh.0), reply) },
        );
    }

    fn fsyncdir(&self, req: &Request, _ino: INodeNo, fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.run(Verb::Fsyncdir, req.pid(), move |fs| async move {
            answer::empty(fs.fsyncdir(fh.0).await, reply)
        });
    }

    fn statfs(&self, req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.run(Verb::Statfs, req.pid(), move |fs| async move { answer::statfs(fs.statfs().await, reply) });
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (object, name, value) = (handle(ino), bytes(name), Bytes::copy_from_slice(value));
        self.run(Verb::Setxattr, req.pid(), move |fs| async move {
            answer::empty(fs.setxattr(object, &name, &value, flags).await, reply);
        });
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let (object, name) = (handle(ino), bytes(name));
        self.run(Verb::Getxattr, req.pid(), move |fs| async move {
            answer::xattr(fs.getxattr(object, &name).await, size, reply);
        });
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let (uid, object) = (req.uid(), handle(ino));
        self.run(Verb::Listxattr, req.pid(), move |fs| async move {
            answer::xattr(fs.listxattr(uid, object).await.map(Bytes::from), size, reply);
        });
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (object, name) = (handle(ino), bytes(name));
        self.run(Verb::Removexattr, req.pid(), move |fs| async move {
            answer::empty(fs.removexattr(object, &name).await, reply);
        });
    }

    fn access(&self, _req: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        self.counts.add(Verb::Access);
        answer::empty(Err(Errno::NOSYS), reply);
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
        let (caller, dir, name) = (caller(req), handle(parent), bytes(name));
        self.run(Verb::Create, req.pid(), move |fs| async move {
            answer::created(&fs, fs.create(caller, dir, &name, mode, flags).await, reply);
        });
    }

    fn ioctl(
        &self,
        req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        cmd: u32,
        _in_data: &[u8],
        _out_size: u32,
        reply: ReplyIoctl,
    ) {
        if cmd != SYNC_ALL {
            self.counts.add(Verb::Ioctl);
            return reply.error(answer::failed(Errno(libc::ENOTTY)));
        }
        self.run(Verb::Ioctl, req.pid(), move |fs| async move {
            match fs.sync_all().await {
                Ok(()) => reply.ioctl(0, &[]),
                Err(errno) => reply.error(answer::failed(errno)),
            }
        });
    }

    fn poll(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _notifier: PollNotifier,
        _events: PollEvents,
        _flags: PollFlags,
        reply: ReplyPoll,
    ) {
        self.counts.add(Verb::Poll);
        reply.error(answer::failed(Errno::NOSYS));
    }

    fn fallocate(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.run(Verb::Fallocate, req.pid(), move |fs| async move {
            answer::empty(fs.fallocate(fh.0, offset, length, mode).await, reply);
        });
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        self.counts.add(Verb::Lseek);
        reply.error(answer::failed(Errno::NOSYS));
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        _ino_in: INodeNo,
        _fh_in: FileHandle,
        _offset_in: u64,
        _ino_out: INodeNo,
        _fh_out: FileHandle,
        _offset_out: u64,
        _len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        self.counts.add(Verb::CopyFileRange);
        reply.error(answer::failed(Errno::NOSYS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_say_which_writes_take_privileges_away_is_refused_in_words() {
        assert!(check(InitFlags::all()).is_ok());
        let error = check(InitFlags::all() - NEEDED).unwrap_err();
        assert!(error.to_string().contains("Linux 5.11"), "{error}");
    }
}
