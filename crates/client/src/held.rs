//! Which files this client holds open, and which of them have lost their last name.
//!
//! An unlink tells the server the handles held open here; the server then keeps the object as an orphan of the session
//! instead of removing it. The last holder to close releases it.
//!
//! **Its servers know which files are open here for more than a moment** ([`HeldFiles::due`]): closes are not sent, so each
//! server is told several times a lease. What another client has removed meanwhile is an orphan of this client from then on.
//!
//! **An orphan lives as long as the client's session with its server** ([`HeldFiles::keeps`]): while anything of a server is
//! open here, its link keeps that session alive although nobody waits for an answer, over lost connections and restarts of the
//! server.

use shoal_env::Instant;
use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Handle, Held, ServerId, limits};
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Default)]
struct Entry {
    holders: u32,
    orphan: bool,
    /// It was opened; else its opens are still under way.
    open: bool,
    /// When its server was told last, on its present connection, that it is open.
    told: Option<Instant>,
}

/// See the module's page.
#[derive(Default)]
pub(crate) struct HeldFiles(BTreeMap<Handle, Entry>);

impl HeldFiles {
    /// One holder more.
    pub(crate) fn hold(&mut self, object: Handle) {
        self.0.entry(object).or_default().holders += 1;
    }

    /// An open of it has succeeded. Before, its server is not told that it is open: what is gone must not be kept for an open
    /// that is to be refused.
    pub(crate) fn opened(&mut self, object: Handle) {
        if let Some(entry) = self.0.get_mut(&object) {
            entry.open = true;
        }
    }

    /// One holder less; whether it was the last of an orphan, which is then to be released.
    pub(crate) fn let_go(&mut self, object: Handle) -> bool {
        let Some(entry) = self.0.get_mut(&object) else { return false };
        entry.holders = entry.holders.saturating_sub(1);
        if entry.holders > 0 {
            return false;
        }
        self.0.remove(&object).is_some_and(|entry| entry.orphan)
    }

    /// The server keeps the object as an orphan; whether nobody here holds it any more, so that it is to be released.
    pub(crate) fn orphaned(&mut self, object: Handle) -> bool {
        match self.0.get_mut(&object) {
            Some(entry) => {
                entry.orphan = true;
                false
            }
            None => true,
        }
    }

    /// Files of `server` that it is to be told of again, `share` after the last time.
    pub(crate) fn due(&self, server: ServerId, now: Instant, share: Duration) -> Vec<Handle> {
        let is_due = |entry: &Entry| entry.open && entry.told.is_none_or(|told| now.since(told) >= share);
        self.of(server).filter(|(_, entry)| is_due(entry)).map(|(&object, _)| object).collect()
    }

    /// The server knows that they are open.
    pub(crate) fn told(&mut self, objects: &[Handle], now: Instant) {
        for object in objects {
            if let Some(entry) = self.0.get_mut(object) {
                entry.told = Some(now);
            }
        }
    }

    /// The server may not know any more what is open here.
    pub(crate) fn tell_anew(&mut self, server: ServerId) {
        let all: Vec<Handle> = self.of(server).map(|(&object, _)| object).collect();
        for object in all {
            if let Some(entry) = self.0.get_mut(&object) {
                entry.told = None;
            }
        }
    }

    /// Whether it is open here.
    pub(crate) fn holds(&self, object: Handle) -> bool {
        self.0.contains_key(&object)
    }

    fn of(&self, server: ServerId) -> impl Iterator<Item = (&Handle, &Entry)> {
        let (first, last) = (Handle::new(server, 0), Handle::new(server, Handle::COUNTER_MAX));
        self.0.range(first..=last)
    }

    /// Whether anything of `server` is open here: it may come to keep that only because it is.
    pub(crate) fn keeps(&self, server: ServerId) -> bool {
        !mutant::is(Mutant::LeaseNotRenewed) && self.of(server).next().is_some()
    }

    /// What to tell with an unlink or rename.
    pub(crate) fn to_tell(&self) -> Held {
        if self.0.len() > limits::HELD_MAX {
            return Held { handles: Vec::new().into(), any: true };
        }
        Held { handles: self.0.keys().copied().collect::<Vec<_>>().into(), any: false }
    }

    /// All orphans, forgotten: to be released at the client's end.
    pub(crate) fn take_orphans(&mut self) -> Vec<Handle> {
        let orphans = self.0.iter().filter(|(_, entry)| entry.orphan).map(|(&object, _)| object).collect();
        for entry in self.0.values_mut() {
            entry.orphan = false;
        }
        orphans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_holder_of_an_orphan_releases_it() {
        let mut held = HeldFiles::default();
        held.hold(Handle(1));
        held.hold(Handle(1));
        held.hold(Handle(2));
        assert!(!held.orphaned(Handle(1)));
        assert!(held.orphaned(Handle(3)), "nobody here holds it");
        assert!(!held.let_go(Handle(1)));
        assert!(held.let_go(Handle(1)));
        assert!(!held.let_go(Handle(2)));
        assert!(held.to_tell().handles.is_empty());
    }

    #[test]
    fn a_session_is_kept_alive_with_each_server_that_has_something_open_here_until_its_last_close() {
        let (first, second) = (Handle::new(ServerId(0), 7), Handle::new(ServerId(1), 7));
        let mut held = HeldFiles::default();
        held.hold(first);
        held.hold(second);
        assert!(held.keeps(ServerId(0)) && held.keeps(ServerId(1)) && !held.keeps(ServerId(2)));
        held.orphaned(second);
        held.let_go(second);
        assert!(held.keeps(ServerId(0)) && !held.keeps(ServerId(1)));
        held.let_go(first);
        assert!(!held.keeps(ServerId(0)));
    }

    #[test]
    fn a_server_is_told_what_is_open_at_once_then_now_and_then_and_anew_on_a_new_connection() {
        let (object, other) = (Handle::new(ServerId(1), 7), Handle::new(ServerId(2), 7));
        let share = Duration::from_secs(20);
        let mut held = HeldFiles::default();
        held.hold(object);
        held.hold(other);
        assert!(held.due(ServerId(1), Instant(0), share).is_empty(), "its open is under way");
        held.opened(object);
        held.opened(other);
        let at = |s: u64| Instant(0) + Duration::from_secs(s);
        assert_eq!(held.due(ServerId(1), at(1), share), [object]);
        held.told(&[object], at(1));
        assert!(held.due(ServerId(1), at(20), share).is_empty());
        assert_eq!(held.due(ServerId(1), at(21), share), [object]);
        assert_eq!(held.due(ServerId(2), at(21), share), [other]);
        held.told(&[object], at(21));
        held.tell_anew(ServerId(1));
        assert_eq!(held.due(ServerId(1), at(22), share), [object]);
        held.let_go(object);
        assert!(held.due(ServerId(1), at(60), share).is_empty());
    }

    #[test]
    fn too_many_to_name_are_told_as_any() {
        let mut held = HeldFiles::default();
        (0..=limits::HELD_MAX as u64).for_each(|n| held.hold(Handle(n)));
        assert!(held.to_tell().any);
    }
}
