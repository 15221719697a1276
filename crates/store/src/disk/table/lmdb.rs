//! The checkpointed table in LMDB.
//!
//! A part of a checkpoint is one write transaction, committed with LMDB's own syncs (no `NOSYNC`, no
//! `WRITEMAP`): it is on the disk when the commit returns. Everything runs off the shard's thread, because
//! any access may wait for a page.
//!
//! LMDB's memory map is address space only. When a checkpoint finds the map full, the map is doubled. LMDB
//! forbids this under any transaction of the process, so each transaction holds a lock shared, and the resize
//! holds it alone.
//!
//! **A full disk is a normal error, although LMDB returns `EIO`** if the kernel wrote only a part of the
//! data (`mdb_page_flush`: "short write, filesystem full?"). A commit can be repeated after this error: it
//! ends with the write of LMDB's meta page, so the pages of a failed commit are unused, and the next try
//! writes all of them again. (If the write of the meta page itself fails, LMDB accepts no further
//! transaction.) If the disk has less than 4 MiB free, the checkpoint waits for space. Otherwise
//! the commit is retried once, and a second `EIO` is a failure of the disk. The free space is the number that
//! the file system reports. A quota of the server's user is not in this number: a checkpoint that exceeds
//! the quota fails for good.

use super::live::{Live, LiveKey};
use super::{Applied, Entry, Fetched, LSN_KEY, Part, RangeRows, Table};
use crate::{Lsn, RangeNeed, StoreError};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use heed::types::Bytes as Raw;
use heed::{CommitOrAbort, Database, EnvOpenOptions, MdbError, RoTxn, WithoutTls};
use shoal_env::Env;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// Threads that may read at once, with room.
const READERS_MAX: u32 = 64;
/// If a write was taken in part for lack of space, less than this is free: more than LMDB writes at once,
/// bytes.
const SHORT_SPACE: u64 = 4 << 20;
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

struct Inner {
    lmdb: heed::Env<WithoutTls>,
    rows: Database<'static, Raw, Raw>,
    /// Shared: a transaction is open. Alone: the map changes its size.
    map: RwLock<()>,
}

pub(crate) struct LmdbTable {
    env: Env,
    dir: PathBuf,
    inner: Arc<Inner>,
}

fn lmdb_error(what: &str, error: &heed::Error) -> StoreError {
    let errno = match error {
        heed::Error::Io(error) => error.raw_os_error(),
        _ => None,
    };
    if let heed::Error::Mdb(MdbError::Corrupted | MdbError::PageNotFound | MdbError::Invalid) = error {
        return StoreError::Damaged(format!("the tables (LMDB): {what}: {error}"));
    }
    StoreError::Io { context: format!("the tables (LMDB): {what}"), kind: error.to_string(), errno }
}

impl LmdbTable {
    pub async fn open(env: Env, dir: &Path, map_bytes: usize) -> Result<LmdbTable, StoreError> {
        let native = env.native_path(dir).unwrap_or_else(|| dir.to_owned());
        let opened = env.offload(move || Inner::open(&native, map_bytes)).await;
        let inner = opened.map_err(|error| StoreError::io("opening the tables", &error))??;
        Ok(LmdbTable { env, dir: dir.to_owned(), inner: Arc::new(inner) })
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> LocalBoxFuture<'static, Result<T, StoreError>> {
        let (env, inner) = (self.env.clone(), self.inner.clone());
        Box::pin(async move {
            let done = env.offload(move || work(&inner)).await;
            done.map_err(|error| StoreError::io("the tables (LMDB)", &error))?
        })
    }
}

impl Inner {
    fn open(dir: &Path, map_bytes: usize) -> Result<Inner, StoreError> {
        let there = std::fs::metadata(dir.join("data.mdb")).map_or(0, |file| file.len());
        let needed = usize::try_from(there).unwrap_or(usize::MAX).saturating_mul(2);
        let mut map = map_bytes.max(1 << 20);
        while map < needed {
            map = map.saturating_mul(2);
        }
        let mut options = EnvOpenOptions::new().read_txn_without_tls();
        options.map_size(map).max_readers(READERS_MAX);
        // SAFETY: the folder's lock keeps every other process of ours away from these files, and no other
        // program may touch a store's files while it runs.
        let lmdb = unsafe { options.open(dir) }.map_err(|error| lmdb_error("opening", &error))?;
        let open = || {
            lmdb.create_databases_and_commit(lmdb.write_txn()?, |opener, txn| {
                Ok(CommitOrAbort::<_, ()>::Commit(opener.create_database::<Raw, Raw>(txn, None)?))
            })
        };
        let opened = open().map_err(|error: heed::Error| lmdb_error("opening", &error))?;
        let CommitOrAbort::Commit(rows) = opened else {
            return Err(StoreError::Damaged("LMDB returned no database".into()));
        };
        Ok(Inner { lmdb, rows, map: RwLock::new(()) })
    }

