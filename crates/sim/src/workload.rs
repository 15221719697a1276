//! What each client does: random operations over the whole interface, each held at once against what is known.
//!
//! One family of operations a file. Names and objects are of three sorts: *own* ones, which one client alone changes (the
//! [`Ledger`] knows them exactly); *contended* names and attributes, which all change (each is a register, see
//! [`crate::register`]); *shared files*, which stay and whose bytes all write (see [`crate::contents`]). Everything is
//! noted **before** it is asked for, so a client that is killed in the middle leaves an operation of unknown outcome.
//!
//! How often which family is drawn is the seed's choice ([`mix`]).

mod attributes;
mod bytes;
mod contended;
mod descriptors;
mod held;
mod links;
mod listing;
mod mix;
mod names;
mod paths;
mod reading;
mod scene;
mod space;
mod wander;

pub(crate) use scene::Scene;

use crate::contents::Contents;
use crate::ledger::{Ledger, Object, ObjectId, Slot};
use crate::register::Event;
use crate::rng::Rng;
use mix::{Family, Mix};
use shoal_client::{Client, Error, OpenFile};
use shoal_env::{Env, Instant};
use shoal_proto::op::Owner;
use shoal_proto::{Handle, Name, Status};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Who makes everything.
pub(crate) const OWNER: Owner = Owner { mode: 0o755, uid: 1000, gid: 100 };
/// Beyond an operation's own timeout: what it may take to notice.
const LATE: Duration = Duration::from_secs(2);
/// Files a client holds open over several operations.
const OPEN_MAX: usize = 6;

/// What all clients of a run share, and what the faults tell the checks.
pub(crate) struct Shared {
    pub scene: Scene,
    pub timeout: Duration,
    /// How long clients may believe names and attributes.
    pub cache: Duration,
    mix: Mix,
    /// Moments at which a server may lose what was not synced: power cuts, failed syncs, and the end of a server behind one;
    /// counted **before** they happen.
    pub cuts: Cell<u64>,
    /// Moments at which a server loses its memory: kills, power cuts.
    pub kills: Cell<u64>,
    /// A disk may be full: `NoSpace` is an answer.
    pub may_be_full: Cell<bool>,
    /// Clients that are done.
    pub done: Cell<usize>,
    pub totals: RefCell<Totals>,
    pub ledger: RefCell<Ledger>,
    /// Contended names, and contended extended attributes (object, attribute).
    pub registers: RefCell<BTreeMap<Slot, Vec<Event>>>,
    pub values: RefCell<BTreeMap<Slot, Vec<Event>>>,
    /// Objects that lost their last name, acknowledged: whose they were, and when.
    pub removed: RefCell<Vec<(u16, u64)>>,
    pub violations: RefCell<Vec<String>>,
    /// Tells open files from each other.
    opens: Cell<u64>,
}

/// Counts of a run.
#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(crate) struct Totals {
    pub operations: u64,
    pub acknowledged: u64,
    pub refused: u64,
    pub unknown: u64,
    /// By operation: acknowledged, refused, unknown.
    pub kinds: BTreeMap<&'static str, [u64; 3]>,
    /// Every operation in a line, in the order of their ends.
    pub history: Vec<String>,
}

impl Shared {
    pub fn new(seed: u64, scene: Scene, ledger: Ledger, timeout: Duration, cache: Duration) -> Shared {
        Shared {
            scene,
            timeout,
            cache,
            mix: Mix::of_seed(seed),
            cuts: Cell::default(),
            kills: Cell::default(),
            may_be_full: Cell::default(),
            done: Cell::default(),
            totals: RefCell::default(),
            ledger: RefCell::new(ledger),
            registers: RefCell::default(),
            values: RefCell::default(),
            removed: RefCell::default(),
            violations: RefCell::default(),
            opens: Cell::default(),
        }
    }

    fn violation(&self, words: String) {
        self.violations.borrow_mut().push(words);
    }
}

