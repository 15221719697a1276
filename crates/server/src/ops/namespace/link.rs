//! link: add a name for a file, symbolic link or special file. The object may be on another server.

use crate::ops::make;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use shoal_proto::{Action, Answer, Dist, Handle, Kind, Name, Status, limits};

/// The facts of `link`: a handler with the default cost of 1, although it changes an entry and an object.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Link { object, dir, name } => {
    run(ctx, *object, *dir, name)
}));

/// Link it. The answer holds the object's attributes after it.
///
/// # Errors
/// `Exists`; `NotPermitted` for a directory; `CrossDevice` for a fork, and in a subfile; `NotFound` for an
/// object whose last name is gone; `TooManyLinks`.
pub fn run(ctx: &mut Ctx<'_>, object: Handle, dir: Handle, name: &Name) -> Result<Answer, Stopped> {
    let (object, dir) = (ctx.object(object)?, ctx.object(dir)?);
    let parent = make::free_in(ctx, dir, name, Kind::File)?;
    let mut attr = ctx.fact_attr(object)?;
    // A fork has one name, in its subfile.
    if attr.kind != Kind::Directory && [attr.template.dist, parent.template.dist].contains(&Dist::Fork) {
        return Err(Stopped::Status(Status::CrossDevice));
    }
    match attr.kind {
        Kind::Directory => return Err(Stopped::Status(Status::NotPermitted)),
        _ if attr.nlink == 0 => return Err(Stopped::Status(Status::NotFound)),
        _ if attr.nlink >= limits::LINKS_MAX => return Err(Stopped::Status(Status::TooManyLinks)),
        _ => {}
    }
    let (name, kind, time) = (name.clone(), attr.kind, ctx.now);
    let plan = vec![
        Action::EntryPut {
            shard: ctx.identity.id,
            dir,
            name,
            handle: object,
            kind,
            expect: None,
            subdirs: 0,
            time,
        },
        Action::Links { object, delta: 1, time, client: ctx.client, held: false },
    ];
    actions::carry_out(ctx, plan)?;
    attr.nlink += 1;
    attr.ctime = time;
    let count = ctx.count_in(&attr);
    Ok(Answer::Attr { attr, count })
}
