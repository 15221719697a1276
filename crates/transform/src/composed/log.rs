//! The log of one writer of a composed directory: a chain of blocks.
//!
//! A process (or mount) is one writer, and has one log for all its files. Records are put into a buffer
//! of one block. New bytes of the buffer are written to the block at a close, at an fsync, after each
//! change of a name or of a closed file's attributes, when the block is full, and when the log ends.
//! Under `shoal run` they are also written after each write. With `buffer=block` they are written only
//! when the block is full, at an fsync, after 5 s, and when the log ends. After a full block the log
//! continues in the next block of its extent, and after the last block in a new extent.
//!
//! **Only claimed blocks are written, and each byte only once.** So a reader that reads while the writer
//! writes finds whole records, or none. After a write that failed (a full disk) the bytes stay in the
//! buffer, and the next write tries them again.
//!
//! **A writer holds a lock** on its file `claims/w.ID`. It takes the lock before its first claim, and
//! returns it when its log ends. A compaction takes no blocks of a writer that holds its lock.

use super::change::Unpublished;
use super::format::{DATA_HEAD, HEADER_BYTES, Header, Op, RESERVE, Record, Records, Stamp, stamp};
use super::lanes::{Extent, split};
use super::marks::Mark;
use super::{Composed, Shared, names_of};
use crate::writer_id::WriterId;
use bytes::Bytes;
use shoal_env::local::{Permit, Semaphore};
use shoal_proto::{Name, Status};
use shoal_vfs::{Error, Result, Vfs, VfsFile};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

/// With `buffer=block`: records are in a block after so long, though it is not full.
const BUFFERED_FOR: Duration = Duration::from_secs(5);

/// The block that is being filled.
struct Current {
    place: u64,
    bytes: Vec<u8>,
    /// Bytes that are in the physical file.
    written: usize,
    /// A data record at the end that can still grow.
    open: Option<Open>,
    /// Its last record is in it: nothing follows.
    is_full: bool,
}

/// A data record in the buffer without its final sum.
#[derive(Clone, Copy)]
struct Open {
    begins: usize,
    object: u64,
    offset: u64,
    stamp: Stamp,
}

/// A writer. See the module.
pub(crate) struct Log<B: Vfs> {
    pub(super) id: Cell<WriterId>,
    /// One changes the log.
    pub(super) turn: Semaphore,
    pub(super) held: RefCell<Option<B::File>>,
    /// One takes the lock.
    pub(super) holding: Semaphore,
    current: RefCell<Option<Current>>,
    /// The extent in use, and its next block.
    extent: Cell<Option<(Extent, u32)>>,
    pub(super) lane: Cell<u8>,
    sequence: Cell<u64>,
    previous: Cell<u64>,
    /// Its own extents.
    pub(super) own: RefCell<BTreeMap<Extent, WriterId>>,
    /// Names that were made exclusively, and are to be given free when they are published.
    pub(super) marks: RefCell<Vec<Mark<B>>>,
    /// The one of them that is being given back.
    pub(super) leaving: RefCell<Option<Name>>,
    /// Places of the numbers of what was logged and is not published.
    pub(super) touched: RefCell<BTreeSet<u16>>,
    timer: Cell<bool>,
    /// Blocks that were begun, writes of blocks, claims.
    pub(super) counts: Cell<(u64, u64, u64)>,
}

impl<B: Vfs> Log<B> {
    pub(super) fn new(id: WriterId) -> Log<B> {
        Log {
            id: Cell::new(id),
            turn: Semaphore::new(1),
            held: RefCell::default(),
            holding: Semaphore::new(1),
            current: RefCell::default(),
            extent: Cell::new(None),
            lane: Cell::new(0),
            sequence: Cell::new(0),
            previous: Cell::new(0),
            own: RefCell::default(),
            marks: RefCell::default(),
            leaving: RefCell::default(),
            touched: RefCell::default(),
            timer: Cell::new(false),
            counts: Cell::default(),
        }
    }

    /// The writer's part of a stamp.
    pub(super) fn tie(&self) -> u64 {
        let mut tie = [0; 8];
        tie.copy_from_slice(&self.id.get().0[..8]);
        u64::from_le_bytes(tie)
    }

    /// Bytes of the block that is being filled.
    pub(super) fn buffered(&self, place: u64, at: usize, len: usize) -> Option<Bytes> {
        let current = self.current.borrow();
        let current = current.as_ref().filter(|current| current.place == place)?;
        Some(Bytes::copy_from_slice(current.bytes.get(at..at + len)?))
    }

