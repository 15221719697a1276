//! removedata: remove a datafile of a metafile that the client has removed. Nothing to remove is done already.

use crate::actions;
use crate::ctx::{Ctx, Halt};
use shoal_proto::{Answer, Handle, Status};

/// Remove it.
///
/// # Errors
/// `WrongServer`.
pub fn run(ctx: &mut Ctx<'_>, owner: Handle, datafile: Handle) -> Result<Answer, Halt> {
    if datafile.server() != ctx.identity.id {
        return Err(Halt::Status(Status::WrongServer));
    }
    actions::reap_datafile(ctx, owner, datafile)?;
    Ok(Answer::Done {})
}
