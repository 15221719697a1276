//! entry: return one entry of a directory, as a fact for the plan of a transaction on another server. A
//! split directory's entry is requested from the server of the shard that has the name's place; any other
//! shard's server replies with the list of the shards.

use crate::ops::{OpFacts, forks, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Entry, Handle, Name};

/// The facts of `entry`: a handler that reads one entry. Clients may send it too.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Entry { dir, name } => run(ctx, *dir, name)));

/// The entry, if there is one. It is for a move to this server's peer, which no entry of a forked file makes.
///
/// # Errors
/// As [`forks::may_leave`].
pub fn run(ctx: &mut Ctx<'_>, dir: Handle, name: &Name) -> Result<Answer, Stopped> {
    let dir = ctx.object(dir)?;
    let inode = ctx.directory(dir)?;
    if !ctx.holds(&inode, name) {
        return Ok(Answer::Split { dir, shards: inode.shards, key: ctx.identity.place_key });
    }
    forks::may_leave(&inode)?;
    let place = ctx.identity.place_of(name.as_bytes());
    let entry = ctx.entry(dir, name)?.map(|found| Entry {
        name: name.clone(),
        handle: found.handle,
        kind: found.kind,
        place,
        attr: None,
    });
    Ok(Answer::Fact { entry })
}
