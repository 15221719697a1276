//! The limit of the lines of one kind: a burst at once, then a fixed number in a span of time. Lines above
//! the limit are counted and not written.
//!
//! The state is one time: when a whole burst will be available again. Each line moves this time forward by
//! the span of one line. A line that would move it further ahead of the clock than the span of a burst is not
//! written.

use shoal_env::Instant;
use std::time::Duration;

/// The limit of one kind.
pub(super) struct Rate {
    burst: u32,
    every: Duration,
    whole_at: Instant,
    left_out: u64,
}

impl Rate {
    /// `burst` lines at once, and one more `every` so long.
    pub(super) fn new(burst: u32, every: Duration) -> Rate {
        Rate { burst, every, whole_at: Instant(0), left_out: 0 }
    }

    /// Whether a line may be written now; if not, it is counted.
    pub(super) fn takes(&mut self, now: Instant) -> bool {
        let is_taken = self.takes_uncounted(now);
        self.left_out = self.left_out.saturating_add(u64::from(!is_taken));
        is_taken
    }

    fn takes_uncounted(&mut self, now: Instant) -> bool {
        let next = self.whole_at.max(now) + self.every;
        let is_taken = next <= now + self.every * self.burst;
        if is_taken {
            self.whole_at = next;
        }
        is_taken
    }

    /// Whether lines were left out that no line says yet.
    pub(super) fn has_left_out(&self) -> bool {
        self.left_out > 0
    }

    /// How many lines were left out, if a line may say so now (at the end it always may).
    pub(super) fn due_count(&mut self, now: Instant, is_end: bool) -> Option<u64> {
        let is_due = self.left_out > 0 && (is_end || self.takes_uncounted(now));
        is_due.then(|| std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_written_then_one_in_a_while_and_the_others_are_counted_and_reported_once() {
        let at = |ms: u64| Instant(ms * 1_000_000);
        let mut rate = Rate::new(3, Duration::from_secs(1));
        assert_eq!((0..1_000).filter(|_| rate.takes(at(5_000))).count(), 3);
        assert!(rate.has_left_out());
        assert_eq!(rate.due_count(at(5_999), false), None);
        assert_eq!(rate.due_count(at(6_000), false), Some(997));
        assert!(!rate.has_left_out());
        // The report took the place of that second; the next one has its own.
        assert!(!rate.takes(at(6_500)) && rate.takes(at(7_000)));
        assert_eq!(rate.due_count(at(7_001), true), Some(1));
        assert_eq!(rate.due_count(at(7_001), true), None);
        // After a rest the burst is whole again, and no larger.
        assert_eq!((0..1_000).filter(|_| rate.takes(at(90_000))).count(), 3);
    }
}
