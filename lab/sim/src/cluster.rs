//! A cluster. Each server and each client has a machine of its own. Servers start again after their faults.

mod copies;
mod growth;
mod server;

use shoal_client::{Client, Error, Options};
use shoal_env::sim::{Config, MachineId, ProcessId, World};
use shoal_env::{Address, Env};
use shoal_proto::op::Owner;
use shoal_proto::{
    ClusterMap, CollectionId, Dist, Keys, PlaceKey, Roles, SecretKey, ServerId, ServerInfo, Switches,
    Template, Text,
};
use shoal_server::Settings;
use shoal_server::pools::Sizes;
use shoal_store::SyncModes;
use std::cell::Cell;
use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

pub(crate) use growth::Growth;
use server::Plan;
pub(crate) use server::Server;

/// The configuration of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Servers; all hold metadata, and all but the last [`ClusterConfig::metadata_only`] data.
    pub servers: u16,
    /// Servers that hold no data: their files are laid out from the start.
    pub metadata_only: u16,
    /// Machines for servers that may be added.
    pub spare: u16,
    /// Further disks of each server for the files of large streams: one more with each start, up to these.
    pub disks: usize,
    /// Machines for clients.
    pub clients: u16,
    /// Bytes of a strip: small, so that small files are striped too.
    pub strip: u64,
    /// The simulated hardware.
    pub world: Config,
    /// The servers' spans of time.
    pub settings: Settings,
    /// When the servers sync.
    pub sync_modes: SyncModes,
    /// Which techniques are used.
    pub switches: Switches,
    /// Servers are known by the names of their hosts, and listen at all addresses of them.
    pub by_name: bool,
}

impl Default for ClusterConfig {
    fn default() -> ClusterConfig {
        ClusterConfig {
            servers: 4,
            metadata_only: 0,
            spare: 0,
            disks: 0,
            clients: 8,
            strip: 64 << 10,
            world: Config { timeline: 200, ..Config::default() },
            // Small pools: a short run sees them run low, dry, and filled.
            settings: Settings { pools: Sizes { batch: 12, low: 6, lent: 4 }, ..Settings::default() },
            sync_modes: SyncModes::default(),
            switches: Switches::default(),
            by_name: false,
        }
    }
}

const FS_ID: [u8; 16] = *b"shoal simulation";
const COLLECTION: CollectionId = CollectionId(1);
/// How a new file system's root looks.
const ROOT: Owner = Owner { mode: 0o755, uid: 0, gid: 0 };

/// Each role has a key of its own.
fn keys() -> Keys {
    let key = |byte| SecretKey::new([byte; 32]);
    Keys { mount: key(0x5a), admin: None, server: key(0x5c), place: key(0x5d) }
}

/// The servers place names by it.
pub fn place_key() -> PlaceKey {
    keys().place_key(&FS_ID)
}

/// The empty folder where a disk is not mounted.
const UNMOUNTED: &str = "/unmounted";

fn disk_path(disk: usize) -> String {
    format!("/disk{disk}")
}

/// Before a server that could not begin tries again.
const START_PAUSE: Duration = Duration::from_millis(300);

/// A running cluster. Dropping it ends everything in it.
pub struct Cluster {
    /// The world it runs in.
    pub world: World,
    /// Those that may be added are the last ones.
    servers: Vec<Server>,
    growth: Growth,
    /// Of those that may be added, so many are to be.
    taken: Cell<u16>,
    clients: Vec<ProcessId>,
    addresses: Vec<Address>,
    /// How many operators there are.
    operators: Cell<u32>,
}

impl Cluster {
    /// Machines, and servers that begin: run the world until [`Cluster::is_ready`].
    pub fn new(seed: u64, config: &ClusterConfig) -> Cluster {
        let world = World::new(seed, config.world.clone());
        let map = map_of(config);
        let mut servers: Vec<Server> =
            (0..config.servers).map(|id| Server::new(&world, id, &map, config)).collect();
        servers.iter().for_each(|server| server.start(&world));
        let clients = (0..config.clients).map(|id| {
            let name = format!("client-{id}");
            world.process(&name, world.machine(&name))
        });
        let clients = clients.collect();
        let spare = config.servers..config.servers + config.spare;
        servers.extend(spare.map(|id| Server::new(&world, id, &map, config)));
        let growth = Growth::new(map);
        let addresses = (0..config.servers).map(|id| address(id, config.by_name)).collect();
        let cluster = Cluster {
            world,
            servers,
            growth,
            taken: Cell::default(),
            clients,
            addresses,
            operators: Cell::default(),
        };
        if config.by_name {
            (0..config.servers).for_each(|id| cluster.set_address(id, first_ip(id)));
        }
        cluster
    }

