//! crdirent: enter an object into a directory. The object usually lives on a different server.

use crate::meta::keys;
use crate::meta::rows::{Dirent, Void};
use crate::ops::make;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Answer, Handle, Kind, Name, Status};

/// The facts of `crdirent`: a step of `compound = off`. Its cost is the default of 1, for the entry.
pub const FACTS: OpFacts = OpFacts {
    is_step: true,
    ..OpFacts::new(handler!(|ctx| Crdirent { dir, name, object, kind } => {
        run(ctx, *dir, name, *object, *kind)
    }))
};

/// Enter it.
///
/// # Errors
/// `Exists`; `Stale` for an object that its server removed; `Invalid` for a directory, which is made in one.
pub fn run(
    ctx: &mut Ctx<'_>,
    dir: Handle,
    name: &Name,
    object: Handle,
    kind: Kind,
) -> Result<Answer, Stopped> {
    if matches!(kind, Kind::Directory | Kind::Datafile) {
        return Err(Stopped::Status(Status::Invalid));
    }
    make::free_in(ctx, dir, name, kind)?;
    if ctx.row::<Void>(&keys::void(object))?.is_some() {
        return Err(Stopped::Status(Status::Stale));
    }
    let now = ctx.now;
    ctx.put(ctx.entry_key(dir, name), &Dirent { handle: object, kind })?;
    actions::directory_changed(ctx, dir, 1, 0, now)?;
    Ok(Answer::Done {})
}
