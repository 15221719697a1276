//! Extended attributes: `user.`, `trusted.` and `security.`; no access control lists.
//!
//! Programs and the kernel request certain attributes of nearly every file, and nearly no file has them. A
//! request for a `security.` attribute is answered from the list of all names of the file's attributes. An
//! empty list answers all further requests for as long as attributes are cached. A file made through this
//! mount needs no list at all.
//!
//! `user.shoal.layout` is the layout of a forked file, a subfile or a fork, and of a directory whose files
//! are containers or lie composed. `getxattr` returns it, and no list contains it: so a copy of the tree
//! does not take it along. It can be neither set nor removed.

use super::{Errno, Fs, Result};
use bytes::Bytes;
use shoal_proto::op::XattrName;
use shoal_proto::{Dist, Handle, Kind};
use shoal_vfs::Vfs;

/// The prefixes there are; others are not offered.
const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
/// The layout, of forked files and all in them, and of directories whose layout clients follow.
const LAYOUT: &[u8] = b"user.shoal.layout";
/// Seen by root alone.
const TRUSTED: &[u8] = b"trusted.";
/// Asked for by programs and the kernel rather than by people.
const SECURITY: &[u8] = b"security.";

fn check(name: &[u8]) -> Result<()> {
    match PREFIXES.iter().find(|prefix| name.starts_with(prefix)) {
        Some(prefix) if name.len() > prefix.len() => Ok(()),
        Some(_) => Err(Errno::INVAL),
        None => Err(Errno::OPNOTSUPP),
    }
}

impl<V: Vfs> Fs<V> {
    /// Value of an attribute.
    pub async fn getxattr(&self, object: Handle, name: &[u8]) -> Result<Bytes> {
        check(name)?;
        if name == LAYOUT {
            let attr = self.vfs.getattr(object).await?;
            return match attr.template.dist {
                Dist::Forked { subfiles } => Ok(Bytes::from(format!("forked, {subfiles} subfiles"))),
                Dist::Fork if attr.kind == Kind::Directory => Ok(Bytes::from_static(b"subfile")),
                Dist::Fork => Ok(Bytes::from_static(b"fork")),
                Dist::Container { .. } if attr.kind == Kind::Directory => {
                    Ok(Bytes::from_static(b"container"))
                }
                Dist::Composed { .. } if attr.kind == Kind::Directory => Ok(Bytes::from_static(b"composed")),
                _ => Err(Errno::NODATA),
            };
        }
        let listed = if name.starts_with(SECURITY) {
            self.xattr_names(object).await?.iter().any(|listed| listed[..] == *name)
        } else {
            !self.known().bare(object, self.now())
        };
        if !listed {
            return Err(Errno::NODATA);
        }
        self.heard(object, self.vfs.getxattr(object, name).await)
    }

    /// Set an attribute. `flags`: those of `setxattr(2)`.
    pub async fn setxattr(&self, object: Handle, name: &[u8], value: &[u8], flags: i32) -> Result<()> {
        check(name)?;
        if flags & !(libc::XATTR_CREATE | libc::XATTR_REPLACE) != 0 {
            return Err(Errno::INVAL);
        }
        if name == LAYOUT {
            return Err(Errno(libc::EPERM));
        }
        let (create, replace) = (flags & libc::XATTR_CREATE != 0, flags & libc::XATTR_REPLACE != 0);
        self.known().xattr_changed(object);
        let set = self.vfs.setxattr(object, name, value, create, replace).await;
        self.xattr_was_set(object, name);
        self.known().xattr_changed(object);
        self.directory_changed(object);
        self.changed(object);
        Ok(set?)
    }

    /// Names of the attributes as `listxattr(2)` gives them, each with a NUL after it.
    pub async fn listxattr(&self, uid: u32, object: Handle) -> Result<Vec<u8>> {
        let mut list = Vec::new();
        for name in self.xattr_names(object).await? {
            if uid == 0 || !name.starts_with(TRUSTED) {
                list.extend_from_slice(&name);
                list.push(0);
            }
        }
        Ok(list)
    }

    /// Remove an attribute.
    pub async fn removexattr(&self, object: Handle, name: &[u8]) -> Result<()> {
        check(name)?;
        if name == LAYOUT {
            return Err(Errno(libc::EPERM));
        }
        let removed = self.vfs.removexattr(object, name).await;
        self.known().xattr_changed(object);
        self.directory_changed(object);
        self.changed(object);
        Ok(removed?)
    }

    /// All names, from memory if there are none.
    pub(super) async fn xattr_names(&self, object: Handle) -> Result<Vec<XattrName>> {
        let mark = {
            let mut known = self.known();
            if known.bare(object, self.now()) {
                return Ok(Vec::new());
            }
            known.xattr_mark()
        };
        let asked_at = self.now();
        let names = match self.heard(object, self.vfs.listxattr(object).await) {
            Err(Errno::STALE) if self.at_once.gone.get(object).is_some() => Vec::new(),
            asked => asked?,
        };
        if names.is_empty() {
            self.known().saw_bare(object, mark, asked_at);
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_three_kinds_of_attributes_are_offered() {
        assert!(check(b"user.mime_type").is_ok());
        assert!(check(b"security.capability").is_ok());
        assert_eq!(check(b"system.posix_acl_access"), Err(Errno::OPNOTSUPP));
        assert_eq!(check(b"nonsense"), Err(Errno::OPNOTSUPP));
        assert_eq!(check(b"user."), Err(Errno::INVAL));
    }
}