    /// Whether all servers serve.
    pub fn is_ready(&self) -> bool {
        self.present().all(|server| server.plan.serving.get())
    }

    /// A server's machine gets an address, which the name of its host leads to.
    pub(crate) fn set_address(&self, id: u16, ip: IpAddr) {
        self.world.set_address(self.server(id).machine, ip);
        self.world.set_name(&host(id), &[ip]);
    }

    /// Why servers did not begin, or begin again.
    pub fn failures(&self) -> Vec<String> {
        let of = |plan: &Plan| {
            plan.failures.borrow().iter().chain(&*plan.waits_for_disk.borrow()).cloned().collect()
        };
        self.servers.iter().flat_map(|server| -> Vec<String> { of(&server.plan) }).collect()
    }

    /// How many servers there are.
    pub fn server_count(&self) -> u16 {
        self.growth.count()
    }

    /// Kill a server's process and start it again. Run the world until [`Cluster::is_ready`].
    pub fn restart_server(&self, id: u16) {
        let server = self.server(id);
        server.keep_stopped();
        self.world.crash(server.process);
        server.start(&self.world);
    }

    /// The machine of a server.
    pub fn machine_of_server(&self, id: ServerId) -> Option<MachineId> {
        self.servers.get(usize::from(id.0)).map(|server| server.machine)
    }

    pub(crate) fn server(&self, id: u16) -> &Server {
        &self.servers[usize::from(id) % self.servers.len()]
    }

    /// Run `body` as a client's process, on its own machine.
    pub fn start_client<F>(&self, id: u16, body: impl FnOnce(Env) -> F)
    where
        F: Future<Output = ()> + 'static,
    {
        self.world.start(self.clients[usize::from(id) % self.clients.len()], body);
    }

    /// The same, and run the world until it has ended; its value.
    ///
    /// # Panics
    /// When it can never end.
    pub fn complete_client<T, F>(&self, id: u16, body: impl FnOnce(Env) -> F) -> T
    where
        T: 'static,
        F: Future<Output = T> + 'static,
    {
        self.world.complete(self.clients[usize::from(id) % self.clients.len()], body)
    }

    /// The machines of all servers and clients.
    pub(crate) fn machines(&self) -> Vec<MachineId> {
        let servers = self.servers.iter().map(|server| server.machine);
        servers.chain(self.clients.iter().map(|client| self.world.machine_of(*client))).collect()
    }

    /// The machine of a client.
    pub fn client_machine(&self, id: u16) -> MachineId {
        self.world.machine_of(self.client_process(id))
    }

    pub(crate) fn client_process(&self, id: u16) -> ProcessId {
        self.clients[usize::from(id) % self.clients.len()]
    }

    /// How clients of this cluster connect: strict caches, so that they see the current state.
    pub fn options(&self) -> Options {
        let mut options = Options::new(self.addresses.clone(), keys().mount, FS_ID, COLLECTION);
        options.name_cache = Duration::ZERO;
        options.attr_cache = Duration::ZERO;
        options
    }
}

/// Connect, repeatedly while servers are away.
///
/// # Errors
/// The last failure, after some attempts.
pub(crate) async fn connect(env: &Env, options: Options) -> Result<Client, Error> {
    let mut attempts = 0;
    loop {
        match Client::connect(env.clone(), options.clone()).await {
            Err(_) if attempts < 20 => attempts += 1,
            connected => return connected,
        }
        env.sleep(Duration::from_millis(500)).await;
    }
}

fn address(id: u16, by_name: bool) -> Address {
    if by_name { Address::Host(host(id), PORT) } else { Address::Local(format!("server-{id}")) }
}

/// The name of a server's host.
pub(crate) fn host(id: u16) -> String {
    format!("server-{id}.sim")
}

fn first_ip(id: u16) -> IpAddr {
    [10, 0, 0, id as u8].into()
}

const PORT: u16 = 7441;

fn map_of(config: &ClusterConfig) -> ClusterMap {
    let server = |id: u16| {
        let roles = if id + config.metadata_only < config.servers { Roles::all() } else { Roles::METADATA };
        ServerInfo::new(ServerId(id), vec![Text(address(id, config.by_name).to_string())], roles)
    };
    ClusterMap {
        fs_id: FS_ID,
        name: "simulated".into(),
        collection: COLLECTION,
        epoch: 1,
        template: Template { dist: Dist::SimpleStripe { strip: config.strip }, width: 0 },
        switches: config.switches,
        servers: (0..config.servers).map(server).collect::<Vec<_>>().into(),
        keys: Vec::new().into(),
    }
}

#[cfg(test)]
mod tests;
