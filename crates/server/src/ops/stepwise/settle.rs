//! settle: reduce an object's link count for an entry that was removed, and remove the entry's ticket, in one
//! transaction. So the count is reduced exactly once.

use crate::meta::keys;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Action, Answer, Blob, Handle, Status};

/// The facts of `settle`: a step of `compound = off`. A full disk does not refuse it, because it may remove
/// the object.
pub const FACTS: OpFacts = OpFacts {
    is_step: true,
    frees: |_| true,
    ..OpFacts::new(handler!(|ctx| Settle { object, ticket, held } => run(ctx, *object, *ticket, *held)))
};

/// Settle it; a ticket that is not there was settled before.
pub fn run(ctx: &mut Ctx<'_>, object: Handle, ticket: Handle, held: bool) -> Result<Answer, Stopped> {
    let key = keys::unnamed(object, ticket);
    let Some(row) = ctx.get(&key)? else { return Ok(Answer::Done {}) };
    let mut plan = vec![Action::RowRemove { server: ctx.identity.id, key: Blob(key), expect: Blob(row) }];
    let mut answer = Answer::Done {};
    match ctx.fact_attr(object) {
        // Without a link, or gone: this one is counted.
        Ok(attr) if attr.nlink == 0 => {}
        Err(Stopped::Status(Status::Stale)) => {}
        Ok(attr) => {
            let (time, client) = (ctx.now, ctx.client);
            plan.push(Action::Links { object, delta: -1, time, client, held });
            // As with an unlink: if it gets a name until then, the client receives an orphan that is none.
            answer = Answer::Removed { handle: object, kind: attr.kind, orphaned: held && attr.nlink == 1 };
        }
        Err(halt) => return Err(halt),
    }
    actions::carry_out(ctx, plan)?;
    Ok(answer)
}
