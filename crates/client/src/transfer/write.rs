//! Writes. The bytes are gathered from the caller's buffer. They are not copied if they lie in few pieces
//! ([`PIECES_MAX`]) or in pieces of at least 1 KiB on average ([`PIECE_BYTES_MIN`]).

use super::paired::{Source, places};
use super::{Plan, bounds, contiguous};
use crate::core::{Operation, Told};
use crate::file::{Opened, Shape};
use crate::session::Giver;
use crate::{Error, OpenFile};
use bytes::{Bytes, BytesMut};
use shoal_pattern::{Pattern, View, Window};
use shoal_proto::op::Answer;
use shoal_proto::{Durability, Handle, Op, Rights, Status};

/// A message of at most so many pieces is sent from where they lie.
const PIECES_MAX: usize = 32;
/// Pieces of at least so many bytes on average are sent from where they lie.
const PIECE_BYTES_MIN: usize = 1024;

impl OpenFile {
    /// Write all of `data` at `offset`.
    ///
    /// # Errors
    /// `NoSpace`, `FileTooBig`; `NoSession`: the session ended under way, and some of it may be written.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        let o = self.0.client.begin("write", Some(self.0.handle));
        let pattern = contiguous(&o, offset, data.len() as u64)?;
        self.0.write(&o, &pattern, &data).await
    }

    /// Write all of `data` at `offset`, durably: it survives a power cut when this returns, and so does all
    /// that was changed on its servers before.
    ///
    /// # Errors
    /// As [`OpenFile::write`].
    pub async fn write_durable(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        let o = self.0.client.begin("write", Some(self.0.handle));
        let o = o.with(Durability::Durable);
        let pattern = contiguous(&o, offset, data.len() as u64)?;
        self.0.write(&o, &pattern, &data).await
    }

    /// Write all of `data` at `offset`, of which the kernel's pages of the file have the bytes already.
    ///
    /// # Errors
    /// As [`OpenFile::write`].
    pub async fn write_pages(&self, offset: u64, data: Bytes) -> Result<(), Error> {
        let (core, object) = (&self.0.client.core, self.0.handle);
        let o = self.0.client.begin("write", Some(object));
        let pattern = contiguous(&o, offset, data.len() as u64)?;
        core.with_pages(|pages| pages.write_begins(object));
        let written = self.0.write_by(&o, &pattern, &Source::packed(&data), true).await;
        core.note_pages(object, |pages| pages.write_ended(object, written.is_ok()));
        written
    }

    /// Write `data` to a pattern of the file: its bytes are those of the pattern, in its order.
    ///
    /// # Errors
    /// As [`OpenFile::write`]; `Invalid`: the lengths differ, or the pattern reaches before the start of the
    /// file.
    pub async fn write_pattern(&self, pattern: &Pattern, data: Bytes) -> Result<(), Error> {
        let o = self.0.client.begin("write", Some(self.0.handle));
        if pattern.len() != data.len() as u64 {
            let words = format!("{} bytes for a pattern of {}", data.len(), pattern.len());
            return Err(o.error(Status::Invalid).because(words));
        }
        self.0.write(&o, pattern, &data).await
    }
}

impl Opened {
    async fn write(&self, o: &Operation, pattern: &Pattern, data: &Bytes) -> Result<(), Error> {
        self.write_from(o, pattern, &Source::packed(data)).await
    }

    pub(super) async fn write_from(
        &self,
        o: &Operation,
        pattern: &Pattern,
        source: &Source<'_>,
    ) -> Result<(), Error> {
        self.has_forgotten_pages();
        self.write_by(o, pattern, source, false).await
    }

    /// `has_pages`: the kernel's pages have the bytes.
    async fn write_by(
        &self,
        o: &Operation,
        pattern: &Pattern,
        source: &Source<'_>,
        has_pages: bool,
    ) -> Result<(), Error> {
        let Some((_, end)) = bounds(o, pattern)? else { return Ok(()) };
        let fit = async |shape| self.room_to(o, shape, end).await;
        let work = async |shape| self.write_shaped(o, &shape, pattern, source, has_pages).await;
        let result = self.with_shape(o, Rights::WRITE, fit, work).await;
        self.touched();
        result
    }

