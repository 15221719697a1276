//! Attributes: the host's facts converted to ShoalFS's form, and changes of them.

use super::Local;
use crate::{Error, Result};
use shoal_env::{HostAccess, HostFacts, HostFile, HostFiles, HostNode, WallTime};
use shoal_proto::{Attr, Generation, Handle, Kind, Rights, SetAttr, Shards, Status, Template, Time};
use std::io;

/// The unit of the host's space.
const BLOCK: u64 = 512;
/// Permission bits.
const MODE_BITS: u32 = 0o7777;

/// The kind in a mode's type bits. Kinds that Linux does not have are shown as files.
pub(super) fn kind_of(facts: &HostFacts) -> Kind {
    let kinds =
        [Kind::Directory, Kind::Symlink, Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice];
    kinds.into_iter().find(|kind| kind.mode_bits() == facts.kind()).unwrap_or(Kind::File)
}

/// The attributes. `parent`: of a directory.
pub(super) fn attr_of(facts: &HostFacts, handle: Handle, parent: Handle) -> Attr {
    let time = |WallTime(at): WallTime| Time(at);
    let is_device = matches!(kind_of(facts), Kind::CharDevice | Kind::BlockDevice);
    Attr {
        handle,
        kind: kind_of(facts),
        mode: facts.mode & MODE_BITS,
        uid: facts.uid,
        gid: facts.gid,
        nlink: facts.nlink,
        rdev: if is_device { facts.rdev } else { 0 },
        size: facts.size,
        space: facts.blocks.saturating_mul(BLOCK),
        atime: time(facts.atime),
        mtime: time(facts.mtime),
        ctime: time(facts.ctime),
        // Where there is no birth it is the same for all times: it tells objects apart.
        btime: facts.btime.map_or(Time(0), time),
        generation: Generation(0),
        parent: if facts.is_dir() { parent } else { Handle(0) },
        template: Template::default(),
        layout: None,
        shards: Shards::WHOLE,
    }
}

/// Permission bits as a write by another than root leaves them: set-user-id gone, set-group-id gone where the
/// group may execute.
fn without_privileges(mode: u32) -> u32 {
    let mode = mode & !0o4000;
    if mode & 0o010 != 0 { mode & !0o2000 } else { mode }
}

/// Facts about an object, and of a directory, about the one that holds it, if this user may search it.
struct Seen {
    facts: HostFacts,
    parent: Option<HostFacts>,
}

fn see(host: &dyn HostFiles, node: &HostNode) -> io::Result<Seen> {
    let facts = host.facts(node)?;
    let parent = match facts.is_dir().then(|| host.parent(node)) {
        Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => None,
        parent => parent.transpose()?,
    };
    Ok(Seen { facts, parent })
}

fn set(host: &dyn HostFiles, node: &HostNode, set: &SetAttr) -> io::Result<Seen> {
    let has_owner = set.uid.is_some() || set.gid.is_some();
    if has_owner {
        host.set_owner(node, set.uid, set.gid)?;
    }
    match set.mode {
        Some(mode) => host.set_mode(node, mode & MODE_BITS)?,
        None if has_owner || set.kill_privileges => kill_privileges(host, node)?,
        None => {}
    }
    if set.atime.is_some() || set.mtime.is_some() {
        let time = |Time(at): Time| WallTime(at);
        host.set_times(node, set.atime.map(time), set.mtime.map(time))?;
    }
    see(host, node)
}

fn kill_privileges(host: &dyn HostFiles, node: &HostNode) -> io::Result<()> {
    let facts = host.facts(node)?;
    let (mode, kept) = (facts.mode & MODE_BITS, without_privileges(facts.mode & MODE_BITS));
    if facts.is_file() && kept != mode { host.set_mode(node, kept) } else { Ok(()) }
}

/// Open a regular file for a call about its data.
pub(super) fn open(host: &dyn HostFiles, node: &HostNode, rights: Rights) -> io::Result<HostFile> {
    let facts = host.facts(node)?;
    let status = match kind_of(&facts) {
        Kind::File if facts.is_file() => return host.open(node, access(rights)),
        Kind::Directory => Status::IsDirectory,
        Kind::Symlink => Status::Loop,
        _ => Status::Invalid,
    };
    Err(io::Error::from_raw_os_error(status.errno()))
}

/// The access that rights ask for.
pub(super) fn access(rights: Rights) -> HostAccess {
    HostAccess { read: rights.contains(Rights::READ), write: rights.contains(Rights::WRITE) }
}

impl Local {
    /// The attributes of an object, as it was seen.
    fn attr(&self, object: Handle, Seen { facts, parent }: &Seen) -> Attr {
        let parent = match parent {
            _ if object == Handle::ROOT => Handle::ROOT,
            Some(parent) => self.parent_handle(object, parent),
            None if facts.is_dir() => self.nodes().parent_of(object).unwrap_or(Handle(0)),
            None => Handle(0),
        };
        attr_of(facts, object, parent)
    }

    /// The handle of the directory that holds a directory. One that was moved by others may be in one that is
    /// not known yet.
    fn parent_handle(&self, object: Handle, parent: &HostFacts) -> Handle {
        let nodes = self.nodes();
        nodes.handle_of(parent).or_else(|| nodes.parent_of(object)).unwrap_or(Handle(parent.ino))
    }

    pub(super) async fn attributes(&self, object: Handle) -> Result<Attr> {
        let seen = self.at("getattr", object, see).await?;
        if seen.facts.nlink == 0 && !self.nodes().has_open(object) {
            return Err(Error::new(Status::Stale, "getattr").of(object));
        }
        Ok(self.attr(object, &seen))
    }

    pub(super) async fn set_attributes(&self, object: Handle, wanted: SetAttr) -> Result<Attr> {
        self.check_writable("setattr", object)?;
        let seen = self.at("setattr", object, move |host, node| set(host, node, &wanted)).await?;
        Ok(self.attr(object, &seen))
    }

    /// Set a size, through a file that is open for writing if there is one: its mode may have changed since.
    pub(super) async fn cut(&self, object: Handle, size: u64, kills_privileges: bool) -> Result<Attr> {
        self.check_writable("truncate", object)?;
        let writer = self.nodes().writer(object);
        let cut = move |host: &dyn HostFiles, node: &HostNode| {
            let file = writer.map_or_else(|| open(host, node, Rights::WRITE), Ok)?;
            host.truncate(&file, size)?;
            if kills_privileges {
                kill_privileges(host, node)?;
            }
            see(host, node)
        };
        let seen = self.at("truncate", object, cut).await?;
        Ok(self.attr(object, &seen))
    }
}
