//! Attributes. They stand in the object of a name; a file with parts has its length and its time from the
//! listing of its parts.

use crate::calls::Put;
use crate::file::parts::Parts;
use crate::format::{Named, Place};
use crate::name_space::PATIENCE;
use crate::store::When;
use crate::vfs::Shared;
use shoal_proto::{Attr, Generation, Handle, Kind, SetAttr, Shards, Status, Template, Time};
use shoal_vfs::{Error, Result};
use std::time::Duration;

/// The size that a directory has.
const DIRECTORY_BYTES: u64 = 4096;

/// A file's length, and the time of its last part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Extent {
    pub(crate) len: u64,
    pub(crate) modified: Option<Time>,
}

/// Permission bits as a write by a user other than root leaves them.
fn without_privileges(mode: u32) -> u32 {
    let mode = mode & !0o4000;
    if mode & 0o010 != 0 { mode & !0o2000 } else { mode }
}

/// Change attributes of an object. `len`: of a file.
pub(crate) fn change(named: &mut Named, set: &SetAttr, len: u64, now: Time) {
    let has_owner = set.uid.is_some() || set.gid.is_some();
    (named.uid, named.gid) = (set.uid.unwrap_or(named.uid), set.gid.unwrap_or(named.gid));
    match set.mode {
        Some(mode) => named.mode = mode & 0o7777,
        None if (has_owner || set.kill_privileges) && named.kind == Kind::File => {
            named.mode = without_privileges(named.mode);
        }
        None => {}
    }
    named.atime = set.atime.unwrap_or(named.atime);
    if let Some(mtime) = set.mtime {
        (named.mtime, named.mtime_of) = (mtime, len);
    }
    named.ctime = now;
}

impl Named {
    /// This object, made of `before` by changes that are not published, with those that other processes made
    /// to `before` meanwhile: `now`. A field that was changed here is as it is here.
    pub(crate) fn with_changes(&self, before: &Named, now: &Named) -> Named {
        fn newer<T: Copy + PartialEq>(here: T, before: T, now: T) -> T {
            if here == before { now } else { here }
        }
        let time = |named: &Named| (named.mtime, named.mtime_of);
        let (mtime, mtime_of) = newer(time(self), time(before), time(now));
        Named {
            mode: newer(self.mode, before.mode, now.mode),
            uid: newer(self.uid, before.uid, now.uid),
            gid: newer(self.gid, before.gid, now.gid),
            atime: newer(self.atime, before.atime, now.atime),
            mtime,
            mtime_of,
            ctime: self.ctime.max(now.ctime),
            moved_from: now.moved_from.clone(),
            ..self.clone()
        }
    }
}

/// The attributes of an object. `parent`: of a directory.
pub(crate) fn attr_of(named: &Named, handle: Handle, parent: Handle, extent: Extent) -> Attr {
    let is_dir = named.kind == Kind::Directory;
    let newer = extent.modified.filter(|_| named.has_parts && named.mtime_of != extent.len);
    let size = match named.kind {
        Kind::File => extent.len,
        Kind::Directory => DIRECTORY_BYTES,
        _ => named.content.len() as u64,
    };
    Attr {
        handle,
        kind: named.kind,
        mode: named.mode,
        uid: named.uid,
        gid: named.gid,
        nlink: 1,
        rdev: named.rdev,
        size,
        space: if is_dir { 0 } else { size.next_multiple_of(512) },
        atime: named.atime,
        mtime: newer.unwrap_or(named.mtime),
        ctime: newer.map_or(named.ctime, |newer| newer.max(named.ctime)),
        btime: named.btime,
        generation: Generation(0),
        parent: if is_dir { parent } else { Handle(0) },
        template: Template::default(),
        layout: None,
        shards: Shards::WHOLE,
    }
}

