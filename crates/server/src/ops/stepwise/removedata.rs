//! removedata: remove a datafile of a metafile that the client has removed. If the datafile is gone, the
//! reply is the same.

use crate::ops::facts::Cost;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Answer, Handle, Status};

/// The facts of `removedata`: a step of `compound = off` that frees space. It removes one object, the
/// datafile.
pub const FACTS: OpFacts = OpFacts {
    is_step: true,
    frees: |_| true,
    cost: |_, _| Cost::removed(1),
    ..OpFacts::new(handler!(|ctx| Removedata { owner, datafile } => run(ctx, *owner, *datafile)))
};

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