    /// Nothing is logged until the permit is dropped.
    pub(super) async fn pause(&self) -> Permit {
        self.turn.acquire(1).await
    }

    /// Whether something was ever logged.
    pub(super) fn is_used(&self) -> bool {
        self.held.borrow().is_some()
    }
}

impl Current {
    /// Give the data record at the end its sum.
    fn seal(&mut self) {
        let Some(Open { begins, object, offset, stamp }) = self.open.take() else { return };
        let data = self.bytes.split_off(begins + DATA_HEAD);
        let op = Op::Data { offset, len: data.len() as u64 };
        self.bytes.truncate(begins);
        self.bytes.extend(Record { stamp, object, op }.encode(&data));
    }

    fn free(&self, block: usize) -> usize {
        if self.is_full { 0 } else { block.saturating_sub(RESERVE + self.bytes.len()) }
    }
}

impl<B: Vfs> Shared<B> {
    pub(super) fn draw_stamp(&self) -> Stamp {
        stamp(self.clock.draw(&self.env), self.log.tie())
    }

    /// Bytes that the current block has room for.
    pub(super) fn free(&self) -> usize {
        self.log.current.borrow().as_ref().map_or(0, |current| current.free(self.block_len()))
    }

    fn block_len(&self) -> usize {
        self.settings.block as usize
    }

    /// Log changes of names or attributes, in one block: they are applied together. The stamp.
    pub(super) async fn change(self: &Rc<Self>, ops: Vec<(u64, Op)>) -> Result<Stamp> {
        self.check_writable()?;
        let _turn = self.log.turn.acquire(1).await;
        let sized =
            |(object, op): &(u64, Op)| Record { stamp: 0, object: *object, op: op.clone() }.encode(&[]).len();
        self.room(ops.iter().map(sized).sum()).await?;
        ops.iter().try_for_each(|(_, op)| self.check_directories(op))?;
        let stamp = self.draw_stamp();
        let mut current = self.log.current.borrow_mut();
        let Some(current) = current.as_mut() else { return Err(lost_block()) };
        current.seal();
        for (object, op) in ops {
            self.touch(object, &op);
            let record = Record { stamp, object, op };
            current.bytes.extend(record.encode(&[]));
            self.names.borrow_mut().apply(&record, (current.place, 0));
        }
        self.begin_timer();
        Ok(stamp)
    }

    /// The directories of new names are known: a compaction forgets one that was removed, and nothing would
    /// find a name in it.
    pub(super) fn check_directories(&self, op: &Op) -> Result<()> {
        let dirs = match op {
            Op::Create(made) => vec![made.dir],
            Op::Bind(binds) => binds.iter().filter(|bind| bind.object != 0).map(|bind| bind.dir).collect(),
            _ => return Ok(()),
        };
        let names = self.names.borrow();
        match dirs.into_iter().find(|dir| names.object(*dir).is_none()) {
            Some(dir) => Err(super::fails(Status::Stale, "change", shoal_proto::Handle(dir))),
            None => Ok(()),
        }
    }

    /// Log bytes of a file; `None`: at its end. Their offset.
    pub(super) async fn put(self: &Rc<Self>, object: u64, at: Option<u64>, data: Bytes) -> Result<u64> {
        self.check_writable()?;
        let _turn = self.log.turn.acquire(1).await;
        self.put_in_turn(object, at, data).await
    }

    pub(super) fn size_of(&self, object: u64) -> u64 {
        self.names.borrow().object(object).map_or(0, super::object::Object::size)
    }

    /// The caller has the log's turn.
    pub(super) async fn put_in_turn(
        self: &Rc<Self>,
        object: u64,
        at: Option<u64>,
        mut data: Bytes,
    ) -> Result<u64> {
        let begins = at.unwrap_or_else(|| self.size_of(object));
        let end = begins.checked_add(data.len() as u64).filter(|end| i64::try_from(*end).is_ok());
        end.ok_or_else(|| Error::new(Status::FileTooBig, "write").of(shoal_proto::Handle(object)))?;
        let mut offset = begins;
        while !data.is_empty() {
            let can_grow = self.can_grow(object, offset);
            let head = if can_grow { 0 } else { DATA_HEAD };
            let free = self.free();
            // A part that is hardly larger than its head is not worth it.
            if free < head + data.len().min(512) {
                self.next_block().await?;
                continue;
            }
            let part = data.split_to(data.len().min(free - head));
            offset += part.len() as u64;
            self.put_part(object, offset - part.len() as u64, &part)?;
        }
        self.begin_timer();
        Ok(begins)
    }

