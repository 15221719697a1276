//! Attributes of an object: each has the value of the last acknowledged change, or of a change whose
//! outcome is unknown (which may also take effect late). Of two changes that were under way at once, either
//! may be the last. If a fault may have lost an acknowledged change ([`crate::losses`]), the change may be
//! undone, back to the last value that is certain.

use crate::losses::{Held, Stamp};
use shoal_proto::{Attr, Kind};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// A change that was acknowledged: by which client, and when.
#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    client: u16,
    at: u64,
}

/// When attributes were looked at that are judged.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// The client that looked.
    pub client: u16,
    /// When it asked, in nanoseconds.
    pub called: u64,
    /// It may not have seen other clients' changes since then: the time of its request, less its cache time
    /// of attributes.
    pub believed_since: u64,
}

impl Look {
    /// After everything else, without a cache.
    pub const LAST: Look = Look { client: u16::MAX, called: u64::MAX, believed_since: u64::MAX };

    /// Whether it may have come before that change.
    fn may_precede(&self, change: &Acknowledged) -> bool {
        change.at >= if change.client == self.client { self.called } else { self.believed_since }
    }
}

/// Replaced values remembered.
const WAS_MAX: usize = 32;

/// A value, and those it may have been changed to.
#[derive(Clone, Debug)]
pub struct Fact<T> {
    known: T,
    /// Changes under way, or of unknown outcome, and how many had been acknowledged when each began.
    open: Vec<(T, u64)>,
    /// Its other possible values: a fault may have taken later changes, or another change was under way at
    /// the same time.
    or: Vec<T>,
    acknowledged: u64,
    /// Values that were replaced lately, and by which change.
    was: Vec<(T, Option<Acknowledged>)>,
    /// Its value before each change that a fault may take; the faults before that change, and how it is held.
    past: Vec<(T, Option<(Stamp, Held)>)>,
}

impl<T: PartialEq + Clone + Debug> Fact<T> {
    /// It is this.
    pub fn new(known: T) -> Fact<T> {
        Fact { known, open: Vec::new(), or: Vec::new(), acknowledged: 0, was: Vec::new(), past: Vec::new() }
    }

    /// It is about to be changed.
    pub fn begin(&mut self, to: T) {
        self.open.push((to, self.acknowledged));
    }

    /// The change that began last was acknowledged.
    pub fn done(&mut self) {
        if let Some((to, before)) = self.open.pop() {
            if before < self.acknowledged {
                self.or.push(self.known.clone());
            }
            self.acknowledged += 1;
            if self.was.len() == WAS_MAX {
                self.was.remove(0);
            }
            self.was.push((self.known.clone(), None));
            self.past.push((std::mem::replace(&mut self.known, to), None));
        }
    }

    /// How the changes that were acknowledged last are held, and when that was.
    fn expose(&mut self, stamp: &Stamp, held: Held, by: Acknowledged) {
        for (_, replaced) in self.was.iter_mut().rev().take_while(|(_, replaced)| replaced.is_none()) {
            *replaced = Some(by);
        }
        for (_, exposed) in self.past.iter_mut().rev().take_while(|(_, exposed)| exposed.is_none()) {
            *exposed = Some((stamp.clone(), held));
        }
    }

    /// The last changes may be lost, back to the first that may not; durable changes, and those before them,
    /// are certain.
    fn settle(&mut self, server: u16, now: &Stamp, is_synced: bool) {
        let is_lost = |(_, exposed): &mut (T, Option<(Stamp, Held)>)| {
            exposed.as_ref().is_some_and(|(since, held)| since.is_lost(now, server, *held))
        };
        while let Some((was, _)) = self.past.pop_if(is_lost) {
            self.or.push(was);
        }
        let is_durable = |(_, exposed): &(T, Option<(Stamp, Held)>)| matches!(exposed, Some((_, Held::Disk)));
        if let Some(last) = self.past.iter().rposition(is_durable) {
            self.past.drain(..=last);
        }
        if is_synced {
            self.past.clear();
        }
    }

