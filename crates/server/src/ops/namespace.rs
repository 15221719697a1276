//! Names, attributes and links: the operations of directories and inodes.
//!
//! Each is a plain function over its [`Ctx`](crate::request::ctx::Ctx). [`make`] is the part that all
//! creations share.

pub(crate) mod create;
pub(crate) mod entry;
pub(crate) mod getattr;
pub(crate) mod getxattr;
pub(crate) mod hold;
pub(crate) mod link;
pub(crate) mod listxattr;
pub(crate) mod lookup;
pub(crate) mod make;
pub(crate) mod mkdir;
pub(crate) mod mknod;
pub(crate) mod open;
pub(crate) mod readdir;
pub(crate) mod readlink;
pub(crate) mod release;
pub(crate) mod removexattr;
pub(crate) mod rename;
pub(crate) mod rmdir;
pub(crate) mod setattr;
pub(crate) mod setxattr;
pub(crate) mod symlink;
pub(crate) mod unlink;
