//! TCP and Unix sockets.
//!
//! Every TCP stream has `TCP_NODELAY`: messages are gathered into one write above, and none may wait for an answer to the
//! last. Listening sets `SO_REUSEADDR`, so a restarted server gets its port back at once. The file of a Unix socket at which
//! nobody listens any more (its server was killed) is removed and made anew; one at which somebody listens is left alone.

use super::Meter;
use crate::{Address, Listener, ListenerImpl, Reader, ReaderImpl, Stream, Writer, WriterImpl};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UnixListener, UnixStream};

/// Connections the kernel keeps for us before we accept them.
const BACKLOG: u32 = 1024;

struct SocketReader<R> {
    half: R,
    meter: Meter,
}

impl<R: AsyncRead + Unpin> ReaderImpl for SocketReader<R> {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        ready!(Pin::new(&mut self.half).poll_read(cx, &mut buf))?;
        let n = buf.filled().len();
        self.meter.read(n);
        Poll::Ready(Ok(n))
    }
}

struct SocketWriter<W> {
    half: W,
    meter: Meter,
}

impl<W: AsyncWrite + Unpin> WriterImpl for SocketWriter<W> {
    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.half).poll_write_vectored(cx, bufs))?;
        self.meter.wrote(n);
        Poll::Ready(Ok(n))
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.half).poll_shutdown(cx)) {
            // The other side has gone already: it needs no telling.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            other => Poll::Ready(other),
        }
    }
}

fn tcp_stream(stream: TcpStream, peer: SocketAddr, meter: Meter) -> io::Result<Stream> {
    stream.set_nodelay(true)?;
    let (read, write) = stream.into_split();
    let reader = Reader(Box::new(SocketReader { half: read, meter: meter.clone() }));
    Ok(Stream {
        reader,
        writer: Writer(Box::new(SocketWriter { half: write, meter })),
        peer: format!("tcp:{peer}"),
    })
}

fn unix_stream(stream: UnixStream, peer: String, meter: Meter) -> Stream {
    let (read, write) = stream.into_split();
    let reader = Reader(Box::new(SocketReader { half: read, meter: meter.clone() }));
    Stream { reader, writer: Writer(Box::new(SocketWriter { half: write, meter })), peer }
}

/// Connect by TCP.
pub(super) async fn connect_tcp(to: SocketAddr, meter: Meter) -> io::Result<Stream> {
    tcp_stream(TcpStream::connect(to).await?, to, meter)
}

/// Connect by a Unix socket. An absent socket file is a refusal, as an absent listener is everywhere else.
pub(super) async fn connect_unix(to: PathBuf, meter: Meter) -> io::Result<Stream> {
    match UnixStream::connect(&to).await {
        Ok(stream) => Ok(unix_stream(stream, format!("unix:{}", to.display()), meter)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(io::Error::new(io::ErrorKind::ConnectionRefused, format!("no socket at {}", to.display())))
        }
        Err(error) => Err(error),
    }
}

/// Listen by TCP.
pub(super) fn listen_tcp(at: SocketAddr, meter: Meter) -> io::Result<Listener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    let listener = socket.listen(BACKLOG)?;
    let address = Address::Tcp(listener.local_addr()?);
    Ok(Listener(Box::new(TcpAccept { listener, address, meter })))
}

struct TcpAccept {
    listener: TcpListener,
    address: Address,
    meter: Meter,
}

impl ListenerImpl for TcpAccept {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let (stream, peer) = ready!(self.listener.poll_accept(cx))?;
        Poll::Ready(tcp_stream(stream, peer, self.meter.clone()))
    }

    fn address(&self) -> Address {
        self.address.clone()
    }
}

/// Listen by a Unix socket.
pub(super) fn listen_unix(at: PathBuf, meter: Meter) -> io::Result<Listener> {
    let listener = match UnixListener::bind(&at) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(&at) => {
            std::fs::remove_file(&at)?;
            UnixListener::bind(&at)?
        }
        other => other?,
    };
    Ok(Listener(Box::new(UnixAccept { listener, path: at, meter })))
}

/// Whether `path` is a socket at which nobody listens.
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
        let (stream, _) = ready!(self.listener.poll_accept(cx))?;
        let peer = format!("unix:{} (accepted)", self.path.display());
        Poll::Ready(Ok(unix_stream(stream, peer, self.meter.clone())))
    }

    fn address(&self) -> Address {
        Address::Unix(self.path.clone())
    }
}

impl Drop for UnixAccept {
    fn drop(&mut self) {
        // Before the socket closes: while we listen, nobody takes the path for stale and puts another there.
        drop(std::fs::remove_file(&self.path));
    }
}
