//! Limits of this process, and turns to change them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::{Mutex, MutexGuard};

/// Limits are the process's: one test at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Do calls while no file of this process may be longer.
pub async fn with_files_up_to<T>(bytes: u64, calls: impl Future<Output = T>) -> T {
    ignore_the_signal_of_the_limit();
    let old = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(bytes), maximum: old.maximum }).unwrap();
    let done = calls.await;
    setrlimit(Resource::Fsize, old).unwrap();
    done
}

/// Then a write beyond the limit is an error.
fn ignore_the_signal_of_the_limit() {
    const SIGXFSZ: i32 = 25;
    const SIG_IGN: usize = 1;
    unsafe extern "C" {
        fn signal(number: i32, handler: usize) -> usize;
    }
    // SAFETY: it is C's `signal`, with a signal's number and the constant that ignores it.
    unsafe {
        signal(SIGXFSZ, SIG_IGN);
    }
}

/// Descriptors that this process may open beyond those it has: `None` lifts the limit.
pub fn limit_descriptors(more: Option<u64>) {
    let old = getrlimit(Resource::Nofile);
    let current = match more {
        // It may be that no directory can be read now.
        None => old.maximum,
        Some(more) => {
            let used = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            let used: Vec<u64> = used.filter_map(|fd| fd.file_name().to_str()?.parse().ok()).collect();
            Some((0..).find(|free| !used.contains(free)).unwrap_or(0) + more)
        }
    };
    setrlimit(Resource::Nofile, Rlimit { current, maximum: old.maximum }).unwrap();
}
