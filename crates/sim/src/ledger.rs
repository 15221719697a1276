//! The ledger: what every client was told about names that only it changes, and about the objects behind them.
//!
//! *Names.* A name's history is a list of changes, each with the moments of its call and its return. Its owner changes it
//! only when the last change has returned, so at any moment the name is as the last change that has returned says, or as
//! one behind that which was called. A change of several names (rename) is one *operation*: if it was never answered, at the
//! end all its names stand as before it, or all as after it.
//!
//! *Objects.* What is known of an object besides its names: its bytes ([`crate::contents`]), its attributes and extended
//! attributes ([`crate::facts`]), where it leads.

use crate::contents::Contents;
use crate::facts::Facts;
use shoal_proto::Kind;
use std::collections::BTreeMap;

/// A name: its directory's handle and its bytes.
pub type Slot = (u64, String);

/// An object of the ledger.
pub type ObjectId = usize;

/// Owner of what nobody changes.
pub const NOBODY: u16 = u16::MAX;

/// An object, as far as it is known.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its handle; 0: never told.
    pub handle: u64,
    /// What it is.
    pub kind: Kind,
    /// Who else than its owner may change its names, so that their number is not known.
    pub is_public: bool,
    /// Bytes, of a file.
    pub contents: Contents,
    /// Attributes.
    pub facts: Facts,
    /// Where a symbolic link leads.
    pub target: Vec<u8>,
}

impl Object {
    /// A new object.
    pub fn new(kind: Kind, mode: u32, uid: u32, gid: u32) -> Object {
        Object {
            handle: 0,
            kind,
            is_public: false,
            contents: Contents::default(),
            facts: Facts::new(mode, uid, gid),
            target: Vec::new(),
        }
    }
}

/// A change of a name.
#[derive(Clone, Copy, Debug)]
struct Change {
    called: u64,
    returned: Option<u64>,
    /// What it led to before, and leads to now.
    from: Option<ObjectId>,
    to: Option<ObjectId>,
}

/// A name and its changes.
#[derive(Clone, Debug)]
struct Named {
    owner: u16,
    changes: Vec<Change>,
}

impl Named {
    fn settled(&self) -> bool {
        self.changes.last().is_none_or(|change| change.returned.is_some())
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
    ended: bool,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The objects.
    pub objects: Vec<Object>,
    names: BTreeMap<Slot, Named>,
    operations: Vec<Operation>,
}

impl Ledger {
    /// A new object; its handle is known when it is made.
    pub fn object(&mut self, object: Object) -> ObjectId {
        self.objects.push(object);
        self.objects.len() - 1
    }

    /// `owner` is about to change names: each to what it is to lead to. The operation's number.
    pub fn begin(
        &mut self,
        owner: u16,
        words: &str,
        now: u64,
        changes: Vec<(Slot, Option<ObjectId>)>,
    ) -> usize {
        let slots = changes.iter().map(|(slot, _)| slot.clone()).collect();
        for (slot, to) in changes {
            let named = self.names.entry(slot).or_insert_with(|| Named { owner, changes: Vec::new() });
            let from = named.now();
            named.changes.push(Change { called: now, returned: None, from, to });
        }
        self.operations.push(Operation { words: words.to_owned(), slots, ended: false });
        self.operations.len() - 1
    }

    /// It was acknowledged.
    pub fn done(&mut self, operation: usize, now: u64) {
        self.end(operation, |named| {
            if let Some(change) = named.changes.last_mut() {
                change.returned = Some(now);
            }
        });
    }

    /// It was refused: nothing was done.
    pub fn refused(&mut self, operation: usize) {
        self.end(operation, |named| {
            named.changes.pop();
        });
    }

    fn end(&mut self, operation: usize, each: impl Fn(&mut Named)) {
        let ended = &mut self.operations[operation];
        ended.ended = true;
        for slot in &ended.slots {
            if let Some(named) = self.names.get_mut(slot) {
                each(named);
            }
        }
    }

    /// Names of `owner` that lead to an object for certain.
    pub fn live(&self, owner: u16) -> Vec<(Slot, ObjectId)> {
        let own = self.names.iter().filter(|(_, named)| named.owner == owner && named.settled());
        own.filter_map(|(slot, named)| Some((slot.clone(), named.now()?))).collect()
    }

    /// Names of `owner` that are gone for certain.
    pub fn gone(&self, owner: u16) -> Vec<Slot> {
        let own = self.names.iter().filter(|(_, named)| named.owner == owner && named.settled());
        let gone = own.filter(|(_, named)| named.now().is_none() && !named.changes.is_empty());
        gone.map(|(slot, _)| slot.clone()).collect()
    }

