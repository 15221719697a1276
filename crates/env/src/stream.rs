//! Ordered byte streams with one interface: TCP, Unix, in-process, and simulated.
//!
//! The loop of a connection reads a whole buffer, runs every complete request in it, and writes all replies
//! by one vectored write. So one system call serves many messages, and the interface is poll-based and
//! buffer-oriented, not message-oriented.

use crate::Address;
use bytes::BytesMut;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

/// The reading half of a stream.
pub trait ReaderImpl {
    /// Read some bytes; `Ok(0)` is end of stream (for a non-empty `buf`).
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Read some bytes after those in `buf`, at most `max`; `Ok(0)` is end of stream. If the stream can,
    /// without clearing the room first.
    fn poll_read_append(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        let len = buf.len();
        buf.resize(len + max, 0);
        let read = self.poll_read(cx, &mut buf[len..]);
        let n = if let Poll::Ready(Ok(n)) = read { n } else { 0 };
        buf.truncate(len + n);
        read
    }
}

/// The writing half of a stream.
pub trait WriterImpl {
    /// Write some bytes of `bufs`, in order; returns how many.
    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;
    /// Send the end of the stream to the other side. Idempotent.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// An accepting endpoint.
pub trait ListenerImpl {
    /// Wait for a connection.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>>;
    /// The address it listens at (a port 0 is resolved).
    fn address(&self) -> Address;
}

/// A connected stream. Dropping both halves closes it.
pub struct Stream {
    /// The half to read from.
    pub reader: Reader,
    /// The half to write to.
    pub writer: Writer,
    /// The other end, in words, for errors and `shoal status`.
    pub peer: String,
}

/// See [`ReaderImpl`].
pub struct Reader(pub Box<dyn ReaderImpl>);
/// See [`WriterImpl`].
pub struct Writer(pub Box<dyn WriterImpl>);
/// See [`ListenerImpl`].
pub struct Listener(pub Box<dyn ListenerImpl>);

impl Reader {
    /// Read some bytes into `buf`; `Ok(0)` is end of stream.
    pub async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.0.poll_read(cx, buf)).await
    }

    /// Read some bytes after those in `buf`, at most `max`; `Ok(0)` is end of stream.
    pub async fn read_append(&mut self, buf: &mut BytesMut, max: usize) -> io::Result<usize> {
        poll_fn(|cx| self.0.poll_read_append(cx, buf, max)).await
    }
}

impl Writer {
    /// Write all of `bufs`, in order, in as few calls as the stream takes.
    pub async fn write_all(&mut self, bufs: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut rest: &mut [IoSlice<'_>] = bufs;
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            let n = poll_fn(|cx| self.0.poll_write(cx, rest)).await?;
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut rest, n);
        }
        Ok(())
    }

    /// Send the end of the stream to the other side.
    pub async fn close(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.0.poll_close(cx)).await
    }
}

impl Listener {
    /// Wait for a connection.
    pub async fn accept(&mut self) -> io::Result<Stream> {
        poll_fn(|cx| self.0.poll_accept(cx)).await
    }

    /// The address it listens at.
    pub fn address(&self) -> Address {
        self.0.address()
    }
}
