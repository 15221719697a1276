//! Epochs: the same files read repeatedly in random order, as training over a data set does.
//!
//! Each worker has a directory of its own. It makes N files of different sizes, opens, reads and closes all
//! of them in random order, twice, and removes them. The second epoch can use the kernel's page cache, if
//! the file system knows that nothing has changed.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::buffer::{Buffer, Random};
use crate::report::Unit;
use crate::small::check_files;
use crate::target::Worker;
use crate::workload::{Actor, Place, Work};

/// The workload of epochs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EpochsOptions {
    /// Files of each worker.
    pub files: u64,
    /// Bytes of the smallest.
    pub bytes_min: usize,
    /// Bytes of the largest.
    pub bytes_max: usize,
}

impl Default for EpochsOptions {
    fn default() -> EpochsOptions {
        EpochsOptions { files: 2_500, bytes_min: 4 << 10, bytes_max: 30 << 10 }
    }
}

/// Names of the measured phases, for look-ups.
pub mod names {
    /// Files are read for the first time since they were made.
    pub const FIRST: &str = "first epoch";
    /// And once more.
    pub const SECOND: &str = "second epoch";
}

const PHASES: [&str; 6] =
    ["mkdir", crate::whole::names::CREATE, names::FIRST, names::SECOND, crate::whole::names::REMOVE, "rmdir"];

impl EpochsOptions {
    pub(crate) fn phases(&self) -> Vec<(String, Unit)> {
        PHASES.map(|name| (name.to_owned(), Unit::OpsPerSecond)).to_vec()
    }

    pub(crate) fn describe(&self) -> String {
        let EpochsOptions { files, bytes_min, bytes_max } = self;
        format!("two epochs over {files} files of {bytes_min} to {bytes_max} bytes a worker, in random order")
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.bytes_min == 0 || self.bytes_min > self.bytes_max {
            bail!("bytes_min must be between 1 and bytes_max ({}), not {}", self.bytes_max, self.bytes_min);
        }
        check_files(self.files, self.bytes_max)
    }
}

pub(crate) struct EpochsActor {
    options: EpochsOptions,
    dir: String,
    random: Random,
    sizes: Vec<usize>,
    data: Buffer,
    back: Buffer,
}

impl EpochsActor {
    pub(crate) fn new(options: EpochsOptions, place: &Place) -> EpochsActor {
        let mut random = Random::new(place.index as u64 + 1);
        let span = (options.bytes_max - options.bytes_min + 1) as u64;
        let size = |_| options.bytes_min + (random.next() % span) as usize;
        EpochsActor {
            sizes: (0..options.files).map(size).collect(),
            random,
            dir: format!("epochs.{}.{}", place.tag, place.index),
            data: Buffer::filled(options.bytes_max, place.index as u64),
            // One byte more, to see a file that is longer than it should be.
            back: Buffer::new(options.bytes_max + 1),
            options,
        }
    }

    fn path(&self, file: usize) -> String {
        format!("{}/f{file:07}", self.dir)
    }

    fn create(&mut self, worker: &mut dyn Worker) -> Result<()> {
        for (file, &size) in self.sizes.iter().enumerate() {
            self.data.stamp(file as u64);
            worker.put(&self.path(file), &self.data.as_ref()[..size])?;
        }
        Ok(())
    }

    fn epoch(&mut self, worker: &mut dyn Worker) -> Result<()> {
        let mut order: Vec<usize> = (0..self.sizes.len()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, (self.random.next() % (at as u64 + 1)) as usize);
        }
        for file in order {
            let (path, size) = (self.path(file), self.sizes[file]);
            let n = worker.get(&path, self.back.as_mut())?;
            if n != size {
                bail!("{path} read as {n} bytes, written were {size}");
            }
            self.data.stamp(file as u64);
            if self.back.as_ref()[..n] != self.data.as_ref()[..n] {
                bail!("{path} reads back other bytes than were written");
            }
        }
        Ok(())
    }

    fn remove(&self, worker: &mut dyn Worker) -> Result<()> {
        (0..self.sizes.len()).try_for_each(|file| worker.remove(&self.path(file)))
    }
}

impl Actor for EpochsActor {
    fn run(&mut self, phase: usize, worker: &mut dyn Worker) -> Result<Work> {
        let ops = self.options.files;
        let bytes = self.sizes.iter().sum::<usize>() as u64;
        match phase {
            0 => worker.mkdir(&self.dir).map(|()| Work { ops: 1, bytes: 0 }),
            1 => self.create(worker).map(|()| Work { ops, bytes }),
            2 | 3 => self.epoch(worker).map(|()| Work { ops, bytes }),
            4 => self.remove(worker).map(|()| Work { ops, bytes: 0 }),
            _ => worker.rmdir(&self.dir).map(|()| Work { ops: 1, bytes: 0 }),
        }
    }

    fn clean(&mut self, worker: &mut dyn Worker) {
        for file in 0..self.sizes.len() {
            let _ = worker.remove(&self.path(file));
        }
        let _ = worker.rmdir(&self.dir);
    }
}
