//! Moments of a run. The simulated clock stands still while a task runs, so many events have the same time.
//! But the checks compare moments: an fsync covers a write that returned before it was called, and no write
//! that returned after it. So each event gets a moment of its own, in nanoseconds; while the clock stands,
//! it is a little later than the clock.

use std::cell::Cell;

/// See the module's page.
#[derive(Default)]
pub(crate) struct Moments(Cell<u64>);

impl Moments {
    /// The moment of an event that happens at this time of the clock: later than all moments before it.
    pub(crate) fn next(&self, clock: u64) -> u64 {
        self.0.set(clock.max(self.0.get() + 1));
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_instant_have_moments_in_their_order() {
        let moments = Moments::default();
        assert_eq!([7, 7, 7, 8, 20].map(|clock| moments.next(clock)), [7, 8, 9, 10, 20]);
    }
}
