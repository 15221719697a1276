//! createdata: make a datafile for a metafile that the client is making step by step.

use crate::meta::keys;
use crate::meta::rows::New;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Answer, Handle};

/// The facts of `createdata`: a step of `compound = off`. It draws one handle, for the datafile.
pub const FACTS: OpFacts = OpFacts {
    is_step: true,
    draws: 1,
    ..OpFacts::new(handler!(|ctx| Createdata { owner } => run(ctx, *owner)))
};

/// Make it.
pub fn run(ctx: &mut Ctx<'_>, owner: Handle) -> Result<Answer, Stopped> {
    let datafile = ctx.draw(ctx.identity.id)?;
    actions::create_datafile(ctx, datafile, owner)?;
    ctx.put(keys::new(datafile), &New { client: ctx.client, place: owner, name: None })?;
    Ok(Answer::Handles { handles: vec![datafile].into() })
}
