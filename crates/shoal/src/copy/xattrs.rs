//! Extended attributes of copied objects.
//!
//! Attributes of `user.` are kept. Attributes of `trusted.` and `security.` are kept if root copies,
//! because only root may set them. Attributes of other namespaces do not belong to the file itself: access
//! control lists, for example, are in `system.`, and a ShoalFS has no access control lists. If the other
//! side does not accept an attribute, that is an error: no attribute is left out silently.

use super::tree::CopyTree;
use anyhow::{Context as _, Result};
use bytes::Bytes;
use shoal_proto::op::XattrName;
use shoal_proto::{Handle, Status};
use shoal_vfs::Vfs;

/// Names and values.
pub type Xattrs = Vec<(XattrName, Bytes)>;

fn is_kept(name: &[u8]) -> bool {
    let is_roots = || [&b"trusted."[..], b"security."].iter().any(|prefix| name.starts_with(prefix));
    name.starts_with(b"user.") || (rustix::process::geteuid().is_root() && is_roots())
}

/// The kept attributes of an object.
pub async fn kept(tree: &CopyTree, object: Handle) -> Result<Xattrs> {
    let words = "cannot read its extended attributes";
    let listed = match tree.vfs().listxattr(object).await {
        // This file system has no such attributes.
        Err(error) if error.status == Status::NotSupported => return Ok(Vec::new()),
        listed => listed.context(words)?,
    };
    let mut found = Vec::new();
    for name in listed.into_iter().filter(|name| is_kept(name)) {
        match tree.vfs().getxattr(object, &name).await {
            Ok(value) => found.push((name, value)),
            // Removed meanwhile.
            Err(error) if error.status == Status::NoAttribute => {}
            Err(error) => return Err(error).context(words),
        }
    }
    Ok(found)
}

/// Set them on an object; its other attributes stay.
pub async fn set(tree: &CopyTree, object: Handle, xattrs: &Xattrs) -> Result<()> {
    for (name, value) in xattrs {
        let set = tree.vfs().setxattr(object, name, value, false, false).await;
        set.with_context(|| format!("cannot set its extended attribute {}", String::from_utf8_lossy(name)))?;
    }
    Ok(())
}
