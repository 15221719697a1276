//! The conformance suite, on this disk and in memory.

use super::run;
use crate::skipped::skipped;
use shoal_vfs::LocalOptions;
use shoal_vfs::conformance::{Promises, check};
use std::path::Path;

/// The promises of the host's file system that holds a directory.
fn promises(dir: &Path) -> Promises {
    let probe = dir.join("probe");
    std::fs::create_dir(&probe).unwrap();
    let links = std::os::unix::fs::MetadataExt::nlink(&std::fs::metadata(&probe).unwrap());
    let xattrs = rustix::fs::setxattr(&probe, "user.probe", b"", rustix::fs::XattrFlags::empty()).is_ok();
    std::fs::remove_dir(&probe).unwrap();
    if !xattrs {
        skipped(&format!("{} takes no extended attributes", dir.display()));
    }
    let owners = rustix::process::geteuid().is_root();
    if !owners {
        skipped("only root sets owners");
    }
    Promises { xattrs, owners, counted_directories: links == 2, ..Promises::ALL }
}

fn conforms(room: &Path, options: impl Fn(&Path) -> LocalOptions) {
    let dir = tempfile::tempdir_in(room).unwrap();
    let promises = promises(dir.path());
    run(options(dir.path()), |vfs, _| async move { check(&vfs, promises).await });
}

#[test]
fn a_directory_of_this_disk_conforms() {
    conforms(&std::env::temp_dir(), |dir| LocalOptions::new(dir));
}

#[test]
fn a_directory_in_memory_conforms() {
    let memory = Path::new("/dev/shm");
    if !memory.is_dir() {
        return skipped("no /dev/shm");
    }
    conforms(memory, |dir| LocalOptions::new(dir));
}

#[test]
fn calls_on_the_worlds_own_thread_conform() {
    conforms(&std::env::temp_dir(), |dir| LocalOptions { inline: true, ..LocalOptions::new(dir) });
}

#[test]
fn a_directory_conforms_with_hardly_any_descriptors() {
    conforms(&std::env::temp_dir(), |dir| LocalOptions { descriptors: Some(1), ..LocalOptions::new(dir) });
}
