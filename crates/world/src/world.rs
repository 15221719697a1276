//! A [`World`]: the state that all threads share, and the way of a call into it.
//!
//! A thread in a call has the turn of the state's runtime ([`Runtime::turn`]), and with it the state. It
//! gives the turn away while it waits, so that calls of other threads go on. Usually it *keeps* the state
//! then: calls that wait too go on, and none begins. Within [`Inside::away`] it does not keep it.
//!
//! ```text
//!   thread A ── turn ── away: send a request ── waits, without the turn ───── answer ── turn ── …
//!   thread B ───────────────────────────────── turn ── its own request ── waits …
//!
//!   thread C ── turn ── send a request ── waits, and keeps the state (has the lock) ── turn, gives the state …
//!   thread D ──────────────────────────── turn: the state is kept ── waits for the lock ─────────── turn ── …
//! ```

use shoal_env::real::{Keeper, Runtime, Shared, Turn};
use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

/// Other threads had the state for the whole of a call's patience.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy;

/// A state with a runtime that threads share ([`Runtime::shared`]).
pub trait Driven {
    /// The runtime; always the same. It lies outside the state, so that a thread uses it while another
    /// changes the state.
    fn runtime(&self) -> &Rc<Runtime>;
}

/// A state `S` that one thread at a time uses. Can be a `static`.
pub struct World<S> {
    state: UnsafeCell<Option<S>>,
    /// The state's runtime; null: there is no state yet.
    runtime: AtomicPtr<Runtime>,
    /// A call that waits keeps the state. Used by the thread that has the turn.
    kept: Kept,
}

/// Whether a call that waits keeps the state.
struct Kept {
    /// Had by the thread that keeps the state, or makes it.
    lock: Turn,
    is_kept: Cell<bool>,
}

// SAFETY: only the thread that has the runtime's turn touches the state, while no other keeps it; the thread
// that makes the state has the lock. A state keeps nothing in variables of a thread: worlds of `env` do not,
// as `tests/house.rs` holds.
unsafe impl<S> Sync for World<S> {}
// SAFETY: the same.
unsafe impl<S> Send for World<S> {}

impl Keeper for Kept {
    fn keep(&self) {
        self.is_kept.set(true);
        // Threads that wait for it have it for a moment, without the turn.
        self.lock.take_back();
    }

    fn give(&self) {
        self.is_kept.set(false);
        self.lock.give();
    }
}

/// The state, of a thread in a call. The thread has it and the turn until this is dropped, also after a
/// panic.
pub struct Inside<'a, S> {
    world: &'a World<S>,
    turn: &'a Shared,
}

impl<'a, S> Inside<'a, S> {
    /// The thread has the turn, and no call keeps the state.
    fn new(world: &'a World<S>, turn: &'a Shared) -> Inside<'a, S> {
        let keeper: NonNull<dyn Keeper> = NonNull::from(&world.kept);
        // SAFETY: the world stays longer than this, which takes it out.
        unsafe { turn.set_keeper(Some(keeper)) };
        Inside { world, turn }
    }
}

impl<S> Deref for Inside<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        // SAFETY: this thread has the state, and nothing else is borrowed of it: `away` takes `self` whole.
        unsafe { (*self.world.state.get()).as_ref() }.expect("the state is there during a call")
    }
}

impl<S> DerefMut for Inside<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        // SAFETY: as above.
        unsafe { (*self.world.state.get()).as_mut() }.expect("the state is there during a call")
    }
}

impl<S> Drop for Inside<'_, S> {
    fn drop(&mut self) {
        // SAFETY: this thread has the turn.
        unsafe { self.turn.set_keeper(None) };
        self.turn.give();
    }
}

impl<S> Inside<'_, S> {
    /// Do `work`, which cannot use the state; if it waits, other threads may use and change the state
    /// meanwhile.
    pub fn away<T>(&mut self, work: impl FnOnce() -> T) -> T {
        // SAFETY: this thread has the turn.
        let keeper = unsafe { self.turn.set_keeper(None) };
        let _away = Away { kept: &self.world.kept, turn: self.turn, keeper };
        work()
    }
}

