//! Runs many seeds on several threads. Each run is a simulation of its own, so the threads share only the
//! next seed.

use crate::run::{RunConfig, RunReport, run_with};
use std::any::Any;
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;

/// Run all seeds on so many threads; `each` sees the reports as they come (in any order), and may end it. A
/// run that panics is a violation too.
pub fn soak(
    seeds: Range<u64>,
    jobs: usize,
    config: &RunConfig,
    each: impl FnMut(RunReport) -> ControlFlow<()>,
) {
    in_threads(seeds, jobs, |seed| guarded(seed, config), each);
}

/// The same of given runs: each report comes with the run's place among them, in any order.
pub fn repeat(
    runs: &[(u64, RunConfig)],
    jobs: usize,
    each: impl FnMut((usize, RunReport)) -> ControlFlow<()>,
) {
    let run = |place: u64| {
        let (seed, config) = &runs[place as usize];
        (place as usize, guarded(*seed, config))
    };
    in_threads(0..runs.len() as u64, jobs, run, each);
}

fn in_threads<T: Send>(
    numbers: Range<u64>,
    jobs: usize,
    run: impl Fn(u64) -> T + Sync,
    mut each: impl FnMut(T) -> ControlFlow<()>,
) {
    let (next, stop) = (AtomicU64::new(numbers.start), AtomicBool::new(false));
    let run = &run;
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (send, next, stop) = (send.clone(), &next, &stop);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= numbers.end || send.send(run(number)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(send);
        for report in receive {
            if each(report).is_break() {
                stop.store(true, Relaxed);
            }
        }
    });
}

/// A run whose panic is reported as a violation.
pub fn guarded(seed: u64, config: &RunConfig) -> RunReport {
    catch_unwind(AssertUnwindSafe(|| run_with(seed, config))).unwrap_or_else(|panic| {
        let violations = vec![format!("something panicked: {}", words(&*panic))];
        RunReport { seed, violations, ..RunReport::default() }
    })
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}
