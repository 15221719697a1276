//! Which files this client holds open, and which of them have lost their last name.
//!
//! An unlink tells the server the handles held open here; the server then keeps the object as an orphan of the session
//! instead of removing it. The last holder to close releases it.
//!
//! **An orphan lives as long as the client's session with its server** ([`HeldFiles::keeps`]): its link keeps that session
//! alive although nobody waits for an answer, over lost connections and restarts of the server.

use shoal_env::mutant::{self, Mutant};
use shoal_proto::{Handle, Held, ServerId, limits};
use std::collections::BTreeMap;

#[derive(Default)]
struct Entry {
    holders: u32,
    orphan: bool,
}

/// See the module's page.
#[derive(Default)]
pub(crate) struct HeldFiles(BTreeMap<Handle, Entry>);

impl HeldFiles {
    /// One holder more.
    pub(crate) fn hold(&mut self, object: Handle) {
        self.0.entry(object).or_default().holders += 1;
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

    /// Whether `server` keeps something only because it is held open here.
    pub(crate) fn keeps(&self, server: ServerId) -> bool {
        let kept = |(object, entry): (&Handle, &Entry)| entry.orphan && object.server() == server;
        !mutant::is(Mutant::LeaseNotRenewed) && self.0.iter().any(kept)
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
    fn a_server_keeps_what_was_removed_there_and_is_open_until_its_last_close() {
        let (first, second) = (Handle::new(ServerId(0), 7), Handle::new(ServerId(1), 7));
        let mut held = HeldFiles::default();
        held.hold(first);
        held.hold(second);
        assert!(!held.keeps(ServerId(0)), "it has its name");
        held.orphaned(second);
        assert!(!held.keeps(ServerId(0)) && held.keeps(ServerId(1)));
        held.let_go(second);
        assert!(!held.keeps(ServerId(1)));
    }

    #[test]
    fn too_many_to_name_are_told_as_any() {
        let mut held = HeldFiles::default();
        (0..=limits::HELD_MAX as u64).for_each(|n| held.hold(Handle(n)));
        assert!(held.to_tell().any);
    }
}
