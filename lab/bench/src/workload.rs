//! A workload is a list of phases. Every worker runs each phase, and all workers wait for each other between
//! two phases.
//!
//! The work of one worker is an *actor*. It is made anew from the workload's description, the worker's index
//! and the run's tag, in this process or in another. So only the description has to be sent.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::epochs::{EpochsActor, EpochsOptions};
use crate::io::{IoActor, IoOptions};
use crate::many::{BATCHED, ManyActor, ManyOptions};
use crate::report::Unit;
use crate::small::{SmallActor, SmallOptions};
use crate::target::Worker;
use crate::whole::{WholeActor, WholeOptions};

/// The most workers a run takes.
pub const WORKERS_MAX: usize = 1024;

/// The workload to run, as data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Many small files.
    Small(SmallOptions),
    /// Large files.
    Io(IoOptions),
    /// Whole small files.
    Whole(WholeOptions),
    /// Small files one by one and in batches.
    Many(ManyOptions),
    /// The same files repeatedly.
    Epochs(EpochsOptions),
}

impl Workload {
    /// One word for tables: `small`, `io`, `whole`, `many` or `epochs`.
    pub fn name(&self) -> &'static str {
        match self {
            Workload::Small(_) => "small",
            Workload::Io(_) => "io",
            Workload::Whole(_) => "whole",
            Workload::Many(_) => "many",
            Workload::Epochs(_) => "epochs",
        }
    }

    /// One line that names the workload.
    pub fn describe(&self) -> String {
        match self {
            Workload::Small(options) => options.describe(),
            Workload::Io(options) => options.describe(),
            Workload::Whole(options) => options.describe(),
            Workload::Many(options) => options.describe(),
            Workload::Epochs(options) => options.describe(),
        }
    }

    /// The phases in their order, each with its best unit.
    pub fn phases(&self) -> Vec<(String, Unit)> {
        match self {
            Workload::Small(options) => options.phases(),
            Workload::Io(options) => options.phases(),
            Workload::Whole(options) => options.phases(),
            Workload::Many(options) => options.phases(),
            Workload::Epochs(options) => options.phases(),
        }
    }

    /// Bytes of data that one operation moves.
    pub fn bytes_each(&self) -> usize {
        match self {
            Workload::Small(options) => options.bytes,
            Workload::Io(options) => options.block,
            Workload::Whole(options) => options.bytes,
            Workload::Many(options) => options.bytes,
            Workload::Epochs(options) => options.bytes_max,
        }
    }

    /// Operations that a phase asks for at once.
    pub(crate) fn batch(&self, phase: &str) -> usize {
        match self {
            Workload::Many(options) if phase.ends_with(BATCHED) => options.batch,
            _ => 1,
        }
    }

    /// Descriptors one worker needs.
    pub(crate) fn open_files(&self) -> u64 {
        match self {
            Workload::Small(options) => options.files,
            Workload::Many(options) => options.files,
            Workload::Io(_) | Workload::Whole(_) | Workload::Epochs(_) => 2,
        }
    }

    /// Refuses settings that cannot be run, naming the option.
    pub fn validate(&self, workers: usize) -> Result<()> {
        if workers == 0 || workers > WORKERS_MAX {
            bail!("workers must be between 1 and {WORKERS_MAX}, not {workers}");
        }
        match self {
            Workload::Small(options) => options.validate(),
            Workload::Io(options) => options.validate(),
            Workload::Whole(options) => options.validate(),
            Workload::Many(options) => options.validate(),
            Workload::Epochs(options) => options.validate(),
        }
    }

    pub(crate) fn actor(&self, place: &Place) -> Box<dyn Actor> {
        match self {
            Workload::Small(options) => Box::new(SmallActor::new(options.clone(), place)),
            Workload::Io(options) => Box::new(IoActor::new(options.clone(), place)),
            Workload::Whole(options) => Box::new(WholeActor::new(options.clone(), place)),
            Workload::Many(options) => Box::new(ManyActor::new(options.clone(), place)),
            Workload::Epochs(options) => Box::new(EpochsActor::new(options.clone(), place)),
        }
    }
}

/// A worker's place in its run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// From 0.
    pub(crate) index: usize,
    /// How many there are.
    pub(crate) workers: usize,
    /// The same for all workers of a run and for no other run at the same time on this machine.
    pub(crate) tag: String,
}

/// The result of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) ops: u64,
    pub(crate) bytes: u64,
}

/// The work of one worker.
pub(crate) trait Actor: Send {
    /// Runs a phase, from 0. An error names the wrong behaviour of the file system.
    fn run(&mut self, phase: usize, worker: &mut dyn Worker) -> Result<Work>;

    /// After a failed phase: removes the files of the phases so far, as far as possible.
    fn clean(&mut self, worker: &mut dyn Worker);
}
