//! A cluster on the hardware that a machine's file describes: the same servers and clients, with the costs
//! of the file.
//!
//! ```text
//!   lab/machines/*.toml ─▶ Hardware ─▶ World ── server processes (one thread a server)
//!                                   │  └─── client processes (one a node) ── tasks: application processes
//!                                   └─ cores, links, disks, syncs: env::sim
//! ```
//! [`Simulated::run`] makes a file system, starts its servers, connects one client for each client node,
//! and runs a body for each application process under virtual time. All application processes of a node
//! share its client. On a Blue Gene/P, in the same way, processes share the client of their I/O node (PVFS
//! small files, section IV.B).
//!
//! **One seed, one run**: two runs of one [`Simulated`] are equal in everything ([`Told::trace_hash`]).
//!
//! * [`hardware`]: the simulated hardware from a machine's file;
//! * [`limits`]: how large a simulated cluster may be;
//! * [`phases`]: the phases that are measured on real clusters, too;
//! * [`halved`]: one cost of a machine divided by two, to see whether it binds.

pub mod halved;
pub mod hardware;
pub mod limits;
pub mod phases;
mod seat;
mod servers;

pub use seat::{Barrier, Seat};

use crate::machine::hardware::Hardware;
use shoal_client::{Client, Options};
use shoal_env::sim::{MachineId, World};
use shoal_env::{Env, Instant};
use shoal_model::Machine;
use shoal_proto::Switches;
pub use shoal_store::ModuleKind;
use shoal_store::SyncModes;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// A cluster to be simulated on a machine of a file, at a machine's own costs.
#[derive(Clone, Debug)]
pub struct Simulated<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Servers with metadata and data.
    pub servers: u16,
    /// Of these, how many hold no data.
    pub metadata_only: u16,
    /// Machines that run a client each.
    pub client_nodes: u16,
    /// Application processes, spread evenly over the client nodes; those of one node share its client.
    pub processes: u32,
    /// The file system's techniques.
    pub switches: Switches,
    /// When replies leave.
    pub sync_modes: SyncModes,
    /// Where servers keep their data.
    pub module: ModuleKind,
    /// Bytes of a strip.
    pub strip: u64,
    /// The seed of random numbers.
    pub seed: u64,
}

/// How clients behave, in addition to [`Simulated`].
#[derive(Clone, Debug)]
pub struct Manner {
    /// How long a name is cached.
    pub name_cache: Duration,
    /// How long attributes are cached.
    pub attr_cache: Duration,
    /// Bound of every operation: far above the wait in a crowd of processes.
    pub timeout: Duration,
    /// Bound of the whole, in virtual time: servers' timers run for ever, so a world never comes to rest.
    pub work_max: Duration,
}

impl Default for Manner {
    /// PVFS caches both for 100 ms.
    fn default() -> Manner {
        let usual = Duration::from_millis(100);
        Manner { name_cache: usual, attr_cache: usual, timeout: Duration::from_secs(600), work_max: WORK_MAX }
    }
}

impl Manner {
    /// Nothing is cached: each question goes to a server.
    pub fn uncached() -> Manner {
        Manner { name_cache: Duration::ZERO, attr_cache: Duration::ZERO, ..Manner::default() }
    }
}

/// The facts of a run, apart from its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told<T> {
    /// The result of each process, in order.
    pub values: Vec<T>,
    /// A hash over all that happened: equal for equal runs.
    pub trace_hash: u64,
    /// Virtual time, from the start of the servers to the end of the last process.
    pub took: Duration,
    /// Events: the simulator's work.
    pub events: u64,
}

/// Why a cluster could not be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimulatedError {
    /// It has no sense, or is too large.
    #[error("{what} is {value}: {remedy}")]
    Shape {
        /// Which number.
        what: &'static str,
        /// Its value.
        value: u64,
        /// The remedy.
        remedy: String,
    },
    /// The machine's file says too little, or something that cannot be simulated.
    #[error("machine {machine} cannot be simulated: {why}")]
    Machine {
        /// Which.
        machine: String,
        /// Why, with the remedy.
        why: String,
    },
    /// The servers did not begin.
    #[error("the simulated servers did not begin: {0}")]
    Start(String),
    /// A client did not connect.
    #[error("simulated client {node} did not connect: {why}")]
    Connect {
        /// Of which client node.
        node: u16,
        /// Why.
        why: String,
    },
    /// An operation of a process failed.
    #[error("on a simulated machine {0}")]
    Operation(String),
    /// Some process never ended.
    #[error(
        "{ended} of {of} simulated processes ended within {within:?} of virtual time: the others wait for ever, or have too much to do (seed {seed})"
    )]
    Stands {
        /// Those that ended.
        ended: u32,
        /// All.
        of: u32,
        /// How long they had.
        within: Duration,
        /// The seed to repeat it with.
        seed: u64,
    },
}

/// Servers and clients may take so long to begin, in virtual time: slow disks make journals.
const BEGIN_MAX: Duration = Duration::from_secs(3600);
/// Between the servers' beginning and the clients', in virtual time.
const SETTLE: Duration = Duration::from_secs(10);
/// The processes may take so long, in virtual time, where nothing else is said.
const WORK_MAX: Duration = Duration::from_secs(6 * 3600);

