//! A run: a cluster, clients at work, faults at seeded moments, and the judgement at the end.

use crate::cluster::{Cluster, ClusterConfig, connect, place_key};
use crate::combinations;
use crate::contents::SERVERS_MAX;
use crate::faults::{Fault, Faults, Outcome, Plan, Told};
use crate::judge::judge;
use crate::rng::Rng;
use crate::workload::{
    FORKS_LANE, LANES_MAX, Made, Rest, Scene, Seat, Shared, Worker, drawn_modes, forks_are_drawn,
};
use futures_util::future::join_all;
use shoal_env::Instant;
use shoal_env::crash_point::CrashPoint;
use shoal_env::sim::{CrashPointCounts, ProcessId, World};
use shoal_proto::{Seal, Switches};
use shoal_server::Settings;
use shoal_store::SyncModes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// The options of a run.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The cluster.
    pub cluster: ClusterConfig,
    /// The techniques it is made with; `None`: those that the seed draws.
    pub switches: Option<Switches>,
    /// The promised modes of durability; `None`: the modes that the seed draws, and the servers have them.
    /// Where they are stronger than the cluster's modes, the checks must find the losses.
    pub promised: Option<SyncModes>,
    /// Operations of each client.
    pub operations: u64,
    /// The faults of the cluster meanwhile; `None`: the mix that the seed draws.
    pub faults: Option<Faults>,
    /// Whether clients make and use forked files, too; `None`: as the seed draws it. A file system without
    /// the techniques that they need has none in any case.
    pub forks: Option<bool>,
    /// Bound of every operation.
    pub timeout: Duration,
    /// A bug planted on purpose.
    #[cfg(feature = "mutants")]
    pub mutant: Option<shoal_env::mutant::Mutant>,
}

