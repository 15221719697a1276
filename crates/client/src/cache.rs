//! The client's cache of names and attributes. An entry is valid for a short time.
//!
//! The default time is 100 ms, as in PVFS. The cache saves the lookups and stats that one command
//! repeats, and its time bounds how long another client's change is not seen. With a time of zero nothing is
//! kept.
//!
//! **Invariant: a client sees its own changes at once.** A change drops the entries that it touched and gives
//! them a *stamp*; an answer that was requested before the stamp is not kept (test:
//! `an_answer_asked_for_before_a_change_is_not_kept_behind_it`). **Invariant: an answer is valid from the
//! moment at which it was requested**, not from its arrival: a server may have answered long before (test:
//! `an_answer_is_believed_from_its_request_on_and_not_from_its_arrival`). **Invariant: a name is looked up
//! anew when it led to an object that a server reported gone** ([`Cache::gone`]): a caller that meets such an
//! object repeats the lookup, and the cache must not return the same object again (test:
//! `a_name_that_led_to_what_is_gone_is_asked_anew`). **Invariant: a negative entry never answers an open**
//! (test: `a_negative_entry_answers_a_walk_but_never_an_open_or_a_lookup`). [`Cache::name`] returns negative
//! entries too. Only stats, and walks for a look at an object, use them; for all other callers the client
//! asks the server.

use crate::ops::Listener;
use lru::LruCache;
use shoal_env::Instant;
use shoal_proto::{Attr, Handle, Kind, Name};
use std::rc::Rc;
use std::time::Duration;

/// Names kept, at most.
const NAMES_MAX: usize = 65_536;
/// Attributes kept, at most.
const ATTRS_MAX: usize = 65_536;
/// Stamps kept; beyond, all older answers are distrusted.
const STAMPS_MAX: usize = 4096;

/// Objects that are gone, at most; of older ones a name may stay cached to its time.
const GONE_MAX: usize = 4096;

/// The object that a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leads {
    To(Handle, Kind),
    Nowhere,
}

/// See the module's page.
pub(crate) struct Cache {
    name_ttl: Duration,
    attr_ttl: Duration,
    names: LruCache<(Handle, Name), (Leads, Instant)>,
    attrs: LruCache<Handle, (Attr, Instant)>,
    stamps: LruCache<Handle, u64>,
    now_stamp: u64,
    floor: u64,
    gone: LruCache<Handle, ()>,
    /// The listener that keeps directories' attributes elsewhere.
    pub(crate) listener: Option<Listener>,
    /// The listener that keeps attributes of removed objects.
    pub(crate) on_removal: Option<Rc<dyn Fn(Handle)>>,
}

/// When something was asked, for [`Cache::put_attr`] and [`Cache::put_name`]: after which changes, and at
/// what time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    changes: u64,
    /// The time from which the answer is believed.
    pub(crate) at: Instant,
}

impl Cache {
    pub(crate) fn new(name_ttl: Duration, attr_ttl: Duration) -> Cache {
        Cache {
            name_ttl,
            attr_ttl,
            names: LruCache::unbounded(),
            attrs: LruCache::unbounded(),
            stamps: LruCache::unbounded(),
            now_stamp: 0,
            floor: 0,
            gone: LruCache::unbounded(),
            listener: None,
            on_removal: None,
        }
    }

    /// The stamp of a request that is sent at `at`, to be taken before it is sent.
    pub(crate) fn stamp(&self, at: Instant) -> Stamp {
        Stamp { changes: self.now_stamp, at }
    }

    fn trusts(&self, object: Handle, asked: Stamp) -> bool {
        let changed = self.stamps.peek(&object).copied().unwrap_or(self.floor);
        changed <= asked.changes
    }

    /// The object that a name leads to, if it is known.
    pub(crate) fn name(&mut self, dir: Handle, name: &Name, now: Instant) -> Option<Leads> {
        let key = (dir, name.clone());
        let &(leads, until) = self.names.get(&key)?;
        let is_gone = matches!(leads, Leads::To(object, _) if self.gone.contains(&object));
        if until <= now || is_gone {
            self.names.pop(&key);
            return None;
        }
        Some(leads)
    }

