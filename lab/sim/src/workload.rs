//! The work of each client: random operations over the whole interface, each checked at once against the
//! known state.
//!
//! Each source file has one family of operations. Names and objects are of three sorts: *own* names and
//! objects, which one client alone changes (the [`Ledger`] knows them exactly); *contended* names and
//! attributes, which all clients change (each is a register, see [`crate::register`]); *shared files*, which
//! stay and whose bytes all clients write (see [`crate::contents`]). Every operation is noted **before** it
//! is requested, so a client that is killed in the middle leaves an operation of unknown outcome.
//!
//! The seed decides how often each family is drawn ([`mix`]).

mod attributes;
mod bytes;
mod contended;
mod descriptors;
mod forks;
mod held;
mod in_use;
mod links;
mod listing;
mod mix;
mod modes;
mod moments;
mod names;
mod offered;
mod paths;
mod reading;
mod rest;
mod scene;
mod space;
mod wander;

pub(crate) use forks::{FORKS_LANE, are_drawn as forks_are_drawn};
pub(crate) use modes::drawn as drawn_modes;
pub use modes::words as modes_words;
pub(crate) use rest::Rest;
pub(crate) use scene::Scene;

use crate::contents::Contents;
use crate::faults::Operators;
use crate::ledger::{KnownObject, Ledger, ObjectId, Slot};
use crate::losses::{Held, Modes, Stamp};
use crate::register::Event;
use crate::rng::Rng;
use forks::Forked;
use mix::{Family, Mix};
use moments::Moments;
use offered::Offer;
use shoal_client::{Client, Error, OpenFile};
use shoal_env::{Env, Instant};
use shoal_proto::op::Owner;
use shoal_proto::{Durability, Handle, Name, Roles, Status, Switches};
use shoal_store::SyncModes;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

/// The owner of all objects.
pub(crate) const OWNER: Owner = Owner { mode: 0o755, uid: 1000, gid: 100 };
/// Beyond an operation's own timeout: the allowed delay to notice it.
const LATE: Duration = Duration::from_secs(2);
/// Files a client holds open over several operations.
const OPEN_MAX: usize = 6;

/// The state that all clients of a run share, and the faults' reports to the checks.
pub(crate) struct Shared {
    pub scene: Scene,
    pub timeout: Duration,
    /// How long clients may cache names and attributes.
    pub cache: Duration,
    mix: Mix,
    /// The faults so far, by server; counted **before** they happen.
    now: RefCell<Stamp>,
    /// Each of them: when, of which server, and whether more than the memory of the server's process is lost.
    faults: RefCell<Vec<(u64, u16, bool)>>,
    /// How durable changes are.
    modes: RefCell<Modes>,
    /// How little metadata was held from each of these moments on.
    held: RefCell<Vec<(u64, Held)>>,
    /// The techniques in use.
    switches: Switches,
    /// No fault is planned.
    is_calm: bool,
    /// How some clients rest; files in use get further names then.
    rest: Option<Rest>,
    /// A disk may be full: `NoSpace` is an answer.
    pub may_be_full: Cell<bool>,
    /// Faults that the clients wait for half-way.
    pub operators: Rc<Operators>,
    /// Clients that are done.
    pub done: Cell<usize>,
    pub totals: RefCell<Totals>,
    pub ledger: RefCell<Ledger>,
    /// Contended names, and contended extended attributes (object, attribute).
    pub registers: RefCell<BTreeMap<Slot, Vec<Event>>>,
    pub values: RefCell<BTreeMap<Slot, Vec<Event>>>,
    /// Objects that lost their last name, acknowledged, and their owners.
    pub removed: RefCell<Vec<(u16, ObjectId)>>,
    /// Names of open files that other clients are to take away.
    offers: RefCell<Vec<Offer>>,
    /// Own forked files, by the lane that made them.
    forked: RefCell<BTreeMap<u16, Vec<Forked>>>,
    /// Forked files whose removal was begun, so that they may lack subfiles.
    pub unmade: RefCell<BTreeSet<u64>>,
    pub violations: RefCell<Vec<String>>,
    /// Of calls, returns and faults.
    moments: Moments,
    /// Open files of each object by client, those being opened too, and when the first of them was opened.
    opens: RefCell<BTreeMap<(u16, ObjectId), (usize, u64)>>,
    /// When which server did not run.
    pauses: RefCell<Vec<(u16, Range<u64>)>>,
    /// When each life of a client closed an open file of each object last.
    closed: RefCell<BTreeMap<(u64, ObjectId), u64>>,
}

