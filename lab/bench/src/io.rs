//! Transfers of large files, in order and at random. Each worker has a file of its own, or all workers
//! share one file.
//!
//! Each worker moves `bytes` bytes in blocks of `block` bytes. If each worker has its own file, a worker's
//! blocks are its whole file. In one shared file they are either a *segment* (worker 0's blocks, then worker
//! 1's) or *strided* (block i of P workers at i·P + worker, the shape of most checkpoints; 47,008-byte blocks
//! give the papers' unaligned records). Random phases touch every block exactly once, in an order that the
//! seed determines.
//!
//! Reads are warm: the files were written moments before, so caches have as much of them as they can hold. A
//! write with `fsync` counts the sync at its end as part of its time.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::buffer::{ALIGNMENT, Buffer, Random};
use crate::report::Unit;
use crate::target::{FileId, OpenMode, Worker};
use crate::workload::{Actor, Place, Work};

/// The largest block, bytes.
pub const BLOCK_MAX: usize = 256 << 20;
/// The most blocks of one worker.
pub const BLOCKS_MAX: u64 = 1 << 28;

/// The measurements of a large file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoPhase {
    /// Every block in order.
    Write,
    /// Every block in order.
    Read,
    /// Every block once, in random order.
    RandomWrite,
    /// Every block once, in random order.
    RandomRead,
}

/// How workers divide a shared file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SharedLayout {
    /// Each worker one contiguous share.
    #[default]
    Segmented,
    /// Block by block in turn.
    Strided,
}

/// The large-file workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IoOptions {
    /// Bytes each worker writes and reads in each phase; a multiple of `block`.
    pub bytes: u64,
    /// Bytes of one call.
    pub block: usize,
    /// All workers in one file, so divided; `None`: a file each.
    pub shared: Option<SharedLayout>,
    /// End each writing phase with an `fsync`, inside its time.
    pub fsync: bool,
    /// Past the page cache, for targets that have one. `block` must then be a multiple of 4096.
    pub direct: bool,
    /// The phases, in this order. The file is written once before the first of them if that is not `Write`.
    pub phases: Vec<IoPhase>,
    /// Compare every byte read with the written one, inside the time of the reading phases.
    pub verify: bool,
    /// Of the random orders.
    pub seed: u64,
}

impl Default for IoOptions {
    fn default() -> IoOptions {
        IoOptions {
            bytes: 256 << 20,
            block: 1 << 20,
            shared: None,
            fsync: false,
            direct: false,
            phases: vec![IoPhase::Write, IoPhase::Read, IoPhase::RandomWrite, IoPhase::RandomRead],
            verify: false,
            seed: 1,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Open,
    Fill,
    Transfer(IoPhase),
    Close,
    Remove,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Create => "create",
            Step::Open => "open",
            Step::Fill => "fill",
            Step::Transfer(IoPhase::Write) => "write",
            Step::Transfer(IoPhase::Read) => "read",
            Step::Transfer(IoPhase::RandomWrite) => "random write",
            Step::Transfer(IoPhase::RandomRead) => "random read",
            Step::Close => "close",
            Step::Remove => "remove",
        }
    }

    fn unit(self) -> Unit {
        match self {
            Step::Fill | Step::Transfer(_) => Unit::MegabytesPerSecond,
            _ => Unit::OpsPerSecond,
        }
    }
}

impl IoOptions {
    fn steps(&self) -> Vec<Step> {
        let mut steps = vec![Step::Create, Step::Open];
        if self.phases.first() != Some(&IoPhase::Write) {
            steps.push(Step::Fill);
        }
        steps.extend(self.phases.iter().copied().map(Step::Transfer));
        steps.extend([Step::Close, Step::Remove]);
        steps
    }

    pub(crate) fn phases(&self) -> Vec<(String, Unit)> {
        self.steps().into_iter().map(|step| (step.name().to_owned(), step.unit())).collect()
    }

    pub(crate) fn describe(&self) -> String {
        let file = match self.shared {
            None => "a file each",
            Some(SharedLayout::Segmented) => "one shared file, segmented",
            Some(SharedLayout::Strided) => "one shared file, strided",
        };
        let fsync = if self.fsync { ", fsync" } else { ", no fsync" };
        let direct = if self.direct { ", direct" } else { "" };
        format!("{} bytes a worker by {} bytes, {file}{fsync}{direct}", self.bytes, self.block)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        if self.block == 0 || self.block > BLOCK_MAX {
            bail!("block must be between 1 and {BLOCK_MAX} bytes, not {}", self.block);
        }
        if self.bytes == 0 || !self.bytes.is_multiple_of(self.block as u64) {
            bail!("bytes ({}) must be a multiple of block ({})", self.bytes, self.block);
        }
        if self.bytes / self.block as u64 > BLOCKS_MAX {
            bail!("bytes ({}) are more than {BLOCKS_MAX} blocks of {}", self.bytes, self.block);
        }
        if self.direct && !self.block.is_multiple_of(ALIGNMENT) {
            bail!("direct I/O needs a block that is a multiple of {ALIGNMENT} bytes, not {}", self.block);
        }
        if self.phases.is_empty() {
            bail!("phases must name at least one phase");
        }
        Ok(())
    }
}

