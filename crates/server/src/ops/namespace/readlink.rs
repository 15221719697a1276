//! readlink: return the target of a symbolic link.

use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Blob, Handle, Kind, Status};

/// The facts of `readlink`: a handler that reads one inode.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Readlink { object } => run(ctx, *object)));

/// The target.
///
/// # Errors
/// `Invalid` for an object that is no symbolic link.
pub fn run(ctx: &mut Ctx<'_>, object: Handle) -> Result<Answer, Stopped> {
    let object = ctx.object(object)?;
    let inode = ctx.inode(object)?;
    match (inode.kind, inode.target) {
        (Kind::Symlink, Some(target)) => Ok(Answer::Bytes { bytes: Blob(target.0) }),
        _ => Err(Stopped::Status(Status::Invalid)),
    }
}
