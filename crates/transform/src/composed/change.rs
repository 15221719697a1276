//! Changes of names and attributes, and the checks before them.
//!
//! Within this process, one call at a time changes names. The call first reads the records that other
//! processes have published, so the stamp of its change is newer than all records that the change is based
//! on. With `names=own` it does so only if the last look is older than a second.

use super::changes::Key;
use super::format::{Bind, Changed, Made, Op};
use super::holds::Waiting;
use super::marks::{Claimed, Marker, Number};
use super::{Shared, fails};
use bytes::Bytes;
use shoal_proto::{Attr, Handle, Kind, Name, Owner, SetAttr, Status};
use shoal_vfs::{RenameFlags, Result, Vfs};
use std::rc::Rc;
use std::time::Duration;

const SET_GROUP_ID: u32 = 0o2000;
const MODE_BITS: u32 = 0o7777;
/// The known state may be this old when attributes are requested, and where processes exchange word of
/// changes.
pub(super) const FRESH: Duration = Duration::from_millis(100);
/// With names of this process's own, what is known may be so old.
const FRESH_OWN: Duration = Duration::from_secs(1);

/// A change that is logged. If its call is given up before it is published, it is published all the same:
/// until then others find neither the name nor that it is free.
pub(super) struct Unpublished<B: Vfs> {
    shared: Rc<Shared<B>>,
    pub(super) is_done: bool,
}

impl<B: Vfs> Unpublished<B> {
    pub(super) fn new(shared: &Rc<Shared<B>>) -> Unpublished<B> {
        Unpublished { shared: shared.clone(), is_done: false }
    }
}

impl<B: Vfs> Drop for Unpublished<B> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let shared = self.shared.clone();
        self.shared.env.spawn("publish a change", async move {
            if let Err(error) = shared.publish().await {
                tracing::warn!("a block is not written yet: {error}");
            }
        });
    }
}

/// Permission bits as a write by another than root leaves them.
fn without_privileges(mode: u32) -> u32 {
    let mode = mode & !0o4000;
    if mode & 0o010 != 0 { mode & !SET_GROUP_ID } else { mode }
}

impl<B: Vfs> Shared<B> {
    /// Read what was published, unless that was done within this span.
    pub(super) async fn refresh_after(self: &Rc<Self>, span: Duration) -> Result<()> {
        self.look(span).await
    }

    /// Before a name is missing, or changed, and at an open: all that was published.
    pub(super) async fn refresh_now(self: &Rc<Self>) -> Result<()> {
        if self.own_names {
            return self.refresh_after(FRESH_OWN).await;
        }
        let hears = self.is_exact() || self.publishes_writes && self.changes.is_some();
        self.look(if hears { FRESH } else { Duration::ZERO }).await
    }

    /// Before an object is opened: all that was published of it.
    pub(super) async fn look_to_open(self: &Rc<Self>, object: Handle) -> Result<()> {
        match self.is_exact() {
            true => self.look_at(&[Key::of_object(object.0)]).await,
            false => self.refresh_now().await,
        }
    }

    /// Whether the making of an object was found.
    pub(super) fn is_known(&self, object: u64) -> bool {
        self.names.borrow().object(object).is_some()
    }

    /// The kind of an object that has a name, or is open.
    pub(super) fn alive(&self, object: Handle, op: &'static str) -> Result<Kind> {
        let names = self.names.borrow();
        let kind = names.object(object.0).and_then(super::object::Object::kind);
        let is_alive = names.has_name(object.0) || self.is_open(object.0);
        kind.filter(|_| is_alive).ok_or_else(|| fails(Status::Stale, op, object))
    }

    /// The kind of an object to open. Where processes share their open files, an object without a name may be
    /// open in the parent of this process.
    pub(super) fn openable(&self, object: Handle) -> Result<Kind> {
        if !self.publishes_writes {
            return self.alive(object, "open");
        }
        let names = self.names.borrow();
        let kind = names.object(object.0).and_then(super::object::Object::kind);
        kind.ok_or_else(|| fails(Status::Stale, "open", object))
    }

    pub(super) fn directory(&self, dir: Handle, op: &'static str) -> Result<()> {
        match self.alive(dir, op)? {
            Kind::Directory => Ok(()),
            _ => Err(fails(Status::NotDirectory, op, dir)),
        }
    }

    pub(super) fn attr(&self, object: Handle, op: &'static str) -> Result<Attr> {
        self.alive(object, op)?;
        self.names.borrow().attr(object.0).ok_or_else(|| fails(Status::Stale, op, object))
    }

    pub(super) fn find(&self, dir: Handle, name: &Name) -> Option<Handle> {
        self.names.borrow().find(dir.0, name).map(Handle)
    }

    /// The object of a name that is to be changed.
    pub(super) fn target(&self, dir: Handle, name: &Name, op: &'static str) -> Result<Handle> {
        self.find(dir, name).ok_or_else(|| fails(Status::NotFound, op, dir))
    }

