//! The core's timers: the waiting tasks and their times.
//!
//! Almost every wait here is a deadline that never comes: thousands of timers begin and end between two
//! that fire. So a timer is an entry of one ordered map, and the driver holds one alarm for the earliest.
//! Removal of an entry does not change the alarm: when it fires early, it finds nothing to do and is set
//! anew.

use shoal_env::Instant;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

type Key = (Instant, u64);

/// See the module's page.
#[derive(Default)]
pub(crate) struct Timers {
    waiting: RefCell<BTreeMap<Key, Waker>>,
    next_id: Cell<u64>,
    armed: Cell<Option<Instant>>,
}

impl Timers {
    /// Wait until `at`. `arm` receives the moment if the alarm is to ring earlier than it is set to.
    pub(crate) fn sleep_until<'a>(&'a self, at: Instant, arm: &'a dyn Fn(Instant)) -> Sleep<'a> {
        Sleep { timers: self, arm, at, key: None }
    }

    /// The alarm rang: wake the tasks whose time has come. Returns when it is to ring next.
    pub(crate) fn tick(&self, now: Instant) -> Option<Instant> {
        let late = {
            let mut waiting = self.waiting.borrow_mut();
            let later = waiting.split_off(&(Instant(now.0.saturating_add(1)), 0));
            std::mem::replace(&mut *waiting, later)
        };
        for waker in late.into_values() {
            waker.wake();
        }
        let next = self.waiting.borrow().first_key_value().map(|((at, _), _)| *at);
        self.armed.set(next);
        next
    }
}

/// See [`Timers::sleep_until`].
pub(crate) struct Sleep<'a> {
    timers: &'a Timers,
    arm: &'a dyn Fn(Instant),
    at: Instant,
    key: Option<Key>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let timers = self.timers;
        let mut waiting = timers.waiting.borrow_mut();
        if let Some(key) = self.key {
            return match waiting.get_mut(&key) {
                Some(waker) => {
                    waker.clone_from(cx.waker());
                    Poll::Pending
                }
                None => Poll::Ready(()),
            };
        }
        let key = (self.at, timers.next_id.get());
        timers.next_id.set(key.1 + 1);
        waiting.insert(key, cx.waker().clone());
        drop(waiting);
        self.key = Some(key);
        if timers.armed.get().is_none_or(|armed| self.at < armed) {
            timers.armed.set(Some(self.at));
            (self.arm)(self.at);
        }
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.timers.waiting.borrow_mut().remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn the_alarm_is_set_only_to_ring_earlier_and_rings_for_those_whose_time_has_come() {
        let timers = Timers::default();
        let set = RefCell::new(Vec::new());
        let arm = |at: Instant| set.borrow_mut().push(at.0);
        let mut late = timers.sleep_until(Instant(30), &arm);
        let mut early = timers.sleep_until(Instant(10), &arm);
        let mut middle = timers.sleep_until(Instant(20), &arm);
        for sleep in [&mut late, &mut early, &mut middle] {
            assert!(sleep.now_or_never().is_none());
        }
        assert_eq!(*set.borrow(), [30, 10]);
        assert_eq!(timers.tick(Instant(9)), Some(Instant(10)));
        assert_eq!(timers.tick(Instant(20)), Some(Instant(30)));
        assert!((&mut early).now_or_never().is_some());
        assert!((&mut middle).now_or_never().is_some());
        assert!((&mut late).now_or_never().is_none());
    }

    #[test]
    fn a_wait_that_is_dropped_leaves_nothing_behind() {
        let timers = Timers::default();
        let arm = |_| {};
        let mut sleep = timers.sleep_until(Instant(5), &arm);
        assert!((&mut sleep).now_or_never().is_none());
        drop(sleep);
        assert_eq!(timers.tick(Instant(0)), None);
    }
}
