//! A [`World`]: the state that all threads share, and that one thread at a time uses.

use crate::Turn;
use std::cell::UnsafeCell;
use std::time::Duration;

/// Another thread had the turn for the whole of a call's patience.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy;

/// A state `S` that lives on one thread at a time. Can be a `static`.
pub struct World<S> {
    turn: Turn,
    state: UnsafeCell<Option<S>>,
}

// SAFETY: only the thread that has the turn touches the state, and `enter` lends it for no longer. A state
// keeps nothing in variables of a thread: worlds of `env` do not, as `tests/house.rs` holds.
unsafe impl<S> Sync for World<S> {}
// SAFETY: the same.
unsafe impl<S> Send for World<S> {}

/// Gives the turn back, also after a panic.
struct Given<'a>(&'a Turn);

impl Drop for Given<'_> {
    fn drop(&mut self) {
        self.0.give();
    }
}

impl<S> Default for World<S> {
    fn default() -> World<S> {
        World::new()
    }
}

impl<S> World<S> {
    /// A world without a state yet.
    pub const fn new() -> World<S> {
        World { turn: Turn::new(), state: UnsafeCell::new(None) }
    }

    /// Do `work` on the state, which `make` makes at the first entry. A thread must not enter twice.
    ///
    /// # Errors
    /// [`Busy`], after `patience`.
    pub fn enter<T>(
        &self,
        patience: Duration,
        make: impl FnOnce() -> S,
        work: impl FnOnce(&mut S) -> T,
    ) -> Result<T, Busy> {
        if !self.turn.take(patience) {
            return Err(Busy);
        }
        let _given = Given(&self.turn);
        // SAFETY: this thread has the turn until `_given` is dropped, and the borrow ends before.
        let state = unsafe { &mut *self.state.get() };
        Ok(work(state.get_or_insert_with(make)))
    }

    /// Take the turn before `fork`, and keep it; whether that succeeded.
    pub fn hold(&self, patience: Duration) -> bool {
        self.turn.take(patience)
    }

    /// After `fork`, in the parent, if the turn was held.
    pub fn release(&self) {
        self.turn.give();
    }

    /// After `fork`, in the child: forget the parent's state. Nothing is dropped, so nothing is sent.
    ///
    /// # Safety
    /// The process has one thread, which is not in a call.
    pub unsafe fn forget(&self) {
        // SAFETY: as the caller promises, no other borrow is there.
        let state = unsafe { &mut *self.state.get() };
        std::mem::forget(state.take());
        self.turn.reset();
    }
}
