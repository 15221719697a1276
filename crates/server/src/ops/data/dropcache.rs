//! dropcache: drop what this server has of a stream in memory and on its disk too, so that the next reads
//! come from the disk. Galley's flushes are an fsync and this.
//!
//! Blocks of the data engine go, and the kernel's pages of the stream's file. Bytes that no sync has covered
//! stay. A stream that is so small that the store keeps it among its rows has neither.

use crate::data::{Bulk, Work};
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Handle};

/// Its facts.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Dropcache { stream } => run(ctx, *stream)));

/// Drop it.
///
/// # Errors
/// `Stale`: there is no such stream here.
pub fn run(ctx: &mut Ctx<'_>, stream: Handle) -> Result<Answer, Stopped> {
    let stream = ctx.object(stream)?;
    if let Some(done) = ctx.done(stream) {
        done?;
        return Ok(Answer::Done {});
    }
    Err(Stopped::Bulk(Box::new(Bulk { stream, work: Work::DropCache })))
}