    async fn write_shaped(
        &self,
        o: &Operation,
        shape: &Shape,
        pattern: &Pattern,
        source: &Source<'_>,
        has_pages: bool,
    ) -> Result<(), Error> {
        let whole = Plan::new(self, o, shape, pattern, Window::all(pattern));
        // A later byte of a list stays: the parts of one that is too long for a request go one after another.
        for window in pattern.requests(whole.window) {
            if window.from == 0 {
                self.write_request(&Plan { window, ..whole }, source, has_pages).await?;
                continue;
            }
            let o = &o.for_part(self.client.core.world.now());
            self.may_use_locks(o).await?;
            self.write_request(&Plan { o, window, ..whole }, source, has_pages).await?;
        }
        self.inode.written_in(shape);
        Ok(())
    }

    /// One request a server for the window of a plan, or a few at once.
    async fn write_request(
        &self,
        plan: &Plan<'_>,
        source: &Source<'_>,
        has_pages: bool,
    ) -> Result<(), Error> {
        let written = |stream: Handle, told: &Told| {
            self.inode.written(stream.server(), told.loss);
            if has_pages && let Some(Answer::Facts { moves, .. }) = told.answers.first() {
                self.client.core.with_pages(|pages| pages.moved(self.handle, stream, moves));
            }
        };
        let pulled = async |index: u32, stream: Handle| {
            let transfer = plan.transfer(index, stream, plan.window);
            let giver = Giver {
                pattern: transfer.pattern.clone(),
                striping: plan.striping,
                index,
                base: plan.window.from,
                data: source.data.clone(),
                memory: source.memory.cloned(),
            };
            let (o, op) = (plan.o.giving(giver), Op::Write { transfer, len: 0 });
            written(stream, &plan.core.ask_with(&o, stream.server(), vec![op], Vec::new(), 0).await?);
            Ok(())
        };
        let sent = async |index: u32, stream: Handle, window: Window| {
            let view = plan.view(index, window)?;
            let (bulk, len, copied) = gather(view, window.from, source.data, source.memory);
            plan.core.copied(copied);
            let len = u32::try_from(len).map_err(|_| plan.o.error(Status::OverLimit))?;
            let transfer = plan.transfer(index, stream, window);
            let op = Op::Write { transfer, len };
            written(stream, &plan.core.ask_with(plan.o, stream.server(), vec![op], bulk, 0).await?);
            Ok(())
        };
        plan.each(sent, pulled).await?;
        Ok(())
    }
}

/// The bytes of a view in its order, their number, and how many of them were copied. The view's packed bytes
/// begin with `base` of the source's, which lie in `data` as `memory` says.
pub(crate) fn gather(
    view: View<'_>,
    base: u64,
    data: &Bytes,
    memory: Option<&Pattern>,
) -> (Vec<Bytes>, usize, usize) {
    let (mut pieces, mut len) = (0, 0);
    let ranges = || view.clone().packed().map(|range| (base + range.start, range.end - range.start));
    for (packed, bytes) in ranges() {
        places(memory, packed, bytes, |_| pieces += 1);
        len += bytes as usize;
    }
    if pieces <= PIECES_MAX || len / pieces >= PIECE_BYTES_MIN {
        let mut sent = Vec::with_capacity(pieces);
        ranges().for_each(|(packed, bytes)| {
            places(memory, packed, bytes, |range| sent.push(data.slice(range)));
        });
        return (sent, len, 0);
    }
    let mut packed = BytesMut::with_capacity(len);
    for (from, bytes) in ranges() {
        places(memory, from, bytes, |range| packed.extend_from_slice(&data[range]));
    }
    (vec![packed.freeze()], len, len)
}
