//! streamstat: report the facts of one stream. A client merges the facts of all datafiles of a file into
//! the file's attributes.

use crate::data::precreated;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Generation, Handle, Status};
use shoal_store::StreamInfo;

/// The facts of `streamstat`: a handler that reads the row of one stream.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Streamstat { stream } => run(ctx, *stream)));

/// Facts of a stuffed metafile's or a datafile's stream.
pub fn run(ctx: &mut Ctx<'_>, stream: Handle) -> Result<Answer, Stopped> {
    let stream = ctx.object(stream)?;
    ctx.stream_must_be_readable(stream)?;
    let Some(info) = ctx.stream(stream)? else {
        // Another server may know of it already: a file or datafile is created by a transaction, and this
        // server's part of that may not be finished. Its rows' locks say so, and are waited for.
        match ctx.owner_of(stream) {
            Ok(_) | Err(Stopped::Status(Status::Stale)) => {}
            Err(halt) => return Err(halt),
        }
        // Made ahead of need and never written, it is empty, and of no generation yet.
        return match precreated::pool_of(ctx, stream)? {
            Some(_) => Ok(answer(ctx, stream, &precreated::empty(Generation::default()))),
            None => Err(Stopped::Status(Status::Stale)),
        };
    };
    Ok(answer(ctx, stream, &info))
}

fn answer(ctx: &Ctx<'_>, stream: Handle, info: &StreamInfo) -> Answer {
    Answer::Facts { facts: ctx.facts_of(stream, info), moves: Vec::new().into() }
}
