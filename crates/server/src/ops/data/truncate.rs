//! truncate: set a file's size.
//!
//! The truncation of a stuffed file is one change on one server, and keeps the generation. The truncation of
//! a laid-out file is a transaction over the datafiles' servers, which advances the generation of each
//! datafile. The reply waits until all servers have applied it, but not longer than the request's deadline;
//! after that, the transaction's locks delay requests to a datafile until its server has applied it. So a
//! write that is acknowledged after the truncation is not truncated. A write with an older generation is
//! refused, so it cannot restore truncated bytes. Truncations and appends of a laid-out file exclude each
//! other.

use crate::meta::keys;
use crate::meta::rows::Inode;
use crate::ops::facts::Cost;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_env::WallTime;
use shoal_env::mutant::{self, Mutant};
use shoal_pattern::Distribution;
use shoal_proto::{Action, Answer, Generation, Handle, Kind, Layout, Status, limits};
use shoal_store::StreamChange;

/// The facts of `truncate`: a full disk does not refuse it, because a smaller size frees space. It makes and
/// removes no object, so its cost is 0.
pub const FACTS: OpFacts = OpFacts {
    frees: |_| true,
    cost: |_, _| Cost::of(0),
    ..OpFacts::new(handler!(|ctx| Truncate { object, size, kill_privileges } => {
        run(ctx, *object, *size, *kill_privileges)
    }))
};

/// Set the size.
///
/// # Errors
/// `IsDirectory`, `Invalid` for an object that is no file, `FileTooBig`; `StaleLayout` for a stuffed file
/// that would outgrow its first strip: the client must unstuff it first.
pub fn run(ctx: &mut Ctx<'_>, object: Handle, size: u64, kill_privileges: bool) -> Result<Answer, Stopped> {
    let file = ctx.object(object)?;
    let mut inode = ctx.inode(file)?;
    match inode.kind {
        Kind::File => {}
        Kind::Directory => return Err(Stopped::Status(Status::IsDirectory)),
        _ => return Err(Stopped::Status(Status::Invalid)),
    }
    if size > limits::FILE_BYTES_MAX {
        return Err(Stopped::Status(Status::FileTooBig));
    }
    if kill_privileges {
        inode.mode = crate::meta::inode::without_privileges(inode.mode);
    }
    match inode.layout.clone() {
        Some(layout) => laid_out(ctx, file, &layout, size, &inode)?,
        None => stuffed(ctx, file, size, &inode, kill_privileges)?,
    }
    Ok(Answer::Done {})
}

fn stuffed(
    ctx: &mut Ctx<'_>,
    file: Handle,
    size: u64,
    inode: &Inode,
    store_inode: bool,
) -> Result<(), Stopped> {
    if size > inode.template.stuffed_max() {
        return Err(Stopped::Status(Status::StaleLayout));
    }
    let info = ctx.stream(file)?.ok_or(Stopped::Status(Status::Stale))?;
    // The file has one stream, and its server orders writes and truncations: the generation need not advance.
    let written_at = Some(WallTime(ctx.now.0));
    ctx.change_stream(file, StreamChange::Resize { generation: info.generation, size, written_at })?;
    if store_inode {
        ctx.put(keys::inode(file), inode)?;
    }
    Ok(())
}

fn laid_out(
    ctx: &mut Ctx<'_>,
    file: Handle,
    layout: &Layout,
    size: u64,
    inode: &Inode,
) -> Result<(), Stopped> {
    if !mutant::is(Mutant::TruncateWithoutTurn) {
        ctx.must_have_turn(file)?;
    }
    // All streams of a file have the same generation, also the metafile's own stream: no other server need be
    // asked. `AttrSet` comes first in the plan: it expects the generation that `StreamAdvance` replaces.
    let info = ctx.stream(file)?.ok_or(Stopped::Status(Status::Stale))?;
    let (expect, generation) = (Generation(info.generation), Generation(info.generation + 1));
    let mut attr = crate::meta::inode::attr_of(file, inode, None);
    attr.ctime = ctx.now;
    attr.mtime = ctx.now;
    ctx.act(ctx.identity.id, Action::AttrSet { attr, expect });
    let striping = layout.striping();
    for (index, &stream) in layout.datafiles.iter().enumerate() {
        let action = Action::StreamAdvance {
            stream,
            owner: file,
            expect,
            generation,
            size: Some(striping.physical_size(index as u32, size)),
            written_at: Some(ctx.now),
        };
        ctx.act(stream.server(), action);
    }
    Ok(())
}
