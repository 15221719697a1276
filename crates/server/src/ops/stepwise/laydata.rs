//! laydata: store the list of its datafiles in a metafile that has no name yet.

use crate::meta::keys;
use crate::meta::rows::New;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Dist, Generation, Handle, Kind, Layout, Status};

/// The facts of `laydata`: a step of `compound = off`. Its cost is the default of 1, for the metafile.
pub const FACTS: OpFacts = OpFacts {
    is_step: true,
    ..OpFacts::new(handler!(|ctx| Laydata { object, datafiles } => run(ctx, *object, datafiles)))
};

/// Set the layout.
///
/// # Errors
/// `Stale` if it was taken back, or was never this client's; `Invalid` for a layout that it cannot have.
pub fn run(ctx: &mut Ctx<'_>, object: Handle, datafiles: &[Handle]) -> Result<Answer, Stopped> {
    let mut inode = ctx.inode(object)?;
    let new = ctx.row::<New>(&keys::new(object))?;
    if new.is_none_or(|new| new.client != ctx.client) {
        return Err(Stopped::Status(Status::Stale));
    }
    let fits = match inode.template.dist {
        Dist::Basic | Dist::Fork | Dist::Forked { .. } => datafiles.len() == 1,
        Dist::SimpleStripe { .. } => !datafiles.is_empty(),
        Dist::Container { .. } | Dist::Composed { .. } => false,
    };
    if inode.kind != Kind::File || inode.layout.is_some() || !fits || datafiles.contains(&object) {
        return Err(Stopped::Status(Status::Invalid));
    }
    let info = ctx.stream(object)?.ok_or(Stopped::Status(Status::Stale))?;
    let (dist, generation) = (inode.template.dist, Generation(info.generation));
    inode.layout = Some(Layout { dist, datafiles: datafiles.to_vec().into(), generation });
    ctx.put(keys::inode(object), &inode)?;
    ctx.attr_answer(object)
}
