//! The ledger: the answers that each client received about its own names (names that no other client
//! changes), and about their objects.
//!
//! *Names.* A name's history is a list of changes, each with the moments of its call and its return. The
//! owner of a name changes it only after the last change has returned. So at any moment the name has the
//! state after the last returned change, or the state after a later change that was called. A change of
//! several names (rename) is one *operation*. If the operation was never answered, then at the end either
//! all its names have their state before it, or all have their state after it.
//!
//! *Faults.* An acknowledged change is *shaken* if a fault may have lost it ([`crate::losses`]). Its name
//! may then have any earlier state, back to the last change that is certain. The owner does not change such
//! a name again.
//!
//! *Objects.* The ledger also has the other facts of an object: its bytes ([`crate::contents`]), its
//! attributes and extended attributes ([`crate::facts`]), and the target of a symbolic link.

use crate::contents::Contents;
use crate::facts::RunFacts;
use crate::losses::{Held, Stamp};
use shoal_proto::{Handle, Kind, PlaceKey, ServerId, Shards};
use std::collections::{BTreeMap, BTreeSet};

/// A name: its directory's handle and its bytes.
pub type Slot = (u64, String);

/// An object of the ledger.
pub type ObjectId = usize;

/// Owner of objects that no client changes.
pub const NOBODY: u16 = u16::MAX;

/// An object, as far as it is known.
#[derive(Clone, Debug)]
pub struct KnownObject {
    /// Its handle; 0: never received.
    pub handle: u64,
    /// Its kind.
    pub kind: Kind,
    /// Whether clients other than its owner may change its names, so that their number is not known.
    pub is_public: bool,
    /// When another client was first let remove or replace a name of it.
    pub offered_at: Option<u64>,
    /// Bytes, of a file.
    pub contents: Contents,
    /// Attributes.
    pub facts: RunFacts,
    /// Where a symbolic link leads.
    pub target: Vec<u8>,
    /// The faults that may have taken it since it was made.
    pub made: Exposed,
}

/// Since when, and where, something may be lost.
#[derive(Clone, Debug)]
pub struct Exposed {
    /// The faults before it was requested.
    pub stamp: Stamp,
    /// The faults that may take it.
    pub held: Held,
    /// The servers that it is on; none: any.
    pub servers: Vec<u16>,
}

impl Default for Exposed {
    /// Safe.
    fn default() -> Exposed {
        Exposed { stamp: Stamp::default(), held: Held::Disk, servers: Vec::new() }
    }
}

impl Exposed {
    fn is_lost(&self, now: &Stamp) -> bool {
        self.stamp.is_lost_by_any(now, &self.servers, self.held)
    }
}

impl KnownObject {
    /// A new object.
    pub fn new(kind: Kind, mode: u32, uid: u32, gid: u32) -> KnownObject {
        KnownObject {
            handle: 0,
            kind,
            is_public: false,
            offered_at: None,
            contents: Contents::default(),
            facts: RunFacts::new(mode, uid, gid),
            target: Vec::new(),
            made: Exposed::default(),
        }
    }
}

/// A change of a name.
#[derive(Clone, Debug)]
struct Change {
    called: u64,
    returned: Option<u64>,
    exposed: Exposed,
    operation: usize,
    /// Its object before, and now.
    from: Option<ObjectId>,
    to: Option<ObjectId>,
}

/// A name and its changes.
#[derive(Clone, Debug)]
struct Named {
    owner: u16,
    changes: Vec<Change>,
}

impl Change {
    fn is_certain(&self, now: &Stamp) -> bool {
        self.returned.is_some() && !self.exposed.is_lost(now)
    }
}

impl Named {
    fn settled(&self, now: &Stamp) -> bool {
        self.changes.last().is_none_or(|change| change.is_certain(now))
    }

    fn now(&self) -> Option<ObjectId> {
        self.changes.last().and_then(|change| change.to)
    }
}

/// Something done to names.
#[derive(Clone, Debug)]
struct Operation {
    words: String,
    slots: Vec<Slot>,
    refused: bool,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The objects.
    pub objects: Vec<KnownObject>,
    names: BTreeMap<Slot, Named>,
    operations: Vec<Operation>,
    /// The faults so far.
    pub now: Stamp,
    /// How directories are split, if they are.
    pub splits: Option<DrawnSplits>,
    /// Directories that never are: subfiles.
    pub unsplit: BTreeSet<u64>,
}

