//! Looks up, makes, removes and moves names.

use super::attributes::{access, attr_of, open};
use super::calls::in_directory;
use super::file::LocalFile;
use super::{Local, way::Identity};
use crate::{RenameFlags, Result};
use bytes::Bytes;
use shoal_env::{HostFacts, HostFile, HostFiles, HostNode, HostOwner};
use shoal_proto::{Attr, Handle, Kind, Name, Owner, Rights, Status};
use std::io;

/// An open of a file, and its making, by others that remove and make it, are tried so often.
const TRIES_MAX: usize = 8;
/// `renameat2(2)`: fail if the target exists.
const RENAME_NOREPLACE: u32 = 1;
/// `renameat2(2)`: swap the two.
const RENAME_EXCHANGE: u32 = 2;

type Looked = (HostNode, HostFacts);

fn host_owner(owner: Owner) -> HostOwner {
    HostOwner { mode: owner.mode, uid: owner.uid, gid: owner.gid }
}

fn is(error: &io::Error, status: Status) -> bool {
    error.raw_os_error() == Some(status.errno())
}

/// A file that was made or was there, and whether it was made.
type Made = (HostFile, HostFacts, bool);

fn make_or_open(
    host: &dyn HostFiles,
    dir: &HostNode,
    name: &[u8],
    owner: HostOwner,
    exclusive: bool,
    rights: Rights,
) -> io::Result<Made> {
    let mut tries = 0;
    loop {
        tries += 1;
        let present = match host.create(dir, name, owner, access(rights)) {
            Ok((file, facts)) => return Ok((file, facts, true)),
            Err(error) if is(&error, Status::Exists) && !exclusive => host.lookup(dir, name),
            Err(error) => return Err(error),
        };
        match present {
            Ok((node, _)) => {
                let file = open(host, &node, rights)?;
                let facts = host.facts(&file.node())?;
                return Ok((file, facts, false));
            }
            Err(error) if is(&error, Status::NotFound) && tries < TRIES_MAX => {}
            Err(error) => return Err(error),
        }
    }
}

/// The objects of both names of a rename, as they were right before it.
struct Renamed {
    moved: Looked,
    replaced: Option<Looked>,
}

fn rename(
    host: &dyn HostFiles,
    from: (&HostNode, &[u8]),
    to: (&HostNode, &[u8]),
    flags: u32,
) -> io::Result<Renamed> {
    let moved = in_directory(host, from.0, host.lookup(from.0, from.1))?;
    let replaced = match host.lookup(to.0, to.1) {
        Err(error) if is(&error, Status::NotFound) => None,
        found => Some(found?),
    };
    in_directory(host, to.0, host.rename(from, to, flags))?;
    Ok(Renamed { moved, replaced })
}

impl Local {
    /// An object was seen in a directory. Its attributes.
    fn saw(&self, dir: Handle, name: &Name, facts: &HostFacts, node: Option<HostNode>) -> Attr {
        let handle = self.nodes().saw(facts, (dir, name), node);
        attr_of(facts, handle, if handle == Handle::ROOT { handle } else { dir })
    }

    /// A call for a name in a directory that finds or makes an object.
    async fn in_dir(
        &self,
        op: &'static str,
        dir: Handle,
        name: &Name,
        work: impl FnOnce(&dyn HostFiles, &HostNode, &[u8]) -> io::Result<Looked> + Send + 'static,
    ) -> Result<Attr> {
        let own_name = name.clone();
        let work = move |host: &dyn HostFiles, node: &HostNode| {
            in_directory(host, node, work(host, node, own_name.as_bytes()))
        };
        let (node, facts) = self.at(op, dir, work).await?;
        Ok(self.saw(dir, name, &facts, Some(node)))
    }

    pub(super) async fn find(&self, dir: Handle, name: &Name) -> Result<Attr> {
        self.in_dir("lookup", dir, name, |host, dir, name| host.lookup(dir, name)).await
    }

    pub(super) async fn make_file(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        exclusive: bool,
        rights: Rights,
    ) -> Result<(Attr, bool, LocalFile)> {
        self.check_writable("create", dir)?;
        let own_name = name.clone();
        let work = move |host: &dyn HostFiles, node: &HostNode| {
            let made = make_or_open(host, node, own_name.as_bytes(), host_owner(owner), exclusive, rights);
            in_directory(host, node, made)
        };
        let (file, facts, is_new) = self.at("create", dir, work).await?;
        let attr = self.saw(dir, name, &facts, None);
        let file = LocalFile::new(self, attr.handle, rights, file, &facts);
        Ok((attr, is_new, file))
    }

