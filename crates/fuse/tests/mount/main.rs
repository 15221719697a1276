//! The mount, by real system calls, over a whole file system in this process.

mod ahead;
mod attributes;
mod cluster;
mod counts;
mod data;
mod forked;
mod gone;
mod life;
mod listing;
mod locks;
mod names;
mod pages;
mod silent;
#[path = "../../../../tests/skipped.rs"]
mod skipped;
mod sync;
mod two;

use cluster::Cluster;
use shoal_client::Client;
use shoal_fuse::{MountHandle, MountOptions};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A file system with one mount.
struct Mounted {
    // Dropped in this order: the mount, its directory, the servers.
    handle: MountHandle<Client>,
    dir: TempDir,
    cluster: Cluster,
}

impl Mounted {
    fn new() -> Mounted {
        Mounted::with(&MountOptions::default())
    }

    fn with(options: &MountOptions) -> Mounted {
        let (cluster, dir) = (Cluster::start(3), TempDir::new().unwrap());
        let handle = cluster.mount(&dir.path().join("mnt"), options);
        Mounted { handle, dir, cluster }
    }

    /// A second mount of the same file system.
    fn second(&self, options: &MountOptions) -> MountHandle<Client> {
        self.cluster.mount(&self.dir.path().join("second"), options)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.handle.mountpoint().join(name)
    }
}

fn errno(error: &std::io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Whether what needs root can run; says why not.
fn is_root(needs: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skipped::skipped(&format!("only root can {needs}"));
    }
    root
}