    pub(super) fn made(&self, dir: Handle, name: &Name, owner: Owner, kind: Kind) -> Result<Made> {
        let parent = self.attr(dir, "create")?;
        let inherits = parent.mode & SET_GROUP_ID != 0;
        let is_dir = kind == Kind::Directory;
        Ok(Made {
            kind,
            mode: owner.mode & MODE_BITS | if inherits && is_dir { SET_GROUP_ID } else { 0 },
            uid: owner.uid,
            gid: if inherits { parent.gid } else { owner.gid },
            rdev: 0,
            dir: dir.0,
            name: name.clone(),
            target: Bytes::new(),
        })
    }

    /// A name must be new. One that is known may be gone: another process may have removed it.
    pub(super) async fn look_if_known(self: &Rc<Self>, dir: Handle, name: &Name) -> Result<()> {
        match (self.find(dir, name), self.is_exact()) {
            (None, _) => Ok(()),
            (_, true) => self.look_at(&[Key::of_name(dir.0, name), Key::of_object(dir.0)]).await,
            (_, false) => self.refresh_now().await,
        }
    }

    /// Make an object that must be new.
    pub(super) async fn make(self: &Rc<Self>, made: Made) -> Result<Attr> {
        self.check_writable()?;
        let _turn = self.naming.acquire(1).await;
        let dir = Handle(made.dir);
        self.look_if_known(dir, &made.name).await?;
        self.directory(dir, "create")?;
        let object = self.draw_object(made.kind);
        let number = Number::of(object, made.kind);
        let marked = match self.claim_name(made.dir, &made.name, number, false).await? {
            Claimed::Own(marked) => marked,
            _ => return Err(fails(Status::Exists, "create", dir)),
        };
        self.log_name(vec![(object, Op::Create(made))], marked).await?;
        self.publish_change().await?;
        self.attr(Handle(object), "create")
    }

    pub(super) async fn log_name(
        self: &Rc<Self>,
        ops: Vec<(u64, Op)>,
        marked: impl IntoIterator<Item = Marker<B>>,
    ) -> Result<()> {
        match self.change(ops).await {
            Ok(_) => {
                self.logged(marked);
                Ok(())
            }
            Err(error) => {
                self.not_logged(marked).await;
                Err(error)
            }
        }
    }

    /// Publish a change of an object, unless an open file will do so at its close.
    pub(super) async fn publish_of(self: &Rc<Self>, object: Handle) -> Result<()> {
        let is_later = self.is_open(object.0) && !self.publishes_writes;
        if is_later { Ok(()) } else { self.publish_change().await }
    }

    pub(super) async fn remove(self: &Rc<Self>, dir: Handle, name: &Name, is_dir: bool) -> Result<()> {
        self.check_writable()?;
        let op = if is_dir { "rmdir" } else { "unlink" };
        let keys = [Key::of_name(dir.0, name), Key::of_object(dir.0)];
        let mut waiting = Waiting::new(&self.env);
        loop {
            let turn = self.naming.acquire(1).await;
            // A name that is known is looked at again when it is held.
            if self.own_names || self.find(dir, name).is_none() {
                match is_dir || !self.is_exact() {
                    true => self.refresh_now().await?,
                    false => self.look_at(&keys).await?,
                }
            }
            self.directory(dir, op)?;
            self.target(dir, name, op)?;
            let held = match self.hold_names(&[(dir, name, self.draw_change())], &waiting).await? {
                Ok(held) => held,
                Err(mark) => {
                    drop(turn);
                    waiting.pause(&mark).await?;
                    continue;
                }
            };
            let fresh = match (self.own_names, is_dir) {
                (true, _) => Ok(()),
                (_, true) => self.look_surely_at_all().await,
                (_, false) => self.look_surely(&keys).await,
            };
            if let Err(error) = fresh.and_then(|()| self.may_remove(dir, name, is_dir, op)) {
                self.not_logged(held).await;
                return Err(error);
            }
            let bind = Bind { dir: dir.0, name: name.clone(), object: 0 };
            self.log_name(vec![(0, Op::Bind(vec![bind]))], held).await?;
            return self.publish_change().await;
        }
    }

    fn may_remove(&self, dir: Handle, name: &Name, is_dir: bool, op: &'static str) -> Result<()> {
        self.directory(dir, op)?;
        let object = self.target(dir, name, op)?;
        match (self.alive(object, op)?, is_dir) {
            (Kind::Directory, false) => Err(fails(Status::IsDirectory, op, object)),
            (Kind::Directory, true) if !self.names.borrow().is_empty(object.0) => {
                Err(fails(Status::NotEmpty, op, object))
            }
            (Kind::Directory, true) | (_, false) => Ok(()),
            (_, true) => Err(fails(Status::NotDirectory, op, object)),
        }
    }

