//! mkdir: make a directory, on the metadata server that the rotation selects (`crate::meta::placement`).

use crate::meta::inode::made_in;
use crate::ops::facts::Cost;
use crate::ops::make;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, ChangeCount, Handle, Kind, Name, Owner};

/// The facts of `mkdir`: it draws one handle, and the rotation selects the directory's server before the
/// handler runs. Its cost is the entry and the directory.
pub const FACTS: OpFacts = OpFacts {
    draws: 1,
    makes_directory: true,
    cost: |_, _| Cost::of(2),
    ..OpFacts::new(handler!(|ctx| Mkdir { dir, name, owner } => run(ctx, *dir, name, owner)))
};

/// Make it. It becomes current.
///
/// # Errors
/// `Exists`.
pub fn run(ctx: &mut Ctx<'_>, dir: Handle, name: &Name, owner: &Owner) -> Result<Answer, Stopped> {
    let dir = ctx.object(dir)?;
    let parent = make::free_in(ctx, dir, name, Kind::Directory)?;
    let inode = made_in(ctx, dir, &parent, Kind::Directory, owner)?;
    let attr = make::directory(ctx, dir, name, &inode)?;
    Ok(Answer::Made { attr, capability: None, created: true, count: ChangeCount::NONE })
}
