//! The tasks of a shard. The list lets the shard end cleanly (its requests finish first) or at once.

use shoal_env::local::Notify;
use shoal_env::{Env, Task};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;

#[derive(Default)]
struct State {
    next: Cell<u64>,
    /// `None`: spawned and not entered yet.
    running: RefCell<BTreeMap<u64, Option<Task>>>,
    ended: Notify,
    closed: Cell<bool>,
}

/// A set of running tasks.
#[derive(Clone, Default)]
pub struct Tasks(Rc<State>);

impl Tasks {
    /// Run a task as one of this set. Once the set was cancelled nothing new begins.
    pub fn spawn(&self, env: &Env, name: &'static str, future: impl Future<Output = ()> + 'static) {
        if self.0.closed.get() {
            return;
        }
        let id = self.0.next.get();
        self.0.next.set(id + 1);
        self.0.running.borrow_mut().insert(id, None);
        let state = self.0.clone();
        let task = env.spawn(name, async move {
            future.await;
            state.running.borrow_mut().remove(&id);
            state.ended.wake_all();
        });
        if let Some(entry) = self.0.running.borrow_mut().get_mut(&id) {
            *entry = Some(task);
        }
    }

    /// How many run.
    pub fn len(&self) -> usize {
        self.0.running.borrow().len()
    }

    /// Whether none runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Wait until none runs.
    pub async fn all_ended(&self) {
        loop {
            let ended = self.0.ended.wait();
            if self.is_empty() {
                return;
            }
            ended.await;
        }
    }

    /// End all, at their next await.
    pub fn cancel(&self) {
        self.0.closed.set(true);
        for task in self.0.running.take().into_values().flatten() {
            task.cancel();
        }
    }
}
