//! Small tools for tasks of one thread: they hold no lock and know no runtime.

use futures_channel::oneshot;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Wakes waiting tasks; a waiter that began before [`Notify::wake_all`] is woken by it.
#[derive(Clone, Default)]
pub struct Notify(Rc<NotifyState>);

#[derive(Default)]
struct NotifyState {
    round: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl Notify {
    /// Wake all that wait.
    pub fn wake_all(&self) {
        self.0.round.set(self.0.round.get() + 1);
        for waker in self.0.waiting.take() {
            waker.wake();
        }
    }

    /// Wait for the next [`Notify::wake_all`] after this call.
    pub fn wait(&self) -> NotifyWait {
        NotifyWait { notify: self.clone(), round: self.0.round.get() }
    }
}

/// See [`Notify::wait`].
pub struct NotifyWait {
    notify: Notify,
    round: u64,
}

impl Future for NotifyWait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.notify.0.round.get() != self.round {
            return Poll::Ready(());
        }
        let mut waiting = self.notify.0.waiting.borrow_mut();
        if !waiting.iter().any(|w| w.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// A bounded count of permits, handed out in order of asking.
#[derive(Clone)]
pub struct Semaphore(Rc<RefCell<SemaphoreState>>);

struct SemaphoreState {
    free: u64,
    waiting: VecDeque<(u64, oneshot::Sender<()>)>,
}

/// Permits taken from a [`Semaphore`]; given back when dropped.
pub struct Permit {
    semaphore: Semaphore,
    count: u64,
}

impl Semaphore {
    /// A semaphore with `free` permits.
    pub fn new(free: u64) -> Semaphore {
        Semaphore(Rc::new(RefCell::new(SemaphoreState { free, waiting: VecDeque::new() })))
    }

    /// Wait for `count` permits.
    pub async fn acquire(&self, count: u64) -> Permit {
        let turn = {
            let mut state = self.0.borrow_mut();
            if state.waiting.is_empty() && state.free >= count {
                state.free -= count;
                None
            } else {
                let (send, receive) = oneshot::channel();
                state.waiting.push_back((count, send));
                Some(receive)
            }
        };
        if let Some(turn) = turn {
            // The sender is dropped only with the semaphore's state, which `self` keeps alive.
            let _ = turn.await;
        }
        Permit { semaphore: self.clone(), count }
    }

    /// Permits free now.
    pub fn free(&self) -> u64 {
        self.0.borrow().free
    }

    fn give_back(&self, count: u64) {
        let mut state = self.0.borrow_mut();
        state.free += count;
        while let Some((want, _)) = state.waiting.front() {
            if *want > state.free {
                break;
            }
            if let Some((want, turn)) = state.waiting.pop_front() {
                state.free -= want;
                if turn.send(()).is_err() {
                    // The waiter gave up: its permits go to the next.
                    state.free += want;
                }
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.semaphore.give_back(self.count);
    }
}
