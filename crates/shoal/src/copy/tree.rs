//! A file system that is copied from or to. Its kind does not matter to the copy.

use shoal_vfs::{AnyVfs, Vfs};

/// A file system.
pub struct CopyTree {
    vfs: AnyVfs,
    /// This machine's kernel keeps its objects, with this user's rights.
    pub is_of_host: bool,
}

impl CopyTree {
    /// A ShoalFS, whose servers keep its objects.
    pub fn of_servers(vfs: impl Vfs) -> CopyTree {
        CopyTree { vfs: AnyVfs::of(vfs), is_of_host: false }
    }

    /// Files of this machine, also those in which others are kept.
    pub fn of_host(vfs: impl Vfs) -> CopyTree {
        CopyTree { vfs: AnyVfs::of(vfs), is_of_host: true }
    }

    /// Its names and files.
    pub fn vfs(&self) -> &AnyVfs {
        &self.vfs
    }
}
