//! lookup: walk a path as far as this server can.
//!
//! One message resolves as many components as lie on this server. The answer gives the number of resolved
//! components and the object that was reached. The walk ends early in three cases:
//!
//! * The object of an entry is on another server: the client continues on that server.
//! * The next name belongs to another shard of a split directory: the client continues on the server of
//!   that shard.
//! * A symbolic link is followed by further components: the client follows the link.

use crate::meta::rows::Dirent;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Handle, Kind, Name, Rights, Status};

/// The facts of `lookup`: a handler. Its cost is 0, however many components it resolves.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Lookup { dir, path } => run(ctx, *dir, path)));

/// Walk. The object that is reached becomes the current object.
///
/// # Errors
/// `NotFound` for a component that is not there; `NotDirectory` for one that is neither a directory nor a
/// link and has components after it.
pub fn run(ctx: &mut Ctx<'_>, dir: Handle, path: &[Name]) -> Result<Answer, Stopped> {
    let dir = ctx.object(dir)?;
    let kind = match dir.server() == ctx.identity.id || path.is_empty() {
        true => ctx.inode(dir)?.kind,
        // Its shard, if there is one here.
        false => Kind::Directory,
    };
    let mut at = Dirent { handle: dir, kind };
    for (resolved, name) in path.iter().enumerate() {
        match at.kind {
            Kind::Directory if resolved > 0 && at.handle.server() != ctx.identity.id => {
                return reached(ctx, resolved, at);
            }
            Kind::Symlink if resolved > 0 => return reached(ctx, resolved, at),
            Kind::Directory => {}
            _ => return Err(Stopped::Status(Status::NotDirectory)),
        }
        match ctx.directory_of(at.handle, name) {
            // The client continues at the shard.
            Err(Stopped::Split(_)) if resolved > 0 => return reached(ctx, resolved, at),
            directory => directory?,
        };
        at = ctx.entry(at.handle, name)?.ok_or(Stopped::Status(Status::NotFound))?;
    }
    reached(ctx, path.len(), at)
}

fn reached(ctx: &mut Ctx<'_>, resolved: usize, at: Dirent) -> Result<Answer, Stopped> {
    let is_here = at.handle.server() == ctx.identity.id;
    if is_here && at.kind == Kind::File {
        // Asked for before the inode, so that one load brings both.
        let _ = ctx.stream(at.handle);
    }
    let attr = if is_here { Some(ctx.attr(at.handle)?) } else { None };
    ctx.current = Some((at.handle, Rights::empty()));
    Ok(Answer::Looked { resolved: resolved as u16, handle: at.handle, kind: at.kind, attr })
}
