//! createmeta: a metafile that has no name yet, for a client that creates files step by step as PVFS does.
//!
//! With `stuffing` it has its first strip at once, with `precreate` datafiles from the pools (the paper's
//! augmented create); else the client makes its datafiles. Its one link counts from the start; the row
//! [`New`] says where it is to be entered ([`crate::stepwise`]).

use crate::meta::inode::{made_in, root};
use crate::meta::rows::New;
use crate::meta::{keys, placement};
use crate::ops::namespace::{make, open};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Handle, Kind, Name, Owner, Rights, Status, Template, limits};

/// Make it, and open it. The directory's part in it (its group, its template) is in `owner` and `template`
/// already.
///
/// # Errors
/// `Invalid` for a template wider than any file.
pub fn run(
    ctx: &mut Ctx<'_>,
    dir: Handle,
    name: &Name,
    owner: &Owner,
    rights: Rights,
    template: Template,
) -> Result<Answer, Stopped> {
    if usize::from(template.width) > limits::WIDTH_MAX {
        return Err(Stopped::Status(Status::Invalid));
    }
    let handle = ctx.draw(ctx.identity.id)?;
    let parent = root(&Owner { mode: 0, ..*owner }, template, ctx.now);
    let mut inode = made_in(dir, &parent, Kind::File, owner, ctx.now);
    ctx.current = Some((handle, rights));
    if ctx.identity.precreates() && !placement::stuffs(ctx.identity, ctx.identity.id) {
        inode.layout = Some(make::ready_layout(ctx, handle, &inode)?);
    }
    make::object(ctx, handle, &inode)?;
    let new = New { client: ctx.client, place: dir, name: Some(name.clone()) };
    ctx.put(keys::new(handle), &new)?;
    let attr = ctx.attr(handle)?;
    ctx.opened(handle);
    let capability = open::capability(ctx, handle, rights);
    let count = ctx.count_in(&attr);
    Ok(Answer::Made { attr, capability, created: true, count })
}
