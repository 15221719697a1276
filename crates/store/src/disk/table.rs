//! The checkpointed table: the ordered rows as of one LSN, on disk.
//!
//! A checkpoint is one atomic step of the table: the rows of a frozen memory table, the LSN they reach to, and how many
//! bytes of contents live in each journal segment, together. So replay begins exactly behind it, and nothing has to be
//! scanned at open to know which segments still carry contents.
//!
//! Two kinds: [`lmdb`] where real memory-mapped files work, [`file`] on simulated disks.

pub(super) mod file;
pub(super) mod live;
pub(super) mod lmdb;

use crate::{Lsn, StoreError};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A row of a memory table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// `None`: removed.
    pub value: Option<Bytes>,
    /// The newest strong change.
    pub strong: Lsn,
}

/// Rows of a memory table.
pub(super) type TableRows = BTreeMap<Bytes, Entry>;

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

/// See the module.
pub(super) trait Table {
    /// Read keys and ranges from one snapshot.
    fn fetch(
        &self,
        keys: Vec<Bytes>,
        ranges: Vec<Range>,
    ) -> LocalBoxFuture<'static, Result<Fetched, StoreError>>;
    /// Apply rows, durably and atomically; the table then stands at `lsn`.
    fn apply(&self, rows: Arc<TableRows>, lsn: Lsn) -> LocalBoxFuture<'static, Result<(), StoreError>>;
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
