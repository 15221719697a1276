//! listxattr: the names of an object's extended attributes.

use crate::actions;
use crate::ctx::{Ctx, Halt};
use crate::keys;
use bytes::{BufMut, BytesMut};
use shoal_proto::{Answer, Blob, Handle};

/// The names, each ended by a NUL.
pub fn run(ctx: &mut Ctx<'_>, object: Handle) -> Result<Answer, Halt> {
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
