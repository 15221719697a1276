//! Names: how each is looked at, made and removed.
//!
//! ```text
//!   make        put NAME if absent
//!   change      get NAME, put NAME if unchanged
//!   remove      get NAME, put "ended" if unchanged, delete NAME           the put decides
//! ```
//!
//! **No delete can take a new object.** A store deletes without a condition. So a name is first made to say
//! that it is ended, or that it moved away, and no process makes it anew until that object is gone. The
//! process that put it deletes it within [`LEASE`], by one request that is not repeated. If the same object
//! is still there after [`PATIENCE`], that process ended or lost its connection: another one puts its own in
//! the place, and deletes that. So a request that a store carries out more than the difference after its
//! caller gave up could do harm; no request lives that long. The process that takes over looks into a
//! directory first, as the one that ended it would have done ([`crate::directories`]).
//!
//! **A removed file's parts are not forgotten**: before the object of its ended name is deleted, `g/ID` is
//! put, and it is deleted after the last part.

use crate::calls::Put;
use crate::format::{self, AtName, Id, NAMED_BYTES_MAX, Named, Place};
use crate::store::{Tag, When};
use crate::vfs::{Objects, Shared};
use crate::{AT_ONCE, PAGE_KEYS};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use shoal_env::{Instant, WallTime};
use shoal_proto::{Handle, Kind, Name, Owner, Status};
use shoal_vfs::{Error, Result};
use std::time::Duration;

/// Time for the steps of a removal or a move after the first.
pub(crate) const LEASE: Duration = Duration::from_secs(10);
/// A step that is not done after this time is another process's.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at a name that another process changes.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(10);
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(500);

/// The beginning of a lease, by both clocks: the first stands still while the machine is suspended.
#[derive(Clone, Copy)]
pub(crate) struct Begun(pub(crate) Instant, WallTime);

/// The object of a key of a name.
#[derive(Clone, Debug)]
pub(crate) enum At {
    /// There is none.
    Free,
    /// The name leads to it.
    Held(Named, Tag),
    /// The same; a process is moving it, and has not yet.
    Moving(Named, Tag),
    /// It was moved away, and the object of the name is left. `swap`: the object that the name leads to now
    /// (an exchange). `gone`: the file that the move replaced.
    Moved { tag: Tag, swap: Option<Named>, gone: Option<Id> },
    /// It was removed, and the object of the name is left. `gone`: the file that has no name any more. `dir`:
    /// the directory that is being removed; if it has entries, it gets its name again.
    Ended { tag: Tag, gone: Option<Id>, dir: Option<Box<Named>> },
}

/// The version of a name's object, if the object may be put anew on its condition. `None`: another process
/// moves it, and would lose that. It is settled first.
pub(crate) type Version = Option<Tag>;

impl Shared {
    /// The key of an object's name.
    pub(crate) fn key(&self, place: Option<&Place>) -> String {
        place.map_or_else(|| self.keys.root(), |place| self.keys.name(place))
    }

    fn unreadable(&self, op: &'static str, key: &str, why: &format::Unreadable) -> Error {
        Error::new(Status::Io, op).because(format!("the object {}/{key} is {why}", self.calls.called()))
    }

    async fn raw(&self, op: &'static str, key: &str) -> Result<Option<(AtName, Tag)>> {
        let Some(found) = self.calls.get(op, key, NAMED_BYTES_MAX as u64).await? else { return Ok(None) };
        let at = AtName::decode(&found.data).map_err(|why| self.unreadable(op, key, &why))?;
        Ok(Some((at, found.tag)))
    }

    /// The version of the object of a name, if that is this one.
    pub(crate) async fn version_of(
        &self,
        op: &'static str,
        place: &Place,
        id: Id,
    ) -> Result<Option<Version>> {
        Ok(match self.raw(op, &self.keys.name(place)).await? {
            Some((AtName::Named(at), tag)) if at.id == id => Some(Some(tag).filter(|_| at.claim.is_none())),
            _ => None,
        })
    }

    /// Look at a name.
    pub(crate) async fn at(&self, op: &'static str, place: Option<&Place>) -> Result<At> {
        let (mut named, tag) = match self.raw(op, &self.key(place)).await? {
            None => return Ok(At::Free),
            Some((AtName::Ended(id, dir), tag)) => {
                let gone = (id != Id::ROOT && dir.is_none()).then_some(id);
                return Ok(At::Ended { tag, gone, dir });
            }
            Some((AtName::Named(named), tag)) => (*named, tag),
        };
        let Some(claim) = named.claim.take() else { return Ok(At::Held(named, tag)) };
        // The move is done when its new name leads to the object.
        let is_moved = match self.raw(op, &self.keys.name(&claim.to)).await? {
            Some((AtName::Named(at), _)) => at.id == named.id,
            _ => false,
        };
        Ok(match is_moved {
            true => At::Moved { tag, swap: claim.swap.map(|swap| *swap), gone: claim.replaced },
            false => At::Moving(named, tag),
        })
    }

