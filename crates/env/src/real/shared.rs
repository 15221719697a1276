//! A world (an event loop with its tasks, clock, sockets and files) that many threads call, and that one of
//! the threads that wait drives for all. There is no thread of its own.
//!
//! A call is a future on its caller's stack. The thread that has the [`Turn`] may use the world; a thread
//! gives the turn away while it waits. The first thread that waits *leads*: it waits for sockets and timers,
//! and polls all that is ready, also the calls of other threads. Further threads poll their calls once,
//! then wait for a word; what that poll woke (a task that sends requests) is the leader's, so the requests of
//! several calls go together. A thread whose call is done and that leads hands over to one that waits.
//!
//! ```text
//!   A ── call ── poll ── leads: epoll ─ poll what is ready (B's call too) ─ epoll ─ own call done ─▶ hands over
//!   B ───── call ── poll ── waits (futex) ───────────── done ─▶ returns                │
//!   C ───────── call ── poll ── waits (futex) ─────────────────────────────────────── leads: epoll ─ …
//!
//!   word of a call that waits:   WAITS ── polled to its end, by any thread ──▶ DONE
//!                                  └──── the leader's call is done ──▶ LEADS
//! ```
//!
//! **Invariant: while a call waits, a thread leads**, or was given the lead and is about to wake (test:
//! `calls_of_many_threads_wait_at_once_and_each_gets_its_own_answer`).
//!
//! Futures of the world are polled, made and dropped by the thread that has the turn. So a future that is
//! not `Send` is used by one thread after another; worlds keep nothing in variables of a thread. The thread
//! that made a call stays until the call is done, so the future on its stack does too.
//!
//! A thread whose call is done is woken when the turn is free, so it does not wait for it.
//!
//! A panic of a call is its caller's, on whatever thread it was polled; a panic of a task is the thread's
//! that polled it.

use super::Runtime;
use super::tasks::Body;
use super::turn::Turn;
use rustix::thread::futex;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::task::coop::unconstrained;

const WAITS: u32 = 0;
const DONE: u32 = 1;
const LEADS: u32 = 2;

/// Calls of threads that wait and do not lead.
#[derive(Default)]
struct Waiting {
    seats: RefCell<VecDeque<Arc<Seat>>>,
    /// Calls that are done, whose threads are woken when the turn is free.
    done: RefCell<Vec<Arc<Seat>>>,
}

/// The turn of a shared world, and the calls that wait. All but the turn is used by the thread that has it.
#[derive(Default)]
pub struct Shared {
    turn: Turn,
    /// A thread leads, or was given the lead.
    is_led: Cell<bool>,
    waiting: Rc<Waiting>,
    /// Called when the call that is about to begin has to wait.
    keeper: Cell<Option<NonNull<dyn Keeper>>>,
}

/// The owner of a state that belongs to a thread's call also while the call waits. Its functions are called
/// by the thread that has the turn.
pub trait Keeper {
    /// The call is about to wait for the first time.
    fn keep(&self);

    /// The call is done; only after [`Keeper::keep`].
    fn give(&self);
}

/// A call, pinned on its caller's stack.
type Call = *mut (dyn Future<Output = ()> + 'static);

/// A call of a thread that does not lead.
struct Seat {
    /// `None`: it is done, or its thread gave it up. Used under the turn, as are the others but `word`.
    body: Cell<Option<Call>>,
    panic: Cell<Option<Box<dyn Any + Send>>>,
    /// Its thread leads, and waits for this call.
    leader: Cell<Option<Waker>>,
    word: AtomicU32,
}

// SAFETY: the thread that has the turn uses the cells; `word` is an atomic.
unsafe impl Send for Seat {}
// SAFETY: as above.
unsafe impl Sync for Seat {}

impl Seat {
    fn of(body: Body<'_, ()>) -> Arc<Seat> {
        // SAFETY: the future is not moved: it is polled through a pin again.
        let body: &mut (dyn Future<Output = ()> + '_) = unsafe { Pin::into_inner_unchecked(body) };
        let body = ptr::from_mut(body);
        // SAFETY: only the lifetime changes. `Vacates` takes the pointer out before the body ends.
        let body = unsafe { mem::transmute::<*mut (dyn Future<Output = ()> + '_), Call>(body) };
        Arc::new(Seat {
            body: Cell::new(Some(body)),
            panic: Cell::default(),
            leader: Cell::default(),
            word: AtomicU32::new(WAITS),
        })
    }

    fn is_done(&self) -> bool {
        self.body.get().is_none()
    }

    fn say(&self, word: u32) {
        self.word.store(word, Ordering::Release);
        let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
    }

    /// Until another thread says a word.
    fn wait(&self) -> u32 {
        loop {
            match self.word.load(Ordering::Acquire) {
                WAITS => drop(futex::wait(&self.word, futex::Flags::PRIVATE, WAITS, None)),
                word => return word,
            }
        }
    }

    fn poll_done(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_done() {
            return Poll::Ready(());
        }
        self.leader.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

/// The task of a seat.
struct Seated {
    seat: Arc<Seat>,
    waiting: Rc<Waiting>,
}

impl Future for Seated {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let seat = &self.seat;
        let Some(body) = seat.body.get() else { return Poll::Ready(()) };
        // SAFETY: the thread of the call keeps the body, pinned, while the seat has it.
        let body = unsafe { Pin::new_unchecked(&mut *body) };
        match catch_unwind(AssertUnwindSafe(|| body.poll(cx))) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => {}
            Err(panic) => seat.panic.set(Some(panic)),
        }
        seat.body.set(None);
        if self.waiting.take_out(seat) {
            self.waiting.done.borrow_mut().push(seat.clone());
        } else if let Some(leader) = seat.leader.take() {
            leader.wake();
        }
        Poll::Ready(())
    }
}

impl Waiting {
    /// Whether it was there.
    fn take_out(&self, seat: &Arc<Seat>) -> bool {
        let mut seats = self.seats.borrow_mut();
        let at = seats.iter().position(|other| Arc::ptr_eq(other, seat));
        at.and_then(|at| seats.remove(at)).is_some()
    }
}

/// Takes the body out of its seat, before it ends with its thread's stack.
struct Vacates<'a>(&'a Seat);

impl Drop for Vacates<'_> {
    fn drop(&mut self) {
        self.0.body.set(None);
    }
}

/// Hands over the lead when it is dropped, also after a panic.
struct Lead<'a>(&'a Shared);

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        // The newest waits longest: the fewest changes.
        match self.0.waiting.seats.borrow_mut().pop_back() {
            Some(next) => next.say(LEADS),
            None => self.0.is_led.set(false),
        }
    }
}

