//! Rows in memory: the layers that a handler reads without waiting.
//!
//! They are searched in this order; the first layer that knows the key gives the answer:
//!
//! 1. the *active* table: changes since the last freeze;
//! 2. the *frozen* tables, at most two, newest first, on their way into the checkpointed table;
//! 3. the [Bloom filter](super::bloom) of checkpointed keys: for a new name the search ends here;
//! 4. the *recent* tables: frozen once, checkpointed since, kept whole as a cache. The newest is kept
//!    whatever its size; the older ones only while all together are within the limits of the cache (6);
//! 5. the rows that the request loaded, if no checkpoint has ended since (the *epoch* of the load is the
//!    present epoch);
//! 6. the cache of rows loaded before.
//!
//! A key's hash is computed once for all tables and the filter.
//!
//! A checkpoint finishes in one step: the frozen table becomes a recent table, and the epoch is increased.
//! **Invariant: a cached row is never older than the tables above it**: an apply drops the key from the
//! cache, and a load enters only keys that no active or frozen table has (test:
//! `a_change_drops_its_row_from_the_cache_and_no_load_that_began_before_it_brings_it_back`).

use super::bloom::{BloomFilter, KeyHash};
use super::table::{Entry, TableRows};
use crate::{Loaded, Lookup, Lsn, Row, Scan};
use bytes::Bytes;
use lru::LruCache;
use std::collections::VecDeque;
use std::iter::Peekable;
use std::num::NonZeroUsize;
use std::ops::Bound;
use std::sync::Arc;

/// Most checkpointed tables kept as a cache: a key that none of them has is searched in each.
const RECENT_MAX: usize = 8;
/// Most frozen tables; with so many, changes wait at admission.
pub(super) const FROZEN_MAX: usize = 2;
/// Most keys examined by one scan.
const SCAN_KEYS_MAX: usize = 4096;
/// Approximate bytes of a row beside its key and value: its place in the order, in nodes that are two
/// thirds full, with its key's head; its place by hash; the row itself.
const ROW_OVERHEAD: usize = 192;

/// A table that is not changed any more.
pub(super) struct Frozen {
    pub rows: Arc<TableRows>,
    /// The newest batch in it.
    pub last: Lsn,
    bytes: usize,
}

pub(super) struct RowLayers {
    active: TableRows,
    active_bytes: usize,
    /// Oldest first.
    pub frozen: VecDeque<Frozen>,
    /// Newest first.
    recent: VecDeque<Frozen>,
    cache: LruCache<Bytes, Option<Bytes>>,
    cache_bytes: usize,
    cache_rows_max: usize,
    cache_bytes_max: usize,
    pub epoch: u64,
    /// Every row was applied since the collection was made: nothing needs to be loaded.
    pub table_empty: bool,
    /// The filter of the checkpointed table's keys.
    pub bloom: BloomFilter,
}

impl RowLayers {
    pub fn new(
        cache_rows: usize,
        cache_bytes_max: usize,
        table_empty: bool,
        bloom: BloomFilter,
    ) -> RowLayers {
        let capacity = NonZeroUsize::new(cache_rows).unwrap_or(NonZeroUsize::MIN);
        RowLayers {
            active: TableRows::default(),
            active_bytes: 0,
            frozen: VecDeque::new(),
            recent: VecDeque::new(),
            cache: LruCache::new(capacity),
            cache_bytes: 0,
            cache_rows_max: cache_rows,
            cache_bytes_max,
            epoch: 1,
            table_empty,
            bloom,
        }
    }

    /// Rows of the active and frozen tables.
    pub fn len(&self) -> usize {
        self.active.len() + self.frozen.iter().map(|frozen| frozen.rows.len()).sum::<usize>()
    }

    pub fn active_rows(&self) -> usize {
        self.active.len()
    }

    /// Bytes of all rows in memory: of each table as of its freeze, of the cache, and of the filter.
    pub fn bytes(&self) -> usize {
        let kept = self.frozen.iter().chain(&self.recent);
        self.active_bytes
            + kept.map(|table| table.bytes).sum::<usize>()
            + self.cache_bytes
            + self.bloom.bytes()
    }

    pub fn active_bytes(&self) -> usize {
        self.active_bytes
    }

