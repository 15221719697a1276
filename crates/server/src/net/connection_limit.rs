//! The number of connections of a server.
//!
//! Each connection takes a descriptor and some memory, even if it never authenticates. So their number is
//! limited, below the process's limit of open files, which leaves descriptors for the files of the store.
//! Further connections are refused with an error that names the limit. Connections in their handshake have at
//! most half of the places. When this half or all places are taken, the oldest handshake is ended to make
//! room for a new connection. **So many connections that never authenticate cannot keep others out.**

use shoal_env::local::Notify;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The number of connections that are refused with an error at a time; more are closed without one.
const REFUSALS_MAX: usize = 64;

/// The places of a server.
pub struct Places {
    max: usize,
    taken: Cell<usize>,
    refused: Cell<usize>,
    next: Cell<u64>,
    /// In their handshake, in order of their coming.
    greeting: RefCell<BTreeMap<u64, Rc<Evicted>>>,
}

/// Whether a connection in its handshake must make way.
#[derive(Default)]
struct Evicted {
    told: Cell<bool>,
    notify: Notify,
}

/// The result for a new connection.
pub enum ConnectionAdmission {
    /// A place, for its handshake and then for as long as it lives.
    Place(Place),
    /// No place, but the refusal may be sent.
    Refused(RefusedEntry),
    /// None.
    Nothing,
}

/// A place; given back when dropped.
pub struct Place {
    places: Rc<Places>,
    number: u64,
    evicted: Rc<Evicted>,
}

/// The right to send the refusal; returned when dropped.
pub struct RefusedEntry(Rc<Places>);

impl Places {
    /// So many places; one at least.
    pub fn new(max: usize) -> Rc<Places> {
        Rc::new(Places {
            max: max.max(1),
            taken: Cell::new(0),
            refused: Cell::new(0),
            next: Cell::new(0),
            greeting: RefCell::default(),
        })
    }

    /// How many there are in all.
    pub fn max(&self) -> usize {
        self.max
    }

    /// A new connection.
    pub fn enter(self: &Rc<Places>) -> ConnectionAdmission {
        let is_full = self.taken.get() >= self.max;
        if is_full || self.greeting.borrow().len() >= (self.max / 2).max(1) {
            let made_way = self.evict_oldest();
            if is_full && !made_way {
                return self.refuse();
            }
        }
        self.taken.set(self.taken.get() + 1);
        let number = self.next.replace(self.next.get() + 1);
        let evicted = Rc::<Evicted>::default();
        self.greeting.borrow_mut().insert(number, evicted.clone());
        ConnectionAdmission::Place(Place { places: self.clone(), number, evicted })
    }

    /// Its place is free when its task has ended: for that moment there is one more than the bound.
    fn evict_oldest(&self) -> bool {
        let Some((_, oldest)) = self.greeting.borrow_mut().pop_first() else { return false };
        oldest.told.set(true);
        oldest.notify.wake_all();
        true
    }

    fn refuse(self: &Rc<Places>) -> ConnectionAdmission {
        if self.refused.get() >= REFUSALS_MAX {
            return ConnectionAdmission::Nothing;
        }
        self.refused.set(self.refused.get() + 1);
        ConnectionAdmission::Refused(RefusedEntry(self.clone()))
    }
}

impl Place {
    /// The handshake is done: it stays.
    pub fn keep(&self) {
        self.places.greeting.borrow_mut().remove(&self.number);
    }

    /// Wait until it must make way; never ends once it is kept.
    pub async fn evicted(&self) {
        loop {
            let told = self.evicted.notify.wait();
            if self.evicted.told.get() {
                return;
            }
            told.await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.keep();
        self.places.taken.set(self.places.taken.get() - 1);
    }
}

impl Drop for RefusedEntry {
    fn drop(&mut self) {
        self.0.refused.set(self.0.refused.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(places: &Rc<Places>) -> Place {
        match places.enter() {
            ConnectionAdmission::Place(place) => place,
            ConnectionAdmission::Refused(_) | ConnectionAdmission::Nothing => panic!("there is a place"),
        }
    }

    #[test]
    fn those_that_stay_fill_the_places_and_the_next_is_refused_until_one_goes() {
        let places = Places::new(3);
        let stay: Vec<Place> = (0..3).map(|_| place(&places)).inspect(Place::keep).collect();
        assert!(matches!(places.enter(), ConnectionAdmission::Refused(_)));
        drop(stay);
        drop(place(&places));
        assert_eq!(places.taken.get(), 0);
    }

    #[test]
    fn who_does_not_end_its_handshake_makes_way_for_who_comes() {
        let places = Places::new(4);
        let oldest = place(&places);
        let other = place(&places);
        let new = place(&places);
        assert!(oldest.evicted.told.get() && !other.evicted.told.get() && !new.evicted.told.get());
        assert_eq!(places.greeting.borrow().len(), 2);
    }

    #[test]
    fn only_some_are_told_that_there_is_no_place() {
        let places = Places::new(1);
        let stays = place(&places);
        stays.keep();
        let told: Vec<ConnectionAdmission> = (0..REFUSALS_MAX).map(|_| places.enter()).collect();
        assert!(told.iter().all(|entry| matches!(entry, ConnectionAdmission::Refused(_))));
        assert!(matches!(places.enter(), ConnectionAdmission::Nothing));
        drop(told);
        assert!(matches!(places.enter(), ConnectionAdmission::Refused(_)));
    }
}
