//! Handles of objects in domains, as callers of [`Followed`](super::Followed) see them. A *domain* is a
//! directory with a layout, and all in it (see [`super`]).
//!
//! ```text
//!   63 62 61                                             0
//!    0  .  server and counter                                an object of the file system below
//!    1  0  server and counter                                in a directory of containers: the object below
//!    1  1  hash of the domain's root and the object          in a composed directory
//! ```
//! Servers have numbers below 2^14, so the two highest bits of a handle of a ShoalFS are clear. In a
//! directory of containers, each object is one object of the file system below. Its handle is the handle
//! of that object with bit 63 set. So all processes use the same handle, at all times. In a
//! composed directory an object's number has 63 bits, and only 62 bits of a handle are free, so the handle
//! is a hash. Two objects with the same hash get different numbers, as long as both are known.
//!
//! **The table of known objects is bounded.** It keeps the objects that were seen last. It also keeps all
//! open files, and all objects to which a kernel refers. Calls on them carry only the handle, and no
//! look-up of a name comes before. If a directory or a container is not in the table, its domain is found
//! by its parents. Symbolic links and special files have no recorded parent, and objects of a composed
//! directory have only a hash. Their handles are `Stale`, until a look-up of the name finds the object
//! again.

use super::Followed;
use super::domain::{Domain, Layout};
use crate::limits::FOLLOWED_OBJECTS_MAX;
use lru::LruCache;
use shoal_proto::{Handle, Kind, Status, limits};
use shoal_vfs::{Error, Result, Vfs};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// The bit of an object in a domain.
const INSIDE: u64 = 1 << 63;
/// With it: in a composed directory.
const COMPOSED: u64 = 1 << 62;
/// The remaining bits.
const NUMBER: u64 = COMPOSED - 1;

/// An object in a domain: the domain's root, and the handle there.
pub(super) type Place = (Handle, Handle);

/// The places of objects, by their handles outside.
pub(super) struct Handles {
    /// Those that were seen last.
    seen: LruCache<Handle, Place>,
    /// Those to which something refers, and how often.
    referred: HashMap<Handle, (Place, u64)>,
}

impl Default for Handles {
    fn default() -> Handles {
        Handles { seen: LruCache::unbounded(), referred: HashMap::new() }
    }
}

impl Handles {
    fn put(&mut self, outside: Handle, place: Place) {
        if self.referred.contains_key(&outside) {
            return;
        }
        self.seen.put(outside, place);
        if self.seen.len() > FOLLOWED_OBJECTS_MAX {
            self.seen.pop_lru();
        }
    }

    fn get(&mut self, outside: Handle) -> Option<Place> {
        match self.referred.get(&outside) {
            Some((place, _)) => Some(*place),
            None => self.seen.get(&outside).copied(),
        }
    }

    /// A number for an object of a composed directory.
    fn number(&self, place: Place) -> Handle {
        let known = |outside: &Handle| {
            let referred = self.referred.get(outside).map(|(place, _)| *place);
            referred.or_else(|| self.seen.peek(outside).copied())
        };
        let mut number = hash(place.0.0 ^ hash(place.1.0)) & NUMBER;
        loop {
            let outside = Handle(INSIDE | COMPOSED | number);
            if known(&outside).is_none_or(|known| known == place) {
                return outside;
            }
            number = (number + 1) & NUMBER;
        }
    }

    /// Something refers to an object that was just seen.
    pub(super) fn referred(&mut self, outside: Handle) {
        if let Some((_, count)) = self.referred.get_mut(&outside) {
            *count += 1;
        } else if let Some(place) = self.seen.pop(&outside) {
            self.referred.insert(outside, (place, 1));
        }
    }

    /// So many references ended.
    pub(super) fn forgotten(&mut self, outside: Handle, references: u64) {
        let Some((place, count)) = self.referred.get_mut(&outside) else { return };
        *count = count.saturating_sub(references);
        if *count == 0 {
            let place = *place;
            self.referred.remove(&outside);
            self.put(outside, place);
        }
    }
}

/// A reference to an object, as long as it lives.
pub(super) struct Reference {
    handles: Rc<RefCell<Handles>>,
    outside: Handle,
}

impl Reference {
    pub(super) fn new(handles: &Rc<RefCell<Handles>>, outside: Handle) -> Reference {
        handles.borrow_mut().referred(outside);
        Reference { handles: handles.clone(), outside }
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        self.handles.borrow_mut().forgotten(self.outside, 1);
    }
}

