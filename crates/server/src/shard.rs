//! A shard: this server's part of one file system, with its store and its state in memory. It runs on one
//! thread at a time.

use crate::audit::Audit;
use crate::counters::Counters;
use crate::data::change_counts::ChangeCounts;
use crate::data::pools::{Pools, Sizes};
use crate::data::{Engine, Sweep};
use crate::file_locks::FileLocks;
use crate::log_limit::Seldom;
use crate::meta::deferred::Deferred;
use crate::meta::dir_split::Splits;
use crate::meta::handles::Handles;
use crate::meta::lingering::Lingering;
use crate::meta::placement::Rotation;
use crate::net::connection::WARNING_EVERY;
use crate::net::connection::{Credits, Refused};
use crate::net::peers::Peers;
use crate::net::session::{Session, Sessions};
use crate::request::ctx::Surroundings;
use crate::request::locks::Locks;
use crate::request::reply_gate::Gate;
use crate::tasks::Tasks;
use crate::txn::Book;
use bytes::Bytes;
use shoal_env::local::Notify;
use shoal_env::{Env, Instant};
use shoal_proto::message::Loss;
use shoal_proto::{ClusterMap, CollectionId, Keys, PlaceKey, Roles, Seal, ServerId, Status, StoreId, Time};
use shoal_store::{Ask, Changes, Collection, Loaded, Lsn, StoreError};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// A shard's identity. Replaced as a whole when a newer map arrives.
#[derive(Clone, Debug)]
pub struct Identity {
    /// This server.
    pub id: ServerId,
    /// The collection.
    pub collection: CollectionId,
    /// The cluster's map.
    pub map: Rc<ClusterMap>,
    /// The file system's keys.
    pub keys: Keys,
    /// Key of the hash that places names in directories.
    pub place_key: PlaceKey,
    /// How long a capability lasts, in nanoseconds.
    pub capability_ns: i64,
}

impl Identity {
    /// A shard's identity.
    pub fn new(id: ServerId, map: Rc<ClusterMap>, keys: impl Into<Keys>) -> Identity {
        let keys = keys.into();
        let place_key = keys.place_key(&map.fs_id);
        Identity { id, collection: map.collection, map, keys, place_key, capability_ns: 3_600_000_000_000 }
    }

    /// The place of a name in its directory: a 63-bit keyed hash, never 0 (listings begin after 0).
    pub fn place_of(&self, name: &[u8]) -> u64 {
        self.place_key.place_of(name)
    }

    /// Entries with which a directory of this server is to be split: `None` where there is nothing to split
    /// over.
    pub fn splits_at(&self) -> Option<u32> {
        let entries = self.map.switches.splits_at()?;
        let mut servers = self.map.with_roles(Roles::METADATA);
        let has_others = servers.clone().nth(1).is_some() && servers.any(|server| server == self.id);
        has_others.then_some(entries)
    }

    /// Whether datafiles are made ahead of need.
    pub fn precreates(&self) -> bool {
        self.map.switches.precreate
    }

    /// Until when a capability given `now` lasts.
    pub fn capability_expiry(&self, now: Time) -> Time {
        Time(now.0.saturating_add(self.capability_ns))
    }
}

/// The identity as all parts of a shard share it.
pub type SharedIdentity = Rc<RefCell<Rc<Identity>>>;

/// Spans of time, and how much there is of something.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// A session without a message for this long ends.
    pub lease: Duration,
    /// A connection that has not attached by then is closed.
    pub handshake: Duration,
    /// How long a prepared transaction waits for its decision before it asks (and asks again).
    pub doubt: Duration,
    /// How large the pools of datafiles are.
    pub pools: Sizes,
    /// Connections at once, at most: fewer than the process may have descriptors, as the store needs some.
    pub connections_max: usize,
    /// Bytes of the block cache; 0: none.
    pub block_cache_bytes: u64,
    /// How much of the frames of a connection over the network is sealed, at least; a side that cannot seal
    /// is refused. `None`: all, and a side of an older version is served without.
    pub seal: Option<Seal>,
    /// The same of connections within the machine, which no attacker on the wire reaches.
    pub seal_within: Seal,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            lease: Duration::from_secs(60),
            handshake: Duration::from_secs(10),
            doubt: Duration::from_secs(2),
            pools: Sizes::DEFAULT,
            connections_max: 16_384,
            block_cache_bytes: 32 << 20,
            seal: None,
            seal_within: Seal::Off,
        }
    }
}

