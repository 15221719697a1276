//! rmdir: remove an empty directory. It vanishes: who still holds it finds it gone.

use crate::actions;
use crate::ctx::{Ctx, Halt};
use shoal_proto::{Action, Answer, Handle, Kind, Name, Status};

/// Remove it.
///
/// # Errors
/// `NotFound`; `NotDirectory`; `NotEmpty`.
pub fn run(ctx: &mut Ctx<'_>, dir: Handle, name: &Name) -> Result<Answer, Halt> {
    let dir = ctx.object(dir)?;
    let (parent, found) = (ctx.directory(dir), ctx.entry(dir, name));
    parent?;
    let found = found?.ok_or(Halt::Status(Status::NotFound))?;
    if found.kind != Kind::Directory {
        return Err(Halt::Status(Status::NotDirectory));
    }
    let (name, handle, time) = (name.clone(), found.handle, ctx.now);
    let plan = vec![
        Action::EntryRemove { dir, name, expect: handle, subdirs: -1, time },
        Action::DirectoryRemove { dir: handle },
    ];
    actions::carry_out(ctx, plan)?;
    Ok(Answer::Removed { handle, kind: Kind::Directory, orphaned: false })
}
