//! removedata: remove a datafile of a metafile that the client has removed. Nothing to remove is done
//! already.

use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Answer, Handle, Status};

/// Remove it.
///
/// # Errors
/// `WrongServer`.
pub fn run(ctx: &mut Ctx<'_>, owner: Handle, datafile: Handle) -> Result<Answer, Stopped> {
    if datafile.server() != ctx.identity.id {
        return Err(Stopped::Status(Status::WrongServer));
    }
    actions::reap_datafile(ctx, owner, datafile)?;
    Ok(Answer::Done {})
}
