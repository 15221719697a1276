//! createdata: a datafile for a metafile that is being made, by the client that makes it.

use crate::actions;
use crate::ctx::{Ctx, Halt};
use crate::keys;
use crate::rows::New;
use shoal_proto::{Answer, Handle};

/// Make it.
pub fn run(ctx: &mut Ctx<'_>, owner: Handle) -> Result<Answer, Halt> {
    let datafile = ctx.draw(ctx.identity.id)?;
    actions::create_datafile(ctx, datafile, owner)?;
    ctx.put(keys::new(datafile), &New { client: ctx.client, place: owner, name: None })?;
    Ok(Answer::Handles { handles: vec![datafile].into() })
}