    /// All names that lead to an object for certain, whoever's.
    pub fn all_live(&self) -> Vec<(Slot, ObjectId)> {
        let live = self.names.iter().filter(|(_, named)| named.settled());
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
            if !named.settled() && named.changes.last().is_some_and(mine) {
                return None;
            }
            links += u32::from(named.now() == Some(object));
        }
        Some(links)
    }

    /// What a name may have led to between two moments.
    pub fn possible(&self, slot: &Slot, called: u64, returned: u64) -> Vec<Option<ObjectId>> {
        let Some(named) = self.names.get(slot) else { return vec![None] };
        let certain = named.changes.iter().rposition(|c| c.returned.is_some_and(|at| at < called));
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
        for (slot, named) in self.names.iter().filter(|(_, named)| named.settled()) {
            let (seen, now) = (found(slot), named.now());
            if !self.agrees(now, seen) {
                let handle = now.map(|object| self.objects[object].handle);
                let (owner, at) = (named.owner, named.changes.last().and_then(|change| change.returned));
                wrong.push(format!(
                    "client {owner}: {slot:?}, acknowledged at {at:?} ns: expected {handle:x?}, found {seen:x?} at the end"
                ));
            }
        }
        for operation in self.operations.iter().filter(|operation| !operation.ended) {
            let last = |slot: &Slot| self.names.get(slot).and_then(|named| named.changes.last().copied());
            let stands = |of: fn(Change) -> Option<ObjectId>| {
                let agrees = |slot: &Slot| last(slot).is_none_or(|c| self.agrees(of(c), found(slot)));
                operation.slots.iter().all(agrees)
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

    /// An object whose making was never acknowledged has a handle that was never told.
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
        let mut object = Object::new(Kind::File, 0, 0, 0);
        object.handle = 7;
        let object = ledger.object(object);
        let made = ledger.begin(3, "create a", 1, vec![(slot("a"), Some(object))]);
        ledger.done(made, 2);
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
        let removed = ledger.begin(3, "unlink a", 3, vec![(slot("a"), None)]);
        assert_eq!(ledger.live(3), [], "it is not settled");
        assert_eq!(ledger.links(object), None);
        ledger.done(removed, 4);
        assert!(ledger.judge(|_| None).is_empty());
        assert_eq!(ledger.judge(at("a")).len(), 1);
        assert_eq!(ledger.gone(3), [slot("a")]);
        assert_eq!(ledger.links(object), Some(0));
    }

    #[test]
    fn a_refused_change_leaves_all_as_it_was() {
        let (mut ledger, object) = ledger();
        let refused = ledger.begin(3, "rename a b", 3, vec![(slot("a"), None), (slot("b"), Some(object))]);
        ledger.refused(refused);
        assert_eq!(ledger.live(3), [(slot("a"), object)]);
        assert_eq!(ledger.judge(|_| Some(7)).len(), 1, "b never came");
    }

    #[test]
    fn an_unknown_rename_is_done_or_not_but_never_by_half() {
        let (mut ledger, object) = ledger();
        ledger.begin(3, "rename a b", 3, vec![(slot("a"), None), (slot("b"), Some(object))]);
        let at = |place: &'static str| move |slot: &Slot| (slot.1 == place).then_some(7);
        assert!(ledger.judge(at("a")).is_empty());
        assert!(ledger.judge(at("b")).is_empty());
        assert_eq!(ledger.judge(|_| None).len(), 1);
        assert_eq!(ledger.judge(|_| Some(7)).len(), 1);
    }

    #[test]
    fn what_a_name_led_to_meanwhile_is_known() {
        let (mut ledger, object) = ledger();
        let removed = ledger.begin(3, "unlink a", 10, vec![(slot("a"), None)]);
        ledger.done(removed, 20);
        assert_eq!(ledger.possible(&slot("a"), 5, 6), [Some(object)]);
        assert_eq!(ledger.possible(&slot("a"), 5, 15), [Some(object), None]);
        assert_eq!(ledger.possible(&slot("a"), 20, 25), [Some(object), None]);
        assert_eq!(ledger.possible(&slot("a"), 21, 25), [None]);
        assert_eq!(ledger.possible(&slot("b"), 1, 2), [None]);
        assert_eq!(ledger.names_in(1), [&slot("a")]);
    }
}