/// How an operation ended.
enum End<T> {
    Done(T),
    /// For certain nothing was changed.
    Refused(Status),
    Unknown(Error),
}

/// A file held open over several operations.
struct Held {
    object: ObjectId,
    file: OpenFile,
    /// Of all that were ever open.
    open: u64,
    /// Power cuts before its last sync; before there is one, before the file's last sync by this client when it was opened.
    cuts: u64,
}

/// One client at work.
pub(crate) struct Worker {
    id: u16,
    env: Env,
    client: Client,
    shared: Rc<Shared>,
    rng: Rng,
    names: u64,
    held: Vec<Held>,
    /// Tells this life of this client from all others.
    scope: u64,
    /// Power cuts before this client's last sync of a file, or its first opening.
    settled: BTreeMap<ObjectId, u64>,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("the workload's names are valid")
}

impl Worker {
    /// A client of the run. `life`: how often it was started before.
    pub fn new(id: u16, life: u64, env: Env, client: Client, shared: Rc<Shared>, seed: u64) -> Worker {
        let rng = Rng::new(seed, 1000 + u64::from(id) + (life << 32));
        let (scope, names) = (1 + u64::from(id) + (life << 16), life << 32);
        Worker { id, env, client, shared, rng, names, held: Vec::new(), scope, settled: BTreeMap::new() }
    }

    /// Do so many operations.
    pub async fn work(mut self, operations: u64) {
        for _ in 0..operations {
            let pause = self.rng.below(4_000);
            self.env.sleep(Duration::from_micros(pause)).await;
            self.one().await;
        }
        while let Some(held) = self.held.pop() {
            self.let_go(held).await;
        }
        self.shared.done.set(self.shared.done.get() + 1);
    }

    async fn one(&mut self) {
        match self.shared.mix.draw(&mut self.rng) {
            Family::Create => self.create().await,
            Family::Unlink => self.unlink().await,
            Family::Rename => self.rename().await,
            Family::Link => self.link().await,
            Family::Special => self.special().await,
            Family::Write => self.write().await,
            Family::Append => self.append().await,
            Family::Truncate => self.truncate().await,
            Family::Allocate => self.allocate().await,
            Family::Sync => self.sync().await,
            Family::Read => self.read().await,
            Family::Stat => self.stat().await,
            Family::Gone => self.look_up_gone().await,
            Family::Attributes => self.attributes().await,
            Family::HotFile => self.hot_file().await,
            Family::HotDirectory => self.hot_directory().await,
            Family::HotAttribute => self.hot_attribute().await,
            Family::Wander => self.wander().await,
            Family::Held => self.remove_held().await,
            Family::Descriptors => self.descriptors().await,
            Family::List => self.list().await,
            Family::Path => self.path().await,
            Family::Space => self.space().await,
        }
    }

    /// Await an operation; see that it ended in time; tell how. `refusals` are the statuses that say for certain that
    /// nothing was changed.
    async fn run<T>(
        &self,
        kind: &'static str,
        words: &str,
        refusals: &[Status],
        operation: impl Future<Output = Result<T, Error>>,
    ) -> End<T> {
        self.run_bounded(kind, words, refusals, self.shared.timeout, operation).await
    }