    /// The object that a name leads to.
    pub(crate) async fn find(
        &self,
        op: &'static str,
        place: Option<&Place>,
    ) -> Result<Option<(Named, Version)>> {
        Ok(match self.at(op, place).await? {
            At::Free | At::Ended { .. } => None,
            At::Held(named, tag) => Some((named, Some(tag))),
            At::Moving(named, _) => Some((named, None)),
            At::Moved { swap, .. } => swap.map(|named| (named, None)),
        })
    }

    /// The same, when no process is moving or removing it: it may be changed if it is still that version.
    pub(crate) async fn settled(
        &self,
        op: &'static str,
        place: Option<&Place>,
    ) -> Result<Option<(Named, Tag)>> {
        let mut since: Option<(Tag, Instant)> = None;
        let (mut pause, begun) = (LOOK_PAUSE_MIN, self.env.now());
        loop {
            self.calls.may_repeat(op, &self.key(place), begun, PATIENCE)?;
            let at = self.at(op, place).await?;
            let tag = match &at {
                At::Free => return Ok(None),
                At::Held(named, tag) => return Ok(Some((named.clone(), tag.clone()))),
                At::Moving(_, tag) | At::Moved { tag, .. } | At::Ended { tag, .. } => tag.clone(),
            };
            let now = self.env.now();
            match &since {
                Some((known, begun)) if *known == tag => {
                    if now >= *begun + PATIENCE {
                        self.finish(op, place, at).await?;
                        continue;
                    }
                }
                _ => since = Some((tag, now)),
            }
            self.env.sleep(pause).await;
            pause = (pause * 2).min(LOOK_PAUSE_MAX);
        }
    }

    /// The object is about to lose the name `place`, in this version. A claim that is left at the name before
    /// would revive then: so it is finished first. Whether to go on; otherwise the name changed meanwhile.
    ///
    /// # Errors
    /// `Stale`: both names lead to the object, as its move is being taken back. It keeps the one before.
    pub(crate) async fn leaves(
        &self,
        op: &'static str,
        place: &Place,
        named: &Named,
        tag: &Tag,
    ) -> Result<bool> {
        let Some(from) = &named.moved_from else { return Ok(true) };
        let is_at = |found: Option<(Named, Tag)>| found.filter(|(there, _)| there.id == named.id);
        if is_at(self.settled(op, Some(from)).await?).is_none() {
            return Ok(true);
        }
        // Another process may have moved it back there since this one looked.
        let now = is_at(self.settled(op, Some(place)).await?);
        if now.is_none_or(|(_, now)| now != *tag) {
            return Ok(false);
        }
        let words =
            "its move is being taken back, as another process removed this directory: look it up again";
        Err(Error::new(Status::Stale, op).because(words))
    }

    /// Finish, or give up, the step of a process that ended.
    async fn finish(&self, op: &'static str, place: Option<&Place>, at: At) -> Result<()> {
        let key = self.key(place);
        let (tag, gone, dir) = match at {
            // It can be moved no more: the version that its process knows is gone.
            At::Moving(named, tag) | At::Moved { tag, swap: Some(named), .. } => {
                return self.calls.put(op, &key, self.object(&named), When::Is(tag)).await.map(drop);
            }
            At::Moved { tag, swap: None, gone } => (tag, gone, None),
            At::Ended { tag, gone, dir } => (tag, gone, dir),
            At::Free | At::Held(..) => return Ok(()),
        };
        let mut left = Vec::new();
        if let Some(dir) = &dir {
            let Some(found) = self.left_in(op, dir.id).await? else {
                return self.calls.put(op, &key, self.object(dir), When::Is(tag)).await.map(drop);
            };
            left = found;
        }
        if let Some(gone) = gone {
            self.mark_going(op, gone).await?;
        }
        // Of several that wait one deletes it: the others see another version, and wait again.
        let begun = self.begin();
        let ended = format::ended(Id::ROOT, Id::draw(&self.env), None);
        if let Put::Done(_) = self.calls.put(op, &key, ended, When::Is(tag)).await?
            && let Some(place) = place
        {
            self.clear(op, place, begun).await;
            if let Some(dir) = dir {
                self.sweep(op, dir.id, left).await;
            }
        }
        Ok(())
    }

