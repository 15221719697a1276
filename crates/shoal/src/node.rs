//! Servers within this process. Each server has a *world* of its own (an event loop of `shoal_env` with its
//! clock, sockets and files) and a thread of its own. If another thread wakes a world, that thread also
//! polls it.
//!
//! All servers start at once; only servers that get a new store or accept an older copy (`--new-store`,
//! `--accept-older`) start after the others. If one server fails to start, the others are stopped and the
//! error is returned. A server whose store is missing is no failure as long as another server serves: it
//! refuses every connection, and is reported as [`Missing`]. At the stop all servers end at once, each when
//! all its data is durable.

use crate::cluster_file::{ClusterFile, CollectionEntry};
use crate::panics;
use crate::renewal::{self, Given};
use crate::stop::Event;
use crate::store_record::StoreRecord;
use anyhow::{Context as _, Result, anyhow, bail};
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use shoal_env::{Address, Env, real};
use shoal_proto::{ClusterMap, Keys, Owner, Seal, ServerId, Status};
use shoal_server::refusing::Refusing;
use shoal_server::room::Room;
use shoal_server::stores;
use shoal_server::{
    AuditConfig, CollectionSetup, ServeError, ServerConfig, ServerHandle, Settings, Shard, serve,
};
use shoal_store::{CollectionConfig, Identity, StoreError};
use std::fmt;
use std::net::{IpAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

/// Spans of time that the servers of one process have in common.
#[derive(Clone, Copy, Debug)]
pub struct Spans {
    /// How long a thread polls before it sleeps.
    pub polling: Duration,
    /// A session without a message for this long ends.
    pub lease: Duration,
}

impl Default for Spans {
    fn default() -> Spans {
        Spans { polling: Duration::ZERO, lease: Settings::default().lease }
    }
}

/// Servers that run.
pub struct Node {
    servers: Vec<Running>,
    /// Those of them that do not serve, because their store is missing, and why.
    missing: Vec<Missing>,
}

/// A server does not serve, because its store is missing.
#[derive(Clone, Debug)]
pub struct Missing {
    /// The server.
    pub server: u16,
    words: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Missing {}

impl Missing {
    fn new(server: ServerId, folder: &Path, name: &str, why: &str) -> Missing {
        let words = format!(
            "the store of server {server} for file system `{name}` is missing: {why}; mount the disk that holds {}, or restore \
             that folder from a copy (an older one is accepted with --accept-older {server}), or give the store up for good with \
             --new-store {server} (what only this server held is lost then)",
            folder.join(name).display()
        );
        Missing { server: server.0, words }
    }

    /// A further disk of the server is not there. Its store is, so neither a new store nor an older copy is
    /// the remedy; the reason says how to go on.
    fn disk(server: ServerId, name: &str, why: &str) -> Missing {
        let words = format!(
            "server {server} does not serve file system `{name}`: {why}; nothing was changed, start the server again then"
        );
        Missing { server: server.0, words }
    }

    /// The folder holds the store of another server. Neither an older copy nor a new store is the remedy, and
    /// each of them would give up what is still there.
    fn exchanged(server: ServerId, folder: &Path, name: &str, why: &str) -> Missing {
        let words = format!(
            "{} is not the folder of server {server} for file system `{name}`: {why}; put each server's folder back in \
             its place, or correct `folder` in the cluster file, and start the server again; nothing was changed",
            folder.join(name).display()
        );
        Missing { server: server.0, words }
    }
}

/// How a server began.
type Begun = Result<(), Missing>;

struct Running {
    id: ServerId,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<()>>,
}

/// Dropped with a server's world. One that is dropped before it has finished is dead by a panic, in any of
/// its tasks.
struct Unfinished {
    id: ServerId,
    events: Sender<Event>,
    is_finished: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_finished {
            panics::end_soon();
            let words = format!("{}; this is a bug, and the next start recovers", panics::last());
            let _ = self.events.send(Event::Failed(self.id, words));
        }
    }
}

/// All that one server's thread needs.
struct Plan {
    id: ServerId,
    listen: Vec<Address>,
    folder: PathBuf,
    /// Folders of streams' files on further disks.
    streams: Vec<PathBuf>,
    collections: Vec<(CollectionEntry, ClusterMap)>,
    keys: Keys,
    spans: Spans,
    /// How much of the frames on TCP is sealed.
    seal: Option<Seal>,
    root: Owner,
    connections: u64,
    record: StoreRecord,
    audit: Option<AuditConfig>,
}

impl Node {
    /// Start servers of which the `given` ones get new stores: the others first, because each server is
    /// informed that a store was given up, and has to agree.
    pub fn start_given(
        cluster: &ClusterFile,
        ids: &[u16],
        given: Given<'_>,
        spans: Spans,
        events: &Sender<Event>,
    ) -> Result<Node> {
        let anew: Vec<u16> = given.anew.iter().map(|anew| anew.server).collect();
        // A store of another machine is given up together with one of here: each of the two waits for the
        // other one else.
        let is_elsewhere =
            |id: &u16| usize::from(*id) < cluster.server.len() && anew.iter().any(|anew| ids.contains(anew));
        for (flag, named) in [("--new-store", &anew[..]), ("--accept-older", given.older)] {
            let may_be_elsewhere = flag == "--new-store";
            let is_wrong = |id: &&u16| !(ids.contains(id) || may_be_elsewhere && is_elsewhere(id));
            if let Some(id) = named.iter().find(is_wrong) {
                bail!("{flag} {id}: server {id} is not among those that are started here");
            }
        }
        if let Some(id) = anew.iter().find(|id| given.older.contains(id)) {
            bail!(
                "server {id}: --new-store begins in an empty folder, --accept-older goes on with a copy: give one of them"
            );
        }
        let (given_up, others): (Vec<u16>, Vec<u16>) = ids.iter().partition(|id| given.has(**id));
        let mut node = Node::start(cluster, &others, spans, events)?;
        if given.is_empty() {
            return Ok(node);
        }
        let added =
            renewal::renew(cluster, given).and_then(|()| Node::start(cluster, &given_up, spans, events));
        match added {
            Ok(added) => {
                node.servers.extend(added.servers);
                node.missing.extend(added.missing);
                Ok(node)
            }
            Err(error) => {
                node.stop()?;
                Err(error)
            }
        }
    }

    /// Start servers of a cluster; returns when all serve. One that ends later by itself is an event.
    pub fn start(cluster: &ClusterFile, ids: &[u16], spans: Spans, events: &Sender<Event>) -> Result<Node> {
        let keys = cluster.keys()?;
        // As far as that goes: with fewer there are fewer connections.
        let servers = ids.len().max(1) as u64;
        let open_files = shoal_env::raise_open_files((OPEN_FILES + CONNECTIONS) * servers) / servers;
        let connections = open_files.saturating_sub(OPEN_FILES).clamp(CONNECTIONS_MIN, CONNECTIONS);
        let mut node = Node { servers: Vec::new(), missing: Vec::new() };
        let mut begins = Vec::new();
        for &id in ids {
            let plan = Plan::new(cluster, id, keys.clone(), spans, connections)?;
            let (stop, stopped) = oneshot::channel();
            let (begun, begin) = std::sync::mpsc::channel();
            let events = events.clone();
            let thread = real::spawn_migratable(&format!("shoal-{id}"), move |env| async move {
                let id = plan.id;
                let mut unfinished = Unfinished { id, events: events.clone(), is_finished: false };
                let done = plan.run(env, stopped, begun).await;
                unfinished.is_finished = true;
                if let Err(error) = &done {
                    let _ = events.send(Event::Failed(id, format!("{error:#}")));
                }
                done
            });
            let thread = thread.with_context(|| format!("cannot start a thread for server {id}"))?;
            node.servers.push(Running { id: ServerId(id), stop, thread });
            begins.push((id, begin));
        }
        let mut failed = None;
        for (id, begin) in begins {
            match begin.recv() {
                Ok(Ok(())) => {}
                Ok(Err(missing)) => node.missing.push(missing),
                Err(_) => failed = failed.or(Some(id)),
            }
        }
        match failed {
            Some(id) => Err(node.stop().err().unwrap_or_else(|| anyhow!("server {id} did not begin"))),
            // Nothing is left that serves.
            None if node.missing.len() == ids.len() && !ids.is_empty() => {
                let first = node.missing.swap_remove(0);
                node.stop()?;
                Err(first.into())
            }
            None => Ok(node),
        }
    }

    /// The servers that do not serve, because their store is missing, and why.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Say on standard error which servers do not serve, and why.
    pub fn say_missing(&self) {
        for missing in &self.missing {
            eprintln!("shoal: DEGRADED: server {}: {missing}", missing.server);
        }
    }

    /// Stop all, everything durable. The first failure is the error.
    pub fn stop(self) -> Result<()> {
        let mut result = Ok(());
        let (stops, threads): (Vec<_>, Vec<_>) =
            self.servers.into_iter().map(|s| (s.stop, (s.id, s.thread))).unzip();
        drop(stops);
        for (id, thread) in threads {
            let ended = match thread.join() {
                Ok(ended) => ended.with_context(|| format!("server {id}")),
                Err(_) => Err(anyhow!("server {id} is dead by {}", panics::last())),
            };
            result = result.and(ended);
        }
        result
    }
}

impl Plan {
    fn new(cluster: &ClusterFile, id: u16, keys: Keys, spans: Spans, connections: u64) -> Result<Plan> {
        let entry = cluster.server.get(usize::from(id)).with_context(|| {
            format!("there is no server {id} in the cluster file: it has 0 to {}", cluster.server.len() - 1)
        })?;
        let record = StoreRecord::load(cluster, id)?;
        let with_map = |c: &CollectionEntry| {
            let map = cluster.map(c)?;
            let renewed = record.map(&map.fs_id)?;
            Ok((c.clone(), renewed.map_or(map.clone(), |renewed| renewed.succeeded_by(&map))))
        };
        let collections = cluster.collection.iter().map(with_map).collect::<Result<_>>()?;
        Ok(Plan {
            id: ServerId(id),
            listen: entry.addresses()?,
            folder: cluster.path(&entry.folder),
            streams: entry.streams.iter().map(|streams| cluster.path(streams)).collect(),
            collections,
            keys,
            spans,
            seal: cluster.mac.map(Seal::from),
            root: Owner {
                mode: 0o755,
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
            },
            connections,
            record,
            audit: cluster.audit_of(entry).map(|(file, bytes_max)| AuditConfig { file, bytes_max }),
        })
    }

    /// Serve until the stop is requested (its sender is dropped). Without its store the server refuses every
    /// connection until then.
    async fn run(
        self,
        env: Env,
        stopped: oneshot::Receiver<()>,
        begun: std::sync::mpsc::Sender<Begun>,
    ) -> Result<()> {
        let (id, folder) = (self.id, self.folder.clone());
        let (listen, mut record) = (self.listen.clone(), self.record.clone());
        let server = match self.begin(&env).await {
            Ok(server) => server,
            Err(error) => {
                let missing = error.downcast::<Missing>()?;
                let _refusing = Refusing::begin(&env, &listen, Status::NoStore, &missing.words).await;
                let _ = begun.send(Err(missing));
                let _ = stopped.await;
                return Ok(());
            }
        };
        keep(&mut record, server.shards())?;
        let _ = begun.send(Ok(()));
        for address in &listen {
            warn_of_name(&env, address).await;
        }
        // An error is the sender's end: the stop.
        let mut stopped = std::pin::pin!(stopped);
        let mut set_aside: Vec<[u8; 16]> = Vec::new();
        loop {
            let minute = std::pin::pin!(env.sleep(RECORD_EVERY));
            let known = set_aside.clone();
            let refused = std::pin::pin!(server.until_set_aside(&known));
            match select(stopped, select(minute, refused)).await {
                Either::Left(_) => break,
                Either::Right((Either::Left(_), waiting)) => stopped = waiting,
                Either::Right((Either::Right(((shard, why), _)), waiting)) => {
                    stopped = waiting;
                    let map = shard.identity().map.clone();
                    set_aside.push(map.fs_id);
                    let missing = Missing::new(id, &folder, &map.name.0, &why);
                    shard.explain(&missing.words);
                    tracing::error!("DEGRADED: server {id}: {missing}");
                }
            }
            // The record of the store is older then; the server serves all the same.
            if let Err(error) = keep(&mut record, server.shards()) {
                tracing::warn!("{error:#}");
            }
        }
        let shards = server.shards().to_vec();
        server.stop().await.context("cannot make everything durable at the stop")?;
        keep(&mut record, &shards)
    }

    async fn begin(self, env: &Env) -> Result<ServerHandle> {
        let Plan {
            id,
            listen,
            folder,
            streams,
            collections,
            keys,
            spans,
            seal,
            root,
            connections,
            record,
            audit,
        } = self;
        let explain_all = |error, name: &str| match error {
            StoreError::Missing(why) => Missing::new(id, &folder, name, &why).into(),
            StoreError::DiskMissing(why) => Missing::disk(id, name, &why).into(),
            StoreError::Foreign(why) => Missing::exchanged(id, &folder, name, &why).into(),
            error => cannot_open(error, &folder, name),
        };
        let mut setups = Vec::new();
        for (entry, map) in collections {
            keep_private(&folder.join(&entry.name));
            let mut config = collection_config(&entry, &map, id, folder.join(&entry.name))?;
            config.stream_folders = streams.iter().map(|streams| streams.join(&entry.name)).collect();
            let stream_folders = config.stream_folders.clone();
            // A store is made only where none is known.
            config.store = record.of(&map.fs_id).0;
            config.create = record.may_make(&map.fs_id);
            let opened = shoal_store::open(env.clone(), config).await;
            let store = opened.map_err(|error| match (error, record.copy_of(&map.fs_id)) {
                (StoreError::Missing(why), Some(_)) => {
                    let why =
                        format!("{why}; that it is accepted as an older copy was begun and not completed");
                    explain_all(StoreError::Missing(why), &entry.name)
                }
                (error, _) => explain_all(error, &entry.name),
            })?;
            stream_folders.iter().for_each(|folder| keep_private(folder));
            let known = record.of(&map.fs_id).1;
            let refused = stores::refused_by_record(&store, id, known).await;
            if let Some(now) = refused.map_err(|error| explain_all(error, &entry.name))? {
                let why = format!(
                    "it is an older copy: durable up to {now}, and was up to {known}; changes acknowledged since are not in it"
                );
                return Err(explain_all(StoreError::Missing(why), &entry.name));
            }
            setups.push(CollectionSetup { store, map, keys: Some(keys.clone()), root });
        }
        // A store that keeps nothing has made no folder.
        if audit.as_ref().is_some_and(|audit| audit.file.starts_with(&folder)) {
            env.create_dir(&folder).await.with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let settings = Settings {
            connections_max: usize::try_from(connections).unwrap_or(usize::MAX),
            lease: spans.lease,
            seal,
            ..Settings::default()
        };
        let config =
            ServerConfig { id, listen, collections: setups, settings, polling: spans.polling, audit };
        let server = serve(env.clone(), config).await.map_err(|error| match error {
            ServeError::Store(name, error) => explain_all(error, &name),
            error => explain(error),
        })?;
        for shard in server.shards() {
            warn_of_room(shard).await;
        }
        Ok(server)
    }
}

/// A disk with too little room says so before it refuses anything.
async fn warn_of_room(shard: &Rc<Shard>) {
    let Ok(space) = shard.collection.space().await else { return };
    if let Some(words) = Room::of(shard, &space).words() {
        tracing::warn!("NOT WELL: server {}: {words}", shard.identity().id);
    }
}

/// A name that does not lead to this machine leads clients elsewhere. Clients may resolve it otherwise, so it
/// is no error.
async fn warn_of_name(env: &Env, address: &Address) {
    let Address::Host(host, _) = address else { return };
    let is_here = |ip: &IpAddr| UdpSocket::bind((*ip, 0)).is_ok();
    match env.resolve(host).await {
        Ok(found) if found.iter().any(is_here) => {}
        Ok(found) => {
            let found: Vec<String> = found.iter().map(IpAddr::to_string).collect();
            tracing::warn!(
                "clients look for this server at {}, to which the name {host} leads, and that is not this machine",
                found.join(", ")
            );
        }
        Err(error) => tracing::warn!("clients may not find this server: {error}"),
    }
}

/// A store's folder is its server's alone, and made so. One that every user may look into was made by an
/// older version, with the umask's mode: it is narrowed. Rights of the group alone are an operator's choice
/// (for a backup), and stay.
fn keep_private(folder: &Path) {
    let Ok(meta) = std::fs::metadata(folder) else { return };
    let mode = meta.permissions().mode() & 0o777;
    if !meta.is_dir() || mode & 0o007 == 0 {
        return;
    }
    match std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)) {
        Ok(()) => tracing::warn!(
            "everybody could look into {}: its mode was {mode:o}, and is 700 now",
            folder.display()
        ),
        Err(error) => {
            tracing::warn!("everybody can look into {}, of mode {mode:o}: {error}", folder.display())
        }
    }
}

