//! Synchronization between tasks of one event loop, without locks and without a runtime.
//!
//! **Invariant: a cancelled wait has no effect on others.** A dropped wait removes its waker (test:
//! `a_dropped_wait_leaves_no_waker`), and a permit that was sent to a dropped waiter goes to the next waiter
//! (test: `a_permit_on_its_way_to_a_dropped_waiter_goes_to_the_next`).

use futures_channel::oneshot as channel;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Wakes waiting tasks; a waiter that began before [`Notify::wake_all`] is woken by it.
///
/// A wait counts from the call of [`Notify::wait`], not from its first poll: call `wait`, look at the
/// condition, then await, and no wake-up between the look and the await is lost.
#[derive(Clone, Default)]
pub struct Notify(Rc<NotifyState>);

#[derive(Default)]
struct NotifyState {
    round: Cell<u64>,
    next_id: Cell<u64>,
    waiting: RefCell<Vec<(u64, Waker)>>,
}

impl Notify {
    /// Wake all that wait.
    pub fn wake_all(&self) {
        self.0.round.set(self.0.round.get() + 1);
        for (_, waker) in self.0.waiting.take() {
            waker.wake();
        }
    }

    /// Wait for the next [`Notify::wake_all`] after this call.
    pub fn wait(&self) -> NotifyWait {
        let id = self.0.next_id.get();
        self.0.next_id.set(id + 1);
        NotifyWait { notify: self.clone(), round: self.0.round.get(), id, registered: false }
    }
}

/// See [`Notify::wait`].
pub struct NotifyWait {
    notify: Notify,
    round: u64,
    id: u64,
    registered: bool,
}

impl Future for NotifyWait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let state = self.notify.0.clone();
        if state.round.get() != self.round {
            return Poll::Ready(());
        }
        let mut waiting = state.waiting.borrow_mut();
        let known = if self.registered { waiting.iter_mut().find(|(id, _)| *id == self.id) } else { None };
        match known {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => {
                waiting.push((self.id, cx.waker().clone()));
                self.registered = true;
            }
        }
        Poll::Pending
    }
}

impl Drop for NotifyWait {
    fn drop(&mut self) {
        if self.registered && self.notify.0.round.get() == self.round {
            self.notify.0.waiting.borrow_mut().retain(|(id, _)| *id != self.id);
        }
    }
}

/// Wakes exactly the tasks whose count is reached: of a thousand tasks that wait for a place in a journal,
/// each step of it wakes those whose place it reached.
///
/// A wait begins with its first poll: check the count, then await, with no other await between.
#[derive(Clone, Default)]
pub struct Reached(Rc<ReachedState>);

#[derive(Default)]
struct ReachedState {
    next_id: Cell<u64>,
    waiting: RefCell<BTreeMap<(u64, u64), Waker>>,
}

impl Reached {
    /// The count has reached `count`: wake the tasks that wait for it, or for less.
    pub fn wake_to(&self, count: u64) {
        let reached = {
            let mut waiting = self.0.waiting.borrow_mut();
            if waiting.first_key_value().is_none_or(|((first, _), _)| *first > count) {
                return;
            }
            let later = waiting.split_off(&(count.saturating_add(1), 0));
            std::mem::replace(&mut *waiting, later)
        };
        reached.into_values().for_each(Waker::wake);
    }

    /// Wake all, at any count.
    pub fn wake_all(&self) {
        self.0.waiting.take().into_values().for_each(Waker::wake);
    }

    /// Wait until the count reaches `count`.
    pub fn wait(&self, count: u64) -> ReachedWait {
        ReachedWait { reached: self.clone(), count, key: None }
    }
}

/// See [`Reached::wait`].
pub struct ReachedWait {
    reached: Reached,
    count: u64,
    key: Option<(u64, u64)>,
}

impl Future for ReachedWait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let state = self.reached.0.clone();
        let mut waiting = state.waiting.borrow_mut();
        if let Some(key) = self.key {
            let Some(waker) = waiting.get_mut(&key) else { return Poll::Ready(()) };
            waker.clone_from(cx.waker());
            return Poll::Pending;
        }
        let key = (self.count, state.next_id.replace(state.next_id.get() + 1));
        waiting.insert(key, cx.waker().clone());
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for ReachedWait {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.reached.0.waiting.borrow_mut().remove(&key);
        }
    }
}

/// One value from one task to another of its world. The receiver is woken also when the sender is dropped
/// without a value.
pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let state = Rc::new(RefCell::new(OneshotState { value: None, ended: false, waiting: None }));
    (Sender(state.clone()), Receiver(state))
}

struct OneshotState<T> {
    value: Option<T>,
    ended: bool,
    waiting: Option<Waker>,
}

/// See [`oneshot`].
pub struct Sender<T>(Rc<RefCell<OneshotState<T>>>);

/// See [`oneshot`]. Awaited, it returns the value, or `None` when there will be none.
pub struct Receiver<T>(Rc<RefCell<OneshotState<T>>>);