    pub(super) async fn make_node(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        kind: Kind,
        device: u64,
    ) -> Result<Attr> {
        if kind == Kind::File {
            return Ok(self.make_file(dir, name, owner, true, Rights::READ).await?.0);
        }
        self.check_writable("mknod", dir)?;
        let (owner, kind) = (host_owner(owner), kind.mode_bits());
        let work = move |host: &dyn HostFiles, dir: &HostNode, name: &[u8]| {
            host.mknod(dir, name, owner, kind, device)
        };
        self.in_dir("mknod", dir, name, work).await
    }

    pub(super) async fn make_directory(&self, dir: Handle, name: &Name, owner: Owner) -> Result<Attr> {
        self.check_writable("mkdir", dir)?;
        let owner = host_owner(owner);
        self.in_dir("mkdir", dir, name, move |host, dir, name| host.mkdir(dir, name, owner)).await
    }

    pub(super) async fn make_symlink(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        target: &[u8],
    ) -> Result<Attr> {
        self.check_writable("symlink", dir)?;
        let (owner, target) = (host_owner(owner), Bytes::copy_from_slice(target));
        self.in_dir("symlink", dir, name, move |host, dir, name| host.symlink(dir, name, owner, &target))
            .await
    }

    pub(super) async fn target(&self, object: Handle) -> Result<Bytes> {
        Ok(self.at("readlink", object, |host, node| host.readlink(node)).await?.into())
    }

    pub(super) async fn make_link(&self, object: Handle, dir: Handle, name: &Name) -> Result<Attr> {
        self.check_writable("link", object)?;
        let own_name = name.clone();
        let work = move |host: &dyn HostFiles, node: &HostNode, dir: &HostNode| {
            in_directory(host, dir, host.link(node, dir, own_name.as_bytes()))?;
            Ok((node.clone(), host.facts(node)?))
        };
        let (node, facts) = self.at_both("link", (object, dir), work).await?;
        Ok(self.saw(dir, name, &facts, Some(node)))
    }

    pub(super) async fn remove_name(&self, dir: Handle, name: &Name, is_dir: bool) -> Result<()> {
        let op = if is_dir { "rmdir" } else { "unlink" };
        self.check_writable(op, dir)?;
        let own_name = name.clone();
        let work = move |host: &dyn HostFiles, dir: &HostNode| {
            let name = own_name.as_bytes();
            let found = in_directory(host, dir, host.lookup(dir, name))?;
            let removed = if is_dir { host.rmdir(dir, name) } else { host.unlink(dir, name) };
            in_directory(host, dir, removed).map(|()| found)
        };
        let removed = self.at(op, dir, work).await?;
        self.lost_name((dir, name), removed);
        Ok(())
    }

    pub(super) async fn move_name(
        &self,
        from: (Handle, &Name),
        to: (Handle, &Name),
        flags: RenameFlags,
    ) -> Result<()> {
        self.check_writable("rename", from.0)?;
        let bits = (if flags.no_replace { RENAME_NOREPLACE } else { 0 })
            | (if flags.exchange { RENAME_EXCHANGE } else { 0 });
        let (name, to_name) = (from.1.clone(), to.1.clone());
        let work = move |host: &dyn HostFiles, from: &HostNode, to: &HostNode| {
            rename(host, (from, name.as_bytes()), (to, to_name.as_bytes()), bits)
        };
        let Renamed { moved, replaced } = self.at_both("rename", (from.0, to.0), work).await?;
        let is_same = |other: &Looked| Identity::of(&other.1) == Identity::of(&moved.1);
        match replaced {
            // Two names of one object stay.
            Some(replaced) if is_same(&replaced) => {}
            Some(swapped) if flags.exchange => {
                self.moved(&moved.1, to);
                self.moved(&swapped.1, from);
            }
            Some(replaced) => {
                self.moved(&moved.1, to);
                self.lost_name(to, replaced);
            }
            None => self.moved(&moved.1, to),
        }
        Ok(())
    }

    fn moved(&self, facts: &HostFacts, place: (Handle, &Name)) {
        let mut nodes = self.nodes();
        if let Some(handle) = nodes.handle_of(facts) {
            nodes.moved(handle, place);
        }
    }

    /// An object lost a name: those that keep account of objects are informed.
    fn lost_name(&self, place: (Handle, &Name), (node, facts): Looked) {
        let Some(handle) = self.nodes().handle_of(&facts) else { return };
        let is_last = facts.is_dir() || facts.nlink <= 1;
        self.nodes().lost_name(handle, place, node, is_last);
        let listener = self.0.removals.borrow().clone();
        if let Some(listener) = listener {
            listener(handle);
        }
    }
}
