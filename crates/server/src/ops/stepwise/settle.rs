//! settle: count the link that an entry taken away was, and forget its ticket, in one transaction: exactly
//! once.

use crate::meta::keys;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Action, Answer, Blob, Handle, Status};

/// Its facts.
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
