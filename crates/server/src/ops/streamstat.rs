//! streamstat: facts of one stream; a client merges those of a file's datafiles into its attributes.

use crate::ctx::{Ctx, Halt};
use crate::inode::facts_of;
use shoal_proto::{Answer, Handle, Status};

/// Facts of a stuffed metafile's or a datafile's stream.
pub fn run(ctx: &mut Ctx<'_>, stream: Handle) -> Result<Answer, Halt> {
    let stream = ctx.object(stream)?;
    let Some(info) = ctx.stream(stream)? else {
        // Another server may know of it already: a datafile is created by a transaction, and this server's part of that
        // may not be finished. Its row's lock says so, and is waited for.
        ctx.owner_of(stream)?;
        return Err(Halt::Status(Status::Stale));
    };
    Ok(Answer::Facts { facts: facts_of(&info) })
}
