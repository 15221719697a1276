//! Sends the requests of this server to the other servers, its peers.
//!
//! There is one connection to each peer. It is made when it is first needed, and carries many requests at
//! once. A server is a small client of its peers, with a session that has no slots, because **everything it
//! asks may be asked twice**:
//!
//! | asked | twice |
//! |---|---|
//! | getattr, entry, streamstat, outcome, map, rows, ping | reads |
//! | prepare, finish | named by the transaction's id, which is used once; a second one finds it done |
//! | draw | the first answer's handles are lost, never given again |
//! | batchcreate | the number of the batch: the same one again is the same batch |
//! | reap, vouchentry, vouchdata | names handles that are never used again |
//! | yield | removes further lingering files: the removal is only earlier |
//! | setmap, remember | a known map, or a known position, changes nothing |
//! | write (a share of an append) | the same bytes to a place that was given to no other append |
//!
//! So a request whose connection broke is sent again on the next connection, until its deadline. Changes over
//! servers are done exactly once because of these ids, numbers and handles, without slots.

use crate::audit::Audit;
use crate::counters::{Counters, add};
use crate::log_limit::Seldom;
use crate::membership::claims::Claims;
use crate::net::connection::{
    Ended, Frames, Line, Own, Scratch, WARNING_EVERY, introduce, pump, warn_of_forgery, who_listens,
};
use crate::net::silence::{self, Silence};
use crate::shard::{Settings, SharedIdentity};
use crate::tasks::Tasks;
use bytes::Bytes;
use futures_channel::oneshot;
use futures_util::future::LocalBoxFuture;
use shoal_env::local::{Notify, Semaphore};
use shoal_env::{Address, Env, Instant, Work};
use shoal_proto::{
    Answer, ClientId, Durability, Frame, FrameKind, Group, GroupReply, Handle, Op, Peer, Reply, Request,
    ServerId, Status, StoreId,
};
use shoal_store::Collection;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Making a connection takes no longer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Pauses between tries to connect: from, to.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

type Replied = (Vec<GroupReply>, Bytes);

#[derive(Default)]
struct Link {
    line: RefCell<Option<Rc<Line>>>,
    waiting: RefCell<BTreeMap<u64, oneshot::Sender<Replied>>>,
    connecting: Cell<bool>,
    /// One handshake at a time.
    greeting: Turn,
    /// Woken when the connection was made, or could not be.
    changed: Notify,
    pause: Cell<Duration>,
}

/// One holder at a time. **Handshakes with one peer take turns**, because each states how far the store is
/// durable: one with a lower position that arrived later would be taken for that of an older copy.
struct Turn(Semaphore);

impl Default for Turn {
    fn default() -> Turn {
        Turn(Semaphore::new(1))
    }
}

struct Inner {
    env: Env,
    identity: SharedIdentity,
    counters: Rc<Counters>,
    tasks: Tasks,
    client: ClientId,
    collection: Collection,
    claims: Claims,
    refusal: RefCell<Option<String>>,
    refused: Notify,
    silence: Silence,
    /// Clients were admitted.
    serves: Cell<bool>,
    scratch: Scratch,
    settings: Settings,
    audit: Audit,
    forgery_warnings: RefCell<Seldom>,
    seal_warnings: RefCell<Seldom>,
    links: RefCell<BTreeMap<ServerId, Rc<Link>>>,
    drawn: RefCell<BTreeMap<ServerId, VecDeque<Handle>>>,
    next_tag: Cell<u64>,
    /// Peers whose maps are to be merged with this server's, with the epochs that they reported.
    told_epochs: RefCell<BTreeMap<ServerId, u32>>,
    /// The version of the protocol that each peer spoke last.
    versions: RefCell<BTreeMap<ServerId, u16>>,
}

/// The peers of a shard.
#[derive(Clone)]
pub struct Peers {
    inner: Rc<Inner>,
    /// Woken when the map of a peer is to meet this server's.
    pub(crate) epoch_told: Notify,
}