/// Has the state back when it is dropped, also after a panic.
struct Away<'a> {
    kept: &'a Kept,
    turn: &'a Shared,
    keeper: Option<NonNull<dyn Keeper>>,
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        while self.kept.is_kept.get() {
            // The call that keeps it ends by its own deadline, and needs the turn for it.
            self.turn.give();
            self.kept.lock.take_back();
            self.kept.lock.give();
            self.turn.take_back();
        }
        // SAFETY: this thread has the turn; it was set before.
        unsafe { self.turn.set_keeper(self.keeper) };
    }
}

/// Gives the lock back when it is dropped, also after a panic.
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
        let kept = Kept { lock: Turn::new(), is_kept: Cell::new(false) };
        World { state: UnsafeCell::new(None), runtime: AtomicPtr::new(ptr::null_mut()), kept }
    }

    /// The turn of the state's runtime; `None`: there is no state.
    fn turn(&self) -> Option<&Shared> {
        // SAFETY: the runtime lies outside the state, and stays as long as the state.
        let runtime = unsafe { self.runtime.load(Ordering::Acquire).as_ref() };
        runtime.map(|runtime| runtime.turn().expect("the runtime of a world is shared"))
    }

    /// Have the state.
    fn have(&self, turn: &Shared, until: Instant) -> Result<(), Busy> {
        let left = || until.saturating_duration_since(Instant::now());
        loop {
            if !turn.take(left()) {
                return Err(Busy);
            }
            if !self.kept.is_kept.get() {
                return Ok(());
            }
            turn.give();
            if !self.kept.lock.take(left()) {
                return Err(Busy);
            }
            self.kept.lock.give();
        }
    }

    /// Do `work` on the state, which `make` makes at the first entry. A thread must not enter twice.
    ///
    /// # Errors
    /// [`Busy`], after `patience`.
    pub fn enter<T>(
        &self,
        patience: Duration,
        make: impl FnOnce() -> S,
        work: impl FnOnce(Inside<'_, S>) -> T,
    ) -> Result<T, Busy>
    where
        S: Driven,
    {
        let until = Instant::now() + patience;
        let turn = match self.turn() {
            Some(turn) => turn,
            None => self.made(patience, make)?,
        };
        self.have(turn, until)?;
        Ok(work(Inside::new(self, turn)))
    }

    fn made(&self, patience: Duration, make: impl FnOnce() -> S) -> Result<&Shared, Busy>
    where
        S: Driven,
    {
        if !self.kept.lock.take(patience) {
            return Err(Busy);
        }
        let _given = Given(&self.kept.lock);
        if self.turn().is_none() {
            let state = make();
            let runtime = Rc::as_ptr(state.runtime()).cast_mut();
            // SAFETY: there is no state, so no thread has it, and this one has the lock.
            unsafe { *self.state.get() = Some(state) };
            self.runtime.store(runtime, Ordering::Release);
        }
        Ok(self.turn().expect("the state was made"))
    }

    /// Have the state before `fork`, and keep it; whether that succeeded. Calls that wait are the parent's.
    pub fn hold(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        if self.turn().is_none() {
            if !self.kept.lock.take(patience) {
                return false;
            }
            if self.turn().is_none() {
                return true;
            }
            // Made meanwhile.
            self.kept.lock.give();
        }
        self.turn().is_some_and(|turn| self.have(turn, until).is_ok())
    }

    /// After `fork`, in the parent, if it was held.
    pub fn release(&self) {
        match self.turn() {
            Some(turn) => turn.give(),
            None => self.kept.lock.give(),
        }
    }

    /// After `fork`, in the child: forget the parent's state. Nothing is dropped, so nothing is sent.
    ///
    /// # Safety
    /// The process has one thread, which is not in a call.
    pub unsafe fn forget(&self) {
        // SAFETY: as the caller promises, no other borrow is there.
        let state = unsafe { &mut *self.state.get() };
        std::mem::forget(state.take());
        self.runtime.store(ptr::null_mut(), Ordering::Release);
        self.kept.is_kept.set(false);
        self.kept.lock.reset();
    }
}
