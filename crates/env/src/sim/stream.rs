//! Connections: two directions of ordered bytes, with marks of their arrival times.
//!
//! A direction is one ring of bytes and a queue of marks (arrival, count), so a small message costs no
//! allocation, and an idle connection holds none. An event at the next arrival wakes the end that waits. At a
//! reset, bytes in flight that would arrive after it are lost; bytes that have arrived are read first, as
//! from a kernel's buffer.

use super::core::{Core, Event};
use super::net::{Arrival, HELD, NEVER};
use super::trace::Kind;
use crate::{Counters, Reader, ReaderImpl, Stream, Writer, WriterImpl};
use bytes::BytesMut;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// A ring that has grown past this is freed when it runs empty.
const RING_KEPT: usize = 1024;

/// The owner of an end of a connection.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) process: usize,
    pub(super) incarnation: u64,
    pub(super) machine: usize,
}

/// A connection between two ends.
pub(super) struct Conn {
    ends: [End; 2],
    /// `pipes[e]` carries the bytes that end e writes.
    pipes: [RefCell<Pipe>; 2],
    /// When end e learns that the connection is broken.
    reset_at: [Cell<u64>; 2],
}

struct Pipe {
    bytes: VecDeque<u8>,
    marks: VecDeque<(u64, usize)>,
    /// Nothing sent later arrives before this.
    last_at: u64,
    /// When the reader learns the end of the stream.
    end_at: u64,
    /// When the writer learns that the reader is gone.
    unread_at: u64,
    write_closed: bool,
    read_closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The reader has an event at this time.
    event_at: u64,
}

impl Default for Pipe {
    fn default() -> Pipe {
        Pipe {
            bytes: VecDeque::new(),
            marks: VecDeque::new(),
            last_at: 0,
            end_at: NEVER,
            unread_at: NEVER,
            write_closed: false,
            read_closed: false,
            reader: None,
            writer: None,
            event_at: NEVER,
        }
    }
}

impl Pipe {
    /// Move arrived bytes into `buf`; returns the count.
    fn take(&mut self, now: u64, buf: &mut [u8]) -> usize {
        let mut n = 0;
        while let Some((at, count)) = self.marks.front_mut()
            && *at <= now
            && n < buf.len()
        {
            let part = (*count).min(buf.len() - n);
            *count -= part;
            n += part;
            if *count == 0 {
                self.marks.pop_front();
            }
        }
        let (front, back) = self.bytes.as_slices();
        let split = front.len().min(n);
        buf[..split].copy_from_slice(&front[..split]);
        buf[split..n].copy_from_slice(&back[..n - split]);
        self.bytes.drain(..n);
        if self.bytes.is_empty() && self.bytes.capacity() > RING_KEPT {
            self.bytes = VecDeque::new();
            self.marks = VecDeque::new();
        }
        n
    }

    /// Bytes that have arrived.
    fn arrived(&self, now: u64) -> usize {
        self.marks.iter().take_while(|(at, _)| *at <= now).map(|(_, count)| count).sum()
    }

    /// When the reader has something new to read.
    fn next_at(&self) -> u64 {
        self.marks.front().map_or(NEVER, |(at, _)| *at).min(self.end_at)
    }

