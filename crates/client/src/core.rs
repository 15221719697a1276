//! The core without I/O: it holds the map, the sessions, the caches and the open files, and turns operations
//! into requests and replies into answers. It opens no socket and reads no clock; a driver does ([`World`]).
//!
//! An operation is a plain `async fn` over the core. It *asks* a server ([`Core::ask`]); asking puts a
//! request in the session's queue, signals the driver and waits for the answer or the operation's deadline.
//!
//! **Invariant: every wait ends by the operation's deadline, every retry has a bound** ([`Operation`]; tests:
//! `a_server_that_never_answers_ends_at_the_deadline`,
//! `a_server_that_stays_busy_ends_at_the_deadline_and_is_named`). Each part of a long transfer that arrives
//! extends the deadline. **Invariant: no borrow of the core's state is held over an await** (held by the
//! compiler: `clippy::await_holding_refcell_ref`).

mod changes;
mod driven;
mod exchange;

pub(crate) use exchange::Exchange;

use crate::cache::Cache;
use crate::call::{Call, Interrupts};
use crate::counters::Tally;
use crate::held::HeldFiles;
use crate::inodes::Inodes;
use crate::locks::OwnLocks;
use crate::map::KnownMap;
use crate::ops::Inherited;
use crate::pages::PagesCell;
use crate::session::{Answered, Asked, Brought, Giver, QUIET, Session, Waiter};
use crate::shards::SplitDirectories;
use crate::timers::Timers;
use crate::world::World;
use crate::{ClientCounters, Error, Options};
use bytes::Bytes;
use futures_util::future::{Either, select};
use lru::LruCache;
use shoal_env::local::oneshot;
use shoal_env::{Instant, WallTime, Work};
use shoal_proto::message::Loss;
use shoal_proto::op::Answer;
use shoal_proto::{
    ClientId, ClusterMap, Durability, Group, GroupReply, Handle, Op, Rights, ServerId, SessionId, Status,
    Switches,
};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// Tries of one request, at most; the deadline usually ends it before.
const TRIES_MAX: u32 = 64;
/// Times that one request is sent on to another shard, at most.
pub(crate) const HOPS_MAX: u32 = 4;
/// The first pause before a retry, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(200));
/// How long a release is tried: beyond it the session that holds the orphan has ended too.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(600);
/// Before the error of a call to a silent server.
pub(crate) const SILENT_PAUSE: Duration = Duration::from_millis(1);

/// One operation under way: for its deadline, its errors, and the pauses between its tries.
pub(crate) struct Operation {
    pub(crate) op: &'static str,
    pub(crate) object: Option<Handle>,
    /// When it began: its answers are no younger.
    pub(crate) began: Instant,
    pub(crate) deadline: Instant,
    pub(crate) durability: Durability,
    pub(crate) call: Option<Rc<Call>>,
    /// The data of its next request, which the server asks for by grants.
    giver: Option<Rc<Giver>>,
    tries: Cell<u32>,
}

impl Operation {
    /// The same, asking for another durability.
    pub(crate) fn with(&self, durability: Durability) -> Operation {
        let giver = self.giver.clone();
        Operation { durability, tries: self.tries.clone(), call: self.call.clone(), giver, ..*self }
    }

    /// The same, whose request's data is pulled.
    pub(crate) fn giving(&self, giver: Giver) -> Operation {
        Operation { giver: Some(Rc::new(giver)), ..self.with(self.durability) }
    }

    /// The same after a transfer that took longer than its time limit, piece by piece: with as much time from
    /// now on as it had at its begin.
    pub(crate) fn renewed(&self, now: Instant) -> Operation {
        let limit = self.deadline.since(self.began);
        let deadline = if now < self.deadline { self.deadline } else { now + limit };
        Operation { deadline, ..self.with(self.durability) }
    }