    /// Whether a rename fits its target.
    pub(super) fn fits(
        &self,
        from: Handle,
        target: Option<Handle>,
        to: Handle,
        exchange: bool,
    ) -> Result<()> {
        let kind = self.alive(from, "rename")?;
        if kind == Kind::Directory && self.names.borrow().lies_in(to.0, from.0) {
            return Err(fails(Status::Invalid, "rename", from));
        }
        let Some(target) = target else { return Ok(()) };
        match (kind, self.alive(target, "rename")?) {
            _ if exchange => Ok(()),
            (Kind::Directory, Kind::Directory) if !self.names.borrow().is_empty(target.0) => {
                Err(fails(Status::NotEmpty, "rename", target))
            }
            (Kind::Directory, Kind::Directory) => Ok(()),
            (Kind::Directory, _) => Err(fails(Status::NotDirectory, "rename", target)),
            (_, Kind::Directory) => Err(fails(Status::IsDirectory, "rename", target)),
            _ => Ok(()),
        }
    }

    pub(super) async fn move_name(
        self: &Rc<Self>,
        from: (Handle, &Name),
        to: (Handle, &Name),
        flags: RenameFlags,
    ) -> Result<()> {
        self.check_writable()?;
        let mut waiting = Waiting::new(&self.env);
        loop {
            let turn = self.naming.acquire(1).await;
            // Names that are known are looked at again when they are held.
            let is_known = self.find(from.0, from.1).is_some() && self.directory(to.0, "rename").is_ok();
            if self.own_names || !is_known {
                self.refresh_now().await?;
            }
            self.directory(from.0, "rename")?;
            self.directory(to.0, "rename")?;
            let object = self.target(from.0, from.1, "rename")?;
            // An open of the new name may have the object already, as one of a name that is made.
            let given = Number::of(object.0, self.alive(object, "rename")?);
            let number = if flags.exchange { self.draw_change() } else { given };
            let mut names = vec![(from.0, from.1, self.draw_change())];
            if !flags.no_replace && from != to {
                names.push((to.0, to.1, number));
            }
            let mut held = match self.hold_names(&names, &waiting).await? {
                Ok(held) => held,
                Err(mark) => {
                    drop(turn);
                    waiting.pause(&mark).await?;
                    continue;
                }
            };
            let fresh = if self.own_names { Ok(()) } else { self.look_surely_at_all().await };
            let planned = fresh.and_then(|()| self.plan_move(from, to, flags));
            // Another one has the name now.
            if planned.is_ok() && self.find(from.0, from.1) != Some(object) {
                self.not_logged(held).await;
                continue;
            }
            let claimed = match planned {
                Ok(Some(binds)) if flags.no_replace => {
                    let claimed = self.claim_name(to.0.0, to.1, given, false).await;
                    claimed.and_then(|claimed| match claimed {
                        Claimed::Own(marked) => {
                            held.extend(marked);
                            Ok(Some(binds))
                        }
                        _ => Err(fails(Status::Exists, "rename", to.0)),
                    })
                }
                planned => planned,
            };
            let binds = match claimed {
                Ok(Some(binds)) => binds,
                unchanged => {
                    self.not_logged(held).await;
                    return unchanged.map(|_| ());
                }
            };
            self.log_name(vec![(0, Op::Bind(binds))], held).await?;
            return self.publish_change().await;
        }
    }

    /// The names after a move; `None`: they stay as they are.
    fn plan_move(
        &self,
        from: (Handle, &Name),
        to: (Handle, &Name),
        flags: RenameFlags,
    ) -> Result<Option<Vec<Bind>>> {
        self.directory(from.0, "rename")?;
        self.directory(to.0, "rename")?;
        let object = self.target(from.0, from.1, "rename")?;
        let target = self.find(to.0, to.1);
        // Both are names of one object.
        if target == Some(object) && !flags.no_replace {
            return Ok(None);
        }
        self.fits(object, target.filter(|_| !flags.no_replace), to.0, flags.exchange)?;
        let bind = |at: (Handle, &Name), object: u64| Bind { dir: at.0.0, name: at.1.clone(), object };
        if !flags.exchange {
            return Ok(Some(vec![bind(from, 0), bind(to, object.0)]));
        }
        let other = target.ok_or_else(|| fails(Status::NotFound, "rename", to.0))?;
        if self.alive(other, "rename")? == Kind::Directory && self.names.borrow().lies_in(from.0.0, other.0) {
            return Err(fails(Status::Invalid, "rename", other));
        }
        Ok(Some(vec![bind(from, other.0), bind(to, object.0)]))
    }

    pub(super) fn changed(&self, attr: &Attr, set: &SetAttr) -> Changed {
        let has_owner = set.uid.is_some() || set.gid.is_some();
        let is_killed = (has_owner || set.kill_privileges) && attr.kind == Kind::File;
        let left = Some(without_privileges(attr.mode)).filter(|mode| is_killed && *mode != attr.mode);
        Changed {
            mode: set.mode.map(|mode| mode & MODE_BITS).or(left),
            uid: set.uid,
            gid: set.gid,
            atime: set.atime.map(|time| time.0),
            mtime: set.mtime.map(|time| time.0),
            ctime: set.ctime.map(|time| time.0),
        }
    }
}