    /// The object that a name led to when it was last looked up, however long ago: a guess.
    pub(crate) fn name_once(&self, dir: Handle, name: &Name) -> Option<Leads> {
        self.names.peek(&(dir, name.clone())).map(|(leads, _)| *leads)
    }

    /// Attributes, if they are known.
    pub(crate) fn attr(&mut self, object: Handle, now: Instant) -> Option<Attr> {
        let (attr, until) = self.attrs.get(&object)?;
        if *until <= now {
            return None;
        }
        Some(attr.clone())
    }

    /// Attributes however old: to guess by, never to answer with.
    pub(crate) fn attr_once(&self, object: Handle) -> Option<&Attr> {
        self.attrs.peek(&object).map(|(attr, _)| attr)
    }

    /// Keep the object that a name leads to.
    pub(crate) fn put_name(&mut self, dir: Handle, name: &Name, leads: Leads, asked: Stamp) {
        if self.name_ttl.is_zero() || !self.trusts(dir, asked) {
            return;
        }
        self.names.put((dir, name.clone()), (leads, asked.at + self.name_ttl));
        if self.names.len() > NAMES_MAX {
            self.names.pop_lru();
        }
    }

    /// Keep attributes (merged ones), unless the kept ones are valid longer: a listing's may come late.
    pub(crate) fn put_attr(&mut self, attr: &Attr, asked: Stamp) {
        if self.attr_ttl.is_zero() || !self.trusts(attr.handle, asked) {
            return;
        }
        let until = asked.at + self.attr_ttl;
        if self.attrs.peek(&attr.handle).is_some_and(|(_, kept_until)| *kept_until > until) {
            return;
        }
        self.attrs.put(attr.handle, (attr.clone(), until));
        if self.attrs.len() > ATTRS_MAX {
            self.attrs.pop_lru();
        }
    }

    /// This client changed the object: its attributes, and as a directory its entries, are asked anew.
    pub(crate) fn changed(&mut self, object: Handle) {
        self.now_stamp += 1;
        self.attrs.pop(&object);
        self.stamps.put(object, self.now_stamp);
        if self.stamps.len() > STAMPS_MAX
            && let Some((_, stamp)) = self.stamps.pop_lru()
        {
            self.floor = self.floor.max(stamp);
        }
    }

    /// A server said that the object is gone. No handle is given twice, so that stays so.
    pub(crate) fn gone(&mut self, object: Handle) {
        self.changed(object);
        self.gone.put(object, ());
        if self.gone.len() > GONE_MAX {
            self.gone.pop_lru();
        }
    }

