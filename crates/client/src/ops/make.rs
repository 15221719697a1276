//! mknod, symlink, mkdir: make an entry and its object, with one message to the server of the directory.

use super::attr_among;
use crate::cache::Leads;
use crate::core::{Core, Operation};
use crate::{Client, Error};
use bytes::Bytes;
use shoal_proto::{Attr, Blob, Handle, Kind, Name, Op, Owner, Roles, Status, limits};
use shoal_vfs::ForkedFile;
use std::rc::Rc;

impl Client {
    /// Make a FIFO, socket, device, or a regular file without opening it.
    ///
    /// # Errors
    /// `Exists`, `NotDirectory`, `Stale`, `NoSpace`.
    pub async fn mknod(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        kind: Kind,
        rdev: u64,
    ) -> Result<Attr, Error> {
        let o = self.begin("mknod", Some(dir));
        self.core.make(&o, dir, name, Op::Mknod { dir, name: name.clone(), owner, kind, rdev }).await
    }

    /// Make a symbolic link.
    ///
    /// # Errors
    /// As [`Client::mknod`]; `NotFound`: the target is empty; `NameTooLong`: it is over 4095 bytes.
    pub async fn symlink(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        target: &[u8],
    ) -> Result<Attr, Error> {
        let o = self.begin("symlink", Some(dir));
        if target.is_empty() {
            return Err(o.error(Status::NotFound));
        }
        if target.len() > limits::PATH_BYTES_MAX {
            return Err(o.error(Status::NameTooLong));
        }
        let target = Blob(Bytes::copy_from_slice(target));
        self.core.make(&o, dir, name, Op::Symlink { dir, name: name.clone(), owner, target }).await
    }

    /// Make a directory.
    ///
    /// # Errors
    /// As [`Client::mknod`].
    pub async fn mkdir(&self, dir: Handle, name: &Name, owner: Owner) -> Result<Attr, Error> {
        let o = self.begin("mkdir", Some(dir));
        self.core.make(&o, dir, name, Op::Mkdir { dir, name: name.clone(), owner }).await
    }

    /// Make a forked file: a directory with this many subfiles, all at once or none. `servers`: those of the
    /// subfiles, in turn; none: all, in turn. With `replace` it takes the place of an empty directory.
    ///
    /// # Errors
    /// As [`Client::mknod`]; `Invalid`: the number of subfiles, or a server; with `replace` `NotEmpty`.
    pub async fn mkforked(
        &self,
        dir: Handle,
        name: &Name,
        owner: Owner,
        forked: &ForkedFile,
    ) -> Result<Attr, Error> {
        let o = self.begin("mkforked", Some(dir));
        self.possible(forked).map_err(|words| o.error(Status::Invalid).because(words))?;
        let ForkedFile { subfiles, servers, replace } = forked.clone();
        let (name, servers) = (name.clone(), servers.into());
        let op = Op::Mkforked { dir, name: name.clone(), owner, subfiles, servers, replace };
        self.core.make(&o, dir, &name, op).await
    }

    /// Whether the servers can hold it; if not, why.
    fn possible(&self, forked: &ForkedFile) -> Result<(), String> {
        let (subfiles, named) = (usize::from(forked.subfiles), forked.servers.len());
        if !(1..=limits::SUBFILES_MAX).contains(&subfiles) {
            return Err(format!("a forked file has 1 to {} subfiles, not {subfiles}", limits::SUBFILES_MAX));
        }
        if named > subfiles {
            return Err(format!("{named} servers are named for {subfiles} subfiles"));
        }
        let map = self.map();
        for id in &forked.servers {
            match map.server(*id) {
                None => return Err(format!("there is no server {id}")),
                Some(info) if info.roles.contains(Roles::METADATA | Roles::DATA) => {}
                Some(_) => {
                    return Err(format!(
                        "server {id} does not hold both metadata and data, as the server of a subfile does"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl Core {
    async fn make(self: &Rc<Core>, o: &Operation, dir: Handle, name: &Name, op: Op) -> Result<Attr, Error> {
        let told = match op {
            // Mostly made on another server.
            Op::Mkdir { .. } | Op::Mkforked { .. } => self.ask(o, dir.server(), vec![op]).await,
            _ => self.ask_in_directory(o, dir, op).await,
        };
        self.cache.borrow_mut().changed_name(dir, name);
        match attr_among(&told?.answers) {
            Some(attr) => self.made(o, dir, name, attr).await,
            None => self.lookup_anew(o, dir, name).await,
        }
    }

    /// A new, empty file has its name: keep both. Its datafiles, if it has any, have nothing to add.
    pub(crate) fn made_empty(&self, o: &Operation, dir: Handle, name: &Name, attr: &Attr) {
        let mut cache = self.cache.borrow_mut();
        let asked = cache.stamp(o.began);
        cache.put_name(dir, name, Leads::To(attr.handle, attr.kind), asked);
        cache.changed(attr.handle);
        let asked = cache.stamp(o.began);
        cache.put_attr(attr, asked);
    }

    /// A name was given to an object: keep both.
    pub(crate) async fn made(
        self: &Rc<Core>,
        o: &Operation,
        dir: Handle,
        name: &Name,
        attr: Attr,
    ) -> Result<Attr, Error> {
        let leads = Leads::To(attr.handle, attr.kind);
        let asked = self.cache.borrow().stamp(o.began);
        self.cache.borrow_mut().put_name(dir, name, leads, asked);
        self.changed_to(o, attr).await
    }
}
