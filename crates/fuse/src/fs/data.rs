//! Open files and their bytes.
//!
//! The flags of an open decide how the file is read and written: through the kernel's page cache, where each
//! write also goes to the file system at once; or past the page cache (*direct*). An open is direct if the
//! mount is direct, or if the flags of the open contain `O_DIRECT`, or `O_APPEND` together with write access.
//!
//! **At an open the kernel drops its pages of the file, unless the pages are current.** The client records
//! the change counts at which the pages were filled, and compares them with the servers' counts at each open
//! (`shoal_client`'s module `pages`). If an answer between two opens shows a change by another client, and
//! the file is open for reading through the page cache, the client reports the change. Then
//! [`stale`](super::stale) invalidates the pages in the kernel.
//!
//! **An append goes to the end of the file at its server**, not to the end that the kernel knows: another
//! mount may have appended since. If these two differ, the kernel's pages and attributes of the file are
//! wrong. They are invalidated before the writer's call returns, unless that takes longer than the time limit
//! of a request. Another thread does this ([`forgetting`](crate::forgetting)): the kernel may first wait for
//! a page until a read has filled it, and this thread must be free to answer the read. There is one
//! exception. A descriptor that gets `O_APPEND` after its open (`fcntl`) writes through the page cache, and
//! the kernel keeps the page locked until the reply. So its pages are invalidated after the reply.
//!
//! **A write clears privileges**: file capabilities, and set-user-id and set-group-id if the kernel requests
//! it (a user other than root writes). The kernel itself clears file capabilities at a write through its page
//! cache, but it may not know a capability that another client has set. So before a write by a user other
//! than root, this module looks for a file capability itself, and looks again when the cache time of
//! attributes has passed. Before a write by root it looks only at the first direct write of an open file, and
//! after a capability was set through this mount. After a direct write that cleared mode bits, the kernel's
//! attributes are invalidated before the writer's call returns, or at the deadline.
//!
//! **Bytes that the kernel writes back from a mapping are never appended**, even if the kernel writes them
//! through a descriptor for appending.

use super::attempts::Refused;
use super::{Errno, Fs, Result, Untrue};
use bytes::Bytes;
use futures_util::future::try_join;
use shoal_proto::{Allocation, Handle, Rights};
use shoal_vfs::{Error, Vfs, VfsFile};
use std::cell::Cell;
use std::rc::Rc;

/// The extended attribute that gives a program capabilities; a write takes it away.
const CAPABILITY: &[u8] = b"security.capability";

/// An open file.
pub struct Opened<F> {
    file: F,
    /// Past the kernel's page cache.
    direct: bool,
    /// No file capability that was set through this mount is left (the kernel sees to it for cached writes).
    unprivileged: Cell<bool>,
}

/// The access rights that `open(2)`'s flags request.
pub(super) fn rights_of(flags: i32) -> Rights {
    match flags & libc::O_ACCMODE {
        libc::O_WRONLY => Rights::WRITE,
        libc::O_RDWR => Rights::READ | Rights::WRITE,
        _ => Rights::READ,
    }
}

impl<F: VfsFile> Opened<F> {
    /// The file system's open file.
    pub(super) fn file(&self) -> &F {
        &self.file
    }

    /// Close it. Requests still under way keep it open until they are done.
    pub(super) async fn close(this: Rc<Opened<F>>) -> std::result::Result<(), Error> {
        match Rc::try_unwrap(this) {
            Ok(opened) => opened.file.close().await,
            Err(_) => Ok(()),
        }
    }
}

/// An open, as it is returned to the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// The number of the open file.
    pub fh: u64,
    /// Past the page cache.
    pub direct: bool,
    /// The kernel's pages of the file are current, and the kernel keeps them.
    pub pages_stay: bool,
}

/// A write, as the kernel asks for it.
#[derive(Clone, Debug)]
pub struct Write {
    /// The offset. For an append: the end of the file that the kernel knows.
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
    /// The descriptor is for appending.
    pub append: bool,
    /// The descriptor is for direct writes (`O_DIRECT`).
    pub direct: bool,
    /// The kernel writes a mapping's pages back.
    pub write_back: bool,
    /// The write must clear set-user-id and set-group-id.
    pub kill_privileges: bool,
    /// The descriptor is for durable writes (`O_DSYNC`, `O_SYNC`).
    pub durable: bool,
}