    /// A file with parts has no name any more.
    pub(crate) async fn mark_going(&self, op: &'static str, file: Id) -> Result<()> {
        let text = Bytes::from_static(b"the parts of this file are to be removed\n");
        self.calls.put(op, &self.keys.going(file), text, When::Absent).await.map(drop)
    }

    /// The same, of a call that a program waits for.
    pub(crate) async fn remove_parts_in_time(&self, op: &'static str, file: Id) -> Result<()> {
        let removed = self.env.deadline(self.calls.deadline(), self.remove_parts(op, file)).await;
        removed.unwrap_or_else(|_| Err(Error::new(Status::TimedOut, op).because("it has many parts")))
    }

    /// Remove the parts of a file without a name. Each is removed once: so this has an end, also where a
    /// store answers removals and does not do them.
    pub(crate) async fn remove_parts(&self, op: &'static str, file: Id) -> Result<()> {
        let mut after = None::<String>;
        loop {
            let page = self.calls.list(op, &self.keys.parts(file), after.as_deref(), PAGE_KEYS).await?;
            // An object of another program stays.
            let parts = page.found.iter().filter(|meta| self.keys.part_of(file, &meta.key).is_some());
            let removed = parts.map(|meta| self.calls.delete(op, &meta.key));
            stream::iter(removed).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
            if !page.has_more {
                return self.calls.delete(op, &self.keys.going(file)).await;
            }
            after = page.found.last().map(|meta| meta.key.clone());
        }
    }

    /// Take a name from its object, if that is still of this version; whether it was. `gone`: the object, if
    /// it has no name then.
    pub(crate) async fn end(
        &self,
        op: &'static str,
        place: &Place,
        gone: Id,
        tag: Tag,
    ) -> Result<Option<Tag>> {
        let key = self.keys.name(place);
        let ended = format::ended(gone, Id::draw(&self.env), None);
        match self.calls.put(op, &key, ended, When::Is(tag)).await? {
            Put::Done(tag) => Ok(Some(tag)),
            Put::Refused => Ok(None),
        }
    }

    /// A lease begins.
    pub(crate) fn begin(&self) -> Begun {
        Begun(self.env.now(), self.env.wall())
    }

    /// The end of a lease; `None`: it is over, by one of the clocks.
    pub(crate) fn lease(&self, Begun(at, wall): Begun) -> Option<Instant> {
        let (until, passed) = (at + LEASE, self.env.wall().0.abs_diff(wall.0));
        (self.env.now() < until && u128::from(passed) < LEASE.as_nanos()).then_some(until)
    }

    /// Delete the object of a name that this process ended or moved away, `begun` then.
    pub(crate) async fn clear(&self, op: &'static str, place: &Place, begun: Begun) {
        if let Some(deadline) = self.lease(begun)
            && let Err(error) = self.calls.delete_once(op, &self.keys.name(place), deadline).await
        {
            tracing::debug!("a name that was removed is left for the next that makes it: {error}");
        }
    }

    /// The directory of a handle, to look for entries in it.
    pub(crate) fn directory(&self, op: &'static str, dir: Handle) -> Result<Id> {
        let mut nodes = self.nodes.borrow_mut();
        match nodes.get(dir) {
            Some(node) if node.is_gone => Err(Error::new(Status::Stale, op).of(dir)),
            Some(node) if node.kind != Kind::Directory => Err(Error::new(Status::NotDirectory, op).of(dir)),
            Some(node) => Ok(node.id),
            None => Err(Error::new(Status::Stale, op).of(dir)),
        }
    }

    pub(crate) fn place(&self, op: &'static str, dir: Handle, name: &Name) -> Result<Place> {
        Ok(Place { dir: self.directory(op, dir)?, name: name.clone() })
    }

    /// A new object of this owner in a directory, whose group it may get.
    pub(crate) fn new_named(&self, kind: Kind, dir: Handle, owner: Owner) -> Named {
        let group = self.nodes.borrow_mut().get(dir).and_then(|node| node.group);
        let mode = owner.mode | if group.is_some() && kind == Kind::Directory { 0o2000 } else { 0 };
        let owner = Owner { mode, gid: group.unwrap_or(owner.gid), ..owner };
        Named::new(kind, Id::draw(&self.env), owner, self.now())
    }