/// How the file system was made.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub modes: SyncModes,
    pub switches: Switches,
    /// The seed draws other modes and the durability of requests.
    pub draws_modes: bool,
    /// No fault is planned: each operation has an answer.
    pub is_calm: bool,
    /// How some clients rest.
    pub rest: Option<Rest>,
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
    pub fn new(seed: u64, scene: Scene, ledger: Ledger, bounds: (Duration, Duration), made: Made) -> Shared {
        let (timeout, cache) = bounds;
        let modes = Modes::new(made.modes);
        Shared {
            scene,
            timeout,
            cache,
            mix: Mix::of_seed(seed, made.draws_modes),
            now: RefCell::new(ledger.now.clone()),
            faults: RefCell::default(),
            held: RefCell::new(vec![(0, modes.metadata(Durability::Usual))]),
            modes: RefCell::new(modes),
            switches: made.switches,
            is_calm: made.is_calm,
            rest: made.rest,
            may_be_full: Cell::default(),
            operators: Rc::default(),
            done: Cell::default(),
            totals: RefCell::default(),
            ledger: RefCell::new(ledger),
            registers: RefCell::default(),
            values: RefCell::default(),
            removed: RefCell::default(),
            offers: RefCell::default(),
            forked: RefCell::default(),
            unmade: RefCell::default(),
            violations: RefCell::default(),
            moments: Moments::default(),
            opens: RefCell::default(),
            pauses: RefCell::default(),
            closed: RefCell::default(),
        }
    }

    /// A fault is about to happen: this server loses its memory, or more.
    pub fn fault(&self, at: u64, server: u16, is_cut: bool, is_kill: bool) {
        self.now.borrow_mut().add(server, is_cut, is_kill);
        self.ledger.borrow_mut().now = self.now();
        self.faults.borrow_mut().push((self.moments.next(at), server, is_cut));
    }

    /// This server does not run from then on, for so long.
    pub fn pause(&self, at: u64, server: u16, lasts: Duration) {
        self.pauses.borrow_mut().push((server, at..(Instant(at) + lasts).0));
    }

    /// The faults so far.
    pub fn now(&self) -> Stamp {
        self.now.borrow().clone()
    }

    /// When faults may have taken something of a contended name or attribute, which is changed as the modes
    /// say, and held so at best: moments of faults of the servers that may hold it, after a change that such
    /// a fault takes.
    pub fn faults_of(&self, servers: &[u16], history: &[Event], best: Held) -> Vec<u64> {
        let takes = |event: &Event, at: u64, is_cut: bool| {
            // One without an answer may be done at any time.
            let until = if event.seen.is_unknown() { at } else { event.returned };
            event.seen.is_change()
                && event.called <= at
                && match self.held_between(event.called, until).min(best) {
                    Held::Disk => false,
                    Held::Kernel => is_cut,
                    Held::Memory => true,
                }
        };
        let may_take = |(at, server, is_cut): &&(u64, u16, bool)| {
            servers.contains(server) && history.iter().any(|event| takes(event, *at, *is_cut))
        };
        self.faults.borrow().iter().filter(may_take).map(|(at, ..)| *at).collect()
    }

    /// The sync modes that were acknowledged last.
    pub fn known_modes(&self) -> SyncModes {
        self.modes.borrow().known()
    }

    /// How little metadata was held at any time between two moments.
    pub fn held_between(&self, from: u64, until: u64) -> Held {
        let held = self.held.borrow();
        let first = held.partition_point(|(since, _)| *since <= from).saturating_sub(1);
        let between = held[first..].iter().take_while(|(since, _)| *since <= until.max(from));
        between.map(|(_, held)| *held).min().unwrap_or_default()
    }

    /// The modes have changed, or may change from now on.
    fn note_held(&self, now: u64) {
        let held = self.modes.borrow().metadata(Durability::Usual);
        self.held.borrow_mut().push((now, held));
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
struct Opened {
    object: ObjectId,
    file: OpenFile,
    /// When its open was called and when it returned.
    open: u64,
    opened: u64,
    /// Writes through it request this.
    asks: Durability,
}

/// Which lane of which life of which client: the lanes of a client work at the same time, over its one
/// connection to each server.
#[derive(Clone, Copy)]
pub(crate) struct Seat {
    pub client: u16,
    pub lane: u16,
    pub life: u64,
}

/// Lanes have numbers of their own: that of the client, and this for each lane before.
const LANE: u16 = 1000;
/// A client works on at most so many lanes.
pub(crate) const LANES_MAX: u16 = 3;

/// One lane of a client at work.
pub(crate) struct Worker {
    id: u16,
    env: Env,
    /// As the present operation uses it: it asks for `asks`.
    client: Client,
    asks: Durability,
    shared: Rc<Shared>,
    rng: Rng,
    names: u64,
    held: Vec<Opened>,
    /// Tells this life of this client from all others.
    scope: u64,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("the workload's names are valid")
}

impl Worker {
    /// A lane of a client of the run. `life`: how often the client was started before.
    pub fn new(seat: Seat, env: Env, client: Client, shared: Rc<Shared>, seed: u64) -> Worker {
        let Seat { client: number, lane, life } = seat;
        let id = number + lane * LANE;
        let rng = Rng::new(seed, 1000 + u64::from(number) + (u64::from(lane) << 16) + (life << 32));
        let (scope, names) = (1 + u64::from(number) + (life << 16), life << 32);
        let asks = Durability::Usual;
        Worker { id, env, client, asks, shared, rng, names, held: Vec::new(), scope }
    }

    /// Do so many operations.
    pub async fn work(mut self, operations: u64) {
        for count in 0..operations {
            if count == operations / 2 {
                self.shared.operators.wait().await;
                self.rest().await;
            }
            let pause = self.rng.below(4_000);
            self.env.sleep(Duration::from_micros(pause)).await;
            let asks = self.shared.mix.draw_durability(&mut self.rng);
            self.ask_for(asks);
            self.one().await;
        }
        while let Some(held) = self.held.pop() {
            self.let_go(held).await;
        }
    }

    /// The client that this is a lane of.
    fn client_number(&self) -> u16 {
        self.id % LANE
    }

    fn ask_for(&mut self, asks: Durability) {
        self.asks = asks;
        self.client = self.client.with_durability(asks);
    }

    async fn one(&mut self) {
        if self.is_of_forks() {
            return self.one_of_forks().await;
        }
        let family = self.shared.mix.draw(&mut self.rng);
        if family.is_contended() {
            // Others see the state that the modes promise.
            self.ask_for(Durability::Usual);
        }
        match family {
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
            Family::InUse => self.in_use().await,
            Family::Modes => self.change_modes().await,
            Family::Offered => self.offered().await,
        }
    }

    /// Await an operation; check that it ended in time; return how. `refusals` are the statuses that say for
    /// certain that nothing was changed.
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
            Err(error) => {
                if self.is_inexcusable(error.status) {
                    self.violation(words, format!("expected an answer, found {error}"));
                }
                (2, End::Unknown(error))
            }
        };
        totals.kinds.entry(kind).or_default()[index] += 1;
        match index {
            0 => totals.acknowledged += 1,
            1 => totals.refused += 1,
            _ => totals.unknown += 1,
        }
        end
    }

    /// No fault explains such an end. Losses ([`Status::Io`]) are judged by the operations that report them.
    fn is_inexcusable(&self, status: Status) -> bool {
        use Status::{BadMessage, BadSequence, Io, OverLimit, StaleLayout};
        let is_never = matches!(status, BadMessage | BadSequence | OverLimit | StaleLayout);
        is_never || self.shared.is_calm && status != Io
    }

    /// The operation that was called then has ended in time.
    fn in_time(&self, words: &str, called: Instant, bound: Duration) {
        let took = self.env.now().since(called);
        if took > bound + LATE {
            self.violation(words, format!("expected an end within {bound:?}, found it after {took:?}"));
        }
    }

    /// A sentence about a broken promise: the client, the operation, the time, and the expected and found
    /// state.
    fn violation(&self, words: &str, expected: impl std::fmt::Display) {
        let (id, now) = (self.id, self.now());
        let words = format!("client {id} at {now} ns: {words}: {expected}");
        self.env.note(|| format!("VIOLATION: {words}"));
        self.shared.violation(words);
    }

    /// How well metadata that is changed now is held.
    fn held_metadata(&self) -> Held {
        self.held_metadata_of(self.asks)
    }

    fn held_metadata_of(&self, asks: Durability) -> Held {
        self.shared.modes.borrow().metadata(asks)
    }

    /// How well a change of attributes alone is held.
    fn held_attributes(&self) -> Held {
        self.shared.modes.borrow().attributes(self.asks)
    }

    /// Whether state that is read now is durable when it is returned.
    fn sees_durable(&self) -> bool {
        self.held_metadata() == Held::Disk
    }

    /// The same of a change of names: one over several servers is durable in any case.
    fn held_over(&self, changes: &[(Slot, Option<ObjectId>)]) -> Held {
        match self.shared.ledger.borrow().are_apart(changes.iter().map(|(slot, _)| slot)) {
            true => Held::Disk,
            false => self.held_metadata(),
        }
    }

    /// How well data is held that is written now and asks for this.
    fn held_data(&self, asks: Durability) -> Held {
        self.shared.modes.borrow().data(asks)
    }

    /// Bytes of a strip of the files that this worker makes.
    fn strip(&self) -> u64 {
        if self.is_of_forks() { u64::MAX } else { self.client.map().template.stuffed_max() }
    }

    /// So many of a file's first bytes are the metafile's own, whatever becomes of it.
    fn stuffed(&self, file: Handle) -> u64 {
        if self.is_of_forks() {
            return u64::MAX;
        }
        let map = self.client.map();
        let holds_data = map.with_roles(Roles::DATA).any(|holder| holder == file.server());
        if map.switches.stuffing && holds_data { map.template.stuffed_max() } else { 0 }
    }

    /// A refusal that cannot be, unless a fault may have taken the object.
    fn wrong_of(&self, words: &str, object: ObjectId, status: Status) {
        let offered_at = self.with_object(object, |object| object.offered_at);
        let may_be_gone = self.shared.ledger.borrow().may_be_gone(object);
        if !(may_be_gone || self.may_have_been_freed(object, offered_at))
            || ![Status::Stale, Status::NotFound].contains(&status)
        {
            self.wrong(words, status);
        }
    }

    /// A refusal that cannot be, unless a fault may have taken one of the names, or given it back.
    fn wrong_name(&self, words: &str, slots: &[&Slot], status: Status) {
        if slots.iter().all(|slot| self.shared.ledger.borrow().is_settled(slot)) {
            self.wrong(words, status);
        }
    }

    /// A refusal that cannot be.
    fn wrong(&self, words: &str, status: Status) {
        if status != Status::NoSpace || !self.shared.may_be_full.get() {
            self.violation(words, format!("expected it done, found {status:?}"));
        }
    }

    fn now(&self) -> u64 {
        self.shared.moments.next(self.env.now().0)
    }

    fn with_object<T>(&self, object: ObjectId, f: impl FnOnce(&mut KnownObject) -> T) -> T {
        f(&mut self.shared.ledger.borrow_mut().objects[object])
    }

    fn with_contents<T>(&self, object: ObjectId, f: impl FnOnce(&mut Contents) -> T) -> T {
        self.with_object(object, |object| f(&mut object.contents))
    }

    fn handle(&self, object: ObjectId) -> Handle {
        Handle(self.with_object(object, |object| object.handle))
    }

    /// A directory that stays; for a lane of forks a subfile.
    fn directory(&mut self) -> Handle {
        if self.is_of_forks() {
            return self.subfile();
        }
        let directories = &self.shared.scene.directories;
        directories[self.rng.below(directories.len() as u64) as usize]
    }

    fn fresh_name(&mut self) -> String {
        self.names += 1;
        let (client, lane) = (self.client_number(), self.id / LANE);
        match lane {
            0 => format!("c{client}-{}", self.names),
            lane => format!("c{client}.{lane}-{}", self.names),
        }
    }

    /// An own name, and its object.
    fn own(&mut self, fits: impl Fn(&KnownObject) -> bool) -> Option<(Slot, ObjectId)> {
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
        let held = self.held_over(&changes);
        let noted = self.shared.ledger.borrow_mut().begin(self.id, words, self.now(), held, changes.clone());
        let end = self.run(kind, words, refusals, operation).await;
        let held = held.min(self.held_over(&changes));
        let mut ledger = self.shared.ledger.borrow_mut();
        match &end {
            End::Done(_) => {
                ledger.done(noted, self.now(), held);
                // An operation that puts or removes an entry leaves a record on the server of its directory,
                // whatever was there before.
                if held == Held::Disk && ["create", "mkdir", "symlink", "unlink"].contains(&kind) {
                    ledger.durable(noted);
                }
            }
            // A file is made by one message and a large content written by others: that one found no space
            // says nothing of the first.
            End::Refused(Status::NoSpace) if kind == "create" => {}
            End::Refused(_) => ledger.refused(noted),
            End::Unknown(_) => {}
        }
        end
    }
}
