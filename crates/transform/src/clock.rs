//! The hybrid clock: stamps never go back, whatever the wall clock does.
//!
//! A stamp is the larger of the wall clock in nanoseconds and one more than the last stamp that was drawn
//! or found. So a writer that has found the entries of another writer makes entries with newer stamps, even
//! if its machine's clock is slow.

use shoal_env::Env;
use std::cell::Cell;

/// A hybrid clock. See the module.
#[derive(Debug, Default)]
pub(crate) struct Clock(Cell<u64>);

impl Clock {
    /// A stamp newer than all drawn and found so far.
    pub(crate) fn draw(&self, env: &Env) -> u64 {
        let wall = u64::try_from(env.wall().0).unwrap_or(0);
        let stamp = wall.max(self.0.get().saturating_add(1));
        self.0.set(stamp);
        stamp
    }

    /// Another's stamp was found.
    pub(crate) fn found(&self, stamp: u64) {
        self.0.set(self.0.get().max(stamp));
    }
}
