//! fsync: make a stream, its size and all earlier changes of metadata durable.
//!
//! The client syncs each datafile that it knows. With the fsync of a metafile it sends the generation that it
//! knows. If the file has a newer generation, the reply is `StaleLayout`: for example, another client has
//! unstuffed the file, or set its mtime explicitly. The client then fetches the layout, and syncs all its
//! datafiles.
//!
//! **The fsync of a removed metafile fails** (`Stale`): the bytes that were written to it are gone with it.
//! The fsync of a missing datafile succeeds. A datafile of an existing file is missing only if its server
//! lost it. The loss id in the reply shows the loss to the client, and each open file reports it once.

use crate::data::{Bulk, Work};
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Generation, Handle, Status};

/// The facts of `fsync`: a handler that makes earlier changes durable.
pub const FACTS: OpFacts = OpFacts {
    makes_durable: true,
    ..OpFacts::new(handler!(|ctx| Fsync { stream, generation } => run(ctx, *stream, *generation)))
};

/// Make it durable. The reply's loss id tells the client whether anything it wrote before may be lost.
///
/// # Errors
/// `Stale`: a metafile of which a generation is known is gone; `StaleLayout`: the file is of another
/// generation than the client knows.
pub fn run(ctx: &mut Ctx<'_>, stream: Handle, generation: Generation) -> Result<Answer, Stopped> {
    let stream = ctx.object(stream)?;
    if let Some(done) = ctx.done(stream) {
        done?;
        return Ok(Answer::Synced {});
    }
    if generation != Generation(0) && generation_of(ctx, stream)? != generation {
        return Err(Stopped::Status(Status::StaleLayout));
    }
    Err(Stopped::Bulk(Box::new(Bulk { stream, work: Work::Fsync })))
}

/// The generation of a metafile. On a server that holds no data it has no stream of its own.
fn generation_of(ctx: &Ctx<'_>, file: Handle) -> Result<Generation, Stopped> {
    match ctx.stream(file)? {
        Some(info) => Ok(Generation(info.generation)),
        None => Ok(ctx.inode(file)?.layout.map(|layout| layout.generation).unwrap_or_default()),
    }
}