    /// The change that began last was refused.
    pub fn refused(&mut self) {
        self.open.pop();
    }

    /// Its other possible values.
    fn maybe(&self) -> impl Iterator<Item = &T> {
        self.open.iter().map(|(to, _)| to).chain(&self.or)
    }

    /// Whether a change of unknown outcome may still be done.
    pub fn is_open(&self) -> bool {
        self.maybe().next().is_some()
    }

    /// The value, as far as it is acknowledged.
    pub fn known(&self) -> &T {
        &self.known
    }

    /// Its other possible values when it was looked at.
    fn been(&self, look: Look) -> impl Iterator<Item = &T> {
        let is_met =
            move |(_, by): &&(T, Option<Acknowledged>)| by.as_ref().is_some_and(|by| look.may_precede(by));
        self.was.iter().filter(is_met).map(|(was, _)| was)
    }

    /// Whether it may be this.
    ///
    /// # Errors
    /// The violation, in words.
    pub fn judge(&self, words: &str, found: &T, look: Look) -> Result<(), String> {
        if *found == self.known || self.maybe().chain(self.been(look)).any(|maybe| maybe == found) {
            return Ok(());
        }
        let maybe: Vec<&T> = self.maybe().collect();
        let or = if maybe.is_empty() { String::new() } else { format!(" or one of {maybe:x?}") };
        Err(format!("{words}: expected {:x?}{or}, found {found:x?}", self.known))
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// Permission bits.
    pub mode: Fact<u32>,
    /// Owner and group.
    pub owner: Fact<(u32, u32)>,
    /// Explicit times: of access; of change of data, with the moment it was acknowledged.
    pub atime: Fact<Option<i64>>,
    /// The explicit time of the last change of data, which holds until the next write.
    pub mtime: Fact<Option<(i64, u64)>>,
    /// Extended attributes; `None`: removed.
    pub xattrs: BTreeMap<Vec<u8>, Fact<Option<Vec<u8>>>>,
    /// When the newest change was acknowledged.
    ended: u64,
}

impl RunFacts {
    /// Of a new object.
    pub fn new(mode: u32, uid: u32, gid: u32) -> RunFacts {
        RunFacts {
            mode: Fact::new(mode),
            owner: Fact::new((uid, gid)),
            atime: Fact::new(None),
            mtime: Fact::new(None),
            xattrs: BTreeMap::new(),
            ended: 0,
        }
    }

    /// A change that `client` requested after these faults was acknowledged now, and is held so.
    pub fn changed(&mut self, stamp: &Stamp, held: Held, client: u16, now: u64) {
        self.ended = now;
        let by = Acknowledged { client, at: now };
        self.mode.expose(stamp, held, by);
        self.owner.expose(stamp, held, by);
        self.atime.expose(stamp, held, by);
        self.mtime.expose(stamp, held, by);
        self.xattrs.values_mut().for_each(|fact| fact.expose(stamp, held, by));
    }

    /// Whether all changes were acknowledged before that moment.
    pub fn ended_before(&self, at: u64) -> bool {
        self.ended < at
    }

    /// Take into account what faults of the object's server may have taken up to `now`. `is_synced`: changes
    /// that they did not take are durable.
    pub fn settle(&mut self, server: u16, now: &Stamp, is_synced: bool) {
        self.mode.settle(server, now, is_synced);
        self.owner.settle(server, now, is_synced);
        self.atime.settle(server, now, is_synced);
        self.mtime.settle(server, now, is_synced);
        self.xattrs.values_mut().for_each(|fact| fact.settle(server, now, is_synced));
    }

