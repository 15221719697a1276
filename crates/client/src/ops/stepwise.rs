//! Creates files and removes objects step by step, with one operation in each message, as PVFS does. The
//! client uses this if `compound = off`. *n* is the number of datafiles.
//!
//! ```text
//!   create   createmeta ─▶ n × createdata ─▶ laydata ─▶ crdirent   n + 3 messages; stuffed or precreated: 2
//!   remove   rmdirent ─▶ removemeta ─▶ n × removedata              n + 2 messages; stuffed: 3 (n = 1)
//! ```
//! Until an object has an entry, its server keeps a row (`New`) with the client that made the object. If this
//! client fails before it makes the entry, the server removes the object. Only files are made in steps. Every
//! object that is not a directory is removed in steps. The servers make all other objects, and remove
//! directories.

use super::{attr_among, capability_among};
use crate::core::{Core, Operation};
use crate::{Client, Error, OpenFile};
use futures_util::future::join_all;
use shoal_env::Instant;
use shoal_proto::op::Answer;
use shoal_proto::{
    Attr, Capability, Dist, Handle, Kind, Name, Op, Owner, Placement, Rights, Roles, ServerId, Status,
    Template, limits,
};
use std::rc::Rc;

/// The properties that a new file takes from its directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inherited {
    group: Option<u32>,
    template: Template,
    until: Instant,
}

/// The properties of a new file, and the access that it is opened for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewFile {
    pub(crate) owner: Owner,
    pub(crate) rights: Rights,
    pub(crate) template: Option<Template>,
}

/// The most directories whose inherited properties are kept.
const INHERITED_MAX: usize = 1024;
/// Set-group-id: new files in a directory with this bit get the directory's group.
const SET_GROUP_ID: u32 = 0o2000;