impl Shared {
    /// The attributes of an object as its name's object says them, which a look found that began at `asked`.
    pub(crate) async fn seen(
        &self,
        op: &'static str,
        named: &Named,
        place: Option<&Place>,
        asked: u64,
    ) -> Result<Attr> {
        let (handle, body) = {
            let mut nodes = self.nodes.borrow_mut();
            let handle = nodes.saw(named, place, asked);
            (handle, nodes.body(handle))
        };
        // Bytes that this process wrote are known here only.
        if let Some(body) = body.filter(|body| body.has_written()) {
            return Ok(body.attr());
        }
        let mut extent = Extent { len: named.content.len() as u64, modified: None };
        if named.kind == Kind::File && named.has_parts {
            extent = Parts::read(self, op, named).await?.extent();
        }
        Ok(self.attr(named, handle, place, extent))
    }

    pub(crate) fn attr(&self, named: &Named, handle: Handle, place: Option<&Place>, extent: Extent) -> Attr {
        let mut nodes = self.nodes.borrow_mut();
        let parent = place.map_or(Handle::ROOT, |place| nodes.handle_of(place.dir, Kind::Directory));
        let mut attr = attr_of(named, handle, parent, extent);
        if let Some(changed) = nodes.get(handle).and_then(|node| node.changed) {
            (attr.mtime, attr.ctime) = (attr.mtime.max(changed), attr.ctime.max(changed));
        }
        attr
    }

    /// The place of a known object that has a name. `None`: it is the root.
    pub(crate) fn place_of(&self, op: &'static str, object: Handle) -> Result<Option<Place>> {
        if object == Handle::ROOT {
            return Ok(None);
        }
        let place = self.nodes.borrow_mut().get(object).and_then(|node| node.place());
        place.map(Some).ok_or_else(|| Error::new(Status::Stale, op).of(object))
    }

    /// The moment at which a look at the store begins.
    pub(crate) fn moment(&self) -> u64 {
        self.nodes.borrow().moment()
    }

    /// Whether an object that was found at a place is the one of a handle.
    pub(crate) fn is_it(&self, object: Handle, named: &Named) -> bool {
        object == Handle::ROOT || self.nodes.borrow().known(named.id) == Some(object)
    }

    pub(crate) async fn getattr(&self, object: Handle) -> Result<Attr> {
        let op = "getattr";
        let body = self.nodes.borrow().body(object);
        if let Some(body) = body.filter(|body| body.is_unlinked()) {
            return Ok(body.attr());
        }
        let (place, asked) = (self.place_of(op, object)?, self.moment());
        match self.find(op, place.as_ref()).await? {
            Some((named, _)) if self.is_it(object, &named) => {
                self.seen(op, &named, place.as_ref(), asked).await
            }
            _ => Err(Error::new(Status::Stale, op).of(object)),
        }
    }

    pub(crate) async fn setattr(&self, object: Handle, set: SetAttr) -> Result<Attr> {
        let op = "setattr";
        let body = self.nodes.borrow().body(object);
        if let Some(body) = body.filter(|body| body.is_ahead()) {
            return body.set_attributes(&set).await;
        }
        let (place, asked) = (self.place_of(op, object)?, self.moment());
        let (key, begun) = (self.key(place.as_ref()), self.env.now());
        loop {
            self.calls.may_repeat(op, &key, begun, PATIENCE)?;
            let found = self.settled(op, place.as_ref()).await?;
            let Some((mut named, tag)) = found.filter(|(named, _)| self.is_it(object, named)) else {
                return Err(Error::new(Status::Stale, op).of(object));
            };
            let _turns = self.turns_of(vec![named.id]).await;
            let mut len = named.content.len() as u64;
            if named.has_parts && set.mtime.is_some() {
                len = Parts::read(self, op, &named).await?.extent().len;
            }
            change(&mut named, &set, len, self.now());
            if let Put::Done(tag) = self.calls.put(op, &key, self.object(&named), When::Is(tag)).await? {
                let body = self.nodes.borrow().body(object);
                body.iter().for_each(|body| body.changed(&set, &named, &tag));
                if set.mtime.is_some()
                    && let Some(node) = self.nodes.borrow_mut().get(object)
                {
                    node.changed = None;
                }
                return self.seen(op, &named, place.as_ref(), asked).await;
            }
            // Several processes that change it take turns.
            self.env.sleep(Duration::from_millis(1 + self.env.random_u64() % 30)).await;
        }
    }
}