    /// Put or remove a row. A weak change keeps the row's dependency.
    pub fn put(&mut self, key: Bytes, value: Option<Bytes>, lsn: Option<Lsn>) {
        let hash = self.bloom.hash(&key);
        let strong = match lsn {
            Some(lsn) => lsn,
            None => self.pending(&key, hash).map_or(Lsn(0), |entry| entry.strong),
        };
        if !self.cache.is_empty()
            && let Some(cached) = self.cache.pop(&key)
        {
            self.cache_bytes -= row_bytes(&key, cached.as_ref());
        }
        self.enter_active(key, hash, Entry { value, strong });
    }

    fn enter_active(&mut self, key: Bytes, hash: KeyHash, entry: Entry) {
        let (key_len, value_len) = (key.len(), entry.value.as_ref().map_or(0, Bytes::len));
        self.active_bytes += value_len;
        match self.active.insert(key, hash, entry) {
            Some(old) => self.active_bytes -= old.value.as_ref().map_or(0, Bytes::len),
            None => self.active_bytes += ROW_OVERHEAD + key_len,
        }
    }

    /// A row as the journal had it at open.
    pub fn replay(&mut self, key: Bytes, entry: Entry) {
        let hash = self.bloom.hash(&key);
        self.enter_active(key, hash, entry);
    }

    /// A row that is not checkpointed yet.
    fn pending(&self, key: &[u8], hash: KeyHash) -> Option<&Entry> {
        let active = self.active.get(key, hash);
        active.or_else(|| self.frozen.iter().rev().find_map(|frozen| frozen.rows.get(key, hash)))
    }

    pub fn lookup(&self, key: &[u8], loaded: &Loaded) -> Lookup {
        match self.find(key, loaded) {
            None => Lookup::Unknown,
            Some((None, lsn)) => Lookup::Absent(lsn),
            Some((Some(value), lsn)) => Lookup::Found(Row { value: value.clone(), lsn }),
        }
    }

