//! A few threads for calls that may block. A thread is started when there is work and no thread is free.
//!
//! A job crosses by a queue under one lock, and its result by a one-shot channel whose waker belongs to a
//! task of the environment. Jobs start in order; nothing orders their ends. **Of the idle threads, the one
//! that worked last is woken**: its stack and its core's caches are warm.

use super::migratable::run_woken;
use futures_channel::oneshot;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};

type Job = Box<dyn FnOnce() + Send>;

/// Niceness of threads that give way.
const NICE: i32 = 10;

/// See the module.
pub(super) struct Pool {
    name: String,
    threads_max: usize,
    gives_way: bool,
    shared: Arc<Shared>,
    threads: RefCell<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// Threads that sleep, the one that worked last at the end. Code that takes one from here wakes it.
    idle: Vec<Thread>,
    ended: bool,
}

impl Shared {
    /// Jobs run outside the lock and catch their panics, so a poisoned lock still guards a sound state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    pub(super) fn new(name: String, threads_max: usize) -> Pool {
        Pool { name, threads_max, gives_way: false, shared: Arc::default(), threads: RefCell::default() }
    }

    /// Its threads run only when no others want to.
    pub(super) fn that_gives_way(mut self) -> Pool {
        self.gives_way = true;
        self
    }

    /// Run `work` on a thread of the pool, beginning now even if the result is not awaited. The result is
    /// an error if `work` panicked or the pool ended first.
    pub(super) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (send, receive) = oneshot::channel();
        let job: Job = Box::new(move || drop(send.send(work())));
        let mut state = self.shared.lock();
        if state.ended {
            return receive;
        }
        state.queue.push_back(job);
        let idle = state.idle.pop();
        drop(state);
        match idle {
            Some(idle) => idle.unpark(),
            None => self.start_thread(),
        }
        receive
    }

    fn start_thread(&self) {
        let mut threads = self.threads.borrow_mut();
        if threads.len() >= self.threads_max {
            return;
        }
        let (shared, gives_way) = (self.shared.clone(), self.gives_way);
        let thread = std::thread::Builder::new().name(self.name.clone()).spawn(move || {
            if gives_way {
                // Linux keeps niceness per thread. If it is refused, the thread is an ordinary one.
                let _ = rustix::process::nice(NICE);
            }
            serve(&shared, !gives_way);
        });
        match thread {
            Ok(thread) => threads.push(thread),
            Err(_) if !threads.is_empty() => {}
            // There is no thread at all: run the call here, blocking.
            Err(_) => {
                let job = self.shared.lock().queue.pop_front();
                if let Some(job) = job {
                    job();
                }
            }
        }
    }

    /// Let running jobs end, drop the waiting ones, and join the threads.
    pub(super) fn end(&self) {
        let (waiting, idle) = {
            let mut state = self.shared.lock();
            state.ended = true;
            (std::mem::take(&mut state.queue), std::mem::take(&mut state.idle))
        };
        drop(waiting);
        idle.iter().for_each(Thread::unpark);
        for thread in self.threads.take() {
            // The panic hook has already reported the thread's panic.
            drop(thread.join());
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.end();
    }
}

/// Run jobs; `goes_on`: and poll the worlds that they wake.
fn serve(shared: &Shared, goes_on: bool) {
    let mut state = shared.lock();
    while !state.ended {
        if let Some(job) = state.queue.pop_front() {
            // Waiting jobs come first.
            let goes_on = goes_on && state.queue.is_empty();
            drop(state);
            let job = || drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)));
            if goes_on {
                run_woken(job)
            } else {
                job()
            }
            state = shared.lock();
        } else {
            let this = std::thread::current();
            state.idle.push(this.clone());
            // A spurious wake leaves it among the idle.
            while state.idle.iter().any(|idle| idle.id() == this.id()) {
                drop(state);
                std::thread::park();
                state = shared.lock();
            }
        }
    }
}
