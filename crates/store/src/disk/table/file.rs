//! A table for simulated disks: one sorted file, which is rewritten whole and replaced atomically.
//!
//! ```text
//! 0  magic "shoaltab"
//! 8  format version                u32
//! 12 CRC-32C of everything after   u32
//! 16 rows: key length u16, value length u32, key, value
//! ```
//!
//! All rows are in memory too, so that reading costs nothing; a simulation of a thousand servers pays for
//! it in memory.

use super::live::Live;
use super::{Applied, Fetched, LSN_KEY, Part, RangeRows, Table};
use crate::{RangeNeed, StoreError};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{LocalBoxFuture, ready};
use shoal_env::Env;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::rc::Rc;

const MAGIC: &[u8; 8] = b"shoaltab";
const VERSION: u32 = 1;
const HEAD: usize = 16;
/// Largest file: the capacity of a simulated disk.
const BYTES_MAX: usize = 4 << 30;

type Rows = BTreeMap<Bytes, Bytes>;

pub(crate) struct FileTable {
    env: Env,
    path: PathBuf,
    rows: Rc<RefCell<Rows>>,
}

impl FileTable {
    pub async fn open(env: Env, dir: &Path) -> Result<FileTable, StoreError> {
        let path = dir.join("rows.tab");
        let rows = match env.read_file(&path, BYTES_MAX).await {
            Ok(bytes) => decode(&bytes, &path)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Rows::new(),
            Err(error) => return Err(StoreError::io(format!("reading {}", path.display()), &error)),
        };
        Ok(FileTable { env, path, rows: Rc::new(RefCell::new(rows)) })
    }
}

pub(crate) fn decode(bytes: &Bytes, path: &Path) -> Result<Rows, StoreError> {
    let damaged = || StoreError::Damaged(format!("{}: not a table, or not whole", path.display()));
    let word = |at: usize| {
        let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).ok_or_else(damaged)?;
        Ok::<u32, StoreError>(u32::from_le_bytes(word))
    };
    if bytes.get(..8) != Some(MAGIC.as_slice()) || word(12)? != crc32c::crc32c(&bytes[HEAD..]) {
        return Err(damaged());
    }
    let version = word(8)?;
    if version != VERSION {
        return Err(crate::disk::identity::newer(path, version, VERSION));
    }
    let (mut rows, mut at) = (Rows::new(), HEAD);
    while at < bytes.len() {
        let value_len = word(at + 2)? as usize;
        let key_len = usize::from(bytes[at]) | usize::from(bytes[at + 1]) << 8;
        let (key, value) = (at + 6..at + 6 + key_len, at + 6 + key_len..at + 6 + key_len + value_len);
        at = value.end;
        if at > bytes.len() {
            return Err(damaged());
        }
        rows.insert(bytes.slice(key), bytes.slice(value));
    }
    Ok(rows)
}

fn encode(rows: &Rows) -> Bytes {
    let len: usize = rows.iter().map(|(key, value)| 6 + key.len() + value.len()).sum();
    let mut out = Vec::with_capacity(HEAD + len);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    for (key, value) in rows {
        out.extend_from_slice(&(key.len() as u16).to_le_bytes());
        out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }
    let crc = crc32c::crc32c(&out[HEAD..]);
    out[12..16].copy_from_slice(&crc.to_le_bytes());
    out.into()
}

/// Rows as they were before a part was applied.
type Before = Vec<(Bytes, Option<Bytes>)>;

/// Apply a part in place: a copy of all rows for each part would dominate the cost of a large store.
fn apply(rows: &mut Rows, part: &Part) -> Result<(Before, Applied), StoreError> {
    let (changes, next) = part.split();
    let (count, mut bytes) = (changes.len(), 0);
    let mut undo = Before::with_capacity(count + 2);
    let mut live = Live::default();
    for (key, entry) in changes {
        bytes += (key.len() + entry.value.as_ref().map_or(0, Bytes::len)) as u64;
        let before = match &entry.value {
            Some(value) => rows.insert(key.clone(), value.clone()),
            None => rows.remove(key),
        };
        let replaced = live.replace(key, before.as_deref(), entry.value.as_deref());
        undo.push((key.clone(), before));
        if let Err(error) = replaced {
            take_back(rows, undo);
            return Err(error);
        }
    }
    let counts = match live.moved(|key| Ok::<_, StoreError>(rows.get(&key[..]).cloned())) {
        Ok(counts) => counts,
        Err(error) => {
            take_back(rows, undo);
            return Err(error);
        }
    };
    let mut put = |key: &[u8], value: Option<&[u8]>| {
        let key = Bytes::copy_from_slice(key);
        let before = match value {
            Some(value) => rows.insert(key.clone(), Bytes::copy_from_slice(value)),
            None => rows.remove(&key),
        };
        undo.push((key, before));
    };
    counts.iter().for_each(|(key, value)| put(key, value.as_ref().map(|value| &value[..])));
    if next.is_none() {
        put(LSN_KEY, Some(&part.lsn.0.to_le_bytes()));
    }
    Ok((undo, Applied { rows: count, next, bytes }))
}

/// The part did not reach the disk.
fn take_back(rows: &mut Rows, before: Before) {
    for (key, value) in before.into_iter().rev() {
        match value {
            Some(value) => rows.insert(key, value),
            None => rows.remove(&key),
        };
    }
}

fn range(rows: &Rows, asked: &RangeNeed) -> RangeRows {
    let RangeNeed { prefix, after, limit, .. } = asked;
    let from = match after {
        Some(after) if after >= prefix => Bound::Excluded(after.as_ref()),
        _ => Bound::Included(prefix.as_ref()),
    };
    let mut found = RangeRows { complete: true, ..RangeRows::default() };
    for (key, value) in
        rows.range::<[u8], _>((from, Bound::Unbounded)).take_while(|(key, _)| key.starts_with(prefix))
    {
        if found.rows.len() == *limit {
            found.complete = false;
            break;
        }
        found.rows.push((key.clone(), value.clone()));
    }
    let leads = found.leads(asked).into_iter().map(|key| {
        let value = rows.get(&key).cloned();
        (key, value)
    });
    found.followed = leads.collect();
    found
}

impl Table for FileTable {
    fn fetch(
        &self,
        keys: Vec<Bytes>,
        ranges: Vec<RangeNeed>,
    ) -> LocalBoxFuture<'static, Result<Fetched, StoreError>> {
        let rows = self.rows.borrow();
        let fetched = Fetched {
            values: keys.iter().map(|key| rows.get(key).cloned()).collect(),
            ranges: ranges.iter().map(|asked| range(&rows, asked)).collect(),
        };
        ready(Ok(fetched)).boxed_local()
    }

    fn apply(&self, part: Part) -> LocalBoxFuture<'static, Result<Applied, StoreError>> {
        let (env, path, shared) = (self.env.clone(), self.path.clone(), self.rows.clone());
        Box::pin(async move {
            // Until they are on the disk the rows are in a frozen table, too, which is searched first.
            let (before, applied) = apply(&mut shared.borrow_mut(), &part)?;
            let encoded = encode(&shared.borrow());
            if let Err(error) = env.replace_file(&path, encoded).await {
                take_back(&mut shared.borrow_mut(), before);
                return Err(StoreError::io(format!("replacing {}", path.display()), &error));
            }
            Ok(applied)
        })
    }

    fn close(&self) -> LocalBoxFuture<'static, ()> {
        ready(()).boxed_local()
    }
}
