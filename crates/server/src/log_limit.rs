//! Limits how often a repeated event is logged, and counts the events between two lines.

use shoal_env::Instant;
use std::time::Duration;

/// When it was said last, and how often it happened since.
pub(crate) struct Seldom {
    every: Duration,
    said: Option<Instant>,
    unsaid: u64,
}

impl Seldom {
    /// Said once in so long.
    pub(crate) fn new(every: Duration) -> Seldom {
        Seldom { every, said: None, unsaid: 0 }
    }

    /// It happens: whether it is to be said, with how often it was not.
    pub(crate) fn is_due(&mut self, now: Instant) -> Option<u64> {
        if self.said.is_some_and(|said| now.since(said) < self.every) {
            self.unsaid = self.unsaid.saturating_add(1);
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_said_seldom_and_how_often_it_was_not() {
        let at = |ms: u64| Instant(ms * 1_000_000);
        let mut seldom = Seldom::new(Duration::from_secs(10));
        assert_eq!(seldom.is_due(at(5)), Some(0));
        assert_eq!((1..100).filter_map(|n| seldom.is_due(at(5 + n))).count(), 0);
        assert_eq!(seldom.is_due(at(10_005)), Some(99));
        assert_eq!(seldom.is_due(at(10_006)), None);
        assert_eq!(seldom.is_due(at(30_000)), Some(1));
    }
}