/// Spread all bits over all (the finalizer of SplitMix64).
fn hash(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Whether an object is in a domain.
pub(super) fn is_inside(object: Handle) -> bool {
    object.0 & INSIDE != 0
}

impl<B: Vfs> Followed<B> {
    /// The handle outside of an object in a domain.
    pub(super) fn handle(&self, domain: &Domain<B>, inner: Handle) -> Handle {
        if inner == Handle::ROOT {
            return domain.root;
        }
        let (place, mut handles) = ((domain.root, inner), self.0.handles.borrow_mut());
        let outside = match &domain.layout {
            Layout::Container(_) => Handle(inner.0 | INSIDE),
            Layout::Composed(_) => handles.number(place),
        };
        handles.put(outside, place);
        outside
    }

    /// Where an object in a domain is, if that is known.
    pub(super) fn known_place(&self, object: Handle) -> Option<Place> {
        self.0.handles.borrow_mut().get(object)
    }

    /// Where an object in a domain is.
    pub(super) async fn place(&self, object: Handle) -> Result<Place> {
        if let Some(place) = self.known_place(object) {
            return Ok(place);
        }
        let stale = || Error::new(Status::Stale, "look up").of(object);
        if object.0 & COMPOSED != 0 {
            return Err(stale());
        }
        let below = Handle(object.0 & !INSIDE);
        let mut at = below;
        for _ in 0..limits::PATH_COMPONENTS_MAX {
            let attr = self.0.over.getattr(at).await?;
            // Only directories know their parents.
            if attr.kind != Kind::Directory || attr.parent == at {
                break;
            }
            at = attr.parent;
            if self.0.roots.borrow().contains_key(&at) {
                self.0.handles.borrow_mut().put(object, (at, below));
                return Ok((at, below));
            }
        }
        Err(stale())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_objects_of_one_hash_have_numbers_of_their_own_and_keep_them() {
        let mut handles = Handles::default();
        let (one, other) = ((Handle(7), Handle(8)), (Handle(9), Handle(10)));
        let number = handles.number(one);
        // The place of `one` is taken by another object.
        handles.put(number, other);
        let next = handles.number(one);
        assert_ne!(number, next);
        handles.put(next, one);
        assert_eq!(handles.number(one), next);
        assert!(is_inside(next) && is_inside(number));
    }

    #[test]
    fn the_table_of_objects_is_bounded_and_forgets_the_one_that_was_not_seen_longest() {
        let mut handles = Handles::default();
        for number in 0..FOLLOWED_OBJECTS_MAX as u64 + 3 {
            handles.put(Handle(INSIDE | number), (Handle(1), Handle(number)));
        }
        assert_eq!(handles.seen.len(), FOLLOWED_OBJECTS_MAX);
        assert!(handles.seen.peek(&Handle(INSIDE)).is_none());
    }

    #[test]
    fn objects_to_which_something_refers_stay_in_the_table_until_the_last_reference_ends() {
        let handles = Rc::new(RefCell::new(Handles::default()));
        let (outside, place) = (Handle(INSIDE | COMPOSED | 7), (Handle(1), Handle(7)));
        handles.borrow_mut().put(outside, place);
        let file = Reference::new(&handles, outside);
        handles.borrow_mut().referred(outside);
        let flood = || {
            for number in 0..FOLLOWED_OBJECTS_MAX as u64 + 1 {
                handles.borrow_mut().put(Handle(INSIDE | 1 << 40 | number), (Handle(1), Handle(number)));
            }
        };
        flood();
        assert_eq!(handles.borrow_mut().get(outside), Some(place));
        drop(file);
        flood();
        assert_eq!(handles.borrow_mut().get(outside), Some(place), "a kernel refers to it");
        handles.borrow_mut().forgotten(outside, 1);
        assert_eq!(handles.borrow_mut().get(outside), Some(place), "it was seen last");
        flood();
        assert_eq!(handles.borrow_mut().get(outside), None);
    }

    #[test]
    fn no_handle_of_a_server_looks_like_one_of_a_domain() {
        let last = shoal_proto::ServerId(limits::SERVERS_MAX as u16);
        assert!(!is_inside(Handle::new(last, Handle::COUNTER_MAX)));
    }
}
