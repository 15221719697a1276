//! vouchentry: report whether a name leads to the object that another server made for it. That server
//! repeats the request until it has an answer.

use crate::meta::keys;
use crate::meta::rows::Void;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, ClientId, Handle, Kind, Name, Status, Vouched};

/// The facts of `vouchentry`: a handler that another server may send in every mode, so it is no step.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Vouchentry { dir, name, object, client, refuse } => {
    run(ctx, *dir, name, *object, *client, *refuse)
}));

/// Answer so; with `refuse` promise, durably, that an object that was not entered never will be.
pub fn run(
    ctx: &mut Ctx<'_>,
    dir: Handle,
    name: &Name,
    object: Handle,
    client: ClientId,
    refuse: bool,
) -> Result<Answer, Stopped> {
    if dir.server() != ctx.identity.id {
        return Err(Stopped::Status(Status::WrongServer));
    }
    let vouched = match ctx.inode(dir) {
        Ok(inode) if inode.kind == Kind::Directory => {
            let leads_there = ctx.entry(dir, name)?.is_some_and(|entry| entry.handle == object);
            // Its name was taken away again: the link is settled by that.
            let taken = !ctx.scan(&keys::unnamed_of(object), None, 1)?.rows.is_empty();
            match (leads_there, taken) {
                (true, _) => Vouched::Stands,
                (false, true) => Vouched::NotYet,
                (false, false) if refuse => {
                    ctx.put(keys::void(object), &Void { client })?;
                    Vouched::Never
                }
                (false, false) => Vouched::NotYet,
            }
        }
        // A directory's handle is never used again.
        Ok(_) | Err(Stopped::Status(Status::Stale)) => {
            match ctx.scan(&keys::unnamed_of(object), None, 1)?.rows.is_empty() {
                true => Vouched::Never,
                false => Vouched::NotYet,
            }
        }
        Err(halt) => return Err(halt),
    };
    Ok(Answer::Vouched { vouched })
}
