//! The state that a connection's loop shares with the requests that came over the connection: the output
//! queue, the bytes that the connection holds, its long reads and writes, and whether it has ended.

use super::grants::Grants;
use super::proof::Admitted;
use crate::net::session::Session;
use bytes::Bytes;
use shoal_env::local::Notify;
use shoal_env::mutant::{self, Mutant};
use shoal_env::{Counters, WriterImpl};
use shoal_proto::codec::Codec;
use shoal_proto::message::Give;
use shoal_proto::seal::{FrameEnd, Sealer};
use shoal_proto::{Frame, FrameKind};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Pieces handed to one vectored write.
const SLICES_MAX: usize = 64;

#[derive(Default)]
struct Out {
    /// Encoded frames, and bulk data after the frame it belongs to.
    pieces: VecDeque<Bytes>,
    /// Frames that are still being collected.
    tail: Vec<u8>,
    bytes: usize,
    waker: Option<Waker>,
    /// Seals the frames, once the connection is sealed; and where copies for it are counted.
    sealer: Option<(Sealer, Arc<Counters>)>,
}

/// A connection as its requests see it.
pub struct Line {
    /// The other end, as text.
    pub name: String,
    /// The version of the protocol that is spoken.
    pub version: u16,
    /// Its rights, by the key that was proved on it. A session says nothing of them: another connection of
    /// it may have another key.
    pub admitted: Cell<Admitted>,
    out: RefCell<Out>,
    dead: Cell<bool>,
    closing: Cell<bool>,
    died: Notify,
    /// Requests taken and not answered.
    pub requests: Cell<usize>,
    /// Bytes of bulk data of those requests.
    pub bulk_bytes: Cell<usize>,
    /// Bytes of data that those requests may be answered with in the reply itself.
    pub wanted_bytes: Cell<usize>,
    /// Its session.
    pub session: RefCell<Weak<Session>>,
    /// Long reads under way, by tag, and whether their client has left them.
    long_reads: RefCell<BTreeMap<u64, bool>>,
    left: Notify,
    /// Long writes under way, by tag.
    long_writes: RefCell<BTreeMap<u64, Rc<Grants>>>,
    /// Bytes of pieces that are being read for it, or are granted to it and not written.
    reserved: Cell<usize>,
    /// Woken when bytes were written, or are not reserved any more, while there are long reads or writes.
    drained: Notify,
}

/// Room for a piece that is being read, or granted: a part of its connection's credit until it is dropped,
/// which is when the piece waits to be sent, or is written.
pub struct PieceRoom {
    line: Rc<Line>,
    bytes: usize,
}

impl PieceRoom {
    /// No more than so many bytes are needed.
    pub fn shrink_to(&mut self, bytes: usize) {
        let less = self.bytes.saturating_sub(bytes);
        self.bytes -= less;
        self.line.give_back(less);
    }
}

impl Drop for PieceRoom {
    fn drop(&mut self) {
        self.line.give_back(self.bytes);
    }
}

impl Line {
    /// A new connection.
    pub fn new(name: String, version: u16) -> Rc<Line> {
        Rc::new(Line {
            name,
            version,
            admitted: Cell::default(),
            out: RefCell::default(),
            dead: Cell::new(false),
            closing: Cell::new(false),
            died: Notify::default(),
            requests: Cell::new(0),
            bulk_bytes: Cell::new(0),
            wanted_bytes: Cell::new(0),
            session: RefCell::default(),
            long_reads: RefCell::default(),
            left: Notify::default(),
            long_writes: RefCell::default(),
            reserved: Cell::new(0),
            drained: Notify::default(),
        })
    }