/// Keep the stores that a server serves from in its record.
fn keep(record: &mut StoreRecord, shards: &[Rc<Shard>]) -> Result<()> {
    let mut stores = Vec::new();
    let serving = |shard: &&Rc<Shard>| shard.store().is_known() && shard.is_set_aside().is_ok();
    for shard in shards.iter().filter(serving) {
        stores.push((shard.identity().map.fs_id, shard.store(), shard.collection.durable().0));
    }
    record.keep(&stores)
}

/// How a collection of a server is opened.
pub fn collection_config(
    entry: &CollectionEntry,
    map: &ClusterMap,
    id: ServerId,
    folder: PathBuf,
) -> Result<CollectionConfig> {
    let identity = Identity { fs: map.fs_id, collection: map.collection.0, server: id.0 };
    let cache =
        usize::try_from(entry.cache.0).context("the cache is larger than this machine's memory can be")?;
    let config = CollectionConfig::new(folder, entry.module.into(), identity).with_cache(cache);
    Ok(CollectionConfig { sync_modes: entry.sync_modes(), ..config })
}

/// How often the record of a server's stores is written, while they change.
const RECORD_EVERY: Duration = Duration::from_secs(60);
/// Descriptors that one server may use well for its streams' files, journal and tables.
const OPEN_FILES: u64 = 1024;
/// Connections of one server, at most; and at least, however few descriptors there are.
const CONNECTIONS: u64 = 16_384;
const CONNECTIONS_MIN: u64 = 64;

