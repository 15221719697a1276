//! The checkpointed table: the ordered rows as of one LSN, on disk.
//!
//! A checkpoint applies the rows of a frozen memory table in parts, each an atomic step: some rows, and how many bytes of
//! contents live in each journal segment after them. The last step also moves the LSN. So replay begins exactly behind the
//! last whole checkpoint, and nothing has to be scanned at open to know which segments still carry contents. In parts,
//! because one step's bytes go to the disk at once, and the journal's next sync waits behind them.
//!
//! Two kinds: [`lmdb`] where real memory-mapped files work, [`file`] on simulated disks.

pub(super) mod file;
pub(super) mod live;
pub(super) mod lmdb;
mod rows;

pub(super) use rows::TableRows;

use crate::{Lsn, StoreError};
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

/// A range to read: (prefix, after, rows at most).
pub(super) type Range = (Bytes, Option<Bytes>, usize);

/// Rows of a range, and whether they reach to the end of its prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RangeRows {
    pub rows: Vec<(Bytes, Bytes)>,
    pub complete: bool,
}

/// What was read at once.
#[derive(Clone, Debug, Default)]
pub(super) struct Fetched {
    /// In the order of the keys.
    pub values: Vec<Option<Bytes>>,
    /// In the order of the ranges.
    pub ranges: Vec<RangeRows>,
}

/// Key of the checkpoint's LSN.
pub(super) const LSN_KEY: &[u8] = b"\0lsn";
/// Key of the live bytes of segments.
pub(super) const LIVE_KEY: &[u8] = b"\0live";

/// A part of a memory table that is checkpointed: rows in the order of their keys. Between two parts the table holds some
/// rows that are newer than its LSN; they are in the journal behind that LSN, so replay comes to the same.
#[derive(Clone)]
pub(super) struct Part {
    pub rows: Arc<TableRows>,
    /// The first key; `None`: from the begin.
    pub from: Option<Bytes>,
    /// So many rows at most.
    pub rows_max: usize,
    /// Where the table stands when all rows are applied.
    pub lsn: Lsn,
}

impl Part {
    /// The rows of this part, and the key of the next.
    pub fn split(&self) -> (Vec<(&Bytes, &Entry)>, Option<Bytes>) {
        let from = self.from.as_deref().map_or(Bound::Unbounded, Bound::Included);
        let mut rest = self.rows.from(from);
        let rows = rest.by_ref().take(self.rows_max.max(1)).collect();
        (rows, rest.next().map(|(key, _)| key.clone()))
    }
}

/// What a part came to.
pub(super) struct Applied {
    /// Where the next part begins; `None`: it was the last.
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
        ranges: Vec<Range>,
    ) -> LocalBoxFuture<'static, Result<Fetched, StoreError>>;
    /// Apply some rows, durably and atomically. With the last of them the table stands at the part's LSN.
    fn apply(&self, part: Part) -> LocalBoxFuture<'static, Result<Applied, StoreError>>;
    /// Let go of the files.
    fn close(&self) -> LocalBoxFuture<'static, ()>;
}

/// A checkpoint's stored LSN.
pub(super) fn decode_lsn(value: Option<&[u8]>) -> Result<Lsn, StoreError> {
    let Some(value) = value else { return Ok(Lsn(0)) };
    let word =
        value.try_into().map_err(|_| StoreError::Damaged("the checkpoint's LSN is not 8 bytes".into()))?;
    Ok(Lsn(u64::from_le_bytes(word)))
}
