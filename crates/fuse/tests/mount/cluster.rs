//! A file system in this process: servers on threads of their own, reached over in-process streams. They
//! keep nothing, or keep their stores in a folder of this disk.

use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_util::StreamExt;
use shoal_client::Client;
use shoal_env::{Address, real};
use shoal_fuse::{Mount, MountError, MountHandle, MountOptions};
use shoal_proto::op::Owner;
use shoal_proto::{
    ClusterMap, CollectionId, Dist, Roles, SecretKey, ServerId, ServerInfo, Switches, Template, Text,
};
use shoal_server::{CollectionSetup, CounterSnapshot, ServerConfig, Settings, serve};
use shoal_store::{CollectionConfig, Identity, ModuleKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A running file system.
pub struct Cluster {
    map: ClusterMap,
    servers: Vec<Running>,
    /// Where the servers have their folders; none: they keep nothing.
    folder: Option<PathBuf>,
}

/// A server; it ends when its last handle is dropped.
struct Running {
    asks: UnboundedSender<Ask>,
    thread: JoinHandle<()>,
}

/// A request to a server.
enum Ask {
    /// Its counts.
    Counts(mpsc::Sender<CounterSnapshot>),
    /// Silence: it says that it begins, and lasts until the other end is dropped.
    Silence(mpsc::Sender<()>, mpsc::Receiver<()>),
}

/// A server that does nothing and answers nothing until this is dropped, as if its process were stopped.
pub struct Silenced(#[expect(dead_code, reason = "its end is what counts")] mpsc::Sender<()>);

fn key() -> SecretKey {
    SecretKey::new([7; 32])
}

impl Cluster {
    /// Servers for metadata and data, files striped over all of them in strips of 64 KiB.
    pub fn start(servers: u16) -> Cluster {
        Cluster::start_with(servers, switches())
    }

    /// The same, with other techniques.
    pub fn start_with(servers: u16, switches: Switches) -> Cluster {
        Cluster::start_in(servers, switches, None)
    }

    /// The same, with the servers' folders in this one.
    pub fn start_in(servers: u16, switches: Switches, folder: Option<PathBuf>) -> Cluster {
        static CLUSTERS: AtomicU32 = AtomicU32::new(1);
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let template = Template { dist: Dist::SimpleStripe { strip: 64 << 10 }, width: 0 };
        let mut fs_id = [0; 16];
        fs_id[..4].copy_from_slice(&number.to_le_bytes());
        let infos: Vec<ServerInfo> = (0..servers)
            .map(|id| {
                let address = Text(format!("local:mount-test-{number}-{id}"));
                ServerInfo::new(ServerId(id), vec![address], Roles::METADATA | Roles::DATA)
            })
            .collect();
        let (name, collection) = (Text::from("test"), CollectionId(1));
        let map = ClusterMap {
            fs_id,
            name,
            collection,
            epoch: 1,
            template,
            switches,
            servers: infos.into(),
            keys: Vec::new().into(),
        };
        let servers = (0..servers).map(|id| start_server(&map, ServerId(id), folder.clone())).collect();
        Cluster { map, servers, folder }
    }

    /// Stop a server and start it again: as it keeps nothing, it lost all.
    pub fn lose(&mut self, id: u16) {
        let Running { asks, thread } = self.servers.remove(usize::from(id));
        drop(asks);
        thread.join().expect("the server ends");
        let server = start_server(&self.map, ServerId(id), self.folder.clone());
        self.servers.insert(usize::from(id), server);
    }

    /// The counts of a server.
    pub fn counts(&self, id: u16) -> CounterSnapshot {
        let (send, receive) = mpsc::channel();
        self.servers[usize::from(id)].asks.unbounded_send(Ask::Counts(send)).expect("the server runs");
        receive.recv().expect("the server answers")
    }

    /// Let a server do nothing.
    pub fn silence(&self, id: u16) -> Silenced {
        let (begins, has_begun) = mpsc::channel();
        let (end, lasts) = mpsc::channel();
        self.servers[usize::from(id)]
            .asks
            .unbounded_send(Ask::Silence(begins, lasts))
            .expect("the server runs");
        has_begun.recv().expect("the server is silent");
        Silenced(end)
    }

    /// How a client reaches it.
    pub fn client(&self) -> shoal_client::Options {
        let addresses = self.map.servers.iter().flat_map(|info| info.addresses.iter());
        let addresses: Vec<Address> = addresses.map(|text| text.0.parse().unwrap()).collect();
        shoal_client::Options::new(addresses, key(), self.map.fs_id, self.map.collection)
    }

    /// Mount it.
    pub fn try_mount(&self, at: &Path, options: &MountOptions) -> Result<MountHandle<Client>, MountError> {
        Mount::start(self.client(), at, options)
    }

    /// Mount it with a time limit, which needs FUSE.
    pub fn mount_with_limit(&self, at: &Path, limit: Duration) -> MountHandle<Client> {
        let client = shoal_client::Options { timeout: limit, ..self.client() };
        Mount::start(client, at, &MountOptions::default())
            .unwrap_or_else(|error| panic!("these tests need /dev/fuse, and root or fusermount3: {error}"))
    }

    /// Mount it, which needs FUSE.
    pub fn mount(&self, at: &Path, options: &MountOptions) -> MountHandle<Client> {
        self.try_mount(at, options)
            .unwrap_or_else(|error| panic!("these tests need /dev/fuse, and root or fusermount3: {error}"))
    }
}

/// The techniques these tests are run with: all, or what `SHOAL_TEST_SWITCHES` says.
pub fn switches() -> Switches {
    std::env::var("SHOAL_TEST_SWITCHES").map_or(Switches::OURS, |words| words.parse().unwrap())
}

fn start_server(map: &ClusterMap, id: ServerId, folder: Option<PathBuf>) -> Running {
    let (asks, mut asked): (_, UnboundedReceiver<Ask>) = unbounded();
    let (ready, is_ready) = mpsc::channel();
    let map = map.clone();
    let thread = real::spawn_migratable(&format!("server-{id}"), move |env| async move {
        let identity = Identity { fs: map.fs_id, collection: map.collection.0, server: id.0 };
        let config = match folder {
            None => CollectionConfig::new("", ModuleKind::Memory, identity),
            Some(folder) => {
                CollectionConfig::new(folder.join(format!("server-{id}")), ModuleKind::Disk, identity)
            }
        };
        let store = shoal_store::open(env.clone(), config).await.unwrap();
        let listen = map.server(id).unwrap().addresses.iter().map(|text| text.0.parse().unwrap()).collect();
        let root = Owner { mode: 0o777, uid: 0, gid: 0 };
        let setup = CollectionSetup { store, map, keys: Some(key().into()), root };
        let config = ServerConfig {
            id,
            listen,
            collections: vec![setup],
            settings: Settings::default(),
            polling: Duration::ZERO,
            audit: None,
        };
        let server = serve(env, config).await.unwrap();
        ready.send(()).unwrap();
        while let Some(ask) = asked.next().await {
            match ask {
                // A waiter that has gone needs no answer.
                Ask::Counts(send) => drop(send.send(server.shards()[0].counters.snapshot())),
                Ask::Silence(begins, lasts) => {
                    begins.send(()).unwrap();
                    // All of the server is on this thread at the moment.
                    let _ = lasts.recv();
                }
            }
        }
        server.stop().await.unwrap();
    });
    is_ready.recv().expect("the server begins");
    Running { asks, thread: thread.unwrap() }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for Running { asks, thread } in self.servers.drain(..) {
            drop(asks);
            if thread.join().is_err() && !std::thread::panicking() {
                panic!("a server panicked");
            }
        }
    }
}