/// How names are dealt to servers when their directory is split.
#[derive(Clone, Debug)]
pub struct DrawnSplits {
    /// Gives each name its place.
    pub key: PlaceKey,
    /// The servers of all shards: as they are, and as they may be with each server that is added.
    pub shards: Vec<Shards>,
}

impl Ledger {
    /// A new object; its handle is known when it is made.
    pub fn object(&mut self, object: KnownObject) -> ObjectId {
        self.objects.push(object);
        self.objects.len() - 1
    }

    /// `owner` is about to change names, each to its new object. Returns the operation's number.
    pub fn begin(
        &mut self,
        owner: u16,
        words: &str,
        now: u64,
        held: Held,
        changes: Vec<(Slot, Option<ObjectId>)>,
    ) -> usize {
        let slots: Vec<Slot> = changes.iter().map(|(slot, _)| slot.clone()).collect();
        let operation = self.operations.len();
        let exposed = Exposed { stamp: self.now.clone(), held, servers: Vec::new() };
        for (slot, to) in changes {
            let named = self.names.entry(slot).or_insert_with(|| Named { owner, changes: Vec::new() });
            let (from, exposed) = (named.now(), exposed.clone());
            named.changes.push(Change { called: now, returned: None, exposed, operation, from, to });
        }
        self.operations.push(Operation { words: words.to_owned(), slots, refused: false });
        self.place(operation);
        operation
    }

    /// The servers that may hold a name: its directory's own, and that of its shard once the directory is
    /// split.
    pub fn servers_of(&self, slot: &Slot) -> Vec<u16> {
        let mut servers = vec![Handle(slot.0).server().0];
        if let Some(DrawnSplits { key, shards }) =
            self.splits.as_ref().filter(|_| !self.unsplit.contains(&slot.0))
        {
            let place = key.place_of(slot.1.as_bytes());
            servers.extend(shards.iter().filter_map(|all| all.server_of(place)).map(|server| server.0));
        }
        servers
    }

    /// Servers may be added, so that there are so many.
    pub fn may_grow(&mut self, servers: u16) {
        let present = self.now.servers();
        self.now = Stamp::new(servers.max(present));
        if let Some(DrawnSplits { shards, .. }) = &mut self.splits {
            // All hold metadata.
            shards.extend((present + 1..=servers).map(|count| Shards::over((0..count).map(ServerId))));
        }
    }

