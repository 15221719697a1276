//! setattr: mode, owner, times.
//!
//! An explicit mtime must win over the newest write, and lose to the next one: so it begins a new generation of the file's
//! streams, which forget when they were written (design §4.5). On a stuffed file that is one change with its row; on a
//! laid-out one a transaction over its datafiles, whose generations always go together with the metafile's.

use crate::actions;
use crate::ctx::{Ctx, Halt};
use crate::inode::{attr_of, without_privileges};
use crate::keys;
use crate::rows::Inode;
use shoal_proto::{Action, Answer, Attr, Generation, Handle, Kind, Layout, SetAttr, Status, Time};
use shoal_store::{StreamChange, StreamInfo};

/// Bits of a mode that can be set.
const MODE_BITS: u32 = 0o7777;

/// Change them. Any change, also one that sets nothing, sets the time of change.
pub fn run(ctx: &mut Ctx<'_>, object: Handle, set: &SetAttr) -> Result<Answer, Halt> {
    let object = ctx.object(object)?;
    let mut inode = ctx.inode(object)?;
    changed(&mut inode, set, ctx.now);
    if inode.kind == Kind::File && set.mtime.is_some() {
        let info = ctx.stream(object)?.ok_or(Halt::Status(Status::Stale))?;
        if let Some(layout) = inode.layout.clone() {
            let attr = advance_all(ctx, object, &inode, &layout, info)?;
            return Ok(Answer::Attr { attr });
        }
        ctx.change_stream(object, StreamChange::Advance { generation: info.generation + 1 })?;
    }
    ctx.put(keys::inode(object), &inode)?;
    Ok(Answer::Attr { attr: ctx.attr(object)? })
}

fn changed(inode: &mut Inode, set: &SetAttr, now: Time) {
    let has_new_owner = set.uid.is_some() || set.gid.is_some();
    if let Some(mode) = set.mode {
        inode.mode = mode & MODE_BITS;
    } else if inode.kind == Kind::File && (has_new_owner || set.kill_privileges) {
        inode.mode = without_privileges(inode.mode);
    }
    inode.uid = set.uid.unwrap_or(inode.uid);
    inode.gid = set.gid.unwrap_or(inode.gid);
    inode.atime = set.atime.unwrap_or(inode.atime);
    inode.mtime = set.mtime.unwrap_or(inode.mtime);
    inode.ctime = set.ctime.unwrap_or(now);
}

fn advance_all(
    ctx: &mut Ctx<'_>,
    file: Handle,
    inode: &Inode,
    layout: &Layout,
    info: StreamInfo,
) -> Result<Attr, Halt> {
    let (expect, generation) = (Generation(info.generation), Generation(info.generation + 1));
    let mut plan = vec![Action::AttrSet { attr: attr_of(file, inode, None), expect }];
    plan.extend(layout.datafiles.iter().map(|&stream| Action::StreamAdvance {
        stream,
        expect,
        generation,
        size: None,
        written_at: None,
    }));
    actions::carry_out(ctx, plan)?;
    let after = StreamInfo { generation: generation.0, written_at: None, ..info };
    Ok(attr_of(file, inode, Some(after)))
}
