//! Keeps all cores awake during a measurement.
//!
//! The rate of a client that waits for each answer is bound by wake-ups: an idle core takes tens of
//! microseconds to begin. One machine made some 14,000 round trips a second with idle cores, and above
//! 110,000 with awake cores. So one thread for each core does nothing but yield, at the lowest priority: it
//! keeps the core awake, and the measured code runs as soon as it can.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::process::{nice, setpriority_process};

/// The lowest priority there is.
const LOWEST: i32 = 19;

/// Cores are awake as long as this lives.
pub struct Awake {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Keep all cores awake.
    pub fn all() -> Awake {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = |stop: Arc<AtomicBool>| {
            // Of this thread alone, as Linux has it.
            let lowered = setpriority_process(None, LOWEST).is_ok() || nice(LOWEST).is_ok();
            while lowered && !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        };
        let threads = (0..cores).map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || spin(stop))
        });
        Awake { threads: threads.collect(), stop }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_that_were_awake_may_sleep_again() {
        let awake = Awake::all();
        assert!(!awake.threads.is_empty());
        drop(awake);
    }
}
