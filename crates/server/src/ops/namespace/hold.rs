//! hold: a client reports files that it still has open.
//!
//! Clients report every file that is open for more than a moment, several times a lease. So a file that
//! another client removes meanwhile is kept for the clients that have it open ([`crate::meta::lingering`]).
//! The reply names the reported files whose last name is gone. From then on each of them is kept until the
//! client releases it or the client's lease ends, as if the client had removed the file itself.

use crate::meta::keys;
use crate::meta::rows::Orphan;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, ClientId, Handle, Status};

/// The facts of `hold`: a handler. A full disk does not refuse it, because a client must be able to keep its
/// open files.
pub const FACTS: OpFacts =
    OpFacts { frees: |_| true, ..OpFacts::new(handler!(|ctx| Hold { objects } => run(ctx, objects))) };

/// Note it; which of them have no name any more.
///
/// # Errors
/// `WrongServer`: an object is another server's.
pub fn run(ctx: &mut Ctx<'_>, objects: &[Handle]) -> Result<Answer, Stopped> {
    let mut removed = Vec::new();
    for &object in objects {
        if object.server() != ctx.identity.id {
            return Err(Stopped::Status(Status::WrongServer));
        }
        ctx.held_open(object);
        let own = keys::orphan(object, ctx.client);
        if ctx.get(&own)?.is_some() {
            removed.push(object);
        } else if ctx.get(&keys::orphan(object, ClientId::ANYONE))?.is_some() {
            ctx.put(own, &Orphan { since: ctx.now })?;
            removed.push(object);
        }
    }
    Ok(Answer::Holding { removed: removed.into() })
}
