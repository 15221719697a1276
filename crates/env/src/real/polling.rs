//! Bounded polling before the thread sleeps.
//!
//! The time to sleep and to wake limits a single synchronous client: it makes 14,000 round trips a second on
//! cores that sleep in between, and more than 110,000 on cores that stay awake. If an event happened in the
//! last `span`, the thread polls its sockets instead of going to sleep. That pays only if both sides do it
//! and each has a core, so it is off by default.

use std::cell::Cell;
use std::time::Duration;

/// The state of one environment's polling.
#[derive(Default)]
pub(super) struct Polling {
    span_ns: Cell<u64>,
    /// An event happened on a stream, file or pool since the last check.
    happened: Cell<bool>,
    awake_until_ns: Cell<u64>,
}

impl Polling {
    /// An event happened: stay awake. Cheap: called for each read and write.
    pub(super) fn note(&self) {
        self.happened.set(true);
    }

    /// Poll for `span` after each event from now on; zero ends it.
    pub(super) fn set_span(&self, span: Duration) {
        self.span_ns.set(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        self.note();
    }

    /// Nothing is ready: whether to poll again at once.
    pub(super) fn stays_awake(&self) -> bool {
        let span_ns = self.span_ns.get();
        if span_ns == 0 {
            return false;
        }
        let now = super::now().0;
        if self.happened.take() {
            self.awake_until_ns.set(now.saturating_add(span_ns));
        }
        now < self.awake_until_ns.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays_awake_for_a_span_after_an_event_only_when_polling_is_on() {
        let polling = Polling::default();
        polling.note();
        assert!(!polling.stays_awake(), "nobody asked for it");
        polling.set_span(Duration::from_secs(3600));
        assert!(polling.stays_awake() && polling.stays_awake());
        polling.set_span(Duration::from_nanos(1));
        polling.awake_until_ns.set(0);
        polling.happened.set(false);
        assert!(!polling.stays_awake(), "nothing happened");
    }
}
