//! Unix sockets.
//!
//! A read at one end of a Unix socket frees room at the other end. The kernel then wakes every task there
//! that is registered for room, even a task that did not lack room. A runtime's own stream is always
//! registered for reading *and* writing. So each message wakes it twice: when the peer reads it, and when the
//! reply arrives. A stream here is registered for reading only. A write that finds no room registers once, by
//! a duplicate descriptor of the same socket, and deregisters afterwards.
//!
//! If a killed server left its socket file, `listen` removes the file and binds again. A socket file with a
//! live listener is left alone.

use super::Meter;
use super::send::send;
use crate::{Address, Listener, ListenerImpl, Reader, ReaderImpl, Stream, Writer, WriterImpl};
use bytes::{BufMut as _, BytesMut};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixListener;

struct UnixReader {
    socket: AsyncFd<Rc<UnixStream>>,
    meter: Meter,
}

impl UnixReader {
    /// Receive into `max` bytes of room by `receive`, which is tried whenever there may be data.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        max: usize,
        mut receive: impl FnMut(&UnixStream) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            match receive(guard.get_inner()) {
                Ok(n) => {
                    // Less than there was room for: nothing is left, and another call would only confirm
                    // it.
                    if n > 0 && n < max {
                        guard.clear_ready();
                    }
                    self.meter.read(n);
                    return Poll::Ready(Ok(n));
                }
                Err(rustix::io::Errno::AGAIN) => guard.clear_ready(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

impl ReaderImpl for UnixReader {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_receive(cx, buf.len(), |socket| {
            rustix::net::recv(socket, &mut *buf, RecvFlags::empty()).map(|(n, _)| n)
        })
    }

    fn poll_read_append(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        buf.reserve(max);
        let n = ready!(self.poll_receive(cx, max, |socket| {
            let room = &mut buf.spare_capacity_mut()[..max];
            rustix::net::recv(socket, room, RecvFlags::empty()).map(|((filled, _), _)| filled.len())
        }))?;
        // SAFETY: `recv` has filled the first `n` bytes of the room after those of `buf`.
        unsafe { buf.advance_mut(n) };
        Poll::Ready(Ok(n))
    }
}

struct UnixWriter {
    socket: Rc<UnixStream>,
    /// Registered for room, while a write waits for it.
    full: Option<AsyncFd<OwnedFd>>,
    meter: Meter,
}

impl WriterImpl for UnixWriter {
    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        loop {
            if let Some(full) = &self.full {
                ready!(full.poll_write_ready(cx))?.clear_ready();
            }
            match send(&*self.socket, bufs) {
                Ok(n) => {
                    self.full = None;
                    self.meter.wrote(n);
                    return Poll::Ready(Ok(n));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.full.is_none() {
                        let second = self.socket.as_fd().try_clone_to_owned()?;
                        self.full = Some(watch(second, Interest::WRITABLE)?);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_close(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.socket.shutdown(Shutdown::Write) {
            // The other side has gone already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            other => Poll::Ready(other),
        }
    }
}

/// Register a descriptor with the reactor.
fn watch<T: AsRawFd>(of: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: both kinds of `T` here own their descriptor, or share it with others that cannot close it,
    // and return the same one each time; the `AsyncFd` owns the `T`.
    Ok(unsafe { AsyncFd::register_with_interest(of, interest) }?)
}

fn stream(socket: tokio::net::UnixStream, peer: String, meter: Meter) -> io::Result<Stream> {
    let socket = Rc::new(socket.into_std()?);
    let readable = watch(socket.clone(), Interest::READABLE)?;
    let reader = Reader(Box::new(UnixReader { socket: readable, meter: meter.clone() }));
    Ok(Stream { reader, writer: Writer(Box::new(UnixWriter { socket, full: None, meter })), peer })
}

/// Connect. An absent socket file is a refusal, as an absent listener is everywhere else.
pub(super) async fn connect(to: PathBuf, meter: Meter) -> io::Result<Stream> {
    match tokio::net::UnixStream::connect(&to).await {
        Ok(socket) => stream(socket, format!("unix:{}", to.display()), meter),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(io::Error::new(io::ErrorKind::ConnectionRefused, format!("no socket at {}", to.display())))
        }
        Err(error) => Err(error),
    }
}

/// Listen.
pub(super) fn listen(at: PathBuf, meter: Meter) -> io::Result<Listener> {
    let listener = match UnixListener::bind(&at) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(&at) => {
            std::fs::remove_file(&at)?;
            UnixListener::bind(&at)?
        }
        other => other?,
    };
    Ok(Listener(Box::new(UnixAccept { listener, path: at, meter })))
}

/// Whether `path` is a socket without a listener.
fn is_stale(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    // Without blocking: a living listener whose queue is full would make us wait for it.
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let connected = rustix::net::SocketAddrUnix::new(path).and_then(|addr| {
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&socket, &addr)
    });
    is_socket && connected == Err(rustix::io::Errno::CONNREFUSED)
}

struct UnixAccept {
    listener: UnixListener,
    path: PathBuf,
    meter: Meter,
}

impl ListenerImpl for UnixAccept {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let (socket, _) = ready!(self.listener.poll_accept(cx))?;
        // The process has no number here if it is in another namespace.
        let from = match socket.peer_cred() {
            Ok(from) => format!("user {}, process {}", from.uid(), from.pid().unwrap_or(0)),
            Err(_) => "user not known".to_owned(),
        };
        let peer = format!("unix:{} ({from})", self.path.display());
        Poll::Ready(stream(socket, peer, self.meter.clone()))
    }

    fn address(&self) -> Address {
        Address::Unix(self.path.clone())
    }
}

impl Drop for UnixAccept {
    fn drop(&mut self) {
        // Before the socket closes: while we listen, no other process takes the path for stale and puts a
        // socket there.
        drop(std::fs::remove_file(&self.path));
    }
}
