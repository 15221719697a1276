//! Servers within this process: a world each, with a thread of its own, polled also by the thread that wakes it.
//!
//! All begin at once and each says when it serves; if one does not begin, the others are stopped and its reason is the
//! error. At the stop all end at once, each with everything durable.

use crate::cluster_file::{ClusterFile, CollectionEntry};
use crate::secret::KeyFile;
use crate::stop::Event;
use anyhow::{Context as _, Result, anyhow};
use futures_channel::oneshot;
use shoal_env::{Address, Env, real};
use shoal_proto::{ClusterMap, Owner, SecretKey, ServerId};
use shoal_server::{CollectionSetup, ServeError, ServerConfig, Settings, serve};
use shoal_store::{CollectionConfig, Identity, StoreError};
use std::path::{Path, PathBuf};
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
}

struct Running {
    id: ServerId,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<()>>,
}

/// All that one server's thread needs.
struct Plan {
    id: ServerId,
    listen: Vec<Address>,
    folder: PathBuf,
    collections: Vec<(CollectionEntry, ClusterMap)>,
    key: SecretKey,
    spans: Spans,
    root: Owner,
    connections: u64,
}

impl Node {
    /// Start servers of a cluster; returns when all serve. One that ends later by itself is an event.
    pub fn start(cluster: &ClusterFile, ids: &[u16], spans: Spans, events: &Sender<Event>) -> Result<Node> {
        let key = KeyFile::load(&cluster.path(&cluster.key))?.secret()?;
        // As far as that goes: with fewer there are fewer connections.
        let servers = ids.len().max(1) as u64;
        let open_files = shoal_bench::raise_open_files((OPEN_FILES + CONNECTIONS) * servers) / servers;
        let connections = open_files.saturating_sub(OPEN_FILES).clamp(CONNECTIONS_MIN, CONNECTIONS);
        let mut node = Node { servers: Vec::new() };
        let mut begins = Vec::new();
        for &id in ids {
            let plan = Plan::new(cluster, id, key.clone(), spans, connections)?;
            let (stop, stopped) = oneshot::channel();
            let (begun, begin) = std::sync::mpsc::channel();
            let events = events.clone();
            let thread = real::spawn_roaming(&format!("shoal-{id}"), move |env| async move {
                let id = plan.id;
                let done = plan.run(env, stopped, begun).await;
                if let Err(error) = &done {
                    let _ = events.send(Event::Failed(id, format!("{error:#}")));
                }
                done
            });
            let thread = thread.with_context(|| format!("cannot start a thread for server {id}"))?;
            node.servers.push(Running { id: ServerId(id), stop, thread });
            begins.push((id, begin));
        }
        let failed = begins.into_iter().find(|(_, begin)| begin.recv().is_err());
        match failed {
            None => Ok(node),
            Some((id, _)) => Err(node.stop().err().unwrap_or_else(|| anyhow!("server {id} did not begin"))),
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
                Err(_) => Err(anyhow!("server {id} panicked: this is a bug; what it said is above")),
            };
            result = result.and(ended);
        }
        result
    }
}

impl Plan {
    fn new(cluster: &ClusterFile, id: u16, key: SecretKey, spans: Spans, connections: u64) -> Result<Plan> {
        let entry = cluster.server.get(usize::from(id)).with_context(|| {
            format!("there is no server {id} in the cluster file: it has 0 to {}", cluster.server.len() - 1)
        })?;
        let with_map = |c: &CollectionEntry| Ok((c.clone(), cluster.map(c)?));
        Ok(Plan {
            id: ServerId(id),
            listen: entry.addresses()?,
            folder: cluster.path(&entry.folder),
            collections: cluster.collection.iter().map(with_map).collect::<Result<_>>()?,
            key,
            spans,
            root: Owner {
                mode: 0o755,
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
            },
            connections,
        })
    }

    /// Serve until the stop is told (its sender is dropped).
    async fn run(
        self,
        env: Env,
        stopped: oneshot::Receiver<()>,
        begun: std::sync::mpsc::Sender<()>,
    ) -> Result<()> {
        let Plan { id, listen, folder, collections, key, spans, root, connections } = self;
        let mut setups = Vec::new();
        for (entry, map) in collections {
            let config = collection_config(&entry, &map, id, folder.join(&entry.name))?;
            let opened = shoal_store::open(env.clone(), config).await;
            let store = opened.map_err(|error| cannot_open(error, &folder, &entry.name))?;
            setups.push(CollectionSetup { store, map, key: Some(key.clone()), root });
        }
        let settings = Settings {
            connections_max: usize::try_from(connections).unwrap_or(usize::MAX),
            lease: spans.lease,
            ..Settings::default()
        };
        let config = ServerConfig { id, listen, collections: setups, settings, polling: spans.polling };
        let server = serve(env, config).await.map_err(|error| explain(error, &folder))?;
        let _ = begun.send(());
        // An error is the sender's end: the stop.
        let _ = stopped.await;
        server.stop().await.context("cannot make everything durable at the stop")
    }
}

fn collection_config(
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

/// Descriptors that one server may use well for its streams' files, journal and tables.
const OPEN_FILES: u64 = 1024;
/// Connections of one server, at most; and at least, however few descriptors there are.
const CONNECTIONS: u64 = 16_384;
const CONNECTIONS_MIN: u64 = 64;

fn cannot_open(error: StoreError, folder: &Path, name: &str) -> anyhow::Error {
    let dir = folder.join(name);
    with_remedy(error).context(format!("cannot open file system `{name}` in {}", dir.display()))
}

/// What opening a folder failed with, and the remedy.
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
fn explain(error: ServeError, folder: &Path) -> anyhow::Error {
    let error = match error {
        ServeError::Store(name, error) => return cannot_open(error, folder, &name),
        other => other,
    };
    let remedy = match &error {
        ServeError::Listen(Address::Tcp(at), io) if io.kind() == std::io::ErrorKind::AddrInUse => format!(
            "port {0} is in use: stop what uses it (`ss -ltnp 'sport = :{0}'` names it), then start again; clients \
             know this address, so it is kept",
            at.port()
        ),
        ServeError::Listen(Address::Tcp(at), io) if io.kind() == std::io::ErrorKind::AddrNotAvailable => {
            format!(
                "{} is not an address of this machine: start this server (`--server ID`) on the one that has it, or mend the \
             cluster file",
                at.ip()
            )
        }
        ServeError::Listen(Address::Tcp(at), io) if io.kind() == std::io::ErrorKind::PermissionDenied => {
            format!("port {} is for root alone: name one above 1023 in the cluster file", at.port())
        }
        _ => return error.into(),
    };
    anyhow::Error::new(error).context(remedy)
}
