//! A FUSE mount that does nothing but hand calls on to a directory: the upper bound of every FUSE mount.
//!
//! Every FUSE file system has the kernel's part of the cost: a message to another thread, a wake-up, the
//! caches. This mount has only that part. So a mount is compared with this pass-through mount over the same
//! disk, with the same options: the same cache time of names and attributes, the same threads, cached and
//! write-through or direct.
//!
//! It works as libfuse's `passthrough_hp` does. It has an `O_PATH` descriptor for every object that the
//! kernel knows (`inodes`). Every call is relative to such a descriptor, so that renames by others cannot
//! lead it astray. Open files are descriptors of their own. Objects have the inode numbers of the source.
//!
//! Two choices matter for speed. The kernel would request the `security.capability` attribute before *each*
//! cached write. This mount declares that it clears privileges itself (`FUSE_HANDLE_KILLPRIV_V2`), so the
//! kernel requests the attribute only once for each file. And a repeated lookup of a name costs one
//! `fstatat` and no open, as long as its object is in the table.
//!
//! Rights: the kernel checks them (`default_permissions`); objects made by another caller are given to that
//! caller.

mod attributes;
mod directory;
mod inodes;
mod operations;
mod protocol;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fuser::{BackgroundSession, Config, MountOption, SessionACL};
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use operations::Source;

/// Descriptors to ask for: two for each file that is open, one for each object the kernel remembers.
const OPEN_FILES_WANTED: u64 = 1 << 20;
/// Descriptors for everything else.
const OPEN_FILES_SPARE: u64 = 512;
/// How often an unmount is tried again while something still uses the mount, and how long between.
const UNMOUNT_TRIES: u32 = 50;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(20);
/// The most threads of one mount.
const THREADS_MAX: usize = 256;

/// How a pass-through mount behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassthroughOptions {
    /// How long the kernel keeps names and attributes without asking. 0: it asks every time.
    pub ttl: Duration,
    /// Threads that serve the kernel's requests.
    pub threads: usize,
    /// Each thread with a queue of its own (`FUSE_DEV_IOC_CLONE`).
    pub clone_fd: bool,
    /// Reads and writes go past the kernel's cache. `mmap` for sharing is not possible then.
    pub direct_io: bool,
    /// An open leaves the pages the kernel has of the file; otherwise it drops them, as a shared file system
    /// must.
    pub keep_cache: bool,
    /// A read first asks whether the file has changed, and if it has, drops the kernel's pages; a file's own
    /// writes count as a change. Costs a message where nothing is known for sure, so a write followed by a
    /// read costs two more.
    pub auto_inval: bool,
    /// Extended attributes are offered. With them the kernel asks for `security.capability` before the first
    /// cached write of each file it has not asked about, which doubles the messages of writing many small
    /// files once.
    pub xattr: bool,
    /// Listings carry attributes where the kernel thinks they will be wanted.
    pub readdirplus: bool,
    /// Other users may use the mount too.
    pub allow_other: bool,
    /// The name in the table of mounts.
    pub name: String,
}

impl Default for PassthroughOptions {
    fn default() -> PassthroughOptions {
        PassthroughOptions {
            ttl: Duration::from_millis(100),
            threads: std::thread::available_parallelism().map_or(4, |n| n.get().max(4)),
            clone_fd: true,
            direct_io: false,
            keep_cache: false,
            auto_inval: false,
            xattr: true,
            readdirplus: true,
            allow_other: false,
            name: "passthrough".to_owned(),
        }
    }
}

/// A pass-through mount; it is unmounted when this is dropped.
#[derive(Debug)]
pub struct Mounted {
    mountpoint: PathBuf,
    session: Option<BackgroundSession>,
}

/// Files that may be open in all pass-through mounts of this process together: each takes two descriptors
/// here, besides the one of its opener, and every object the kernel still remembers takes one. Beyond that
/// calls fail with `EMFILE`.
pub fn files_max() -> u64 {
    shoal_env::raise_open_files(OPEN_FILES_WANTED).saturating_sub(OPEN_FILES_SPARE) / 2
}

/// Mounts `source` at `mountpoint`, both directories that exist; returns when it can be used. As root this
/// mounts by itself, otherwise by `fusermount3`.
pub fn spawn(source: &Path, mountpoint: &Path, options: &PassthroughOptions) -> Result<Mounted> {
    if options.threads == 0 || options.threads > THREADS_MAX {
        bail!("threads must be between 1 and {THREADS_MAX}, not {}", options.threads);
    }
    let find = |path: &Path| path.canonicalize().with_context(|| format!("cannot find {}", path.display()));
    let (source, mountpoint) = (find(source)?, find(mountpoint)?);
    if mountpoint.starts_with(&source) {
        bail!(
            "cannot mount {} at {}: the mount would contain itself",
            source.display(),
            mountpoint.display()
        );
    }
    shoal_env::raise_open_files(OPEN_FILES_WANTED);
    let served =
        Source::open(&source, options).with_context(|| format!("cannot open {}", source.display()))?;
    let session = fuser::spawn_mount(served, &mountpoint, &config(options))
        .with_context(|| format!("cannot mount {} at {}", source.display(), mountpoint.display()))?;
    Ok(Mounted { mountpoint, session: Some(session) })
}

fn config(options: &PassthroughOptions) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.name.clone()),
        MountOption::Subtype("passthrough".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads);
    config.clone_fd = options.clone_fd;
    config
}

impl Mounted {
    /// Where it is mounted.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Waits until someone else unmounts it.
    pub fn wait(mut self) -> Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        session.join().with_context(|| format!("the mount at {} failed", self.mountpoint.display()))
    }

    /// Unmounts it and waits for its threads. An error if it is still in use after a moment; it is then
    /// detached: it has left the tree of names and ends with its last user.
    pub fn unmount(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let Some(session) = self.session.take() else { return Ok(()) };
        for _ in 0..UNMOUNT_TRIES {
            let ended = match unmount(&self.mountpoint, UnmountFlags::empty()) {
                Err(Errno::BUSY) => {
                    std::thread::sleep(UNMOUNT_PAUSE);
                    continue;
                }
                // Not ours to unmount: the session asks fusermount3.
                Err(Errno::PERM) => session.umount_and_join(),
                // Done, or done before by someone else.
                Ok(()) | Err(_) => session.join(),
            };
            return ended.with_context(|| format!("cannot unmount {}", self.mountpoint.display()));
        }
        let detached = unmount(&self.mountpoint, UnmountFlags::DETACH);
        detached.with_context(|| format!("cannot unmount {}", self.mountpoint.display()))?;
        bail!("{} is still in use; it is detached", self.mountpoint.display())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{error:#}");
        }
    }
}
