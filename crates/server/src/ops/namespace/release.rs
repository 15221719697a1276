//! release: end a client's hold on an orphan (a removed file that the client had open). The server itself
//! releases an orphan of [`ClientId::ANYONE`] when its time has passed.

use crate::meta::keys;
use crate::meta::rows::Inode;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Answer, Handle, Status};

/// The facts of `release`: a handler. A full disk does not refuse it, because it removes the file that was
/// held.
pub const FACTS: OpFacts =
    OpFacts { frees: |_| true, ..OpFacts::new(handler!(|ctx| Release { object } => run(ctx, *object))) };

/// Remove the object, if it is an orphan kept for this client and for no other. Anything else is done
/// already.
pub fn run(ctx: &mut Ctx<'_>, object: Handle) -> Result<Answer, Stopped> {
    let object = ctx.object(object)?;
    if object.server() != ctx.identity.id {
        return Err(Stopped::Status(Status::WrongServer));
    }
    let inode = ctx.row::<Inode>(&keys::inode(object))?;
    if let Some(inode) = inode.filter(|inode| inode.nlink == 0)
        && super::open::is_own_orphan(ctx, object)?
    {
        actions::forget_orphan_for(ctx, object, ctx.client)?;
        if !actions::is_orphan(ctx, object)? || mutant::is(Mutant::LingeringFreedEarly) {
            actions::remove_object(ctx, object, &inode)?;
        }
    }
    Ok(Answer::Done {})
}