    /// The same with a bound of its own, as it is many messages, and no refusals.
    async fn run_within<T>(
        &self,
        kind: &'static str,
        words: &str,
        bound: Duration,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> End<T> {
        self.run_bounded(kind, words, &[], bound, operation).await
    }

    async fn run_bounded<T>(
        &self,
        kind: &'static str,
        words: &str,
        refusals: &[Status],
        bound: Duration,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> End<T> {
        let called = self.env.now();
        self.env.note(|| format!("{words} …"));
        let ended = operation.await;
        self.env.note(|| match &ended {
            Ok(_) => format!("{words}: done"),
            Err(error) => format!("{words}: {error}"),
        });
        self.in_time(words, called, bound);
        let said = ended.as_ref().err().map_or("done".to_owned(), |error| error.status.to_string());
        let line = format!("{}–{} ns client {}: {words}: {said}", called.0, self.now(), self.id);
        let mut totals = self.shared.totals.borrow_mut();
        totals.history.push(line);
        totals.operations += 1;
        let full = self.shared.may_be_full.get().then_some(Status::NoSpace);
        let (index, end) = match ended {
            Ok(value) => (0, End::Done(value)),
            Err(error) if refusals.contains(&error.status) || full == Some(error.status) => {
                (1, End::Refused(error.status))
            }
            Err(error) => (2, End::Unknown(error)),
        };
        totals.kinds.entry(kind).or_default()[index] += 1;
        match index {
            0 => totals.acknowledged += 1,
            1 => totals.refused += 1,
            _ => totals.unknown += 1,
        }
        end
    }

    /// What was called then has ended in time.
    fn in_time(&self, words: &str, called: Instant, bound: Duration) {
        let took = self.env.now().since(called);
        if took > bound + LATE {
            self.violation(words, format!("expected an end within {bound:?}, found it after {took:?}"));
        }
    }

    /// A sentence about what is broken: who, what, when, and what was expected and found.
    fn violation(&self, words: &str, expected: impl std::fmt::Display) {
        let (id, now) = (self.id, self.now());
        let words = format!("client {id} at {now} ns: {words}: {expected}");
        self.env.note(|| format!("VIOLATION: {words}"));
        self.shared.violation(words);
    }

    /// A refusal that cannot be.
    fn wrong(&self, words: &str, status: Status) {
        if status != Status::NoSpace || !self.shared.may_be_full.get() {
            self.violation(words, format!("expected it done, found {status:?}"));
        }
    }

    fn now(&self) -> u64 {
        self.env.now().0
    }

    fn with_object<T>(&self, object: ObjectId, f: impl FnOnce(&mut Object) -> T) -> T {
        f(&mut self.shared.ledger.borrow_mut().objects[object])
    }

    fn with_contents<T>(&self, object: ObjectId, f: impl FnOnce(&mut Contents) -> T) -> T {
        self.with_object(object, |object| f(&mut object.contents))
    }

    fn handle(&self, object: ObjectId) -> Handle {
        Handle(self.with_object(object, |object| object.handle))
    }

    fn directory(&mut self) -> Handle {
        let directories = &self.shared.scene.directories;
        directories[self.rng.below(directories.len() as u64) as usize]
    }

    fn fresh_name(&mut self) -> String {
        self.names += 1;
        format!("c{}-{}", self.id, self.names)
    }

    /// An own name, and what it leads to.
    fn own(&mut self, fits: impl Fn(&Object) -> bool) -> Option<(Slot, ObjectId)> {
        let mut live = self.shared.ledger.borrow().live(self.id);
        let ledger = self.shared.ledger.borrow();
        live.retain(|(_, object)| ledger.objects[*object].handle != 0 && fits(&ledger.objects[*object]));
        self.rng.pick(&live).cloned()
    }

    /// Change own names: noted before, and as it ended.
    async fn change<T>(
        &self,
        kind: &'static str,
        words: &str,
        refusals: &[Status],
        changes: Vec<(Slot, Option<ObjectId>)>,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> End<T> {
        let noted = self.shared.ledger.borrow_mut().begin(self.id, words, self.now(), changes);
        let end = self.run(kind, words, refusals, operation).await;
        let mut ledger = self.shared.ledger.borrow_mut();
        match &end {
            End::Done(_) => ledger.done(noted, self.now()),
            // A file is made by one message and a large content written by others: that one found no space says nothing of
            // the first.
            End::Refused(Status::NoSpace) if kind == "create" => {}
            End::Refused(_) => ledger.refused(noted),
            End::Unknown(_) => {}
        }
        end
    }
}
