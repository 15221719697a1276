//! listxattr: return the names of an object's extended attributes.

use crate::meta::keys;
use crate::ops::{OpFacts, handler};
use crate::request::ctx::{Ctx, Stopped};
use crate::txn::actions;
use bytes::{BufMut, BytesMut};
use shoal_proto::{Answer, Blob, Handle};

/// The facts of `listxattr`: a handler that reads the names of all extended attributes of one object.
pub const FACTS: OpFacts = OpFacts::new(handler!(|ctx| Listxattr { object } => run(ctx, *object)));

/// The names, each ended by a NUL.
pub fn run(ctx: &mut Ctx<'_>, object: Handle) -> Result<Answer, Stopped> {
    let object = ctx.object(object)?;
    let inode = ctx.inode(object)?;
    let mut list = BytesMut::with_capacity(inode.xattr_bytes as usize);
    if inode.xattr_bytes > 0 {
        let prefix = keys::xattrs(object).len();
        for key in actions::xattr_keys(ctx, object)? {
            list.put_slice(&key[prefix..]);
            list.put_u8(0);
        }
    }
    Ok(Answer::Bytes { bytes: Blob(list.freeze()) })
}