pub(crate) struct IoActor {
    options: IoOptions,
    steps: Vec<Step>,
    place: Place,
    path: String,
    data: Buffer,
    back: Buffer,
    file: Option<FileId>,
    random: Random,
}

impl IoActor {
    pub(crate) fn new(options: IoOptions, place: &Place) -> IoActor {
        let path = match options.shared {
            None => format!("io.{}.{}", place.tag, place.index),
            Some(_) => format!("io.{}.shared", place.tag),
        };
        IoActor {
            steps: options.steps(),
            path,
            data: Buffer::filled(options.block, place.index as u64),
            back: Buffer::new(options.block),
            file: None,
            random: Random::new(options.seed ^ ((place.index as u64) << 32)),
            place: place.clone(),
            options,
        }
    }

    /// Whether this worker makes and removes the file it uses.
    fn owns_file(&self) -> bool {
        self.options.shared.is_none() || self.place.index == 0
    }

    fn blocks(&self) -> u64 {
        self.options.bytes / self.options.block as u64
    }

    fn offset(&self, block: u64) -> u64 {
        let (index, workers) = (self.place.index as u64, self.place.workers as u64);
        let position = match self.options.shared {
            None => block,
            Some(SharedLayout::Segmented) => index * self.blocks() + block,
            Some(SharedLayout::Strided) => block * workers + index,
        };
        position * self.options.block as u64
    }

    fn opened(&self) -> Result<FileId> {
        self.file.with_context(|| format!("{} is not open", self.path))
    }

    fn transfer(&mut self, phase: IoPhase, worker: &mut dyn Worker) -> Result<Work> {
        let file = self.opened()?;
        let mut order: Vec<u64> = (0..self.blocks()).collect();
        if matches!(phase, IoPhase::RandomWrite | IoPhase::RandomRead) {
            self.random.shuffle(&mut order);
        }
        let writes = matches!(phase, IoPhase::Write | IoPhase::RandomWrite);
        for block in order {
            if writes {
                self.data.stamp(block);
                worker.write(file, self.offset(block), self.data.as_ref())?;
            } else {
                self.read_block(file, block, worker)?;
            }
        }
        if writes && self.options.fsync {
            worker.fsync(file)?;
        }
        Ok(Work { ops: self.blocks(), bytes: self.options.bytes })
    }

    fn read_block(&mut self, file: FileId, block: u64, worker: &mut dyn Worker) -> Result<()> {
        let offset = self.offset(block);
        let n = worker.read(file, offset, self.back.as_mut())?;
        if n != self.options.block {
            bail!("{} gives {n} bytes at {offset}, written were {}", self.path, self.options.block);
        }
        if self.options.verify {
            self.data.stamp(block);
            if self.back.as_ref() != self.data.as_ref() {
                bail!("{} reads back other bytes at {offset} than were written", self.path);
            }
        }
        Ok(())
    }

    fn create(&mut self, worker: &mut dyn Worker) -> Result<Work> {
        if !self.owns_file() {
            return Ok(Work::default());
        }
        let file = worker.create(&self.path)?;
        worker.close(file)?;
        Ok(Work { ops: 1, bytes: 0 })
    }

    fn remove(&mut self, worker: &mut dyn Worker) -> Result<Work> {
        if !self.owns_file() {
            return Ok(Work::default());
        }
        worker.remove(&self.path)?;
        Ok(Work { ops: 1, bytes: 0 })
    }
}

impl Actor for IoActor {
    fn run(&mut self, phase: usize, worker: &mut dyn Worker) -> Result<Work> {
        match self.steps[phase] {
            Step::Create => self.create(worker),
            Step::Open => {
                let mode = OpenMode { write: true, direct: self.options.direct };
                self.file = Some(worker.open(&self.path, mode)?);
                Ok(Work { ops: 1, bytes: 0 })
            }
            Step::Fill => self.transfer(IoPhase::Write, worker),
            Step::Transfer(transfer) => self.transfer(transfer, worker),
            Step::Close => {
                let file = self.opened()?;
                self.file = None;
                worker.close(file)?;
                Ok(Work { ops: 1, bytes: 0 })
            }
            Step::Remove => self.remove(worker),
        }
    }

    fn clean(&mut self, worker: &mut dyn Worker) {
        if let Some(file) = self.file.take() {
            let _ = worker.close(file);
        }
        if self.owns_file() {
            let _ = worker.remove(&self.path);
        }
    }
}