    /// Give a new object its name. If an answer was lost, another process may have moved or removed the
    /// object since: then the next try has an id of its own, so that no object gets two names. And another
    /// process may have written it: so the version is not the one that was put, and is not returned.
    ///
    /// # Errors
    /// `Exists`.
    pub(crate) async fn make(&self, op: &'static str, place: &Place, named: &mut Named) -> Result<Version> {
        let (key, begun, deadline) = (self.keys.name(place), self.env.now(), self.calls.deadline());
        let mut tried = Vec::new();
        loop {
            self.calls.may_repeat(op, &key, begun, PATIENCE)?;
            let put = self.calls.put_once(op, &key, self.object(named), When::Absent).await?;
            let is_answered = put.is_some();
            let made = match put {
                Some(Put::Done(tag)) => Some(Some(tag)),
                Some(Put::Refused) => None,
                None => self.version_of(op, place, named.id).await?,
            };
            if let Some(tag) = made {
                self.made_in(op, place, named, tag.as_ref()).await?;
                return Ok(tag.filter(|_| is_answered));
            }
            if !is_answered {
                tried.push(named.id);
            }
            named.id = Id::draw(&self.env);
            if let Some((there, tag)) = self.settled(op, Some(place)).await? {
                if !tried.contains(&there.id) {
                    return Err(Error::new(Status::Exists, op));
                }
                // An earlier try was done late.
                named.id = there.id;
                self.made_in(op, place, &there, Some(&tag)).await?;
                return Ok(None);
            }
            if !is_answered && self.env.now() >= deadline {
                return Err(self.calls.silent(op, &key));
            }
            // After an answer another process removed the name meanwhile.
            let pause =
                if is_answered { 1 + self.env.random_u64() % 10 } else { 50 + self.env.random_u64() % 100 };
            self.env.sleep(Duration::from_millis(pause)).await;
        }
    }

    /// Remove a name that leads to no directory.
    pub(crate) async fn unlink(&self, dir: Handle, name: &Name) -> Result<()> {
        let op = "unlink";
        let (place, begun) = (self.place(op, dir, name)?, self.env.now());
        loop {
            self.calls.may_repeat(op, &self.keys.name(&place), begun, PATIENCE)?;
            let found = self.settled(op, Some(&place)).await?;
            let (named, tag) = found.ok_or_else(|| Error::new(Status::NotFound, op).of(dir))?;
            if named.kind == Kind::Directory {
                return Err(Error::new(Status::IsDirectory, op).of(dir));
            }
            if !self.leaves(op, &place, &named, &tag).await? {
                continue;
            }
            let _turns = self.turns_of(vec![named.id]).await;
            let begun = self.begin();
            if self.end(op, &place, named.id, tag).await?.is_none() {
                continue;
            }
            self.nodes.borrow_mut().changed(place.dir, self.now());
            let is_marked = self.lost_name(op, &named).await;
            if is_marked {
                self.clear(op, &place, begun).await;
            }
            return Ok(());
        }
    }

    /// An object has no name any more: whether all that must be said of it is said. Its parts are removed
    /// now, or with its last close.
    pub(crate) async fn lost_name(&self, op: &'static str, named: &Named) -> bool {
        let (handle, body) = {
            let mut nodes = self.nodes.borrow_mut();
            let handle = nodes.known(named.id);
            nodes.removed(named);
            (handle, handle.and_then(|handle| nodes.body(handle)))
        };
        let has_parts = body.as_ref().is_some_and(|body| body.lost_name()) || named.has_parts;
        let marked = if has_parts { self.mark_going(op, named.id).await } else { Ok(()) };
        let is_marked = marked.is_ok();
        let is_open = body.is_some();
        let removed = match (marked, has_parts && !is_open) {
            (Ok(()), true) => self.remove_parts_in_time(op, named.id).await,
            (marked, _) => marked,
        };
        if let Err(error) = removed {
            tracing::warn!(
                "parts of a removed file are left (`shoal container recover` removes them): {error}"
            );
        }
        let listener = self.removals.borrow().clone();
        if let (Some(listener), Some(handle)) = (listener, handle) {
            listener(handle);
        }
        is_marked
    }
}

impl Objects {
    /// Make an object that is no directory and no file of this process.
    pub(crate) async fn make_named(
        &self,
        op: &'static str,
        dir: Handle,
        name: &Name,
        named: &mut Named,
    ) -> Result<(Handle, Version)> {
        let (place, asked) = (self.0.place(op, dir, name)?, self.0.moment());
        let tag = self.0.make(op, &place, named).await.map_err(|error| error.of(dir))?;
        Ok((self.0.nodes.borrow_mut().saw(named, Some(&place), asked), tag))
    }
}
