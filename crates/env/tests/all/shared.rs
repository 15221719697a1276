//! Worlds that many threads call: [`real::Runtime::shared`].

use futures_channel::oneshot;
use shoal_env::real::{Keeper, Runtime};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A world with a list of calls that wait for an answer.
struct World {
    runtime: Runtime,
    asked: RefCell<Vec<(u64, oneshot::Sender<u64>)>>,
    answered: Cell<u64>,
}

// SAFETY: a thread that has the turn uses it.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new() -> Arc<World> {
        let (asked, answered) = (RefCell::default(), Cell::default());
        Arc::new(World { runtime: Runtime::shared("shared"), asked, answered })
    }

    fn call<T>(&self, work: impl FnOnce(&World) -> T) -> T {
        let turn = self.runtime.turn().expect("it is shared");
        assert!(turn.take(Duration::from_secs(60)), "another thread has kept the turn");
        let done = catch_unwind(AssertUnwindSafe(|| work(self)));
        turn.give();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn ask(&self, n: u64) -> u64 {
        self.call(|world| {
            world.runtime.block_on(async {
                let (send, answer) = oneshot::channel();
                world.asked.borrow_mut().push((n, send));
                answer.await.expect("each call is answered")
            })
        })
    }

    /// Answer all calls that wait; how many there were.
    fn answer(&self) -> usize {
        self.call(|world| {
            let asked = world.runtime.block_on(async { world.asked.take() });
            world.answered.set(world.answered.get() + asked.len() as u64);
            let count = asked.len();
            asked.into_iter().for_each(|(n, send)| send.send(n * n).expect("it waits"));
            count
        })
    }
}

#[test]
fn calls_of_many_threads_wait_at_once_and_each_gets_its_own_answer() {
    const THREADS: u64 = 12;
    const CALLS: u64 = 300;
    let world = World::new();
    let left = AtomicUsize::new(THREADS as usize);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (world, left) = (world.clone(), &left);
            scope.spawn(move || {
                for call in 0..CALLS {
                    let n = thread * CALLS + call;
                    match n % 7 {
                        0 => world.call(|world| {
                            let env = world.runtime.env();
                            world.runtime.block_on(env.sleep(Duration::from_micros(n % 50)));
                        }),
                        _ => assert_eq!(world.ask(n), n * n),
                    }
                }
                left.fetch_sub(1, Ordering::Release);
            });
        }
        let mut answers_at_once = 0;
        while left.load(Ordering::Acquire) > 0 {
            answers_at_once = answers_at_once.max(world.answer());
            std::thread::yield_now();
        }
        assert!(answers_at_once > 1, "never two calls waited at once");
    });
    let asked = (0..THREADS * CALLS).filter(|n| n % 7 != 0).count() as u64;
    assert_eq!(world.answered.get(), asked);
}

#[test]
fn a_thread_that_waits_drives_the_tasks_and_timers_of_all() {
    let world = World::new();
    std::thread::scope(|scope| {
        // The one that comes first leads, and the other follows.
        let threads: Vec<_> = [20, 40]
            .map(|ms| {
                let world = world.clone();
                scope.spawn(move || {
                    world.call(|world| {
                        let env = world.runtime.env();
                        let (send, done) = oneshot::channel();
                        world.runtime.block_on(async {
                            let inner = env.clone();
                            drop(env.spawn("a timer", async move {
                                inner.sleep(Duration::from_millis(ms)).await;
                                let _ = send.send(ms);
                            }));
                            done.await
                        })
                    })
                })
            })
            .into_iter()
            .collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(ended, [Ok(20), Ok(40)]);
    });
}

#[test]
fn a_panic_is_its_own_callers_and_the_other_calls_go_on() {
    let world = World::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6_u64)
            .map(|n| {
                let world = world.clone();
                scope.spawn(move || {
                    let call = || {
                        world.call(|world| {
                            world.runtime.block_on(async {
                                let (send, answer) = oneshot::channel();
                                world.asked.borrow_mut().push((n, send));
                                let answer = answer.await.expect("each call is answered");
                                assert!(n % 2 == 0, "an odd one: {n}");
                                answer
                            })
                        })
                    };
                    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| panic.downcast::<String>().unwrap())
                })
            })
            .collect();
        let mut answered = 0;
        while answered < 6 {
            answered += world.answer();
        }
        for (n, thread) in threads.into_iter().enumerate() {
            match thread.join().unwrap() {
                Ok(answer) => assert_eq!((n % 2, answer), (0, (n * n) as u64)),
                Err(words) => assert_eq!(*words, format!("an odd one: {n}")),
            }
        }
    });
    assert_eq!(world.call(|world| world.runtime.block_on(async { 7 })), 7);
}

/// How often a state was kept and given.
#[derive(Default)]
struct Counts(Cell<u32>, Cell<u32>);

impl Keeper for Counts {
    fn keep(&self) {
        self.0.set(self.0.get() + 1);
    }

    fn give(&self) {
        self.1.set(self.1.get() + 1);
    }
}

#[test]
fn a_keeper_is_called_once_by_each_call_that_waits_and_at_its_end() {
    let world = World::new();
    let counts = Counts::default();
    let said = || (counts.0.get(), counts.1.get());
    world.call(|world| {
        let (env, turn) = (world.runtime.env(), world.runtime.turn().unwrap());
        let keeper: NonNull<dyn Keeper + '_> = NonNull::from(&counts);
        // SAFETY: it stays longer than the calls, and is taken out after them.
        let keeper = unsafe { std::mem::transmute::<NonNull<dyn Keeper + '_>, NonNull<dyn Keeper>>(keeper) };
        // SAFETY: this thread has the turn, and takes the keeper out.
        let set = |keeper| unsafe { turn.set_keeper(keeper) };
        assert!(set(Some(keeper)).is_none());
        world.runtime.block_on(async {});
        assert_eq!(said(), (0, 0), "it did not wait");
        for count in 1..=3 {
            world.runtime.block_on(async {
                env.sleep(Duration::from_micros(50)).await;
                assert_eq!(said(), (count, count - 1));
                env.sleep(Duration::from_micros(50)).await;
            });
            assert_eq!(said(), (count, count));
        }
        let panics = || {
            world.runtime.block_on(async {
                env.sleep(Duration::from_micros(50)).await;
                panic!("within");
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(said(), (4, 4));
        assert!(set(None).is_some());
        world.runtime.block_on(env.sleep(Duration::from_micros(50)));
        assert_eq!(said(), (4, 4), "it was there for the calls before");
    });
}

#[test]
fn a_panic_of_a_task_is_the_polling_threads_and_a_thread_that_leads_goes_on() {
    let world = World::new();
    std::thread::scope(|scope| {
        let leader = {
            let world = world.clone();
            scope.spawn(move || world.ask(3))
        };
        while world.call(|world| world.asked.borrow().is_empty()) {
            std::thread::yield_now();
        }
        // Polled by this thread, which follows; with it the leader's own call is ready.
        let call = || {
            world.call(|world| {
                world.runtime.block_on(async {
                    let env = world.runtime.env();
                    let asked = world.asked.take();
                    asked.into_iter().for_each(|(n, send)| send.send(n * n).expect("it waits"));
                    drop(env.spawn("panics", async { panic!("a task") }));
                    std::future::pending::<()>().await
                })
            })
        };
        let panic = catch_unwind(AssertUnwindSafe(call)).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"a task"));
        assert_eq!(leader.join().unwrap(), 9);
    });
    assert_eq!(world.call(|world| world.runtime.block_on(async { 7 })), 7);
}
