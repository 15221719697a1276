//! Migratable worlds. A *world* is an event loop with its tasks, clock, sockets and files; a thread that
//! wakes a migratable world may also poll it.
//!
//! To wake a thread costs 20 to 40 µs, which is more than most work that it then does: a stat takes 5 µs. A
//! world made by [`spawn_migratable`](super::spawn_migratable) has a thread of its own, which waits for its
//! sockets and timers. But if *another* thread wakes the world, that thread may poll it, within
//! [`run_woken`]. Such a thread is an event loop that hands over a request, or a thread of a pool that made a
//! record durable.
//!
//! ```text
//!   a thread that wakes    enqueue, wake ──▶ poll the client's world ──▶ wake, poll the server's ──▶ …
//!   the client's thread    waits for sockets and timers
//!   the server's thread    waits for sockets and timers
//! ```
//!
//! A world's state decides which thread may poll it:
//!
//! ```text
//!            wake               the first thread to poll               ended, panicked
//!   IDLE ───────────▶ QUEUED ─────────────────────────────▶ RUNNING ─────────────────▶ ENDED
//!    ▲                  ▲                                    │   │ wake
//!    │                  └────────── own thread is woken ── AGAIN ◀┘
//!    └──────────────────────────────────────────────────────┘ no wake meanwhile
//! ```
//!
//! **Invariant: one thread at a time polls a world**: the thread that changed its state from `QUEUED` to
//! `RUNNING` (asserted in `run`). The changes to and from `RUNNING` order the accesses of one thread before
//! the accesses of the next thread. **Invariant: a queued world is polled**: a thread within [`run_woken`]
//! polls it next, or hands it to the world's own thread when it leaves `run_woken` in any way; or the world's
//! own thread is woken (test: `no_wake_is_lost_whoever_wakes`). Another thread polls a world once for a wake;
//! the world's own thread does the remaining work.
//!
//! **Within one `run_woken` a thread polls worlds one after the other and queues at most one**: a second
//! woken world goes to its own thread, on another core. A world that has waited for [`WAIT_MAX`] while the
//! thread polls another world also goes to its own thread.
//!
//! **Why several threads may poll a world in turn**: the body of a world creates all its values inside the
//! world, and values that are not `Send` stay inside. The code that started the world keeps none of them
//! (inputs and results are `Send`). No thread-local variable holds one (a test in `tests/house.rs` of the
//! `shoal` crate checks that code in worlds has no thread-local variable). The world's own thread also
//! keeps the environment itself, with the tasks' futures; it touches that only before the first poll and
//! after the end.

use futures_util::future::LocalBoxFuture;
use futures_util::task::AtomicWaker;
use std::any::Any;
use std::cell::{RefCell, UnsafeCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const AGAIN: u8 = 3;
const ENDED: u8 = 4;

/// Most worlds that a thread polls for one [`run_woken`]: two worlds may wake each other for ever.
const RUNS_MAX: usize = 16;
/// A world that waits longer than this, several wake-ups, for the end of another's poll goes to its own
/// thread.
const WAIT_MAX: Duration = Duration::from_micros(200);

thread_local! {
    /// The world that this thread woke within [`run_woken`], and polls next; `None`: not within.
    static WOKEN: RefCell<Option<Woken>> = const { RefCell::new(None) };
}

/// The work of a thread within [`run_woken`].
#[derive(Default)]
struct Woken {
    /// At most one: other cores can poll further ones at once.
    next: Option<(Arc<World>, Instant)>,
}

/// One world. See the module.
pub(super) struct World {
    state: AtomicU8,
    /// The body and all tasks; `None` after the end.
    root: UnsafeCell<Option<LocalBoxFuture<'static, ()>>>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Its own thread.
    own: AtomicWaker,
    runtime: Handle,
}

// SAFETY: `root` is the only part that is not `Send` and `Sync` by itself. Only the thread that moved
// `state` to `RUNNING` reaches it (`run`), and the world's own thread after the end (`end`); `state` orders
// each access after the one before. The module's last paragraph says why one thread after the other may use
// its content.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

impl World {
    /// A new world, not yet polled; its own thread drives it ([`World::own`]) within the runtime `runtime`.
    pub(super) fn new(root: LocalBoxFuture<'static, ()>, runtime: Handle) -> Arc<World> {
        Arc::new(World {
            state: AtomicU8::new(QUEUED),
            root: UnsafeCell::new(Some(root)),
            panic: Mutex::default(),
            own: AtomicWaker::new(),
            runtime,
        })
    }

    /// The future that the world's own thread awaits until the world's end.
    pub(super) fn own(self: &Arc<World>) -> Own<'_> {
        Own(self)
    }

    /// Poll it, if it is queued.
    fn run(self: &Arc<World>) {
        if self.state.compare_exchange(QUEUED, RUNNING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        let waker = Waker::from(self.clone());
        let polled = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: this thread moved the state to `RUNNING`, so it alone is here.
            let root = unsafe { &mut *self.root.get() };
            root.as_mut().map_or(Poll::Ready(()), |root| root.as_mut().poll(&mut Context::from_waker(&waker)))
        }));
        match polled {
            Ok(Poll::Pending) => {
                let Err(state) =
                    self.state.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire)
                else {
                    return;
                };
                debug_assert_eq!(state, AGAIN, "only this thread leaves `RUNNING`");
                self.state.store(QUEUED, Ordering::Release);
            }
            Ok(Poll::Ready(())) => self.state.store(ENDED, Ordering::Release),
            Err(panic) => {
                *self.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
                self.state.store(ENDED, Ordering::Release);
            }
        }
        self.own.wake();
    }

    /// Poll it on a thread other than its own.
    fn run_elsewhere(self: &Arc<World>) {
        // Sockets and timers made during the poll belong to its own runtime.
        let _entered = self.runtime.enter();
        self.run();
    }

    /// Drop the rest of it, on its own thread, after its end; resume the panic that ended it.
    fn end(&self) {
        debug_assert_eq!(self.state.load(Ordering::Acquire), ENDED);
        // SAFETY: after `ENDED` no thread polls it, and only its own thread comes here.
        drop(unsafe { (*self.root.get()).take() });
        let panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }
}

