//! Whole small files: the calls of a program that makes many small files.
//!
//! Each worker has a directory of its own. It makes N files with M bytes each and leaves them closed; then
//! it requests the attributes of each file by name; opens, reads and closes each file; and removes each
//! file. In the paper's phases (`small`) the files stay open and are written later. Here an interface may
//! carry a whole file in one message.
//!
//! With 0 bytes this is the measurement of `mdtest -u -F`: create, stat, remove; nothing is read.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::buffer::Buffer;
use crate::report::Unit;
use crate::small::check_files;
use crate::target::Worker;
use crate::workload::{Actor, Place, Work};

/// The workload of whole small files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WholeOptions {
    /// Files of each worker.
    pub files: u64,
    /// Bytes of each.
    pub bytes: usize,
}

impl Default for WholeOptions {
    fn default() -> WholeOptions {
        WholeOptions { files: 2000, bytes: 8192 }
    }
}

/// A phase of whole files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Mkdir,
    Create,
    Stat,
    Read,
    Remove,
    Rmdir,
}

/// Names of the measured phases, for look-ups.
pub mod names {
    /// A file is made, written and closed.
    pub const CREATE: &str = "create+write+close";
    /// The same where there is nothing to write.
    pub const CREATE_EMPTY: &str = "create+close";
    /// Attributes by name.
    pub const STAT: &str = "stat";
    /// A file is opened, read and closed.
    pub const READ: &str = "open+read+close";
    /// A file is removed.
    pub const REMOVE: &str = "remove";
}

impl WholeOptions {
    fn order(&self) -> Vec<Phase> {
        let all = [Phase::Mkdir, Phase::Create, Phase::Stat, Phase::Read, Phase::Remove, Phase::Rmdir];
        all.into_iter().filter(|phase| *phase != Phase::Read || self.bytes > 0).collect()
    }

    fn name(&self, phase: Phase) -> &'static str {
        match phase {
            Phase::Mkdir => "mkdir",
            Phase::Create if self.bytes == 0 => names::CREATE_EMPTY,
            Phase::Create => names::CREATE,
            Phase::Stat => names::STAT,
            Phase::Read => names::READ,
            Phase::Remove => names::REMOVE,
            Phase::Rmdir => "rmdir",
        }
    }

    pub(crate) fn phases(&self) -> Vec<(String, Unit)> {
        self.order().into_iter().map(|phase| (self.name(phase).to_owned(), Unit::OpsPerSecond)).collect()
    }

    pub(crate) fn describe(&self) -> String {
        format!("{} whole files of {} bytes a worker", self.files, self.bytes)
    }

    pub(crate) fn validate(&self) -> Result<()> {
        check_files(self.files, self.bytes)
    }
}

pub(crate) struct WholeActor {
    options: WholeOptions,
    order: Vec<Phase>,
    dir: String,
    data: Buffer,
    back: Buffer,
}

impl WholeActor {
    pub(crate) fn new(options: WholeOptions, place: &Place) -> WholeActor {
        WholeActor {
            order: options.order(),
            dir: format!("whole.{}.{}", place.tag, place.index),
            data: Buffer::filled(options.bytes, place.index as u64),
            // One byte more, to see a file that is longer than it should be.
            back: Buffer::new(options.bytes + 1),
            options,
        }
    }

    fn paths(&self) -> impl Iterator<Item = String> + use<> {
        let dir = self.dir.clone();
        (0..self.options.files).map(move |file| format!("{dir}/f{file:07}"))
    }

    fn create(&mut self, worker: &mut dyn Worker) -> Result<()> {
        for (index, path) in self.paths().enumerate() {
            self.data.stamp(index as u64);
            worker.put(&path, self.data.as_ref())?;
        }
        Ok(())
    }

    fn stat(&mut self, worker: &mut dyn Worker) -> Result<()> {
        for path in self.paths() {
            let size = worker.stat(&path)?.size;
            if size != self.options.bytes as u64 {
                bail!("{path} has {size} bytes, written were {}", self.options.bytes);
            }
        }
        Ok(())
    }

    fn read(&mut self, worker: &mut dyn Worker) -> Result<()> {
        for (index, path) in self.paths().enumerate() {
            let n = worker.get(&path, self.back.as_mut())?;
            if n != self.options.bytes {
                bail!("{path} read as {n} bytes, written were {}", self.options.bytes);
            }
            self.data.stamp(index as u64);
            let stamp = n.min(8);
            if self.back.as_ref()[..stamp] != self.data.as_ref()[..stamp] {
                bail!("{path} reads back other bytes than were written");
            }
        }
        Ok(())
    }
}

impl Actor for WholeActor {
    fn run(&mut self, phase: usize, worker: &mut dyn Worker) -> Result<Work> {
        let files = self.options.files;
        let moved = files * self.options.bytes as u64;
        let one = Work { ops: 1, bytes: 0 };
        match self.order[phase] {
            Phase::Mkdir => worker.mkdir(&self.dir).map(|()| one),
            Phase::Create => self.create(worker).map(|()| Work { ops: files, bytes: moved }),
            Phase::Stat => self.stat(worker).map(|()| Work { ops: files, bytes: 0 }),
            Phase::Read => self.read(worker).map(|()| Work { ops: files, bytes: moved }),
            Phase::Remove => {
                self.paths().try_for_each(|path| worker.remove(&path)).map(|()| Work { ops: files, bytes: 0 })
            }
            Phase::Rmdir => worker.rmdir(&self.dir).map(|()| one),
        }
    }

    fn clean(&mut self, worker: &mut dyn Worker) {
        for path in self.paths() {
            let _ = worker.remove(&path);
        }
        let _ = worker.rmdir(&self.dir);
    }
}
