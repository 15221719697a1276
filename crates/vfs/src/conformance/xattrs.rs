//! Extended attributes.

use super::{Ground, bytes_of};
use crate::Vfs;
use shoal_proto::{Handle, Status};
use std::collections::BTreeSet;

impl<V: Vfs> Ground<'_, V> {
    async fn attribute_names(&self, object: Handle) -> BTreeSet<Vec<u8>> {
        let names = self.ok(self.vfs.listxattr(object).await);
        // A host may have some of its own.
        names.iter().map(|name| name.to_vec()).filter(|name| name.starts_with(b"user.")).collect()
    }
}

pub(super) async fn values_are_kept<V: Vfs>(ground: &Ground<'_, V>) {
    if !ground.promises.xattrs {
        return;
    }
    let (vfs, file) = (ground.vfs, ground.file("file").await.0.handle);
    assert!(ground.attribute_names(file).await.is_empty());
    let values = [("user.empty", 0), ("user.small", 5), ("user.large", 1500)];
    for (n, (name, len)) in values.into_iter().enumerate() {
        let value = bytes_of(len, n as u64);
        ground.ok(vfs.setxattr(file, name.as_bytes(), &value, false, false).await);
        assert_eq!(ground.ok(vfs.getxattr(file, name.as_bytes()).await), value, "{name}");
    }
    let names = values.iter().map(|(name, _)| name.as_bytes().to_vec()).collect();
    assert_eq!(ground.attribute_names(file).await, names);
    ground.ok(vfs.removexattr(file, b"user.small").await);
    ground.fails(vfs.getxattr(file, b"user.small").await, Status::NoAttribute);
    assert_eq!(ground.attribute_names(file).await.len(), 2);
}

pub(super) async fn a_set_fits_the_present_value<V: Vfs>(ground: &Ground<'_, V>) {
    if !ground.promises.xattrs {
        return;
    }
    let (vfs, file) = (ground.vfs, ground.file("file").await.0.handle);
    ground.fails(vfs.getxattr(file, b"user.a").await, Status::NoAttribute);
    ground.fails(vfs.removexattr(file, b"user.a").await, Status::NoAttribute);
    ground.fails(vfs.setxattr(file, b"user.a", b"1", false, true).await, Status::NoAttribute);
    ground.ok(vfs.setxattr(file, b"user.a", b"1", true, false).await);
    ground.fails(vfs.setxattr(file, b"user.a", b"2", true, false).await, Status::Exists);
    ground.ok(vfs.setxattr(file, b"user.a", b"3", false, true).await);
    assert_eq!(ground.ok(vfs.getxattr(file, b"user.a").await), &b"3"[..]);
}

pub(super) async fn directories_have_attributes_too<V: Vfs>(ground: &Ground<'_, V>) {
    if !ground.promises.xattrs {
        return;
    }
    let (vfs, inner) = (ground.vfs, ground.directory("directory").await.handle);
    ground.ok(vfs.setxattr(inner, b"user.of a directory", b"yes", false, false).await);
    assert_eq!(ground.ok(vfs.getxattr(inner, b"user.of a directory").await), &b"yes"[..]);
    assert_eq!(ground.attribute_names(inner).await.len(), 1);
}