impl<T> Sender<T> {
    /// Send the value. If the receiver is gone, the value is dropped with the receiver's state.
    pub fn send(self, value: T) {
        self.0.borrow_mut().value = Some(value);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waiting = {
            let mut state = self.0.borrow_mut();
            state.ended = true;
            state.waiting.take()
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.0.borrow_mut();
        if state.ended {
            return Poll::Ready(state.value.take());
        }
        match &mut state.waiting {
            Some(waker) => waker.clone_from(cx.waker()),
            None => state.waiting = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

/// A bounded count of permits, granted in order of request: a large request at the head is not overtaken.
#[derive(Clone)]
pub struct Semaphore(Rc<RefCell<SemaphoreState>>);

struct SemaphoreState {
    free: u64,
    waiting: VecDeque<(u64, channel::Sender<Permit>)>,
}

/// Permits taken from a [`Semaphore`]; returned when dropped.
pub struct Permit {
    semaphore: Semaphore,
    count: u64,
}

impl Semaphore {
    /// A semaphore with `free` permits.
    pub fn new(free: u64) -> Semaphore {
        Semaphore(Rc::new(RefCell::new(SemaphoreState { free, waiting: VecDeque::new() })))
    }

    /// Take `count` permits if they are free and no task waits.
    pub fn try_acquire(&self, count: u64) -> Option<Permit> {
        let mut state = self.0.borrow_mut();
        if !state.waiting.is_empty() || state.free < count {
            return None;
        }
        state.free -= count;
        Some(Permit { semaphore: self.clone(), count })
    }

    /// Wait for `count` permits. A request for more than all permits waits for ever.
    pub async fn acquire(&self, count: u64) -> Permit {
        loop {
            if let Some(permit) = self.try_acquire(count) {
                return permit;
            }
            let (send, receive) = channel::channel();
            self.0.borrow_mut().waiting.push_back((count, send));
            let mut turn = Turn { semaphore: self, receive };
            // The sender lives in the queue until it sends; a lost one (it cannot be) would only queue
            // again.
            if let Ok(permit) = (&mut turn.receive).await {
                return permit;
            }
        }
    }

    /// Permits free now.
    pub fn free(&self) -> u64 {
        self.0.borrow().free
    }

    /// Grant free permits to the tasks at the head of the queue.
    fn hand_out(&self) {
        loop {
            let mut state = self.0.borrow_mut();
            while state.waiting.front().is_some_and(|(_, turn)| turn.is_canceled()) {
                state.waiting.pop_front();
            }
            if state.waiting.front().is_none_or(|(want, _)| *want > state.free) {
                return;
            }
            let Some((want, turn)) = state.waiting.pop_front() else { return };
            state.free -= want;
            drop(state);
            // A permit that cannot be delivered comes back and is dropped here, which returns it.
            drop(turn.send(Permit { semaphore: self.clone(), count: want }));
        }
    }
}

/// A place in the queue. Dropped before its turn was taken, it releases both the place and a permit already
/// sent.
struct Turn<'a> {
    semaphore: &'a Semaphore,
    receive: channel::Receiver<Permit>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.receive.close();
        drop(self.receive.try_recv());
        self.semaphore.hand_out();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.semaphore.0.borrow_mut().free += self.count;
        self.semaphore.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_permit_on_its_way_to_a_dropped_waiter_goes_to_the_next() {
        let semaphore = Semaphore::new(1);
        let held = semaphore.try_acquire(1).unwrap();
        let mut first = Box::pin(semaphore.acquire(1));
        let mut second = Box::pin(semaphore.acquire(1));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        drop(held);
        drop(first);
        let permit = second.as_mut().now_or_never().expect("the second has its turn");
        drop(permit);
        drop(second);
        assert_eq!(semaphore.free(), 1);
    }

    #[test]
    fn a_large_request_that_gives_up_no_longer_blocks_small_ones() {
        let semaphore = Semaphore::new(2);
        let held = semaphore.try_acquire(1).unwrap();
        let mut large = Box::pin(semaphore.acquire(2));
        let mut small = Box::pin(semaphore.acquire(1));
        assert!(large.as_mut().now_or_never().is_none());
        assert!(small.as_mut().now_or_never().is_none());
        drop(large);
        let permit = small.as_mut().now_or_never().expect("one was free all the time");
        drop((permit, held, small));
        assert_eq!(semaphore.free(), 2);
    }

    #[test]
    fn permits_are_handed_out_in_order_of_asking() {
        let semaphore = Semaphore::new(1);
        let held = semaphore.try_acquire(1).unwrap();
        let mut large = Box::pin(semaphore.acquire(1));
        assert!(large.as_mut().now_or_never().is_none());
        assert!(semaphore.try_acquire(1).is_none());
        drop(held);
        assert!(semaphore.try_acquire(1).is_none(), "it went to the waiter");
        assert!(large.as_mut().now_or_never().is_some());
    }

    #[test]
    fn a_wake_up_between_wait_and_first_poll_is_not_lost() {
        let notify = Notify::default();
        let wait = notify.wait();
        notify.wake_all();
        assert!(wait.now_or_never().is_some());
        assert!(notify.wait().now_or_never().is_none());
    }

    #[test]
    fn a_count_wakes_those_that_it_has_reached_and_nobody_else() {
        let reached = Reached::default();
        let mut waits: Vec<ReachedWait> = (1..=4).map(|count| reached.wait(count)).collect();
        let mut ready =
            || -> Vec<bool> { waits.iter_mut().map(|wait| wait.now_or_never().is_some()).collect() };
        assert_eq!(ready(), [false; 4]);
        reached.wake_to(0);
        assert_eq!(reached.0.waiting.borrow().len(), 4, "nobody was woken");
        reached.wake_to(2);
        assert_eq!(ready(), [true, true, false, false]);
        reached.wake_all();
        assert_eq!(ready(), [true; 4]);
        let mut dropped = reached.wait(9);
        assert!((&mut dropped).now_or_never().is_none());
        drop(dropped);
        assert!(reached.0.waiting.borrow().is_empty());
    }

    #[test]
    fn a_dropped_wait_leaves_no_waker() {
        let notify = Notify::default();
        let mut wait = notify.wait();
        assert!((&mut wait).now_or_never().is_none());
        assert_eq!(notify.0.waiting.borrow().len(), 1);
        drop(wait);
        assert!(notify.0.waiting.borrow().is_empty());
    }
}