impl<V: Vfs> Fs<V> {
    /// Open a file with `open(2)`'s flags.
    pub async fn open(&self, thread: u32, object: Handle, flags: i32) -> Result<Opening> {
        let rights = rights_of(flags);
        // When the kernel drops pages, it writes back the bytes that programs stored through mappings.
        // Operations past the page cache must see these bytes.
        let opened = match self.goes_past_pages(flags) {
            true => self.vfs.open_past_pages(object, rights).await,
            false => self.vfs.open_pages(object, rights).await,
        };
        let (file, size, counts) = match self.heard(object, opened) {
            Ok(shoal_vfs::Opened { file, size, has_name: true, counts }) => {
                self.attempts.ended(thread);
                (file, size, counts)
            }
            Ok(shoal_vfs::Opened { file, .. }) => {
                let file = self.open_removed(thread, object, flags, Some(file)).await?;
                (file, None, Default::default())
            }
            Err(Errno::STALE) => {
                let file = self.open_removed(thread, object, flags, None).await?;
                (file, None, Default::default())
            }
            Err(errno) => return Err(errno),
        };
        let pages_stay = file.keeps_pages(&counts);
        let opening = self.opened(file, flags, pages_stay);
        // An open must see earlier writes, even those after the end of the file that the kernel has cached.
        if !opening.direct && self.known().may_believe_another_size(object, size, self.now()) {
            // The kernel must not get the file's attributes of an earlier listing again.
            self.changed(object);
            (self.invalidate)(object, Untrue::Attributes).await;
        }
        Ok(opening)
    }

    /// Open a file that has no name any more. `file`: its server opened it, because this client has it open.
    async fn open_removed(
        &self,
        thread: u32,
        object: Handle,
        flags: i32,
        file: Option<V::File>,
    ) -> Result<V::File> {
        let (now, rights) = (self.now(), rights_of(flags));
        let found = self.attempts.file(thread, object, now);
        let has_no_path = self.attempts.has_no_path(thread, object, now);
        // Without a thread there is no second try.
        let may_be = found.is_some() || has_no_path || thread == 0;
        let found = found.filter(|found| found.rights() == rights).map(|found| found.again());
        let file = match file.filter(|_| may_be).or(found) {
            None if has_no_path && self.vfs.has_open(object) => self.vfs.open_held(object, rights).await.ok(),
            file => file,
        };
        let Some(file) = file else {
            self.refused(thread, Refused::Open(flags), object);
            return Err(Errno::STALE);
        };
        self.attempts.ended(thread);
        Ok(file)
    }

    pub(super) fn opened(&self, file: V::File, flags: i32, pages_stay: bool) -> Opening {
        let direct = self.goes_past_pages(flags);
        if !direct && rights_of(flags).contains(Rights::READ) {
            file.reads_pages();
        }
        if file.reports_closes() {
            self.at_once.opens_reporting();
        }
        let opened = Opened { file, direct, unprivileged: Cell::new(!direct) };
        Opening { fh: self.files.insert(opened), direct, pages_stay }
    }

    /// Whether a file opened with these flags is read and written past the page cache.
    fn goes_past_pages(&self, flags: i32) -> bool {
        let writable = rights_of(flags).contains(Rights::WRITE);
        let appends = writable && flags & libc::O_APPEND != 0;
        self.direct || appends || flags & libc::O_DIRECT != 0
    }

    /// The last descriptor of an open file is gone.
    pub async fn release(&self, fh: u64) -> Result<()> {
        let opened = self.files.remove(fh)?;
        Ok(Opened::close(opened).await?)
    }

    /// Read; short only at the end of the file.
    pub async fn read(&self, fh: u64, offset: u64, len: usize) -> Result<Bytes> {
        Ok(self.files.get(fh)?.file.read(offset, len).await?)
    }

    /// Write all of it.
    pub async fn write(self: &Rc<Self>, fh: u64, write: Write) -> Result<()> {
        let opened = self.files.get(fh)?;
        let object = opened.file.handle();
        let mut cleared = false;
        if write.kill_privileges {
            let capability = self.kill_capability(&opened, true);
            (cleared, ()) = try_join(self.kill_privileges(object), capability).await?;
        } else {
            self.kill_capability(&opened, false).await?;
        }
        // For a write through its page cache the kernel itself requests durability, by an fsync.
        let durable = write.durable && opened.direct;
        let appends = write.append && !write.write_back;
        let end = write.offset + write.data.len() as u64;
        let has_pages = write.write_back || !(opened.direct || write.direct);
        let written = if appends {
            self.append(&opened, write).await
        } else if durable {
            opened.file.write_durable(write.offset, write.data).await.map_err(Errno::from)
        } else if has_pages {
            // A write shows that a program uses this open file; a write-back does not. The kernel writes a
            // mapping back through any open file, even one whose `open` has not returned yet.
            if !write.write_back {
                opened.file.has_forgotten_pages();
            }
            opened.file.write_pages(write.offset, write.data).await.map_err(Errno::from)
        } else {
            opened.file.write(write.offset, write.data).await.map_err(Errno::from)
        };
        // Even if the write failed, a part of it may have been written.
        self.changed(object);
        match written {
            Ok(()) => self.known().grew_to(object, end),
            Err(_) => self.known().unsure_of_size(object),
        }
        written?;
        if cleared {
            self.untrue(&opened, Untrue::Attributes).await;
        }
        if durable && appends {
            opened.file.fsync().await?;
        }
        Ok(())
    }