    /// [`RowLayers::lookup`], with the value where it lies; `None`: unknown.
    pub fn find<'a>(&'a self, key: &[u8], loaded: &'a Loaded) -> Option<(Option<&'a Bytes>, Lsn)> {
        let hash = self.bloom.hash(key);
        if let Some(entry) = self.pending(key, hash) {
            return Some((entry.value.as_ref(), entry.strong));
        }
        // A recent table's keys are in the filter since its checkpoint began. From here on everything is
        // durable.
        if self.table_empty || self.bloom.absent(hash) {
            return Some((None, Lsn(0)));
        }
        if let Some(entry) = self.recent.iter().find_map(|recent| recent.rows.get(key, hash)) {
            return Some((entry.value.as_ref(), Lsn(0)));
        }
        if loaded.epoch == self.epoch
            && let Some(value) = loaded.rows.get(key)
        {
            return Some((value.as_ref(), Lsn(0)));
        }
        self.cache.peek(key).map(|value| (value.as_ref(), Lsn(0)))
    }

    /// A row was read from the checkpointed table, in the present epoch.
    pub fn enter(&mut self, key: &Bytes, value: Option<&Bytes>) {
        // No recent table had it when it was requested. One may have it by now, the same row: it is then
        // kept twice.
        if self.pending(key, self.bloom.hash(key)).is_some() || row_bytes(key, value) > self.cache_bytes_max {
            return;
        }
        self.cache_bytes += row_bytes(key, value);
        // The one of the same key, or the least recently used one.
        if let Some((old, cached)) = self.cache.push(key.clone(), value.cloned()) {
            self.cache_bytes -= row_bytes(&old, cached.as_ref());
        }
        while self.cache_bytes > self.cache_bytes_max
            && let Some((old, cached)) = self.cache.pop_lru()
        {
            self.cache_bytes -= row_bytes(&old, cached.as_ref());
        }
    }

    /// Freeze the active table. Only with fewer than [`FROZEN_MAX`] frozen ones.
    pub fn freeze(&mut self, last: Lsn) {
        debug_assert!(self.frozen.len() < FROZEN_MAX);
        debug_assert!(self.frozen.back().is_none_or(|newest| newest.last <= last), "oldest first");
        // The next one will mostly be as large: its index need not grow.
        let next = TableRows::for_rows(self.active.len());
        let rows = Arc::new(std::mem::replace(&mut self.active, next));
        let bytes = std::mem::take(&mut self.active_bytes);
        self.frozen.push_back(Frozen { rows, last, bytes });
    }

    /// The oldest frozen table is checkpointed. Returns the tables that are not needed any more (dropping
    /// them takes time).
    pub fn checkpointed(&mut self) -> Vec<Arc<TableRows>> {
        let Some(frozen) = self.frozen.pop_front() else { return Vec::new() };
        // The first key stands for all: a check of each would cost as much as the checkpoint.
        debug_assert!(
            frozen
                .rows
                .iter()
                .take(1)
                .all(|(key, entry)| { entry.value.is_none() || !self.bloom.absent(self.bloom.hash(key)) }),
            "keys are in the filter before their checkpoint"
        );
        self.epoch += 1;
        self.table_empty = false;
        self.recent.push_front(frozen);
        // Many small files fill a segment, and so freeze a table, with few rows: the newest is kept
        // whatever its size, and as many of the older ones as there is room for.
        let (mut rows, mut bytes) = (0, 0);
        let fits = |table: &&Frozen| {
            rows += table.rows.len();
            bytes += table.bytes;
            rows <= self.cache_rows_max && bytes <= self.cache_bytes_max
        };
        let kept = self.recent.iter().take(RECENT_MAX).take_while(fits).count().max(1);
        self.recent.drain(kept..).map(|old| old.rows).collect()
    }

    pub fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize, loaded: &Loaded) -> Option<Scan> {
        let (covered, base) = match self.table_empty {
            true => (Covered::ToTheEnd, &[][..]),
            false => self.covered(prefix, after, loaded)?,
        };
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        let mut tables: Vec<Peekable<_>> = vec![self.active.from(from).peekable()];
        tables.extend(self.frozen.iter().rev().map(|frozen| frozen.rows.from(from).peekable()));
        let mut base = base.iter().peekable();
        let limit = limit.max(1);
        let (mut scan, mut examined) = (Scan::default(), None);
        for _ in 0..SCAN_KEYS_MAX {
            let heads = tables.iter_mut().filter_map(|table| table.peek().map(|(key, _)| *key));
            let next = heads.chain(base.peek().map(|(key, _)| key)).min();
            let Some(key) = next.filter(|key| key.starts_with(prefix)) else {
                return Some(end(scan, covered));
            };
            if let Covered::To(last) = covered
                && key > last
            {
                return Some(end(scan, covered));
            }
            if scan.rows.len() == limit {
                scan.resume = scan.rows.last().map(|(key, _)| key.clone());
                return Some(scan);
            }
            examined = Some(key);
            let mut newest: Option<&Entry> = None;
            for table in &mut tables {
                if let Some((_, entry)) = table.next_if(|(k, _)| *k == key) {
                    newest = newest.or(Some(entry));
                }
            }
            let loaded_value = base.next_if(|(k, _)| k == key).map(|(_, value)| value);
            let value = match newest {
                Some(entry) => {
                    scan.lsn = scan.lsn.max(entry.strong);
                    entry.value.as_ref()
                }
                None => loaded_value,
            };
            if let Some(value) = value {
                scan.rows.push((key.clone(), value.clone()));
            }
        }
        // The turn is over.
        scan.resume = examined.cloned();
        Some(scan)
    }

    /// How far a loaded range that contains the place after `after` reaches, and its rows after it.
    fn covered<'a>(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        loaded: &'a Loaded,
    ) -> Option<(Covered<'a>, &'a [(Bytes, Bytes)])> {
        if loaded.epoch != self.epoch {
            return None;
        }
        loaded.ranges.iter().find_map(|range| {
            let begins = range.after.as_deref().is_none_or(|from| after.is_some_and(|after| from <= after));
            let reaches = match &range.last {
                None => Covered::ToTheEnd,
                Some(last) if after.is_none_or(|after| after < last.as_ref()) => Covered::To(last),
                Some(_) => return None,
            };
            let rest = after.map_or(0, |after| range.rows.partition_point(|(key, _)| key.as_ref() <= after));
            (range.prefix == prefix && begins).then(|| (reaches, &range.rows[rest..]))
        })
    }
}

