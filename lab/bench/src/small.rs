//! Many small files: the paper's microbenchmark.
//!
//! From "Small-File Access in Parallel File Systems", section IV: each process (1) creates a directory of its
//! own, (2) creates N files in it, (3) reads the directory and *stats* each file, (4) writes M bytes to each,
//! (5) reads M bytes from each, (6) reads the directory and *stats* each file again, (7) closes each, (8)
//! removes each, (9) removes the directory. The files stay open from create to close. The paper's own figures
//! are for N = 12,000 and M = 8 KiB.
//!
//! Phases check what they see: a listing must show N files of 0 bytes before the writes and of M bytes after
//! them, and a read must return M bytes. Comparing the bytes read is an option, since it costs time that is
//! not the file system's.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::buffer::Buffer;
use crate::report::Unit;
use crate::target::{FileId, ListingResult, Worker};
use crate::workload::{Actor, Place, Work};

/// The most files one worker makes.
pub const FILES_MAX: u64 = 10_000_000;
/// The most bytes in a small file.
pub const SMALL_BYTES_MAX: usize = 64 << 20;

/// The small-file workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SmallOptions {
    /// Files of each worker (the paper's N).
    pub files: u64,
    /// Bytes written to and read from each file by one call (the paper's M). With 0 the write and read phases
    /// call with an empty buffer.
    pub bytes: usize,
    /// Compare every byte read with the written one. Costs a memory comparison a file, inside the read
    /// phase's time.
    pub verify: bool,
    /// After each *readdir and stat* phase one that lists with attributes in the same messages, for targets
    /// that offer that; others show nothing there.
    pub readdirplus: bool,
}

impl Default for SmallOptions {
    fn default() -> SmallOptions {
        SmallOptions { files: 12_000, bytes: 8192, verify: false, readdirplus: false }
    }
}

/// Refuses options that no workload of small files takes.
pub(crate) fn check_files(files: u64, bytes: usize) -> Result<()> {
    if files == 0 || files > FILES_MAX {
        bail!("files must be between 1 and {FILES_MAX}, not {files}");
    }
    if bytes > SMALL_BYTES_MAX {
        bail!("bytes must be at most {SMALL_BYTES_MAX}, not {bytes}");
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Mkdir,
    Create,
    ListEmpty,
    ListEmptyPlus,
    Write,
    Read,
    ListFull,
    ListFullPlus,
    Close,
    Remove,
    Rmdir,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Mkdir => "mkdir",
            Phase::Create => "create",
            Phase::ListEmpty => "readdir+stat, empty",
            Phase::ListEmptyPlus => "readdirplus, empty",
            Phase::Write => "write",
            Phase::Read => "read",
            Phase::ListFull => "readdir+stat, written",
            Phase::ListFullPlus => "readdirplus, written",
            Phase::Close => "close",
            Phase::Remove => "remove",
            Phase::Rmdir => "rmdir",
        }
    }
}

impl SmallOptions {
    fn order(&self) -> Vec<Phase> {
        use Phase::*;
        let all = [
            Mkdir,
            Create,
            ListEmpty,
            ListEmptyPlus,
            Write,
            Read,
            ListFull,
            ListFullPlus,
            Close,
            Remove,
            Rmdir,
        ];
        let plus = |phase: &Phase| matches!(phase, ListEmptyPlus | ListFullPlus);
        all.into_iter().filter(|phase| self.readdirplus || !plus(phase)).collect()
    }

    pub(crate) fn phases(&self) -> Vec<(String, Unit)> {
        self.order().into_iter().map(|phase| (phase.name().to_owned(), Unit::OpsPerSecond)).collect()
    }

    pub(crate) fn describe(&self) -> String {
        format!("{} files of {} bytes a worker, kept open, no fsync", self.files, self.bytes)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        check_files(self.files, self.bytes)
    }
}

pub(crate) struct SmallActor {
    options: SmallOptions,
    order: Vec<Phase>,
    dir: String,
    data: Buffer,
    back: Buffer,
    files: Vec<FileId>,
}

