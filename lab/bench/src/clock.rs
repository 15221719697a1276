//! The machine's monotonic clock as plain nanoseconds, so that the times of several processes can be
//! compared.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since some moment that is the same for all processes of this machine.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Nanoseconds as seconds, never zero, so that a rate is always a number.
pub(crate) fn seconds(ns: u64) -> f64 {
    ns.max(1) as f64 / 1e9
}
