//! discard: remove an object that a client made here step by step and that never became part of a file: a
//! metafile that was not entered into its directory, or a datafile that no metafile lists.

use crate::meta::keys;
use crate::meta::rows::{Inode, New};
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Answer, Handle};

/// The facts of `discard`: a handler that removes an object, so a full disk does not refuse it. The server
/// sends it to itself, so it is no step of a client.
pub const FACTS: OpFacts =
    OpFacts { frees: |_| true, ..OpFacts::new(handler!(|ctx| Discard { object } => run(ctx, *object))) };

/// Remove it, if it is still without its place: a rename or link of it since then has shown otherwise.
pub fn run(ctx: &mut Ctx<'_>, object: Handle) -> Result<Answer, Stopped> {
    let Some(new) = ctx.row::<New>(&keys::new(object))? else { return Ok(Answer::Done {}) };
    if new.name.is_none() {
        actions::reap_datafile(ctx, new.place, object)?;
    } else if let Some(inode) = ctx.row::<Inode>(&keys::inode(object))? {
        actions::remove_object(ctx, object, &inode)?;
    }
    ctx.remove(keys::new(object))?;
    Ok(Answer::Done {})
}
