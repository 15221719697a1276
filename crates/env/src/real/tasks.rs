//! The tasks of one environment, run inside the one future that the runtime drives.
//!
//! The runtime (tokio's) knows a single future: the root. The *body* is the future given to
//! [`Tasks::run`]: the root ends when the body ends. In each round the root polls all tasks that are
//! ready, and the body if it is ready. The runtime checks its sockets and timers only when no task is
//! ready, or after 64 polls. So one wait in the kernel serves all the tasks that it woke, and all tasks
//! that these tasks wake. If each task were a task of the runtime, a result for the body would cost a
//! second check of the sockets. Each poll would also cost several times as much.
//!
//! ```text
//!   socket ready ─▶ wake ─▶ queue ─▶ poll reader ─▶ wake ─▶ queue ─▶ poll body ─▶ ready
//!                   (root)           └──────────── one poll of the root ────────────┘
//! ```
//!
//! **Invariant: a woken task is polled**: a waker puts its task in the queue once, under the queue's lock,
//! and wakes the root unless the root is processing the queue (test:
//! `a_wake_from_another_thread_is_never_lost`). **Invariant: a panic of a task unwinds through the root** to
//! the code that drives it (test: `a_panic_in_a_task_ends_the_run_with_that_panic`).

use futures_util::future::LocalBoxFuture;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// Most polls between two checks of the sockets.
const POLLS_MAX: usize = 64;
/// The body's index in the queue; no task has it.
const BODY: usize = usize::MAX;

/// The tasks of one environment. See the module.
pub(super) struct Tasks {
    slots: RefCell<Slots>,
    /// Taken from the queue, and not yet polled.
    round: RefCell<VecDeque<usize>>,
    queue: Arc<Queue>,
    body: (Arc<Signal>, Waker),
    /// No task begins any more.
    ended: Cell<bool>,
}

#[derive(Default)]
struct Slots {
    /// `None`: free, or being polled.
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
}

struct Slot {
    future: LocalBoxFuture<'static, ()>,
    signal: Arc<Signal>,
    waker: Waker,
}

/// Tasks to be polled; shared with the wakers on all threads.
#[derive(Default)]
struct Queue(Mutex<QueueState>);

#[derive(Default)]
struct QueueState {
    ready: VecDeque<usize>,
    /// The root's waker; a waker that queues a task wakes it. `None` while the root processes the queue.
    root: Option<Waker>,
}

impl Queue {
    /// Code under the lock does not panic, so a poisoned one guards a sound state.
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State of a task's wakers.
struct Signal {
    queue: Arc<Queue>,
    at: usize,
    queued: AtomicBool,
    cancelled: AtomicBool,
}

impl Wake for Signal {
    fn wake(self: Arc<Signal>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Signal>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.queue.lock();
        state.ready.push_back(self.at);
        let root = state.root.take();
        drop(state);
        if let Some(root) = root {
            root.wake();
        }
    }
}

/// A handle to one task.
pub(super) struct Handle(Arc<Signal>);

impl Handle {
    /// Drop its future, at its next turn.
    pub(super) fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        self.0.wake_by_ref();
    }
}

impl Tasks {
    pub(super) fn new() -> Tasks {
        let queue = Arc::<Queue>::default();
        let body = signal(&queue, BODY);
        Tasks { slots: RefCell::default(), round: RefCell::default(), body, queue, ended: Cell::default() }
    }

    /// A new task, polled in its turn; after the end it is dropped at once.
    pub(super) fn spawn(&self, future: LocalBoxFuture<'static, ()>) -> Handle {
        if self.ended.get() {
            return Handle(signal(&self.queue, BODY).0);
        }
        let (_, signal) = self.insert(future);
        signal.wake_by_ref();
        Handle(signal)
    }

    fn insert(&self, future: LocalBoxFuture<'static, ()>) -> (usize, Arc<Signal>) {
        let mut slots = self.slots.borrow_mut();
        let at = slots.free.pop().unwrap_or(slots.slots.len());
        let (signal, waker) = signal(&self.queue, at);
        let slot = Some(Slot { future, signal: signal.clone(), waker });
        match slots.slots.get_mut(at) {
            Some(free) => *free = slot,
            None => slots.slots.push(slot),
        }
        (at, signal)
    }

