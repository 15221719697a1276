//! mknod: make a FIFO, a socket, a device, or a regular file that is not opened.

use crate::meta::inode::made_in;
use crate::ops::make;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, ChangeCount, Handle, Kind, Name, Owner, Rights, Status};

/// The facts of `mknod`: it draws one handle, and asks for the same journal space as `create`, because a
/// regular file may take datafiles of the pools.
pub const FACTS: OpFacts = OpFacts {
    draws: 1,
    journal_bytes: |_| make::POOL_ROWS_BYTES,
    ..OpFacts::new(handler!(|ctx| Mknod { dir, name, owner, kind, rdev } => {
        run(ctx, *dir, name, owner, *kind, *rdev)
    }))
};

/// Make it.
///
/// # Errors
/// `Exists`; `Invalid` for kinds that have operations of their own.
pub fn run(
    ctx: &mut Ctx<'_>,
    dir: Handle,
    name: &Name,
    owner: &Owner,
    kind: Kind,
    rdev: u64,
) -> Result<Answer, Stopped> {
    let dir = ctx.object(dir)?;
    let rdev = match kind {
        Kind::CharDevice | Kind::BlockDevice => rdev,
        Kind::File | Kind::Fifo | Kind::Socket => 0,
        Kind::Directory | Kind::Symlink | Kind::Datafile => return Err(Stopped::Status(Status::Invalid)),
    };
    let parent = make::free_in(ctx, dir, name, kind)?;
    let mut inode = made_in(ctx, dir, &parent, kind, owner)?;
    inode.rdev = rdev;
    let attr = make::colocated(ctx, dir, name, inode, Rights::empty())?;
    Ok(Answer::Made { attr, capability: None, created: true, count: ChangeCount::NONE })
}
