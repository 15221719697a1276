//! A seat: one process of a workload, with its barriers and its clocks.
//!
//! The small-file paper's Algorithm 1 (its microbenchmark): all meet; each takes t1, runs its loop, takes t2;
//! the phase took the *largest* t2 - t1. Algorithm 2 (mdtest): all meet again before t2 is taken, and only
//! the first process's time counts.
//!
//! ```text
//!   for each phase:  meet ─ t1 ─ the workload's loop ─ t2 ─ meet ─ t3
//! ```
//!
//! **Every process comes to every barrier**, whatever has failed: a process that could not connect, or whose
//! phase failed, does nothing more but meet. So no process waits for ever, and the first failure is reported.

use crate::setting::Setting;
use crate::workload::{PhaseWork, Process, Workload};
use futures_util::future::LocalBoxFuture;
use shoal_env::Env;
use shoal_sim::machine;
use shoal_vfs::Vfs;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Wait until all processes have come here; the moment at which they continue, nanoseconds.
pub type Meet = Rc<dyn Fn() -> LocalBoxFuture<'static, u64>>;

/// The way that a program's calls take to their client.
#[derive(Clone)]
pub enum Calls {
    /// It is the program's own.
    Direct,
    /// The machine may forward them to another computer, as a Blue Gene does.
    Forwarded(Rc<machine::Seat>),
}

/// One process.
pub struct Seat<V> {
    /// Its world.
    pub env: Env,
    /// Its file system, or why it has none.
    pub vfs: Result<V, String>,
    /// Which process, from 0.
    pub index: u32,
    /// Of how many.
    pub of: u32,
    /// Its barrier.
    pub meet: Meet,
    /// Its calls.
    pub calls: Calls,
}

/// The work of all processes of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The workload.
    pub workload: Workload,
    /// The setting of the run.
    pub setting: Setting,
    /// Until when it must have ended, by the real clock.
    pub until: Instant,
}

impl Plan {
    /// A run that begins now and has so long.
    pub fn new(workload: &Workload, setting: &Setting, patience: Duration) -> Plan {
        Plan { workload: workload.clone(), setting: setting.clone(), until: Instant::now() + patience }
    }
}

/// One process's clock around one phase, nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// After the barrier before the loop.
    pub begun_ns: u64,
    /// After the loop.
    pub ended_ns: u64,
    /// After the barrier that follows the loop.
    pub left_ns: u64,
    /// The result of the loop.
    pub work: PhaseWork,
}

/// The result of one process.
#[derive(Clone, Debug, Default)]
pub struct Took {
    /// Phase by phase.
    pub timings: Vec<Timing>,
    /// Why it did not do all.
    pub failed: Option<String>,
}

/// Run all phases of the plan's workload.
pub async fn take<V: Vfs>(seat: Seat<V>, plan: &Plan) -> Took {
    let Seat { env, vfs, index, of, meet, calls } = seat;
    let (mut process, mut failed) = match vfs {
        Ok(vfs) => (Some(Process::new(env.clone(), vfs, calls, plan, index, of)), None),
        Err(words) => (None, Some(words)),
    };
    let mut timings = Vec::new();
    for (at, phase) in plan.workload.phases().iter().enumerate() {
        let begun_ns = meet().await;
        let done = match &mut process {
            Some(process) if failed.is_none() => process.run(at).await,
            _ => Ok(PhaseWork::default()),
        };
        let ended_ns = env.now().0;
        let left_ns = meet().await;
        let work = done.unwrap_or_else(|words| {
            failed = Some(format!("process {index}, phase {phase}: {words}"));
            PhaseWork::default()
        });
        timings.push(Timing { begun_ns, ended_ns, left_ns, work });
        forget(&env, plan).await;
    }
    Took { timings, failed }
}

/// Phases of the papers' length outlast the clients' caches; short ones do not. So no entry of a phase is
/// valid in the next.
async fn forget(env: &Env, plan: &Plan) {
    let believed = Duration::from_millis(plan.setting.client_cache_ms);
    if !believed.is_zero() {
        env.sleep(believed).await;
    }
}

/// All processes of one phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phase {
    /// Operations of all.
    pub ops: u64,
    /// Bytes moved by all.
    pub bytes: u64,
    /// Algorithm 1: the largest time that any process needed.
    pub longest_ns: u64,
    /// Algorithm 2: the first process's time up to the end of the second barrier.
    pub first_ns: u64,
    /// From the first beginning to the last end.
    pub wall_ns: u64,
    /// Operations in each second, of all, where they are reported.
    pub per_second: Vec<u64>,
}

impl Phase {
    /// Of all processes' clocks.
    pub fn of(times: &[&Timing]) -> Phase {
        let begun = times.iter().map(|t| t.begun_ns).min().unwrap_or(0);
        let ended = times.iter().map(|t| t.ended_ns).max().unwrap_or(0);
        let seconds = times.iter().map(|t| t.work.per_second.len()).max().unwrap_or(0);
        let in_second = |at: usize| times.iter().filter_map(|t| t.work.per_second.get(at)).sum();
        Phase {
            ops: times.iter().map(|t| t.work.ops).sum(),
            bytes: times.iter().map(|t| t.work.bytes).sum(),
            longest_ns: times.iter().map(|t| t.ended_ns.saturating_sub(t.begun_ns)).max().unwrap_or(0),
            first_ns: times.first().map_or(0, |t| t.left_ns.saturating_sub(t.begun_ns)),
            wall_ns: ended.saturating_sub(begun),
            per_second: (0..seconds).map(in_second).collect(),
        }
    }
}

/// The phases of all processes together, by name.
///
/// # Errors
/// The first failure of a process.
pub fn together(workload: &Workload, all: &[Took]) -> Result<Vec<(String, Phase)>, String> {
    if let Some(words) = all.iter().find_map(|took| took.failed.clone()) {
        return Err(words);
    }
    let phase = |(at, name): (usize, &String)| {
        let times: Vec<&Timing> = all.iter().filter_map(|took| took.timings.get(at)).collect();
        (name.clone(), Phase::of(&times))
    };
    Ok(workload.phases().iter().enumerate().map(phase).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clocks_of_a_phase_differ_as_the_algorithms_do() {
        let work = |per_second: &[u64]| PhaseWork { ops: 10, bytes: 80, per_second: per_second.to_vec() };
        let first = Timing { begun_ns: 150, ended_ns: 250, left_ns: 420, work: work(&[7, 3]) };
        let second = Timing { begun_ns: 100, ended_ns: 400, left_ns: 430, work: work(&[10]) };
        let phase = Phase::of(&[&first, &second]);
        assert_eq!((phase.ops, phase.bytes), (20, 160));
        assert_eq!(phase.longest_ns, 300, "algorithm 1: the largest time of any process");
        assert_eq!(phase.first_ns, 270, "algorithm 2: the first process's time, the second barrier within");
        assert_eq!(phase.wall_ns, 300, "from the first beginning to the last end");
        assert_eq!(phase.per_second, [17, 3]);
    }
}