    /// The same for a further part of a call of several: with as much time from now on as the call had.
    pub(crate) fn for_part(&self, now: Instant) -> Operation {
        let limit = self.deadline.since(self.began);
        Operation { deadline: self.deadline.max(now + limit), ..self.with(self.durability) }
    }

    /// The same, ending then.
    pub(crate) fn until(self, deadline: Instant) -> Operation {
        Operation { deadline, ..self }
    }

    /// An error of this operation.
    pub(crate) fn error(&self, status: Status) -> Error {
        Error { object: self.object, ..Error::new(status, self.op) }
    }
}

/// The answers of a group's operations.
pub(crate) struct Told {
    /// The server; for a split directory, the server of the shard.
    pub(crate) server: ServerId,
    pub(crate) answers: Vec<Answer>,
    pub(crate) bulk: Bytes,
    pub(crate) loss: Loss,
    /// The pieces of a long read, in packed order.
    pub(crate) pieces: Vec<Brought>,
}

/// The same, when the group may have failed on its way.
pub(crate) struct ToldGroup {
    pub(crate) server: ServerId,
    pub(crate) status: Status,
    pub(crate) answers: Vec<Answer>,
    pub(crate) bulk: Bytes,
    pub(crate) loss: Loss,
    pub(crate) pieces: Vec<Brought>,
}

/// See the module's page.
pub(crate) struct Core {
    pub(crate) world: Box<dyn World>,
    pub(crate) options: Options,
    pub(crate) id: ClientId,
    pub(crate) cache: RefCell<Cache>,
    pub(crate) held: RefCell<HeldFiles>,
    pub(crate) inodes: RefCell<Inodes>,
    /// The locks of files that this client has.
    pub(crate) locks: RefCell<OwnLocks>,
    /// Of the mount's kernel; none without a mount.
    pub(crate) pages: PagesCell,
    /// But for the messages.
    pub(crate) counters: RefCell<ClientCounters>,
    pub(crate) messages: RefCell<Tally>,
    pub(crate) inherited: RefCell<LruCache<Handle, Inherited>>,
    pub(crate) split: RefCell<SplitDirectories>,
    pub(crate) map: KnownMap,
    /// The call that the task which is polled at the moment is a part of.
    pub(crate) current_call: RefCell<Option<Rc<Call>>>,
    pub(crate) interrupts: RefCell<Option<Interrupts>>,
    /// By the server's number, which is small.
    sessions: RefCell<Vec<Option<Box<Session>>>>,
    timers: Timers,
    /// The alarm is set to ring for the callers' deadlines by this moment.
    callers_armed: Cell<Option<Instant>>,
    pub(crate) closed: Cell<bool>,
}

impl Core {
    pub(crate) fn new(world: Box<dyn World>, options: Options, id: ClientId, map: ClusterMap) -> Rc<Core> {
        Rc::new(Core {
            cache: RefCell::new(Cache::new(options.name_cache, options.attr_cache)),
            world,
            options,
            id,
            held: RefCell::default(),
            inodes: RefCell::default(),
            locks: RefCell::default(),
            pages: RefCell::default(),
            counters: RefCell::default(),
            messages: RefCell::default(),
            inherited: RefCell::new(LruCache::unbounded()),
            split: RefCell::default(),
            map: KnownMap::new(map),
            current_call: RefCell::default(),
            interrupts: RefCell::default(),
            sessions: RefCell::default(),
            timers: Timers::default(),
            callers_armed: Cell::new(None),
            closed: Cell::new(false),
        })
    }

    // Time.

    /// Begin an operation: its deadline counts from now, or from the begin of its call.
    pub(crate) fn begin(&self, op: &'static str, object: Option<Handle>) -> Operation {
        self.world.work(Work::Call, 1);
        Operation {
            op,
            object,
            began: self.world.now(),
            deadline: self.deadline(),
            durability: Durability::Usual,
            call: self.current_call.borrow().clone(),
            giver: None,
            tries: Cell::new(0),
        }
    }

