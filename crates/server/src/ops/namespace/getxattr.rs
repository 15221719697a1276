//! getxattr: return the value of an extended attribute.

use crate::meta::keys;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Blob, Handle, Status};

/// The facts of `getxattr`: a handler that reads one extended attribute.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Getxattr { object, name } => {
    run(ctx, *object, name)
}));

/// The value.
///
/// # Errors
/// `NoAttribute`.
pub fn run(ctx: &mut Ctx<'_>, object: Handle, name: &[u8]) -> Result<Answer, Stopped> {
    let object = ctx.object(object)?;
    let inode = ctx.inode(object)?;
    if inode.xattr_bytes == 0 {
        return Err(Stopped::Status(Status::NoAttribute));
    }
    let value = ctx.get(&keys::xattr(object, name))?.ok_or(Stopped::Status(Status::NoAttribute))?;
    Ok(Answer::Bytes { bytes: Blob(value) })
}