impl Peers {
    /// None connected yet.
    pub fn new(
        env: Env,
        identity: SharedIdentity,
        collection: Collection,
        counters: Rc<Counters>,
        tasks: Tasks,
        (settings, audit): (Settings, Audit),
    ) -> Peers {
        let mut client = ClientId::default();
        env.random(&mut client.0);
        let scratch = Scratch::new(env.counters());
        let inner = Rc::new(Inner {
            env,
            identity,
            counters,
            tasks,
            client,
            claims: Claims::new(&collection),
            refusal: RefCell::default(),
            refused: Notify::default(),
            silence: Silence::default(),
            serves: Cell::default(),
            collection,
            scratch,
            settings,
            audit,
            forgery_warnings: RefCell::new(Seldom::new(WARNING_EVERY)),
            seal_warnings: RefCell::new(Seldom::new(WARNING_EVERY)),
            links: RefCell::default(),
            drawn: RefCell::default(),
            next_tag: Cell::new(1),
            told_epochs: RefCell::default(),
            versions: RefCell::default(),
        });
        Peers { inner, epoch_told: Notify::default() }
    }

    /// A peer reported the epoch of its map.
    fn note_epoch(&self, server: ServerId, epoch: u32) {
        if epoch != self.inner.identity.borrow().map.epoch {
            self.note_map(server, epoch);
        }
    }

    /// The maps of this server and of a peer are to meet.
    pub(crate) fn note_map(&self, server: ServerId, epoch: u32) {
        self.inner.told_epochs.borrow_mut().insert(server, epoch);
        self.epoch_told.wake_all();
    }

    /// Whether a peer reported another epoch than this server's map has, and the maps have not been merged
    /// yet.
    pub(crate) fn has_another_map(&self, server: ServerId) -> bool {
        let own = self.inner.identity.borrow().map.epoch;
        self.inner.told_epochs.borrow().get(&server).is_some_and(|told| *told != own)
    }

    /// One of the peers whose map is to be merged with this server's, and the epoch that it reported.
    pub(crate) fn take_told_epoch(&self) -> Option<(ServerId, u32)> {
        self.inner.told_epochs.borrow_mut().pop_first()
    }

    /// Ask one operation.
    ///
    /// # Errors
    /// The peer's status; `Unavailable` if it could not be reached, `TimedOut` if it did not answer.
    pub async fn call(&self, server: ServerId, op: Op, deadline: Instant) -> Result<Answer, Status> {
        self.call_with(server, op, Bytes::new(), deadline).await.map(|(answer, _)| answer)
    }

    /// The same; the state that the answer shows is durable in every sync mode.
    ///
    /// # Errors
    /// As [`Peers::call`].
    pub async fn call_durably(&self, server: ServerId, op: Op, deadline: Instant) -> Result<Answer, Status> {
        let replies = self.call_all_durably(server, vec![op], deadline).await?;
        only((replies, Bytes::new())).map(|(answer, _)| answer)
    }

    /// As [`Peers::call_all`]; the state that the answers show is durable in every sync mode.
    ///
    /// # Errors
    /// As [`Peers::call_all`].
    pub async fn call_all_durably(
        &self,
        server: ServerId,
        ops: Vec<Op>,
        deadline: Instant,
    ) -> Result<Vec<GroupReply>, Status> {
        let asked = self.ask_all(server, ops, Bytes::new(), Durability::Durable, deadline);
        asked.await.map(|(replies, _)| replies)
    }

    async fn call_with(
        &self,
        server: ServerId,
        op: Op,
        bulk: Bytes,
        deadline: Instant,
    ) -> Result<(Answer, Bytes), Status> {
        only(self.call_all(server, vec![op], bulk, deadline).await?)
    }