    /// The driver's alarm rang; when it is to ring next.
    pub(crate) fn tick(&self, now: Instant) -> Option<Instant> {
        let sleeps = self.timers.tick(now);
        let (mut callers, mut outgoing, mut quiet, mut silent) = (None, Vec::new(), Vec::new(), Vec::new());
        for (session, server) in self.sessions.borrow_mut().iter_mut().zip(0..) {
            let Some(session) = session else { continue };
            let was_silent = session.is_silent();
            let next = session.look(now, self.options.timeout, &mut quiet);
            callers = callers.into_iter().chain(next).min();
            if session.is_silent() && !was_silent {
                silent.push(ServerId(server));
            }
            // The request that was taken back may have blocked others.
            outgoing.extend(session.has_outgoing().then_some(ServerId(server)));
        }
        self.callers_armed.set(callers);
        self.interrupt(quiet);
        silent.into_iter().for_each(|server| self.world.silent(server));
        outgoing.into_iter().for_each(|server| self.world.outgoing(server));
        sleeps.into_iter().chain(callers).min()
    }

    pub(crate) fn each_session(&self, mut f: impl FnMut(&mut Session)) {
        self.sessions.borrow_mut().iter_mut().flatten().for_each(|session| f(session));
    }

    /// Await `future`, but not past `deadline`.
    pub(crate) async fn by<T>(&self, deadline: Instant, future: impl Future<Output = T>) -> Option<T> {
        let arm = |at| self.world.wake_at(at);
        match select(pin!(future), self.timers.sleep_until(deadline, &arm)).await {
            Either::Left((value, _)) => Some(value),
            Either::Right(_) => None,
        }
    }

    /// Pause before the next try, longer each time, with jitter.
    ///
    /// # Errors
    /// `why`, when the tries or the time are used up.
    pub(crate) async fn back_off(&self, o: &Operation, why: Error) -> Result<(), Error> {
        let tries = o.tries.get();
        o.tries.set(tries + 1);
        let full = BACKOFF.0.saturating_mul(1 << tries.min(16)).min(BACKOFF.1);
        let nanos = u64::try_from(full.as_nanos()).unwrap_or(u64::MAX).max(2);
        let pause = Duration::from_nanos(nanos / 2 + self.world.random_u64() % nanos);
        let until = self.world.now() + pause;
        if tries >= TRIES_MAX || until >= o.deadline {
            let words = format!("gave up after {} tries: {}", tries + 1, why.status);
            return Err(Error { status: Status::TimedOut, words, ..why });
        }
        self.counters.borrow_mut().retries += 1;
        self.sleep_until(until).await;
        Ok(())
    }

    pub(crate) async fn sleep_until(&self, at: Instant) {
        let arm = |at| self.world.wake_at(at);
        self.timers.sleep_until(at, &arm).await;
    }

    /// The wall clock.
    pub(crate) fn wall(&self) -> WallTime {
        self.world.wall()
    }

    // Asking.

    /// Ask a server for one group that must succeed; retried while the server says that it may be.
    pub(crate) async fn ask(
        self: &Rc<Core>,
        o: &Operation,
        server: ServerId,
        ops: Vec<Op>,
    ) -> Result<Told, Error> {
        self.ask_with(o, server, ops, Vec::new(), 0).await
    }

    /// The same with data: `bulk` goes with the request, `reply_bytes` are expected with the reply.
    pub(crate) async fn ask_with(
        self: &Rc<Core>,
        o: &Operation,
        server: ServerId,
        ops: Vec<Op>,
        bulk: Vec<Bytes>,
        reply_bytes: u64,
    ) -> Result<Told, Error> {
        let count = ops.len();
        let ToldGroup { server, status, answers, bulk, loss, pieces } =
            self.ask_group(o, server, ops, bulk, reply_bytes).await?;
        if status != Status::Ok {
            return Err(o.error(status).from(server));
        }
        if answers.len() != count {
            return Err(o.error(Status::BadMessage).from(server).because("answers are missing in its reply"));
        }
        Ok(Told { server, answers, bulk, loss, pieces })
    }

