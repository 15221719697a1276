//! A server: the addresses at which it listens, and the shards that it holds, one for each collection.
//!
//! [`serve`] binds the addresses, reads the shards without a change, and accepts connections. Then it asks
//! the fellows of each shard, and opens the shards (recovery included). Clients wait until the shards are
//! open.
//!
//! [`ServerHandle::stop`] ends the server cleanly. It accepts no connection; requests under way finish and
//! are answered, for 10 s at most; then everything is made durable and the stores are closed.
//! [`ServerHandle::abandon`] acts as a crash: all tasks vanish, nothing is written.

use crate::audit::{Audit, AuditConfig};
use crate::counters::add;
use crate::file_locks::rows;
use crate::log_limit::Seldom;
use crate::membership::maps;
use crate::membership::stores;
use crate::net::connection::{self, Begun, Frames, Line, Refused, Scratch, greet, refuse};
use crate::net::connection_limit::{ConnectionAdmission, Place, Places};
use crate::recovery;
use crate::shard::{Identity, Settings, Shard};
use crate::tasks::Tasks;
use futures_util::future::{Either, select, select_all, try_join_all};
use shoal_env::local::Notify;
use shoal_env::{Address, Env, Listener, Stream, Writer};
use shoal_proto::message::VERSIONS;
use shoal_proto::op::Owner;
use shoal_proto::{ClusterMap, Keys, Seal, SecretKey, ServerId, Status};
use shoal_store::{Collection, StoreError};
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// How long a clean stop waits for requests under way.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after an accept failed (no descriptors left, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A connection that is refused for lack of a place may send its first message for this long.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Warnings of failed authentications come no more often: guessing of keys does not fill the log.
const KEY_WARNING_EVERY: Duration = Duration::from_secs(10);

/// One collection of a server.
pub struct CollectionSetup {
    /// The open store.
    pub store: Collection,
    /// The cluster's map; a newer one kept in the store wins.
    pub map: ClusterMap,
    /// The file system's keys. `None`: on loopback only, and any local user may claim any identity.
    pub keys: Option<Keys>,
    /// How the root directory of a new file system is to look.
    pub root: Owner,
}

/// The options of a server.
pub struct ServerConfig {
    /// Its id, the same in all its collections.
    pub id: ServerId,
    /// Where it listens.
    pub listen: Vec<Address>,
    /// Its collections.
    pub collections: Vec<CollectionSetup>,
    /// Spans of time.
    pub settings: Settings,
    /// How long its thread polls before it sleeps; zero: not at all.
    pub polling: Duration,
    /// Its audit log, if it is to have one.
    pub audit: Option<AuditConfig>,
}