    fn discard(&mut self) {
        self.bytes = VecDeque::new();
        self.marks = VecDeque::new();
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Conn {
    pub(super) fn new(ends: [End; 2]) -> Conn {
        Conn { ends, pipes: Default::default(), reset_at: [Cell::new(NEVER), Cell::new(NEVER)] }
    }

    /// Whether it runs between these machines.
    pub(super) fn joins(&self, a: usize, b: usize) -> bool {
        let [x, y] = [self.ends[0].machine, self.ends[1].machine];
        (x, y) == (a, b) || (x, y) == (b, a)
    }

    fn signal_to(&self, core: &Core, end: usize) -> u64 {
        core.signal(self.ends[1 - end].machine, self.ends[end].machine)
    }

    /// Data may have arrived at an end: wake its waiting side.
    pub(super) fn arrive(self: &Rc<Conn>, core: &Core, end: usize) {
        let now = core.now();
        let broken = self.reset_at[end].get() <= now;
        let reader = {
            let mut pipe = self.pipes[1 - end].borrow_mut();
            pipe.event_at = NEVER;
            if broken || pipe.next_at() <= now { pipe.reader.take() } else { None }
        };
        let writer = {
            let mut pipe = self.pipes[end].borrow_mut();
            if broken || pipe.unread_at <= now { pipe.writer.take() } else { None }
        };
        wake(reader);
        wake(writer);
        self.await_next(core, end);
    }

    /// If the end's reader waits, schedule an event at the next arrival.
    fn await_next(self: &Rc<Conn>, core: &Core, end: usize) {
        let mut pipe = self.pipes[1 - end].borrow_mut();
        let at = pipe.next_at().min(self.reset_at[end].get());
        if pipe.reader.is_some() && at < HELD && at < pipe.event_at {
            pipe.event_at = at;
            drop(pipe);
            core.schedule(at, Event::Arrive(self.clone(), end));
        }
    }

    fn poll_read(
        self: &Rc<Conn>,
        core: &Core,
        end: usize,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let now = core.now();
        let reset_at = self.reset_at[end].get();
        let mut pipe = self.pipes[1 - end].borrow_mut();
        let n = pipe.take(now.min(reset_at), buf);
        if n > 0 || buf.is_empty() {
            let writer = pipe.writer.take();
            drop(pipe);
            wake(writer);
            return Poll::Ready(Ok(n));
        }
        if reset_at <= now {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if pipe.end_at <= now && pipe.marks.is_empty() {
            return Poll::Ready(Ok(0));
        }
        pipe.reader = Some(cx.waker().clone());
        drop(pipe);
        self.await_next(core, end);
        Poll::Pending
    }

    fn poll_write(
        self: &Rc<Conn>,
        core: &Core,
        end: usize,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let now = core.now();
        if self.reset_at[end].get() <= now {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let mut pipe = self.pipes[end].borrow_mut();
        if pipe.write_closed || pipe.unread_at <= now {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        let room = core.config.stream_window.saturating_sub(pipe.bytes.len());
        if room == 0 && total > 0 {
            pipe.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let n = total.min(room);
        if !pipe.read_closed {
            append(&mut pipe.bytes, bufs, n);
        }
        drop(pipe);
        let process = self.ends[end].process;
        // If cores are shared, the call's cost comes before the bytes it sends.
        if core.shares_cores(process) {
            core.charge_socket(process, n, |cpu| cpu.sent_byte_ps);
        }
        self.send(core, end, n);
        Poll::Ready(Ok(n))
    }

    /// Send the `n` bytes just appended.
    fn send(self: &Rc<Conn>, core: &Core, end: usize, n: usize) {
        let (from, to) = (self.ends[end].machine, self.ends[1 - end].machine);
        let leaves = core.moment(self.ends[end].process);
        let mut pipe = self.pipes[end].borrow_mut();
        let mut left = if pipe.read_closed { 0 } else { n };
        while left > 0 {
            let part = left.min(core.config.segment.max(1));
            let at = match core.send(from, to, part, leaves) {
                Arrival::At(at) => at,
                Arrival::Reset => {
                    drop(pipe);
                    return self.break_both(core);
                }
            };
            pipe.last_at = pipe.last_at.max(at);
            let at = pipe.last_at;
            pipe.marks.push_back((at, part));
            left -= part;
        }
        drop(pipe);
        self.await_next(core, 1 - end);
    }

    fn close_write(self: &Rc<Conn>, core: &Core, end: usize) {
        if self.is_dead_end(core, end) {
            return;
        }
        let at = self.signal_to(core, 1 - end);
        let mut pipe = self.pipes[end].borrow_mut();
        if pipe.write_closed {
            return;
        }
        pipe.write_closed = true;
        pipe.end_at = at.max(pipe.last_at);
        let writer = pipe.writer.take();
        drop(pipe);
        wake(writer);
        core.trace.add(core.now(), self.ends[end].process, Kind::Close, 0);
        self.await_next(core, 1 - end);
    }

    fn close_read(self: &Rc<Conn>, core: &Core, end: usize) {
        if self.is_dead_end(core, end) {
            return;
        }
        let at = self.signal_to(core, 1 - end);
        let mut pipe = self.pipes[1 - end].borrow_mut();
        pipe.read_closed = true;
        pipe.reader = None;
        pipe.unread_at = at;
        pipe.discard();
        drop(pipe);
        self.event_for_writer(core, 1 - end, at);
    }

    /// A writer that waits for room learns of a break by an event of its own.
    fn event_for_writer(self: &Rc<Conn>, core: &Core, end: usize, at: u64) {
        if at < HELD && self.pipes[end].borrow().writer.is_some() {
            core.schedule(at, Event::Arrive(self.clone(), end));
        }
    }

    fn reset_at(self: &Rc<Conn>, core: &Core, end: usize, at: u64) {
        if at < self.reset_at[end].get() {
            self.reset_at[end].set(at);
            self.event_for_writer(core, end, at);
            self.await_next(core, end);
        }
    }

    /// The network broke it: both ends learn it.
    pub(super) fn break_both(self: &Rc<Conn>, core: &Core) {
        for end in [0, 1] {
            let at = self.signal_to(core, end);
            self.reset_at(core, end, at);
        }
    }

    /// The end on this machine learns now that it is broken, the other one at `late`.
    pub(super) fn break_half(self: &Rc<Conn>, core: &Core, machine: usize, late: u64) {
        let near = usize::from(self.ends[0].machine != machine);
        self.reset_at(core, near, core.now() + 1);
        self.reset_at(core, 1 - near, late);
    }

    /// The process of an end is gone: the other end learns it after the latency.
    pub(super) fn reset_by(self: &Rc<Conn>, core: &Core, process: usize, incarnation: u64) {
        for end in [0, 1] {
            let End { process: p, incarnation: i, .. } = self.ends[end];
            if (p, i) == (process, incarnation) {
                self.abandon(core, end);
            }
        }
    }

    /// This end is gone; only the kernel reports it.
    pub(super) fn abandon(self: &Rc<Conn>, core: &Core, end: usize) {
        let closed = self.pipes[end].borrow().write_closed && self.pipes[1 - end].borrow().read_closed;
        if self.reset_at[end].replace(0) > 0 && !closed {
            let at = self.signal_to(core, 1 - end);
            self.reset_at(core, 1 - end, at);
        }
    }

    /// The effects of a crashed process's tasks while they are dropped reach no peer; and a socket sends
    /// nothing more when its connection is known to be broken.
    fn is_dead_end(&self, core: &Core, end: usize) -> bool {
        self.reset_at[end].get() <= core.now()
    }

    /// A partition begins: nothing more arrives.
    pub(super) fn hold(&self, core: &Core) {
        let now = core.now();
        let held = |at: u64| if at > now && at != NEVER { HELD } else { at };
        for end in [0, 1] {
            self.reset_at[end].set(held(self.reset_at[end].get()));
            let mut pipe = self.pipes[end].borrow_mut();
            pipe.marks.iter_mut().for_each(|(at, _)| *at = held(*at));
            pipe.last_at = held(pipe.last_at);
            pipe.end_at = held(pipe.end_at);
            pipe.unread_at = held(pipe.unread_at);
        }
    }

    /// A partition has healed: held bytes are sent again.
    pub(super) fn release(self: &Rc<Conn>, core: &Core) {
        for end in [0, 1] {
            let (from, to) = (self.ends[end].machine, self.ends[1 - end].machine);
            let (there, back) = (core.signal(from, to), core.signal(to, from));
            let freed = |at: u64, then: u64| if at == HELD { then } else { at };
            self.reset_at[1 - end].set(freed(self.reset_at[1 - end].get(), there));
            let mut pipe = self.pipes[end].borrow_mut();
            let mut last = freed(pipe.last_at, there);
            for (at, count) in pipe.marks.iter_mut().filter(|(at, _)| *at == HELD) {
                last = match core.send(from, to, *count, core.now()) {
                    Arrival::At(sent) => last.max(sent),
                    Arrival::Reset => last,
                };
                *at = last;
            }
            pipe.last_at = last;
            pipe.end_at = freed(pipe.end_at, last.max(there));
            pipe.unread_at = freed(pipe.unread_at, back);
        }
        for end in [0, 1] {
            let at = self.pipes[end].borrow().unread_at.min(self.reset_at[end].get());
            self.event_for_writer(core, end, at);
            self.await_next(core, end);
        }
    }

    /// The stream of one end.
    pub(super) fn stream(self: &Rc<Conn>, core: &Rc<Core>, end: usize) -> Stream {
        let processes = core.processes.borrow();
        let counters = processes[self.ends[end].process].counters.clone();
        let peer = format!("sim:{}", processes[self.ends[1 - end].process].name);
        let half = Half { core: core.clone(), conn: self.clone(), end, counters };
        Stream {
            reader: Reader(Box::new(SimReader(half.clone()))),
            writer: Writer(Box::new(SimWriter(half))),
            peer,
        }
    }
}

/// Append the first `n` bytes of `bufs`.
fn append(ring: &mut VecDeque<u8>, bufs: &[IoSlice<'_>], n: usize) {
    let mut left = n;
    for buf in bufs {
        let part = buf.len().min(left);
        ring.extend(&buf[..part]);
        left -= part;
    }
}

const _: () = assert!(std::mem::size_of::<Conn>() <= 640, "ten thousand idle connections are to be cheap");

#[derive(Clone)]
struct Half {
    core: Rc<Core>,
    conn: Rc<Conn>,
    end: usize,
    counters: Arc<Counters>,
}

impl Half {
    fn process(&self) -> usize {
        self.conn.ends[self.end].process
    }

    fn trace(&self, kind: Kind, n: usize) {
        self.core.trace.add(self.core.now(), self.process(), kind, n as u64);
    }
}

struct SimReader(Half);
struct SimWriter(Half);

impl ReaderImpl for SimReader {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let half = &self.0;
        let polled = half.conn.poll_read(&half.core, half.end, cx, buf);
        if let Poll::Ready(Ok(n)) = polled {
            half.trace(Kind::Receive, n);
            half.core.charge_socket(half.process(), n, |cpu| cpu.received_byte_ps);
            Counters::add(&half.counters.socket_reads, 1);
            Counters::add(&half.counters.socket_read_bytes, n as u64);
        }
        polled
    }

    /// A reader offers much room for mostly few bytes: only the filled part of it is cleared.
    fn poll_read_append(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        let half = &self.0;
        let there = half.conn.pipes[1 - half.end].borrow().arrived(half.core.now());
        let len = buf.len();
        buf.reserve(max);
        buf.resize(len + there.clamp(1, max.max(1)), 0);
        let read = self.poll_read(cx, &mut buf[len..]);
        let n = if let Poll::Ready(Ok(n)) = read { n } else { 0 };
        buf.truncate(len + n);
        read
    }
}

impl WriterImpl for SimWriter {
    fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let half = &self.0;
        let polled = half.conn.poll_write(&half.core, half.end, cx, bufs);
        if let Poll::Ready(Ok(n)) = polled {
            half.trace(Kind::Send, n);
            if !half.core.shares_cores(half.process()) {
                half.core.charge_socket(half.process(), n, |cpu| cpu.sent_byte_ps);
            }
            Counters::add(&half.counters.socket_writes, 1);
            Counters::add(&half.counters.socket_write_bytes, n as u64);
        }
        polled
    }

    fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.conn.close_write(&self.0.core, self.0.end);
        Poll::Ready(Ok(()))
    }
}

impl Drop for SimReader {
    fn drop(&mut self) {
        self.0.conn.close_read(&self.0.core, self.0.end);
    }
}

impl Drop for SimWriter {
    fn drop(&mut self) {
        self.0.conn.close_write(&self.0.core, self.0.end);
    }
}
