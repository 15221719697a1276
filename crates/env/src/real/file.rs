//! Positioned file I/O.
//!
//! *Reads* of buffered files first try the page cache alone (`preadv2` with `RWF_NOWAIT`) on the thread
//! that polls the environment; the pool reads the missing bytes. *Small buffered writes* are made on that
//! thread too, as long as none stalls ([`inline`](super::inline)); other writes and everything else that
//! may block go to the pool. A short read or write is continued, and an interrupted call is repeated. So a
//! caller sees all bytes, or the end of the file, or an error.
//!
//! *Direct* files read through aligned buffers of their own, wider than the requested range if it is not
//! aligned; their writes must be aligned. Some file systems accept `O_DIRECT` at open and refuse it at the
//! first transfer (`EINVAL`): then the flag is cleared, the file is buffered from then on, and
//! [`FileImpl::is_direct`] returns false. `O_DSYNC` stays in either case.

use super::inline::Inline;
use super::polling::Polling;
use super::pool::Pool;
use crate::{AlignedBuf, Counters, FileImpl, OpenOptions};
use bytes::{Bytes, BytesMut};
use futures_channel::oneshot;
use futures_util::future::LocalBoxFuture;
use rustix::fs::{Advice, FallocateFlags, OFlags};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Reads longer than this are not tried inline: copying them would hold the thread too long.
const INLINE_READ_MAX: usize = 1 << 20;
/// Bytes written at once where a hole has to be imitated.
const ZEROS: usize = 64 << 10;
/// The unit of `st_blocks`, independent of the file system's block size.
const STAT_BLOCK: u64 = 512;

/// State that an environment's files share.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) pool: Rc<Pool>,
    pub(super) counters: Arc<Counters>,
    pub(super) polling: Rc<Polling>,
    pub(super) inline: Rc<Inline>,
}

impl Desk {
    /// Run a blocking call on the pool, beginning now; await its result.
    pub(super) fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> LocalBoxFuture<'static, io::Result<T>> {
        let (answer, polling) = (self.start(work), self.polling.clone());
        Box::pin(async move {
            let answer = answer.await;
            polling.note();
            answer.unwrap_or_else(|_| Err(pool_gone()))
        })
    }

    fn start<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> oneshot::Receiver<T> {
        self.pool.run(work)
    }
}

fn pool_gone() -> io::Error {
    io::Error::other("the environment ended before the file call did")
}

/// The file as the pool's threads see it.
struct Inner {
    fd: OwnedFd,
    /// Requested at open; alignment is demanded even after a fall-back, so that no code works by luck.
    aligned: bool,
    direct: AtomicBool,
    dsync: bool,
    apart: bool,
}

/// See the module.
pub(super) struct RealFile {
    inner: Arc<Inner>,
    desk: Desk,
}

impl RealFile {
    /// Take over an open descriptor; `O_DIRECT` is set here if requested and accepted.
    pub(super) fn new(fd: OwnedFd, options: OpenOptions, desk: Desk) -> RealFile {
        // Set after opening: an open with O_CREAT|O_EXCL|O_DIRECT that is refused may leave the file in
        // place.
        let direct = options.direct && set_direct(&fd, true).is_ok();
        let inner = Inner {
            fd,
            aligned: options.direct,
            direct: AtomicBool::new(direct),
            dsync: options.dsync,
            apart: options.apart,
        };
        RealFile { inner: Arc::new(inner), desk }
    }

    fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> io::Result<T> + Send + 'static,
    ) -> LocalBoxFuture<'static, io::Result<T>> {
        let inner = self.inner.clone();
        self.desk.call(move || work(&inner))
    }

    /// Whether to make a write of so many bytes at once, on this thread. It is counted.
    fn writes_inline(&self, bytes: usize) -> bool {
        let Inner { aligned, dsync, apart, .. } = *self.inner;
        let is_inline = !(aligned || dsync || apart) && self.desk.inline.takes(bytes);
        Counters::add(&self.desk.counters.file_writes_inline, u64::from(is_inline));
        is_inline
    }

    fn count_write(&self, bytes: usize) {
        Counters::add(&self.desk.counters.file_writes, 1);
        Counters::add(&self.desk.counters.file_write_bytes, bytes as u64);
        if self.inner.dsync {
            Counters::add(&self.desk.counters.syncs, 1);
        }
    }

    fn count_call(&self) {
        Counters::add(&self.desk.counters.file_calls, 1);
    }
}

fn set_direct(fd: &OwnedFd, on: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(fd)?;
    flags.set(OFlags::DIRECT, on);
    Ok(rustix::fs::fcntl_setfl(fd, flags)?)
}

impl Inner {
    /// Make `transfer`; if the file system refuses direct I/O only now, make it again without.
    fn with_fall_back<T>(&self, mut transfer: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        match transfer() {
            Err(error) if is_invalid(&error) && self.direct.swap(false, Relaxed) => {
                set_direct(&self.fd, false)?;
                transfer()
            }
            other => other,
        }
    }

    fn read(&self, offset: u64, mut got: BytesMut, len: usize) -> io::Result<Bytes> {
        while got.len() < len {
            if !self.read_some(offset, &mut got, len, 0)? {
                break;
            }
        }
        Ok(got.freeze())
    }

    /// One read after the bytes in `got`, up to `len` in all; false at the end of the file.
    fn read_some(&self, offset: u64, got: &mut BytesMut, len: usize, flags: i32) -> io::Result<bool> {
        let at = file_offset(offset.checked_add(got.len() as u64))?;
        let wanted = len - got.len();
        let room = &mut got.spare_capacity_mut()[..wanted];
        let part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        let n = loop {
            // SAFETY: `part` describes `room`, memory this function alone may write for the time of the call.
            let n = unsafe { libc::preadv2(self.fd.as_raw_fd(), &raw const part, 1, at, flags) };
            match usize::try_from(n) {
                Ok(n) => break n,
                Err(_) => repeat_if_interrupted(io::Error::last_os_error())?,
            }
        };
        // SAFETY: the kernel has written the first `n` bytes of the spare capacity.
        unsafe { got.set_len(got.len() + n) };
        Ok(n > 0)
    }

    /// Read the aligned blocks that cover the range, and return the range.
    fn read_direct(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let align = AlignedBuf::ALIGN as u64;
        let start = offset - offset % align;
        let end = offset.checked_add(len as u64).and_then(|end| end.checked_next_multiple_of(align));
        let span = end.map(|end| end - start).and_then(|span| usize::try_from(span).ok());
        let mut buf = AlignedBuf::zeroed(span.ok_or(io::ErrorKind::InvalidInput)?);
        let mut filled = 0;
        while filled < buf.len() {
            let at = start + filled as u64;
            let n =
                self.with_fall_back(|| repeated(|| rustix::io::pread(&self.fd, &mut buf[filled..], at)))?;
            filled += n;
            // A read that ends within a block has reached the end of the file; the next read would be
            // unaligned.
            if n == 0 || !n.is_multiple_of(AlignedBuf::ALIGN) {
                break;
            }
        }
        let skip = usize::try_from(offset - start).map_or(filled, |skip| skip.min(filled));
        Ok(Bytes::from_owner(buf).slice(skip..filled.min(skip + len)))
    }

