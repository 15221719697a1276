//! The rows for unfinished operations of clients that create and remove step by step (`compound = off`). With
//! them this server finishes or undoes an operation that its client does not complete ([`crate::stepwise`]).
//! With compounds on there are no such rows, and nothing is looked up.

use super::object::{remove_stream, remove_xattrs};
use crate::meta::keys;
use crate::meta::rows::{Datafile, Inode, Linked, New, Reap};
use crate::ops::FIRST_GENERATION;
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Dead, Generation, Handle, Kind, Time};

fn is_stepwise(ctx: &Ctx<'_>) -> bool {
    !ctx.identity.map.switches.compound
}

/// The object was found by a name: it was entered.
pub fn is_named(ctx: &mut Ctx<'_>, object: Handle) -> Result<(), Stopped> {
    if is_stepwise(ctx) && ctx.get(&keys::new(object))?.is_some() {
        ctx.remove(keys::new(object))?;
    }
    Ok(())
}

/// The object gets a second name: from now on no link of it is known to be its only one.
pub fn is_linked(ctx: &mut Ctx<'_>, object: Handle, time: Time) -> Result<(), Stopped> {
    if is_stepwise(ctx) {
        ctx.put(keys::linked(object), &Linked { time })?;
    }
    Ok(())
}

/// The object is removed, with the rows about its names.
pub fn forget(ctx: &mut Ctx<'_>, object: Handle) -> Result<(), Stopped> {
    is_named(ctx, object)?;
    if is_stepwise(ctx) && ctx.get(&keys::linked(object))?.is_some() {
        ctx.remove(keys::linked(object))?;
    }
    Ok(())
}

/// A datafile of this server.
pub fn create_datafile(ctx: &mut Ctx<'_>, datafile: Handle, owner: Handle) -> Result<(), Stopped> {
    super::stream::create_datafile(ctx, datafile, owner, Generation(FIRST_GENERATION))
}

/// Remove a datafile of this server, if it is there and belongs to `owner`.
pub fn reap_datafile(ctx: &mut Ctx<'_>, owner: Handle, datafile: Handle) -> Result<(), Stopped> {
    crate::ops::reap(ctx, &[Dead { datafile, owner }])?;
    is_named(ctx, datafile)
}

/// Remove a metafile alone. Its datafiles (of a stuffed file: its own stream) are left to the client that
/// removes it, each with a row by which it is removed in any case: its own server's are removed as objects
/// without a name, others are reaped.
pub fn part_object(ctx: &mut Ctx<'_>, object: Handle, inode: &Inode) -> Result<Vec<Handle>, Stopped> {
    remove_xattrs(ctx, object, inode)?;
    forget(ctx, object)?;
    ctx.remove(keys::inode(object))?;
    if inode.kind != Kind::File {
        return Ok(Vec::new());
    }
    let datafiles = match &inode.layout {
        Some(layout) => layout.datafiles.to_vec(),
        None => vec![object],
    };
    if !datafiles.contains(&object) {
        // It only kept the generation.
        remove_stream(ctx, object)?;
    }
    for &datafile in &datafiles {
        if datafile.server() != ctx.identity.id {
            ctx.put(keys::reap(datafile.server(), datafile), &Reap { owner: object })?;
            continue;
        }
        ctx.put(keys::datafile(datafile), &Datafile { owner: object })?;
        ctx.put(keys::new(datafile), &New { client: ctx.client, place: object, name: None })?;
    }
    Ok(datafiles)
}
