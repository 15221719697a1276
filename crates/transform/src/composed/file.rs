//! An open file of a composed directory.

use super::changes::Key;
use super::format::{Changed, DATA_HEAD, Op, Record, clock_of};
use super::name_space::lost_block;
use super::object::Object;
use super::{Shared, fails};
use bytes::{Bytes, BytesMut};
use shoal_proto::{Allocation, Handle, Rights, Status};
use shoal_vfs::{Error, Result, Vfs, VfsFile};
use std::cell::Cell;
use std::rc::Rc;

/// Bytes that one read returns, at most; a longer one is refused.
const READ_BYTES_MAX: u64 = 1 << 32;
/// Bytes of a record of one changed time, at most.
const ATTRIBUTES_BYTES: usize = 64;

/// See the module. Clones share it.
pub struct ComposedFile<B: Vfs>(Rc<Opened<B>>);

impl<B: Vfs> Clone for ComposedFile<B> {
    fn clone(&self) -> ComposedFile<B> {
        ComposedFile(self.0.clone())
    }
}

struct Opened<B: Vfs> {
    shared: Rc<Shared<B>>,
    object: Handle,
    rights: Rights,
    is_closed: Cell<bool>,
    /// Losses that were reported through it, or were before it was opened.
    seen: Cell<u64>,
}

impl<B: Vfs> Opened<B> {
    fn end(&self) -> bool {
        if self.is_closed.replace(true) {
            return false;
        }
        self.shared.closed(self.object.0);
        true
    }
}

impl<B: Vfs> Opened<B> {
    /// Publish what the process wrote. A file that is only read has no part in it: its close does not fail
    /// because the disk is full.
    async fn publish_own(&self) -> Result<()> {
        match self.rights.contains(Rights::WRITE) && self.shared.log.is_used() {
            true => self.shared.publish_change().await,
            false => Ok(()),
        }
    }
}

impl<B: Vfs> Drop for Opened<B> {
    fn drop(&mut self) {
        if !self.end() || self.shared.buffers_blocks || !self.shared.log.is_used() {
            return;
        }
        let shared = self.shared.clone();
        self.shared.env.spawn("close a composed file", async move {
            if let Err(error) = shared.publish().await {
                tracing::warn!("a closed file is not published yet: {error}");
            }
        });
    }
}

impl<B: Vfs> ComposedFile<B> {
    pub(super) fn new(shared: &Rc<Shared<B>>, object: Handle, rights: Rights) -> ComposedFile<B> {
        shared.opened(object.0);
        // A loss that no file has reported is this one's to report.
        let seen = shared.losses.get() - u64::from(shared.is_loss_unseen.get());
        let (is_closed, seen) = (Cell::new(false), Cell::new(seen));
        ComposedFile(Rc::new(Opened { shared: shared.clone(), object, rights, is_closed, seen }))
    }

    fn may(&self, right: Rights, op: &'static str) -> Result<()> {
        if self.0.rights.contains(right) {
            return Ok(());
        }
        let words = "the file is not open for that";
        Err(fails(Status::BadCapability, op, self.0.object).because(words))
    }

    /// Log bytes; `None`: at the file's end. Their offset.
    async fn put(&self, at: Option<u64>, data: Bytes) -> Result<u64> {
        let shared = &self.0.shared;
        let alone = match at {
            None => shared.alone().await?,
            Some(_) => None,
        };
        if alone.is_some() {
            // The end that the append before this one left.
            shared.refresh_now().await?;
        }
        let offset = shared.put(self.0.object.0, at, data).await?;
        if shared.publishes_writes || alone.is_some() {
            shared.publish_change().await?;
        }
        if let Some(alone) = alone {
            alone.close().await?;
        }
        Ok(offset)
    }

    /// The bytes of a range, if the blocks still hold them.
    async fn gather(&self, offset: u64, len: u64) -> Result<std::result::Result<Bytes, u64>> {
        let (shared, object) = (&self.0.shared, self.0.object);
        let (pieces, len) = {
            let names = shared.names.borrow();
            let found = names.object(object.0).ok_or_else(|| fails(Status::Stale, "read", object))?;
            let pieces = found.pieces(offset, len).into_iter();
            let pieces =
                pieces.map(|(at, stored)| (at, stored, shared.writer_of(stored))).collect::<Vec<_>>();
            (pieces, len.min(found.size().saturating_sub(offset)))
        };
        let mut bytes = BytesMut::new();
        let is_one = matches!(&pieces[..], [(at, stored, _)] if *at == offset && stored.len == len);
        for (at, stored, writer) in pieces {
            let Some(found) = shared.bytes_by(writer, stored).await? else { return Ok(Err(stored.place)) };
            if is_one {
                return Ok(Ok(found));
            }
            bytes.resize((at - offset) as usize, 0);
            bytes.extend_from_slice(&found);
        }
        bytes.resize(len as usize, 0);
        Ok(Ok(bytes.freeze()))
    }
}

