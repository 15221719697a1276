//! Makes a store that looks very full, for benchmarks. Its sealed segments have counts of live bytes, and no
//! contents.
//!
//! The cost of a change must not grow with the stored bytes, and such a store shows this without the
//! writing of a terabyte. Each segment is a file with the header of a group (one write of the journal) and
//! nothing else. It takes one block of the disk. A row of the table counts its live bytes, as for a real
//! segment. No stream refers to these contents, so no request reads them. Their generations and LSNs are
//! older than any in the journal, so recovery skips them.

use super::bloom::BloomFilter;
use super::identity;
use super::journal::group::{BLOCK, Header};
use super::journal::segments::file_name;
use super::open::{lock, open_table};
use super::table::live::live_row;
use super::table::{Entry, LSN_KEY, Part, TableRows, decode_lsn};
use crate::{CollectionConfig, Lsn, StoreError};
use bytes::Bytes;
use shoal_env::{Env, OpenOptions};
use std::sync::Arc;

/// First number of the added segments: a journal never reaches it.
const FIRST: u64 = 1 << 24;
/// The journal of a new store begins with a generation above this.
const COUNT_MAX: u64 = 1 << 16;

/// Add so many segments to a store that was served and closed, three fourths of each alive.
///
/// # Errors
/// When the folder holds no such store, or is in use; and errors of the disk.
pub async fn add_segments(env: &Env, config: &CollectionConfig, count: u64) -> Result<(), StoreError> {
    if count >= COUNT_MAX {
        return Err(StoreError::Refused(format!("{count} segments: choose fewer than {COUNT_MAX}")));
    }
    lock(env, &config.dir).await?;
    let kept = identity::check(env, &CollectionConfig { create: false, ..config.clone() }).await?;
    let journal = config.dir.join("journal");
    let failed = |error: std::io::Error| StoreError::io(format!("writing {}", journal.display()), &error);
    let table = open_table(env, config).await?;
    let lsn = table.fetch(vec![Bytes::from_static(LSN_KEY)], Vec::new()).await?.values.pop().flatten();
    let lsn = decode_lsn(lsn.as_deref())?;
    if lsn == Lsn(0) {
        return Err(StoreError::Refused(format!("{} was never checkpointed", config.dir.display())));
    }
    let hashes = BloomFilter::new(0, 0, true);
    let mut rows = TableRows::for_rows(count as usize);
    for place in (0..count).map(|at| (FIRST + at, 1 + at)) {
        let file =
            env.open(journal.join(file_name(place.0)), OpenOptions { create: true, ..Default::default() });
        let file = file.await.map_err(failed)?;
        let (segment, generation) = place;
        let header = Header {
            body_len: 0,
            segment,
            generation,
            sequence: 1,
            first: 1,
            last: 1,
            durable: 0,
            body_crc: crc32c::crc32c(&[]),
        };
        let mut head = vec![0; BLOCK];
        header.encode(&mut head);
        file.write_at(0, vec![head.into()]).await.map_err(failed)?;
        file.truncate(kept.segment_bytes).await.map_err(failed)?;
        let (key, value) = live_row(place, kept.segment_bytes / 4 * 3);
        let hash = hashes.hash(&key);
        rows.insert(key, hash, Entry { value: Some(value), strong: Lsn(0) });
    }
    let mut part = Part { rows: Arc::new(rows), from: None, rows_max: 4096, lsn };
    loop {
        part.from = match table.apply(part.clone()).await?.next {
            Some(next) => Some(next),
            None => break,
        };
    }
    table.close().await;
    env.sync_dir(&journal).await.map_err(failed)
}
