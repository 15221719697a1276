//! A file system in this process, over Unix sockets: each server in a thread and an environment of its own,
//! so that its counts are its own.

use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt as _;
use shoal_env::{Address, Counters, Env, real};
use shoal_proto::op::Owner;
use shoal_proto::{
    ClusterMap, CollectionId, Dist, Roles, SecretKey, ServerId, ServerInfo, Switches, Template, Text,
};
use shoal_server::{CollectionSetup, ServerConfig, ServerHandle, Settings, serve};
use shoal_store::{CollectionConfig, Identity, ModuleKind, StoreCounters};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// The counts of one server since its start.
pub struct ServerCounts {
    pub env: shoal_env::CounterSnapshot,
    pub shard: shoal_server::CounterSnapshot,
    pub store: StoreCounters,
}

/// A running file system.
pub struct Cluster {
    map: ClusterMap,
    servers: Vec<Running>,
    // The last to go.
    dir: TempDir,
}

struct Running {
    asks: mpsc::UnboundedSender<oneshot::Sender<ServerCounts>>,
    thread: JoinHandle<()>,
}

/// Strips of the files of the file system.
pub const STRIP: u64 = 64 << 10;
/// As long as nothing is said between servers, they have said all that belongs to their beginning.
const SECONDS_OF_TELLING: u32 = 3;

fn key() -> SecretKey {
    SecretKey::new([7; 32])
}

impl Cluster {
    /// Servers for metadata and data. Its id is always the same, so that new directories always go to the
    /// same servers.
    pub fn start(servers: u16, module: ModuleKind) -> Cluster {
        Cluster::start_with(servers, module, Switches::default())
    }

    /// The same with other techniques.
    pub fn start_with(servers: u16, module: ModuleKind, switches: Switches) -> Cluster {
        Cluster::start_as(&vec![Roles::METADATA | Roles::DATA; servers.into()], module, switches)
    }

    /// A server for each of these roles.
    pub fn start_as(roles: &[Roles], module: ModuleKind, switches: Switches) -> Cluster {
        let servers = roles.len() as u16;
        let dir = TempDir::new().unwrap();
        let info = |id: u16| {
            let address = format!("unix:{}", dir.path().join(format!("{id}.socket")).display());
            ServerInfo::new(ServerId(id), vec![Text(address)], roles[usize::from(id)])
        };
        let map = ClusterMap {
            fs_id: [5; 16],
            name: Text::from("counted"),
            collection: CollectionId(1),
            epoch: 1,
            template: Template { dist: Dist::SimpleStripe { strip: STRIP }, width: 0 },
            switches,
            servers: (0..servers).map(info).collect::<Vec<_>>().into(),
            keys: Vec::new().into(),
        };
        let starts = (0..servers).map(|id| Running::start(&map, ServerId(id), module, dir.path()));
        Cluster { servers: starts.collect(), map, dir }
    }

    /// A client's options: nothing is cached for longer than the operation that asked it.
    pub fn client(&self) -> shoal_client::Options {
        let addresses = self.map.servers.iter().flat_map(|info| info.addresses.iter());
        let addresses: Vec<Address> = addresses.map(|text| text.0.parse().unwrap()).collect();
        let mut options = shoal_client::Options::new(addresses, key(), self.map.fs_id, self.map.collection);
        options.name_cache = Duration::ZERO;
        options.attr_cache = Duration::ZERO;
        options
    }

    /// Until every server has a pool of every other one's datafiles, and has reported to the others how far
    /// its store is durable: no measured operation pays for the work of servers at their start.
    pub async fn filled(&self, env: &Env) {
        let others = self.servers.len() as u64 - 1;
        while self.counts().await.iter().any(|counts| counts.shard.pool_refills < others) {
            env.sleep(Duration::from_millis(1)).await;
        }
        if others == 0 {
            return;
        }
        // They are informed a second after a start, at once after a handshake, and then once a minute.
        let (mut last, mut seconds) = (0, 0);
        while seconds < SECONDS_OF_TELLING {
            env.sleep(Duration::from_secs(1)).await;
            let remembers = |counts: &ServerCounts| counts.shard.ops.get("remember").copied().unwrap_or(0);
            let now = self.counts().await.iter().map(remembers).sum::<u64>();
            seconds = if now == last { seconds + 1 } else { 0 };
            last = now;
        }
    }

    /// Under which a server's streams have their files.
    pub fn streams_of(&self, server: ServerId) -> PathBuf {
        self.dir.path().join(format!("server-{server}")).join("streams")
    }

    /// The counts of all servers.
    pub async fn counts(&self) -> Vec<ServerCounts> {
        let mut all = Vec::new();
        for server in &self.servers {
            let (send, receive) = oneshot::channel();
            server.asks.unbounded_send(send).unwrap();
            all.push(receive.await.unwrap());
        }
        all
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for server in self.servers.drain(..) {
            drop(server.asks);
            if server.thread.join().is_err() && !std::thread::panicking() {
                panic!("a server panicked");
            }
        }
    }
}

impl Running {
    fn start(map: &ClusterMap, id: ServerId, module: ModuleKind, dir: &Path) -> Running {
        let (asks, mut asked) = mpsc::unbounded::<oneshot::Sender<ServerCounts>>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (map, folder) = (map.clone(), dir.join(format!("server-{id}")));
        let thread = real::spawn_migratable(&format!("server-{id}"), move |env| async move {
            let counters = env.counters().clone();
            let server = begin(env, map, id, CollectionSetupOf { module, folder: &folder }).await;
            ready.send(()).unwrap();
            while let Some(ask) = asked.next().await {
                drop(ask.send(counts(&server, &counters)));
            }
            server.stop().await.unwrap();
        });
        is_ready.recv().expect("the server begins");
        Running { asks, thread: thread.unwrap() }
    }
}

struct CollectionSetupOf<'a> {
    module: ModuleKind,
    folder: &'a Path,
}

async fn begin(env: Env, map: ClusterMap, id: ServerId, of: CollectionSetupOf<'_>) -> ServerHandle {
    let identity = Identity { fs: map.fs_id, collection: map.collection.0, server: id.0 };
    let mut config = CollectionConfig::new(of.folder, of.module, identity);
    // Small ones are prepared soon, and hold all bytes that these tests write: no checkpoint runs
    // concurrently.
    config.segment_bytes = 16 << 20;
    let store = shoal_store::open(env.clone(), config).await.unwrap();
    let listen = map.server(id).unwrap().addresses.iter().map(|text| text.0.parse().unwrap()).collect();
    let root = Owner { mode: 0o777, uid: 0, gid: 0 };
    let collections = vec![CollectionSetup { store, map, keys: Some(key().into()), root }];
    let (settings, polling) = (Settings::default(), Duration::ZERO);
    serve(env, ServerConfig { id, listen, collections, settings, polling, audit: None }).await.unwrap()
}

fn counts(server: &ServerHandle, counters: &Arc<Counters>) -> ServerCounts {
    let shard = &server.shards()[0];
    ServerCounts {
        env: counters.snapshot(),
        shard: shard.counters.snapshot(),
        store: shard.collection.counters(),
    }
}
