//! Rows of a memory table, in the order of their keys.
//!
//! **A key's first bytes lie beside the reference to it.** A search in a table of 100,000 rows compares some thirty keys; each
//! that it had to go to memory for would cost more than all the rest of a lookup. The first sixteen bytes tell objects'
//! keys apart altogether, and those of entries nearly always.

use super::Entry;
use bytes::Bytes;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Bytes of a key that are compared without going to memory for it.
const HEAD: usize = 16;
/// As long as any key that is told by its head and its length.
static ZEROS: [u8; HEAD] = [0; HEAD];

/// See the module's page.
#[derive(Default)]
pub(in crate::disk) struct TableRows(BTreeMap<Key, Entry>);

/// A key in the table.
struct Key {
    head: u128,
    bytes: Bytes,
}

/// A key that is searched for.
struct Probe<'a> {
    head: u128,
    bytes: &'a [u8],
}

/// What both are ordered by.
trait Headed {
    fn parts(&self) -> (u128, &[u8]);
}

impl Headed for Key {
    #[inline]
    fn parts(&self) -> (u128, &[u8]) {
        (self.head, &self.bytes)
    }
}

impl Headed for Probe<'_> {
    #[inline]
    fn parts(&self) -> (u128, &[u8]) {
        (self.head, self.bytes)
    }
}

/// The first bytes, with zeros behind a shorter key: they differ only as the keys do.
fn head(bytes: &[u8]) -> u128 {
    let mut head = [0; HEAD];
    let len = bytes.len().min(HEAD);
    head[..len].copy_from_slice(&bytes[..len]);
    u128::from_be_bytes(head)
}

#[inline]
fn order(a: (u128, &[u8]), b: (u128, &[u8])) -> Ordering {
    a.0.cmp(&b.0).then_with(|| match a.1.len().max(b.1.len()) {
        // One is the other, or the other and zeros.
        ..=HEAD => a.1.len().cmp(&b.1.len()),
        _ => a.1.cmp(b.1),
    })
}

impl Ord for Key {
    #[inline]
    fn cmp(&self, other: &Key) -> Ordering {
        order(self.parts(), other.parts())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Key {}

impl Ord for dyn Headed + '_ {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        order(self.parts(), other.parts())
    }
}

impl PartialOrd for dyn Headed + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Headed + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for dyn Headed + '_ {}

impl<'a> Borrow<dyn Headed + 'a> for Key {
    #[inline]
    fn borrow(&self) -> &(dyn Headed + 'a) {
        self
    }
}

impl TableRows {
    pub(in crate::disk) fn len(&self) -> usize {
        self.0.len()
    }

    pub(in crate::disk) fn get(&self, key: &[u8]) -> Option<&Entry> {
        let head = head(key);
        match ZEROS.get(..key.len()) {
            // Of such a key nothing but its length is looked at beside the head.
            Some(zeros) => self.0.get(&Key { head, bytes: Bytes::from_static(zeros) }),
            None => self.0.get(&Probe { head, bytes: key } as &dyn Headed),
        }
    }

    pub(in crate::disk) fn insert(&mut self, key: Bytes, entry: Entry) {
        self.0.insert(Key { head: head(&key), bytes: key }, entry);
    }

    pub(in crate::disk) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Entry)> {
        self.0.iter().map(|(key, entry)| (&key.bytes, entry))
    }

    /// The rows from a key on.
    pub(in crate::disk) fn from(&self, from: Bound<&[u8]>) -> impl Iterator<Item = (&Bytes, &Entry)> {
        let probe = from.map(|bytes| Probe { head: head(bytes), bytes });
        let from = probe.as_ref().map(|probe| probe as &dyn Headed);
        self.0.range::<dyn Headed, _>((from, Bound::Unbounded)).map(|(key, entry)| (&key.bytes, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lsn;
    use proptest::prelude::*;

    fn entry() -> Entry {
        Entry { value: None, strong: Lsn(1) }
    }

    #[test]
    fn rows_are_in_the_order_of_their_keys_whatever_those_begin_with() {
        let keys = proptest::collection::vec(proptest::collection::vec(0_u8..3, 0..20), 0..60);
        proptest!(|(keys in keys, asked in proptest::collection::vec(0_u8..3, 0..20))| {
            let (mut rows, mut model) = (TableRows::default(), BTreeMap::new());
            for key in keys {
                rows.insert(key.clone().into(), entry());
                model.insert(key, entry());
            }
            prop_assert_eq!(rows.len(), model.len());
            prop_assert!(rows.iter().map(|(key, _)| key.as_ref()).eq(model.keys().map(Vec::as_slice)));
            prop_assert_eq!(rows.get(&asked).is_some(), model.contains_key(&asked));
            for from in [Bound::Included(&asked[..]), Bound::Excluded(&asked[..]), Bound::Unbounded] {
                let expected = model.range::<[u8], _>((from, Bound::Unbounded)).map(|(key, _)| key.as_slice());
                prop_assert!(rows.from(from).map(|(key, _)| key.as_ref()).eq(expected));
            }
        });
    }
}