    fn write(&self, offset: u64, pieces: &[Bytes]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut rest = &mut slices[..];
        let mut at = offset;
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let some = &rest[..rest.len().min(IOV_MAX)];
            let n = repeated(|| rustix::io::pwritev(&self.fd, some, at))?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            at += n as u64;
            IoSlice::advance_slices(&mut rest, n);
        }
        Ok(())
    }

    fn write_buf(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let n = self.with_fall_back(|| repeated(|| rustix::io::pwrite(&self.fd, &buf[done..], at)))?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            done += n;
        }
        Ok(())
    }

    fn check_range(&self, offset: u64, len: usize) -> io::Result<()> {
        file_offset(offset.checked_add(len as u64))?;
        let align = AlignedBuf::ALIGN as u64;
        if self.aligned && !(offset.is_multiple_of(align) && (len as u64).is_multiple_of(align)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a direct write of {len} bytes at {offset} is not aligned to {align}"),
            ));
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(u64::try_from(rustix::fs::fstat(&self.fd)?.st_size).unwrap_or(0))
    }

    /// Reserve, or, if the file system cannot, set only the length.
    fn allocate(&self, offset: u64, len: u64, extend: bool) -> io::Result<()> {
        let flags = if extend { FallocateFlags::empty() } else { FallocateFlags::KEEP_SIZE };
        if len == 0 {
            return Ok(());
        }
        match repeated(|| rustix::fs::fallocate(&self.fd, flags, offset, len)) {
            Err(error) if is_unsupported(&error) && extend => {
                let end = offset.saturating_add(len);
                if self.len()? < end { Ok(rustix::fs::ftruncate(&self.fd, end)?) } else { Ok(()) }
            }
            Err(error) if is_unsupported(&error) => Ok(()),
            other => other,
        }
    }

    /// Make a hole, or, if the file system cannot, write zeros.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if len == 0 {
            return Ok(());
        }
        match repeated(|| rustix::fs::fallocate(&self.fd, flags, offset, len)) {
            Err(error) if is_unsupported(&error) => self.write_zeros(offset, len),
            other => other,
        }
    }

    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.saturating_add(len).min(self.len()?);
        let zeros = AlignedBuf::zeroed(ZEROS);
        let mut at = offset;
        while at < end {
            let n = (end - at).min(ZEROS as u64);
            self.write_buf(at, &zeros[..usize::try_from(n).unwrap_or(ZEROS)])?;
            at += n;
        }
        Ok(())
    }
}

/// Most slices of one `pwritev` (Linux's `UIO_MAXIOV`).
const IOV_MAX: usize = 1024;

fn file_offset(offset: Option<u64>) -> io::Result<i64> {
    let too_far = || io::Error::new(io::ErrorKind::InvalidInput, "an offset beyond the largest of a file");
    offset.and_then(|offset| i64::try_from(offset).ok()).ok_or_else(too_far)
}

fn repeat_if_interrupted(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}

fn repeated<T>(call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    Ok(rustix::io::retry_on_intr(call)?)
}

fn is_invalid(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
}