    /// The same for a group that may fail on its way. **An operation on an entry of a split directory goes to
    /// the shard that holds it**, whatever server is given. A client that does not know the split yet is
    /// redirected, and asks again there.
    pub(crate) async fn ask_group(
        self: &Rc<Core>,
        o: &Operation,
        server: ServerId,
        ops: Vec<Op>,
        bulk: Vec<Bytes>,
        reply_bytes: u64,
    ) -> Result<ToldGroup, Error> {
        let home = server;
        let mut groups = vec![Group { ops: ops.into() }];
        let mut bulk = bulk;
        let (mut map_fetched, mut hops) = (false, 0);
        loop {
            let server = self.placed(home, &groups);
            self.changes_in(server, &groups);
            let answered = self.call(o, server, groups, bulk, reply_bytes).await?;
            self.changes_in(server, &answered.groups);
            let loss = answered.reply.loss;
            let Some(group) = answered.reply.groups.0.into_iter().next() else {
                return Err(o.error(Status::BadMessage).from(server));
            };
            match group.status {
                status @ (Status::Busy | Status::Changed | Status::Unavailable)
                    if status != Status::Changed || !is_expected(&answered.groups) =>
                {
                    Box::pin(self.back_off(o, o.error(status).from(server))).await?;
                }
                Status::Split if hops < HOPS_MAX && self.sent_on(home, server, &answered.groups, &group) => {
                    hops += 1;
                }
                // There is no such shard: its directory is gone, as its own server will report. (After an
                // answer, it is the entry's object that is on another server.)
                Status::WrongServer if server != home && group.answers.is_empty() && hops < HOPS_MAX => {
                    hops += 1;
                    self.forget_shards(&answered.groups);
                }
                Status::WrongServer if !map_fetched && group.answers.is_empty() => {
                    map_fetched = true;
                    Box::pin(self.fetch_map(o, server)).await?;
                }
                status => {
                    let answers = group.answers.0;
                    if status == Status::Ok {
                        answered
                            .groups
                            .iter()
                            .for_each(|group| self.note_changes(server, &group.ops, &answers, loss));
                    }
                    let Answered { bulk, pieces, .. } = answered;
                    return Ok(ToldGroup { server, status, answers, bulk, loss, pieces });
                }
            }
            groups = answered.groups;
            bulk = answered.sent;
        }
    }

    /// The server to be asked for a group that would go to `home`.
    pub(crate) fn placed(&self, home: ServerId, groups: &[Group]) -> ServerId {
        match groups.first().and_then(|group| group.ops.first()).and_then(Op::entry) {
            Some((dir, name)) if dir != Handle::CURRENT => self.split.borrow_mut().server_of(dir, name),
            _ => home,
        }
    }

    /// Take in where a group is sent on to; whether that is another server.
    pub(crate) fn sent_on(
        &self,
        home: ServerId,
        asked: ServerId,
        groups: &[Group],
        reply: &GroupReply,
    ) -> bool {
        if let Some(Answer::Split { dir, shards, key }) = reply.answers.last() {
            self.split.borrow_mut().learn(*dir, shards, Some(*key));
        }
        self.placed(home, groups) != asked
    }

    /// The directory of a group is not split as the cache has it.
    pub(crate) fn forget_shards(&self, groups: &[Group]) {
        let first = groups.first().and_then(|group| group.ops.first());
        if let Some((dir, _)) = first.and_then(Op::entry) {
            self.split.borrow_mut().forget(dir);
        }
    }

