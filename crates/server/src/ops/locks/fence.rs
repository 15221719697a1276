//! fence: begin a generation of a file over several servers, because an exclusive lock of it was lost.
//!
//! A write that was sent under the lock states the old generation. After the fence every server refuses it,
//! even if the session that sent it continues. For the file's mtime the fence counts as a write at this
//! moment, as a truncation does, because the times of the streams' newest writes belong to the old
//! generation.

use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Action, Answer, Generation, Handle, Status};

/// The facts of `fence`: a handler. A full disk does not refuse it, because it stores no data.
pub const FACTS: OpFacts =
    OpFacts { frees: |_| true, ..OpFacts::new(handler!(|ctx| Fence { object } => run(ctx, *object))) };

/// Begin it. A stuffed file has nothing to fence.
///
/// # Errors
/// `Stale`: the file is gone.
pub fn run(ctx: &mut Ctx<'_>, object: Handle) -> Result<Answer, Stopped> {
    let inode = ctx.inode(object)?;
    let Some(layout) = inode.layout.clone() else { return Ok(Answer::Done {}) };
    ctx.must_have_turn(object)?;
    let info = ctx.stream(object)?.ok_or(Stopped::Status(Status::Stale))?;
    let (expect, generation) = (Generation(info.generation), Generation(info.generation + 1));
    let mut attr = crate::meta::inode::attr_of(object, &inode, None);
    attr.ctime = ctx.now;
    attr.mtime = ctx.now;
    let mut plan = vec![Action::AttrSet { attr, expect }];
    plan.extend(layout.datafiles.iter().map(|&stream| Action::StreamAdvance {
        stream,
        owner: object,
        expect,
        generation,
        size: None,
        written_at: Some(ctx.now),
    }));
    actions::carry_out(ctx, plan)?;
    Ok(Answer::Done {})
}