    /// Ask several operations by one message, each a group of its own.
    ///
    /// # Errors
    /// `Unavailable` if the peer could not be reached, `TimedOut` if it did not answer, `WrongServer` if
    /// there is none.
    pub async fn call_all(
        &self,
        server: ServerId,
        ops: Vec<Op>,
        bulk: Bytes,
        deadline: Instant,
    ) -> Result<Replied, Status> {
        // The server that has objects reaped drops them with the answer: that is durable in every mode.
        let reaps = ops.iter().any(|op| matches!(op, Op::Reap { .. }));
        let durability = if reaps { Durability::Durable } else { Durability::Usual };
        self.ask_all(server, ops, bulk, durability, deadline).await
    }

    async fn ask_all(
        &self,
        server: ServerId,
        ops: Vec<Op>,
        bulk: Bytes,
        durability: Durability,
        deadline: Instant,
    ) -> Result<Replied, Status> {
        let groups: Vec<Group> = ops.into_iter().map(|op| Group { ops: vec![op].into() }).collect();
        let count = groups.len();
        let writes = groups.iter().any(|group| group.ops.iter().any(|op| matches!(op, Op::Write { .. })));
        let mut request = Request { slot: None, timeout_ms: 0, durability, groups: groups.into() };
        let begun = self.inner.env.now();
        loop {
            let line = self.line(server, deadline).await.inspect_err(|_| self.unanswered(server, begun))?;
            let left = deadline.since(self.inner.env.now());
            request.timeout_ms = u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1);
            let answer = self.send(server, &line, &request, &bulk);
            match self.inner.env.deadline(deadline, answer).await {
                Err(_) => {
                    if writes {
                        // It may still be executed, at any time, and its place is given to the next append.
                        // The peer ends the requests of this connection before it accepts the next one, so
                        // later requests are executed after it.
                        line.end();
                    }
                    self.unanswered(server, begun);
                    return Err(Status::TimedOut);
                }
                Ok(Some((replies, data))) if replies.len() == count => return Ok((replies, data)),
                Ok(Some(_)) => return Err(Status::BadMessage),
                // The connection broke: again, on the next one.
                Ok(None) => {}
            }
        }
    }

    /// Whether a peer lets requests pass without an answer.
    pub fn is_silent(&self, server: ServerId) -> bool {
        self.inner.silence.is(server)
    }

    /// A request that was begun then had no answer.
    fn unanswered(&self, server: ServerId, begun: Instant) {
        let is_long = self.inner.env.now().since(begun) >= silence::SILENT_AFTER;
        let is_known = self.inner.identity.borrow().map.server(server).is_some();
        if is_long && is_known && self.inner.silence.begins(server) {
            tracing::warn!(%server, "it does not answer: new directories go to other servers");
            let own = self.clone();
            self.inner.tasks.spawn(&self.inner.env, "probe", async move { own.probe(server).await });
        }
    }

    /// The task that asks a silent peer until it answers.
    async fn probe(&self, server: ServerId) {
        while self.inner.silence.is(server) {
            self.inner.env.sleep(silence::PROBE_EVERY).await;
            let until = self.inner.env.now() + silence::PROBE_TIMEOUT;
            // An answer of whatever kind has ended the silence by then.
            if self.call(server, Op::Ping {}, until).await == Err(Status::TimedOut)
                && let Some(line) = self.link(server).line.take()
            {
                // Requests on it have no answer before their server continues: they are sent again on the
                // next one.
                line.end();
            }
        }
        tracing::info!(%server, "it answers again");
    }

    /// A handle of a peer drawn before.
    pub fn drawn(&self, server: ServerId) -> Option<Handle> {
        self.inner.drawn.borrow_mut().get_mut(&server)?.pop_front()
    }

    /// Keep handles drawn from a peer.
    pub fn keep_drawn(&self, server: ServerId, handles: Vec<Handle>) {
        let own = handles.into_iter().filter(|h| h.server() == server);
        self.inner.drawn.borrow_mut().entry(server).or_default().extend(own);
    }

    /// Send on a connection; `None`: it broke before the answer.
    fn send(
        &self,
        server: ServerId,
        line: &Rc<Line>,
        request: &Request,
        bulk: &Bytes,
    ) -> impl Future<Output = Option<Replied>> + use<> {
        let tag = self.inner.next_tag.get();
        self.inner.next_tag.set(tag + 1);
        let link = self.link(server);
        let (send, receive) = oneshot::channel();
        link.waiting.borrow_mut().insert(tag, send);
        add(&self.inner.counters.peer_messages, 1);
        self.inner.env.work(Work::Message, 1);
        line.send(FrameKind::Request, tag, request, std::slice::from_ref(bulk));
        let forget = Forget { link, tag };
        async move {
            let answer = receive.await.ok();
            drop(forget);
            answer
        }
    }

    fn link(&self, server: ServerId) -> Rc<Link> {
        self.inner.links.borrow_mut().entry(server).or_default().clone()
    }

    /// The connection to a peer, made if need be.
    async fn line(&self, server: ServerId, deadline: Instant) -> Result<Rc<Line>, Status> {
        if self.inner.identity.borrow().map.server(server).is_none() {
            return Err(Status::WrongServer);
        }
        let link = self.link(server);
        loop {
            let changed = link.changed.wait();
            if let Some(line) = link.line.borrow().as_ref()
                && !line.is_dead()
            {
                return Ok(line.clone());
            }
            if self.inner.env.now() >= deadline {
                return Err(Status::Unavailable);
            }
            if !link.connecting.replace(true) {
                let own = self.clone();
                self.inner.tasks.spawn(&self.inner.env, "peer", async move { own.connection(server).await });
            }
            if self.inner.env.deadline(deadline, changed).await.is_err() {
                return Err(Status::Unavailable);
            }
        }
    }

    /// The task of a connection: make it, serve it to its end.
    async fn connection(&self, server: ServerId) {
        let link = self.link(server);
        let until = self.inner.env.now() + CONNECT_TIMEOUT;
        let made = self.inner.env.deadline(until, self.connect(server, until)).await;
        match made {
            Ok(Ok((line, mut reader, mut writer, mut frames))) => {
                link.pause.set(Duration::ZERO);
                self.inner.silence.ends(server);
                link.line.replace(Some(line.clone()));
                link.connecting.set(false);
                link.changed.wake_all();
                let ended = pump(&mut reader, &mut writer, &line, &mut frames, |frame| {
                    let epoch = answered(&link, frame)?;
                    self.inner.silence.ends(server);
                    self.note_epoch(server, epoch);
                    Ok(())
                })
                .await;
                if ended == Ended::Forged {
                    add(&self.inner.counters.forged_frames, 1);
                    warn_of_forgery(&line, &self.inner.forgery_warnings, self.inner.env.now());
                    let map = self.inner.identity.borrow().map.clone();
                    self.inner.audit.forged(&map, server, &line);
                }
                line.end();
                if link.line.borrow().as_ref().is_some_and(|present| Rc::ptr_eq(present, &line)) {
                    link.line.take();
                }
                // Callers that wait for an answer see that none comes, and ask again.
                link.waiting.take();
            }
            failed => {
                let words = match failed {
                    Ok(Err((Status::BadVersion, words))) => {
                        let now = self.inner.env.now();
                        if self.inner.seal_warnings.borrow_mut().is_due(now).is_some() {
                            tracing::warn!(%server, "no connection to a peer: {words}");
                        }
                        words
                    }
                    Ok(Err((_, words))) => words,
                    _ => "no answer to the handshake".to_owned(),
                };
                tracing::debug!(%server, words, "no connection to a peer");
                let pause = link.pause.get().clamp(PAUSES.0, PAUSES.1);
                link.pause.set(pause * 2);
                self.inner.env.sleep(pause).await;
                link.connecting.set(false);
                link.changed.wake_all();
            }
        }
    }

    /// Shake hands with a peer once. It is to be reached until `reached`, and to answer until `answered`.
    ///
    /// # Errors
    /// Why it refuses, or could not be reached.
    pub async fn introduce(
        &self,
        server: ServerId,
        reached: Instant,
        answered: Instant,
    ) -> Result<(), (Status, String)> {
        match self.inner.env.deadline(answered, self.connect(server, reached)).await {
            Ok(Ok((line, ..))) => {
                line.end();
                Ok(())
            }
            Ok(Err(refused)) => Err(refused),
            Err(_) => Err((Status::TimedOut, "no answer to the handshake".to_owned())),
        }
    }

    /// Whether the connection to a peer is sealed; `None`: there is none.
    pub fn is_sealed(&self, server: ServerId) -> Option<bool> {
        self.link(server).line.borrow().as_ref().map(|line| line.is_sealed())
    }

    /// A peer that spoke an older version of the protocol than this one when it was met last.
    pub fn older_than(&self, version: u16) -> Option<ServerId> {
        self.inner.versions.borrow().iter().find(|(_, spoken)| **spoken < version).map(|(server, _)| *server)
    }

    /// This server's own data for a peer.
    fn own(&self, identity: &crate::shard::Identity, to: ServerId) -> Own {
        let collection = &self.inner.collection;
        let position = self.inner.claims.position(to, collection.durable().0);
        let peer = Peer { server: identity.id, store: collection.store_id(), position };
        Own { client: self.inner.client, peer, serves: self.inner.serves.get() }
    }

    /// The positions that this server says.
    pub(crate) fn claims(&self) -> &Claims {
        &self.inner.claims
    }

    /// From now on this server serves.
    pub(crate) fn begin_to_serve(&self) {
        self.inner.serves.set(true);
    }

    /// Wait until a peer says that this server's store is not to be served, and why.
    pub(crate) async fn refusal(&self) -> String {
        loop {
            let refused = self.inner.refused.wait();
            if let Some(words) = self.inner.refusal.borrow().clone() {
                return words;
            }
            refused.await;
        }
    }

    /// Which server of this file system listens at an address, and from which store it is served.
    ///
    /// # Errors
    /// Why it is none, or could not be reached.
    pub async fn who_listens(
        &self,
        address: &str,
        deadline: Instant,
    ) -> Result<(ServerId, StoreId), (Status, String)> {
        let asked = async {
            let address: Address = address.parse().map_err(|words| (Status::Invalid, words))?;
            let mut stream =
                self.inner.env.connect(&address).await.map_err(|e| (Status::Unavailable, e.to_string()))?;
            let identity = self.inner.identity.borrow().clone();
            let mut frames = Frames::new(self.inner.scratch.clone());
            let parts = (&mut stream.reader, &mut stream.writer, &mut frames);
            let listens = who_listens(&self.inner.env, &identity, &stream.peer, parts).await;
            listens.map_err(|refused| (refused.status, refused.words))
        };
        let silent = || Err((Status::TimedOut, "no answer to the handshake".to_owned()));
        self.inner.env.deadline(deadline, asked).await.unwrap_or_else(|_| silent())
    }

    /// Connect to a peer until `reached`, and shake hands.
    async fn connect(
        &self,
        server: ServerId,
        reached: Instant,
    ) -> Result<(Rc<Line>, shoal_env::Reader, shoal_env::Writer, Frames), (Status, String)> {
        let identity = self.inner.identity.borrow().clone();
        let info = identity
            .map
            .server(server)
            .ok_or_else(|| (Status::WrongServer, "the map has no such server".to_owned()))?;
        let mut last = (Status::Unavailable, "it has no address".to_owned());
        let link = self.link(server);
        for address in info.addresses.iter() {
            let address: Address = match address.0.parse() {
                Ok(address) => address,
                Err(words) => {
                    last = (Status::Unavailable, words);
                    continue;
                }
            };
            let mut stream = match self.inner.env.deadline(reached, self.inner.env.connect(&address)).await {
                Ok(Ok(stream)) => stream,
                Err(_) => {
                    last = (Status::Unavailable, format!("{address}: it cannot be reached in time"));
                    continue;
                }
                Ok(Err(error)) => {
                    last = (Status::Unavailable, format!("{address}: {error}"));
                    continue;
                }
            };
            let mut frames = Frames::new(self.inner.scratch.clone());
            let parts = (&mut stream.reader, &mut stream.writer, &mut frames);
            let way = (stream.peer.as_str(), self.inner.settings.wanted(address.is_tcp()));
            let _turn = link.greeting.0.acquire(1).await;
            let own = self.own(&identity, server);
            match introduce(&self.inner.env, &identity, own, server, way, parts).await {
                Ok((line, epoch, version)) => {
                    self.inner.versions.borrow_mut().insert(server, version);
                    let present = self.inner.identity.borrow().clone();
                    if present.map.server(server).is_some_and(|now| now.succeeds(info)) {
                        line.end();
                        return Err((Status::NoStore, "its store was given up meanwhile".to_owned()));
                    }
                    self.inner.claims.accept(server);
                    self.note_map(server, epoch);
                    return Ok((line, stream.reader, stream.writer, frames));
                }
                Err(refused) if refused.status == Status::OtherStore => {
                    self.inner.refusal.borrow_mut().get_or_insert(refused.words.clone());
                    self.inner.refused.wake_all();
                    return Err((refused.status, refused.words));
                }
                Err(refused) => last = (refused.status, format!("{address}: {}", refused.words)),
            }
        }
        Err(last)
    }

    /// Drop the known state of a peer's store: its connection ends, and handles drawn from it are not used.
    pub fn forget(&self, server: ServerId) {
        self.inner.drawn.borrow_mut().remove(&server);
        if let Some(link) = self.inner.links.borrow().get(&server)
            && let Some(line) = link.line.take()
        {
            line.end();
        }
    }

    /// End all connections.
    pub fn end(&self) {
        for link in self.inner.links.borrow().values() {
            if let Some(line) = link.line.take() {
                line.end();
            }
        }
    }
}

