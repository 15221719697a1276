//! write: write one stream's share of a pattern.
//!
//! Small content is replaced in the batch of changes of the operation's *group* (operations that are
//! committed together), so that a whole small file is one durable record. Larger data goes to the store
//! before that batch. A write without data, alone in its request, is a long write: the server pulls its
//! data.

use crate::data::{self, LongPart, StreamPart, Work};
use crate::ops::facts::Cost;
use crate::ops::{Alters, OpFacts, handler, when};
use crate::request::ctx::{Ctx, Stopped};
use shoal_env::WallTime;
use shoal_proto::{Answer, Handle, Move, Rights, Status, Transfer};
use shoal_store::{Changes, StreamChange};

/// The facts of `write`: a change of data whose cost is 0. It takes `len` bytes of bulk data, and asks for
/// journal space for a whole small stream.
pub const FACTS: OpFacts = OpFacts {
    alters: Alters::Data,
    // The whole content of a small stream goes along, however little of it is written.
    journal_bytes: |_| Changes::SMALL_MAX as u64,
    takes_bytes: when!(Write { len, .. } => *len as usize),
    cost: |_, _| Cost::of(0),
    ..OpFacts::new(handler!(|ctx| Write { transfer, len } => run(ctx, transfer, *len)))
};

/// Write `len` bytes of the request's bulk data.
pub fn run(ctx: &mut Ctx<'_>, transfer: &Transfer, len: u32) -> Result<Answer, Stopped> {
    let data = ctx.take_bulk(len as usize)?;
    if let Some(done) = ctx.done(ctx.object(transfer.stream)?) {
        return Ok(done?.answer());
    }
    let capability = transfer.capability.as_ref();
    let access = data::access(ctx, transfer.stream, transfer.generation, capability, Rights::WRITE)?;
    let (stream, info) = (access.stream, access.info);
    if ctx.may_pull && len == 0 && transfer.window_len > 0 {
        let part = LongPart::of_write(transfer)?;
        data::must_fit_stuffed(ctx, stream, transfer.share, part.end())?;
        if transfer.stream == Handle::CURRENT || !ctx.is_unchanged() {
            return Err(Stopped::Status(Status::NotSupported));
        }
        return Err(access.bulk(Work::Pull { part: Box::new(part), info }));
    }
    let part = StreamPart::of(transfer)?;
    if part.len() != u64::from(len) {
        return Err(Stopped::Status(Status::BadMessage));
    }
    data::must_fit_stuffed(ctx, stream, transfer.share, part.end())?;
    if transfer.stream == Handle::CURRENT {
        data::must_end_in_first_strip(ctx, stream, part.end())?;
    }
    // A few bytes of pattern may name a small content a million times.
    let is_small = part.end().max(info.size).max(part.len()) <= Changes::SMALL_MAX as u64;
    if info.small && is_small {
        // Contents that are replaced whole need not be read.
        let is_whole = part.covers(info.size)?;
        let content = if is_whole { bytes::Bytes::new() } else { ctx.small_content(stream)? };
        let (content, end) = part.scatter(&content, &data, &mut ctx.copied)?;
        let size = info.size.max(end);
        let change = StreamChange::Put { content, size, written_at: WallTime(ctx.now.0) };
        access.touch(ctx)?;
        ctx.write_stream(stream, change)?;
        let after = ctx.stream(stream)?.ok_or(Stopped::Status(Status::Stale))?;
        let moves = ctx.move_of(stream).into_iter().collect::<Vec<Move>>().into();
        return Ok(Answer::Facts { facts: ctx.facts_of(stream, &after), moves });
    }
    if !ctx.is_unchanged() {
        return Err(Stopped::Status(Status::NotSupported));
    }
    let work = Work::Write { generation: info.generation, part: Box::new(part), data };
    Err(access.bulk(work))
}