    /// Drive `body`, and the other tasks, until it ends. `stays_awake` is called when nothing is ready:
    /// whether to check the sockets again at once instead of sleeping.
    pub(super) fn run<'a, T>(&'a self, body: Body<'a, T>, stays_awake: &'a dyn Fn() -> bool) -> Root<'a, T> {
        self.body.0.wake_by_ref();
        Root { tasks: self, body, stays_awake }
    }

    /// A new task, polled now, on a thread that does not drive the root.
    pub(super) fn poll_beside(&self, future: LocalBoxFuture<'static, ()>) {
        let (at, _) = self.insert(future);
        self.poll_task(at);
    }

    /// The next task; `None`, with the root's waker registered: there is none.
    fn next(&self, root: &Waker) -> Option<usize> {
        let mut round = self.round.borrow_mut();
        if round.is_empty() {
            let mut state = self.queue.lock();
            std::mem::swap(&mut state.ready, &mut *round);
            state.root = round.is_empty().then(|| root.clone());
        }
        round.pop_front()
    }

    fn poll_task(&self, at: usize) {
        // A waker that outlived its task has no effect, or wakes the task that has its slot now, which does
        // no harm.
        let Some(mut slot) = self.slots.borrow_mut().slots.get_mut(at).and_then(Option::take) else { return };
        slot.signal.queued.store(false, Ordering::Release);
        let is_cancelled = slot.signal.cancelled.load(Ordering::Acquire);
        let ended =
            is_cancelled || slot.future.as_mut().poll(&mut Context::from_waker(&slot.waker)).is_ready();
        if ended {
            // Dropping it may begin tasks: no borrow is held here.
            drop(slot);
            self.slots.borrow_mut().free.push(at);
        } else if let Some(place) = self.slots.borrow_mut().slots.get_mut(at) {
            *place = Some(slot);
        }
    }

    /// Drop all tasks. None begins from here on: dropped tasks may begin others, which would live, with all
    /// they hold, for as long as they hold this.
    pub(super) fn end(&self) {
        self.ended.set(true);
        let slots = self.slots.take();
        self.round.borrow_mut().clear();
        drop(slots);
    }
}

fn signal(queue: &Arc<Queue>, at: usize) -> (Arc<Signal>, Waker) {
    let signal = Arc::new(Signal {
        queue: queue.clone(),
        at,
        queued: AtomicBool::new(false),
        cancelled: AtomicBool::new(false),
    });
    (signal.clone(), Waker::from(signal))
}

/// A body. As a trait object, because the code that drives it would else be compiled for each body.
pub(super) type Body<'a, T> = Pin<&'a mut (dyn Future<Output = T> + 'a)>;

/// See [`Tasks::run`].
pub(super) struct Root<'a, T> {
    tasks: &'a Tasks,
    body: Body<'a, T>,
    stays_awake: &'a dyn Fn() -> bool,
}