/// The answer to a message of one operation.
fn only((mut groups, bulk): Replied) -> Result<(Answer, Bytes), Status> {
    let reply = groups.pop().ok_or(Status::BadMessage)?;
    match reply.status {
        Status::Ok => {
            let answer = reply.answers.0.into_iter().next().ok_or(Status::BadMessage)?;
            Ok((answer, bulk))
        }
        status => Err(status),
    }
}

/// A request without a waiting caller leaves no trace.
struct Forget {
    link: Rc<Link>,
    tag: u64,
}

impl Drop for Forget {
    fn drop(&mut self) {
        self.link.waiting.borrow_mut().remove(&self.tag);
    }
}

/// Deliver an answer to its caller; returns the epoch that the server reported.
fn answered(link: &Link, frame: Frame) -> Result<u32, Ended> {
    if frame.kind != FrameKind::Reply {
        return Err(Ended::Garbage);
    }
    let reply: Reply = frame.message().map_err(|_| Ended::Garbage)?;
    if let Some(waiting) = link.waiting.borrow_mut().remove(&frame.tag) {
        // No caller waits any more: the answer is of no use.
        let _ = waiting.send((reply.groups.0, frame.bulk));
    }
    Ok(reply.map_epoch)
}

impl crate::data::Peers for Peers {
    fn ask(
        &self,
        server: ServerId,
        op: Op,
        bulk: Bytes,
        deadline: Instant,
    ) -> LocalBoxFuture<'static, Result<(Answer, Bytes), Status>> {
        let own = self.clone();
        Box::pin(async move { own.call_with(server, op, bulk, deadline).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::Identity;
    use shoal_proto::message::{Attach, Challenge, Hello, Refusal, VERSIONS};
    use shoal_proto::{ClusterMap, Roles, Seal, SecretKey, ServerInfo, StoreId, samples};
    use shoal_store::{CollectionConfig, ModuleKind};
    use std::io::IoSlice;

    /// The next message that comes, if one does within `wait`.
    async fn heard<T: shoal_proto::codec::Codec>(
        env: &Env,
        stream: &mut shoal_env::Stream,
        buf: &mut bytes::BytesMut,
        wait: Duration,
    ) -> Option<T> {
        loop {
            if let Some(frame) = Frame::take(buf).unwrap() {
                return Some(frame.message().unwrap());
            }
            let mut some = [0; 4096];
            let read = env.deadline(env.now() + wait, stream.reader.read(&mut some)).await.ok()?;
            buf.extend_from_slice(&some[..read.unwrap()]);
        }
    }

    fn alone(env: &Env, identity: SharedIdentity, store: Collection) -> Peers {
        let (counters, tasks) = (Rc::default(), Tasks::default());
        Peers::new(env.clone(), identity, store, counters, tasks, (Settings::default(), Audit::default()))
    }

    /// Server 1's challenge, with a map of that epoch.
    fn challenge(key: &SecretKey, hello: &Hello, map_epoch: u32) -> Challenge {
        let mut challenge = Challenge {
            version: VERSIONS.1,
            nonce: [5; 32],
            server: ServerId(1),
            store: StoreId::NONE,
            map_epoch,
            proof: [0; 32],
            peer_proof: [0; 32],
            seal: Seal::Off,
        };
        challenge.prove(key, key, hello);
        challenge
    }

    /// The status of an introduction that a peer with such a map refuses, and whether that counts.
    async fn refused_by(env: &Env, address: &'static str, map_epoch: u32, status: Status) -> (Status, bool) {
        refused_after(env, address, map_epoch, status, Duration::ZERO).await
    }

    /// The same of a peer that accepts the connection within a second, and takes `pause` before its answer.
    async fn refused_after(
        env: &Env,
        address: &'static str,
        map_epoch: u32,
        status: Status,
        pause: Duration,
    ) -> (Status, bool) {
        let key = SecretKey::new([7; 32]);
        let info = |id: u16| ServerInfo::new(ServerId(id), vec![address.into()], Roles::all());
        let servers = vec![info(0), info(1)].into();
        let map = ClusterMap { fs_id: [3; 16], epoch: 5, servers, ..samples::map() };
        let identity = Identity::new(ServerId(0), Rc::new(map), key.clone());
        let config = CollectionConfig::new("/nowhere", ModuleKind::Memory, Default::default());
        let store = shoal_store::open(env.clone(), config).await.unwrap();
        let identity = Rc::new(RefCell::new(Rc::new(identity)));
        let peers = alone(env, identity, store);
        let mut listener = env.listen(&address.parse().unwrap()).await.unwrap();
        let (own, tasks) = (peers.clone(), Tasks::default());
        let (reached, answered) = (env.now() + Duration::from_secs(1), env.now() + Duration::from_secs(30));
        let (send, receive) = oneshot::channel();
        tasks.spawn(env, "introduce", async move {
            let _ = send.send(own.introduce(ServerId(1), reached, answered).await);
        });
        let (mut stream, mut buf) = (listener.accept().await.unwrap(), bytes::BytesMut::new());
        let long = Duration::from_secs(20);
        let hello: Hello = heard(env, &mut stream, &mut buf, long).await.unwrap();
        env.sleep(pause).await;
        let challenge = challenge(&key, &hello, map_epoch);
        let mut out = Vec::new();
        Frame::put(FrameKind::Challenge, VERSIONS.1, 0, &challenge, 0, &mut out);
        let refusal = Refusal { status, words: "another store".into() };
        Frame::put(FrameKind::Refusal, VERSIONS.1, 0, &refusal, 0, &mut out);
        stream.writer.write_all(&mut [IoSlice::new(&out)]).await.unwrap();
        let (status, _) = receive.await.unwrap().unwrap_err();
        let counts = peers.inner.refusal.borrow().is_some();
        tasks.cancel();
        (status, counts)
    }

    #[test]
    fn a_refusal_counts_unless_the_peer_has_an_older_map() {
        shoal_env::real::run("test", |env| async move {
            let other = Status::OtherStore;
            let older = refused_by(&env, "local:refuses-with-an-older-map", 4, other).await;
            assert_eq!(older, (Status::NoStore, false));
            let given_up = refused_by(&env, "local:knows-it-given-up", 4, Status::Forbidden).await;
            assert_eq!(given_up, (Status::OtherStore, true));
            for (address, epoch) in
                [("local:refuses-with-the-same-map", 5), ("local:refuses-with-a-newer", 6)]
            {
                assert_eq!(refused_by(&env, address, epoch, other).await, (Status::OtherStore, true));
            }
        });
    }

    #[test]
    fn a_peer_that_was_reached_in_time_is_heard_though_it_answers_late() {
        shoal_env::real::run("test", |env| async move {
            let (address, pause) = ("local:answers-late", Duration::from_millis(1500));
            let refused = refused_after(&env, address, 5, Status::OtherStore, pause).await;
            assert_eq!(refused, (Status::OtherStore, true));
        });
    }

    #[test]
    fn handshakes_with_one_peer_take_turns_so_that_none_says_less_than_one_before_it() {
        shoal_env::real::run("test", |env| async move {
            let key = SecretKey::new([7; 32]);
            let address = "local:handshakes-take-turns";
            let info = |id: u16| ServerInfo::new(ServerId(id), vec![address.into()], Roles::all());
            let servers = vec![info(0), info(1)].into();
            let map = ClusterMap { fs_id: [3; 16], servers, ..samples::map() };
            let identity = Identity::new(ServerId(0), Rc::new(map), key.clone());
            let config = CollectionConfig::new("/nowhere", ModuleKind::Memory, Default::default());
            let store = shoal_store::open(env.clone(), config).await.unwrap();
            let identity = Rc::new(RefCell::new(Rc::new(identity)));
            let peers = alone(&env, identity, store);
            let mut listener = env.listen(&address.parse().unwrap()).await.unwrap();
            let tasks = Tasks::default();
            let until = env.now() + Duration::from_secs(30);
            for _ in 0..2 {
                let own = peers.clone();
                tasks.spawn(&env, "introduce", async move {
                    let _ = own.introduce(ServerId(1), until, until).await;
                });
            }
            let mut first = listener.accept().await.unwrap();
            let mut second = listener.accept().await.unwrap();
            let (mut one, mut two) = (bytes::BytesMut::new(), bytes::BytesMut::new());
            let (soon, long) = (Duration::from_millis(50), Duration::from_secs(20));
            let hello: Hello = heard(&env, &mut first, &mut one, long).await.unwrap();
            assert!(heard::<Hello>(&env, &mut second, &mut two, soon).await.is_none(), "before its turn");
            let challenge = challenge(&key, &hello, 0);
            let mut out = Vec::new();
            Frame::put(FrameKind::Challenge, VERSIONS.1, 0, &challenge, 0, &mut out);
            first.writer.write_all(&mut [IoSlice::new(&out)]).await.unwrap();
            assert!(heard::<Attach>(&env, &mut first, &mut one, long).await.is_some());
            assert!(heard::<Hello>(&env, &mut second, &mut two, soon).await.is_none(), "before its turn");
            drop(first);
            assert!(heard::<Hello>(&env, &mut second, &mut two, long).await.is_some());
            tasks.cancel();
        });
    }
}