impl Wake for World {
    fn wake(self: Arc<World>) {
        let mut state = self.state.load(Ordering::Acquire);
        loop {
            let next = match state {
                IDLE => QUEUED,
                RUNNING => AGAIN,
                _ => return,
            };
            match self.state.compare_exchange_weak(state, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if next == QUEUED => break,
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
        // A thread that ends has no list any more.
        let is_next_here = WOKEN.try_with(|woken| match &mut *woken.borrow_mut() {
            Some(Woken { next: next @ None }) => {
                *next = Some((self.clone(), Instant::now()));
                true
            }
            _ => false,
        });
        if !is_next_here.unwrap_or(false) {
            self.own.wake();
        }
    }
}

/// See [`World::own`].
pub(super) struct Own<'a>(&'a Arc<World>);

impl Drop for Own<'_> {
    fn drop(&mut self) {
        // Otherwise the runtime panicked, as it does if the kernel's poll fails, and another thread may be
        // polling the futures that this would drop. A panic during unwinding ends the process.
        assert_eq!(self.0.state.load(Ordering::Acquire), ENDED, "a world outlived its runtime");
    }
}

impl Future for Own<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let world = self.0;
        // Register before reading the state: a thread that ends a poll elsewhere changes the state, then
        // wakes.
        world.own.register(cx.waker());
        world.run();
        if world.state.load(Ordering::Acquire) != ENDED {
            return Poll::Pending;
        }
        world.end();
        Poll::Ready(())
    }
}

/// Run `body`, and then, on this thread, the worlds of [`spawn_migratable`](super::spawn_migratable) that
/// it woke and that no other thread runs. Do not call it on a thread that another world waits for.
pub fn run_woken<T>(body: impl FnOnce() -> T) -> T {
    let Some(left) = Left::outermost() else { return body() };
    let value = body();
    left.run();
    value
}

/// Between two polls of a world's tasks: if another world has waited too long for the end of this poll,
/// wake its own thread.
pub(super) fn between_turns() {
    let late =
        WOKEN.with_borrow_mut(|woken| woken.as_mut()?.next.take_if(|(_, since)| since.elapsed() >= WAIT_MAX));
    if let Some((world, _)) = late {
        world.own.wake();
    }
}

/// Leaves [`run_woken`]: hands the queued world to its own thread.
struct Left;

impl Left {
    /// `None`: this thread is in [`run_woken`] already.
    fn outermost() -> Option<Left> {
        WOKEN.with_borrow_mut(|woken| match woken {
            Some(_) => None,
            None => {
                *woken = Some(Woken::default());
                Some(Left)
            }
        })
    }

