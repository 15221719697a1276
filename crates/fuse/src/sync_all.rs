//! Makes all changes of a mount durable, on all servers.
//!
//! **`syncfs(2)` does not make them durable.** Linux writes the pages of mappings back. Then it sends a
//! sync only to two kinds of FUSE file systems: file systems that a virtual machine's host serves
//! (`virtiofs`), and file systems with a block device (`fuseblk`). This mount is neither. So the mount has
//! an `ioctl` of its own, on any of its files and directories, that `shoal sync PATH` uses.

use rustix::ioctl::{NoArg, Opcode, ioctl, opcode};
use std::fs::File;
use std::io;
use std::path::Path;

const OPCODE: Opcode = opcode::none(0xf5, 1);
/// The `ioctl` as the kernel passes it on.
pub(crate) const SYNC_ALL: u32 = OPCODE;

/// Make all changes so far durable in the file system mounted at `point`, on all its servers, by any client.
/// Bytes stored in mappings are written to the servers first, as `syncfs(2)` does.
///
/// # Errors
/// `EIO`: earlier writes through this mount that no fsync covered may be lost; reported once. `ENOTTY`: no
/// ShoalFS is mounted there, or by a program that cannot do this. Otherwise a server's error.
pub fn sync_all(point: &Path) -> io::Result<()> {
    let root = File::open(point)?;
    rustix::fs::syncfs(&root)?;
    // SAFETY: the opcode is one of ours; it has no argument, so nothing is read or written.
    let request = unsafe { NoArg::<OPCODE>::new() };
    // SAFETY: a file system that does not know the opcode refuses it, and one that does touches no memory of
    // ours.
    unsafe { ioctl(&root, request) }?;
    Ok(())
}