impl<B: Vfs> ComposedFile<B> {
    /// Make it at least so long, by a zero at its new end. Unlike a size that is set this cuts no byte, also
    /// none of another process that is not known here yet. The zero is older than all bytes that a writer put
    /// there: those that another open file has written, and not published, stay.
    async fn grow(&self, end: u64) -> Result<()> {
        let (shared, object) = (&self.0.shared, self.0.object.0);
        shared.check_writable()?;
        let _turn = shared.log.turn.acquire(1).await;
        shared.room(DATA_HEAD + 1 + ATTRIBUTES_BYTES).await?;
        if shared.size_of(object) >= end {
            return Ok(());
        }
        let oldest = shared.names.borrow().object(object).and_then(Object::oldest);
        let stamp = oldest.ok_or_else(|| fails(Status::Stale, "fallocate", self.0.object))?;
        let zero = Record { stamp, object, op: Op::Data { offset: end - 1, len: 1 } };
        shared.push(&zero, &zero.encode(&[0]))?;
        let stamp = shared.draw_stamp();
        let mtime = i64::try_from(clock_of(stamp)).ok();
        let op = Op::Attributes(Changed { mtime, ..Changed::default() });
        let changed = Record { stamp, object, op };
        shared.push(&changed, &changed.encode(&[]))?;
        shared.begin_timer();
        Ok(())
    }
}

impl<B: Vfs> VfsFile for ComposedFile<B> {
    type PageCounts = ();

    const REPORTS_CLOSES: bool = true;

    async fn flush(&self) -> Result<()> {
        self.0.publish_own().await
    }

    fn handle(&self) -> Handle {
        self.0.object
    }

    fn rights(&self) -> Rights {
        self.0.rights
    }

    fn again(&self) -> ComposedFile<B> {
        ComposedFile::new(&self.0.shared, self.0.object, self.0.rights)
    }

    async fn read(&self, offset: u64, len: usize) -> Result<Bytes> {
        self.may(Rights::READ, "read")?;
        let (shared, len) = (&self.0.shared, (len as u64).min(READ_BYTES_MAX));
        match self.gather(offset, len).await? {
            // Another process may have made the file longer.
            Ok(bytes) if shared.publishes_writes && (bytes.len() as u64) < len => {
                shared.look_at(&[Key::of_object(self.0.object.0)]).await?;
                if let Ok(bytes) = self.gather(offset, len).await? {
                    return Ok(bytes);
                }
            }
            Ok(bytes) => return Ok(bytes),
            Err(_) => {}
        }
        // A compaction gave the block back: the index says where the bytes are now.
        shared.refresh().await?;
        match self.gather(offset, len).await? {
            Ok(bytes) => Ok(bytes),
            Err(place) => Err(lost_block(place).of(self.0.object)),
        }
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        self.may(Rights::WRITE, "write")?;
        self.put(Some(offset), data).await.map(drop)
    }

    async fn append(&self, data: Bytes) -> Result<u64> {
        self.may(Rights::WRITE, "append")?;
        self.put(None, data).await
    }

    async fn refresh(&self) -> Result<()> {
        self.0.shared.refresh().await
    }

    async fn fsync(&self) -> Result<()> {
        let (shared, seen) = (&self.0.shared, &self.0.seen);
        let synced = shared.sync().await;
        if synced.as_ref().is_err_and(|error| error.status == Status::Io) {
            shared.losses.set(shared.losses.get() + 1);
        }
        let is_new = seen.replace(shared.losses.get()) < shared.losses.get();
        if is_new {
            shared.is_loss_unseen.set(false);
        }
        match synced {
            Ok(()) if is_new => {
                let words = "an earlier sync of this directory failed: what it was to write may be lost";
                Err(Error::new(Status::Io, "fsync").of(self.0.object).because(words))
            }
            synced => synced,
        }
    }

    async fn allocate(&self, offset: u64, len: u64, mode: Allocation) -> Result<()> {
        self.may(Rights::WRITE, "fallocate")?;
        let object = self.0.object;
        let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or_else(|| fails(Status::FileTooBig, "fallocate", object))?;
        let shared = &self.0.shared;
        // Blocks are taken as they are filled: nothing can be reserved.
        let has_hole = matches!(mode, Allocation::Punch | Allocation::Zero | Allocation::ZeroKeepSize);
        if has_hole {
            shared.change(vec![(object.0, Op::Hole { offset, len })]).await?;
        }
        let is_short = shared.attr(object, "fallocate")?.size < end;
        let grows = matches!(mode, Allocation::Extend | Allocation::Zero) && is_short;
        if grows {
            shared.refresh().await?;
            self.grow(end).await?;
        }
        if has_hole || grows { shared.publish_of(object).await } else { Ok(()) }
    }

    async fn close(self) -> Result<()> {
        let Ok(opened) = Rc::try_unwrap(self.0) else { return Ok(()) };
        if opened.end() { opened.publish_own().await } else { Ok(()) }
    }
}
