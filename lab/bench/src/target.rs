//! The target of a workload.
//!
//! A [`Target`] is a file system seen from its users' side; a [`Worker`] is one of its users: one process
//! or thread with its open files. Workers share nothing with each other, and their methods block. So an
//! asynchronous client that lives in threads of its own has a set of connections for each worker.
//! Concurrency is the number of workers; a worker makes one call at a time.
//!
//! Paths are relative to the target's root. Their parts are joined by `/`, and they begin without `/`:
//! `small.4711.0/f000012`.

use anyhow::{Result, bail};

use crate::counts::{Counts, Edge};

/// A file a worker has open. The number is the worker's own and means nothing to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u64);

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// For writing too; otherwise for reading only.
    pub write: bool,
    /// Past the page cache (`O_DIRECT`). Offsets, lengths and buffers are then multiples of 4096 bytes. A
    /// target without a page cache does nothing else than usual.
    pub direct: bool,
}

/// The result of `stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Bytes; for a directory whatever the target says.
    pub size: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// The result of a listing with attributes; `.` and `..` are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListingResult {
    /// Entries seen.
    pub entries: u64,
    /// The sum of the sizes of those that are not directories, in bytes.
    pub bytes: u64,
}

/// A file system to measure.
pub trait Target: Send + Sync {
    /// Its name in tables, unique in a comparison.
    fn name(&self) -> String;

    /// Makes the worker `index` (from 0): for a directory nothing but a table of descriptors, for a network
    /// client a set of connections, made before any clock starts, on the thread that then uses it.
    fn worker(&self, index: usize) -> Result<Box<dyn Worker>>;

    /// Words from which a worker *process* opens this same target again (see [`crate::worker_process_main`]),
    /// or `None` where the target cannot be worked on from another process. `dir:PATH` is
    /// [`crate::Directory`]'s.
    fn process_spec(&self) -> Option<String> {
        None
    }

    /// The counts of clients and servers so far, read at the edges of phases; `None` where there are none.
    fn counts(&self, edge: Edge) -> Result<Option<Counts>> {
        let _ = edge;
        Ok(None)
    }
}

/// One user of a target. Every method blocks until its effect is as the target promises at that point; an
/// error ends the run and should name the operation and the object.
pub trait Worker {
    /// Creates a directory; it must not exist.
    fn mkdir(&mut self, path: &str) -> Result<()>;

    /// Creates a file that must not exist and opens it for reading and writing.
    fn create(&mut self, path: &str) -> Result<FileId>;

    /// Opens a file that exists.
    fn open(&mut self, path: &str, mode: OpenMode) -> Result<FileId>;

    /// Writes all of `data` at `offset` (bytes).
    fn write(&mut self, file: FileId, offset: u64, data: &[u8]) -> Result<()>;

    /// Reads at `offset` (bytes) until `buf` is full or the file ends; returns the bytes read.
    fn read(&mut self, file: FileId, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Attributes by path, which for a symbolic link are its own.
    fn stat(&mut self, path: &str) -> Result<Stat>;

    /// Reads the directory and *stats* each entry by a call of its own.
    fn readdir_stat(&mut self, dir: &str) -> Result<ListingResult>;

    /// Reads the directory with its entries' attributes in the same messages, where the target's interface
    /// offers that; `None` where it does not (POSIX does not).
    fn readdir_plus(&mut self, dir: &str) -> Result<Option<ListingResult>> {
        let _ = dir;
        Ok(None)
    }

    /// Makes the file's data and size durable.
    fn fsync(&mut self, file: FileId) -> Result<()>;

    /// Closes the file; the id is not used again for it.
    fn close(&mut self, file: FileId) -> Result<()>;

    /// Makes a file that must not exist with these contents, and leaves it closed.
    fn put(&mut self, path: &str, data: &[u8]) -> Result<()> {
        let file = self.create(path)?;
        if !data.is_empty() {
            self.write(file, 0, data)?;
        }
        self.close(file)
    }

    /// Opens a file, reads until it ends or `buf` is full, and closes it; returns the bytes read.
    fn get(&mut self, path: &str, buf: &mut [u8]) -> Result<usize> {
        let file = self.open(path, OpenMode::default())?;
        let n = self.read(file, 0, buf)?;
        self.close(file)?;
        Ok(n)
    }

    /// Reads the directory, with attributes, and reports each name (except `.` and `..`).
    fn list(&mut self, dir: &str, tell: &mut dyn FnMut(&str)) -> Result<()> {
        let _ = (dir, tell);
        bail!("this target tells no names")
    }

    /// The calls for many files at once, where the interface has such (POSIX has not).
    fn batches(&mut self) -> Option<&mut dyn Batches> {
        None
    }

    /// Removes a file's name.
    fn remove(&mut self, path: &str) -> Result<()>;

    /// Removes an empty directory.
    fn rmdir(&mut self, path: &str) -> Result<()>;
}

/// Calls for many files at once; one that fails for any of them fails.
pub trait Batches {
    /// Makes empty files that must not exist, and leaves them closed.
    fn create_many(&mut self, paths: &[String]) -> Result<()>;

    /// Writes to the start of files that exist; `data` gives each file's bytes.
    fn write_many(&mut self, paths: &[String], data: &mut dyn FnMut(usize) -> Vec<u8>) -> Result<()>;

    /// Reads files whole, each of at most `max` bytes, and reports each one's contents.
    fn read_many(
        &mut self,
        paths: &[String],
        max: usize,
        tell: &mut dyn FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()>;

    /// Attributes by path.
    fn stat_many(&mut self, paths: &[String]) -> Result<Vec<Stat>>;

    /// Removes files' names.
    fn remove_many(&mut self, paths: &[String]) -> Result<()>;
}
