//! The core's interface to its driver (the trait [`World`]): clocks, random numbers, accounting of work,
//! and three signals (`outgoing`, `silent`, `wake_at`). The core itself does no I/O.
//!
//! Each driver implements the signals in its own way: [`crate::driver`] by tasks over `env`, the tests by
//! direct calls.

use shoal_env::{Instant, WallTime, Work};
use shoal_proto::ServerId;

/// The driver as the core sees it.
pub(crate) trait World {
    /// The monotonic clock: deadlines.
    fn now(&self) -> Instant;
    /// The wall clock: when capabilities expire.
    fn wall(&self) -> WallTime;
    /// A random number: jitter, and where a transfer begins.
    fn random_u64(&self) -> u64;
    /// See [`shoal_env::Env::work`].
    fn work(&self, _work: Work, _count: u64) {}
    /// There is something to do for `server`: requests to send, or a connection to end.
    fn outgoing(&self, server: ServerId);
    /// `server` is silent: its connection, if there is one, is to be left, and the server to be found again.
    fn silent(&self, server: ServerId);
    /// [`Core::tick`](crate::core::Core::tick) is to be called at `at`, or soon after.
    fn wake_at(&self, at: Instant);
}
