//! Listings: an entry that is there from the beginning of a listing to its end is listed exactly once, and
//! any other entry at most once (SEMANTICS §2). The object that the listing shows for an entry was the
//! entry's object at some moment of the listing.

use crate::ledger::{Ledger, Slot};
use shoal_proto::Attr;
use std::collections::BTreeMap;

/// An entry as a listing gave it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// Its object.
    pub handle: u64,
    /// Its attributes: requested and found.
    pub attr: Option<Attr>,
}

/// A whole listing.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Of which directory.
    pub dir: u64,
    /// Attributes were requested.
    pub plus: bool,
    /// When its first message was sent.
    pub called: u64,
    /// When its last answer came.
    pub returned: u64,
    /// The returned entries, in their order.
    pub entries: Vec<ListedEntry>,
}

/// Hold a listing against the names that the ledger knows; others are only held to be given once.
pub fn judge(listing: &Listing, ledger: &Ledger) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut given: BTreeMap<&[u8], (u32, &ListedEntry)> = BTreeMap::new();
    for entry in &listing.entries {
        given.entry(&entry.name).or_insert((0, entry)).0 += 1;
    }
    for (name, (count, _)) in given.iter().filter(|(_, (count, _))| *count > 1) {
        wrong.push(format!("{}: expected it once, found it {count} times", String::from_utf8_lossy(name)));
    }
    for slot in ledger.names_in(listing.dir) {
        let entry = given.get(slot.1.as_bytes()).map(|(_, entry)| *entry);
        if let Err(words) = judge_name(listing, ledger, slot, entry) {
            wrong.push(format!("{}: {words}", slot.1));
        }
    }
    wrong
}

fn judge_name(
    listing: &Listing,
    ledger: &Ledger,
    slot: &Slot,
    entry: Option<&ListedEntry>,
) -> Result<(), String> {
    let possible = ledger.possible(slot, listing.called, listing.returned);
    let Some(entry) = entry else {
        return match possible.iter().all(Option::is_some) {
            true => Err("expected it, as it was there all the time, found nothing".to_owned()),
            false => Ok(()),
        };
    };
    let handles: Vec<u64> = possible.iter().flatten().map(|object| ledger.objects[*object].handle).collect();
    // An object whose creation is not acknowledged has an unknown handle.
    if !handles.contains(&entry.handle) && !handles.contains(&0) {
        return Err(format!("expected it to lead to one of {handles:x?}, found {:x}", entry.handle));
    }
    if listing.plus && entry.attr.is_none() && possible.iter().all(|object| *object == possible[0]) {
        return Err(format!("expected attributes of {:x}, found none", entry.handle));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::KnownObject;
    use crate::losses::Held;
    use shoal_proto::Kind;

    /// `a` is there from 2 on, `b` from 2 to between 10 and 20.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        for (name, handle) in [("a", 7), ("b", 8)] {
            let mut object = KnownObject::new(Kind::File, 0, 0, 0);
            object.handle = handle;
            let object = ledger.object(object);
            let made = ledger.begin(0, "create", 1, Held::Disk, vec![((1, name.to_owned()), Some(object))]);
            ledger.done(made, 2, Held::Disk);
        }
        let removed = ledger.begin(0, "unlink", 10, Held::Disk, vec![((1, "b".to_owned()), None)]);
        ledger.done(removed, 20, Held::Disk);
        ledger
    }

    fn judged(called: u64, returned: u64, entries: &[(&str, u64)]) -> usize {
        let listed = |(name, handle): &(&str, u64)| ListedEntry {
            name: name.as_bytes().to_vec(),
            handle: *handle,
            attr: None,
        };
        let entries = entries.iter().map(listed).collect();
        judge(&Listing { dir: 1, plus: false, called, returned, entries }, &ledger()).len()
    }

    #[test]
    fn what_is_there_all_the_time_is_given_once() {
        assert_eq!(judged(3, 5, &[("a", 7), ("b", 8)]), 0);
        assert_eq!(judged(3, 5, &[("a", 7)]), 1, "b was skipped");
        assert_eq!(judged(3, 5, &[("b", 8), ("a", 7), ("b", 8)]), 1, "b came twice");
        assert_eq!(judged(3, 5, &[("a", 8), ("b", 8)]), 1, "a leads elsewhere");
    }

    #[test]
    fn what_changes_meanwhile_is_given_at_most_once_and_what_is_gone_never() {
        assert_eq!(judged(3, 15, &[("a", 7)]), 0);
        assert_eq!(judged(3, 15, &[("b", 8), ("a", 7)]), 0);
        assert_eq!(judged(3, 15, &[("b", 8), ("a", 7), ("b", 8)]), 1);
        assert_eq!(judged(30, 35, &[("a", 7)]), 0);
        assert_eq!(judged(30, 35, &[("a", 7), ("b", 8)]), 1, "b was removed before");
        assert_eq!(judged(30, 35, &[("a", 7), ("foreign", 9)]), 0, "it is nobody's");
    }
}