    /// Whether the object may have these attributes. `is_written`: its data may have been changed since a
    /// moment.
    ///
    /// # Errors
    /// The violations, in words.
    pub fn judge(
        &self,
        kind: Kind,
        attr: &Attr,
        look: Look,
        is_written: impl Fn(u64) -> bool,
    ) -> Result<(), String> {
        if attr.kind != kind {
            return Err(format!("kind: expected {kind:?}, found {:?}", attr.kind));
        }
        self.mode.judge("mode", &attr.mode, look)?;
        self.owner.judge("owner", &(attr.uid, attr.gid), look)?;
        if self.atime.known.is_some() && self.atime.maybe().chain(self.atime.been(look)).all(Option::is_some)
        {
            self.atime.judge("time of access", &Some(attr.atime.0), look)?;
        }
        let Some((mtime, set)) = self.mtime.known else { return Ok(()) };
        let may_be = |maybe: &Option<(i64, u64)>| maybe.is_none_or(|(maybe, _)| maybe == attr.mtime.0);
        let others = self.mtime.maybe().chain(self.mtime.been(look)).any(may_be);
        if mtime != attr.mtime.0 && !others && !is_written(set) {
            return Err(format!("time of change: expected {mtime}, found {}", attr.mtime.0));
        }
        Ok(())
    }

    /// The fact of an extended attribute.
    pub fn xattr(&mut self, name: &[u8]) -> &mut Fact<Option<Vec<u8>>> {
        self.xattrs.entry(name.to_vec()).or_insert_with(|| Fact::new(None))
    }

