//! Compares operations on many files at once with the same operations on one file after the other.
//!
//! Each worker, in a directory of its own, makes N empty files, writes M bytes to each, reads them, requests
//! their attributes and removes them. Each worker does this for two sets of files. For the first set it uses
//! the calls for one file. For the second set it uses the calls for a batch of files; the names of these
//! phases end in `_many`. The first set uses the cheapest calls for one file: if the interface can, each call
//! is one message. For example, the files are already open when they are written. So the ratio of the two
//! rates shows only the gain of batching.
//!
//! ```text
//!   create       ▷◁ ▷◁ ▷◁ ▷◁ …       N messages, N syncs one after the other
//!   create_many  ▶▶▶▶▶▶▶▶◀◀ …         N ÷ batch of each
//! ```
//!
//! Source: an extension of the small-file paper (`create_many` and the like: one compound for each server).

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::buffer::Buffer;
use crate::report::{Report, Unit};
use crate::small::check_files;
use crate::target::{Batches, FileId, OpenMode, Worker};
use crate::workload::{Actor, Place, Work};

/// The most files of a batch.
pub const BATCH_MAX: usize = 65_536;

/// The workload of batches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ManyOptions {
    /// Files of each worker, one by one and again in batches.
    pub files: u64,
    /// Bytes of each.
    pub bytes: usize,
    /// Files of a batch.
    pub batch: usize,
}

impl Default for ManyOptions {
    fn default() -> ManyOptions {
        ManyOptions { files: 1024, bytes: 8192, batch: 64 }
    }
}

/// The operations on files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Create,
    Write,
    Read,
    Stat,
    Remove,
}

/// The verbs, as phases are called; in batches with [`BATCHED`] appended.
pub const VERBS: [&str; 5] = ["create", "write", "read", "stat", "remove"];
/// The suffix of the name of a phase that works in batches.
pub const BATCHED: &str = "_many";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Mkdir,
    Singly(Verb),
    Batched(Verb),
    Open,
    Close,
    Rmdir,
}

impl Phase {
    fn name(self) -> String {
        match self {
            Phase::Mkdir => "mkdir".to_owned(),
            Phase::Singly(verb) => VERBS[verb as usize].to_owned(),
            Phase::Batched(verb) => format!("{}{BATCHED}", VERBS[verb as usize]),
            Phase::Open => "open".to_owned(),
            Phase::Close => "close".to_owned(),
            Phase::Rmdir => "rmdir".to_owned(),
        }
    }
}

impl ManyOptions {
    fn order(&self) -> Vec<Phase> {
        use Phase::*;
        let all = [
            Mkdir,
            Singly(Verb::Create),
            Batched(Verb::Create),
            Open,
            Singly(Verb::Write),
            Close,
            Batched(Verb::Write),
            Singly(Verb::Read),
            Batched(Verb::Read),
            Singly(Verb::Stat),
            Batched(Verb::Stat),
            Singly(Verb::Remove),
            Batched(Verb::Remove),
            Rmdir,
        ];
        let moves = |phase: &Phase| {
            matches!(
                phase,
                Open | Close | Singly(Verb::Write | Verb::Read) | Batched(Verb::Write | Verb::Read)
            )
        };
        all.into_iter().filter(|phase| self.bytes > 0 || !moves(phase)).collect()
    }

    pub(crate) fn phases(&self) -> Vec<(String, Unit)> {
        self.order().into_iter().map(|phase| (phase.name(), Unit::OpsPerSecond)).collect()
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "{} files of {} bytes a worker, one by one and {} at a time",
            self.files, self.bytes, self.batch
        )
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.batch < 2 || self.batch > BATCH_MAX {
            bail!("a batch has between 2 and {BATCH_MAX} files, not {}", self.batch);
        }
        check_files(self.files, self.bytes)
    }
}

/// One verb, one by one and in batches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The verb.
    pub verb: String,
    /// Files a second, one by one.
    pub singly_per_s: f64,
    /// Files a second, in batches.
    pub batched_per_s: f64,
    /// How many times as many.
    pub times: f64,
}

/// The gain of batches on the first target of a report; medians of wall-clock time.
pub fn gains(report: &Report) -> Vec<Gain> {
    let median = |phase: &str| Some(report.targets.first()?.phase(phase)?.rate_wall?.median);
    let gain = |verb: &&str| {
        let (singly_per_s, batched_per_s) = (median(verb)?, median(&format!("{verb}{BATCHED}"))?);
        let times = batched_per_s / singly_per_s;
        Some(Gain { verb: (*verb).to_owned(), singly_per_s, batched_per_s, times })
    };
    VERBS.iter().filter_map(gain).collect()
}

/// The gain of batches, in one line.
pub fn gains_line(report: &Report, batch: usize) -> String {
    let word = |gain: Gain| format!("{} {:.1} ×", gain.verb, gain.times);
    format!("{batch} at a time: {}", gains(report).into_iter().map(word).collect::<Vec<_>>().join(", "))
}

pub(crate) struct ManyActor {
    options: ManyOptions,
    order: Vec<Phase>,
    dir: String,
    /// Each file's contents differ in their first bytes.
    data: Buffer,
    back: Buffer,
    open: Vec<FileId>,
}

