//! rmdirent: remove an entry from its directory, for a client that removes the object next.
//!
//! Until then the object's link count is too high by one. The row [`Unnamed`] records that, under a ticket of
//! its own, so that the count is reduced exactly once even if the client fails ([`crate::stepwise`]).

use crate::meta::keys;
use crate::meta::rows::Unnamed;
use crate::ops::facts::Cost;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Answer, Handle, Kind, Name, Status};

/// The facts of `rmdirent`: a step of `compound = off` that frees space. It draws one handle, for the ticket,
/// and removes one object, the entry.
pub const FACTS: OpFacts = OpFacts {
    is_step: true,
    draws: 1,
    frees: |_| true,
    cost: |_, _| Cost::removed(1),
    ..OpFacts::new(handler!(|ctx| Rmdirent { dir, name } => run(ctx, *dir, name)))
};

/// Take it away.
///
/// # Errors
/// `NotFound`; `IsDirectory`.
pub fn run(ctx: &mut Ctx<'_>, dir: Handle, name: &Name) -> Result<Answer, Stopped> {
    ctx.directory(dir)?;
    let found = ctx.entry(dir, name)?.ok_or(Stopped::Status(Status::NotFound))?;
    if found.kind == Kind::Directory {
        return Err(Stopped::Status(Status::IsDirectory));
    }
    let (ticket, now) = (ctx.draw(ctx.identity.id)?, ctx.now);
    ctx.remove(ctx.entry_key(dir, name))?;
    actions::directory_changed(ctx, dir, -1, 0, now)?;
    ctx.put(keys::unnamed(found.handle, ticket), &Unnamed { client: ctx.client })?;
    Ok(Answer::Unnamed { handle: found.handle, kind: found.kind, ticket })
}
