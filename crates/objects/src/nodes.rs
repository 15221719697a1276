//! The known objects: their handles, and the places by which they are found again.
//!
//! A handle is the first 63 bits of the object's id, or the next free number. An object is known while a
//! kernel refers to it, while it is open here, while the place of a known object is in it, and then until
//! there are too many others. It is found by its name: one that another process moved is `Stale` until its
//! new name is looked up.
//!
//! **A look at the store that began before a move or a removal here does not change where the object is.**
//! Its answer may arrive, or be used, after them. So moves and removals are counted, a look knows the count
//! at its beginning ([`Nodes::moment`]), and an object the one of its last move or removal. Closes are
//! counted, too: an open whose look began before the last close looks again.

use crate::file::Body;
use crate::format::{Id, Named, Place};
use lru::LruCache;
use shoal_proto::{Handle, Kind, Time};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Objects kept that are not in use. Tests of this module keep fewer.
const IDLE_MAX: usize = if cfg!(test) { 16 << 10 } else { 64 << 10 };
/// Objects that one call forgets, at most.
const FORGOTTEN_AT_ONCE: usize = 4;
/// Handles below are the root's, and a mount's own.
pub(crate) const HANDLE_MIN: u64 = 1 << 20;
const SET_GROUP_ID: u32 = 0o2000;

/// A known object.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) id: Id,
    pub(crate) kind: Kind,
    /// Its newest known name; none: it was removed, or is known as a parent only.
    place: Option<Place>,
    /// The moment of its last move or removal here.
    moved: u64,
    /// The moment of its last close here that had written it.
    closed: u64,
    /// Known objects whose place is in it.
    children: u64,
    /// The group of new entries, of a directory whose entries have its own.
    pub(crate) group: Option<u32>,
    /// When entries of a directory changed here last, since its times were set.
    pub(crate) changed: Option<Time>,
    /// It was removed here.
    pub(crate) is_gone: bool,
    references: u64,
    body: Option<Rc<Body>>,
}

impl Node {
    pub(crate) fn place(&self) -> Option<Place> {
        self.place.clone()
    }

    fn is_in_use(&self) -> bool {
        self.references > 0 || self.body.is_some() || self.children > 0
    }
}

/// See the module.
pub(crate) struct Nodes {
    /// Moves, removals and closes here so far.
    moments: u64,
    known: BTreeMap<Handle, Node>,
    by_id: HashMap<Id, Handle>,
    idle: LruCache<Handle, ()>,
}

impl Nodes {
    pub(crate) fn new() -> Nodes {
        let (moments, known) = (0, BTreeMap::new());
        let mut nodes = Nodes { moments, known, by_id: HashMap::new(), idle: LruCache::unbounded() };
        nodes.add(Handle::ROOT, Id::ROOT, Kind::Directory);
        nodes
    }