    /// A group changes directories' shards: their attributes that were received before are out of date.
    pub(crate) fn changes_in(&self, server: ServerId, groups: &[Group]) {
        for op in groups.iter().flat_map(|group| group.ops.iter()).filter(|op| op.changes()) {
            let mut split = self.split.borrow_mut();
            match (op.entry(), op) {
                (_, Op::Rename { from_dir, to_dir, .. }) => {
                    split.changes(*from_dir, None);
                    split.changes(*to_dir, None);
                }
                (Some((dir, _)), _) => split.changes(dir, Some(server)),
                (None, Op::Setattr { object, .. } | Op::Setlayout { object, .. }) => {
                    split.changes(*object, None);
                }
                (None, Op::Setxattr { object, .. } | Op::Removexattr { object, .. }) => {
                    split.changes(*object, None);
                }
                _ => {}
            }
        }
    }

    /// Ask a server for groups that only read, each with a status of its own. No retries but those of the
    /// connection.
    pub(crate) async fn ask_many(
        self: &Rc<Core>,
        o: &Operation,
        server: ServerId,
        groups: Vec<Vec<Op>>,
    ) -> Result<Vec<GroupReply>, Error> {
        let groups = groups.into_iter().map(|ops| Group { ops: ops.into() }).collect();
        Ok(self.call(o, server, groups, Vec::new(), 0).await?.reply.groups.0)
    }

    /// Send a request and await its reply. A server that is not in the map may have been added since it was
    /// fetched. The error of a silent server comes after [`SILENT_PAUSE`], because a caller may ask again at
    /// once, and the client's own tasks, which find that the server answers, need the thread.
    pub(crate) async fn call(
        self: &Rc<Core>,
        o: &Operation,
        server: ServerId,
        groups: Vec<Group>,
        bulk: Vec<Bytes>,
        reply_bytes: u64,
    ) -> Result<Answered, Error> {
        if !self.knows(server) {
            Box::pin(self.find(o, server)).await?;
        }
        match self.exchange(o, server, groups, bulk, reply_bytes) {
            Err(error) if error.status == Status::Silent => {
                self.sleep_until(self.world.now() + SILENT_PAUSE).await;
                Err(error)
            }
            asked => asked?.await,
        }
    }

    /// Whether a server is in the map; before there is one, any is.
    pub(crate) fn knows(&self, server: ServerId) -> bool {
        let map = self.map();
        map.servers.is_empty() || map.server(server).is_some()
    }