impl ManyActor {
    pub(crate) fn new(options: ManyOptions, place: &Place) -> ManyActor {
        ManyActor {
            order: options.order(),
            dir: format!("many.{}.{}", place.tag, place.index),
            data: Buffer::filled(options.bytes, place.index as u64),
            // One byte more, to see a file that is longer than it should be.
            back: Buffer::new(options.bytes + 1),
            open: Vec::new(),
            options,
        }
    }

    fn singles(&self) -> Vec<String> {
        (0..self.options.files).map(|file| format!("{}/s{file:07}", self.dir)).collect()
    }

    fn batches(&self) -> Vec<Vec<String>> {
        let all: Vec<String> =
            (0..self.options.files).map(|file| format!("{}/m{file:07}", self.dir)).collect();
        all.chunks(self.options.batch).map(<[String]>::to_vec).collect()
    }

    fn check(&self, path: &str, read: &[u8], index: u64) -> Result<()> {
        if read.len() != self.options.bytes {
            bail!("{path} read as {} bytes, written were {}", read.len(), self.options.bytes);
        }
        let stamp = read.len().min(8);
        if read[..stamp] != index.to_le_bytes()[..stamp] {
            bail!("{path} reads back other bytes than were written");
        }
        Ok(())
    }

    fn check_size(&self, path: &str, size: u64) -> Result<()> {
        if size != self.options.bytes as u64 {
            bail!("{path} has {size} bytes, written were {}", self.options.bytes);
        }
        Ok(())
    }

    fn singly(&mut self, verb: Verb, worker: &mut dyn Worker) -> Result<()> {
        for (index, path) in (0..).zip(self.singles()) {
            match verb {
                Verb::Create => worker.put(&path, &[])?,
                Verb::Write => {
                    self.data.stamp(index);
                    let file = *self.open.get(index as usize).context("a file is not open")?;
                    worker.write(file, 0, self.data.as_ref())?;
                }
                Verb::Read => {
                    let n = worker.get(&path, self.back.as_mut())?;
                    self.check(&path, &self.back.as_ref()[..n], index)?;
                }
                Verb::Stat => self.check_size(&path, worker.stat(&path)?.size)?,
                Verb::Remove => worker.remove(&path)?,
            }
        }
        Ok(())
    }

    fn batched(&mut self, verb: Verb, worker: &mut dyn Batches) -> Result<()> {
        let mut first = 0;
        for paths in self.batches() {
            match verb {
                Verb::Create => worker.create_many(&paths)?,
                Verb::Write => self.write_batch(&paths, first, worker)?,
                Verb::Read => {
                    let mut read = 0;
                    worker.read_many(&paths, self.options.bytes + 1, &mut |item, data| {
                        read += 1;
                        self.check(&paths[item], data, first + item as u64)
                    })?;
                    if read != paths.len() {
                        bail!("{read} files were read of {}", paths.len());
                    }
                }
                Verb::Stat => {
                    let stats = worker.stat_many(&paths)?;
                    paths.iter().zip(stats).try_for_each(|(path, stat)| self.check_size(path, stat.size))?;
                }
                Verb::Remove => worker.remove_many(&paths)?,
            }
            first += paths.len() as u64;
        }
        Ok(())
    }

    fn write_batch(&mut self, paths: &[String], first: u64, worker: &mut dyn Batches) -> Result<()> {
        worker.write_many(paths, &mut |item| {
            self.data.stamp(first + item as u64);
            self.data.as_ref().to_vec()
        })
    }
}

impl Actor for ManyActor {
    fn run(&mut self, phase: usize, worker: &mut dyn Worker) -> Result<Work> {
        let one = Work { ops: 1, bytes: 0 };
        let moved = |verb| match verb {
            Verb::Write | Verb::Read => self.options.files * self.options.bytes as u64,
            Verb::Create | Verb::Stat | Verb::Remove => 0,
        };
        let all = |bytes| Work { ops: self.options.files, bytes };
        match self.order[phase] {
            Phase::Mkdir => worker.mkdir(&self.dir).map(|()| one),
            Phase::Singly(verb) => {
                let work = all(moved(verb));
                self.singly(verb, worker).map(|()| work)
            }
            Phase::Batched(verb) => {
                let work = all(moved(verb));
                match worker.batches() {
                    Some(worker) => self.batched(verb, worker).map(|()| work),
                    None => Ok(Work::default()),
                }
            }
            Phase::Open => {
                let mode = OpenMode { write: true, direct: false };
                let work = all(0);
                for path in self.singles() {
                    self.open.push(worker.open(&path, mode)?);
                }
                Ok(work)
            }
            Phase::Close => {
                let work = all(0);
                self.open.drain(..).try_for_each(|file| worker.close(file)).map(|()| work)
            }
            Phase::Rmdir => worker.rmdir(&self.dir).map(|()| one),
        }
    }

    fn clean(&mut self, worker: &mut dyn Worker) {
        for file in self.open.drain(..) {
            let _ = worker.close(file);
        }
        for path in self.singles().iter().chain(self.batches().iter().flatten()) {
            let _ = worker.remove(path);
        }
        let _ = worker.rmdir(&self.dir);
    }
}