/// The keeper of a call under way; it is called at the end, also after a panic.
struct Kept<'a> {
    shared: &'a Shared,
    keeper: Option<NonNull<dyn Keeper>>,
    is_kept: Cell<bool>,
}

impl Kept<'_> {
    fn keep(&self) {
        if let (Some(keeper), false) = (self.keeper, self.is_kept.replace(true)) {
            // SAFETY: it stays while it is set, and it was when the call began (`set_keeper`).
            unsafe { keeper.as_ref() }.keep();
        }
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let (Some(keeper), true) = (self.keeper, self.is_kept.get()) {
            // SAFETY: as above.
            unsafe { keeper.as_ref() }.give();
        }
        self.shared.keeper.set(self.keeper);
    }
}

impl Shared {
    /// Take the turn within `patience`; whether that succeeded. A thread that has it must not take it again.
    pub fn take(&self, patience: Duration) -> bool {
        self.turn.take(patience)
    }

    /// Take the turn again, in the midst of a call that gave it away.
    pub fn take_back(&self) {
        self.turn.take_back();
    }

    /// Give the turn away, and wake the threads whose calls are done. The thread has it.
    pub fn give(&self) {
        let done = self.waiting.done.take();
        self.turn.give();
        done.iter().for_each(|seat| seat.say(DONE));
    }

    /// The keeper of the thread's calls from now on, until the thread gives the turn away by itself; the one
    /// before.
    ///
    /// # Safety
    /// The thread has the turn. The keeper stays until another one is set.
    pub unsafe fn set_keeper(&self, keeper: Option<NonNull<dyn Keeper>>) -> Option<NonNull<dyn Keeper>> {
        self.keeper.replace(keeper)
    }

    /// Drive a call until it is done. The thread has the turn, gives it away while it waits, and has it
    /// again at the return.
    pub(super) fn drive(&self, runtime: &Runtime, body: Body<'_, ()>) {
        let kept = Kept { shared: self, keeper: self.keeper.take(), is_kept: Cell::new(false) };
        match self.is_led.replace(true) {
            false => self.lead(runtime, body, &kept),
            true => self.follow(runtime, body, &kept),
        }
    }

    fn lead(&self, runtime: &Runtime, body: Body<'_, ()>, kept: &Kept<'_>) {
        let _lead = Lead(self);
        let door = &runtime.door.0;
        let stays_awake = || door.polling.stays_awake();
        let root = door.tasks.run(body, &stays_awake);
        runtime.runtime.block_on(unconstrained(Turned { shared: self, has_turn: true, kept, root }));
    }

    fn follow(&self, runtime: &Runtime, body: Body<'_, ()>, kept: &Kept<'_>) {
        let seat = Seat::of(body);
        let _vacates = Vacates(&seat);
        {
            // Sockets and timers that are made now belong to this world.
            let _entered = runtime.runtime.enter();
            let task = Seated { seat: seat.clone(), waiting: self.waiting.clone() };
            runtime.door.0.tasks.poll_beside(Box::pin(task));
        }
        if !seat.is_done() {
            self.waiting.seats.borrow_mut().push_back(seat.clone());
            kept.keep();
            self.give();
            let word = seat.wait();
            self.take_back();
            if word == LEADS {
                self.lead(runtime, pin!(poll_fn(|cx| seat.poll_done(cx))), kept);
            }
        }
        debug_assert!(seat.is_done(), "a call returns when it is done");
        if let Some(panic) = seat.panic.take() {
            resume_unwind(panic);
        }
    }
}

/// A future that is polled with the turn, and waits without. At its end, and when it is dropped, this thread
/// has the turn.
struct Turned<'a, F> {
    shared: &'a Shared,
    has_turn: bool,
    kept: &'a Kept<'a>,
    root: F,
}

impl<F: Future<Output = ()> + Unpin> Future for Turned<'_, F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !self.has_turn {
            self.shared.take_back();
            self.has_turn = true;
        }
        let polled = Pin::new(&mut self.root).poll(cx);
        if polled.is_pending() {
            self.kept.keep();
            self.has_turn = false;
            self.shared.give();
        }
        polled
    }
}

impl<F> Drop for Turned<'_, F> {
    fn drop(&mut self) {
        if !self.has_turn {
            self.shared.take_back();
        }
    }
}
