//! setattr: change mode, owner and times.
//!
//! An explicit mtime replaces the time of the newest write, and the next write replaces the explicit mtime.
//! So a change of the mtime begins a new generation of the file's streams, which clears their write times.
//! For a stuffed file the new generation is part of the batch that changes its row. For a laid-out file it
//! takes a transaction over the datafiles: metafile and datafiles always have the same generation. Any
//! change of a split directory is a transaction over its shards.
//!
//! A change of one row on this server is deferred: the reply to the client that made it waits until the
//! change is written, and not until it is synced ([`crate::request::reply_gate`]).

use crate::meta::inode::attr_of;
use crate::meta::keys;
use crate::meta::rows::Inode;
use crate::ops::{Alters, OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{
    Action, Answer, Attr, ChangeCount, Generation, Handle, Kind, Layout, SetAttr, Shards, Status, Template,
};
use shoal_store::{StreamChange, StreamInfo};

/// The facts of `setattr`: a change of attributes alone, so that its reply need not wait for a sync.
pub const FACTS: OpFacts = OpFacts {
    alters: Alters::Attributes,
    ..OpFacts::new(handler!(|ctx| Setattr { object, set } => run(ctx, *object, set)))
};

/// Change them. Any change, also one that sets nothing, sets the time of change.
pub fn run(ctx: &mut Ctx<'_>, object: Handle, set: &SetAttr) -> Result<Answer, Stopped> {
    let object = ctx.object(object)?;
    let mut inode = ctx.inode(object)?;
    ctx.limits.permits_set(inode.mode, set)?;
    crate::meta::inode::set(&mut inode, set, ctx.now);
    if inode.shards.is_split() {
        set_shards(ctx, object, &inode.shards, set, None)?;
        let attr = attr_of(object, &inode, None);
        return Ok(Answer::Attr { attr, count: ChangeCount::NONE });
    }
    let mut advance = None;
    if inode.kind == Kind::File && set.mtime.is_some() {
        let info = ctx.stream(object)?.ok_or(Stopped::Status(Status::Stale))?;
        if let Some(layout) = inode.layout.clone() {
            let attr = advance_all(ctx, object, &inode, &layout, info)?;
            let count = ctx.count_in(&attr);
            return Ok(Answer::Attr { attr, count });
        }
        advance = Some(StreamChange::Advance { generation: info.generation + 1 });
    }
    let change = |ctx: &mut Ctx<'_>| {
        advance.map_or(Ok(()), |advance| ctx.change_stream(object, advance))?;
        ctx.put(keys::inode(object), &inode)
    };
    match mutant::is(Mutant::SetattrEarly) {
        true => ctx.weakly(change)?,
        false => ctx.deferring(change)?,
    }
    ctx.attr_answer(object)
}

/// Set attributes of a split directory alike on all its shards: one transaction.
pub fn set_shards(
    ctx: &mut Ctx<'_>,
    dir: Handle,
    shards: &Shards,
    set: &SetAttr,
    template: Option<Template>,
) -> Result<(), Stopped> {
    let time = ctx.now;
    let set = |&shard| Action::ShardSet { shard, dir, set: set.clone(), template, time };
    actions::carry_out(ctx, shards.servers().iter().map(set).collect())
}

fn advance_all(
    ctx: &mut Ctx<'_>,
    file: Handle,
    inode: &Inode,
    layout: &Layout,
    info: StreamInfo,
) -> Result<Attr, Stopped> {
    ctx.must_have_turn(file)?;
    let (expect, generation) = (Generation(info.generation), Generation(info.generation + 1));
    let mut plan = vec![Action::AttrSet { attr: attr_of(file, inode, None), expect }];
    plan.extend(layout.datafiles.iter().map(|&stream| Action::StreamAdvance {
        stream,
        owner: file,
        expect,
        generation,
        size: None,
        written_at: None,
    }));
    actions::carry_out(ctx, plan)?;
    let after = StreamInfo { generation: generation.0, written_at: None, ..info };
    Ok(attr_of(file, inode, Some(after)))
}
