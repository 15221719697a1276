//! Timers that can be cancelled. Nearly every request sets a deadline, and nearly no deadline is reached, so
//! a dropped timer must not stay in the heap until its time. Its entry becomes stale; when most entries are
//! stale, they are removed.

use super::core::Core;
use super::net::NEVER;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A set timer: a slot and its generation, so that an old entry never fires a new timer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct TimerKey {
    slot: u32,
    generation: u32,
}

/// All set timers.
#[derive(Default)]
pub(super) struct Timers {
    slots: Vec<(u32, Option<Waker>)>,
    free: Vec<u32>,
    /// Entries of the heap whose timer is gone.
    pub(super) stale: usize,
}

impl Timers {
    pub(super) fn set(&mut self, waker: Waker) -> TimerKey {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            (self.slots.len() - 1) as u32
        });
        let entry = &mut self.slots[slot as usize];
        entry.1 = Some(waker);
        TimerKey { slot, generation: entry.0 }
    }

    pub(super) fn is_set(&self, key: TimerKey) -> bool {
        self.slots[key.slot as usize].0 == key.generation
    }

    fn change_waker(&mut self, key: TimerKey, waker: &Waker) {
        if self.is_set(key)
            && let Some(old) = &mut self.slots[key.slot as usize].1
        {
            old.clone_from(waker);
        }
    }

    /// Remove a timer; returns its waker if it was still set.
    pub(super) fn take(&mut self, key: TimerKey) -> Option<Waker> {
        if !self.is_set(key) {
            return None;
        }
        let entry = &mut self.slots[key.slot as usize];
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(key.slot);
        entry.1.take()
    }
}

/// Waits until a moment.
pub(super) struct Sleep {
    core: Rc<Core>,
    until: u64,
    key: Option<TimerKey>,
}

impl Sleep {
    pub(super) fn new(core: Rc<Core>, until: u64) -> Sleep {
        Sleep { core, until, key: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.core.now() >= self.until {
            return Poll::Ready(());
        }
        if self.until == NEVER {
            return Poll::Pending;
        }
        match self.key {
            Some(key) => self.core.timers.borrow_mut().change_waker(key, cx.waker()),
            None => self.key = Some(self.core.set_timer(self.until, cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.core.drop_timer(key);
        }
    }
}