/// Apply a small batch of the server's own, with the space it needs; it may use the reserve.
///
/// # Errors
/// When the store fails.
pub(crate) async fn apply_own(collection: &Collection, changes: Changes) -> Result<Lsn, StoreError> {
    let bytes = |(key, value): &(Bytes, Option<Bytes>)| 64 + key.len() + value.as_ref().map_or(0, Bytes::len);
    let journal_bytes = changes.rows.iter().map(bytes).sum::<usize>() as u64;
    let _admission =
        collection.admit(Ask { journal_bytes, stream_bytes: 0, stream: None, frees: true }).await?;
    collection.apply_over(changes, &Loaded::default())
}

/// One shard.
pub struct Shard {
    /// The world.
    pub env: Env,
    identity: SharedIdentity,
    /// The store.
    pub collection: Collection,
    /// Locks of files.
    pub file_locks: FileLocks,
    /// Keys spoken for by transactions.
    pub locks: Locks,
    /// Handles of this server.
    pub handles: Handles,
    rotation: Rotation,
    /// Sessions.
    pub sessions: Sessions,
    /// Sessions of peers: kept nowhere else.
    pub peer_sessions: RefCell<BTreeMap<ServerId, Rc<Session>>>,
    /// Changes of attributes that are answered and not durable.
    pub deferred: Deferred,
    /// Replies that wait for the journal.
    pub gate: Gate,
    /// Bytes that connections hold for long reads and long writes.
    pub credits: Credits,
    /// The other servers.
    pub peers: Peers,
    /// Datafiles of other servers, made ahead of need.
    pub pools: Pools,
    /// Directories to be split.
    pub splits: Splits,
    /// Transactions.
    pub book: Book,
    /// How far the streams' bytes have changed.
    pub changes: ChangeCounts,
    /// Counts.
    pub counters: Rc<Counters>,
    /// The audit log of its server.
    pub audit: Audit,
    /// Warnings of frames that the other end of a connection did not send.
    pub(crate) forgery_warnings: RefCell<Seldom>,
    /// Spans of time.
    pub settings: Settings,
    /// Removed files that others may have open.
    pub(crate) lingering: Rc<Lingering>,
    /// Woken when a mount key may have been revoked.
    pub(crate) keys_changed: Notify,
    /// Woken when there is something to reap on other servers.
    pub reap_rows: Notify,
    /// Requests under way.
    pub work: Tasks,
    /// Everything else that runs.
    pub tasks: Tasks,
    /// When it was opened.
    pub started: Instant,
    /// This start of the server, by a number of its own; never 0.
    start: u64,
    /// When the reported position of a peer's store was last kept.
    pub(crate) remembered: RefCell<BTreeMap<ServerId, Instant>>,
    /// How far the stores of peers are durable that connected before rows could be written.
    pub(crate) heard: RefCell<BTreeMap<ServerId, (StoreId, u64)>>,
    /// Woken when a peer came that has not accepted this server's store yet.
    pub(crate) met: Notify,
    /// Its fellows were asked, and their answers are kept: from then on rows may be written.
    pub(crate) may_write: Cell<bool>,
    /// Why it must not serve any more.
    set_aside: RefCell<Option<String>>,
    was_set_aside: Notify,
    /// No fellow knows that this is not the server's store: clients may come.
    admits: Cell<bool>,
    admitted: Notify,
    /// The configuration had news when it was opened.
    pub(crate) was_given_news: Cell<bool>,
    engine: Engine,
}

