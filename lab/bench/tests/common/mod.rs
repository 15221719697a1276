//! A target for tests: it forwards every call to a directory. Before the first call of each kind it records
//! the disk's contents at that moment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use shoal_bench::{Directory, FileId, ListingResult, OpenMode, Stat, Target, Worker};

/// The state just before the first call of each kind, by kind: (files, bytes in them) under the root.
pub type Seen = Arc<Mutex<BTreeMap<&'static str, (usize, u64)>>>;
/// Calls made, by kind.
pub type Calls = Arc<Mutex<BTreeMap<&'static str, u64>>>;

pub struct Watched {
    inner: Directory,
    root: PathBuf,
    pub seen: Seen,
    pub calls: Calls,
    /// The call that fails, and which one of its kind (from 1).
    pub fail: Option<(&'static str, u64)>,
}

impl Watched {
    pub fn new(root: &Path) -> Watched {
        let inner = Directory::new("watched", root);
        Watched { inner, root: root.to_owned(), seen: Seen::default(), calls: Calls::default(), fail: None }
    }
}

impl Target for Watched {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn worker(&self, index: usize) -> Result<Box<dyn Worker>> {
        Ok(Box::new(WatchedWorker {
            inner: self.inner.worker(index)?,
            root: self.root.clone(),
            seen: self.seen.clone(),
            calls: self.calls.clone(),
            fail: self.fail,
        }))
    }
}

struct WatchedWorker {
    inner: Box<dyn Worker>,
    root: PathBuf,
    seen: Seen,
    calls: Calls,
    fail: Option<(&'static str, u64)>,
}

impl WatchedWorker {
    fn look(&mut self, call: &'static str) -> Result<()> {
        self.seen.lock().unwrap().entry(call).or_insert_with(|| files_below(&self.root));
        let mut calls = self.calls.lock().unwrap();
        let count = calls.entry(call).or_insert(0);
        *count += 1;
        if self.fail == Some((call, *count)) {
            anyhow::bail!("{call} fails as told");
        }
        Ok(())
    }
}

/// Files below a directory, and the sum of their sizes.
pub fn files_below(dir: &Path) -> (usize, u64) {
    let mut sum = (0, 0);
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        let below = if metadata.is_dir() { files_below(&entry.path()) } else { (1, metadata.len()) };
        sum = (sum.0 + below.0, sum.1 + below.1);
    }
    sum
}

impl Worker for WatchedWorker {
    fn mkdir(&mut self, path: &str) -> Result<()> {
        self.look("mkdir")?;
        self.inner.mkdir(path)
    }
    fn create(&mut self, path: &str) -> Result<FileId> {
        self.look("create")?;
        self.inner.create(path)
    }
    fn open(&mut self, path: &str, mode: OpenMode) -> Result<FileId> {
        self.look("open")?;
        self.inner.open(path, mode)
    }
    fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<()> {
        self.look("write")?;
        self.inner.write(file, offset, data)
    }
    fn read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.look("read")?;
        self.inner.read(file, offset, buf)
    }
    fn stat(&mut self, path: &str) -> Result<Stat> {
        self.look("stat")?;
        self.inner.stat(path)
    }
    fn readdir_stat(&mut self, dir: &str) -> Result<ListingResult> {
        self.look("readdir_stat")?;
        self.inner.readdir_stat(dir)
    }
    fn fsync(&mut self, file: FileId) -> Result<()> {
        self.look("fsync")?;
        self.inner.fsync(file)
    }
    fn close(&mut self, file: FileId) -> Result<()> {
        self.look("close")?;
        self.inner.close(file)
    }
    fn remove(&mut self, path: &str) -> Result<()> {
        self.look("remove")?;
        self.inner.remove(path)
    }
    fn rmdir(&mut self, path: &str) -> Result<()> {
        self.look("rmdir")?;
        self.inner.rmdir(path)
    }
}