    /// Send a frame; `bulk` follows it uncopied, unless it is encrypted.
    pub fn send<T: Codec>(&self, kind: FrameKind, tag: u64, message: &T, bulk: &[Bytes]) {
        if self.dead.get() {
            return;
        }
        let mut out = self.out.borrow_mut();
        let bulk_len = bulk.iter().map(Bytes::len).sum();
        if bulk_len > 0 && out.sealer.as_ref().is_some_and(|(sealer, _)| sealer.encrypts()) {
            // A piece of its own: nothing moves as it grows, and its memory goes when it is sent.
            out.collect();
        }
        let Out { tail, bytes, pieces, sealer, .. } = &mut *out;
        let before = tail.len();
        Frame::put(kind, self.version, tag, message, bulk_len, tail);
        let parts = bulk.iter().map(|part| &part[..]);
        let end = match sealer {
            Some((sealer, _)) => sealer.seal(tail, before, parts),
            None => FrameEnd::Bulk,
        };
        *bytes += tail.len() - before;
        if bulk_len > 0 {
            pieces.push_back(std::mem::take(tail).into());
        }
        if end.has_bulk() {
            *bytes += bulk_len;
            pieces.extend(bulk.iter().filter(|b| !b.is_empty()).cloned());
        } else if let Some((_, counters)) = sealer {
            Counters::add(&counters.copied_bytes, bulk_len as u64);
        }
        tail.extend_from_slice(end.seal());
        *bytes += end.seal().len();
        if let Some(waker) = out.waker.take() {
            waker.wake();
        }
    }

    /// From the next frame on each is sealed. Data that is copied for it is counted.
    pub fn seal_with(&self, sealer: Sealer, counters: &Arc<Counters>) {
        self.out.borrow_mut().sealer = Some((sealer, counters.clone()));
    }

    /// Whether frames that are sent now are sealed.
    pub fn is_sealed(&self) -> bool {
        self.out.borrow().sealer.is_some()
    }

    /// A request of `bulk_bytes` is answered (or discarded): give back its part of the credit.
    pub fn answered(&self, tag: u64, bulk_bytes: usize, wanted_bytes: usize) {
        self.long_reads.borrow_mut().remove(&tag);
        self.requests.set(self.requests.get().saturating_sub(1));
        self.bulk_bytes.set(self.bulk_bytes.get().saturating_sub(bulk_bytes));
        self.wanted_bytes.set(self.wanted_bytes.get().saturating_sub(wanted_bytes));
        self.wake();
    }

    /// A long read came; false: there is one with this tag.
    pub fn begin_long_read(&self, tag: u64) -> bool {
        self.long_reads.borrow_mut().insert(tag, false).is_none()
    }

    /// The client awaits a long read no longer. Its reply may have crossed this.
    pub fn leave(&self, tag: u64) {
        if let Some(is_left) = self.long_reads.borrow_mut().get_mut(&tag) {
            *is_left = true;
            self.left.wake_all();
        }
    }

    /// Whether the client awaits a request no longer.
    pub fn is_left(&self, tag: u64) -> bool {
        self.long_reads.borrow().get(&tag).copied().unwrap_or(false)
    }

    /// Woken when the client leaves a long read.
    pub fn left(&self) -> &Notify {
        &self.left
    }

    /// The data of a long write is pulled from here on; `None`: there is one with this tag.
    pub fn begin_long_write(&self, tag: u64) -> Option<Rc<Grants>> {
        let mut long_writes = self.long_writes.borrow_mut();
        if long_writes.contains_key(&tag) {
            return None;
        }
        Some(long_writes.entry(tag).or_default().clone())
    }

    /// No part of it is taken any more.
    pub fn end_long_write(&self, tag: u64) {
        self.long_writes.borrow_mut().remove(&tag);
        self.drained.wake_all();
    }