    /// This client changed an entry.
    pub(crate) fn changed_name(&mut self, dir: Handle, name: &Name) {
        self.names.pop(&(dir, name.clone()));
        self.changed(dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::file_attr;

    const DIR: Handle = Handle(7);

    fn cache() -> Cache {
        Cache::new(Duration::from_millis(100), Duration::from_millis(100))
    }

    #[test]
    fn what_is_kept_is_believed_until_its_time_and_not_after() {
        let mut cache = cache();
        let name = Name::new(b"a").unwrap();
        let stamp = cache.stamp(Instant(0));
        cache.put_name(DIR, &name, Leads::Nowhere, stamp);
        cache.put_attr(&file_attr(Handle(9)), stamp);
        assert_eq!(cache.name(DIR, &name, Instant(99_999_999)), Some(Leads::Nowhere));
        assert!(cache.attr(Handle(9), Instant(99_999_999)).is_some());
        assert_eq!(cache.name(DIR, &name, Instant(100_000_000)), None);
        assert!(cache.attr(Handle(9), Instant(100_000_000)).is_none());
    }

    #[test]
    fn an_answer_is_believed_from_its_request_on_and_not_from_its_arrival() {
        let mut cache = cache();
        let name = Name::new(b"a").unwrap();
        // Requested at 0, answered before 40 ms, arrived at 90 ms: another client may have changed it at 40
        // ms.
        let stamp = cache.stamp(Instant(0));
        cache.put_name(DIR, &name, Leads::To(Handle(9), Kind::File), stamp);
        cache.put_attr(&file_attr(Handle(9)), stamp);
        let end_of_belief = Instant(40_000_000 + 100_000_000);
        assert_eq!(cache.name(DIR, &name, end_of_belief), None);
        assert!(cache.attr(Handle(9), end_of_belief).is_none());
    }

    #[test]
    fn an_answer_asked_for_before_a_change_is_not_kept_behind_it() {
        let mut cache = cache();
        let name = Name::new(b"a").unwrap();
        let before = cache.stamp(Instant(0));
        cache.changed(Handle(9));
        cache.changed_name(DIR, &name);
        cache.put_attr(&file_attr(Handle(9)), before);
        cache.put_name(DIR, &name, Leads::Nowhere, before);
        assert!(cache.attr(Handle(9), Instant(1)).is_none());
        assert_eq!(cache.name(DIR, &name, Instant(1)), None);
        let after = cache.stamp(Instant(0));
        cache.put_attr(&file_attr(Handle(9)), after);
        assert!(cache.attr(Handle(9), Instant(1)).is_some());
    }

    #[test]
    fn older_attributes_do_not_take_the_place_of_fresher_ones_but_of_those_a_change_made_false() {
        let mut cache = cache();
        let (older, fresher) = (file_attr(Handle(9)), Attr { size: 5, ..file_attr(Handle(9)) });
        let stamp = cache.stamp(Instant(0));
        cache.put_attr(&fresher, Stamp { at: Instant(20), ..stamp });
        cache.put_attr(&older, Stamp { at: Instant(10), ..stamp });
        assert_eq!(cache.attr(Handle(9), Instant(30)).map(|attr| attr.size), Some(5));
        cache.put_attr(&older, Stamp { at: Instant(20), ..stamp });
        assert_eq!(
            cache.attr(Handle(9), Instant(30)).map(|attr| attr.size),
            Some(0),
            "told last, of one age"
        );
        cache.changed(Handle(9));
        let stamp = cache.stamp(Instant(0));
        cache.put_attr(&fresher, Stamp { at: Instant(10), ..stamp });
        assert_eq!(cache.attr(Handle(9), Instant(30)).map(|attr| attr.size), Some(5));
    }

    #[test]
    fn a_name_that_led_to_what_is_gone_is_asked_anew() {
        let mut cache = cache();
        let (name, stamp) = (Name::new(b"a").unwrap(), cache.stamp(Instant(0)));
        cache.put_name(DIR, &name, Leads::To(Handle(9), Kind::File), stamp);
        cache.put_attr(&file_attr(Handle(9)), stamp);
        cache.gone(Handle(9));
        assert_eq!(cache.name(DIR, &name, Instant(1)), None);
        assert!(cache.attr(Handle(9), Instant(1)).is_none());
        let behind = cache.stamp(Instant(0));
        cache.put_name(DIR, &name, Leads::To(Handle(10), Kind::File), Stamp { at: Instant(1), ..behind });
        assert_eq!(cache.name(DIR, &name, Instant(2)), Some(Leads::To(Handle(10), Kind::File)));
        (100..100 + 2 * GONE_MAX as u64).for_each(|object| cache.gone(Handle(object)));
        assert_eq!(cache.gone.len(), GONE_MAX);
    }

    #[test]
    fn strict_keeps_nothing() {
        let mut cache = Cache::new(Duration::ZERO, Duration::ZERO);
        let stamp = cache.stamp(Instant(0));
        cache.put_attr(&file_attr(Handle(9)), stamp);
        assert!(cache.attr(Handle(9), Instant(0)).is_none());
    }
}