    fn fetch(&self, keys: &[Bytes], ranges: &[RangeNeed]) -> Result<Fetched, StoreError> {
        let _open = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let read = || {
            let txn = self.lmdb.read_txn()?;
            let mut fetched = Fetched::default();
            for key in keys {
                fetched.values.push(self.value(&txn, key)?);
            }
            for asked in ranges {
                let mut found = self.range(&txn, asked)?;
                for key in found.leads(asked) {
                    let value = self.value(&txn, &key)?;
                    found.followed.push((key, value));
                }
                fetched.ranges.push(found);
            }
            Ok(fetched)
        };
        read().map_err(|error| lmdb_error("reading", &error))
    }

    fn value(&self, txn: &RoTxn<'_, WithoutTls>, key: &[u8]) -> heed::Result<Option<Bytes>> {
        // LMDB has no empty keys, nor has a store.
        let value = if key.is_empty() { None } else { self.rows.get(txn, key)? };
        Ok(value.map(Bytes::copy_from_slice))
    }

    fn range(&self, txn: &RoTxn<'_, WithoutTls>, asked: &RangeNeed) -> heed::Result<RangeRows> {
        let RangeNeed { prefix, after, limit, .. } = asked;
        let from = match after {
            Some(after) if after >= prefix => Bound::Excluded(after.as_ref()),
            _ if prefix.is_empty() => Bound::Unbounded,
            _ => Bound::Included(prefix.as_ref()),
        };
        let mut found = RangeRows { complete: true, ..RangeRows::default() };
        for row in self.rows.range(txn, &(from, Bound::Unbounded))? {
            let (key, value) = row?;
            if !key.starts_with(prefix) {
                break;
            }
            if found.rows.len() == *limit {
                found.complete = false;
                break;
            }
            found.rows.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
        }
        Ok(found)
    }

    fn apply(&self, part: &Part) -> Result<Applied, StoreError> {
        let before = written_bytes();
        let (changes, next) = part.split();
        let lsn = next.is_none().then_some(part.lsn);
        self.apply_rows(&changes, lsn)?;
        let bytes = match (before, written_bytes()) {
            (Some(before), Some(after)) => after.saturating_sub(before),
            _ => changes.iter().map(|(key, entry)| row_bytes(key, entry)).sum(),
        };
        Ok(Applied { rows: changes.len(), next, bytes })
    }

    fn apply_rows(&self, changes: &[(&Bytes, &Entry)], lsn: Option<Lsn>) -> Result<(), StoreError> {
        loop {
            let full = {
                let _open = self.map.read().unwrap_or_else(PoisonError::into_inner);
                match self.try_apply(changes, lsn) {
                    Ok(()) => return Ok(()),
                    Err(Apply::Store(error)) => return Err(error),
                    Err(Apply::Lmdb(error)) => error,
                }
            };
            if !matches!(full, heed::Error::Mdb(MdbError::MapFull)) {
                return Err(lmdb_error("a checkpoint", &full));
            }
            self.grow()?;
        }
    }

    fn try_apply(&self, changes: &[(&Bytes, &Entry)], lsn: Option<Lsn>) -> Result<(), Apply> {
        let mut txn = self.lmdb.write_txn()?;
        let mut live = Live::default();
        for (key, entry) in changes {
            if crate::stream_row::stream_of_key(key).is_some() {
                live.replace(key, self.rows.get(&txn, key)?, entry.value.as_deref())?;
            }
            match &entry.value {
                Some(value) => self.rows.put(&mut txn, key, value)?,
                None => drop(self.rows.delete(&mut txn, key)?),
            }
        }
        let row = |key: &LiveKey| Ok::<_, Apply>(self.rows.get(&txn, key)?.map(<[u8]>::to_vec));
        for (key, count) in live.moved(row)? {
            match count {
                Some(count) => self.rows.put(&mut txn, &key, &count)?,
                None => drop(self.rows.delete(&mut txn, &key)?),
            }
        }
        if let Some(lsn) = lsn {
            self.rows.put(&mut txn, LSN_KEY, &lsn.0.to_le_bytes())?;
        }
        Ok(txn.commit()?)
    }

    fn grow(&self) -> Result<(), StoreError> {
        let _alone = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let size = self.lmdb.info().map_size.saturating_mul(2);
        tracing::debug!(size, "the tables' map grows");
        // SAFETY: transactions are opened under the lock that is held alone here, so none is open in this
        // process.
        unsafe { self.lmdb.resize(size) }.map_err(|error| lmdb_error("growing the map", &error))
    }
}

/// Whether LMDB's error may mean that a write was taken in part.
fn is_short_write(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { errno: Some(EIO), .. })
}

fn no_space() -> StoreError {
    StoreError::io("the tables (LMDB): a checkpoint", &io::Error::from_raw_os_error(ENOSPC))
}

