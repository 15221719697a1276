//! Several workers that begin and end each phase together, and the clocks that measure their phases.
//!
//! The paper's Algorithm 1 (its microbenchmark): all meet at a barrier; each takes t1, runs its loop, takes
//! t2; the phase took the *largest* t2 - t1. Algorithm 2 (mdtest): all meet again before t2 is taken, and
//! only the first worker's time counts. If the first worker leaves the first barrier late, the phase looks
//! shorter than it was. Both times are kept, and a third time: the wall-clock time from the first t1 to the
//! last t2. (If there are more workers than processors, Algorithm 1 too can give a time that is too short,
//! because a worker may end before another begins.)
//!
//! A worker that fails still comes to every barrier of the phase, so no worker waits for ever; then all stop,
//! clean up, and the run is an error.

pub mod process;
mod thread;

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::counts::{Counts, Edge};
use crate::report::{PhaseResult, RunResult};
use crate::target::Target;
use crate::team::process::WorkerCommand;
use crate::workload::{Work, Workload};

/// Descriptors a process needs besides those of the workload.
const OPEN_FILES_SPARE: u64 = 256;

/// The kind of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Concurrency {
    /// A thread of this process.
    #[default]
    Threads,
    /// A process of its own, started with this command. The kernel's work for several processes differs from
    /// that for threads (they share no table of descriptors), so a mount is best measured this way.
    Processes(WorkerCommand),
}

/// The workers of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    /// How many workers.
    pub workers: usize,
    /// The kind of each of them.
    pub concurrency: Concurrency,
}

impl Default for Team {
    fn default() -> Team {
        Team { workers: 1, concurrency: Concurrency::Threads }
    }
}

/// One worker's clock around one phase, nanoseconds of this machine's monotonic clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Timing {
    /// After the barrier before the loop.
    pub(crate) begun_ns: u64,
    /// After the loop.
    pub(crate) ended_ns: u64,
    /// After the barrier that follows the loop.
    pub(crate) left_ns: u64,
    /// The result of the loop.
    pub(crate) work: Work,
}

impl Team {
    /// Runs the workload once over a target.
    pub fn run(&self, target: &dyn Target, workload: &Workload) -> Result<RunResult> {
        workload.validate(self.workers)?;
        let tag = run_tag();
        let timings = match &self.concurrency {
            Concurrency::Threads => {
                need_open_files(workload.open_files() * self.workers as u64)?;
                thread::run(target, workload, self.workers, &tag)?
            }
            Concurrency::Processes(command) => process::run(command, target, workload, self.workers, &tag)?,
        };
        let phases = workload.phases().into_iter().zip(timings);
        let phases = phases.map(|((name, unit), (times, counts))| sum(name, unit, &times, counts));
        Ok(RunResult { phases: phases.collect() })
    }

    /// `4 threads`, `1 process`.
    pub fn describe(&self) -> String {
        let what = match self.concurrency {
            Concurrency::Threads => ["thread", "threads"],
            Concurrency::Processes(_) => ["process", "processes"],
        };
        format!("{} {}", self.workers, what[usize::from(self.workers != 1)])
    }
}

/// A word no other run on this machine has at this time.
fn run_tag() -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn need_open_files(files: u64) -> Result<()> {
    let wanted = files + OPEN_FILES_SPARE;
    let allowed = shoal_env::raise_open_files(wanted);
    if allowed < wanted {
        bail!(
            "this run keeps {files} files open in one process, which may open only {allowed}: \
             use fewer files, raise the limit (ulimit -n), or run the workers as processes"
        );
    }
    Ok(())
}

/// The result of a phase, worker by worker, and its cost.
type Measured = (Vec<Timing>, Option<Counts>);

/// The counts of a target, phase by phase.
struct Meter<'a> {
    target: &'a dyn Target,
    before: Option<Counts>,
}

impl<'a> Meter<'a> {
    fn new(target: &'a dyn Target) -> Meter<'a> {
        Meter { target, before: None }
    }

    /// A phase comes next.
    fn begin(&mut self) -> Result<()> {
        self.before = self.target.counts(Edge::Before)?;
        Ok(())
    }

    /// It has ended: its cost.
    fn end(&mut self) -> Result<Option<Counts>> {
        let Some(before) = self.before.take() else { return Ok(None) };
        Ok(self.target.counts(Edge::Behind)?.map(|behind| behind.since(&before)))
    }
}

fn sum(phase: String, unit: crate::report::Unit, times: &[Timing], counts: Option<Counts>) -> PhaseResult {
    let begun = times.iter().map(|t| t.begun_ns).min().unwrap_or(0);
    let ended = times.iter().map(|t| t.ended_ns).max().unwrap_or(0);
    PhaseResult {
        phase,
        unit,
        ops: times.iter().map(|t| t.work.ops).sum(),
        bytes: times.iter().map(|t| t.work.bytes).sum(),
        longest_ns: times.iter().map(|t| t.ended_ns.saturating_sub(t.begun_ns)).max().unwrap_or(0),
        rank0_ns: times.first().map_or(0, |t| t.left_ns.saturating_sub(t.begun_ns)),
        wall_ns: ended.saturating_sub(begun),
        counts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Unit;

    #[test]
    fn the_three_clocks_of_a_phase_differ_as_the_algorithms_do() {
        let work = Work { ops: 10, bytes: 80 };
        let first = Timing { begun_ns: 150, ended_ns: 250, left_ns: 420, work };
        let second = Timing { begun_ns: 100, ended_ns: 400, left_ns: 430, work };
        let phase = sum("create".into(), Unit::OpsPerSecond, &[first, second], None);
        assert_eq!((phase.ops, phase.bytes), (20, 160));
        assert_eq!(phase.longest_ns, 300, "algorithm 1: the largest time of any worker");
        assert_eq!(phase.rank0_ns, 270, "algorithm 2: the first worker's time, the second barrier within");
        assert_eq!(phase.wall_ns, 300, "from the first beginning to the last end");
    }
}
