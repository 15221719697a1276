//! A cluster: one machine a server, one a client; servers start again after their faults.

mod copies;
mod growth;

use shoal_client::{Client, Error, Options};
use shoal_env::sim::{Config, MachineId, ProcessId, World};
use shoal_env::{Address, Env};
use shoal_proto::op::Owner;
use shoal_proto::{
    ClusterMap, CollectionId, Dist, Keys, PlaceKey, Roles, SecretKey, ServerId, ServerInfo, Switches,
    Template, Text,
};
use shoal_server::pools::Sizes;
use shoal_server::{CollectionSetup, ServeError, ServerConfig, Settings, Shard, serve};
use shoal_store::{CollectionConfig, Identity, ModuleKind, StoreError, SyncModes};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::IpAddr;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::time::Duration;

pub(crate) use growth::Growth;

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

/// One server: its machine, and its known state. Clones are handles of the same.
#[derive(Clone)]
pub(crate) struct Server {
    pub machine: MachineId,
    pub process: ProcessId,
    plan: Rc<Plan>,
}

struct Plan {
    id: ServerId,
    /// Its cluster file.
    map: RefCell<ClusterMap>,
    settings: Settings,
    /// As the folder is made.
    sync_modes: Cell<SyncModes>,
    /// Its further disks, and how often it was started.
    disks: usize,
    starts: Cell<usize>,
    /// It serves at this moment, or did until it was stopped.
    serving: Cell<bool>,
    /// It was formatted: from then on an empty disk would be a loss.
    formatted: Cell<bool>,
    /// Why it did not begin.
    failures: RefCell<Vec<String>>,
    /// Why it cannot begin as long as its disk is as it is.
    waits_for_disk: RefCell<Option<String>>,
    /// Its last process ended for that.
    gave_up: Cell<bool>,
    /// Its disk is not mounted: an empty folder is in its place.
    unmounted: Cell<bool>,
    /// The server whose folder is on its disk.
    holds: Cell<u16>,
    /// On its disk is an older copy of its folder.
    older: Cell<bool>,
    /// Starts that were refused for that.
    older_refused: Cell<u64>,
    /// The shard that it serves, or served last.
    shard: RefCell<Weak<Shard>>,
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

impl Server {
    fn new(world: &World, id: u16, map: &ClusterMap, config: &ClusterConfig) -> Server {
        let machine = world.machine(&format!("server-{id}"));
        for disk in 1..=config.disks {
            let made = world.further_disk(machine, disk_path(disk));
            made.unwrap_or_else(|error| unreachable!("a new machine has no disk {disk}: {error}"));
        }
        let plan = Plan {
            id: ServerId(id),
            map: RefCell::new(map.clone()),
            settings: config.settings,
            // As a file system is made: its switches say which changes share a sync.
            sync_modes: Cell::new(SyncModes { coalescing: config.switches.coalescing, ..config.sync_modes }),
            disks: config.disks,
            starts: Cell::default(),
            serving: Cell::default(),
            formatted: Cell::default(),
            failures: RefCell::default(),
            waits_for_disk: RefCell::default(),
            gave_up: Cell::default(),
            unmounted: Cell::default(),
            holds: Cell::new(id),
            older: Cell::default(),
            older_refused: Cell::default(),
            shard: RefCell::default(),
        };
        let process = world.process(&format!("server-{id}"), machine);
        Server { machine, process, plan: Rc::new(plan) }
    }

    /// Its number.
    pub fn id(&self) -> u16 {
        self.plan.id.0
    }

    /// Start the server's process. Syncs that failed before are no part of its life: their losses were
    /// reported with the end of the process before, and one that gave up in its start had answered no client.
    pub fn start(&self, world: &World) {
        world.take_failed_syncs(self.machine);
        let plan = self.plan.clone();
        plan.serving.set(false);
        plan.gave_up.set(false);
        world.start(self.process, |env| async move {
            let Err(mut failure) = plan.run(env.clone()).await else { return };
            if plan.older.get() && failure.words.contains("is an older copy") {
                plan.older_refused.set(plan.older_refused.get() + 1);
                return;
            }
            if plan.is_misplaced() && failure.is_missing {
                // It is refused, as it must be.
                return;
            }
            if plan.unmounted.get() && failure.is_missing {
                // It is refused, as it must be, and left as it is.
                match env.list(UNMOUNTED).await {
                    Ok(entries) if entries.is_empty() => return,
                    _ => failure.words.push_str(": a store was made where the disk is not mounted"),
                }
            }
            let words = format!("server {}: {}", plan.id, failure.words);
            if !failure.may_pass {
                return plan.failures.borrow_mut().push(words);
            }
            plan.waits_for_disk.replace(Some(words));
            plan.gave_up.set(true);
        });
        self.start_again_later(world);
    }