impl<T> Future for Root<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let tasks = self.tasks;
        for _ in 0..POLLS_MAX {
            match tasks.next(cx.waker()) {
                None => {
                    if (self.stays_awake)() {
                        cx.waker().wake_by_ref();
                    }
                    return Poll::Pending;
                }
                Some(BODY) => {
                    let (signal, waker) = &tasks.body;
                    signal.queued.store(false, Ordering::Release);
                    let polled = self.body.as_mut().poll(&mut Context::from_waker(waker));
                    if polled.is_ready() {
                        return polled;
                    }
                }
                Some(at) => tasks.poll_task(at),
            }
            super::migratable::between_turns();
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::Notify;
    use futures_util::task::noop_waker;
    use std::cell::Cell;
    use std::pin::pin;
    use std::rc::Rc;
    use std::task::ready;

    /// Poll a body until it ends or is pending; `None`: it is pending.
    fn drive<T>(tasks: &Tasks, body: impl Future<Output = T>) -> Option<T> {
        let body = pin!(body);
        let mut root = pin!(tasks.run(body, &|| false));
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        loop {
            woken.0.store(false, Ordering::Release);
            match root.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(value) => return Some(value),
                Poll::Pending if woken.0.load(Ordering::Acquire) => {}
                Poll::Pending => return None,
            }
        }
    }

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Woken>) {
            self.0.store(true, Ordering::Release);
        }
    }

    #[test]
    fn a_body_woken_by_a_task_ends_in_the_same_poll_of_the_root() {
        let tasks = Tasks::new();
        let (asked, answered) = (Notify::default(), Notify::default());
        let (heard, said) = (asked.clone(), answered.clone());
        tasks.spawn(Box::pin(async move {
            heard.wait().await;
            said.wake_all();
        }));
        let body = pin!(async {
            let answer = answered.wait();
            // After the task's first turn.
            asked.wait().await;
            answer.await;
        });
        let mut root = pin!(tasks.run(body, &|| false));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(root.as_mut().poll(&mut cx).is_pending());
        asked.wake_all();
        assert!(root.as_mut().poll(&mut cx).is_ready());
    }

    #[test]
    fn a_task_that_wakes_itself_for_ever_lets_the_sockets_be_looked_at() {
        let tasks = Tasks::new();
        let turns = Rc::new(Cell::new(0));
        let counted = turns.clone();
        tasks.spawn(Box::pin(std::future::poll_fn(move |cx| {
            counted.set(counted.get() + 1);
            cx.waker().wake_by_ref();
            Poll::Pending
        })));
        let body = pin!(std::future::pending::<()>());
        let mut root = pin!(tasks.run(body, &|| false));
        assert!(root.as_mut().poll(&mut Context::from_waker(&noop_waker())).is_pending());
        assert!((1..=POLLS_MAX).contains(&turns.get()));
    }

    #[test]
    fn a_cancelled_task_is_dropped_and_its_place_is_used_again() {
        let tasks = Tasks::new();
        let held = Rc::new(());
        let inside = held.clone();
        let task = tasks.spawn(Box::pin(async move {
            std::future::pending::<()>().await;
            drop(inside);
        }));
        assert!(drive(&tasks, std::future::pending::<()>()).is_none());
        assert_eq!(Rc::strong_count(&held), 2);
        task.cancel();
        assert!(drive(&tasks, std::future::pending::<()>()).is_none());
        assert_eq!(Rc::strong_count(&held), 1);
        tasks.spawn(Box::pin(async {}));
        assert_eq!(tasks.slots.borrow().slots.len(), 1);
        // The handle of the first does nothing to the second.
        task.cancel();
        assert!(drive(&tasks, async { Some(()) }).is_some());
    }

    #[test]
    fn tasks_begun_by_what_is_dropped_at_the_end_are_dropped_too() {
        struct Begins(Rc<Tasks>, Rc<()>);
        impl Drop for Begins {
            fn drop(&mut self) {
                let held = self.1.clone();
                drop(self.0.spawn(Box::pin(async move {
                    std::future::pending::<()>().await;
                    drop(held);
                })));
            }
        }
        let tasks = Rc::new(Tasks::new());
        let held = Rc::new(());
        let begins = Begins(tasks.clone(), held.clone());
        tasks.spawn(Box::pin(async move {
            std::future::pending::<()>().await;
            drop(begins);
        }));
        assert!(drive(&tasks, std::future::pending::<()>()).is_none());
        tasks.end();
        assert_eq!(Rc::strong_count(&held), 1);
        tasks.spawn(Box::pin(async {})).cancel();
        let inside = held.clone();
        drop(tasks.spawn(Box::pin(async move { drop(inside) })));
        assert_eq!(Rc::strong_count(&held), 1, "a task spawned after the end is dropped too");
    }

    #[test]
    fn a_wake_from_another_thread_is_never_lost() {
        let tasks = Tasks::new();
        for _ in 0..1000 {
            let (send, mut receive) = futures_channel::oneshot::channel();
            let thread = std::thread::spawn(move || send.send(7));
            let parked = std::thread::current();
            let body = pin!(std::future::poll_fn(|cx| Poll::Ready(ready!(Pin::new(&mut receive).poll(cx)))));
            let mut root = pin!(tasks.run(body, &|| false));
            let waker = Waker::from(Arc::new(Unparks(parked)));
            let value = loop {
                match root.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(value) => break value,
                    Poll::Pending => std::thread::park(),
                }
            };
            assert_eq!(value, Ok(7));
            drop(thread.join());
        }
    }

    struct Unparks(std::thread::Thread);

    impl Wake for Unparks {
        fn wake(self: Arc<Unparks>) {
            self.0.unpark();
        }
    }
}