impl SmallActor {
    pub(crate) fn new(options: SmallOptions, place: &Place) -> SmallActor {
        SmallActor {
            order: options.order(),
            dir: format!("small.{}.{}", place.tag, place.index),
            data: Buffer::filled(options.bytes, place.index as u64),
            back: Buffer::new(options.bytes),
            files: Vec::with_capacity(options.files as usize),
            options,
        }
    }

    fn path(&self, file: u64) -> String {
        format!("{}/f{file:07}", self.dir)
    }

    fn create(&mut self, worker: &mut dyn Worker) -> Result<Work> {
        for file in 0..self.options.files {
            let path = self.path(file);
            self.files.push(worker.create(&path)?);
        }
        Ok(self.all(0))
    }

    fn write(&mut self, worker: &mut dyn Worker) -> Result<Work> {
        for (index, file) in self.files.iter().enumerate() {
            self.data.stamp(index as u64);
            worker.write(*file, 0, self.data.as_ref())?;
        }
        Ok(self.all(self.options.bytes))
    }

    fn read(&mut self, worker: &mut dyn Worker) -> Result<Work> {
        for (index, file) in self.files.iter().enumerate() {
            let n = worker.read(*file, 0, self.back.as_mut())?;
            if n != self.options.bytes {
                bail!("{} read as {n} bytes, written were {}", self.path(index as u64), self.options.bytes);
            }
            if self.options.verify {
                self.data.stamp(index as u64);
                if self.back.as_ref() != self.data.as_ref() {
                    bail!("{} reads back other bytes than were written", self.path(index as u64));
                }
            }
        }
        Ok(self.all(self.options.bytes))
    }

    fn check(&self, listing: ListingResult, bytes_each: usize) -> Result<Work> {
        let want =
            ListingResult { entries: self.options.files, bytes: self.options.files * bytes_each as u64 };
        if listing != want {
            bail!(
                "{} lists {} entries of {} bytes in all; {} of {} were made",
                self.dir,
                listing.entries,
                listing.bytes,
                want.entries,
                want.bytes
            );
        }
        Ok(self.all(0))
    }

    fn list(&mut self, worker: &mut dyn Worker, bytes_each: usize) -> Result<Work> {
        let listing = worker.readdir_stat(&self.dir)?;
        self.check(listing, bytes_each)
    }

    fn list_plus(&mut self, worker: &mut dyn Worker, bytes_each: usize) -> Result<Work> {
        match worker.readdir_plus(&self.dir)? {
            Some(listing) => self.check(listing, bytes_each),
            None => Ok(Work::default()),
        }
    }

    fn close(&mut self, worker: &mut dyn Worker) -> Result<Work> {
        for file in self.files.drain(..) {
            worker.close(file)?;
        }
        Ok(self.all(0))
    }

    fn remove(&mut self, worker: &mut dyn Worker) -> Result<Work> {
        for file in 0..self.options.files {
            let path = self.path(file);
            worker.remove(&path)?;
        }
        Ok(self.all(0))
    }

    fn all(&self, bytes_each: usize) -> Work {
        Work { ops: self.options.files, bytes: self.options.files * bytes_each as u64 }
    }
}

impl Actor for SmallActor {
    fn run(&mut self, phase: usize, worker: &mut dyn Worker) -> Result<Work> {
        let one = Work { ops: 1, bytes: 0 };
        match self.order[phase] {
            Phase::Mkdir => worker.mkdir(&self.dir).map(|()| one),
            Phase::Create => self.create(worker),
            Phase::ListEmpty => self.list(worker, 0),
            Phase::ListEmptyPlus => self.list_plus(worker, 0),
            Phase::Write => self.write(worker),
            Phase::Read => self.read(worker),
            Phase::ListFull => self.list(worker, self.options.bytes),
            Phase::ListFullPlus => self.list_plus(worker, self.options.bytes),
            Phase::Close => self.close(worker),
            Phase::Remove => self.remove(worker),
            Phase::Rmdir => worker.rmdir(&self.dir).map(|()| one),
        }
    }

    fn clean(&mut self, worker: &mut dyn Worker) {
        for file in self.files.drain(..) {
            let _ = worker.close(file);
        }
        for file in 0..self.options.files {
            let path = self.path(file);
            let _ = worker.remove(&path);
        }
        let _ = worker.rmdir(&self.dir);
    }
}