impl Default for RunConfig {
    fn default() -> RunConfig {
        RunConfig {
            cluster: ClusterConfig::default(),
            switches: None,
            promised: None,
            operations: 80,
            faults: None,
            forks: None,
            timeout: Duration::from_secs(30),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunReport {
    /// The seed it is repeated by.
    pub seed: u64,
    /// A hash over all that happened: equal for equal runs.
    pub trace_hash: u64,
    /// Operations the clients requested.
    pub operations: u64,
    /// Those that were acknowledged.
    pub acknowledged: u64,
    /// Those that were refused as they should be.
    pub refused: u64,
    /// Those without a known outcome.
    pub unknown: u64,
    /// By operation: acknowledged, refused, unknown.
    pub kinds: BTreeMap<&'static str, [u64; 3]>,
    /// Every operation of the clients in a line: its time, client, name and result.
    pub history: Vec<String>,
    /// Histories of contended names and attributes that were judged.
    pub registers: u64,
    /// Those that were too much to judge.
    pub registers_skipped: u64,
    /// The techniques it was made with.
    pub switches: Switches,
    /// When changes are durable, at first.
    pub modes: SyncModes,
    /// How many faults of each kind the cluster had.
    pub mix: Faults,
    /// Each fault: its time, and its kind.
    pub faults: Vec<String>,
    /// How often the steps that must survive a stop were come to, and how often a stop fell just after them.
    pub points: BTreeMap<CrashPoint, CrashPointCounts>,
    /// The targets that faults hit, and how often.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// The end of the timeline: virtual nanoseconds, and the event.
    pub timeline: Vec<(u64, String)>,
    /// Virtual time it took.
    pub took: Duration,
    /// The broken promises. None: the run is good.
    pub violations: Vec<String>,
}

/// The run of a seed: 4 servers, 8 clients, and the faults that it draws.
pub fn run(seed: u64) -> RunReport {
    run_with(seed, &RunConfig::default())
}

/// How long servers may take to begin, and the whole may take from then on.
const BEGIN_MAX: Duration = Duration::from_secs(30);
const WORK_MAX: Duration = Duration::from_secs(3600);
/// How long after the last operation everything is at rest: leases are over, transactions in doubt are
/// decided, and files that were removed while others had them open are freed, a lease after the last start of
/// their server.
const REST: Duration = Duration::from_secs(300);
/// The same where clients create and remove step by step: unfinished steps are looked at after the sessions
/// have ended, by a server that may have been started again meanwhile, and so have given them another lease.
const REST_APART: Duration = Duration::from_secs(400);

/// The further disks that the servers of a seed's run have.
fn further_disks(seed: u64) -> usize {
    if seed % 6 == 4 { 2 } else { 0 }
}

/// The run of a seed and a configuration.
pub fn run_with(seed: u64, config: &RunConfig) -> RunReport {
    #[cfg(feature = "mutants")]
    shoal_env::mutant::choose(config.mutant);
    let switches = config.switches.unwrap_or_else(|| combinations::drawn(seed));
    let metadata_only = config.cluster.metadata_only.max(u16::from(holds_metadata_only(seed)));
    let modes = config.promised.unwrap_or_else(|| drawn_modes(&mut Rng::new(seed, 3)));
    let sync_modes = if config.promised.is_some() { config.cluster.sync_modes } else { modes };
    let mix = config.faults.clone().unwrap_or_else(|| Faults::drawn(seed));
    let room = SERVERS_MAX.saturating_sub(config.cluster.servers);
    let spare = mix.count(Fault::AddServer).min(room.into()) as u16;
    let disks = config.cluster.disks.max(further_disks(seed));
    let seal_within = seal_of(seed).unwrap_or(config.cluster.settings.seal_within);
    let settings = Settings { seal_within, ..config.cluster.settings };
    let cluster = ClusterConfig {
        switches,
        metadata_only,
        spare,
        disks,
        sync_modes,
        settings,
        ..config.cluster.clone()
    };
    let cluster = Cluster::new(seed, &cluster);
    let mut report = RunReport { seed, mix, switches, modes, ..RunReport::default() };
    if let Err(words) = body(&cluster, seed, config, &mut report) {
        report.violations.push(words);
    }
    report.violations.extend(cluster.failures());
    report.points = cluster.world.points();
    report.outcomes.insert(Outcome::OlderCopyRefused, cluster.older_refused());
    report.trace_hash = cluster.world.trace_hash();
    report.took = cluster.world.now().since(Instant(0));
    report.timeline = cluster.world.timeline().into_iter().map(|(at, line)| (at.0, line)).collect();
    report
}

fn body(cluster: &Cluster, seed: u64, config: &RunConfig, report: &mut RunReport) -> Result<(), String> {
    let world = &cluster.world;
    if !world.run_until_true(world.now() + BEGIN_MAX, || cluster.is_ready()) {
        return Err(format!("the servers did not begin within {BEGIN_MAX:?}"));
    }
    let mut options = cluster.options();
    options.timeout = config.timeout;
    let has_forks = forks_are_drawn(seed, config.forks, report.switches);
    let laid_out = cluster.complete_client(0, |env| async move {
        let client = connect(&env, options).await?;
        let laid_out = Scene::lay_out(&client, place_key(), has_forks).await;
        client.close().await;
        laid_out
    });
    let (scene, mut ledger) = laid_out.map_err(|error| format!("before any fault: {error}"))?;
    ledger.may_grow(cluster.growth().count() + report.mix.count(Fault::AddServer) as u16);
    let made = Made {
        modes: report.modes,
        switches: report.switches,
        draws_modes: config.promised.is_none(),
        is_calm: report.mix.total() == 0,
        rest: Rest::drawn(seed, config.cluster.settings.lease, &report.mix),
    };
    let bounds = (config.timeout, believes_for(seed));
    let shared = Rc::new(Shared::new(seed, scene, ledger, bounds, made));
    let clients = config.cluster.clients;
    let start_client = Rc::new(worker_starter(cluster, seed, config, &shared));
    (0..clients).for_each(|id| start_client(world, id));
    let (known, clock) = (shared.clone(), world.for_plans());
    let (own, of, is_drawn) = (shared.clone(), config.cluster.sync_modes, config.promised.is_none());
    let plan = Plan {
        cluster,
        hardware: &config.cluster.world,
        clients,
        switches: report.switches,
        // A client's operation takes some milliseconds with its pause; so all faults fall into the work.
        span: Duration::from_millis(config.operations.max(10) * 3),
        restart_client: start_client,
        modes: Rc::new(move || if is_drawn { own.known_modes() } else { of }),
        operators: shared.operators.clone(),
        tell: Rc::new(move |told| tell(&known, clock.now().0, told)),
    };
    report.faults = plan.all(seed, &report.mix);
    let all = || shared.done.get() == usize::from(clients) && shared.operators.are_done();
    let in_time = world.run_until_true(world.now() + WORK_MAX, all);
    let totals = shared.totals.take();
    report.operations = totals.operations;
    report.acknowledged = totals.acknowledged;
    report.refused = totals.refused;
    report.unknown = totals.unknown;
    report.kinds = totals.kinds;
    report.history = totals.history;
    report.violations.append(&mut shared.violations.borrow_mut());
    if !in_time {
        return Err(format!(
            "{} of {clients} clients ended within {WORK_MAX:?}, or an operator did not",
            shared.done.get()
        ));
    }
    world.run_for(if report.switches.compound { REST } else { REST_APART });
    let mut options = cluster.options();
    options.timeout = config.timeout;
    let (servers, judged) = (cluster.server_count(), shared.clone());
    let found = cluster.complete_client(0, |env| async move {
        let client = connect(&env, options).await?;
        let violations = judge(&env, &client, servers, &judged).await;
        client.close().await;
        violations
    });
    let found = found.map_err(|error| format!("after all faults: {error}"))?;
    report.violations.extend(found.violations);
    let added = found.held_by.range(config.cluster.servers..).map(|(_, count)| *count).sum();
    report.outcomes.insert(Outcome::AddedServerUsed, added);
    report.registers = found.registers;
    report.registers_skipped = found.registers_skipped;
    Ok(())
}

/// How long the clients of a seed cache names and attributes: in every fourth run as is usual, else not at
/// all, so that they see the current state.
fn believes_for(seed: u64) -> Duration {
    Duration::from_millis(if seed % 4 == 3 { 100 } else { 0 })
}

/// In every fourth run, with all techniques and with others, one server holds metadata only.
fn holds_metadata_only(seed: u64) -> bool {
    matches!(seed % 8, 1 | 2)
}

/// In every sixteenth run the frames of all connections are sealed, in another one they are encrypted.
fn seal_of(seed: u64) -> Option<Seal> {
    match seed % 16 {
        6 => Some(Seal::All),
        14 => Some(Seal::Encrypted),
        _ => None,
    }
}

/// The facts about faults that the checks need.
fn tell(shared: &Shared, at: u64, told: Told) {
    match told {
        Told::Kill(server) => shared.fault(at, server, false, true),
        Told::PowerCut(server) => shared.fault(at, server, true, true),
        Told::SyncFails(server) => shared.fault(at, server, true, false),
        Told::DiskFull => shared.may_be_full.set(true),
        Told::Pause(server, lasts) => shared.pause(at, server, lasts),
    }
}

/// How many operations each client of a seed has under way at once.
fn lanes_of(seed: u64) -> u16 {
    [1, 2, 1, 3][(seed / 3 % 4) as usize].min(LANES_MAX)
}

/// Starts a client's lives: in each it connects anew, and works.
fn worker_starter(
    cluster: &Cluster,
    seed: u64,
    config: &RunConfig,
    shared: &Rc<Shared>,
) -> impl Fn(&World, u16) + use<> {
    let mut options = cluster.options();
    options.timeout = config.timeout;
    if seed.is_multiple_of(3) {
        // Longer writes are pulled.
        options.unasked_bytes = 10_000;
    }
    (options.name_cache, options.attr_cache) = (shared.cache, shared.cache);
    let (operations, shared, lives) = (config.operations, shared.clone(), RefCell::new(BTreeMap::new()));
    let processes: Vec<ProcessId> =
        (0..config.cluster.clients).map(|id| cluster.client_process(id)).collect();
    move |world, id| {
        let life = {
            let mut lives = lives.borrow_mut();
            let count: &mut u64 = lives.entry(id).or_default();
            *count += 1;
            *count - 1
        };
        let (options, shared) = (options.clone(), shared.clone());
        world.start(processes[usize::from(id)], |env| async move {
            match connect(&env, options).await {
                Ok(client) => {
                    let lanes = lanes_of(seed);
                    let lane = |lane| {
                        let (seat, own) = (Seat { client: id, lane, life }, operations / u64::from(lanes));
                        Worker::new(seat, env.clone(), client.clone(), shared.clone(), seed).work(own)
                    };
                    // Lanes of files first, so that they draw the same without forks.
                    let of_forks = if shared.scene.forked.is_empty() { None } else { Some(FORKS_LANE) };
                    join_all((0..lanes).chain(of_forks).map(lane)).await;
                    shared.done.set(shared.done.get() + 1);
                }
                Err(error) => {
                    shared.violations.borrow_mut().push(format!("client {id} cannot connect: {error}"));
                }
            }
        });
    }
}
