//! Sets the owner and the mode of an object that was just created.

use super::{RealHost, facts};
use crate::{HostFacts, HostFiles as _, HostNode, HostOwner};
use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;
use std::io;

/// Permission bits with which an object is made: those that give a program privileges come after its owner.
const FIRST_BITS: u32 = 0o777;
/// All permission bits.
const MODE_BITS: u32 = 0o7777;

/// The mode with which to make it; the process's mask may take from it.
pub(super) fn mode(owner: HostOwner) -> Mode {
    Mode::from_raw_mode(owner.mode & FIRST_BITS)
}

impl RealHost {
    /// Give a new object its owner and mode. Facts about it then.
    pub(super) fn made(&self, dir: &HostNode, node: &HostNode, owner: HostOwner) -> io::Result<HostFacts> {
        let made = self.facts(node)?;
        let is_owned = self.own(dir, node, owner, &made)?;
        let is_moded = set_bits(self, node, owner, &made)?;
        if is_owned || is_moded { self.facts(node) } else { Ok(made) }
    }

    /// The same for an object that was made in a directory under a name, and is to be looked up there.
    pub(super) fn made_at(
        &self,
        dir: &HostNode,
        name: &[u8],
        owner: HostOwner,
        kind: u32,
    ) -> io::Result<(HostNode, HostFacts)> {
        let (node, found) = self.lookup(dir, name)?;
        let is_own = found.uid == rustix::process::geteuid().as_raw();
        if found.kind() != kind || !(found.is_dir() || found.nlink == 1) || !is_own {
            // Another program has put another object there.
            return Err(Errno::STALE.into());
        }
        let flags = if found.is_dir() { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let facts = self.made(dir, &node, owner);
        let facts = facts.inspect_err(|_| self.take_back(dir, name, flags))?;
        Ok((node, facts))
    }

    /// Remove an object that did not become as it was wanted.
    pub(super) fn take_back(&self, dir: &HostNode, name: &[u8], flags: AtFlags) {
        // Where that fails too, the caller's error is the one to report.
        let _ = fs::unlinkat(super::fd(dir), name, flags);
    }

    /// Set the owner, if it is to be another one and this process may.
    fn own(&self, dir: &HostNode, node: &HostNode, owner: HostOwner, made: &HostFacts) -> io::Result<bool> {
        if !self.is_root {
            return Ok(false);
        }
        let uid = (owner.uid != made.uid).then_some(owner.uid);
        let gid = match owner.gid != made.gid {
            true if facts(super::fd(dir))?.mode & libc::S_ISGID == 0 => Some(owner.gid),
            _ => None,
        };
        if uid.is_some() || gid.is_some() {
            self.set_owner(node, uid, gid)?;
        }
        Ok(uid.is_some() || gid.is_some())
    }
}

/// Set the mode, where the process's mask or the first bits left another one. A directory keeps set-group-id
/// of the directory that it was made in.
fn set_bits(host: &RealHost, node: &HostNode, owner: HostOwner, made: &HostFacts) -> io::Result<bool> {
    let kept = if made.is_dir() { made.mode & libc::S_ISGID } else { 0 };
    let wanted = (owner.mode & MODE_BITS) | kept;
    if made.kind() == libc::S_IFLNK || made.mode & MODE_BITS == wanted {
        return Ok(false);
    }
    host.set_mode(node, wanted)?;
    Ok(true)
}