    pub(super) fn push(&self, record: &Record, bytes: &[u8]) -> Result<()> {
        let mut current = self.log.current.borrow_mut();
        let Some(current) = current.as_mut() else { return Err(lost_block()) };
        current.seal();
        let at = current.bytes.len() + DATA_HEAD;
        current.bytes.extend_from_slice(bytes);
        self.touch(record.object, &record.op);
        self.names.borrow_mut().apply(record, (current.place, at as u32));
        Ok(())
    }

    fn can_grow(&self, object: u64, at: u64) -> bool {
        let (current, names) = (self.log.current.borrow(), self.names.borrow());
        let Some(current) = &*current else { return false };
        current.open.is_some_and(|open| {
            let len = (current.bytes.len() - open.begins - DATA_HEAD) as u64;
            open.object == object
                && open.offset + len == at
                && names.object(object).is_some_and(|found| found.written == open.stamp)
        })
    }

    fn put_part(&self, object: u64, offset: u64, part: &[u8]) -> Result<()> {
        let can_grow = self.can_grow(object, offset);
        let stamp = self.draw_stamp();
        let mut current = self.log.current.borrow_mut();
        let Some(current) = current.as_mut() else { return Err(lost_block()) };
        if !can_grow {
            current.seal();
            current.open = Some(Open { begins: current.bytes.len(), object, offset, stamp });
            current.bytes.resize(current.bytes.len() + DATA_HEAD, 0);
        }
        current.bytes.extend_from_slice(part);
        let Some(open) = &mut current.open else { return Err(lost_block()) };
        open.stamp = stamp;
        let at = open.begins + DATA_HEAD;
        let op = Op::Data { offset: open.offset, len: (current.bytes.len() - at) as u64 };
        self.touch(object, &op);
        self.names.borrow_mut().apply(&Record { stamp, object, op }, (current.place, at as u32));
        Ok(())
    }

    /// Have so many bytes free in the block that is being filled.
    pub(super) async fn room(self: &Rc<Self>, len: usize) -> Result<()> {
        if self.free() < len {
            self.next_block().await?;
        }
        if self.free() < len {
            let words = format!("{len} bytes do not fit into a block of {}", self.block_len());
            return Err(Error::new(Status::TooBig, "change").because(words));
        }
        Ok(())
    }

    /// End the block that is being filled, and begin the next.
    pub(super) async fn next_block(self: &Rc<Self>) -> Result<()> {
        let log = &self.log;
        let (extent, block) = match log.extent.get() {
            Some((extent, block)) if block < extent.blocks() => (extent, block),
            _ => (self.claim().await?, 0),
        };
        log.extent.set(Some((extent, block)));
        let place = extent.place(block);
        let had_next = {
            let mut current = log.current.borrow_mut();
            match current.as_mut() {
                None => false,
                Some(current) => {
                    current.seal();
                    // A try that failed has put it there already.
                    if !current.is_full {
                        current.is_full = true;
                        let next = Record { stamp: 0, object: 0, op: Op::Next(place) };
                        current.bytes.extend(next.encode(&[]));
                    }
                    true
                }
            }
        };
        if had_next {
            self.write_tail().await?;
        }
        let header = Header {
            writer: log.id.get(),
            sequence: log.sequence.get(),
            previous: log.previous.get(),
            place,
            directory: self.settings.short_id(),
        };
        log.extent.set(Some((extent, block + 1)));
        log.sequence.set(log.sequence.get() + 1);
        log.previous.set(place + 1);
        let mut bytes = Vec::with_capacity(self.block_len());
        bytes.extend(header.encode());
        let full =
            log.current.replace(Some(Current { place, bytes, written: 0, open: None, is_full: false }));
        if let Some(full) = full {
            self.keep_full(full.place, full.bytes.into());
        }
        let (begun, writes, claims) = log.counts.get();
        log.counts.set((begun + 1, writes, claims));
        Ok(())
    }

