//! The removal of a forked file with all its entries.
//!
//! It is one action on the file's own server, beside the removals of the subfiles on theirs. The action
//! removes a directory with entries, but no object loses its place in the tree: no directory can be moved
//! into a forked file or one of its subfiles ([`crate::ops::forks`]).

use super::object::remove_object;
use super::shard::{entries, expected_directory};
use crate::meta::keys;
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Dist, Handle, Status};
use std::collections::BTreeSet;

/// It has these subfiles and no other entry.
pub fn validate_remove(ctx: &Ctx<'_>, file: Handle, subfiles: &[Handle]) -> Result<(), Stopped> {
    let inode = expected_directory(ctx, file)?;
    ctx.must_be_unlocked(&keys::inode(file))?;
    let there: BTreeSet<Handle> = entries(ctx, file)?.into_iter().map(|(_, _, entry)| entry.handle).collect();
    let is_forked = matches!(inode.template.dist, Dist::Forked { .. });
    if !is_forked || there != subfiles.iter().copied().collect() {
        return Err(Stopped::Status(Status::Changed));
    }
    Ok(())
}

pub fn remove(ctx: &mut Ctx<'_>, file: Handle) -> Result<(), Stopped> {
    for (place, name, _) in entries(ctx, file)? {
        ctx.remove(keys::entry(file, place, name.as_bytes()))?;
    }
    let inode = ctx.directory(file)?;
    remove_object(ctx, file, &inode)
}
