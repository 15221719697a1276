//! symlink: make a symbolic link. Its target is kept unchanged in its inode.

use crate::meta::inode::made_in;
use crate::ops::make;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::op::PathBytes;
use shoal_proto::{Answer, ChangeCount, Handle, Kind, Name, Owner, Rights, Status};

/// The facts of `symlink`: it draws one handle, for the link. Its cost is the default of 1.
pub const FACTS: OpFacts = OpFacts {
    draws: 1,
    ..OpFacts::new(handler!(|ctx| Symlink { dir, name, owner, target } => {
        run(ctx, *dir, name, owner, target)
    }))
};

/// Mode of every symbolic link: it is never looked at.
const SYMLINK_MODE: u32 = 0o777;

/// Make it.
///
/// # Errors
/// `Exists`; `NotFound` for an empty target; `Invalid` for one with a NUL.
pub fn run(
    ctx: &mut Ctx<'_>,
    dir: Handle,
    name: &Name,
    owner: &Owner,
    target: &PathBytes,
) -> Result<Answer, Stopped> {
    let dir = ctx.object(dir)?;
    if target.is_empty() {
        return Err(Stopped::Status(Status::NotFound));
    }
    if target.contains(&0) {
        return Err(Stopped::Status(Status::Invalid));
    }
    let parent = make::free_in(ctx, dir, name, Kind::Symlink)?;
    let mut inode = made_in(ctx, dir, &parent, Kind::Symlink, owner)?;
    inode.mode = SYMLINK_MODE;
    inode.target = Some(target.clone());
    let attr = make::colocated(ctx, dir, name, inode, Rights::empty())?;
    Ok(Answer::Made { attr, capability: None, created: true, count: ChangeCount::NONE })
}
