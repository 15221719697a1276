//! One server of the cluster: its machine, its process, and the plan by which it starts.

use super::{COLLECTION, ClusterConfig, FS_ID, ROOT, START_PAUSE, UNMOUNTED, disk_path, keys};
use shoal_env::sim::{MachineId, ProcessId, World};
use shoal_env::{Address, Env};
use shoal_proto::{ClusterMap, ServerId, Text};
use shoal_server::{CollectionSetup, ServeError, ServerConfig, Settings, Shard, serve};
use shoal_store::{CollectionConfig, Identity, ModuleKind, StoreError, SyncModes};
use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// One server: its machine, and its known state. Clones are handles of the same.
#[derive(Clone)]
pub(crate) struct Server {
    pub machine: MachineId,
    pub process: ProcessId,
    pub(super) plan: Rc<Plan>,
}

pub(super) struct Plan {
    pub(super) id: ServerId,
    /// Its cluster file.
    pub(super) map: RefCell<ClusterMap>,
    pub(super) settings: Settings,
    /// As the folder is made.
    pub(super) sync_modes: Cell<SyncModes>,
    /// Its further disks, and how often it was started.
    pub(super) disks: usize,
    pub(super) starts: Cell<usize>,
    /// It serves at this moment, or did until it was stopped.
    pub(super) serving: Cell<bool>,
    /// It was formatted: from then on an empty disk would be a loss.
    pub(super) formatted: Cell<bool>,
    /// Why it did not begin.
    pub(super) failures: RefCell<Vec<String>>,
    /// Why it cannot begin as long as its disk is as it is.
    pub(super) waits_for_disk: RefCell<Option<String>>,
    /// Its last process ended for that.
    pub(super) gave_up: Cell<bool>,
    /// Its disk is not mounted: an empty folder is in its place.
    pub(super) unmounted: Cell<bool>,
    /// The server whose folder is on its disk.
    pub(super) holds: Cell<u16>,
    /// On its disk is an older copy of its folder.
    pub(super) older: Cell<bool>,
    /// Starts that were refused for that.
    pub(super) older_refused: Cell<u64>,
    /// The shard that it serves, or served last.
    pub(super) shard: RefCell<Weak<Shard>>,
}

impl Server {
    pub(super) fn new(world: &World, id: u16, map: &ClusterMap, config: &ClusterConfig) -> Server {
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
    pub(super) fn start_again_later(&self, world: &World) {
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
