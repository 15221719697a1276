//! rmdir: remove an empty directory. Unlike a file, it does not stay for clients that hold it open: their
//! next request fails with `Stale`.

use crate::ops::facts::Cost;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Action, Answer, Handle, Kind, Name, Status};

/// The facts of `rmdir`: it frees space, so a full disk does not refuse it. It removes two objects: the entry
/// and the directory.
pub const FACTS: OpFacts = OpFacts {
    frees: |_| true,
    cost: |_, _| Cost::removed(2),
    ..OpFacts::new(handler!(|ctx| Rmdir { dir, name } => run(ctx, *dir, name)))
};

/// Remove it.
///
/// # Errors
/// `NotFound`; `NotDirectory`; `NotEmpty`.
pub fn run(ctx: &mut Ctx<'_>, dir: Handle, name: &Name) -> Result<Answer, Stopped> {
    let dir = ctx.object(dir)?;
    let (parent, found) = (ctx.directory_of(dir, name), ctx.entry(dir, name));
    parent?;
    let found = found?.ok_or(Stopped::Status(Status::NotFound))?;
    if found.kind != Kind::Directory {
        return Err(Stopped::Status(Status::NotDirectory));
    }
    let (name, handle, time) = (name.clone(), found.handle, ctx.now);
    let shard = ctx.identity.id;
    let mut plan = vec![Action::EntryRemove { shard, dir, name, expect: handle, subdirs: -1, time }];
    plan.extend(removal(ctx, handle)?);
    actions::carry_out(ctx, plan)?;
    Ok(Answer::Removed { handle, kind: Kind::Directory, orphaned: false })
}

/// The removal of a directory: of each of its shards, all of which must be empty.
pub fn removal(ctx: &Ctx<'_>, dir: Handle) -> Result<Vec<Action>, Stopped> {
    let shards = ctx.fact_shards(dir)?;
    if !shards.is_split() {
        return Ok(vec![Action::DirectoryRemove { shard: dir.server(), dir, split: false }]);
    }
    let all = shards.servers().iter();
    Ok(all.map(|&shard| Action::DirectoryRemove { shard, dir, split: true }).collect())
}
