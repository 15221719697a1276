//! An object store in memory, for tests. File systems in different threads and worlds can share it.
//!
//! It can fail requests, lose their answers, delay them, stop answering at a given change (as if the process
//! had ended), and list changes late. As in real stores, the version tag of an object is a hash of its
//! bytes: if an object gets earlier bytes again, it also gets the earlier tag again. Delays and times come
//! from the environment ([`Env`]) of the file system that sends the request.

use crate::store::{Keys, Meta, ObjectBytes, Reaches, Refusal, Reply, Store, Tag, When};
use bytes::Bytes;
use shoal_env::{Env, Instant};
use shoal_proto::Time;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The behaviour of the store. By default each request succeeds without delay.
#[derive(Clone, Debug, Default)]
pub struct Conduct {
    /// Each request takes this long.
    pub delay: Duration,
    /// Bytes per second of a put; 0: unlimited.
    pub rate: u64,
    /// Every n-th request (n: this value) fails, is not carried out, and may succeed if repeated. 0: none.
    pub fails_each: u64,
    /// Every n-th request is carried out, but its answer is lost. 0: none.
    pub loses_each: u64,
    /// Every n-th put or removal fails, and is carried out this long after the request failed. 0: none.
    pub late_each: (u64, Duration),
    /// After this many changes (puts and removals) the next change gets no answer, and no request after it
    /// does: the process ended.
    pub ends_after: Option<u64>,
    /// For this long after a change, listings show the object as it was before. Further changes of the object
    /// in this time do not extend it.
    pub lists_late: Duration,
    /// All requests fail with this error.
    pub refuses: Option<Refusal>,
    /// Conditions of puts are ignored, as by old stores.
    pub ignores_conditions: bool,
    /// Removals succeed, but the object stays.
    pub ignores_removals: bool,
}

impl Conduct {
    fn time_of(&self, bytes: usize) -> Duration {
        let slow = (bytes as u64 * 1000).checked_div(self.rate).unwrap_or(0);
        self.delay + Duration::from_millis(slow)
    }
}

/// See the module. Clones share it.
#[derive(Clone, Default)]
pub struct MemoryStore(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Object>,
    /// For [`Conduct::lists_late`]: for each key, the state that listings show, and until when.
    late: BTreeMap<String, (Option<Object>, Instant)>,
    requests: u64,
    changes: u64,
    conduct: Conduct,
    has_ended: bool,
}

#[derive(Clone)]
struct Object {
    data: Bytes,
    modified: Time,
}

impl Object {
    fn tag(&self) -> Tag {
        let mut sum = DefaultHasher::new();
        self.data.hash(&mut sum);
        Tag(format!("\"{:016x}\"", sum.finish()))
    }

    fn meta(&self, key: &str) -> Meta {
        let (size, tag) = (self.data.len() as u64, self.tag());
        Meta { key: key.to_owned(), size, tag, modified: self.modified }
    }
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Set the behaviour from now on. All counts begin at 0 again.
    pub fn conduct(&self, conduct: Conduct) {
        let mut state = self.lock();
        (state.conduct, state.requests, state.changes, state.has_ended) = (conduct, 0, 0, false);
    }

    /// Whether the store has stopped answering ([`Conduct::ends_after`]).
    pub fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Changes since [`Memory::conduct`].
    pub fn changes(&self) -> u64 {
        self.lock().changes
    }

    /// The keys and the objects.
    pub fn objects(&self) -> BTreeMap<String, Bytes> {
        let state = self.lock();
        state.objects.iter().map(|(key, object)| (key.clone(), object.data.clone())).collect()
    }

    /// Put or remove an object, as another program would.
    pub fn set(&self, key: &str, data: Option<Bytes>) {
        let mut state = self.lock();
        match data {
            Some(data) => {
                state.objects.insert(key.to_owned(), Object { data, modified: Time(0) });
            }
            None => drop(state.objects.remove(key)),
        }
    }
}

impl Reaches for MemoryStore {
    fn reach(&self, env: &Env) -> Result<Rc<dyn Store>, String> {
        Ok(Rc::new(Reached { memory: self.clone(), env: env.clone() }))
    }
}

/// The store, with the environment of one file system.
struct Reached {
    memory: MemoryStore,
    env: Env,
}

/// The outcome of a request.
enum Fate {
    Done,
    NotDone,
    AnswerLost,
    Late(Duration),
    Silence,
}