    /// From its next start on it is elsewhere, as its cluster file says.
    pub fn moves(&self, to: &Address, moved: u32) {
        let mut map = self.plan.map.borrow_mut();
        let id = self.plan.id;
        map.move_server(id, &vec![Text(to.to_string())].into(), moved).expect("nobody else is there");
    }

    /// It is stopped on purpose, to be started at its time: its supervisor does not restart it before.
    pub fn keep_stopped(&self) {
        self.plan.gave_up.set(false);
    }

    /// From its next start on an empty folder is where its disk was.
    pub fn unmount(&self) {
        // One that was never formatted has nothing to lose.
        self.plan.unmounted.set(self.plan.formatted.get());
    }

    /// From its next start on its disk is there.
    pub fn mount(&self) {
        self.plan.unmounted.set(false);
    }

    /// The server whose folder is on its disk: itself, but while folders are exchanged.
    pub fn holds(&self) -> u16 {
        self.plan.holds.get()
    }

    /// From the next start of both on each has the folder that the other has now. Both are stopped.
    pub fn exchange_folders(&self, other: &Server, world: &World) {
        world.exchange_disks(self.machine, other.machine);
        self.plan.holds.swap(&other.plan.holds);
    }

    /// Its supervisor restarts it while its disk is full, or fails to sync: as a new process, because the end
    /// of the old one releases its folder.
    fn start_again_later(&self, world: &World) {
        let server = self.clone();
        world.at(world.now() + START_PAUSE, move |world| {
            let is_alive = world.is_alive(server.process);
            match server.plan.gave_up.get() && !is_alive {
                true => server.start(world),
                false if is_alive && !server.plan.serving.get() => server.start_again_later(world),
                false => {}
            }
        });
    }
}

/// Why a server did not begin.
struct Failure {
    words: String,
    /// Its disk is full, or does not sync: it may begin later.
    may_pass: bool,
    /// The folder does not hold the server's store.
    is_missing: bool,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        const EIO: i32 = 5;
        const ENOSPC: i32 = 28;
        let of_disk = matches!(&error, StoreError::Io { errno: Some(EIO | ENOSPC), .. });
        let may_pass = of_disk || matches!(&error, StoreError::Poisoned(_) | StoreError::NoSpace { .. });
        let is_missing =
            matches!(&error, StoreError::Missing(_) | StoreError::DiskMissing(_) | StoreError::Foreign(_));
        Failure { words: error.to_string(), may_pass, is_missing }
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Failure {
        let words = error.to_string();
        match error {
            ServeError::Store(_, error) => Failure { words: format!("{words}: {error}"), ..error.into() },
            _ => Failure { words, may_pass: false, is_missing: false },
        }
    }
}

impl Plan {
    /// Another server's folder is in the place of its own, and its own is not merely not mounted.
    fn is_misplaced(&self) -> bool {
        self.holds.get() != self.id.0 && !self.unmounted.get()
    }

    /// Open the store, serve, and never end by itself.
    async fn run(&self, env: Env) -> Result<(), Failure> {
        let dir = if self.unmounted.get() { UNMOUNTED } else { "/shoal" };
        self.starts.set(self.starts.get() + 1);
        // A machine whose disks were lost has new ones.
        let disks = (1..=self.disks.min(self.starts.get())).map(disk_path);
        for dir in std::iter::once(dir.to_owned()).chain(disks.clone()) {
            let made = env.create_dir(&dir).await;
            made.map_err(|error| StoreError::io(format!("making {dir}"), &error))?;
        }
        let stream_folders = disks.map(|disk| Path::new(&disk).join("shoal")).collect();
        let store = CollectionConfig { stream_folders, ..self.store(dir) };
        let map = self.map.borrow().clone();
        let own = map
            .server(self.id)
            .map(|info| info.addresses.iter().filter_map(|at| at.0.parse().ok()).collect());
        let setup = CollectionSetup {
            store: shoal_store::open(env.clone(), store).await?,
            map,
            keys: Some(keys()),
            root: ROOT,
        };
        let config = ServerConfig {
            id: self.id,
            listen: own.unwrap_or_default(),
            collections: vec![setup],
            settings: self.settings,
            polling: Duration::ZERO,
            audit: None,
        };
        let handle = serve(env, config).await?;
        self.shard.replace(handle.shards().first().map(Rc::downgrade).unwrap_or_default());
        if self.older.get() {
            let words = "it serves from an older copy of its folder".to_owned();
            return Err(Failure { words, may_pass: false, is_missing: false });
        }
        if self.is_misplaced() {
            let words = format!("it serves from the folder of server {}", self.holds.get());
            return Err(Failure { words, may_pass: false, is_missing: false });
        }
        self.waits_for_disk.take();
        self.formatted.set(true);
        self.serving.set(true);
        std::future::pending().await
    }