fn is_unsupported(error: &io::Error) -> bool {
    [Errno::OPNOTSUPP, Errno::NOSYS].iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// `pieces` as one aligned buffer.
fn gathered(pieces: &[Bytes], len: usize) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    let mut at = 0;
    for piece in pieces {
        buf[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    buf
}

/// A read of the page cache alone. `Ok(false)`: the rest has to be read by the pool.
fn read_cached(inner: &Inner, offset: u64, got: &mut BytesMut, len: usize) -> io::Result<bool> {
    while got.len() < len {
        match inner.read_some(offset, got, len, libc::RWF_NOWAIT) {
            Ok(true) => {}
            Ok(false) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock || is_unsupported(&error) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

async fn read_buffered(inner: Arc<Inner>, desk: Desk, offset: u64, len: usize) -> io::Result<Bytes> {
    let mut got = BytesMut::with_capacity(len);
    if len <= INLINE_READ_MAX && read_cached(&inner, offset, &mut got, len)? {
        return Ok(got.freeze());
    }
    desk.call(move || inner.read(offset, got, len)).await
}

impl FileImpl for RealFile {
    fn read_at(&self, offset: u64, len: usize) -> LocalBoxFuture<'static, io::Result<Bytes>> {
        let (inner, desk) = (self.inner.clone(), self.desk.clone());
        Box::pin(async move {
            Counters::add(&desk.counters.file_reads, 1);
            let counters = desk.counters.clone();
            let bytes = if inner.direct.load(Relaxed) {
                desk.call(move || inner.read_direct(offset, len)).await?
            } else {
                read_buffered(inner, desk, offset, len).await?
            };
            Counters::add(&counters.file_read_bytes, bytes.len() as u64);
            Ok(bytes)
        })
    }

    fn write_at(&self, offset: u64, pieces: Vec<Bytes>) -> LocalBoxFuture<'static, io::Result<()>> {
        let len = pieces.iter().map(Bytes::len).sum();
        self.count_write(len);
        if self.inner.aligned {
            Counters::add(&self.desk.counters.copied_bytes, len as u64);
        }
        let write = move |inner: &Inner| {
            inner.check_range(offset, len)?;
            if inner.aligned {
                return inner.write_buf(offset, &gathered(&pieces, len));
            }
            inner.write(offset, &pieces)
        };
        if self.writes_inline(len) {
            let written = self.desk.inline.run(|| write(&self.inner));
            self.desk.polling.note();
            return Box::pin(std::future::ready(written));
        }
        self.call(write)
    }

    fn write_aligned(
        &self,
        offset: u64,
        buf: AlignedBuf,
    ) -> LocalBoxFuture<'static, (AlignedBuf, io::Result<()>)> {
        self.count_write(buf.len());
        let inline = self.writes_inline(buf.len());
        let (inner, polling) = (self.inner.clone(), self.desk.polling.clone());
        let write = move || {
            let done = inner.check_range(offset, buf.len()).and_then(|()| inner.write_buf(offset, &buf));
            (buf, done)
        };
        if inline {
            let written = self.desk.inline.run(write);
            polling.note();
            return Box::pin(std::future::ready(written));
        }
        let answer = self.desk.start(write);
        Box::pin(async move {
            let answer = answer.await;
            polling.note();
            answer.unwrap_or_else(|_| (AlignedBuf::zeroed(0), Err(pool_gone())))
        })
    }

    fn sync(&self) -> LocalBoxFuture<'static, io::Result<()>> {
        Counters::add(&self.desk.counters.syncs, 1);
        self.call(|inner| repeated(|| rustix::fs::fdatasync(&inner.fd)))
    }

    fn drop_pages(&self) -> LocalBoxFuture<'static, io::Result<()>> {
        self.count_call();
        self.call(|inner| Ok(rustix::fs::fadvise(&inner.fd, 0, None, Advice::DontNeed)?))
    }

    fn truncate(&self, len: u64) -> LocalBoxFuture<'static, io::Result<()>> {
        self.count_call();
        self.call(move |inner| repeated(|| rustix::fs::ftruncate(&inner.fd, len)))
    }

    fn allocate(&self, offset: u64, len: u64, extend: bool) -> LocalBoxFuture<'static, io::Result<()>> {
        self.count_call();
        self.call(move |inner| inner.allocate(offset, len, extend))
    }

    fn punch(&self, offset: u64, len: u64) -> LocalBoxFuture<'static, io::Result<()>> {
        self.count_call();
        self.call(move |inner| inner.punch(offset, len))
    }

    fn len(&self) -> LocalBoxFuture<'static, io::Result<u64>> {
        // The inode is in memory while the file is open: no reason to cross to another thread.
        let inner = self.inner.clone();
        if inner.apart {
            return self.call(Inner::len);
        }
        Box::pin(async move { inner.len() })
    }

    fn space(&self) -> LocalBoxFuture<'static, io::Result<u64>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            let blocks = rustix::fs::fstat(&inner.fd)?.st_blocks;
            Ok(u64::try_from(blocks).unwrap_or(0) * STAT_BLOCK)
        })
    }

    fn is_direct(&self) -> bool {
        self.inner.direct.load(Relaxed)
    }
}
