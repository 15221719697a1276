//! A bounded moment of polling before the thread sleeps.
//!
//! A lone synchronous client is bound by sleeping and waking, 14 k round trips a second from idle cores against more than
//! 110 k awake. While something happened in the last `span`, a task yields over and over: the runtime then asks its reactor
//! with a zero timeout instead of going to sleep. It pays only if both sides do it and each has a core, so it is off until
//! asked for.

use crate::local::Notify;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// The state of one environment's polling.
#[derive(Default)]
pub(super) struct Polling {
    span_ns: Cell<u64>,
    /// Grows with everything that happens on a stream, file or pool.
    events: Cell<u64>,
    running: Cell<bool>,
    asleep: Cell<bool>,
    happened: Notify,
}

impl Polling {
    /// Something happened: keep awake. Cheap: called for each read and write.
    pub(super) fn note(&self) {
        self.events.set(self.events.get().wrapping_add(1));
        if self.asleep.get() {
            self.asleep.set(false);
            self.happened.wake_all();
        }
    }

    /// Poll for `span` after each event from now on; zero ends it.
    pub(super) fn set_span(self: &Rc<Self>, span: Duration) {
        self.span_ns.set(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        self.note();
        if !span.is_zero() && !self.running.replace(true) {
            tokio::task::spawn_local(poll(self.clone()));
        }
    }
}

async fn poll(polling: Rc<Polling>) {
    let mut seen = polling.events.get();
    let mut awake_until = super::now();
    while polling.span_ns.get() > 0 {
        if polling.events.get() != seen {
            seen = polling.events.get();
            awake_until = super::now() + Duration::from_nanos(polling.span_ns.get());
        }
        if super::now() < awake_until {
            tokio::task::yield_now().await;
        } else {
            let wait = polling.happened.wait();
            polling.asleep.set(true);
            wait.await;
        }
    }
    polling.running.set(false);
}
