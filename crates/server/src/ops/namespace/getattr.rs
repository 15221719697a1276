//! getattr: return an object's attributes.

use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Handle};

/// The facts of `getattr`: a handler that reads the attributes of one object.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Getattr { object } => run(ctx, *object)));

/// Attributes.
pub fn run(ctx: &mut Ctx<'_>, object: Handle) -> Result<Answer, Stopped> {
    let object = ctx.object(object)?;
    let attr = ctx.attr_here(object)?;
    let count = ctx.count_in(&attr);
    Ok(Answer::Attr { attr, count })
}
