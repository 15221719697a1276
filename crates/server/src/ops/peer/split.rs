//! split: move a directory's entries to its shards, one on each metadata server. See
//! [`crate::meta::dir_split`].
//!
//! The directory's own server coordinates. From the plan to the decision its inode is locked exclusively, so
//! nothing in the directory changes and no request reads it. The new shards are locked in the same way from
//! their prepare until they are made.

use crate::meta::keys;
use crate::ops::{OpFacts, handler, when};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Action, Answer, Attr, Handle, Roles, ServerId, ShardEntry, Shards, Status, limits};
use std::collections::BTreeMap;

/// The facts of `split`: a handler. It asks for journal space for the longest rows of all entries that move.
pub const FACTS: OpFacts = OpFacts {
    // The rows that go, at their longest.
    journal_bytes: when!(Split { entries, .. } => 320 * u64::from(*entries)),
    ..OpFacts::new(handler!(|ctx| Split { dir, entries } => run(ctx, *dir, *entries)))
};

/// Split it, if it is (still) large and whole. The answer names its shards, if it has any then.
///
/// # Errors
/// `NotSupported` where there is nothing to split over; `OverLimit` for one that is too large for one
/// transaction; `Busy` if it has grown much since `entries` were counted.
pub fn run(ctx: &mut Ctx<'_>, dir: Handle, entries: u32) -> Result<Answer, Stopped> {
    let at = ctx.identity.splits_at().ok_or(Stopped::Status(Status::NotSupported))?;
    let inode = ctx.directory(dir)?;
    let (me, key) = (ctx.identity.id, ctx.identity.place_key);
    if inode.shards.is_split()
        || inode.template.dist.is_of_forks()
        || inode.entries < at
        || dir.server() != me
    {
        return Ok(Answer::Split { dir, shards: inode.shards, key });
    }
    if inode.entries as usize > limits::SPLIT_ENTRIES_MAX {
        return Err(Stopped::Status(Status::OverLimit));
    }
    if inode.entries > entries.saturating_add(entries / 4 + 16) {
        return Err(Stopped::Status(Status::Busy));
    }
    // A transaction has something to do here: when that is over.
    ctx.must_be_unlocked(&keys::inode(dir))?;
    let shards = Shards::over(ctx.identity.map.with_roles(Roles::METADATA));
    let mut moving: BTreeMap<ServerId, Vec<ShardEntry>> = BTreeMap::new();
    for &server in shards.servers().iter().filter(|&&server| server != me) {
        moving.insert(server, Vec::new());
    }
    for (place, name, entry) in actions::entries(ctx, dir)? {
        let server = shards.server_of(place).filter(|_| !actions::stays(&shards, place));
        if let Some(entries) = server.and_then(|server| moving.get_mut(&server)) {
            entries.push(ShardEntry { name, handle: entry.handle, kind: entry.kind });
        }
    }
    let bytes = |entries: &Vec<ShardEntry>| entries.iter().map(ShardEntry::bytes).sum::<usize>();
    if moving
        .values()
        .any(|entries| bytes(entries) > limits::SHARD_BYTES_MAX || entries.len() > limits::SPLIT_ENTRIES_MAX)
    {
        return Err(Stopped::Status(Status::OverLimit));
    }
    // Only its own server keeps its parent.
    let attr = Attr { parent: Handle::default(), shards: shards.clone(), ..ctx.attr(dir)? };
    let mut plan = vec![Action::ShardKeep { shard: me, dir, shards: shards.clone() }];
    plan.extend(moving.into_iter().map(|(shard, entries)| Action::ShardCreate {
        shard,
        attr: attr.clone(),
        entries: entries.into(),
    }));
    actions::carry_out(ctx, plan)?;
    Ok(Answer::Split { dir, shards, key })
}