    /// Run the worlds that were woken.
    fn run(self) {
        for _ in 0..RUNS_MAX {
            let Some((world, _)) = WOKEN.with_borrow_mut(|woken| woken.as_mut()?.next.take()) else { break };
            world.run_elsewhere();
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let left = WOKEN.with_borrow_mut(Option::take);
        if let Some((world, _)) = left.and_then(|woken| woken.next) {
            world.own.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::spawn_migratable;
    use super::{RUNS_MAX, run_woken};
    use crate::{Address, Env};
    use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
    use futures_util::StreamExt;
    use std::io::IoSlice;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread::{JoinHandle, ThreadId, current};
    use std::time::Duration;

    /// A world that calls `each` for each message, until there are none.
    fn world<T: Send + 'static>(
        mut each: impl FnMut(&Env, T) + Send + 'static,
    ) -> (UnboundedSender<T>, JoinHandle<u64>) {
        let (send, mut receive): (_, UnboundedReceiver<T>) = unbounded();
        let thread = spawn_migratable("roams", move |env| async move {
            let mut done = 0;
            while let Some(message) = receive.next().await {
                each(&env, message);
                done += 1;
            }
            done
        });
        (send, thread.unwrap())
    }

    #[test]
    fn what_a_thread_wakes_within_here_has_run_on_it_when_it_goes_on_and_else_on_its_own() {
        let (report, threads) = std::sync::mpsc::channel::<ThreadId>();
        let (send, thread) = world(move |_, ()| report.send(current().id()).unwrap());
        send.unbounded_send(()).unwrap();
        assert_eq!(threads.recv().unwrap(), thread.thread().id());
        // It may not have gone to sleep yet: then its own thread polls it.
        let ran_here = (0..10_000).any(|_| {
            run_woken(|| send.unbounded_send(()).unwrap());
            threads.recv().unwrap() == current().id()
        });
        assert!(ran_here);
        run_woken(|| send.unbounded_send(()).unwrap());
        drop(send);
        assert!(thread.join().unwrap() >= 3);
    }

    #[test]
    fn no_wake_is_lost_whoever_wakes() {
        const EACH: u64 = 20_000;
        let sum = Arc::new(AtomicU64::new(0));
        let total = sum.clone();
        let (send, thread) = world(move |_, n| {
            total.fetch_add(n, Ordering::Relaxed);
        });
        std::thread::scope(|scope| {
            for at in 0..4 {
                let send = send.clone();
                scope.spawn(move || {
                    for n in 0..EACH {
                        match at % 2 {
                            0 => run_woken(|| send.unbounded_send(n).unwrap()),
                            _ => send.unbounded_send(n).unwrap(),
                        }
                    }
                });
            }
        });
        drop(send);
        assert_eq!(thread.join().unwrap(), 4 * EACH);
        assert_eq!(sum.load(Ordering::Relaxed), 4 * EACH * (EACH - 1) / 2);
    }

    #[test]
    fn worlds_that_wake_each_other_let_the_thread_go_on_and_their_own_do_the_rest() {
        const TURNS: u64 = 10_000;
        let (to_one, at_one) = unbounded::<u64>();
        let (to_two, at_two) = unbounded::<u64>();
        let main = current().id();
        let counts_down = |mut from: UnboundedReceiver<u64>, to: UnboundedSender<u64>| {
            let thread = spawn_migratable("counts down", move |_| async move {
                let (mut turns, mut on_main) = (0, 0);
                while let Some(left) = from.next().await {
                    turns += 1;
                    on_main += usize::from(current().id() == main);
                    if left == 0 || to.unbounded_send(left - 1).is_err() {
                        break;
                    }
                }
                (turns, on_main)
            });
            thread.unwrap()
        };
        let one = counts_down(at_one, to_two);
        let two = counts_down(at_two, to_one.clone());
        run_woken(|| to_one.unbounded_send(TURNS).unwrap());
        drop(to_one);
        let (one, two) = (one.join().unwrap(), two.join().unwrap());
        assert_eq!(one.0 + two.0, TURNS + 1);
        assert!(one.1 + two.1 <= RUNS_MAX);
    }

    #[test]
    fn a_panic_on_another_thread_is_the_worlds_own() {
        let (send, thread) = world(|_, is_bad: bool| assert!(!is_bad, "the reason"));
        for _ in 0..1000 {
            run_woken(|| send.unbounded_send(false).unwrap());
        }
        run_woken(|| send.unbounded_send(true).unwrap());
        let panic = thread.join().unwrap_err();
        assert!(format!("{:?}", panic.downcast_ref::<&str>()).contains("the reason"));
        // The world has ended.
        run_woken(|| drop(send.unbounded_send(false)));
    }

    #[test]
    fn sockets_and_timers_made_on_another_thread_are_the_worlds_own() {
        let (report, done) = std::sync::mpsc::channel::<()>();
        let (send, thread) = world(move |env: &Env, n: u16| {
            let (env, report) = (env.clone(), report.clone());
            let inner = env.clone();
            drop(env.spawn("speaks", async move {
                let mut listener = inner.listen(&Address::Tcp(([127, 0, 0, 1], 0).into())).await.unwrap();
                let mut stream = inner.connect(&listener.address()).await.unwrap();
                let mut other = listener.accept().await.unwrap();
                inner.sleep(Duration::from_millis(1)).await;
                let words = n.to_le_bytes();
                stream.writer.write_all(&mut [IoSlice::new(&words)]).await.unwrap();
                let mut buf = [0; 2];
                assert_eq!(other.reader.read(&mut buf).await.unwrap(), 2);
                assert_eq!(buf, words);
                report.send(()).unwrap();
            }));
        });
        for n in 0..50 {
            run_woken(|| send.unbounded_send(n).unwrap());
            done.recv().unwrap();
        }
        drop(send);
        assert_eq!(thread.join().unwrap(), 50);
    }
}
