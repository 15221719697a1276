//! create: make and open a regular file in one operation.
//!
//! As `open(O_CREAT)`: without `exclusive` an existing name is opened. For a symbolic link the reply has the
//! link itself, and the client follows it. If the object is on another server, the reply names it and the
//! client opens it there: only its own server can know that it is open. With the switch `stuffing` the
//! operation makes the metafile, its first strip and the entry at once. This is the augmented create of PVFS
//! small files, together with the entry.

use super::open;
use crate::meta::inode::made_in;
use crate::meta::rows::Dirent;
use crate::ops::facts::Cost;
use crate::ops::{OpFacts, forks, handler, make};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Dist, Handle, Kind, Name, Owner, Rights, Status, Template, limits};

/// The facts of `create`: it draws one handle, for the metafile, and may take a datafile of each pool. Its
/// cost is the entry, the metafile and, with stuffing, the first strip.
pub const FACTS: OpFacts = OpFacts {
    draws: 1,
    journal_bytes: |_| make::POOL_ROWS_BYTES,
    cost: |_, map| Cost::of(2 + u64::from(map.switches.stuffing)),
    ..OpFacts::new(handler!(|ctx| Create { dir, name, owner, exclusive, open, template } => {
        run(ctx, *dir, name, owner, *exclusive, *open, *template)
    }))
};

/// Make, or find, and open. The file becomes current.
///
/// # Errors
/// `Exists` if `exclusive`; `IsDirectory`; `Invalid` for a template wider than any file.
pub fn run(
    ctx: &mut Ctx<'_>,
    dir: Handle,
    name: &Name,
    owner: &Owner,
    exclusive: bool,
    rights: Rights,
    template: Option<Template>,
) -> Result<Answer, Stopped> {
    let dir = ctx.object(dir)?;
    let (parent, found) = make::looked_up(ctx, dir, name)?;
    if let Some(found) = found {
        return if exclusive { Err(Stopped::Status(Status::Exists)) } else { opened(ctx, &found, rights) };
    }
    forks::may_make(&parent, Kind::File)?;
    let is_impossible = |wish: Template| {
        usize::from(wish.width) > limits::WIDTH_MAX || wish.dist.is_of_forks() || wish.dist.is_followed()
    };
    if template.is_some_and(is_impossible) {
        return Err(Stopped::Status(Status::Invalid));
    }
    let mut inode = made_in(ctx, dir, &parent, Kind::File, owner)?;
    // A fork's layout is its subfile's.
    if parent.template.dist != Dist::Fork {
        inode.template = template.unwrap_or(inode.template);
    }
    let attr = make::colocated(ctx, dir, name, inode, rights)?;
    ctx.opened(attr.handle);
    let capability = open::capability(ctx, attr.handle, rights);
    let count = ctx.count_in(&attr);
    Ok(Answer::Made { attr, capability, created: true, count })
}

fn opened(ctx: &mut Ctx<'_>, found: &Dirent, rights: Rights) -> Result<Answer, Stopped> {
    if found.kind == Kind::Directory {
        return Err(Stopped::Status(Status::IsDirectory));
    }
    if found.handle.server() != ctx.identity.id {
        ctx.current = Some((found.handle, Rights::empty()));
        return Ok(Answer::Looked { resolved: 1, handle: found.handle, kind: found.kind, attr: None });
    }
    let attr = ctx.attr(found.handle)?;
    open::opened(ctx, attr, rights)
}