/// Bytes that this thread has written to disks, if the kernel counts them.
fn written_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.parse().ok()
}

fn row_bytes(key: &Bytes, entry: &Entry) -> u64 {
    (key.len() + entry.value.as_ref().map_or(0, Bytes::len)) as u64
}

enum Apply {
    Lmdb(heed::Error),
    Store(StoreError),
}

impl From<heed::Error> for Apply {
    fn from(error: heed::Error) -> Apply {
        Apply::Lmdb(error)
    }
}

impl From<StoreError> for Apply {
    fn from(error: StoreError) -> Apply {
        Apply::Store(error)
    }
}

impl Table for LmdbTable {
    fn fetch(
        &self,
        keys: Vec<Bytes>,
        ranges: Vec<RangeNeed>,
    ) -> LocalBoxFuture<'static, Result<Fetched, StoreError>> {
        self.run(move |inner| inner.fetch(&keys, &ranges))
    }

    fn apply(&self, part: Part) -> LocalBoxFuture<'static, Result<Applied, StoreError>> {
        let (env, dir, inner) = (self.env.clone(), self.dir.clone(), self.inner.clone());
        Box::pin(async move {
            let mut again = false;
            loop {
                let (inner, part) = (inner.clone(), part.clone());
                let done = env.offload_background(move || inner.apply(&part)).await;
                let error = match done.map_err(|error| StoreError::io("the tables (LMDB)", &error))? {
                    Err(error) if is_short_write(&error) => error,
                    done => return done,
                };
                let available = env.space(&dir).await.map_or(u64::MAX, |space| space.available);
                if available < SHORT_SPACE {
                    return Err(no_space());
                }
                // Space may have been freed since. A commit that fails twice on a disk with room is a
                // failure of the disk.
                if std::mem::replace(&mut again, true) {
                    return Err(error);
                }
            }
        })
    }

    fn close(&self) -> LocalBoxFuture<'static, ()> {
        let lmdb = self.inner.lmdb.clone();
        let env = self.env.clone();
        Box::pin(async move {
            // The last handle closes the files; loads under way keep theirs a moment longer.
            drop(env.offload(move || drop(lmdb)).await);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::bloom::BloomFilter;
    use super::super::TableRows;
    use super::*;
    use shoal_env::real::Runtime;
    use std::fs;
    use std::process::Command;

    /// A file system in memory; only root can make one.
    struct Small(tempfile::TempDir);

    impl Small {
        fn of_1_mib() -> Option<Small> {
            let dir = tempfile::tempdir().unwrap();
            let mounted =
                Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(dir.path()).output();
            mounted.is_ok_and(|mounted| mounted.status.success()).then(|| Small(dir))
        }

        /// Leave so many bytes.
        fn fill_but(&self, left: usize) {
            let ballast = self.0.path().join("ballast");
            let all = bytes_free(self.0.path());
            fs::write(ballast, vec![1; all - left]).unwrap();
        }
    }

    fn bytes_free(path: &Path) -> usize {
        let out = Command::new("stat").args(["-f", "-c", "%a %S"]).arg(path).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        text.split_whitespace().map(|word| word.parse::<usize>().unwrap()).product()
    }

    impl Drop for Small {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(self.0.path()).output();
        }
    }

    fn part(rows: u32) -> Part {
        let row = |n: u32| {
            let value = Some(Bytes::from(vec![7; 1000]));
            (Bytes::from(n.to_be_bytes().to_vec()), Entry { value, strong: Lsn(1) })
        };
        let mut table = TableRows::default();
        let filter = BloomFilter::new(64, 7, true);
        for (key, entry) in (1..=rows).map(row) {
            let hash = filter.hash(&key);
            table.insert(key, hash, entry);
        }
        Part { rows: Arc::new(table), from: None, rows_max: 1000, lsn: Lsn(9) }
    }

    #[test]
    fn a_checkpoint_on_a_full_disk_is_answered_with_no_space_and_succeeds_when_there_is_room() {
        let Some(small) = Small::of_1_mib() else { return };
        let runtime = Runtime::new("test");
        let dir = small.0.path().join("tables");
        fs::create_dir(&dir).unwrap();
        runtime.block_on(async {
            let table = LmdbTable::open(runtime.env(), &dir, 1 << 20).await.unwrap();
            small.fill_but(40 << 10);
            for _ in 0..3 {
                let error = table.apply(part(200)).await.map(drop).unwrap_err();
                assert!(matches!(error, StoreError::Io { errno: Some(ENOSPC), .. }), "{error}");
            }
            fs::remove_file(small.0.path().join("ballast")).unwrap();
            assert_eq!(table.apply(part(200)).await.unwrap().next, None);
            let key = Bytes::from(77_u32.to_be_bytes().to_vec());
            let there = table.fetch(vec![key], Vec::new()).await.unwrap();
            assert_eq!(there.values[0].as_ref().map(Bytes::len), Some(1000));
        });
    }
}