    /// Send a request: await its reply.
    ///
    /// # Errors
    /// The client is closed or changes nothing, the call was interrupted, its time is over, or the server is
    /// silent: nothing was sent.
    pub(crate) fn exchange<'a>(
        &'a self,
        o: &'a Operation,
        server: ServerId,
        groups: Vec<Group>,
        bulk: Vec<Bytes>,
        reply_bytes: u64,
    ) -> Result<Exchange<'a>, Error> {
        if self.closed.get() {
            return Err(o.error(Status::Unavailable).because("the client is closed"));
        }
        if self.options.read_only && groups.iter().any(|group| group.ops.iter().any(is_refused_read_only)) {
            return Err(o.error(Status::ReadOnly).because("this client changes nothing"));
        }
        self.go_on(o)?;
        if let Some(error) =
            self.with(server, |session| session.is_silent().then(|| session.silent_error(o.op)))
        {
            return Err(Error { object: o.object, ..error });
        }
        let now = self.world.now();
        if o.deadline <= now {
            return Err(o
                .error(Status::TimedOut)
                .from(server)
                .because("not asked: the call's time was over"));
        }
        self.world.work(Work::Message, 1);
        if groups.iter().any(|group| group.ops.iter().any(Op::changes)) {
            self.world.work(Work::Change, 1);
        }
        let (send, answer) = oneshot();
        let asked = Asked {
            op: o.op,
            groups,
            bulk,
            reply_bytes,
            deadline: o.deadline,
            durability: o.durability,
            call: o.call.clone(),
            giver: o.giver.clone(),
            waiter: Waiter::Caller(send),
        };
        let tag = Some(self.enqueue_at(server, asked, now));
        let look_at = o.deadline.min(now + QUIET);
        if self.callers_armed.get().is_none_or(|armed| look_at < armed) {
            self.callers_armed.set(Some(look_at));
            self.world.wake_at(look_at);
        }
        Ok(Exchange { core: self, o, server, tag, answer })
    }

    /// Say something, so that the session lives on.
    pub(crate) fn ping_unasked(&self, server: ServerId) {
        self.post(server, "ping", vec![Op::Ping {}], self.options.timeout);
    }

    /// Release an orphan that is no longer held here. No caller waits. The request stays queued long after a
    /// call would have given up: a release that is lost leaves the object on its server until this client
    /// ends.
    pub(crate) fn post_release(&self, object: Handle) {
        self.post(object.server(), "release", vec![Op::Release { object }], RELEASE_TIMEOUT);
    }

    /// Have a lock given back, or a wait for one ended. No caller waits.
    pub(crate) fn post_lock_op(&self, name: &'static str, op: Op) {
        let (Op::Unlock { object, .. } | Op::Unwait { object, .. }) = op else { return };
        self.post(object.server(), name, vec![op], RELEASE_TIMEOUT);
    }

    /// The present session with a server.
    pub(crate) fn session_with(&self, server: ServerId) -> Option<SessionId> {
        self.with(server, |session| session.id())
    }

    /// The version of the protocol that a server's connection speaks.
    pub(crate) fn version_of(&self, server: ServerId) -> u16 {
        self.with(server, |session| session.version())
    }

    /// Whether a server is sure to keep this client's session at this moment.
    pub(crate) fn has_lease(&self, server: ServerId) -> bool {
        let now = self.world.now();
        self.with(server, |session| session.has_lease(now))
    }

    /// Send a request that no caller waits for.
    fn post(&self, server: ServerId, op: &'static str, ops: Vec<Op>, within: Duration) {
        self.enqueue(
            server,
            Asked {
                op,
                groups: vec![Group { ops: ops.into() }],
                bulk: Vec::new(),
                reply_bytes: 0,
                deadline: self.world.now() + within,
                durability: Durability::Usual,
                call: None,
                giver: None,
                waiter: Waiter::Nobody,
            },
        );
    }

    pub(crate) fn enqueue(&self, server: ServerId, asked: Asked) -> u64 {
        self.enqueue_at(server, asked, self.world.now())
    }

    fn enqueue_at(&self, server: ServerId, asked: Asked, now: Instant) -> u64 {
        let tag = self.with(server, |session| session.enqueue(asked, now, self.options.timeout));
        self.world.outgoing(server);
        tag
    }

    fn with<T>(&self, server: ServerId, f: impl FnOnce(&mut Session) -> T) -> T {
        let (mut sessions, at) = (self.sessions.borrow_mut(), usize::from(server.0));
        if sessions.len() <= at {
            sessions.resize_with(at + 1, || None);
        }
        f(sessions[at].get_or_insert_with(|| Box::new(Session::new(server))))
    }

    /// Which techniques the file system uses.
    pub(crate) fn switches(&self) -> Switches {
        self.map().switches
    }

    /// Data carried in one message to `server`, at most.
    pub(crate) fn eager_bytes(&self, server: ServerId) -> usize {
        let switched = self.switches().eager_bytes as usize;
        self.with(server, |session| session.eager_bytes).min(self.options.eager_bytes).min(switched)
    }

    /// Count bytes that were copied from buffer to buffer.
    pub(crate) fn copied(&self, bytes: usize) {
        self.counters.borrow_mut().copied_bytes += bytes as u64;
    }
}

/// Whether the asker's own expectations are in it: those do not become true by asking again.
fn is_expected(groups: &[Group]) -> bool {
    groups.iter().flat_map(|group| group.ops.iter()).any(Op::expects)
}

/// Whether a read-only client refuses it. It may report its open files to the servers: a session belongs to
/// one client.
fn is_refused_read_only(op: &Op) -> bool {
    match op {
        Op::Open { rights, .. } => rights.contains(Rights::WRITE),
        Op::Hold { .. } | Op::Release { .. } => false,
        op => op.changes(),
    }
}
