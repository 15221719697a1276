//! The checkpointed table: the ordered rows as of one LSN, on disk.
//!
//! A checkpoint applies the rows of a frozen memory table in parts. Each part is an atomic step: it writes
//! some rows, and the number of live bytes that each segment of the journal then has. The last step also
//! moves the LSN. So replay begins exactly after the last complete checkpoint, and a start needs no scan to
//! know which segments still have contents. A checkpoint is in parts because the bytes of a step go to the
//! disk at once, and the journal's next sync waits for them.
//!
//! Two kinds: [`lmdb`] where real memory-mapped files work, [`file`] on simulated disks.

pub(super) mod file;
pub(super) mod live;
pub(super) mod lmdb;
mod rows;

pub(super) use rows::TableRows;

use crate::stream_row::stream_key;
use crate::{Follow, Leads, Lsn, RangeNeed, StoreError};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use std::ops::Bound;
use std::sync::Arc;

/// A row of a memory table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// `None`: removed.
    pub value: Option<Bytes>,
    /// The newest strong change.
    pub strong: Lsn,
}

/// Rows of a range, whether they reach to the end of its prefix, and the rows that they lead to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RangeRows {
    pub rows: Vec<(Bytes, Bytes)>,
    pub complete: bool,
    pub followed: Vec<(Bytes, Option<Bytes>)>,
}

impl RangeRows {
    /// The keys that its rows lead to, by `asked`: in the order of the keys, in which neighbours are found
    /// together.
    pub fn leads(&self, asked: &RangeNeed) -> Vec<Bytes> {
        let Some(Follow(follow)) = &asked.follow else { return Vec::new() };
        let mut leads = Leads::default();
        self.rows.iter().for_each(|(key, value)| follow(key, value, &mut leads));
        let streams = leads.streams.into_iter().map(|handle| Bytes::copy_from_slice(&stream_key(handle)));
        let mut keys = leads.keys;
        keys.extend(streams);
        keys.sort_unstable();
        keys
    }
}

/// The result of one read.
#[derive(Clone, Debug, Default)]
pub(super) struct Fetched {
    /// In the order of the keys.
    pub values: Vec<Option<Bytes>>,
    /// In the order of the ranges.
    pub ranges: Vec<RangeRows>,
}

/// Key of the checkpoint's LSN.
pub(super) const LSN_KEY: &[u8] = b"\0lsn";
/// First bytes of the keys of the live bytes of segments.
pub(super) const LIVE_PREFIX: &[u8] = b"\0live";

/// A part of a memory table that is being checkpointed: rows in the order of their keys, of one kind.
/// Between two parts the table holds some rows that are newer than its LSN; they are in the journal after
/// that LSN, so replay gives the same result.
#[derive(Clone)]
pub(super) struct Part {
    pub rows: Arc<TableRows>,
    /// The first key; `None`: from the begin.
    pub from: Option<Bytes>,
    /// Most rows.
    pub rows_max: usize,
    /// The table's LSN when all rows are applied.
    pub lsn: Lsn,
}

impl Part {
    /// The kind of its rows: the first byte of their keys. The number of rows in one page of the table is
    /// similar within a kind, and differs a hundredfold between two: neighbouring handles are made
    /// together, neighbouring names are not.
    pub fn kind(&self) -> u8 {
        self.rest().next().map_or(0, |(key, _)| kind(key))
    }

    /// The rows of this part, and the key of the next.
    pub fn split(&self) -> (Vec<(&Bytes, &Entry)>, Option<Bytes>) {
        let (own, rows_max) = (self.kind(), self.rows_max.max(1));
        let mut rows = Vec::new();
        for (key, entry) in self.rest() {
            if rows.len() == rows_max || kind(key) != own {
                return (rows, Some(key.clone()));
            }
            rows.push((key, entry));
        }
        (rows, None)
    }

    fn rest(&self) -> impl Iterator<Item = (&Bytes, &Entry)> {
        self.rows.from(self.from.as_deref().map_or(Bound::Unbounded, Bound::Included))
    }
}

fn kind(key: &[u8]) -> u8 {
    key.first().copied().unwrap_or(0)
}

/// The result of a part.
pub(super) struct Applied {
    /// Its rows.
    pub rows: usize,
    /// The first key of the next part; `None`: it was the last.
    pub next: Option<Bytes>,
    /// Bytes written for it.
    pub bytes: u64,
}

/// See the module.
pub(super) trait Table {
    /// Read keys and ranges from one snapshot.
    fn fetch(
        &self,
        keys: Vec<Bytes>,
        ranges: Vec<RangeNeed>,
    ) -> LocalBoxFuture<'static, Result<Fetched, StoreError>>;
    /// Apply some rows, durably and atomically. With the last of them the table moves to the part's LSN.
    fn apply(&self, part: Part) -> LocalBoxFuture<'static, Result<Applied, StoreError>>;
    /// Close the files.
    fn close(&self) -> LocalBoxFuture<'static, ()>;
}

/// A checkpoint's stored LSN.
pub(super) fn decode_lsn(value: Option<&[u8]>) -> Result<Lsn, StoreError> {
    let Some(value) = value else { return Ok(Lsn(0)) };
    let word =
        value.try_into().map_err(|_| StoreError::Damaged("the checkpoint's LSN is not 8 bytes".into()))?;
    Ok(Lsn(u64::from_le_bytes(word)))
}

#[cfg(test)]
mod tests {
    use super::super::bloom::BloomFilter;
    use super::*;

    #[test]
    fn parts_have_rows_of_one_kind_and_together_all_rows_in_order() {
        let filter = BloomFilter::new(64, 7, true);
        let (mut rows, keys) = (TableRows::default(), ["a1", "a2", "a3", "d1", "d2", "x1"]);
        for key in keys.iter().rev() {
            let entry = Entry { value: None, strong: Lsn(1) };
            rows.insert(Bytes::from_static(key.as_bytes()), filter.hash(key.as_bytes()), entry);
        }
        let mut part = Part { rows: Arc::new(rows), from: None, rows_max: 2, lsn: Lsn(1) };
        let mut parts: Vec<Vec<&str>> = Vec::new();
        loop {
            let (of_part, next) = part.split();
            let text = of_part.iter().map(|(key, _)| std::str::from_utf8(key).unwrap());
            parts.push(text.map(|key| *keys.iter().find(|known| **known == key).unwrap()).collect());
            match next {
                None => break,
                Some(next) => part.from = Some(next),
            }
        }
        assert_eq!(parts, [vec!["a1", "a2"], vec!["a3"], vec!["d1", "d2"], vec!["x1"]]);
        assert_eq!(part.kind(), b'x');
        let empty = Part { rows: Arc::default(), from: None, rows_max: 2, lsn: Lsn(1) };
        assert_eq!((empty.split(), empty.kind()), ((Vec::new(), None), 0));
    }
}