    /// A part of a long write came.
    ///
    /// # Errors
    /// It was not granted, in words.
    pub fn given(&self, tag: u64, give: Give, bulk: Bytes) -> Result<(), &'static str> {
        match self.long_writes.borrow().get(&tag) {
            Some(grants) => grants.give(give, bulk),
            None => Err("no such write is under way"),
        }
    }

    /// Long reads and writes under way.
    pub fn flows(&self) -> usize {
        self.long_reads.borrow().len() + self.long_writes.borrow().len()
    }

    /// Bytes that this connection holds: those that wait to be written, and pieces that are being read.
    pub fn held_bytes(&self) -> usize {
        self.out_bytes() + self.reserved.get()
    }

    /// Room for a piece, if the connection then holds no more than its credit; one that holds nothing has
    /// room.
    pub fn room(self: &Rc<Line>, bytes: usize, credit: usize) -> Option<PieceRoom> {
        let held = self.held_bytes();
        if held > 0 && held + bytes > credit {
            return None;
        }
        self.reserved.set(self.reserved.get() + bytes);
        Some(PieceRoom { line: self.clone(), bytes })
    }

    fn give_back(&self, bytes: usize) {
        let twice = if mutant::is(Mutant::CreditTwice) { 2 } else { 1 };
        self.reserved.set(self.reserved.get().saturating_sub(twice * bytes));
        self.drained.wake_all();
    }

    /// Woken when there may be room for a piece again.
    pub fn drained(&self) -> &Notify {
        &self.drained
    }

    /// Bytes that wait to be written.
    pub fn out_bytes(&self) -> usize {
        self.out.borrow().bytes
    }

    /// End the connection: nothing more is read, run or written.
    pub fn end(&self) {
        if !self.dead.replace(true) {
            // Nothing of it is sent any more.
            let mut out = self.out.borrow_mut();
            (out.pieces, out.tail, out.bytes) = (VecDeque::new(), Vec::new(), 0);
            drop(out);
            self.died.wake_all();
            self.wake();
        }
    }

    /// Read nothing more; end when all requests are answered and the answers written.
    pub fn close(&self) {
        self.closing.set(true);
        self.long_writes.borrow().values().for_each(|grants| grants.came().wake_all());
        self.wake();
    }

    /// Whether nothing more is read.
    pub fn is_closing(&self) -> bool {
        self.closing.get()
    }

    /// Whether it is closing and all is answered and written.
    pub fn is_drained(&self) -> bool {
        self.closing.get() && self.requests.get() == 0 && self.out_bytes() == 0
    }

    /// Whether it has ended.
    pub fn is_dead(&self) -> bool {
        self.dead.get()
    }

    /// Woken when it ends.
    pub fn died(&self) -> &Notify {
        &self.died
    }

    /// Wake the connection's loop.
    pub fn wake(&self) {
        if let Some(waker) = self.out.borrow_mut().waker.take() {
            waker.wake();
        }
    }

    /// Be woken when there is something to write, or to read again.
    pub fn register(&self, cx: &Context<'_>) {
        let mut out = self.out.borrow_mut();
        match &mut out.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => out.waker = Some(cx.waker().clone()),
        }
    }

    /// The loop runs: it need not be woken.
    pub fn forget_waker(&self) {
        self.out.borrow_mut().waker = None;
    }

    /// Write the waiting bytes, as many as the stream takes, in as few calls as possible. `Ready`: all is
    /// written.
    pub fn poll_flush(&self, writer: &mut dyn WriterImpl, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut out = self.out.borrow_mut();
            out.collect();
            if out.pieces.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(&out.pieces) {
                *slice = IoSlice::new(piece);
                count += 1;
            }
            let written = match writer.poll_write(cx, &slices[..count]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            };
            out.advance(written);
            drop(out);
            if self.flows() > 0 {
                self.drained.wake_all();
            }
        }
    }
}

impl Out {
    /// The collected bytes become a piece.
    fn collect(&mut self) {
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.pieces.push_back(tail.into());
        }
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written.min(self.bytes);
        while let Some(first) = self.pieces.front_mut() {
            if first.len() > written {
                bytes::Buf::advance(first, written);
                return;
            }
            written -= first.len();
            self.pieces.pop_front();
        }
    }
}