    /// Whether these names are on several servers for certain.
    pub fn are_apart<'a>(&self, slots: impl Iterator<Item = &'a Slot>) -> bool {
        let all: Vec<Vec<u16>> = slots.map(|slot| self.servers_of(slot)).collect();
        let apart = |one: &Vec<u16>, other: &Vec<u16>| one.iter().all(|server| !other.contains(server));
        all.iter().any(|one| all.iter().any(|other| apart(one, other)))
    }

    /// Note where the present change of each name of an operation is: a fault of a server that holds one of
    /// the names, or one of the objects, may take it. An object whose handle is not known (yet) may be on any
    /// server.
    fn place(&mut self, operation: usize) {
        let slots = self.operations[operation].slots.clone();
        let present = |slot: &Slot| self.names.get(slot)?.changes.last().filter(|c| c.operation == operation);
        let changes: Vec<&Change> = slots.iter().filter_map(present).collect();
        let objects = changes.iter().filter_map(|change| change.to.or(change.from));
        let handles: Vec<u64> = objects.map(|object| self.objects[object].handle).collect();
        let mut servers = Vec::new();
        if !handles.contains(&0) {
            servers.extend(slots.iter().flat_map(|slot| self.servers_of(slot)));
            servers.extend(handles.into_iter().map(|handle| Handle(handle).server().0));
        }
        self.end(operation, |named| {
            if let Some(change) = named.changes.last_mut().filter(|change| change.operation == operation) {
                change.exposed.servers.clone_from(&servers);
            }
        });
    }

    /// It was acknowledged.
    pub fn done(&mut self, operation: usize, now: u64, held: Held) {
        self.end(operation, |named| {
            if let Some(change) = named.changes.last_mut() {
                change.returned = Some(now);
                change.exposed.held = change.exposed.held.min(held);
            }
        });
    }

    /// An acknowledged operation is durable on the servers of its directories: there, so is every change of
    /// attributes that was acknowledged before it was requested, and that no fault took before.
    pub fn durable(&mut self, operation: usize) {
        let slots = &self.operations[operation].slots;
        let change = |slot: &Slot| self.names.get(slot)?.changes.last().filter(|c| c.operation == operation);
        let Some(called) = slots.iter().filter_map(change).map(|change| change.called).min() else { return };
        // Where a directory may be split, a name is on its directory's server or on its shard's.
        let only = |of: Vec<u16>| of.iter().all(|server| *server == of[0]).then_some(of[0]);
        let servers: Vec<u16> = slots.iter().filter_map(|slot| only(self.servers_of(slot))).collect();
        for object in &mut self.objects {
            let server = Handle(object.handle).server().0;
            if object.handle != 0 && servers.contains(&server) && object.facts.ended_before(called) {
                object.facts.settle(server, &self.now, true);
            }
        }
    }

    /// An object was made, where its handle says, by a change that its names are a part of.
    pub fn made(&mut self, object: ObjectId, handle: Handle, stamp: &Stamp, held: Held) {
        self.objects[object].handle = handle.0;
        self.objects[object].made = Exposed { stamp: stamp.clone(), held, servers: vec![handle.server().0] };
        let leads = |slot: &Slot| self.names.get(slot).is_some_and(|named| named.now() == Some(object));
        if let Some(operation) = self.operations.iter().rposition(|made| made.slots.iter().any(leads)) {
            self.place(operation);
        }
    }

    /// Whether an object may be gone, as a fault may have taken its making.
    pub fn may_be_gone(&self, object: ObjectId) -> bool {
        self.objects[object].made.is_lost(&self.now)
    }

    /// An fsync of a directory, called then, reported that its entries are durable, and their objects: all
    /// that no fault took before.
    pub fn synced(&mut self, dir: u64, called: u64) {
        let (range, now) = ((dir, String::new())..(dir.saturating_add(1), String::new()), self.now.clone());
        for (_, named) in self.names.range_mut(range) {
            let before = |change: &&mut Change| change.returned.is_some_and(|at| at <= called);
            for change in named.changes.iter_mut().filter(before).filter(|change| change.is_certain(&now)) {
                change.exposed.held = Held::Disk;
                if let Some(object) = change.to.map(|object| &mut self.objects[object].made)
                    && !object.is_lost(&now)
                {
                    object.held = Held::Disk;
                }
            }
        }
    }

    /// An object's attributes, with what faults may have taken of them. `is_synced`: changes that they did
    /// not take are durable.
    pub fn facts(&mut self, object: ObjectId, is_synced: bool) -> &mut RunFacts {
        let KnownObject { handle, facts, .. } = &mut self.objects[object];
        facts.settle(Handle(*handle).server().0, &self.now, is_synced);
        facts
    }

    /// It was refused: nothing was done.
    pub fn refused(&mut self, operation: usize) {
        self.operations[operation].refused = true;
        self.end(operation, |named| {
            named.changes.pop();
        });
    }

    fn end(&mut self, operation: usize, each: impl Fn(&mut Named)) {
        let ended = &self.operations[operation];
        for slot in &ended.slots {
            if let Some(named) = self.names.get_mut(slot) {
                each(named);
            }
        }
    }

    /// From `at` on this one changes a name. Its object may have been changed by several clients.
    pub fn give(&mut self, slot: &Slot, owner: u16, at: u64) {
        if let Some(named) = self.names.get_mut(slot) {
            named.owner = owner;
            if let Some(object) = named.now() {
                self.objects[object].offered_at.get_or_insert(at);
            }
        }
    }

    /// Whether a name's object is certain.
    pub fn is_settled(&self, slot: &Slot) -> bool {
        self.names.get(slot).is_none_or(|named| named.changes.iter().all(|c| c.is_certain(&self.now)))
    }

    /// Names of `owner` that lead to an object for certain.
    pub fn live(&self, owner: u16) -> Vec<(Slot, ObjectId)> {
        let own = self.names.iter().filter(|(_, named)| named.owner == owner && named.settled(&self.now));
        own.filter_map(|(slot, named)| Some((slot.clone(), named.now()?))).collect()
    }

    /// Names of `owner` that are gone for certain.
    pub fn gone(&self, owner: u16) -> Vec<Slot> {
        let own = self.names.iter().filter(|(_, named)| named.owner == owner && named.settled(&self.now));
        let gone = own.filter(|(_, named)| named.now().is_none() && !named.changes.is_empty());
        gone.map(|(slot, _)| slot.clone()).collect()
    }

    /// All names that lead to an object for certain, of any owner.
    pub fn all_live(&self) -> Vec<(Slot, ObjectId)> {
        let live = self.names.iter().filter(|(_, named)| named.settled(&self.now));
        live.filter_map(|(slot, named)| Some((slot.clone(), named.now()?))).collect()
    }

    /// How many names lead to an object; `None`: it is not known.
    pub fn links(&self, object: ObjectId) -> Option<u32> {
        if self.objects[object].is_public {
            return None;
        }
        let mut links = 0;
        for named in self.names.values() {
            let mine = |change: &Change| change.from == Some(object) || change.to == Some(object);
            // Of changes that may all be lost, each may be the last that stands.
            let certain = named.changes.iter().rposition(|change| change.is_certain(&self.now));
            if named.changes[certain.map_or(0, |index| index + 1)..].iter().any(mine) {
                return None;
            }
            links += u32::from(named.now() == Some(object));
        }
        Some(links)
    }

    /// The possible objects of a name between two moments.
    pub fn possible(&self, slot: &Slot, called: u64, returned: u64) -> Vec<Option<ObjectId>> {
        let Some(named) = self.names.get(slot) else { return vec![None] };
        let is_certain = |c: &Change| c.returned.is_some_and(|at| at < called) && c.is_certain(&self.now);
        let certain = named.changes.iter().rposition(is_certain);
        let mut possible = vec![certain.and_then(|index| named.changes[index].to)];
        let later = &named.changes[certain.map_or(0, |index| index + 1)..];
        possible.extend(later.iter().filter(|change| change.called < returned).map(|change| change.to));
        possible
    }

    /// The names of a directory that are known.
    pub fn names_in(&self, dir: u64) -> Vec<&Slot> {
        let range = (dir, String::new())..(dir.saturating_add(1), String::new());
        self.names.range(range).map(|(slot, _)| slot).collect()
    }

    /// Hold the ledger against the tree as it was found: `found` gives a name's handle.
    pub fn judge(&self, found: impl Fn(&Slot) -> Option<u64>) -> Vec<String> {
        let mut wrong = Vec::new();
        for (slot, named) in &self.names {
            let (seen, possible) = (found(slot), self.possible(slot, u64::MAX, u64::MAX));
            if !possible.iter().any(|now| self.agrees(*now, seen)) {
                let handle = |now: &Option<ObjectId>| now.map(|object| self.objects[object].handle);
                let handles: Vec<Option<u64>> = possible.iter().map(handle).collect();
                let (owner, at) = (named.owner, named.changes.last().and_then(|change| change.returned));
                wrong.push(format!(
                    "client {owner}: {slot:?}, acknowledged at {at:?} ns: expected one of {handles:x?}, found {seen:x?} at the end"
                ));
            }
        }
        for (number, operation) in self.operations.iter().enumerate().filter(|(_, o)| !o.refused) {
            // Earlier and later changes are not affected: all its names stand as before it or as after it.
            let last = |slot: &Slot| {
                let changes = self.names.get(slot).map_or(&[][..], |named| &named.changes);
                let [before @ .., last] = changes else { return None };
                let is_clear = before.last().is_none_or(|change| change.is_certain(&self.now));
                (last.operation == number && is_clear && !last.is_certain(&self.now)).then_some(last)
            };
            let Some(changes) = operation.slots.iter().map(last).collect::<Option<Vec<&Change>>>() else {
                continue;
            };
            let stands = |of: fn(&Change) -> Option<ObjectId>| {
                let mut all = operation.slots.iter().zip(&changes);
                all.all(|(slot, change)| self.agrees(of(change), found(slot)))
            };
            if !stands(|change| change.from) && !stands(|change| change.to) {
                let seen: Vec<(&Slot, Option<u64>)> =
                    operation.slots.iter().map(|slot| (slot, found(slot))).collect();
                wrong.push(format!(
                    "{}: expected it done or not, found it done by half: {seen:x?}",
                    operation.words
                ));
            }
        }
        wrong
    }

    /// An object whose creation was never acknowledged has an unknown handle.
    fn agrees(&self, object: Option<ObjectId>, seen: Option<u64>) -> bool {
        match (object, seen) {
            (None, seen) => seen.is_none(),
            (Some(object), Some(handle)) => [0, handle].contains(&self.objects[object].handle),
            (Some(_), None) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(name: &str) -> Slot {
        (1, name.to_owned())
    }

    fn ledger() -> (Ledger, ObjectId) {
        let mut ledger = Ledger::default();
        let mut object = KnownObject::new(Kind::File, 0, 0, 0);
        object.handle = 7;
        let object = ledger.object(object);
        let made = ledger.begin(3, "create a", 1, Held::Disk, vec![(slot("a"), Some(object))]);
        ledger.done(made, 2, Held::Disk);
        (ledger, object)
    }

    #[test]
    fn an_acknowledged_name_must_be_there_and_a_removed_one_must_not() {
        let (mut ledger, object) = ledger();
        let at = |place: &'static str| move |slot: &Slot| (slot.1 == place).then_some(7);
        assert!(ledger.judge(at("a")).is_empty());
        assert_eq!(ledger.judge(|_| None).len(), 1);
        assert_eq!(ledger.judge(|_| Some(8)).len(), 1);
        assert_eq!(ledger.live(3), [(slot("a"), object)]);
        let removed = ledger.begin(3, "unlink a", 3, Held::Disk, vec![(slot("a"), None)]);
        assert_eq!(ledger.live(3), [], "it is not settled");
        assert_eq!(ledger.links(object), None);
        ledger.done(removed, 4, Held::Disk);
        assert!(ledger.judge(|_| None).is_empty());
        assert_eq!(ledger.judge(at("a")).len(), 1);
        assert_eq!(ledger.gone(3), [slot("a")]);
        assert_eq!(ledger.links(object), Some(0));
    }

    #[test]
    fn a_refused_change_leaves_all_as_it_was() {
        let (mut ledger, object) = ledger();
        let refused =
            ledger.begin(3, "rename a b", 3, Held::Disk, vec![(slot("a"), None), (slot("b"), Some(object))]);
        ledger.refused(refused);
        assert_eq!(ledger.live(3), [(slot("a"), object)]);
        assert_eq!(ledger.judge(|_| Some(7)).len(), 1, "b never came");
    }

    #[test]
    fn an_unknown_rename_is_done_or_not_but_never_by_half() {
        let (mut ledger, object) = ledger();
        ledger.begin(3, "rename a b", 3, Held::Disk, vec![(slot("a"), None), (slot("b"), Some(object))]);
        let at = |place: &'static str| move |slot: &Slot| (slot.1 == place).then_some(7);
        assert!(ledger.judge(at("a")).is_empty());
        assert!(ledger.judge(at("b")).is_empty());
        assert_eq!(ledger.judge(|_| None).len(), 1);
        assert_eq!(ledger.judge(|_| Some(7)).len(), 1);
    }

    #[test]
    fn what_a_name_led_to_meanwhile_is_known() {
        let (mut ledger, object) = ledger();
        let removed = ledger.begin(3, "unlink a", 10, Held::Disk, vec![(slot("a"), None)]);
        ledger.done(removed, 20, Held::Disk);
        assert_eq!(ledger.possible(&slot("a"), 5, 6), [Some(object)]);
        assert_eq!(ledger.possible(&slot("a"), 5, 15), [Some(object), None]);
        assert_eq!(ledger.possible(&slot("a"), 20, 25), [Some(object), None]);
        assert_eq!(ledger.possible(&slot("a"), 21, 25), [None]);
        assert_eq!(ledger.possible(&slot("b"), 1, 2), [None]);
        assert_eq!(ledger.names_in(1), [&slot("a")]);
    }

    /// A ledger whose name `a` was removed, and a fault of that server since.
    fn removed(held: Held, server: u16, is_cut: bool) -> Ledger {
        let (mut ledger, _) = ledger();
        ledger.now = Stamp::new(3);
        let removed = ledger.begin(3, "unlink a", 3, held, vec![(slot("a"), None)]);
        ledger.done(removed, 4, held);
        ledger.now.add(server, is_cut, true);
        ledger
    }

    #[test]
    fn a_change_that_a_fault_may_have_taken_is_there_or_not_and_its_name_is_left_alone() {
        let at_a = |slot: &Slot| (slot.1 == "a").then_some(7);
        for (held, server, is_cut, is_shaken) in [
            (Held::Kernel, 0, true, true),
            (Held::Kernel, 0, false, false),
            (Held::Memory, 0, false, true),
            (Held::Kernel, 1, true, false),
            (Held::Disk, 0, true, false),
        ] {
            let ledger = removed(held, server, is_cut);
            let words = format!("{held:?} at 0, a fault of {server}");
            assert!(ledger.judge(|_| None).is_empty(), "{words}");
            assert_eq!(ledger.judge(at_a).is_empty(), is_shaken, "{words}");
            assert!(!ledger.judge(|_| Some(8)).is_empty(), "{words}: it never led there");
            assert_eq!(ledger.gone(3).is_empty(), is_shaken, "{words}");
            assert_eq!(ledger.links(0), (!is_shaken).then_some(0), "{words}");
        }
    }

    #[test]
    fn of_changes_of_a_name_that_may_all_be_lost_each_may_be_the_last_that_stands() {
        for (held, links) in [(Held::Kernel, None), (Held::Disk, Some(0))] {
            let (mut ledger, first) = ledger();
            ledger.now = Stamp::new(3);
            let second = ledger.object(KnownObject::new(Kind::File, 0, 0, 0));
            for (at, to) in [(3, Some(second)), (5, None)] {
                let changed = ledger.begin(3, "change a", at, held, vec![(slot("a"), to)]);
                ledger.done(changed, at + 1, held);
            }
            assert_eq!(ledger.links(first), Some(0));
            ledger.now.add(0, true, true);
            assert_eq!((ledger.links(first), ledger.links(second)), (links, links), "{held:?}");
        }
    }

    #[test]
    fn a_name_of_a_directory_that_may_be_split_is_excused_by_two_servers_and_by_no_other() {
        let (key, shards) = (PlaceKey::new([1; 32]), Shards::over((0..4).map(shoal_proto::ServerId)));
        let mut shaken = BTreeMap::new();
        for (text, server) in
            ('a'..='z').flat_map(|text| (0..4).map(move |server| (text.to_string(), server)))
        {
            let mut ledger = Ledger {
                splits: Some(DrawnSplits { key, shards: vec![shards.clone()] }),
                ..Ledger::default()
            };
            ledger.now = Stamp::new(4);
            let object = ledger.object(KnownObject::new(Kind::File, 0, 0, 0));
            let made = ledger.begin(3, "create", 1, Held::Kernel, vec![(slot(&text), Some(object))]);
            ledger.done(made, 2, Held::Kernel);
            let shard = shards.server_of(key.place_of(text.as_bytes())).unwrap();
            ledger.made(object, Handle::new(shard, 9), &Stamp::new(4), Held::Kernel);
            ledger.now.add(server, true, true);
            let expected = server == 0 || server == shard.0;
            assert_eq!(
                ledger.judge(|_| None).is_empty(),
                expected,
                "{text} of {shard:?}, a fault of {server}"
            );
            assert_eq!(ledger.servers_of(&slot(&text)), [0, shard.0]);
            *shaken.entry(server).or_insert(0) += u32::from(expected);
        }
        assert_eq!(shaken[&0], 26);
        assert!((1..4).all(|server| (1..20).contains(&shaken[&server])), "{shaken:?}");
    }

    #[test]
    fn what_an_fsync_of_the_directory_covered_before_the_fault_is_not_shaken() {
        let (mut ledger, object) = ledger();
        ledger.now = Stamp::new(3);
        let moved = vec![(slot("a"), None), (slot("b"), Some(object))];
        let moved = ledger.begin(3, "rename a b", 3, Held::Kernel, moved);
        ledger.done(moved, 4, Held::Kernel);
        let mut synced = ledger.clone();
        synced.synced(1, 5);
        ledger.synced(1, 3);
        ledger.synced(2, 5);
        for ledger in [&mut synced, &mut ledger] {
            ledger.now.add(0, true, true);
        }
        let at = |place: &'static str| move |slot: &Slot| (slot.1 == place).then_some(7);
        assert_eq!((synced.judge(at("a")).len(), synced.judge(at("b")).len()), (2, 0));
        assert!(ledger.judge(at("a")).is_empty() && ledger.judge(at("b")).is_empty());
        assert!(!ledger.judge(|_| Some(7)).is_empty(), "by half");
        // An fsync after the fault proves nothing about changes before it.
        ledger.synced(1, 9);
        assert!(ledger.judge(at("a")).is_empty());
    }
}
