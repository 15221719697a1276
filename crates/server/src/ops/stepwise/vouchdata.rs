//! vouchdata: report whether a metafile lists a datafile that another server made for it. That server
//! repeats the request until it has an answer.

use crate::meta::keys;
use crate::meta::rows::{Inode, New};
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Answer, Handle, Status, Vouched};

/// The facts of `vouchdata`: a handler that another server may send in every mode, so it is no step.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Vouchdata { owner, datafile, refuse } => {
    run(ctx, *owner, *datafile, *refuse)
}));

/// Say so; with `refuse` the metafile is taken back, if its client has not laid it out, so that it never
/// will.
pub fn run(ctx: &mut Ctx<'_>, owner: Handle, datafile: Handle, refuse: bool) -> Result<Answer, Stopped> {
    if owner.server() != ctx.identity.id {
        return Err(Stopped::Status(Status::WrongServer));
    }
    let vouched = match ctx.row::<Inode>(&keys::inode(owner))? {
        None => Vouched::Never,
        Some(inode) => match &inode.layout {
            Some(layout) if layout.datafiles.contains(&datafile) => Vouched::Stands,
            Some(_) => Vouched::Never,
            None if ctx.row::<New>(&keys::new(owner))?.is_none() => Vouched::Never,
            None if refuse => {
                actions::remove_object(ctx, owner, &inode)?;
                Vouched::Never
            }
            None => Vouched::NotYet,
        },
    };
    Ok(Answer::Vouched { vouched })
}
