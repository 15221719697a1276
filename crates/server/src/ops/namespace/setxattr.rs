//! setxattr: set an extended attribute. The mount checks the namespace of the name (`user.`, `trusted.` or
//! `security.`). The server checks it in one case: it refuses names in `trusted.` and `security.` with
//! `NotPermitted` if the client's mount key squashes root.

use crate::meta::keys;
use crate::ops::{Alters, OpFacts, handler, when};
use crate::request::ctx::{Ctx, Stopped};
use shoal_proto::op::{XattrName, XattrValue};
use shoal_proto::{Answer, Handle, Status, limits};

/// The facts of `setxattr`: a change of attributes alone. It asks for journal space for the value.
pub const FACTS: OpFacts = OpFacts {
    alters: Alters::Attributes,
    journal_bytes: when!(Setxattr { value, .. } => value.len() as u64),
    ..OpFacts::new(handler!(|ctx| Setxattr { object, name, value, create, replace } => {
        run(ctx, *object, name, value, *create, *replace)
    }))
};

/// Set the attribute.
///
/// # Errors
/// `Exists`: `create` is set and the attribute exists; `NoAttribute`: `replace` is set and it does not exist;
/// `OutOfRange`: the name is empty; `Invalid`: the name has a NUL; `NoSpace`: the names of all attributes
/// would be longer than a listing may be; `NotPermitted`: see the module.
pub fn run(
    ctx: &mut Ctx<'_>,
    object: Handle,
    name: &XattrName,
    value: &XattrValue,
    create: bool,
    replace: bool,
) -> Result<Answer, Stopped> {
    ctx.limits.permits_attribute(name, false)?;
    let object = ctx.object(object)?;
    let mut inode = ctx.inode(object)?;
    if name.is_empty() {
        return Err(Stopped::Status(Status::OutOfRange));
    }
    if name.contains(&0) {
        return Err(Stopped::Status(Status::Invalid));
    }
    let key = keys::xattr(object, name);
    let exists = inode.xattr_bytes > 0 && ctx.get(&key)?.is_some();
    match exists {
        true if create => return Err(Stopped::Status(Status::Exists)),
        false if replace => return Err(Stopped::Status(Status::NoAttribute)),
        true => {}
        false => inode.xattr_bytes += listed_bytes(name),
    }
    if inode.xattr_bytes as usize > limits::XATTR_LIST_BYTES_MAX {
        return Err(Stopped::Status(Status::NoSpace));
    }
    inode.ctime = ctx.now;
    ctx.deferring(|ctx| {
        ctx.put_raw(key, Some(value.0.clone()))?;
        ctx.put(keys::inode(object), &inode)
    })?;
    Ok(Answer::Done {})
}

/// Bytes of a name in a list: a NUL ends it.
pub fn listed_bytes(name: &[u8]) -> u32 {
    name.len() as u32 + 1
}
