//! A store over another one that holds a request, for tests.

use bytes::Bytes;
use shoal_env::Env;
use shoal_objects::{
    Keys, MemoryStore, ObjectBytes, Objects, ObjectsOptions, Reaches, Refusal, Reply, Store, Tag, When,
};
use shoal_vfs::Connect;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A store that does not begin one request of a kind, with a text in its key, until it is let go.
#[derive(Clone)]
pub struct Held {
    memory: MemoryStore,
    pub gate: Arc<Mutex<Gate>>,
}

/// The request that is held.
#[derive(Default)]
pub struct Gate {
    verb: &'static str,
    part: String,
    /// Requests of the kind that pass before.
    passing: u32,
    /// It was reached, and later ones pass.
    is_reached: bool,
    /// The one that is held may go on.
    is_open: Arc<AtomicBool>,
    /// It is done, and then held; its answer is lost.
    pub loses: bool,
    /// It is done, and then its answer is held.
    is_slow: bool,
}

struct HeldStore {
    store: Rc<dyn Store>,
    env: Env,
    gate: Arc<Mutex<Gate>>,
}

impl Held {
    /// Over this one.
    pub fn new(memory: &MemoryStore) -> Held {
        Held { memory: memory.clone(), gate: Arc::new(Mutex::new(Gate::default())) }
    }

    /// A file system over it.
    pub async fn mount(&self, env: &Env) -> Objects {
        ObjectsOptions::new(self.clone(), "").connect(env.clone()).await.unwrap()
    }

    /// Hold a request from now on.
    pub fn hold(&self, verb: &'static str, part: &str, passing: u32) {
        *self.gate.lock().unwrap() = Gate { verb, part: part.to_owned(), passing, ..Gate::default() };
    }

    /// Do such a request, and hold its answer.
    pub fn hold_answer(&self, verb: &'static str, part: &str, passing: u32) {
        self.hold(verb, part, passing);
        self.gate.lock().unwrap().is_slow = true;
    }

    /// Whether the request was begun.
    pub fn is_reached(&self) -> bool {
        self.gate.lock().unwrap().is_reached
    }

    /// Do the work while a request is held.
    pub async fn meanwhile(&self, env: &Env, work: impl AsyncFnOnce()) {
        while !self.is_reached() {
            env.sleep(Duration::from_millis(1)).await;
        }
        let is_open = self.gate.lock().unwrap().is_open.clone();
        work().await;
        is_open.store(true, Ordering::Relaxed);
    }
}

impl Reaches for Held {
    fn reach(&self, env: &Env) -> Result<Rc<dyn Store>, String> {
        let store = self.memory.reach(env)?;
        Ok(Rc::new(HeldStore { store, env: env.clone(), gate: self.gate.clone() }))
    }
}

impl HeldStore {
    fn pass<T: 'static>(&self, verb: &str, key: &str, reply: Reply<T>) -> Reply<T> {
        let mut gate = self.gate.lock().unwrap();
        if gate.is_reached || gate.verb != verb || !key.contains(&gate.part) {
            return reply;
        }
        if gate.passing > 0 {
            gate.passing -= 1;
            return reply;
        }
        gate.is_reached = true;
        let (env, is_open, loses) = (self.env.clone(), gate.is_open.clone(), gate.loses);
        let is_slow = gate.is_slow;
        Box::pin(async move {
            let mut reply = Some(reply);
            if is_slow && let Some(reply) = reply.take() {
                let done = reply.await;
                while !is_open.load(Ordering::Relaxed) {
                    env.sleep(Duration::from_millis(1)).await;
                }
                return done;
            }
            if loses && let Some(reply) = reply.take() {
                drop(reply.await);
            }
            while !is_open.load(Ordering::Relaxed) {
                env.sleep(Duration::from_millis(1)).await;
            }
            match reply {
                Some(reply) => reply.await,
                None => Err(Refusal::Passing("the answer was lost".to_owned())),
            }
        })
    }
}

impl Store for HeldStore {
    fn called(&self) -> String {
        self.store.called()
    }

    fn put(&self, key: &str, data: Bytes, when: When) -> Reply<Tag> {
        self.pass("put", key, self.store.put(key, data, when))
    }

    fn get(&self, key: &str, range: Range<u64>) -> Reply<ObjectBytes> {
        self.pass("get", key, self.store.get(key, range))
    }

    fn list(&self, prefix: &str, after: Option<&str>, most: usize) -> Reply<Keys> {
        self.pass("list", prefix, self.store.list(prefix, after, most))
    }

    fn delete(&self, key: &str) -> Reply<()> {
        self.pass("delete", key, self.store.delete(key))
    }
}
