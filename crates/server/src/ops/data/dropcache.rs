//! dropcache: drop the bytes of a stream that this server has both in memory and on its disk, so that the
//! next reads come from the disk. A flush of Galley is an fsync and this operation.
//!
//! It drops the blocks of the data engine, and the kernel's pages of the stream's file. Bytes that no sync
//! has covered stay. A stream that is so small that the store keeps it in a row has no such blocks and pages.

use crate::data::{Bulk, Work};
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Handle};

/// The facts of `dropcache`: a handler. It changes no row, so all other facts have their defaults.
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
