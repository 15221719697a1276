//! Invalidation of the kernel's cached pages and attributes of files.
//!
//! The kernel may delay the invalidation of a page until a read that is filling the page has ended, and a
//! read from a server that does not answer ends only by its time limit. **So files do not wait for each
//! other**: each file has a thread of its own while it is invalidated.
//!
//! ```text
//!   file 51  ── thread 1: waits for a page …             later invalidations of file 51 wait for thread 1
//!   file 52  ── thread 2 ── done ── file 53 ── done      a thread without a file is used again, or ends
//! ```
//! The number of threads is bounded ([`THREADS_MAX`]). A file waits for another file only if all these
//! threads are delayed.

use crate::fs::{Invalidate, Untrue};
use futures_channel::oneshot;
use shoal_proto::Handle;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Files that are invalidated at once, at most. A delayed one is a file that a program reads from a silent
/// server.
const THREADS_MAX: usize = 256;
/// Bytes of such a thread's stack: it makes one system call.
const STACK_BYTES: usize = 128 << 10;

type Tell = Arc<dyn Fn(Handle, Untrue) + Send + Sync>;

/// The pending invalidations of one file, and their waiters.
struct Said {
    untrue: Untrue,
    waiters: Vec<oneshot::Sender<()>>,
}

#[derive(Default)]
struct State {
    tell: Option<Tell>,
    ended: bool,
    /// Of which files there is something to say.
    said: HashMap<Handle, Said>,
    /// Those of them of which nothing is being said.
    queue: VecDeque<Handle>,
    /// Of which something is being said.
    busy: Vec<Handle>,
    threads: usize,
    idle: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

/// See the module's page. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Forgetting(Arc<Shared>);

impl Forgetting {
    /// Invalidations can be sent to the kernel from now on, by `tell`.
    pub(crate) fn begin(&self, tell: impl Fn(Handle, Untrue) + Send + Sync + 'static) {
        let mut state = self.0.lock();
        state.tell = Some(Arc::new(tell));
        for _ in 0..state.queue.len() {
            self.0.set_to_work(&mut state);
        }
    }

    /// The mount has ended, and with it the kernel's pages.
    pub(crate) fn end(&self) {
        let mut state = self.0.lock();
        state.ended = true;
        state.said.clear();
        state.queue.clear();
        self.0.work.notify_all();
    }

    /// As the mount's state uses it.
    pub(crate) fn invalidate(&self) -> Invalidate {
        let shared = self.0.clone();
        Rc::new(move |object, untrue| {
            let (done, wait) = oneshot::channel();
            shared.say(object, untrue, done);
            Box::pin(async move {
                // Not answered where the mount has ended.
                let _ = wait.await;
            })
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No panic leaves it half changed: code under the lock does not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(self: &Arc<Shared>, object: Handle, untrue: Untrue, done: oneshot::Sender<()>) {
        let mut state = self.lock();
        if state.ended {
            return;
        }
        if let Some(said) = state.said.get_mut(&object) {
            said.waiters.push(done);
            if untrue == Untrue::Pages {
                said.untrue = untrue;
            }
            return;
        }
        state.said.insert(object, Said { untrue, waiters: vec![done] });
        if !state.busy.contains(&object) {
            state.queue.push_back(object);
            self.set_to_work(&mut state);
        }
    }

    /// Ensure that a thread takes the queued files.
    fn set_to_work(self: &Arc<Shared>, state: &mut State) {
        if state.idle >= state.queue.len() {
            self.work.notify_one();
            return;
        }
        if state.threads == THREADS_MAX || state.tell.is_none() {
            return;
        }
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("shoal-forget".to_owned()).stack_size(STACK_BYTES);
        match thread.spawn(move || shared.work()) {
            Ok(_) => state.threads += 1,
            Err(error) => tracing::error!("no thread to tell the kernel what to forget: {error}"),
        }
    }

    /// A thread's life: one file after the other. The last one without a file stays.
    fn work(self: Arc<Shared>) {
        let mut state = self.lock();
        loop {
            let Some(object) = state.queue.pop_front() else {
                if state.ended || state.idle > 0 {
                    break;
                }
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            let (Some(said), Some(tell)) = (state.said.remove(&object), state.tell.clone()) else { continue };
            state.busy.push(object);
            drop(state);
            tell(object, said.untrue);
            for waiter in said.waiters {
                // A waiter that has gone needs no answer.
                let _ = waiter.send(());
            }
            state = self.lock();
            state.busy.retain(|busy| *busy != object);
            if state.said.contains_key(&object) {
                state.queue.push_back(object);
            }
        }
        state.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::LocalBoxFuture;
    use std::sync::mpsc;

    /// Files from this one on make the kernel wait.
    const SLOW: u64 = 100;

    fn wait(invalidated: LocalBoxFuture<'static, ()>) {
        shoal_env::real::run("forgetting", |_| invalidated);
    }

    /// The invalidations sent, and the senders that let the slow ones continue, one each.
    fn forgetting() -> (Forgetting, mpsc::Receiver<(Handle, Untrue)>, mpsc::Sender<()>) {
        let (told, all) = mpsc::channel();
        let (go_on, gate) = mpsc::channel();
        let (told, gate) = (Mutex::new(told), Mutex::new(gate));
        let forgetting = Forgetting::default();
        forgetting.begin(move |object, untrue| {
            told.lock().unwrap().send((object, untrue)).unwrap();
            if object.0 >= SLOW {
                let _ = gate.lock().unwrap().recv();
            }
        });
        (forgetting, all, go_on)
    }

    #[test]
    fn a_file_that_the_kernel_waits_for_delays_no_other_file() {
        let (forgetting, all, go_on) = forgetting();
        let invalidate = forgetting.invalidate();
        let slow = invalidate(Handle(SLOW), Untrue::Pages);
        assert_eq!(all.recv().unwrap(), (Handle(SLOW), Untrue::Pages));
        // As many as there is room for besides.
        for object in 1..2 * THREADS_MAX as u64 {
            let object = object % SLOW;
            wait(invalidate(Handle(object), Untrue::Pages));
            assert_eq!(all.recv().unwrap(), (Handle(object), Untrue::Pages));
        }
        go_on.send(()).unwrap();
        wait(slow);
        forgetting.end();
    }

    #[test]
    fn what_is_said_of_a_file_that_the_kernel_waits_for_is_said_once_and_afterwards() {
        let (forgetting, all, go_on) = forgetting();
        let invalidate = forgetting.invalidate();
        let first = invalidate(Handle(SLOW), Untrue::Attributes);
        assert_eq!(all.recv().unwrap(), (Handle(SLOW), Untrue::Attributes));
        let more = [Untrue::Attributes, Untrue::Pages, Untrue::Attributes]
            .map(|what| invalidate(Handle(SLOW), what));
        (0..2).for_each(|_| go_on.send(()).unwrap());
        wait(first);
        more.into_iter().for_each(wait);
        assert_eq!(all.recv().unwrap(), (Handle(SLOW), Untrue::Pages));
        assert!(all.try_recv().is_err(), "it is said once");
        forgetting.end();
    }

    #[test]
    fn nobody_waits_when_the_mount_has_ended() {
        let (forgetting, all, go_on) = forgetting();
        let invalidate = forgetting.invalidate();
        let first = invalidate(Handle(SLOW), Untrue::Pages);
        all.recv().unwrap();
        let second = invalidate(Handle(SLOW), Untrue::Pages);
        forgetting.end();
        wait(second);
        wait(invalidate(Handle(1), Untrue::Pages));
        go_on.send(()).unwrap();
        wait(first);
    }
}
