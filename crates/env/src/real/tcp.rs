//! TCP sockets.
//!
//! Every stream has `TCP_NODELAY`: the layer above gathers messages into one write, and a write must not
//! wait for the acknowledgement of the previous write. Listening sets `SO_REUSEADDR`, so a server that is
//! started again gets its port at once.

use super::Meter;
use super::send::{is_passing, send};
use crate::address::is_loopback;
use crate::{Address, Listener, ListenerImpl, Reader, ReaderImpl, Stream, Writer, WriterImpl};
use bytes::{BufMut as _, BytesMut};
use std::future::Future as _;
use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, Interest, ReadBuf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Connections that the kernel queues before we accept them.
const BACKLOG: u32 = 1024;

struct TcpReader {
    half: OwnedReadHalf,
    meter: Meter,
}

impl ReaderImpl for TcpReader {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        ready!(Pin::new(&mut self.half).poll_read(cx, &mut buf))?;
        let n = buf.filled().len();
        self.meter.read(n);
        Poll::Ready(Ok(n))
    }

    fn poll_read_append(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        buf.reserve(max);
        let n = ready!(pin!(self.half.read_buf(&mut buf.limit(max))).poll(cx))?;
        self.meter.read(n);
        Poll::Ready(Ok(n))
    }
}

struct TcpWriter {
    half: OwnedWriteHalf,
    meter: Meter,
}

impl WriterImpl for TcpWriter {
    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let socket: &TcpStream = self.half.as_ref();
        loop {
            ready!(socket.poll_write_ready(cx))?;
            match socket.try_io(Interest::WRITABLE, || send(socket, bufs)) {
                Ok(n) => {
                    self.meter.wrote(n);
                    return Poll::Ready(Ok(n));
                }
                // There is no room after all, and the readiness is cleared; or a signal came first.
                Err(error) if is_passing(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.half).poll_shutdown(cx)) {
            // The other side has gone already.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            other => Poll::Ready(other),
        }
    }
}

fn stream(socket: TcpStream, peer: SocketAddr, meter: Meter) -> io::Result<Stream> {
    socket.set_nodelay(true)?;
    let (read, write) = socket.into_split();
    let reader = Reader(Box::new(TcpReader { half: read, meter: meter.clone() }));
    Ok(Stream {
        reader,
        writer: Writer(Box::new(TcpWriter { half: write, meter })),
        peer: format!("tcp:{peer}"),
    })
}

/// Connect.
pub(super) async fn connect(to: SocketAddr, meter: Meter) -> io::Result<Stream> {
    stream(TcpStream::connect(to).await?, to, meter)
}

/// Listen.
pub(super) fn listen(at: SocketAddr, meter: Meter) -> io::Result<Listener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    let listener = bound(socket, at)?;
    let address = Address::Tcp(listener.local_addr()?);
    Ok(Listener(Box::new(TcpAccept { listener, address, meter })))
}

/// Listen at a port of all addresses of this machine, present and future: its name may get another address
/// at any time.
pub(super) fn listen_by_name(host: String, port: u16, meter: Meter) -> io::Result<Listener> {
    let listener = if is_loopback(&host) {
        bound(TcpSocket::new_v4()?, (Ipv4Addr::LOCALHOST, port).into())?
    } else {
        match TcpSocket::new_v6() {
            Ok(socket) => {
                rustix::net::sockopt::set_ipv6_v6only(&socket, false)?;
                bound(socket, (Ipv6Addr::UNSPECIFIED, port).into())?
            }
            // A kernel without IPv6.
            Err(_) => bound(TcpSocket::new_v4()?, (Ipv4Addr::UNSPECIFIED, port).into())?,
        }
    };
    let address = Address::Host(host, listener.local_addr()?.port());
    Ok(Listener(Box::new(TcpAccept { listener, address, meter })))
}

fn bound(socket: TcpSocket, at: SocketAddr) -> io::Result<TcpListener> {
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

struct TcpAccept {
    listener: TcpListener,
    address: Address,
    meter: Meter,
}

impl ListenerImpl for TcpAccept {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let (socket, peer) = ready!(self.listener.poll_accept(cx))?;
        Poll::Ready(stream(socket, peer, self.meter.clone()))
    }

    fn address(&self) -> Address {
        self.address.clone()
    }
}