fn row_bytes(key: &[u8], value: Option<&Bytes>) -> usize {
    ROW_OVERHEAD + key.len() + value.map_or(0, Bytes::len)
}

/// How far the base of a scan is known.
#[derive(Clone, Copy)]
enum Covered<'a> {
    To(&'a Bytes),
    ToTheEnd,
}

fn end(mut scan: Scan, covered: Covered<'_>) -> Scan {
    scan.resume = match covered {
        Covered::To(last) => Some(last.clone()),
        Covered::ToTheEnd => None,
    };
    scan
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHE_ROWS: usize = 1000;

    fn rows() -> RowLayers {
        RowLayers::new(CACHE_ROWS, 1 << 20, false, BloomFilter::new(64, 7, false))
    }

    /// Apply `count` rows from a number on, and checkpoint them; returns the number of dropped tables.
    fn checkpoint(rows: &mut RowLayers, from: u32, count: u32) -> usize {
        for n in from..from + count {
            rows.put(n.to_be_bytes().to_vec().into(), Some(Bytes::from_static(b"row")), Some(Lsn(1)));
        }
        rows.freeze(Lsn(1));
        rows.checkpointed().len()
    }

    fn is_known(rows: &RowLayers, n: u32) -> bool {
        rows.lookup(&n.to_be_bytes(), &Loaded::default()) != Lookup::Unknown
    }

    #[test]
    fn as_many_checkpointed_tables_stay_known_as_the_cache_has_rows_for() {
        let mut rows = rows();
        let dropped: Vec<usize> = (0..6).map(|table| checkpoint(&mut rows, table * 250, 250)).collect();
        assert_eq!(dropped, [0, 0, 0, 0, 1, 1]);
        assert!(
            !is_known(&rows, 0) && !is_known(&rows, 499) && is_known(&rows, 500) && is_known(&rows, 1499)
        );
    }

    #[test]
    fn the_newest_checkpointed_table_stays_known_however_large_it_is() {
        let mut rows = rows();
        assert_eq!(checkpoint(&mut rows, 0, 5000), 0);
        assert!(is_known(&rows, 0) && is_known(&rows, 4999));
        assert_eq!(checkpoint(&mut rows, 5000, 1), 1);
        assert!(!is_known(&rows, 0) && is_known(&rows, 5000));
    }

    #[test]
    fn what_the_filter_says_is_absent_is_what_no_checkpointed_table_has() {
        let mut rows = RowLayers::new(CACHE_ROWS, 1 << 20, false, BloomFilter::new(1 << 16, 7, true));
        for n in 0..100_u32 {
            rows.bloom.noted().insert(&n.to_be_bytes());
        }
        checkpoint(&mut rows, 0, 100);
        let found = |n: u32| rows.lookup(&n.to_be_bytes(), &Loaded::default());
        assert!((0..100).all(|n| matches!(found(n), Lookup::Found(_))));
        assert!((100..200).any(|n| found(n) == Lookup::Absent(Lsn(0))));
    }

    #[test]
    fn a_change_drops_its_row_from_the_cache_and_no_load_that_began_before_it_brings_it_back() {
        let mut rows = rows();
        let (key, old) = (Bytes::from_static(b"key"), Bytes::from_static(b"old"));
        rows.enter(&key, Some(&old));
        assert_eq!(rows.cache.len(), 1);
        rows.put(key.clone(), Some(Bytes::from_static(b"new")), Some(Lsn(1)));
        assert_eq!(rows.cache.len(), 0);
        rows.enter(&key, Some(&old));
        assert_eq!(rows.cache.len(), 0, "the active table has a newer one");
        rows.freeze(Lsn(1));
        rows.enter(&key, Some(&old));
        assert_eq!((rows.cache.len(), rows.cache_bytes), (0, 0), "a frozen table has a newer one");
    }

    #[test]
    fn tables_of_a_row_each_are_not_kept_without_end() {
        let mut rows = rows();
        let dropped: usize = (0..20).map(|n| checkpoint(&mut rows, n, 1)).sum();
        assert_eq!(dropped, 20 - RECENT_MAX);
    }
}
