//! Workers as threads of this process. A barrier keeps them in the same phase.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;

use anyhow::{Context, Result, anyhow};

use crate::clock::now_ns;
use crate::counts::Counts;
use crate::target::{Target, Worker};
use crate::team::{Measured, Meter, Timing};
use crate::workload::{Actor, Place, Work, Workload};

/// The state that all threads of a run share.
struct Step {
    barrier: Barrier,
    /// Set between the two barriers of a phase, read after the second: all see the same.
    failed: AtomicBool,
    phases: usize,
}

/// Runs all phases; returns, phase by phase, the timings of all workers.
pub(super) fn run(
    target: &dyn Target,
    workload: &Workload,
    workers: usize,
    tag: &str,
) -> Result<Vec<Measured>> {
    let step = Step {
        // The conductor too.
        barrier: Barrier::new(workers + 1),
        failed: AtomicBool::new(false),
        phases: workload.phases().len(),
    };
    let (results, counts) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|index| {
                let (step, place) = (&step, Place { index, workers, tag: tag.to_owned() });
                let mut actor = workload.actor(&place);
                scope.spawn(move || begin(step, target, index, actor.as_mut()))
            })
            .collect();
        let counts = conduct(&step, target);
        let join = |thread: ScopedJoinHandle<'_, Result<Vec<Timing>>>| {
            thread.join().unwrap_or_else(|_| Err(anyhow!("a worker panicked")))
        };
        (threads.into_iter().map(join).collect(), counts)
    });
    let timings = transpose(results, step.phases)?;
    Ok(timings.into_iter().zip(counts?).collect())
}

/// Counts between the phases, while all workers wait.
fn conduct(step: &Step, target: &dyn Target) -> Result<Vec<Option<Counts>>> {
    let mut meter = Meter::new(target);
    let (mut counts, mut failure) = (Vec::with_capacity(step.phases), None);
    step.barrier.wait();
    for _ in 0..step.phases {
        if step.failed.load(Ordering::SeqCst) {
            break;
        }
        failure = meter.begin().err().or(failure);
        step.barrier.wait();
        step.barrier.wait();
        match meter.end() {
            Ok(counted) => counts.push(counted),
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) => Err(error.context("cannot count")),
        None => Ok(counts),
    }
}

/// Make the worker on its own thread, where it stays, and begin when all have theirs.
fn begin(step: &Step, target: &dyn Target, index: usize, actor: &mut dyn Actor) -> Result<Vec<Timing>> {
    let make = AssertUnwindSafe(|| target.worker(index));
    let worker = catch_unwind(make).unwrap_or_else(|_| Err(anyhow!("the worker panicked")));
    if worker.is_err() {
        step.failed.store(true, Ordering::SeqCst);
    }
    step.barrier.wait();
    let mut worker = worker.with_context(|| format!("cannot start worker {index}"))?;
    if step.failed.load(Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    play(step, worker.as_mut(), actor)
}

fn play(step: &Step, worker: &mut dyn Worker, actor: &mut dyn Actor) -> Result<Vec<Timing>> {
    let mut timings = Vec::with_capacity(step.phases);
    let mut failure = None;
    for phase in 0..step.phases {
        step.barrier.wait();
        let begun_ns = now_ns();
        let result = run_caught(actor, phase, worker);
        let ended_ns = now_ns();
        let work = result.unwrap_or_else(|error| {
            failure = Some(error);
            step.failed.store(true, Ordering::SeqCst);
            Work::default()
        });
        step.barrier.wait();
        timings.push(Timing { begun_ns, ended_ns, left_ns: now_ns(), work });
        if step.failed.load(Ordering::SeqCst) {
            actor.clean(worker);
            break;
        }
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(timings),
    }
}

/// A panic in one worker must not leave the others at the barrier.
fn run_caught(actor: &mut dyn Actor, phase: usize, worker: &mut dyn Worker) -> Result<Work> {
    let run = AssertUnwindSafe(|| actor.run(phase, worker));
    catch_unwind(run).unwrap_or_else(|_| Err(anyhow!("the worker panicked")))
}

/// Turns each worker's list of phases into each phase's list of workers; the first error is the run's.
fn transpose(results: Vec<Result<Vec<Timing>>>, phases: usize) -> Result<Vec<Vec<Timing>>> {
    let mut by_phase = vec![Vec::with_capacity(results.len()); phases];
    for (index, result) in results.into_iter().enumerate() {
        let timings = result.with_context(|| format!("worker {index} failed"))?;
        for (phase, timing) in timings.into_iter().enumerate() {
            by_phase[phase].push(timing);
        }
    }
    Ok(by_phase)
}