/// Why a server did not begin.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Without a key only loopback is safe.
    #[error(
        "{0} is not a loopback address: a server without a key listens on loopback only; give it a key file"
    )]
    NeedsKey(Address),
    /// The address cannot be bound.
    #[error("cannot listen at {0}: {1}")]
    Listen(Address, #[source] std::io::Error),
    /// A collection cannot be opened.
    #[error("collection {0}: {1}")]
    Store(String, #[source] StoreError),
    /// The audit log that it is to have cannot be opened.
    #[error("cannot open the audit log {0}: {1}")]
    Audit(PathBuf, #[source] std::io::Error),
    /// Nothing to serve, or two collections of one file system.
    #[error("{0}")]
    Setup(String),
}

struct Inner {
    env: Env,
    shards: Vec<Rc<Shard>>,
    settings: Settings,
    scratch: Scratch,
    tasks: Tasks,
    lines: RefCell<Vec<Weak<Line>>>,
    places: Rc<Places>,
    stopping: Notify,
    /// Woken when nothing more is accepted.
    closing: Notify,
    is_closing: Cell<bool>,
    key_warnings: RefCell<Seldom>,
    audit: Audit,
}

/// A running server. Dropping the handle lets it run on.
pub struct ServerHandle {
    inner: Rc<Inner>,
    accepting: Tasks,
    addresses: Vec<Address>,
}

/// Begin to serve.
///
/// # Errors
/// See [`ServeError`]; nothing runs then.
pub async fn serve(env: Env, config: ServerConfig) -> Result<ServerHandle, ServeError> {
    check(&config)?;
    env.set_polling(config.polling);
    let mut listeners = Vec::new();
    for address in &config.listen {
        let listener =
            env.listen(address).await.map_err(|error| ServeError::Listen(address.clone(), error))?;
        listeners.push(listener);
    }
    let path = config.audit.as_ref().map(|audit| audit.file.clone()).unwrap_or_default();
    let audit = Audit::open(&env, config.id, config.audit).await;
    let audit = audit.map_err(|error| ServeError::Audit(path, error))?;
    let mut shards = Vec::new();
    let mut roots = Vec::new();
    for setup in config.collections {
        let name = setup.map.name.0.clone();
        roots.push(setup.root);
        match find(&env, config.id, setup, config.settings, &audit).await {
            Ok(shard) => shards.push(shard),
            Err(error) => {
                shards.iter().for_each(|shard: &Rc<Shard>| shard.tasks.cancel());
                audit.abandon();
                return Err(ServeError::Store(name, error));
            }
        }
    }
    audit.started(&shards);
    let inner = Rc::new(Inner {
        env: env.clone(),
        shards,
        settings: config.settings,
        scratch: Scratch::new(env.counters()),
        tasks: Tasks::default(),
        lines: RefCell::default(),
        places: Places::new(config.settings.connections_max),
        stopping: Notify::default(),
        closing: Notify::default(),
        is_closing: Cell::default(),
        key_warnings: RefCell::new(Seldom::new(KEY_WARNING_EVERY)),
        audit,
    });
    let addresses = listeners.iter().map(Listener::address).collect();
    let accepting = Tasks::default();
    for (listener, address) in listeners.into_iter().zip(&config.listen) {
        accepting.spawn(&env, "accept", accept(inner.clone(), listener, address.is_tcp()));
    }
    let server = ServerHandle { inner, accepting, addresses };
    // From here on its fellows can ask it; clients wait until they have answered.
    if let Err(error) = server.begin(&roots).await {
        server.close_listeners().await;
        server.inner.audit.close(Some("it did not begin")).await;
        server.abandon();
        return Err(error);
    }
    Ok(server)
}

fn check(config: &ServerConfig) -> Result<(), ServeError> {
    let mut seen: Vec<[u8; 16]> = Vec::new();
    for setup in &config.collections {
        if seen.contains(&setup.map.fs_id) {
            return Err(ServeError::Setup("two collections of one file system on one server".into()));
        }
        seen.push(setup.map.fs_id);
    }
    if seen.is_empty() {
        return Err(ServeError::Setup("no collection to serve".into()));
    }
    let keyless = config.collections.iter().any(|setup| setup.keys.is_none());
    match config.listen.iter().find(|address| keyless && !address.is_of_this_machine()) {
        Some(address) => Err(ServeError::NeedsKey(address.clone())),
        None => Ok(()),
    }
}

async fn find(
    env: &Env,
    id: ServerId,
    setup: CollectionSetup,
    settings: Settings,
    audit: &Audit,
) -> Result<Rc<Shard>, StoreError> {
    // Without a key both sides prove that they have none: a seal would prove nothing.
    let seal = if setup.keys.is_none() { Some(Seal::Off) } else { settings.seal };
    let settings = Settings { seal, ..settings };
    let keys = setup.keys.unwrap_or(Keys::one(SecretKey::new([0; 32])));
    let identity = Identity::new(id, Rc::new(setup.map), keys);
    let shard = Shard::new(env.clone(), identity, setup.store, settings, audit.clone());
    recovery::find(&shard).await.map(|()| shard)
}

async fn accept(inner: Rc<Inner>, mut listener: Listener, is_network: bool) {
    let mut fails = false;
    while !inner.is_closing.get() {
        let accepted = {
            let closing = std::pin::pin!(inner.closing.wait());
            let accepting = std::pin::pin!(listener.accept());
            match select(accepting, closing).await {
                Either::Left((accepted, _)) => accepted,
                Either::Right(_) => return,
            }
        };
        match accepted {
            Ok(stream) => {
                fails = false;
                inner.welcome(stream, is_network);
            }
            Err(error) => {
                // Once is enough: it fails again at each pause until descriptors are free.
                if !std::mem::replace(&mut fails, true) {
                    tracing::warn!(%error, "no connection can be accepted; those that are open go on");
                }
                inner.env.sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(inner: Rc<Inner>, stream: Stream, is_network: bool, place: Place) {
    let Stream { mut reader, mut writer, peer } = stream;
    let mut frames = Frames::new(inner.scratch.clone());
    let until = inner.env.now() + inner.settings.handshake;
    let begun = Begun::default();
    let greeted = {
        let parts = (&mut reader, &mut writer, &mut frames);
        let greeting = greet(&inner.shards, (peer.as_str(), is_network), parts, &begun);
        let timed = std::pin::pin!(inner.env.deadline(until, greeting));
        let evicted = std::pin::pin!(place.evicted());
        match select(timed, select(inner.stopping.wait(), evicted)).await {
            Either::Left((greeted, _)) => greeted,
            Either::Right((Either::Left(_), _)) => return,
            Either::Right((Either::Right(_), _)) => Ok(Err(inner.no_place("others came later"))),
        }
    };
    let refused = match greeted {
        Ok(Ok(greeting)) => {
            place.keep();
            inner.enter(&greeting.line);
            let parts = (reader, writer, frames);
            return connection::serve(&greeting.shard, &greeting.session, &greeting.line, parts).await;
        }
        Ok(Err(refused)) => refused,
        Err(_) => Refused::new(Status::TimedOut, "the handshake took too long"),
    };
    let line = begun.take().unwrap_or_else(|| Line::new(peer, VERSIONS.1));
    inner.tell(&line, &mut writer, refused).await;
}

/// There is no place: read its first message (unread bytes in a socket that is closed discard the refusal),
/// and send the refusal.
async fn turn_away(inner: Rc<Inner>, stream: Stream) {
    let Stream { mut reader, mut writer, peer } = stream;
    let mut frames = Frames::new(inner.scratch.clone());
    let until = inner.env.now() + REFUSAL_TIMEOUT;
    let heard = connection::hear(&mut reader, &mut frames);
    let refused = inner.no_place("all places are taken");
    match inner.env.deadline(until, heard).await {
        Ok(()) => inner.tell(&Line::new(peer, VERSIONS.1), &mut writer, refused).await,
        Err(_) => inner.audit.refused(&peer, &refused),
    }
}

impl Inner {
    fn welcome(self: &Rc<Self>, stream: Stream, is_network: bool) {
        let own = self.clone();
        match self.places.enter() {
            ConnectionAdmission::Place(place) => {
                self.tasks.spawn(&self.env, "connection", async move {
                    connection(own, stream, is_network, place).await;
                });
            }
            ConnectionAdmission::Refused(told) => {
                self.tasks.spawn(&self.env, "refusal", async move {
                    turn_away(own, stream).await;
                    drop(told);
                });
            }
            ConnectionAdmission::Nothing => {
                self.audit.refused(&stream.peer, &self.no_place("all places are taken"));
            }
        }
    }

    fn no_place(&self, why: &str) -> Refused {
        let words = format!(
            "this server takes {} connections at once and {why}: come again later, close idle ones, or let the server \
             have more open files (`ulimit -n`)",
            self.places.max()
        );
        Refused::new(Status::OverLimit, words)
    }

    /// Send the reason of a refusal, and close the connection. A peer that does not read the refusal keeps no
    /// task here.
    async fn tell(&self, line: &Line, writer: &mut Writer, refused: Refused) {
        let peer = &line.name;
        if refused.status == Status::BadKey {
            self.warn_of_key(peer);
        } else {
            tracing::info!(peer, status = ?refused.status, words = refused.words, "a connection was refused");
        }
        self.audit.refused(peer, &refused);
        if let Some(shard) = self.shards.first() {
            add(&shard.counters.refusals, 1);
        }
        let until = self.env.now() + self.settings.handshake;
        let told = async {
            refuse(line, writer, &refused).await;
            writer.close().await
        };
        if self.env.deadline(until, told).await.is_err() {
            tracing::debug!("a refused connection did not take its refusal");
        }
    }

    /// The other side has no key, or another one.
    fn warn_of_key(&self, peer: &str) {
        if let Some(unsaid) = self.key_warnings.borrow_mut().is_due(self.env.now()) {
            let more = if unsaid > 0 {
                format!(" (and {unsaid} more since the last warning)")
            } else {
                String::new()
            };
            tracing::warn!("authentication failed: {peer} has not this file system's key{more}");
        }
    }

    fn enter(&self, line: &Rc<Line>) {
        let mut lines = self.lines.borrow_mut();
        if lines.len() == lines.capacity() {
            lines.retain(|line| line.strong_count() > 0);
        }
        lines.push(Rc::downgrade(line));
    }

    fn each_line(&self, each: impl Fn(&Line)) {
        for line in self.lines.borrow().iter().filter_map(Weak::upgrade) {
            each(&line);
        }
    }
}

impl ServerHandle {
    /// Ask the fellows of all shards, then open these.
    async fn begin(&self, roots: &[Owner]) -> Result<(), ServeError> {
        let shards = &self.inner.shards;
        let failed = |shard: &Shard, error| ServeError::Store(shard.identity().map.name.0.clone(), error);
        let ask =
            async |shard: &Rc<Shard>| stores::ask_fellows(shard).await.map_err(|error| failed(shard, error));
        try_join_all(shards.iter().map(ask)).await?;
        for (shard, root) in shards.iter().zip(roots) {
            recovery::open(shard, *root).await.map_err(|error| failed(shard, error))?;
        }
        shards.iter().for_each(|shard| shard.admit_clients());
        shards.iter().filter(|shard| shard.has_new_map()).for_each(maps::push_to_all);
        Ok(())
    }

    /// Accept nothing more, and let go of the addresses.
    async fn close_listeners(&self) {
        self.inner.is_closing.set(true);
        self.inner.closing.wake_all();
        self.accepting.all_ended().await;
    }

    /// Wait until a shard that is not one of `known` is set aside, because a peer knows that its store is not
    /// to be served; which one and why.
    pub async fn until_set_aside(&self, known: &[[u8; 16]]) -> (Rc<Shard>, String) {
        let shards = self.inner.shards.iter();
        let waiting = shards
            .filter(|shard| !known.contains(&shard.identity().map.fs_id))
            .map(|shard| Box::pin(async move { (shard.clone(), shard.until_set_aside().await) }));
        let waiting: Vec<_> = waiting.collect();
        if waiting.is_empty() {
            return std::future::pending().await;
        }
        select_all(waiting).await.0
    }

    /// Where it really listens (ports chosen by the system resolved), in the order requested.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Its shards, in the order of their setups: for maps made after the addresses are known, and for
    /// counters.
    pub fn shards(&self) -> &[Rc<Shard>] {
        &self.inner.shards
    }

    /// Take a newer map, durably (as `setmap` does, from inside the process).
    ///
    /// # Errors
    /// As `setmap`; `BadCollection` if no shard is of its file system.
    pub async fn set_map(&self, map: ClusterMap) -> Result<(), Status> {
        let own = self.inner.shards.iter().find(|shard| shard.identity().map.fs_id == map.fs_id);
        crate::ops::admin::setmap::run(own.ok_or(Status::BadCollection)?, None, map).await.map(drop)
    }

    /// End cleanly. Requests under way are finished and answered (for a bounded time); then the stores are
    /// closed.
    ///
    /// # Errors
    /// When a store could not make everything durable.
    pub async fn stop(self) -> Result<(), StoreError> {
        self.accepting.cancel();
        let inner = &self.inner;
        inner.stopping.wake_all();
        inner.each_line(Line::close);
        inner.shards.iter().for_each(|shard| shard.file_locks.stop());
        let until = inner.env.now() + STOP_TIMEOUT;
        if inner.env.deadline(until, inner.tasks.all_ended()).await.is_err() {
            tracing::warn!("some requests did not end in time; their clients will ask again");
        }
        for shard in &inner.shards {
            let ended = shard.work.all_ended();
            if inner.env.deadline(until, ended).await.is_err() {
                tracing::warn!("requests were given up at the stop");
            }
        }
        for shard in &inner.shards {
            if inner.env.deadline(until, rows::forget_at_stop(shard)).await.is_err() {
                tracing::warn!(
                    "rows of clients without locks are left: after the start others wait for them"
                );
            }
        }
        self.abandon_tasks();
        let mut result = Ok(());
        for shard in &inner.shards {
            let closed = shard.collection.close().await;
            result = result.and(closed);
        }
        self.inner.audit.close(None).await;
        result
    }

    /// End at once, as a crash would: all tasks vanish, nothing more is written. For tests and simulations.
    pub fn abandon(self) {
        self.accepting.cancel();
        self.inner.audit.abandon();
        self.abandon_tasks();
    }

    fn abandon_tasks(&self) {
        for shard in &self.inner.shards {
            shard.work.cancel();
            shard.tasks.cancel();
            shard.peers.end();
        }
        self.inner.tasks.cancel();
    }
}