    /// Whether the names of extended attributes may be these.
    ///
    /// # Errors
    /// The violations, in words.
    pub fn judge_xattr_names(&self, found: &[Vec<u8>]) -> Result<(), String> {
        let told = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        for (name, fact) in &self.xattrs {
            let count = found.iter().filter(|other| *other == name).count();
            let may_be = fact.known.is_some() || fact.maybe().any(Option::is_some);
            let may_lack = fact.known.is_none() || fact.maybe().any(Option::is_none);
            if count > 1 || count == 1 && !may_be || count == 0 && !may_lack {
                let known = fact.known.is_some();
                return Err(format!("attribute {}: expected it {known}, found it {count} times", told(name)));
            }
        }
        match found.iter().find(|name| !self.xattrs.contains_key(*name)) {
            Some(name) => Err(format!("attribute {}: expected none, found it", told(name))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_is_what_was_acknowledged_or_what_is_unknown() {
        let mut fact = Fact::new(1);
        assert!(fact.judge("mode", &1, Look::LAST).is_ok() && fact.judge("mode", &2, Look::LAST).is_err());
        fact.begin(2);
        fact.done();
        assert!(fact.judge("mode", &1, Look::LAST).is_err(), "an acknowledged change was lost");
        fact.begin(3);
        fact.refused();
        assert!(fact.judge("mode", &3, Look::LAST).is_err(), "a refused change was done");
        fact.begin(4);
        assert!(fact.judge("mode", &2, Look::LAST).is_ok() && fact.judge("mode", &4, Look::LAST).is_ok());
    }

    #[test]
    fn of_two_changes_under_way_at_once_either_may_be_the_last() {
        let mut fact = Fact::new(1);
        fact.begin(2);
        // Another client's, which begins and ends meanwhile.
        fact.begin(3);
        fact.done();
        assert!(fact.judge("mode", &2, Look::LAST).is_ok() && fact.judge("mode", &3, Look::LAST).is_ok());
        fact.done();
        assert!(fact.judge("mode", &2, Look::LAST).is_ok() && fact.judge("mode", &3, Look::LAST).is_ok());
        assert!(fact.judge("mode", &1, Look::LAST).is_err());
    }

    #[test]
    fn a_look_may_have_come_before_a_change_that_ended_after_it_began_or_that_is_not_seen_yet() {
        let mut facts = RunFacts::new(1, 0, 0);
        facts.mode.begin(2);
        facts.mode.done();
        facts.changed(&Stamp::new(1), Held::Disk, 7, 100);
        let judged = |client, called| {
            let look = Look { client, called, believed_since: called - 20 };
            facts.mode.judge("mode", &1, look).is_ok()
        };
        assert!(judged(7, 100) && judged(8, 120), "under way, or believed");
        assert!(!judged(7, 101), "its own change");
        assert!(!judged(8, 121), "believed no longer");
    }

    #[test]
    fn names_of_attributes_are_told_once_each() {
        let mut facts = RunFacts::new(0, 0, 0);
        let found = |names: &[&str]| names.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>();
        assert!(facts.judge_xattr_names(&[]).is_ok());
        assert!(facts.judge_xattr_names(&found(&["user.a"])).is_err());
        facts.xattr(b"user.a").begin(Some(vec![1]));
        assert!(facts.judge_xattr_names(&found(&["user.a"])).is_ok() && facts.judge_xattr_names(&[]).is_ok());
        facts.xattr(b"user.a").done();
        assert!(facts.judge_xattr_names(&[]).is_err());
        assert!(facts.judge_xattr_names(&found(&["user.a", "user.a"])).is_err());
        facts.xattr(b"user.a").begin(None);
        facts.xattr(b"user.a").done();
        assert!(facts.judge_xattr_names(&found(&["user.a"])).is_err(), "it came back");
    }

    #[test]
    fn what_a_fault_may_have_taken_is_as_it_was_or_as_it_became() {
        let mut facts = RunFacts::new(1, 0, 0);
        let (before, mut now) = (Stamp::new(2), Stamp::new(2));
        let change = |facts: &mut RunFacts, to, stamp: &Stamp, held| {
            facts.mode.begin(to);
            facts.mode.done();
            facts.changed(stamp, held, 0, 1);
        };
        change(&mut facts, 2, &before, Held::Kernel);
        facts.settle(0, &before, true);
        change(&mut facts, 3, &before, Held::Kernel);
        now.add(1, true, true);
        now.add(0, false, true);
        facts.settle(0, &now, false);
        assert!(
            facts.mode.judge("mode", &2, Look::LAST).is_err(),
            "a power cut of another server, and a kill"
        );
        now.add(0, true, true);
        facts.settle(0, &now, false);
        assert!([2, 3].iter().all(|mode| facts.mode.judge("mode", mode, Look::LAST).is_ok()));
        assert!(facts.mode.judge("mode", &1, Look::LAST).is_err(), "this change was synced");
        let mut facts = RunFacts::new(1, 0, 0);
        change(&mut facts, 2, &before, Held::Disk);
        facts.settle(0, &now, false);
        assert!(facts.mode.judge("mode", &1, Look::LAST).is_err());
    }

    #[test]
    fn a_durable_change_is_not_excused_by_a_weaker_one_before_it() {
        let mut facts = RunFacts::new(1, 0, 0);
        let (before, mut now) = (Stamp::new(1), Stamp::new(1));
        for (to, held) in [(2, Held::Kernel), (3, Held::Disk)] {
            facts.mode.begin(to);
            facts.mode.done();
            facts.changed(&before, held, 0, 1);
        }
        facts.owner.begin((7, 7));
        facts.owner.done();
        facts.changed(&before, Held::Kernel, 0, 1);
        now.add(0, true, true);
        facts.settle(0, &now, false);
        assert!(facts.mode.judge("mode", &3, Look::LAST).is_ok());
        assert!(
            facts.mode.judge("mode", &1, Look::LAST).is_err()
                && facts.mode.judge("mode", &2, Look::LAST).is_err()
        );
        assert!(
            facts.owner.judge("owner", &(0, 0), Look::LAST).is_ok(),
            "this one is weaker, and may be lost"
        );
    }

    #[test]
    fn a_weaker_change_after_a_durable_one_is_lost_back_to_that_one() {
        let mut facts = RunFacts::new(1, 0, 0);
        let (before, mut now) = (Stamp::new(1), Stamp::new(1));
        for (to, held) in [(2, Held::Disk), (3, Held::Kernel), (4, Held::Kernel)] {
            facts.mode.begin(to);
            facts.mode.done();
            facts.changed(&before, held, 0, 1);
        }
        now.add(0, true, true);
        facts.settle(0, &now, false);
        assert!([2, 3, 4].iter().all(|mode| facts.mode.judge("mode", mode, Look::LAST).is_ok()));
        assert!(facts.mode.judge("mode", &1, Look::LAST).is_err());
    }
}
