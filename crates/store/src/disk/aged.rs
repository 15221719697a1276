//! A store that looks as if it held very much: sealed segments whose contents all live, without the contents.
//!
//! For benchmarks: what a change costs must not grow with what is stored, and a terabyte is not written to see that. Each segment
//! is a file with the head of a group and nothing else (it takes one block of the disk), and its live bytes are counted by a row
//! of the table, as those of a real one are. Nothing names these contents, so nothing reads them. Generations and LSNs are older
//! than any of the journal, so that recovery passes them by.

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

/// Numbers of the segments that are added begin here: a journal does not come so far.
const FIRST: u64 = 1 << 24;
/// The journal of a new store begins with a generation above this.
const COUNT_MAX: u64 = 1 << 16;

/// Add so many segments to a store that was served and closed, three fourths of each alive.
///
/// # Errors
/// When the folder holds no such store, or is in use; and what the disk answers.
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