impl Shard {
    /// A shard over an open collection. Nothing runs yet: see [`crate::recovery::open`].
    pub fn new(
        env: Env,
        identity: Identity,
        collection: Collection,
        settings: Settings,
        audit: Audit,
    ) -> Rc<Shard> {
        let id = identity.id;
        let identity: SharedIdentity = Rc::new(RefCell::new(Rc::new(identity)));
        let counters = Rc::<Counters>::default();
        let tasks = Tasks::default();
        let own = collection.clone();
        let lingering = Rc::<Lingering>::default();
        let sessions = Sessions::default();
        let clock = env.clone();
        sessions.openers.begin(Box::new(move || clock.now()), settings.lease);
        let noted = (settings, audit.clone());
        let peers = Peers::new(env.clone(), identity.clone(), own, counters.clone(), tasks.clone(), noted);
        let start = env.random_u64() | 1;
        let changes = ChangeCounts::new(start);
        let sweep = Sweep::new(
            env.clone(),
            collection.clone(),
            changes.clone(),
            counters.clone(),
            tasks.clone(),
            settings.block_cache_bytes,
        );
        let engine = Engine {
            changes: changes.clone(),
            env: env.clone(),
            collection: collection.clone(),
            sweep,
            identity: identity.borrow().clone(),
            peers: Rc::new(peers.clone()),
            turns: Default::default(),
            lingering: lingering.clone(),
        };
        Rc::new(Shard {
            start,
            started: env.now(),
            env,
            identity,
            collection,
            file_locks: FileLocks::default(),
            locks: Locks::default(),
            handles: Handles::new(id),
            rotation: Rotation::default(),
            sessions,
            lingering,
            peer_sessions: RefCell::default(),
            deferred: Deferred::default(),
            gate: Gate::default(),
            credits: Credits::default(),
            peers,
            pools: Pools::new(settings.pools),
            splits: Splits::default(),
            book: Book::default(),
            changes,
            counters,
            audit,
            forgery_warnings: RefCell::new(Seldom::new(WARNING_EVERY)),
            settings,
            keys_changed: Notify::default(),
            reap_rows: Notify::default(),
            work: Tasks::default(),
            tasks,
            remembered: RefCell::default(),
            heard: RefCell::default(),
            met: Notify::default(),
            may_write: Cell::default(),
            set_aside: RefCell::default(),
            was_set_aside: Notify::default(),
            admits: Cell::default(),
            was_given_news: Cell::default(),
            admitted: Notify::default(),
            engine,
        })
    }

    /// The id of the server at this moment.
    pub fn identity(&self) -> Rc<Identity> {
        self.identity.borrow().clone()
    }

    /// All that a handler's run reads besides rows; `identity` is that of this moment.
    pub(crate) fn surroundings<'a>(&'a self, identity: &'a Identity) -> Surroundings<'a> {
        Surroundings {
            identity,
            locks: &self.locks,
            pools: &self.pools,
            sessions: &self.sessions,
            counts: &self.changes,
        }
    }

    /// Its server.
    pub fn id(&self) -> ServerId {
        self.identity.borrow().id
    }

    /// Removed files that are kept for the clients that have them open: how many, and their bytes.
    pub fn lingering(&self) -> (usize, u64) {
        (self.lingering.objects(), self.lingering.bytes())
    }

    /// The server whose turn it is to get a new directory.
    pub fn next_place(&self) -> ServerId {
        self.rotation.next(&self.identity(), |server| self.peers.is_silent(server), || self.env.random_u64())
    }

    /// Let clients in, and peers ask.
    pub(crate) fn admit_clients(&self) {
        self.admits.set(true);
        self.peers.begin_to_serve();
        // They could not give this server their maps until now.
        let epoch = self.identity().map.epoch;
        self.peer_sessions.borrow().keys().for_each(|peer| self.peers.note_map(*peer, epoch));
        self.admitted.wake_all();
    }

