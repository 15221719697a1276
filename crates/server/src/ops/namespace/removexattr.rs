//! removexattr: remove an extended attribute.

use super::setxattr::listed_bytes;
use crate::meta::keys;
use crate::ops::{Alters, OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::{Answer, Handle, Status};

/// The facts of `removexattr`: a change of attributes alone. A full disk does not refuse it, because it frees
/// space.
pub const FACTS: OpFacts = OpFacts {
    alters: Alters::Attributes,
    frees: |_| true,
    ..OpFacts::new(handler!(|ctx| Removexattr { object, name } => run(ctx, *object, name)))
};

/// Remove it.
///
/// # Errors
/// `NoAttribute`.
pub fn run(ctx: &mut Ctx<'_>, object: Handle, name: &[u8]) -> Result<Answer, Stopped> {
    ctx.limits.permits_attribute(name, true)?;
    let object = ctx.object(object)?;
    let mut inode = ctx.inode(object)?;
    let key = keys::xattr(object, name);
    if inode.xattr_bytes == 0 || ctx.get(&key)?.is_none() {
        return Err(Stopped::Status(Status::NoAttribute));
    }
    inode.xattr_bytes = inode.xattr_bytes.saturating_sub(listed_bytes(name));
    inode.ctime = ctx.now;
    ctx.deferring(|ctx| {
        ctx.remove(key)?;
        ctx.put(keys::inode(object), &inode)
    })?;
    Ok(Answer::Done {})
}