impl Reached {
    fn request<T: 'static>(
        &self,
        changes: bool,
        bytes: usize,
        work: impl FnOnce(&mut State, Instant, Time) -> Result<T, Refusal> + 'static,
    ) -> Reply<T> {
        let (memory, env) = (self.memory.clone(), self.env.clone());
        Box::pin(async move {
            let delay = memory.lock().conduct.time_of(bytes);
            if !delay.is_zero() {
                env.sleep(delay).await;
            }
            let (done, fate) = {
                let mut state = memory.lock();
                let fate = state.fate(changes);
                if let Some(refusal) = state.conduct.refuses.clone() {
                    return Err(refusal);
                }
                match fate {
                    Fate::Done | Fate::AnswerLost => (work(&mut state, env.now(), Time(env.wall().0)), fate),
                    Fate::Late(after) => {
                        let (memory, world) = (memory.clone(), env.clone());
                        env.spawn("a late request", async move {
                            world.sleep(after).await;
                            drop(work(&mut memory.lock(), world.now(), Time(world.wall().0)));
                        });
                        (Err(Refusal::Passing("the request failed".to_owned())), fate)
                    }
                    _ => (Err(Refusal::Passing("the request failed".to_owned())), fate),
                }
            };
            match fate {
                Fate::Done | Fate::NotDone | Fate::Late(_) => done,
                Fate::AnswerLost => Err(Refusal::Passing("the answer was lost".to_owned())),
                Fate::Silence => std::future::pending().await,
            }
        })
    }
}

impl State {
    fn fate(&mut self, changes: bool) -> Fate {
        let is_over = changes && self.conduct.ends_after.is_some_and(|most| self.changes >= most);
        self.has_ended |= is_over;
        if self.has_ended {
            return Fate::Silence;
        }
        self.requests += 1;
        self.changes += u64::from(changes);
        let (late, after) = self.conduct.late_each;
        let is_each = |each: u64| each > 0 && self.requests.is_multiple_of(each);
        match () {
            () if is_each(self.conduct.fails_each) => Fate::NotDone,
            () if is_each(self.conduct.loses_each) => Fate::AnswerLost,
            () if changes && late > 0 && self.changes.is_multiple_of(late) => Fate::Late(after),
            () => Fate::Done,
        }
    }

    /// Before a change of a key: listings still show its present state for [`Conduct::lists_late`].
    fn shows(&mut self, key: &str, now: Instant) {
        if self.conduct.lists_late.is_zero() {
            return;
        }
        let (until, shown) = (now + self.conduct.lists_late, self.objects.get(key).cloned());
        if self.late.get(key).is_none_or(|(_, until)| *until <= now) {
            self.late.insert(key.to_owned(), (shown, until));
        }
    }

    fn listed(&self, now: Instant) -> BTreeMap<String, Object> {
        let mut all = self.objects.clone();
        for (key, (object, until)) in &self.late {
            match object {
                _ if *until <= now => {}
                Some(object) => drop(all.insert(key.clone(), object.clone())),
                None => drop(all.remove(key)),
            }
        }
        all
    }
}

impl Store for Reached {
    fn called(&self) -> String {
        "memory".to_owned()
    }

    fn put(&self, key: &str, data: Bytes, when: When) -> Reply<Tag> {
        let key = key.to_owned();
        self.request(true, data.len(), move |state, now, modified| {
            let present = state.objects.get(&key);
            let holds = match &when {
                When::Absent => present.is_none(),
                When::Is(tag) => present.is_some_and(|object| object.tag() == *tag),
            };
            if !holds && !state.conduct.ignores_conditions {
                return Err(Refusal::Condition);
            }
            state.shows(&key, now);
            let object = Object { data, modified };
            let tag = object.tag();
            state.objects.insert(key, object);
            Ok(tag)
        })
    }

    fn get(&self, key: &str, range: Range<u64>) -> Reply<ObjectBytes> {
        let key = key.to_owned();
        self.request(false, 0, move |state, _, _| {
            let object = state.objects.get(&key).ok_or(Refusal::Absent)?;
            let len = object.data.len() as u64;
            if range.start >= len {
                return Err(Refusal::Other("the range is not in the object".to_owned()));
            }
            let data = object.data.slice(range.start as usize..range.end.min(len) as usize);
            Ok(ObjectBytes { data, tag: object.tag() })
        })
    }

    fn list(&self, prefix: &str, after: Option<&str>, most: usize) -> Reply<Keys> {
        let (prefix, after) = (prefix.to_owned(), after.map(str::to_owned));
        self.request(false, 0, move |state, now, _| {
            let listed;
            let all = if state.late.is_empty() {
                &state.objects
            } else {
                listed = state.listed(now);
                &listed
            };
            let from = after.clone().unwrap_or_else(|| prefix.clone());
            let is_after = |key: &String| after.as_ref().is_none_or(|after| key > after);
            let mut found: Vec<Meta> = all
                .range(from..)
                .filter(|(key, _)| is_after(key))
                .take_while(|(key, _)| key.starts_with(&prefix))
                .take(most + 1)
                .map(|(key, object)| object.meta(key))
                .collect();
            let has_more = found.len() > most;
            found.truncate(most);
            Ok(Keys { found, has_more })
        })
    }

    fn delete(&self, key: &str) -> Reply<()> {
        let key = key.to_owned();
        self.request(true, 0, move |state, now, _| {
            if !state.conduct.ignores_removals {
                state.shows(&key, now);
                state.objects.remove(&key);
            }
            Ok(())
        })
    }
}