    fn add(&mut self, handle: Handle, id: Id, kind: Kind) {
        let node = Node {
            id,
            kind,
            place: None,
            moved: 0,
            closed: 0,
            children: 0,
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

    /// Moves, removals and closes here so far. A look at the store remembers it from before its first
    /// request.
    pub(crate) fn moment(&self) -> u64 {
        self.moments
    }

    /// Whether an object was moved or removed here after a look at it began.
    pub(crate) fn is_newer(&self, id: Id, asked: u64) -> bool {
        let node = self.by_id.get(&id).and_then(|handle| self.known.get(handle));
        node.is_some_and(|node| node.moved > asked)
    }

    /// An object was seen at a place by a look that began at `asked`; `None`: the root, which has none.
    pub(crate) fn saw(&mut self, named: &Named, place: Option<&Place>, asked: u64) -> Handle {
        let handle = self.handle_of(named.id, named.kind);
        if !self.is_newer(named.id, asked) {
            if let Some(node) = self.known.get_mut(&handle) {
                node.kind = named.kind;
                node.is_gone = false;
                node.group = (named.mode & SET_GROUP_ID != 0).then_some(named.gid);
            }
            self.set_place(handle, place.cloned());
        }
        self.settle(handle);
        handle
    }

    /// A directory is at a place, as a look says that began at `asked`.
    pub(crate) fn found(&mut self, dir: Id, place: &Place, asked: u64) {
        if let Some(handle) = self.known(dir)
            && !self.is_newer(dir, asked)
        {
            self.set_place(handle, Some(place.clone()));
        }
    }

    /// An object was moved here.
    pub(crate) fn moves(&mut self, named: &Named, place: &Place) -> Handle {
        self.moments += 1;
        let handle = self.saw(named, Some(place), self.moments);
        if let Some(node) = self.known.get_mut(&handle) {
            node.moved = self.moments;
        }
        handle
    }

    /// An object lost its name here.
    pub(crate) fn removed(&mut self, named: &Named) {
        self.moments += 1;
        let handle = self.handle_of(named.id, named.kind);
        if let Some(node) = self.known.get_mut(&handle) {
            (node.moved, node.is_gone) = (self.moments, true);
        }
        self.set_place(handle, None);
        self.settle(handle);
    }

    /// Its directory, and those above, are known as long as it is.
    fn set_place(&mut self, handle: Handle, place: Option<Place>) {
        let Some(node) = self.known.get_mut(&handle) else { return };
        let (id, former) = (node.id, std::mem::replace(&mut node.place, place.clone()));
        if former.as_ref().map(|place| place.dir) == place.as_ref().map(|place| place.dir) {
            return;
        }
        // It is not forgotten while its directory gets to be known.
        let _ = self.idle.pop(&handle);
        if let Some(place) = place.filter(|place| place.dir != id) {
            let parent = self.handle_of(place.dir, Kind::Directory);
            if let Some(parent) = self.known.get_mut(&parent) {
                parent.children += 1;
            }
            self.settle(parent);
        }
        if let Some(former) = former {
            self.has_left(id, &former);
        }
        self.keep_or_rest(handle);
    }

    /// An object is not in a directory any more, or is not known any more.
    fn has_left(&mut self, id: Id, place: &Place) {
        if let Some(parent) = self.known(place.dir).filter(|_| place.dir != id) {
            if let Some(parent) = self.known.get_mut(&parent) {
                parent.children -= 1;
            }
            self.keep_or_rest(parent);
        }
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

    /// The last open file of an object is closed. `has_written`: looks that began before show other bytes.
    pub(crate) fn closed(&mut self, handle: Handle, has_written: bool) {
        self.moments += u64::from(has_written);
        if let Some(node) = self.known.get_mut(&handle).filter(|_| has_written) {
            node.closed = self.moments;
        }
        self.set_body(handle, None);
    }

    /// Whether a file that was written here was closed after a look at it began.
    pub(crate) fn is_closed_since(&self, handle: Handle, asked: u64) -> bool {
        self.known.get(&handle).is_some_and(|node| node.closed > asked)
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
    fn keep_or_rest(&mut self, handle: Handle) {
        match self.known.get(&handle) {
            Some(node) if !node.is_in_use() => drop(self.idle.push(handle, ())),
            _ => drop(self.idle.pop(&handle)),
        }
    }

    /// The same, and forget some if there are too many. Each of them may leave a directory without use: so
    /// there may be more for a while, and a call forgets a few.
    fn settle(&mut self, handle: Handle) {
        self.keep_or_rest(handle);
        for _ in 0..FORGOTTEN_AT_ONCE {
            if self.idle.len() <= IDLE_MAX {
                return;
            }
            if let Some((oldest, ())) = self.idle.pop_lru()
                && let Some(node) = self.known.remove(&oldest)
            {
                self.by_id.remove(&node.id);
                if let Some(place) = &node.place {
                    self.has_left(node.id, place);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_proto::{Name, Owner};

    #[test]
    fn a_bounded_number_of_objects_is_known_also_where_each_has_a_directory_of_its_own() {
        let (mut nodes, owner) = (Nodes::new(), Owner { mode: 0, uid: 0, gid: 0 });
        let name = Name::new(b"x").unwrap();
        for number in 1..3 * IDLE_MAX as u64 {
            let mut id = [0; 16];
            let mut dir = Id::ROOT;
            for (depth, kind) in [(1, Kind::Directory), (2, Kind::Directory), (3, Kind::File)] {
                id[..8].copy_from_slice(&(number << 40 | depth << 30).to_be_bytes());
                let named = Named::new(kind, Id(id), owner, Time(0));
                nodes.saw(&named, Some(&Place { dir, name: name.clone() }), 0);
                dir = named.id;
            }
            assert!(nodes.known.len() <= 4 * IDLE_MAX, "{number}: {}", nodes.known.len());
        }
        let mut number = 0u128;
        while nodes.idle.len() < IDLE_MAX {
            number += 1;
            let named = Named::new(Kind::File, Id((number << 96 | 1).to_be_bytes()), owner, Time(0));
            nodes.saw(&named, Some(&Place { dir: Id::ROOT, name: name.clone() }), 0);
        }
        // The one that is forgotten next gets into a directory that is not known.
        let (oldest, _) = nodes.idle.peek_lru().unwrap();
        let named = Named::new(Kind::File, nodes.known[oldest].id, owner, Time(0));
        nodes.saw(&named, Some(&Place { dir: Id([0xff; 16]), name }), nodes.moment());
        assert_eq!(nodes.by_id(Id([0xff; 16])).map(|node| node.children), Some(1));
        // Those that are known lead to the root.
        for node in nodes.known.values() {
            if let Some(place) = &node.place {
                assert!(nodes.by_id.contains_key(&place.dir));
            }
        }
    }
}
