//! read: read one stream's share of a pattern.

use crate::data::{self, Bulk, LongPart, StreamPart, Work};
use crate::ops::{OpFacts, handler, when};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Rights, Transfer};
use shoal_store::Changes;

/// The facts of `read`: a handler. Its reply has at most the bytes of the transfer's window.
pub const FACTS: OpFacts = OpFacts {
    gives_bytes: when!(Read { transfer } => usize::try_from(transfer.window_len).unwrap_or(usize::MAX)),
    ..OpFacts::new(handler!(|ctx| Read { transfer } => run(ctx, transfer)))
};

/// Read. The server sends no bytes after the stream's end. The client knows the other datafiles, so it
/// decides whether such bytes are zeros or lie after the end of the file. The size and the change count in
/// the reply are those at this point, even if the stream grows before its bytes are read.
pub fn run(ctx: &mut Ctx<'_>, transfer: &Transfer) -> Result<Answer, Stopped> {
    let capability = transfer.capability.as_ref();
    let access = data::access(ctx, transfer.stream, transfer.generation, capability, Rights::READ)?;
    let (stream, info) = (access.stream, access.info);
    if let Some(done) = ctx.done(stream) {
        let done = done?;
        if let Some(upto) = done.sent_upto {
            return Ok(Answer::Sent { upto, facts: done.facts() });
        }
        let (len, facts) = (done.data.iter().map(bytes::Bytes::len).sum::<usize>() as u32, done.facts());
        ctx.bulk_out.extend(done.data);
        return Ok(Answer::Data { len, facts });
    }
    let long = if ctx.may_send_pieces { LongPart::of(transfer)? } else { None };
    if let Some(part) = long {
        let count = ctx.facts_of(stream, &info).count;
        let work = Work::Flow { part: Box::new(part), info, count };
        return Err(Stopped::Bulk(Box::new(Bulk { stream, work })));
    }
    let part = StreamPart::of(transfer)?.trimmed(info.size)?;
    // A short pattern can select the bytes of a small stream a million times: check the length of the result.
    if part.is_empty() || (info.small && part.len() <= Changes::SMALL_MAX as u64) {
        let content = if part.is_empty() { bytes::Bytes::new() } else { ctx.small_content(stream)? };
        let data = part.gather(&content, &mut ctx.copied)?;
        ctx.bulk_out.push(data);
        return Ok(Answer::Data { len: part.len() as u32, facts: ctx.facts_of(stream, &info) });
    }
    let count = ctx.facts_of(stream, &info).count;
    Err(Stopped::Bulk(Box::new(Bulk { stream, work: Work::Read { part: Box::new(part), info, count } })))
}