    /// Write the bytes of the block that are not in the physical file. In the turn.
    async fn write_tail(self: &Rc<Self>) -> Result<()> {
        let log = &self.log;
        let tail = {
            let mut current = log.current.borrow_mut();
            let Some(current) = current.as_mut() else { return Ok(()) };
            current.seal();
            let tail = Bytes::copy_from_slice(&current.bytes[current.written..]);
            (current.place, current.written, tail)
        };
        let (place, from, tail) = tail;
        let end = from + tail.len();
        if !tail.is_empty() {
            let (file, block) = split(place);
            let at = block * u64::from(self.settings.block) + from as u64;
            let (begun, writes, claims) = log.counts.get();
            self.blocks.file(file)?.write(at, tail).await?;
            log.counts.set((begun, writes + 1, claims));
            if let Some(current) = log.current.borrow_mut().as_mut().filter(|current| current.place == place)
            {
                current.written = end;
            }
        }
        // Also what an earlier try did not announce: a name is free when others know of it.
        self.announce().await?;
        self.give_marks_back().await;
        Ok(())
    }

    /// Have all that was logged in the physical file: it outlives this process.
    pub(super) async fn publish(self: &Rc<Self>) -> Result<()> {
        let _turn = self.log.turn.acquire(1).await;
        self.write_tail().await
    }

    /// The same, unless blocks are to be written whole.
    pub(super) async fn publish_change(self: &Rc<Self>) -> Result<()> {
        if self.buffers_blocks {
            return Ok(());
        }
        let mut change = Unpublished::new(self);
        let published = self.publish().await;
        change.is_done = true;
        published
    }

    pub(super) fn begin_timer(self: &Rc<Self>) {
        if !self.buffers_blocks || self.log.timer.replace(true) {
            return;
        }
        let (shared, env) = (Rc::downgrade(self), self.env.clone());
        self.env.spawn("write a block", async move {
            env.sleep(BUFFERED_FOR).await;
            let Some(shared) = shared.upgrade() else { return };
            shared.log.timer.set(false);
            if let Err(error) = shared.publish().await {
                tracing::warn!("a block is not written yet: {error}");
            }
        });
    }

    /// End the log: publish it, say that it has ended, and give the lock back. After an error it can be used
    /// further, and ended again.
    pub(super) async fn end_log(self: &Rc<Self>) -> Result<()> {
        let log = &self.log;
        if !log.is_used() {
            return Ok(());
        }
        {
            let _turn = log.turn.acquire(1).await;
            if let Some(current) = log.current.borrow_mut().as_mut().filter(|current| !current.is_full) {
                current.seal();
                current.is_full = true;
                current.bytes.extend(Record { stamp: 0, object: 0, op: Op::End }.encode(&[]));
                // Readers look for nothing more in this extent: what follows is for another one.
                log.extent.set(None);
            }
            self.write_tail().await?;
        }
        self.sync().await?;
        self.remove_tokens().await;
        self.leave_directory(0).await;
        if let Err(error) = self.over.unlink(self.claims, &names_of::writer(log.id.get())?).await {
            tracing::debug!("the file of an ended writer is left to others: {error}");
        }
        self.give_lock_back().await;
        Ok(())
    }

    /// After the index was read anew: what is in the buffer only, applied again.
    pub(super) fn apply_buffer(&self) {
        let mut current = self.log.current.borrow_mut();
        let Some(current) = current.as_mut() else { return };
        current.seal();
        let mut names = self.names.borrow_mut();
        for (record, begins) in Records::new(&current.bytes, HEADER_BYTES) {
            names.apply(&record, (current.place, (begins + DATA_HEAD) as u32));
        }
    }

    /// How far its own extents are known: all of them.
    pub(super) fn own_known(&self) -> BTreeMap<Extent, super::scan::Known> {
        let own = self.log.own.borrow();
        own.iter().map(|(extent, id)| (*extent, super::scan::Known::ended_of(*id))).collect()
    }
}

fn lost_block() -> Error {
    Error::new(Status::Io, "write").because("no block is being filled")
}

impl<B: Vfs> Composed<B> {
    /// Publish all that was logged, make it durable, and end the log.
    ///
    /// # Errors
    /// Errors of the file system below: then it can be used further, and ended again.
    pub(crate) async fn end(&self) -> Result<()> {
        let ended = self.0.end_log().await;
        if ended.as_ref().is_err_and(|error| error.status == Status::Io) {
            self.has_lost();
        }
        ended
    }

    /// A sync failed of which no open file knows: the next one that is opened reports it.
    pub(crate) fn has_lost(&self) {
        self.0.losses.set(self.0.losses.get() + 1);
        self.0.is_loss_unseen.set(true);
    }

    /// Whether a sync failed, and no file has reported it.
    pub(crate) fn is_loss_unseen(&self) -> bool {
        self.0.is_loss_unseen.get()
    }

    /// Blocks that this process began, writes of blocks, and claims.
    pub fn counts(&self) -> (u64, u64, u64) {
        self.0.log.counts.get()
    }
}
