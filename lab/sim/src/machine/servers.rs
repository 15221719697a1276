//! Makes, opens and runs the servers of a simulated cluster, as `shoal up` does.

use crate::machine::Simulated;
use crate::machine::hardware::Hardware;
use shoal_client::Options;
use shoal_env::sim::{MachineId, World};
use shoal_env::{Address, Env};
use shoal_proto::op::Owner;
use shoal_proto::{ClusterMap, CollectionId, Dist, Roles, SecretKey, ServerId, ServerInfo, Template, Text};
use shoal_server::{CollectionSetup, ServerConfig, Settings, serve};
use shoal_store::{CollectionConfig, Identity, ModuleKind, SyncModes};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const FS_ID: [u8; 16] = *b"simulated machin";
const COLLECTION: CollectionId = CollectionId(1);
const ROOT: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };

fn key() -> SecretKey {
    SecretKey::new([0x5b; 32])
}

fn address(id: u16) -> Address {
    Address::Local(format!("server-{id}"))
}

/// How clients find them.
pub(super) fn options(servers: u16) -> Options {
    Options::new((0..servers).map(address).collect(), key(), FS_ID, COLLECTION)
}

/// Servers that run, or did not begin.
pub(super) struct Servers {
    serving: Rc<Cell<u16>>,
    of: u16,
    failures: Rc<RefCell<Vec<String>>>,
}

impl Servers {
    /// All serve, or one failed.
    pub(super) fn have_begun(&self) -> bool {
        self.serving.get() == self.of || !self.failures.borrow().is_empty()
    }

    /// Why one did not begin.
    pub(super) fn failure(&self) -> Option<String> {
        self.failures.borrow().first().cloned()
    }
}

/// Start them all.
pub(super) fn start(
    world: &World,
    of: &Simulated<'_>,
    machines: &[MachineId],
    hardware: &Hardware,
) -> Servers {
    let servers = Servers { serving: Rc::default(), of: of.servers, failures: Rc::default() };
    let map = map_of(of);
    for id in 0..of.servers {
        let name = format!("server-{id}");
        let process = world.process(&name, machines[usize::from(id)]);
        world.set_cpu(process, hardware.server_cpu);
        let (serving, failures) = (servers.serving.clone(), servers.failures.clone());
        let plan = Plan {
            id: ServerId(id),
            map: map.clone(),
            module: of.module,
            // As a file system is made: its switches say which changes share a sync.
            sync_modes: SyncModes { coalescing: of.switches.coalescing, ..of.sync_modes },
        };
        world.start(process, |env| async move {
            match plan.begin(env).await {
                Ok(_handle) => {
                    serving.set(serving.get() + 1);
                    std::future::pending::<()>().await;
                }
                Err(why) => failures.borrow_mut().push(format!("{name}: {why}")),
            }
        });
    }
    servers
}

fn map_of(of: &Simulated<'_>) -> ClusterMap {
    let server = |id: u16| {
        let roles = if id + of.metadata_only < of.servers { Roles::all() } else { Roles::METADATA };
        ServerInfo::new(ServerId(id), vec![Text(address(id).to_string())], roles)
    };
    ClusterMap {
        fs_id: FS_ID,
        name: "simulated".into(),
        collection: COLLECTION,
        epoch: 1,
        template: Template { dist: Dist::SimpleStripe { strip: of.strip }, width: 0 },
        switches: of.switches,
        servers: (0..of.servers).map(server).collect::<Vec<_>>().into(),
        keys: Vec::new().into(),
    }
}

struct Plan {
    id: ServerId,
    map: ClusterMap,
    module: ModuleKind,
    sync_modes: SyncModes,
}

impl Plan {
    async fn begin(self, env: Env) -> Result<shoal_server::ServerHandle, String> {
        let dir = format!("/shoal/{}", self.id.0);
        env.create_dir(&dir).await.map_err(|error| error.to_string())?;
        let identity = Identity { fs: FS_ID, collection: COLLECTION.0, server: self.id.0 };
        let store = CollectionConfig {
            sync_modes: self.sync_modes,
            ..CollectionConfig::new(dir, self.module, identity).with_cache(CollectionConfig::CACHE_BYTES)
        };
        let store = shoal_store::open(env.clone(), store).await.map_err(|error| error.to_string())?;
        let setup = CollectionSetup { store, map: self.map, keys: Some(key().into()), root: ROOT };
        let config = ServerConfig {
            id: self.id,
            listen: vec![address(self.id.0)],
            collections: vec![setup],
            settings: Settings::default(),
            polling: Duration::ZERO,
            audit: None,
        };
        serve(env, config).await.map_err(|error| error.to_string())
    }
}
