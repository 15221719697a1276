//! Many seeds, on several threads: each run is a world of its own, so nothing is shared but the next seed.

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
    mut each: impl FnMut(RunReport) -> ControlFlow<()>,
) {
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let (send, next, stop) = (send.clone(), &next, &stop);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    let seed = next.fetch_add(1, Relaxed);
                    if seed >= seeds.end || send.send(guarded(seed, config)).is_err() {
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
