//! All options that determine the behaviour of a mount.

use std::time::Duration;

/// Largest read and write of one request, in bytes: the default of Linux (256 pages), and the limit of an
/// append.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Requests under way that no program waits for (read-ahead, write-back of mappings).
pub const BACKGROUND_MAX: u16 = 64;
/// Most event loops of one mount.
pub const THREADS_MAX: usize = 64;

/// How a mount behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// The source in the table of mounts: the file system's address.
    pub name: String,
    /// How long the kernel caches names and attributes. Zero: it asks every time. It never caches the
    /// *absence* of a name.
    pub cache: Duration,
    /// A directory in which one name after the other is looked up is listed, and lookups answered from that.
    /// Only where names are cached at all, and the file system's listings bring attributes (switch
    /// `readdirplus`).
    pub stat_ahead: bool,
    /// All files are read and written past the kernel's page cache. Shared mappings then need Linux 6.6.
    pub direct: bool,
    /// Event loops that take requests from the kernel.
    pub threads: usize,
    /// Users other than the mounting user may use it. Not as root this needs `user_allow_other` in
    /// `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Nothing can be changed through this mount.
    pub read_only: bool,
    /// Set-user-id, set-group-id and file capabilities count when a program is run from here. Only as root.
    pub suid: bool,
    /// Device files work. Only as root.
    pub dev: bool,
    /// Programs can be run from here.
    pub exec: bool,
    /// Locks of files are the kernel's own, and hold within this mount only.
    pub local_locks: bool,
    /// Bytes the kernel reads ahead of a sequential reader. Only root may have more than the kernel's 128
    /// KiB; any user may have less.
    pub readahead_bytes: u32,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        let cores = std::thread::available_parallelism().map_or(2, |n| n.get());
        let root = rustix::process::geteuid().is_root();
        MountOptions {
            name: "shoal".to_owned(),
            cache: Duration::from_millis(100),
            stat_ahead: true,
            direct: false,
            threads: cores.clamp(2, 4),
            allow_other: root,
            read_only: false,
            suid: false,
            dev: false,
            exec: true,
            local_locks: false,
            readahead_bytes: if root { 1 << 20 } else { 128 << 10 },
        }
    }
}
