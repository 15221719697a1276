//! release: a client holds an orphan no longer.

use super::open::is_own_orphan;
use crate::actions;
use crate::ctx::{Ctx, Halt};
use crate::keys;
use crate::rows::Inode;
use shoal_proto::{Answer, Handle, Status};

/// Remove the object, if it is an orphan kept for this client. Anything else is done already.
pub fn run(ctx: &mut Ctx<'_>, object: Handle) -> Result<Answer, Halt> {
    let object = ctx.object(object)?;
    if object.server() != ctx.identity.id {
        return Err(Halt::Status(Status::WrongServer));
    }
    let inode = ctx.row::<Inode>(&keys::inode(object))?;
    if let Some(inode) = inode.filter(|inode| inode.nlink == 0)
        && is_own_orphan(ctx, object)?
    {
        actions::remove_object(ctx, object, &inode)?;
    }
    Ok(Answer::Done {})
}
