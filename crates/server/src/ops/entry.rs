//! entry: one entry of a directory and the directory's attributes: a fact for a peer's plan.

use crate::ctx::{Ctx, Halt};
use shoal_proto::{Answer, Entry, Handle, Name};

/// The entry, if there is one.
pub fn run(ctx: &mut Ctx<'_>, dir: Handle, name: &Name) -> Result<Answer, Halt> {
    let dir = ctx.object(dir)?;
    ctx.directory(dir)?;
    let place = ctx.identity.place_of(name.as_bytes());
    let entry = ctx.entry(dir, name)?.map(|found| Entry {
        name: name.clone(),
        handle: found.handle,
        kind: found.kind,
        place,
        attr: None,
    });
    Ok(Answer::Fact { dir: ctx.attr(dir)?, entry })
}
