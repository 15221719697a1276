//! The files that this client holds open, and those among them that have lost their last name.
//!
//! An unlink reports the handles that this client holds open. If the removed object is among them, the server
//! keeps it as an *orphan* of the session. The last close here releases the orphan.
//!
//! **While a file is being opened by name, its handle is not known yet** ([`HeldFiles::seek`]). Until the
//! open ends, every removed file counts as held. When the last open by name has ended, the orphans that no
//! open needed are released.
//!
//! **A server knows all its files that have been open here for more than a moment** ([`HeldFiles::due`]).
//! Closes are not sent, so the client reports open files to their servers several times a lease. If another
//! client removes such a file later, the file becomes an orphan of this client.
//!
//! **An orphan lives as long as the client's session with its server** ([`HeldFiles::keeps`]). While any file
//! of a server is open here, the link keeps that session alive over lost connections and restarts of the
//! server, even if no caller waits for an answer.

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
    /// When it was last reported open to its server, on the present connection.
    told: Option<Instant>,
}

/// See the module's page.
#[derive(Default)]
pub(crate) struct HeldFiles {
    files: BTreeMap<Handle, Entry>,
    /// Opens by name under way.
    sought: u32,
}

impl HeldFiles {
    /// One holder more.
    pub(crate) fn hold(&mut self, object: Handle) {
        self.files.entry(object).or_default().holders += 1;
    }

    /// An open of it has succeeded. Before that, it is not reported to its server as open: a removed file
    /// must not be kept for an open that is to be refused. One without a name is an orphan, kept for this
    /// client since an answer or a release that it never got through.
    pub(crate) fn opened(&mut self, object: Handle, is_nameless: bool) {
        if let Some(entry) = self.files.get_mut(&object) {
            entry.open = true;
            entry.orphan |= is_nameless;
        }
    }

    /// An open by name begins: it may come to hold any file.
    pub(crate) fn seek(&mut self) {
        self.sought += 1;
    }

    /// It has ended. Returns the orphans that are no longer held, which are to be released.
    pub(crate) fn sought(&mut self) -> Vec<Handle> {
        self.sought = self.sought.saturating_sub(1);
        if self.sought > 0 {
            return Vec::new();
        }
        let unheld = self.files.extract_if(.., |_, entry| entry.holders == 0);
        unheld.map(|(object, _)| object).collect()
    }

    /// One holder less; whether it was the last of an orphan, which is then to be released.
    pub(crate) fn let_go(&mut self, object: Handle) -> bool {
        let Some(entry) = self.files.get_mut(&object) else { return false };
        entry.holders = entry.holders.saturating_sub(1);
        if entry.holders > 0 || (entry.orphan && self.sought > 0) {
            return false;
        }
        self.files.remove(&object).is_some_and(|entry| entry.orphan)
    }

    /// The server keeps the object as an orphan. Returns whether it is no longer held here, so that it is to
    /// be released.
    pub(crate) fn orphaned(&mut self, object: Handle) -> bool {
        if self.sought == 0 && !self.files.contains_key(&object) {
            return true;
        }
        self.files.entry(object).or_default().orphan = true;
        false
    }

    /// Files of `server` that are to be reported to it again, `share` after the last time.
    pub(crate) fn due(&self, server: ServerId, now: Instant, share: Duration) -> Vec<Handle> {
        let is_due = |entry: &Entry| entry.open && entry.told.is_none_or(|told| now.since(told) >= share);
        self.of(server).filter(|(_, entry)| is_due(entry)).map(|(&object, _)| object).collect()
    }

    /// The server knows that they are open.
    pub(crate) fn told(&mut self, objects: &[Handle], now: Instant) {
        for object in objects {
            if let Some(entry) = self.files.get_mut(object) {
                entry.told = Some(now);
            }
        }
    }

    /// The server may no longer know the files that are open here.
    pub(crate) fn tell_anew(&mut self, server: ServerId) {
        let all: Vec<Handle> = self.of(server).map(|(&object, _)| object).collect();
        for object in all {
            if let Some(entry) = self.files.get_mut(&object) {
                entry.told = None;
            }
        }
    }

    /// Whether it is open here.
    pub(crate) fn holds(&self, object: Handle) -> bool {
        self.files.contains_key(&object)
    }

    fn of(&self, server: ServerId) -> impl Iterator<Item = (&Handle, &Entry)> {
        let (first, last) = (Handle::new(server, 0), Handle::new(server, Handle::COUNTER_MAX));
        self.files.range(first..=last)
    }

    /// Whether anything of `server` is open here: it may come to keep that only because it is.
    pub(crate) fn keeps(&self, server: ServerId) -> bool {
        !mutant::is(Mutant::LeaseNotRenewed) && self.of(server).next().is_some()
    }

    /// The open files to report with an unlink or rename.
    pub(crate) fn to_tell(&self) -> Held {
        if self.files.len() > limits::HELD_MAX || self.sought > 0 {
            return Held { handles: Vec::new().into(), any: true };
        }
        Held { handles: self.files.keys().copied().collect::<Vec<_>>().into(), any: false }
    }

    /// All orphans, forgotten: to be released at the client's end.
    pub(crate) fn take_orphans(&mut self) -> Vec<Handle> {
        let orphans =
            self.files.iter().filter(|(_, entry)| entry.orphan).map(|(&object, _)| object).collect();
        for entry in self.files.values_mut() {
            entry.orphan = false;
        }
        orphans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_that_finds_an_orphan_of_this_client_releases_it_with_its_close() {
        let (mut held, object) = (HeldFiles::default(), Handle::new(ServerId(1), 9));
        // The release of its last close never arrived.
        held.hold(object);
        held.opened(object, true);
        assert!(held.let_go(object), "it is to be released again");
        held.hold(object);
        held.opened(object, false);
        assert!(!held.let_go(object));
    }

    #[test]
    fn while_a_file_is_opened_by_its_name_what_is_removed_counts_as_held_and_is_released_in_the_end() {
        let mut held = HeldFiles::default();
        held.seek();
        held.seek();
        assert!(held.to_tell().any);
        held.hold(Handle(3));
        assert!(!held.orphaned(Handle(1)) && !held.orphaned(Handle(2)) && !held.orphaned(Handle(3)));
        assert!(!held.let_go(Handle(3)), "the other open may be of this file");
        assert!(held.sought().is_empty(), "one is under way still");
        // It was of this one.
        held.hold(Handle(1));
        assert_eq!(held.sought(), [Handle(2), Handle(3)]);
        assert!(!held.to_tell().any);
        assert!(held.let_go(Handle(1)));
        assert!(held.orphaned(Handle(1)));
    }

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
        held.opened(object, false);
        held.opened(other, false);
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