fn cannot_open(error: StoreError, folder: &Path, name: &str) -> anyhow::Error {
    let dir = folder.join(name);
    with_remedy(error).context(format!("cannot open file system `{name}` in {}", dir.display()))
}

/// The error of opening a folder, and the remedy.
fn with_remedy(error: StoreError) -> anyhow::Error {
    let remedy = match &error {
        StoreError::Io { errno: Some(errno), .. } => remedy_of(*errno),
        StoreError::Damaged(_) => Some(
            "nothing of it was thrown away; bring this folder back from a copy, and where there is none keep it as it is \
             and ask for help",
        ),
        _ => None,
    };
    match remedy {
        Some(remedy) => anyhow!("{error}: {remedy}"),
        None => error.into(),
    }
}

fn remedy_of(errno: i32) -> Option<&'static str> {
    use rustix::io::Errno;
    match Errno::from_raw_os_error(errno) {
        Errno::NOSPC | Errno::DQUOT => Some("free some space there, or name a folder on a larger disk"),
        Errno::ROFS | Errno::ACCESS | Errno::PERM => {
            Some("let this user write there, or name another folder")
        }
        Errno::NOTDIR | Errno::EXIST => Some("a file is in the folder's place: name another folder"),
        Errno::MFILE | Errno::NFILE => Some("let this process have more open files (`ulimit -n`)"),
        _ => None,
    }
}

/// The remedy for what commonly prevents a start.
fn explain(error: ServeError) -> anyhow::Error {
    let remedy = match &error {
        ServeError::Listen(Address::Tcp(at), io) if io.kind() == std::io::ErrorKind::AddrInUse => format!(
            "port {0} is in use: stop what uses it (`ss -ltnp 'sport = :{0}'` names it), then start again; clients \
             know this address, so it is kept",
            at.port()
        ),
        ServeError::Listen(Address::Tcp(at), io) if io.kind() == std::io::ErrorKind::AddrNotAvailable => {
            format!(
                "{} is not an address of this machine: start this server (`--server ID`) on the one that has it; if the server is \
             here now, `shoal move-server` says so to the others, and to the cluster file",
                at.ip()
            )
        }
        ServeError::Listen(Address::Tcp(at), io) if io.kind() == std::io::ErrorKind::PermissionDenied => {
            format!("port {} is for root alone: name one above 1023 in the cluster file", at.port())
        }
        ServeError::Audit(..) => {
            "the server is to have an audit log (`audit` in the cluster file) and does not begin without: let this user \
             write there, or name another file"
                .to_owned()
        }
        _ => return error.into(),
    };
    anyhow::Error::new(error).context(remedy)
}
