//! Streams between threads of one process: a name, a backlog, and two bounded queues of bytes.
//!
//! A connection is two [`Pipe`]s. A pipe is a ring of at most [`PIPE_BYTES_MAX`] bytes under a lock, with one
//! waker for each side; a side is woken only if it waits, so a stream of messages between two busy threads
//! wakes no thread. The ends behave as sockets do: when a writer is dropped, the reader gets the last byte
//! and then the end of the stream; when a reader is dropped, the writer gets an error (broken pipe); when a
//! listener is dropped, unaccepted connections are reset.

use super::Meter;
use crate::{Address, Listener, ListenerImpl, Reader, ReaderImpl, Stream, Writer, WriterImpl};
use bytes::BytesMut;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Most bytes in flight in one direction.
const PIPE_BYTES_MAX: usize = 1 << 20;
/// A ring that has grown past this is freed when it runs empty.
const PIPE_BYTES_KEPT: usize = 256 << 10;
/// Most connections not yet accepted; further ones are refused.
const BACKLOG: usize = 1024;

static NAMES: Mutex<BTreeMap<String, Arc<Mutex<Backlog>>>> = Mutex::new(BTreeMap::new());

/// A thread that panicked under one of these locks leaves at worst a broken stream, never an unsound one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
struct Backlog {
    waiting: VecDeque<(PipeReader, PipeWriter)>,
    accepting: Option<Waker>,
    closed: bool,
}

#[derive(Default)]
struct PipeState {
    bytes: VecDeque<u8>,
    reading: Option<Waker>,
    writing: Option<Waker>,
    write_closed: bool,
    read_closed: bool,
    reset: bool,
}

type Pipe = Arc<Mutex<PipeState>>;

struct PipeReader(Pipe);
struct PipeWriter(Pipe);

fn pipe() -> (PipeReader, PipeWriter) {
    let pipe = Pipe::default();
    (PipeReader(pipe.clone()), PipeWriter(pipe))
}

impl PipeReader {
    /// Pass up to `max` bytes to `put`, in one piece or two; returns the count.
    fn poll_take(
        &self,
        cx: &mut Context<'_>,
        max: usize,
        mut put: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.0);
        if state.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if state.bytes.is_empty() && max > 0 {
            if state.write_closed {
                return Poll::Ready(Ok(0));
            }
            state.reading = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let n = state.bytes.len().min(max);
        let (front, back) = state.bytes.as_slices();
        let split = front.len().min(n);
        put(&front[..split]);
        put(&back[..n - split]);
        state.bytes.drain(..n);
        let writing = state.writing.take();
        if state.bytes.is_empty() && state.bytes.capacity() > PIPE_BYTES_KEPT && writing.is_none() {
            state.bytes = VecDeque::new();
        }
        drop(state);
        wake(writing);
        Poll::Ready(Ok(n))
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl PipeWriter {
    fn poll_write(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.0);
        if state.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if state.read_closed || state.write_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let room = PIPE_BYTES_MAX - state.bytes.len();
        if room == 0 && bufs.iter().any(|buf| !buf.is_empty()) {
            state.writing = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let mut n = 0;
        for buf in bufs {
            let part = buf.len().min(room - n);
            state.bytes.extend(&buf[..part]);
            n += part;
        }
        let reading = if n > 0 { state.reading.take() } else { None };
        drop(state);
        wake(reading);
        Poll::Ready(Ok(n))
    }

    fn close(&self) {
        let mut state = lock(&self.0);
        state.write_closed = true;
        let reading = state.reading.take();
        drop(state);
        wake(reading);
    }
}

/// Break a pipe for both of its ends.
fn reset(pipe: &Pipe) {
    let mut state = lock(pipe);
    state.reset = true;
    let (reading, writing) = (state.reading.take(), state.writing.take());
    drop(state);
    wake(reading);
    wake(writing);
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.close();
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.read_closed = true;
        state.bytes = VecDeque::new();
        let writing = state.writing.take();
        drop(state);
        wake(writing);
    }
}

struct LocalReader(PipeReader, Meter);
struct LocalWriter(PipeWriter, Meter);

impl LocalReader {
    fn poll_take(&self, cx: &mut Context<'_>, max: usize, put: impl FnMut(&[u8])) -> Poll<io::Result<usize>> {
        let taken = self.0.poll_take(cx, max, put);
        if let Poll::Ready(Ok(n)) = taken {
            self.1.read(n);
        }
        taken
    }
}

impl ReaderImpl for LocalReader {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let max = buf.len();
        let mut room = buf;
        self.poll_take(cx, max, |bytes| {
            let (filled, rest) = std::mem::take(&mut room).split_at_mut(bytes.len());
            filled.copy_from_slice(bytes);
            room = rest;
        })
    }

    fn poll_read_append(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_take(cx, max, |bytes| buf.extend_from_slice(bytes))
    }
}

impl WriterImpl for LocalWriter {
    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let polled = self.0.poll_write(cx, bufs);
        if let Poll::Ready(Ok(n)) = polled {
            self.1.wrote(n);
        }
        polled
    }

    fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.close();
        Poll::Ready(Ok(()))
    }
}

fn stream(reader: PipeReader, writer: PipeWriter, name: &str, meter: Meter) -> Stream {
    Stream {
        reader: Reader(Box::new(LocalReader(reader, meter.clone()))),
        writer: Writer(Box::new(LocalWriter(writer, meter))),
        peer: format!("local:{name}"),
    }
}

/// Listen at a name.
pub(super) fn listen(name: String, meter: Meter) -> io::Result<Listener> {
    let mut names = lock(&NAMES);
    if names.contains_key(&name) {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("local:{name} is taken")));
    }
    let backlog = Arc::<Mutex<Backlog>>::default();
    names.insert(name.clone(), backlog.clone());
    Ok(Listener(Box::new(LocalAccept { name, backlog, meter })))
}

/// Connect to a name. As with sockets, the connection stands before it is accepted.
pub(super) fn connect(name: &str, meter: Meter) -> io::Result<Stream> {
    let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, format!("no listener at local:{name}"));
    let backlog = lock(&NAMES).get(name).cloned().ok_or_else(refused)?;
    let mut state = lock(&backlog);
    if state.closed || state.waiting.len() >= BACKLOG {
        return Err(refused());
    }
    let (their_reader, writer) = pipe();
    let (reader, their_writer) = pipe();
    state.waiting.push_back((their_reader, their_writer));
    let accepting = state.accepting.take();
    drop(state);
    wake(accepting);
    Ok(stream(reader, writer, name, meter))
}

struct LocalAccept {
    name: String,
    backlog: Arc<Mutex<Backlog>>,
    meter: Meter,
}

impl ListenerImpl for LocalAccept {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Stream>> {
        let mut state = lock(&self.backlog);
        if let Some((reader, writer)) = state.waiting.pop_front() {
            return Poll::Ready(Ok(stream(reader, writer, &self.name, self.meter.clone())));
        }
        state.accepting = Some(cx.waker().clone());
        Poll::Pending
    }

    fn address(&self) -> Address {
        Address::Local(self.name.clone())
    }
}

impl Drop for LocalAccept {
    fn drop(&mut self) {
        lock(&NAMES).remove(&self.name);
        let waiting = {
            let mut state = lock(&self.backlog);
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        for (reader, writer) in waiting {
            reset(&reader.0);
            reset(&writer.0);
        }
    }
}
