//! fsync: make a stream, its size and all metadata before it durable.
//!
//! The client syncs each datafile that it knows of. Of a metafile it says which generation it knows: where another client
//! has laid the file out since, the answer is `StaleLayout`, and the client learns of the other datafiles.

use crate::ctx::{Ctx, Halt};
use crate::data::{Bulk, Work};
use shoal_proto::{Answer, Generation, Handle, Status};

/// Make it durable. The reply's loss id tells the client whether anything it wrote before may be lost.
pub fn run(ctx: &mut Ctx<'_>, stream: Handle, generation: Generation) -> Result<Answer, Halt> {
    let stream = ctx.object(stream)?;
    if let Some(done) = ctx.done(stream) {
        done?;
        return Ok(Answer::Synced {});
    }
    if generation != Generation(0) {
        let info = ctx.stream(stream)?.ok_or(Halt::Status(Status::Stale))?;
        if info.generation != generation.0 {
            return Err(Halt::Status(Status::StaleLayout));
        }
    }
    Err(Halt::Bulk(Box::new(Bulk { stream, work: Work::Fsync })))
}
