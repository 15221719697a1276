//! Rows of a memory table: found by their keys' hashes, and in the order of their keys.
//!
//! ```text
//!   index   hash of a key ─▶ row        lookups of handlers: one or two cache misses at any size
//!   order   key ─▶ row                  walks of listings and checkpoints
//!   rows    key, value, newest strong change: in chunks, so that no growth moves them
//! ```
//! **A key's first bytes lie beside the reference to it** in the order: a search in 100,000 rows compares
//! some thirty keys, and a cache miss for each would dominate the cost. The first sixteen bytes distinguish
//! the keys of all objects, and the keys of nearly all entries.

use super::super::bloom::KeyHash;
use super::Entry;
use bytes::Bytes;
use hashbrown::HashTable;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Bytes of a key that are compared without a memory access to it.
const HEAD: usize = 16;
/// Rows of one chunk.
const CHUNK_ROWS: usize = 1024;

/// See the module.
#[derive(Default)]
pub(in crate::disk) struct TableRows {
    rows: Vec<Vec<(Bytes, Entry)>>,
    index: HashTable<Place>,
    order: BTreeMap<Key, u32>,
}

/// The place of the row of a key with this hash.
struct Place {
    hash: KeyHash,
    at: u32,
}

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

/// The common order of both.
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

/// The first bytes, with zeros after a shorter key: they differ only as the keys do.
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
    /// A table that is to hold about so many rows.
    pub(in crate::disk) fn for_rows(rows: usize) -> TableRows {
        TableRows { index: HashTable::with_capacity(rows), ..TableRows::default() }
    }

    pub(in crate::disk) fn len(&self) -> usize {
        self.order.len()
    }

    /// A row, by its key and that key's hash.
    pub(in crate::disk) fn get(&self, key: &[u8], hash: KeyHash) -> Option<&Entry> {
        let place =
            self.index.find(hash.bits(), |place| place.hash == hash && self.row(place.at).0 == key)?;
        Some(&self.row(place.at).1)
    }

    /// Put a row; returns the one that it replaces.
    pub(in crate::disk) fn insert(&mut self, key: Bytes, hash: KeyHash, entry: Entry) -> Option<Entry> {
        let rows = &mut self.rows;
        let place = self.index.find(hash.bits(), |place| place.hash == hash && row(rows, place.at).0 == key);
        if let Some(&Place { at, .. }) = place {
            return Some(std::mem::replace(&mut row_mut(rows, at).1, entry));
        }
        // No memory holds more rows than this.
        let at = u32::try_from(self.order.len()).unwrap_or(u32::MAX);
        self.order.insert(Key { head: head(&key), bytes: key.clone() }, at);
        match rows.last_mut().filter(|chunk| chunk.len() < CHUNK_ROWS) {
            Some(chunk) => chunk.push((key, entry)),
            None => {
                let mut chunk = Vec::with_capacity(CHUNK_ROWS);
                chunk.push((key, entry));
                rows.push(chunk);
            }
        }
        self.index.insert_unique(hash.bits(), Place { hash, at }, |place| place.hash.bits());
        None
    }

    /// All rows, in the order of their keys.
    pub(in crate::disk) fn iter(&self) -> impl Iterator<Item = (&Bytes, &Entry)> {
        self.order.values().map(|&at| self.row(at)).map(|(key, entry)| (key, entry))
    }

    /// The rows from a key on.
    pub(in crate::disk) fn from(&self, from: Bound<&[u8]>) -> impl Iterator<Item = (&Bytes, &Entry)> {
        let probe = from.map(|bytes| Probe { head: head(bytes), bytes });
        let from = probe.as_ref().map(|probe| probe as &dyn Headed);
        let places = self.order.range::<dyn Headed, _>((from, Bound::Unbounded));
        places.map(|(key, &at)| (&key.bytes, &self.row(at).1))
    }

    fn row(&self, at: u32) -> &(Bytes, Entry) {
        row(&self.rows, at)
    }
}

fn row(rows: &[Vec<(Bytes, Entry)>], at: u32) -> &(Bytes, Entry) {
    &rows[at as usize / CHUNK_ROWS][at as usize % CHUNK_ROWS]
}

fn row_mut(rows: &mut [Vec<(Bytes, Entry)>], at: u32) -> &mut (Bytes, Entry) {
    &mut rows[at as usize / CHUNK_ROWS][at as usize % CHUNK_ROWS]
}

#[cfg(test)]
mod tests {
    use super::super::super::bloom::BloomFilter;
    use super::*;
    use crate::Lsn;
    use proptest::prelude::*;

    fn entry(lsn: u64) -> Entry {
        Entry { value: None, strong: Lsn(lsn) }
    }

    #[test]
    fn rows_are_in_the_order_of_their_keys_whatever_those_begin_with() {
        let keys = proptest::collection::vec(proptest::collection::vec(0_u8..3, 0..20), 0..60);
        proptest!(|(keys in keys, asked in proptest::collection::vec(0_u8..3, 0..20))| {
            let filter = BloomFilter::new(64, 7, true);
            let (mut rows, mut model) = (TableRows::default(), BTreeMap::new());
            for (lsn, key) in (1..).zip(keys) {
                let hash = filter.hash(&key);
                prop_assert_eq!(rows.insert(key.clone().into(), hash, entry(lsn)), model.insert(key, entry(lsn)));
            }
            prop_assert_eq!(rows.len(), model.len());
            prop_assert!(rows.iter().map(|(key, row)| (key.as_ref(), row)).eq(model.iter().map(|(key, row)| (&key[..], row))));
            prop_assert_eq!(rows.get(&asked, filter.hash(&asked)), model.get(&asked));
            for from in [Bound::Included(&asked[..]), Bound::Excluded(&asked[..]), Bound::Unbounded] {
                let expected = model.range::<[u8], _>((from, Bound::Unbounded)).map(|(key, _)| key.as_slice());
                prop_assert!(rows.from(from).map(|(key, _)| key.as_ref()).eq(expected));
            }
        });
    }

    #[test]
    fn a_row_is_found_by_its_key_though_others_have_its_hash() {
        let hash = BloomFilter::new(64, 7, true).hash(b"one");
        let mut rows = TableRows::default();
        for (n, lsn) in (0..3000_u32).zip(1..) {
            assert_eq!(rows.insert(n.to_be_bytes().to_vec().into(), hash, entry(lsn)), None);
        }
        assert_eq!(rows.get(&1500_u32.to_be_bytes(), hash), Some(&entry(1501)));
        assert_eq!(rows.insert(1500_u32.to_be_bytes().to_vec().into(), hash, entry(9)), Some(entry(1501)));
        assert_eq!(rows.get(&1500_u32.to_be_bytes(), hash), Some(&entry(9)));
        assert_eq!(rows.get(&3000_u32.to_be_bytes(), hash), None);
    }
}