    /// Whether any peer but an introduced fellow may send requests.
    pub(crate) fn admits(&self) -> bool {
        self.admits.get()
    }

    /// Whether the others may not know this server's map yet since it was opened.
    pub(crate) fn has_new_map(&self) -> bool {
        self.was_given_news.get()
    }

    /// Wait until clients may come, or it is known that they may not.
    pub(crate) async fn clients_admitted(&self) {
        while !self.admits.get() && self.set_aside.borrow().is_none() {
            let admitted = self.admitted.wait();
            admitted.await;
        }
    }

    /// A peer knows that this is not the server's store: from now on nothing is read, run or answered, and
    /// each connection is refused.
    pub(crate) fn set_aside(&self, words: &str) {
        if self.set_aside.borrow().is_some() {
            return;
        }
        self.set_aside.replace(Some(words.to_owned()));
        self.admits.set(false);
        self.work.cancel();
        self.tasks.cancel();
        self.peers.end();
        let peers = self.peer_sessions.take().into_values();
        for line in self.sessions.all().into_iter().chain(peers).filter_map(|session| session.line.take()) {
            line.end();
        }
        self.admitted.wake_all();
        self.was_set_aside.wake_all();
    }

    /// The reason that refused connections receive.
    pub fn explain(&self, words: &str) {
        if let Some(said) = self.set_aside.borrow_mut().as_mut() {
            words.clone_into(said);
        }
    }

    /// Refuse, if this shard was set aside.
    ///
    /// # Errors
    /// Why it was.
    pub fn is_set_aside(&self) -> Result<(), Refused> {
        match self.set_aside.borrow().as_ref() {
            Some(words) => Err(Refused::new(Status::NoStore, words.clone())),
            None => Ok(()),
        }
    }

    /// Wait until it is set aside; why.
    pub async fn until_set_aside(&self) -> String {
        loop {
            let changed = self.was_set_aside.wait();
            if let Err(refused) = self.is_set_aside() {
                return refused.words;
            }
            changed.await;
        }
    }

    /// The store that it serves from; none for modules that keep nothing.
    pub fn store(&self) -> StoreId {
        self.collection.store_id()
    }

    /// The resources of bulk work.
    pub fn engine(&self) -> Engine {
        Engine { identity: self.identity(), ..self.engine.clone() }
    }

    /// A newer map takes the place of the present one.
    pub fn adopt_map(&self, mut map: ClusterMap) {
        let mut identity = self.identity.borrow_mut();
        // A peer may have been met since this map was made.
        map.remember_stores(&identity.map);
        if map.epoch >= identity.map.epoch && map != *identity.map {
            *identity = Rc::new(Identity { map: Rc::new(map), ..(**identity).clone() });
            self.pools.map_changed.wake_all();
            self.keys_changed.wake_all();
        }
    }

    /// The loss id of a group's changes, if a kill of this server would lose them (`with_start`), or would
    /// not.
    pub fn loss(&self, with_start: bool) -> Loss {
        Loss { kept: self.loss_kept(), start: if with_start { self.start } else { 0 } }
    }

    /// See [`Loss::kept`].
    pub fn loss_kept(&self) -> u64 {
        let id = self.collection.loss_id();
        let (high, low) = id.boot.split_at(8);
        let half = |bytes: &[u8]| bytes.iter().fold(0_u64, |acc, byte| acc << 8 | u64::from(*byte));
        // A successor has lost the unsynced changes of the store before it.
        let store = self.store().0.rotate_left(29);
        half(high) ^ half(low).rotate_left(17) ^ store ^ id.poisonings.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Reserve the next range of handles in the background.
    pub fn grow_handles(self: &Rc<Shard>) {
        let shard = self.clone();
        self.tasks.spawn(&self.env, "handles", async move {
            if shard.handles.is_low()
                && let Err(error) = shard.handles.grow(&shard.collection).await
            {
                tracing::warn!(%error, "no further handles could be reserved");
            }
        });
    }
}