impl Simulated<'_> {
    /// Format, start, connect, run `body` for each process to its end under virtual time; returns the
    /// results, in order.
    ///
    /// # Errors
    /// See [`SimulatedError`].
    pub fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        body: impl Fn(Seat) -> F + 'static,
    ) -> Result<Vec<T>, SimulatedError> {
        self.run_told(&Manner::default(), body).map(|told| told.values)
    }

    /// The same with clients of another manner, and the facts of the run.
    ///
    /// # Errors
    /// See [`SimulatedError`].
    pub fn run_told<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        manner: &Manner,
        body: impl Fn(Seat) -> F + 'static,
    ) -> Result<Told<T>, SimulatedError> {
        limits::check(self)?;
        let hardware = Hardware::of(self)?;
        let world = World::new(self.seed, hardware.world.clone());
        let machines = Machines::add(&world, self, &hardware);
        let servers = servers::start(&world, self, &machines.servers, &hardware);
        let begun = world.run_until_true(world.now() + BEGIN_MAX, || servers.have_begun());
        if !begun || servers.failure().is_some() {
            return Err(SimulatedError::Start(
                servers.failure().unwrap_or_else(|| "no reason is known".to_owned()),
            ));
        }
        // Measurements find the servers at rest: their journals' files are made, and written to the disk.
        world.run_until_true(world.now() + SETTLE, || false);
        let crowd = Rc::new(Crowd::new(self, Duration::from_nanos(hardware.forwarding_ns), body));
        for node in 0..self.client_nodes {
            let options = self.options(manner);
            let crowd = crowd.clone();
            let name = format!("client-{node}");
            let process = world.process(&name, machines.clients[usize::from(node)]);
            world.set_cpu(process, hardware.client_cpu);
            world.start(process, |env| async move { crowd.node(env, node, options).await });
        }
        let done = world.run_until_true(world.now() + manner.work_max, || crowd.is_done());
        if let Some((node, why)) = crowd.refused.take() {
            return Err(SimulatedError::Connect { node, why });
        }
        let ended = crowd.ended.get();
        match crowd.take_values() {
            Some(values) if done => Ok(Told {
                values,
                trace_hash: world.trace_hash(),
                took: world.now().since(Instant(0)),
                events: world.events(),
            }),
            _ => Err(SimulatedError::Stands {
                ended,
                of: self.processes,
                within: manner.work_max,
                seed: self.seed,
            }),
        }
    }

    fn options(&self, manner: &Manner) -> Options {
        let mut options = servers::options(self.servers);
        (options.name_cache, options.attr_cache) = (manner.name_cache, manner.attr_cache);
        options.timeout = manner.timeout;
        options
    }
}

/// The simulated computers.
struct Machines {
    /// Of each server.
    servers: Vec<MachineId>,
    /// Of each client node.
    clients: Vec<MachineId>,
}

impl Machines {
    fn add(world: &World, of: &Simulated<'_>, hardware: &Hardware) -> Machines {
        if of.machine.nodes.one_machine {
            let one = world.machine_like("this", hardware.server);
            return Machines {
                servers: vec![one; usize::from(of.servers)],
                clients: vec![one; usize::from(of.client_nodes)],
            };
        }
        let named = |what: &str, id: u16, like| world.machine_like(&format!("{what}-{id}"), like);
        Machines {
            servers: (0..of.servers).map(|id| named("server", id, hardware.server)).collect(),
            clients: (0..of.client_nodes).map(|id| named("client", id, hardware.client)).collect(),
        }
    }
}

/// All application processes: their work, and their results.
struct Crowd<T, B> {
    body: B,
    processes: u32,
    nodes: u16,
    together: Barrier,
    forwarding: Duration,
    values: RefCell<Vec<Option<T>>>,
    ended: Cell<u32>,
    refused: Cell<Option<(u16, String)>>,
}

impl<T: 'static, F: Future<Output = T> + 'static, B: Fn(Seat) -> F + 'static> Crowd<T, B> {
    fn new(of: &Simulated<'_>, forwarding: Duration, body: B) -> Crowd<T, B> {
        Crowd {
            body,
            processes: of.processes,
            nodes: of.client_nodes,
            together: Barrier::new(of.processes),
            forwarding,
            values: RefCell::new((0..of.processes).map(|_| None).collect()),
            ended: Cell::new(0),
            refused: Cell::default(),
        }
    }

    /// A node's client, and the processes that use it: neighbours in number sit together, as `mpirun` fills
    /// nodes.
    async fn node(self: Rc<Self>, env: Env, node: u16, options: Options) {
        let client = match Client::connect(env.clone(), options).await {
            Ok(client) => client,
            Err(error) => return self.refused.set(Some((node, error.to_string()))),
        };
        let first = |node: u32| (u64::from(node) * u64::from(self.processes) / u64::from(self.nodes)) as u32;
        let mine = first(node.into())..first(u32::from(node) + 1);
        let left = Barrier::new(mine.len() as u32 + 1);
        for index in mine {
            let (crowd, left) = (self.clone(), left.clone());
            let seat = Seat {
                env: env.clone(),
                client: client.clone(),
                index,
                of: self.processes,
                together: self.together.clone(),
                forwarding: self.forwarding,
            };
            drop(env.spawn("application", async move {
                // No process begins before all clients are connected.
                seat.together.wait().await;
                let value = (crowd.body)(seat).await;
                crowd.values.borrow_mut()[index as usize] = Some(value);
                crowd.ended.set(crowd.ended.get() + 1);
                left.wait().await;
            }));
        }
        left.wait().await;
    }

    fn is_done(&self) -> bool {
        let refused = self.refused.take();
        let is_refused = refused.is_some();
        self.refused.set(refused);
        is_refused || self.ended.get() == self.processes
    }

    fn take_values(&self) -> Option<Vec<T>> {
        self.values.take().into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
