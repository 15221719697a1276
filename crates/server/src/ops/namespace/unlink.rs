//! unlink: remove an entry that is no directory, and the object if the entry was its last name.
//!
//! An object that the removing client holds open stays without a name, as an orphan of that client, until it
//! is released or the client's lease ends. An object that another client may hold open stays for a while
//! ([`crate::meta::lingering`]).

use crate::meta::rows::Dirent;
use crate::ops::facts::Cost;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Action, Answer, Handle, Held, Kind, Name, Status};

/// The facts of `unlink`: it frees space, so a full disk does not refuse it. It removes the entry, the
/// metafile and, with stuffing, the first strip.
pub const FACTS: OpFacts = OpFacts {
    frees: |_| true,
    cost: |_, map| Cost::removed(2 + u64::from(map.switches.stuffing)),
    ..OpFacts::new(handler!(|ctx| Unlink { dir, name, held } => run(ctx, *dir, name, held)))
};

/// Remove it.
///
/// # Errors
/// `NotFound`; `IsDirectory`.
pub fn run(ctx: &mut Ctx<'_>, dir: Handle, name: &Name, held: &Held) -> Result<Answer, Stopped> {
    let dir = ctx.object(dir)?;
    let (parent, found) = (ctx.directory_of(dir, name), ctx.entry(dir, name));
    parent?;
    let found = found?.ok_or(Stopped::Status(Status::NotFound))?;
    if found.kind == Kind::Directory {
        return Err(Stopped::Status(Status::IsDirectory));
    }
    let lost = lose_name(ctx, &found, held)?;
    let (name, expect, time) = (name.clone(), found.handle, ctx.now);
    let plan = vec![
        Action::EntryRemove { shard: ctx.identity.id, dir, name, expect, subdirs: 0, time },
        lost.action,
    ];
    actions::carry_out(ctx, plan)?;
    Ok(lost.answer)
}

/// An object loses one of its names.
pub struct Lost {
    /// The action.
    pub action: Action,
    /// The answer.
    pub answer: Answer,
}

/// The effect on a file, link or special file that loses one name. Whether it is the last name is only asked
/// for objects that may be held. If that changes before the transaction, the object is still kept or removed
/// correctly: the client receives an orphan that is none, or the orphan is reaped with its lease.
pub fn lose_name(ctx: &Ctx<'_>, found: &Dirent, held: &Held) -> Result<Lost, Stopped> {
    let Dirent { handle, kind } = *found;
    if handle.server() == ctx.identity.id {
        // Both are needed, and come with one load.
        let (inode, stream) = (ctx.inode(handle), ctx.stream(handle).map(drop));
        let has_missed = inode == Err(Stopped::Miss) || stream == Err(Stopped::Miss);
        if has_missed {
            return Err(Stopped::Miss);
        }
    }
    let is_held = held.holds(handle);
    let orphaned = is_held && ctx.fact_attr(handle)?.nlink <= 1;
    Ok(Lost {
        action: Action::Links { object: handle, delta: -1, time: ctx.now, client: ctx.client, held: is_held },
        answer: Answer::Removed { handle, kind, orphaned },
    })
}