impl Client {
    /// [`Client::create`], step by step.
    pub(crate) async fn create_apart(
        &self,
        o: &Operation,
        dir: Handle,
        name: &Name,
        exclusive: bool,
        file: NewFile,
    ) -> Result<(Attr, bool, OpenFile), Error> {
        loop {
            if !exclusive {
                match self.open_existing(o, dir, name, file.rights).await {
                    Err(error) if error.status == Status::NotFound => {}
                    Err(error) if error.status == Status::Stale && error.object != Some(dir) => {
                        self.core.back_off(o, error).await?;
                        continue;
                    }
                    other => return other.map(|(attr, file)| (attr, false, file)),
                }
            }
            match self.core.make_apart(o, dir, name, file).await {
                Ok((attr, capability)) => {
                    let opened = OpenFile::new(self.clone(), &attr, file.rights, capability);
                    self.core.cache.borrow_mut().changed_name(dir, name);
                    self.core.made_empty(o, dir, name, &attr);
                    return Ok((attr, true, opened));
                }
                // Another client made it since the lookup.
                Err(error) if error.status == Status::Exists && !exclusive => {
                    self.core.back_off(o, error).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn open_existing(
        &self,
        o: &Operation,
        dir: Handle,
        name: &Name,
        rights: Rights,
    ) -> Result<(Attr, OpenFile), Error> {
        let looked = self.core.lookup_path(o, dir, std::slice::from_ref(name)).await?;
        match looked.kind {
            Kind::Directory => Err(o.error(Status::IsDirectory)),
            Kind::Symlink => {
                Err(o.error(Status::Loop).of(looked.handle).because("the name is a symbolic link"))
            }
            _ => {
                let opened = self.open_of(o, looked.handle, rights).await;
                opened.map_err(|error| Error { object: Some(looked.handle), ..error })
            }
        }
    }
}

impl Core {
    /// Make a file and its entry.
    async fn make_apart(
        self: &Rc<Core>,
        o: &Operation,
        dir: Handle,
        name: &Name,
        file: NewFile,
    ) -> Result<(Attr, Option<Capability>), Error> {
        let NewFile { owner, rights, template } = file;
        let inherited = self.inherited(o, dir).await?;
        let owner = Owner { gid: inherited.group.unwrap_or(owner.gid), ..owner };
        let template = template.unwrap_or(inherited.template);
        let server = self.metafile_server(dir);
        let op = Op::Createmeta { dir, name: name.clone(), owner, open: rights, template };
        let told = self.ask(o, server, vec![op]).await?;
        let capability = capability_among(&told.answers);
        let bad = || o.error(Status::BadMessage).from(server);
        let attr = attr_among(&told.answers).ok_or_else(bad)?;
        let object = attr.handle;
        let (error, is_out) = match self.laid_out(o, attr, &template).await {
            Err(error) => (error, true),
            Ok(attr) => {
                let op = Op::Crdirent { dir, name: name.clone(), object, kind: Kind::File };
                match self.ask(o, dir.server(), vec![op]).await {
                    Ok(_) => return Ok((attr, capability)),
                    Err(error) => (error.clone(), is_refusal(error.status)),
                }
            }
        };
        if is_out {
            // The file gets no entry any more. If this removal fails, the servers remove the file when the
            // session ends.
            let _ = self.remove_apart(o, object, false).await;
        }
        Err(error)
    }

    /// Make the datafiles that a new metafile needs, if any, and store the list in the metafile.
    async fn laid_out(
        self: &Rc<Core>,
        o: &Operation,
        attr: Attr,
        template: &Template,
    ) -> Result<Attr, Error> {
        let server = attr.handle.server();
        if attr.layout.is_some() || self.stuffs(server) {
            return Ok(attr);
        }
        let datafiles = self.datafiles(o, attr.handle, template).await?;
        let op = Op::Laydata { object: attr.handle, datafiles: datafiles.into() };
        let told = self.ask(o, server, vec![op]).await?;
        attr_among(&told.answers).ok_or_else(|| o.error(Status::BadMessage).from(server))
    }

    /// Make a file's datafiles, on all their servers at the same time.
    async fn datafiles(
        self: &Rc<Core>,
        o: &Operation,
        owner: Handle,
        template: &Template,
    ) -> Result<Vec<Handle>, Error> {
        let servers: Vec<ServerId> = self.map().with_roles(Roles::DATA).collect();
        let width = match (template.dist, usize::from(template.width)) {
            (Dist::Basic | Dist::Fork, _) => 1,
            (_, 0) => servers.len(),
            (_, width) => width.min(servers.len()),
        };
        if servers.is_empty() {
            return Err(o.error(Status::NoSpace).because("no server holds data"));
        }
        let turn = (owner.counter() % servers.len() as u64) as usize;
        let made = (0..width.min(limits::WIDTH_MAX)).map(|step| {
            let server = servers[(turn + step) % servers.len()];
            async move {
                let told = self.ask(o, server, vec![Op::Createdata { owner }]).await?;
                match told.answers.first() {
                    Some(Answer::Handles { handles }) if handles.len() == 1 => Ok(handles[0]),
                    _ => Err(o.error(Status::BadMessage).from(server)),
                }
            }
        });
        join_all(made).await.into_iter().collect()
    }

    fn metafile_server(&self, dir: Handle) -> ServerId {
        let servers: Vec<ServerId> = self.map().with_roles(Roles::METADATA).collect();
        match self.switches().placement {
            Placement::Spread if !servers.is_empty() => {
                servers[(self.world.random_u64() % servers.len() as u64) as usize]
            }
            _ => dir.server(),
        }
    }

    fn stuffs(&self, server: ServerId) -> bool {
        let map = self.map();
        map.switches.stuffing && map.server(server).is_some_and(|info| info.roles.contains(Roles::DATA))
    }

    /// The properties that new files take from their directory; kept as long as attributes are.
    async fn inherited(self: &Rc<Core>, o: &Operation, dir: Handle) -> Result<Inherited, Error> {
        let known = self.inherited.borrow_mut().get(&dir).copied();
        if let Some(known) = known.filter(|known| known.until > self.world.now()) {
            return Ok(known);
        }
        let attr = self.getattr_raw(o, dir).await?;
        if attr.kind != Kind::Directory {
            return Err(o.error(Status::NotDirectory));
        }
        let inherited = Inherited {
            group: (attr.mode & SET_GROUP_ID != 0).then_some(attr.gid),
            template: attr.template.inherited_by(Kind::File),
            until: self.world.now() + self.options.attr_cache,
        };
        let mut all = self.inherited.borrow_mut();
        all.put(dir, inherited);
        if all.len() > INHERITED_MAX {
            all.pop_lru();
        }
        Ok(inherited)
    }

    /// Remove a name, and its object if this was the object's last name.
    pub(crate) async fn unlink_apart(
        self: &Rc<Core>,
        o: &Operation,
        dir: Handle,
        name: &Name,
    ) -> Result<(), Error> {
        let told = self.ask(o, dir.server(), vec![Op::Rmdirent { dir, name: name.clone() }]).await;
        self.cache.borrow_mut().changed_name(dir, name);
        let Some(&Answer::Unnamed { handle, ticket, .. }) = told?.answers.first() else {
            return Err(o.error(Status::BadMessage).from(dir.server()));
        };
        self.lost_a_name(handle);
        loop {
            match self.unnamed_apart(o, dir, handle, ticket).await {
                // The name is removed, so the call may not fail for lack of space: repeat the step. A full
                // disk has space again after a checkpoint.
                Err(error) if error.status == Status::NoSpace => self.back_off(o, error).await?,
                ended => return ended,
            }
        }
    }

    /// Reduce an object's link count, which is too high by one, and remove the object if this was the last
    /// link.
    async fn unnamed_apart(
        self: &Rc<Core>,
        o: &Operation,
        dir: Handle,
        object: Handle,
        ticket: Handle,
    ) -> Result<(), Error> {
        let held = self.held.borrow().to_tell().holds(object);
        if !self.remove_apart(o, object, held).await? {
            let told = self.ask(o, dir.server(), vec![Op::Settle { object, ticket, held }]).await?;
            if let Some(Answer::Removed { orphaned: true, .. }) = told.answers.first() {
                self.orphaned(o, object).await?;
            }
        }
        Ok(())
    }

    /// Remove an object without a name, and its datafiles; `false`: it has, or had, further names.
    async fn remove_apart(self: &Rc<Core>, o: &Operation, object: Handle, held: bool) -> Result<bool, Error> {
        let told = match self.ask(o, object.server(), vec![Op::Removemeta { object, held }]).await {
            // The server has removed it already.
            Err(error) if error.status == Status::Stale => return Ok(true),
            told => told?,
        };
        let Some(Answer::Parted { datafiles, orphaned, linked }) = told.answers.into_iter().next() else {
            return Err(o.error(Status::BadMessage).from(object.server()));
        };
        if orphaned {
            self.orphaned(o, object).await?;
        }
        let removed = datafiles.iter().map(|&datafile| {
            self.ask(o, datafile.server(), vec![Op::Removedata { owner: object, datafile }])
        });
        // It has no name any more: if a step of this fails, the servers do it.
        join_all(removed).await;
        Ok(!linked)
    }
}

/// Whether an error proves that the entry was not made: the server refused it. After any other error the
/// entry may exist, because the answer may have been lost.
fn is_refusal(status: Status) -> bool {
    matches!(
        status,
        Status::Exists
            | Status::Stale
            | Status::NotDirectory
            | Status::NoSpace
            | Status::Invalid
            | Status::OverLimit
            | Status::Forbidden
    )
}
