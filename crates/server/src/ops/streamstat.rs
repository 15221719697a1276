//! streamstat: facts of one stream; a client merges those of a file's datafiles into its attributes.

use crate::ctx::{Ctx, Halt};
use crate::inode::facts_of;
use shoal_proto::{Answer, Handle, Status};

/// Facts of a stuffed metafile's or a datafile's stream.
pub fn run(ctx: &mut Ctx<'_>, stream: Handle) -> Result<Answer, Halt> {
    let stream = ctx.object(stream)?;
    let info = ctx.stream(stream)?.ok_or(Halt::Status(Status::Stale))?;
    Ok(Answer::Facts { facts: facts_of(&info) })
}