    /// Everything small, so that a short run sees segments used again, checkpoints, and caches that miss.
    fn store(&self, dir: &str) -> CollectionConfig {
        let identity = Identity { fs: FS_ID, collection: COLLECTION.0, server: self.id.0 };
        CollectionConfig {
            create: !self.formatted.get(),
            sync_modes: self.sync_modes.get(),
            segment_bytes: 256 << 10,
            group_bytes_max: 64 << 10,
            table_rows_max: 300,
            table_bytes_max: 128 << 10,
            part_rows_max: 100,
            row_cache_rows: 100,
            bloom_filter_bytes: 16 << 10,
            data_cache_bytes: 32 << 10,
            open_files: 8,
            ..CollectionConfig::new(dir, ModuleKind::Disk, identity)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_env::sim::Link;
    use shoal_proto::{Handle, Name, Rights, Status};

    #[test]
    fn servers_with_each_others_folders_do_not_serve_and_serve_again_with_their_own() {
        let cluster = Cluster::new(1, &ClusterConfig { servers: 2, clients: 1, ..ClusterConfig::default() });
        let world = &cluster.world;
        let begins = || world.run_until_true(world.now() + Duration::from_secs(30), || cluster.is_ready());
        assert!(begins());
        let owner = shoal_proto::Owner { mode: 0o755, uid: 0, gid: 0 };
        let (options, dir) = (cluster.options(), Name::new(b"dir").unwrap());
        let made = cluster.complete_client(0, |env| async move {
            let client = connect(&env, options).await.unwrap();
            client.mkdir(Handle::ROOT, &dir, owner).await.unwrap().handle
        });
        let exchange = || {
            let both = [cluster.server(0), cluster.server(1)];
            for server in both {
                server.keep_stopped();
                world.crash(server.process);
            }
            both[0].exchange_folders(both[1], world);
            both.iter().for_each(|server| server.start(world));
        };
        exchange();
        world.run_for(Duration::from_secs(30));
        assert!((0..2).all(|id| !cluster.server(id).plan.serving.get()), "none serves");
        exchange();
        assert!(begins());
        assert_eq!(cluster.failures(), [""; 0]);
        let options = cluster.options();
        let found = cluster.complete_client(0, |env| async move {
            let client = connect(&env, options).await.unwrap();
            client.lookup(Handle::ROOT, &Name::new(b"dir").unwrap()).await.unwrap().handle
        });
        assert_eq!(found, made);
    }

    /// An append is written; its answer is lost, and so are its bytes, by a power cut; the answer that was
    /// kept comes to the retry. No client may then get the answer that an fsync covered the bytes.
    #[test]
    fn bytes_lost_behind_a_kept_answer_are_told_by_the_next_fsync() {
        let cluster = Cluster::new(1, &ClusterConfig { servers: 1, clients: 2, ..ClusterConfig::default() });
        let world = cluster.world.clone();
        assert!(world.run_until_true(world.now() + Duration::from_secs(30), || cluster.is_ready()));
        let (server, near) = (cluster.server(0).clone(), cluster.client_machine(0));
        let latency_ns = 50_000_000;
        let options = cluster.options();
        // A client whose changes make the journal durable.
        cluster.start_client(1, |env| async move {
            let client = connect(&env, options).await.unwrap();
            for count in 0..100 {
                env.sleep(Duration::from_millis(2)).await;
                drop(client.mkdir_at(format!("/{count}").as_bytes(), ROOT).await);
            }
        });
        let options = cluster.options();
        let synced = cluster.complete_client(0, |env| async move {
            let client = connect(&env, options).await.unwrap();
            let name = Name::new(b"log").unwrap();
            let content = vec![1; 4096].into();
            let made = client.create_write(Handle::ROOT, &name, ROOT, content, None).await.unwrap();
            let file = client.open(made.handle, Rights::READ | Rights::WRITE).await.unwrap();
            file.fsync().await.unwrap();
            world.set_link(server.machine, near, Link { latency_ns, ..Link::default() });
            let written = world.now() + Duration::from_millis(70);
            world.at(written, move |world| {
                world.half_open(near, server.machine, world.now() + Duration::from_secs(1));
                world.power_cut(server.machine);
                server.start(world);
            });
            let appended = file.append(vec![2; 16_384].into()).await;
            (appended.map(drop), file.fsync().await, file.fsync().await)
        });
        assert!(synced.0.is_ok(), "the kept answer says that it was done: {:?}", synced.0);
        assert_eq!(synced.1.map_err(|error| error.status), Err(Status::Io), "its bytes are lost");
        assert!(synced.2.is_ok(), "it is told once");
    }

    /// The process that gave up holds its folder to its end, as a real one does.
    #[test]
    fn a_server_whose_start_met_a_failing_sync_is_started_again_as_a_new_process() {
        let cluster = Cluster::new(1, &ClusterConfig { servers: 1, clients: 1, ..ClusterConfig::default() });
        let (world, server) = (&cluster.world, cluster.server(0));
        let serves = || world.run_until_true(world.now() + Duration::from_secs(10), || cluster.is_ready());
        assert!(serves());
        for step in 0..60 {
            world.crash(server.process);
            server.start(world);
            world.run_for(Duration::from_micros(100 * step));
            world.fail_syncs(server.machine, 1);
            assert!(serves(), "{step}: {:?}", cluster.failures());
            assert!(cluster.failures().is_empty(), "{step}: {:?}", cluster.failures());
        }
    }

    /// A row that a server with a failed disk cannot read or keep proves nothing about its peer.
    #[test]
    fn a_server_starts_beside_one_whose_disk_failed() {
        let cluster = Cluster::new(1, &ClusterConfig { servers: 3, clients: 1, ..ClusterConfig::default() });
        let (world, failing) = (&cluster.world, cluster.server(2));
        let serves = || world.run_until_true(world.now() + Duration::from_secs(10), || cluster.is_ready());
        assert!(serves());
        world.fail_syncs(failing.machine, u64::MAX);
        let options = cluster.options();
        let refused = cluster.complete_client(0, |env| async move {
            let client = connect(&env, options).await.unwrap();
            let mut refused = 0;
            for count in 0..9 {
                let made = client.mkdir_at(format!("/{count}").as_bytes(), ROOT).await;
                refused += u32::from(made.is_err());
            }
            refused
        });
        assert!(refused > 0, "its disk has not failed");
        // The remembered position of a peer is due again.
        world.run_for(Duration::from_secs(61));
        for id in [0, 1] {
            world.crash(cluster.server(id).process);
            cluster.server(id).start(world);
            assert!(serves(), "server {id}: {:?}", cluster.failures());
        }
        assert!(cluster.failures().is_empty(), "{:?}", cluster.failures());
    }

    /// Stops of a server that syncs fail in: with each of its starts, where the server had not begun to
    /// serve; how many were such.
    fn starts_that_fail(then: impl Fn(&World, &Server)) -> usize {
        let cluster = Cluster::new(1, &ClusterConfig { servers: 1, clients: 1, ..ClusterConfig::default() });
        let (world, server) = (&cluster.world, cluster.server(0));
        let serves = || world.run_until_true(world.now() + Duration::from_secs(10), || cluster.is_ready());
        assert!(serves());
        let mut met = 0;
        for step in 0..60 {
            world.crash(server.process);
            server.start(world);
            let (failed, plan) = (Rc::new(Cell::new(false)), server.plan.clone());
            let tell = failed.clone();
            world.on_failed_sync(server.machine, move || tell.set(!plan.serving.get()));
            world.run_for(Duration::from_micros(100 * step));
            world.fail_syncs(server.machine, 1);
            let until = world.now() + Duration::from_millis(100);
            world.run_until_true(until, || server.plan.gave_up.get());
            if failed.get() && server.plan.gave_up.get() {
                met += 1;
                then(world, server);
            }
            world.fail_syncs(server.machine, 0);
            if !world.is_alive(server.process) && !server.plan.gave_up.get() {
                server.start(world);
            }
            assert!(serves(), "{step}: {:?}", cluster.failures());
        }
        met
    }

    #[test]
    fn a_sync_that_failed_in_a_start_is_not_told_with_the_end_of_a_later_life() {
        let met = starts_that_fail(|world, server| {
            let serves = || server.plan.serving.get();
            assert!(world.run_until_true(world.now() + Duration::from_secs(10), serves));
            assert_eq!(world.take_failed_syncs(server.machine), 0);
        });
        assert!(met > 0);
    }

    #[test]
    fn a_server_that_gave_up_and_is_then_stopped_stays_so_until_it_is_started() {
        let met = starts_that_fail(|world, server| {
            server.keep_stopped();
            world.run_for(Duration::from_secs(2));
            assert!(!world.is_alive(server.process));
        });
        assert!(met > 0);
    }
}
