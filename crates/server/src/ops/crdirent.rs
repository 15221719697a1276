//! crdirent: enter an object, which mostly lives on another server, into a directory.

use super::make;
use crate::actions;
use crate::ctx::{Ctx, Halt};
use crate::keys;
use crate::rows::{Dirent, Void};
use shoal_proto::{Answer, Handle, Kind, Name, Status};

/// Enter it.
///
/// # Errors
/// `Exists`; `Stale` for what its server took back; `Invalid` for a directory, which is made in one.
pub fn run(ctx: &mut Ctx<'_>, dir: Handle, name: &Name, object: Handle, kind: Kind) -> Result<Answer, Halt> {
    if matches!(kind, Kind::Directory | Kind::Datafile) {
        return Err(Halt::Status(Status::Invalid));
    }
    make::free_in(ctx, dir, name)?;
    if ctx.row::<Void>(&keys::void(object))?.is_some() {
        return Err(Halt::Status(Status::Stale));
    }
    let now = ctx.now;
    ctx.put(ctx.entry_key(dir, name), &Dirent { handle: object, kind })?;
    actions::directory_changed(ctx, dir, 1, 0, now)?;
    Ok(Answer::Done {})
}