    /// Have the kernel invalidate the pages or the attributes of a file that is being written. For a direct
    /// write this ends before the writer's call returns, or at the deadline. For a write through the page
    /// cache it runs in the background.
    async fn untrue(self: &Rc<Self>, opened: &Opened<V::File>, untrue: Untrue) {
        let invalidated = (self.invalidate)(opened.file.handle(), untrue);
        if opened.direct {
            // The kernel may wait for a page of a silent server. The write is done, so its reply does not
            // wait longer than the deadline.
            let _ = self.env.deadline(self.vfs.deadline(), invalidated).await;
        } else {
            self.spawn(invalidated);
        }
    }

    async fn append(self: &Rc<Self>, opened: &Rc<Opened<V::File>>, write: Write) -> Result<()> {
        let object = opened.file.handle();
        let offset = opened.file.append(write.data).await?;
        if offset == write.offset {
            return Ok(());
        }
        self.changed(object);
        self.untrue(opened, Untrue::Pages).await;
        Ok(())
    }

    /// Before a write: remove a file capability. `by_another`: a user other than root writes.
    async fn kill_capability(&self, opened: &Opened<V::File>, by_another: bool) -> Result<()> {
        let object = opened.file.handle();
        let is_known = match by_another {
            true => opened.unprivileged.get() && self.known().incapable(object, self.now()),
            false => opened.unprivileged.get(),
        };
        if is_known {
            return Ok(());
        }
        let (mark, asked_at) = (self.known().xattr_mark(), self.now());
        opened.unprivileged.set(true);
        let looked = match self.xattr_names(object).await {
            Ok(names) if names.iter().any(|name| name[..] == *CAPABILITY) => {
                self.removexattr(object, CAPABILITY).await
            }
            Ok(_) => {
                self.known().saw_incapable(object, mark, asked_at);
                Ok(())
            }
            Err(errno) => Err(errno),
        };
        match looked {
            // Another writer has removed it already.
            Err(Errno::NODATA) => Ok(()),
            looked => looked.inspect_err(|_| opened.unprivileged.set(false)),
        }
    }

    /// An extended attribute was set through this mount. If it is a file capability, the next write through
    /// each open file checks for it.
    pub(super) fn xattr_was_set(&self, object: Handle, name: &[u8]) {
        if name == CAPABILITY {
            self.files.each(|opened| {
                if opened.file.handle() == object {
                    opened.unprivileged.set(false);
                }
            });
        }
    }

    /// Make all data of an open file durable.
    pub async fn fsync(&self, fh: u64) -> Result<()> {
        Ok(self.files.get(fh)?.file.fsync().await?)
    }

    /// Make everything durable, on all servers.
    pub async fn sync_all(&self) -> Result<()> {
        Ok(self.vfs.sync_all().await?)
    }

    /// Reserve space or make a hole. `mode`: that of `fallocate(2)`.
    pub async fn fallocate(&self, fh: u64, offset: u64, len: u64, mode: i32) -> Result<()> {
        let (mode, opened) = (allocation(mode)?, self.files.get(fh)?);
        let done = opened.file.allocate(offset, len, mode).await;
        self.changed(opened.file.handle());
        self.known().unsure_of_size(opened.file.handle());
        Ok(done?)
    }

    /// Space: (bytes in all, bytes available, objects).
    pub async fn statfs(&self) -> Result<(u64, u64, u64)> {
        shoal_env::mutant::panic_if_asked("mount");
        let space = self.vfs.statfs().await?;
        Ok((space.total, space.available, space.objects))
    }
}

fn allocation(mode: i32) -> Result<Allocation> {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const PUNCH_KEEP: i32 = PUNCH | KEEP;
    const ZERO_KEEP: i32 = ZERO | KEEP;
    match mode {
        0 => Ok(Allocation::Extend),
        KEEP => Ok(Allocation::KeepSize),
        PUNCH_KEEP => Ok(Allocation::Punch),
        ZERO => Ok(Allocation::Zero),
        ZERO_KEEP => Ok(Allocation::ZeroKeepSize),
        _ => Err(Errno::OPNOTSUPP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_opened_with_the_rights_its_flags_ask_for_and_no_more() {
        assert_eq!(rights_of(libc::O_RDONLY), Rights::READ);
        assert_eq!(rights_of(libc::O_WRONLY | libc::O_APPEND), Rights::WRITE);
        assert_eq!(rights_of(libc::O_RDWR | libc::O_CREAT), Rights::READ | Rights::WRITE);
    }

    #[test]
    fn allocations_that_are_not_offered_are_refused() {
        assert_eq!(allocation(0), Ok(Allocation::Extend));
        assert_eq!(allocation(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE), Ok(Allocation::Punch));
        assert_eq!(allocation(libc::FALLOC_FL_PUNCH_HOLE), Err(Errno::OPNOTSUPP));
        assert_eq!(allocation(libc::FALLOC_FL_COLLAPSE_RANGE), Err(Errno::OPNOTSUPP));
        assert_eq!(allocation(libc::FALLOC_FL_INSERT_RANGE), Err(Errno::OPNOTSUPP));
        assert_eq!(allocation(-1), Err(Errno::OPNOTSUPP));
    }
}
