//! The known objects: their handles, and the places by which they are found again.
//!
//! A handle is the first 63 bits of the object's id, or the next free number. An object is known while a
//! kernel refers to it, while it is open here, and then until there are too many others. It is found by its
//! name: one that another process moved is `Stale` until its new name is looked up.

use crate::file::Body;
use crate::format::{Id, Named, Place};
use lru::LruCache;
use shoal_proto::{Handle, Kind, Time};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Objects kept that are not in use.
const IDLE_MAX: usize = 64 * 1024;
/// Handles below are the root's, and a mount's own.
const HANDLE_MIN: u64 = 1 << 20;
const SET_GROUP_ID: u32 = 0o2000;

/// A known object.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) id: Id,
    pub(crate) kind: Kind,
    /// Its newest known name; none: it was removed, or is known as a parent only.
    pub(crate) place: Option<Place>,
    /// The group of new entries, of a directory whose entries have its own.
    pub(crate) group: Option<u32>,
    /// When entries of a directory changed here last, since its times were set.
    pub(crate) changed: Option<Time>,
    /// It was removed here.
    pub(crate) is_gone: bool,
    references: u64,
    body: Option<Rc<Body>>,
}

/// See the module.
pub(crate) struct Nodes {
    known: BTreeMap<Handle, Node>,
    by_id: HashMap<Id, Handle>,
    idle: LruCache<Handle, ()>,
}

impl Nodes {
    pub(crate) fn new() -> Nodes {
        let mut nodes = Nodes { known: BTreeMap::new(), by_id: HashMap::new(), idle: LruCache::unbounded() };
        nodes.add(Handle::ROOT, Id::ROOT, Kind::Directory);
        nodes
    }

    fn add(&mut self, handle: Handle, id: Id, kind: Kind) {
        let node = Node {
            id,
            kind,
            place: None,
            group: None,
            changed: None,
            is_gone: false,
            references: u64::from(handle == Handle::ROOT),
            body: None,
        };
        self.known.insert(handle, node);
        self.by_id.insert(id, handle);
        self.settle(handle);
    }

    /// The handle of an object, which is known from now on.
    pub(crate) fn handle_of(&mut self, id: Id, kind: Kind) -> Handle {
        if let Some(handle) = self.by_id.get(&id) {
            return *handle;
        }
        let [a, b, c, d, e, f, g, h, ..] = id.0;
        let mut number = (u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1).max(HANDLE_MIN);
        while self.known.contains_key(&Handle(number)) {
            number += 1;
        }
        self.add(Handle(number), id, kind);
        Handle(number)
    }

    /// An object was seen at a place; `None`: the root, which has none.
    pub(crate) fn saw(&mut self, named: &Named, place: Option<&Place>) -> Handle {
        let handle = self.handle_of(named.id, named.kind);
        if let Some(node) = self.known.get_mut(&handle) {
            node.kind = named.kind;
            node.place = place.cloned();
            node.is_gone = false;
            node.group = (named.mode & SET_GROUP_ID != 0).then_some(named.gid);
        }
        self.settle(handle);
        handle
    }

    pub(crate) fn get(&mut self, handle: Handle) -> Option<&mut Node> {
        let _ = self.idle.get(&handle);
        self.known.get_mut(&handle)
    }

    pub(crate) fn by_id(&mut self, id: Id) -> Option<&mut Node> {
        let handle = *self.by_id.get(&id)?;
        self.known.get_mut(&handle)
    }

    /// Its handle, if it is known.
    pub(crate) fn known(&self, id: Id) -> Option<Handle> {
        self.by_id.get(&id).copied()
    }

    /// Whether a directory is `above`, or lies below it, as far as is known.
    pub(crate) fn is_within(&self, mut dir: Id, above: Id) -> bool {
        for _ in 0..shoal_proto::limits::PATH_COMPONENTS_MAX {
            if dir == above {
                return true;
            }
            let place = self.by_id.get(&dir).and_then(|handle| self.known.get(handle)?.place.as_ref());
            let Some(place) = place else { return false };
            dir = place.dir;
        }
        false
    }

    /// Entries of a directory changed.
    pub(crate) fn changed(&mut self, dir: Id, now: Time) {
        if let Some(node) = self.by_id(dir) {
            node.changed = Some(now);
        }
    }

    /// The open file of an object.
    pub(crate) fn body(&self, handle: Handle) -> Option<Rc<Body>> {
        self.known.get(&handle)?.body.clone()
    }

    pub(crate) fn set_body(&mut self, handle: Handle, body: Option<Rc<Body>>) {
        if let Some(node) = self.known.get_mut(&handle) {
            node.body = body;
        }
        self.settle(handle);
    }

    /// All open files.
    pub(crate) fn bodies(&self) -> Vec<Rc<Body>> {
        self.known.values().filter_map(|node| node.body.clone()).collect()
    }

    pub(crate) fn referred(&mut self, handle: Handle) {
        if let Some(node) = self.known.get_mut(&handle) {
            node.references += 1;
        }
        self.settle(handle);
    }

    pub(crate) fn forgotten(&mut self, handle: Handle, answers: u64) {
        if let Some(node) = self.known.get_mut(&handle)
            && handle != Handle::ROOT
        {
            node.references = node.references.saturating_sub(answers);
        }
        self.settle(handle);
    }

    /// Keep it, or put it among those that may be forgotten, as the one used last.
    fn settle(&mut self, handle: Handle) {
        let Some(node) = self.known.get(&handle) else { return };
        if node.references > 0 || node.body.is_some() {
            self.idle.pop(&handle);
            return;
        }
        self.idle.push(handle, ());
        while self.idle.len() > IDLE_MAX
            && let Some((oldest, ())) = self.idle.pop_lru()
            && let Some(node) = self.known.remove(&oldest)
        {
            self.by_id.remove(&node.id);
        }
    }
}
