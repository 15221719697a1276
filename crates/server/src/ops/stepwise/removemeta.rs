//! removemeta: remove an object whose only name the client has removed.
//!
//! If the object never had a second name, the removed name was its last name. Otherwise this is not
//! certain, and the entry's server settles the link in a transaction. The client removes the datafiles
//! next; a row for each makes this server remove it if the client does not.

use crate::meta::keys;
use crate::meta::rows::Linked;
use crate::ops::facts::Cost;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Action, Answer, Handle, Kind, Status};

/// The facts of `removemeta`: a step of `compound = off` that frees space. It removes one object, the
/// metafile.
pub const FACTS: OpFacts = OpFacts {
    is_step: true,
    frees: |_| true,
    cost: |_, _| Cost::removed(1),
    ..OpFacts::new(handler!(|ctx| Removemeta { object, held } => run(ctx, *object, *held)))
};

/// Remove it, or keep it as an orphan of the client.
///
/// # Errors
/// `Stale`: it is gone; `IsDirectory`.
pub fn run(ctx: &mut Ctx<'_>, object: Handle, held: bool) -> Result<Answer, Stopped> {
    let inode = ctx.inode(object)?;
    if inode.kind == Kind::Directory {
        return Err(Stopped::Status(Status::IsDirectory));
    }
    let parted = |datafiles: Vec<Handle>, orphaned, linked| Answer::Parted {
        datafiles: datafiles.into(),
        orphaned,
        linked,
    };
    if inode.nlink != 1 || ctx.row::<Linked>(&keys::linked(object))?.is_some() {
        return Ok(parted(Vec::new(), false, true));
    }
    if held || ctx.may_be_open_elsewhere(object, ctx.client) {
        let (time, client) = (ctx.now, ctx.client);
        actions::apply(ctx, &Action::Links { object, delta: -1, time, client, held })?;
        return Ok(parted(Vec::new(), held, false));
    }
    let datafiles = actions::part_object(ctx, object, &inode)?;
    Ok(parted(datafiles, false, false))
}
