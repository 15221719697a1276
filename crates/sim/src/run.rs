//! A run: a cluster, clients at work, faults at seeded moments, and the judgement at the end.

use crate::cluster::{Cluster, ClusterConfig, connect};
use crate::judge::judge;
use crate::rng::Rng;
use crate::workload::{Scene, Shared, Worker};
use shoal_env::Instant;
use shoal_env::sim::World;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// What a run is to be like.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The cluster.
    pub cluster: ClusterConfig,
    /// Operations of each client.
    pub operations: u64,
    /// Servers killed, each started again soon after.
    pub crashes: u32,
    /// Servers that lose their power, each started again soon after.
    pub power_cuts: u32,
    /// Ways between two machines cut for a while.
    pub partitions: u32,
    /// Servers that get no processor for a while.
    pub pauses: u32,
    /// Bound of every operation.
    pub timeout: Duration,
}

impl Default for RunConfig {
    fn default() -> RunConfig {
        RunConfig {
            cluster: ClusterConfig::default(),
            operations: 80,
            crashes: 1,
            power_cuts: 1,
            partitions: 1,
            pauses: 1,
            timeout: Duration::from_secs(30),
        }
    }
}

/// What a run was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// The seed it is repeated by.
    pub seed: u64,
    /// A hash over all that happened: equal for equal runs.
    pub trace_hash: u64,
    /// Operations the clients asked for.
    pub operations: u64,
    /// Those that were acknowledged.
    pub acknowledged: u64,
    /// Those that were refused as they should be.
    pub refused: u64,
    /// Those without a known outcome.
    pub unknown: u64,
    /// By operation: acknowledged, refused, unknown.
    pub kinds: BTreeMap<&'static str, [u64; 3]>,
    /// Every operation of the clients in a line: when, who, what, and how it ended.
    pub history: Vec<String>,
    /// Histories of contended names and attributes that were judged.
    pub registers: u64,
    /// Those that were too much to judge.
    pub registers_skipped: u64,
    /// What was done to the cluster.
    pub faults: Vec<String>,
    /// The end of the timeline: virtual nanoseconds, and what happened.
    pub timeline: Vec<(u64, String)>,
    /// Virtual time it took.
    pub took: Duration,
    /// What was broken of what is promised. None: the run is good.
    pub violations: Vec<String>,
}

/// The run of a seed: 4 servers, 8 clients, a crash, a power cut, a partition, a pause.
pub fn run(seed: u64) -> RunReport {
    run_with(seed, &RunConfig::default())
}

/// How long servers may take to begin, and the whole may take from then on.
const BEGIN_MAX: Duration = Duration::from_secs(30);
const WORK_MAX: Duration = Duration::from_secs(3600);
/// How long after the last operation everything is at rest: leases are over, what was in doubt is decided.
const REST: Duration = Duration::from_secs(150);

/// The run of a seed and a configuration.
pub fn run_with(seed: u64, config: &RunConfig) -> RunReport {
    let cluster = Cluster::new(seed, &config.cluster);
    let mut report = RunReport {
        seed,
        trace_hash: 0,
        operations: 0,
        acknowledged: 0,
        refused: 0,
        unknown: 0,
        kinds: BTreeMap::new(),
        history: Vec::new(),
        registers: 0,
        registers_skipped: 0,
        faults: Vec::new(),
        timeline: Vec::new(),
        took: Duration::ZERO,
        violations: Vec::new(),
    };
    if let Err(words) = body(&cluster, seed, config, &mut report) {
        report.violations.push(words);
    }
    report.violations.extend(cluster.failures());
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
    let laid_out = cluster.complete_client(0, |env| async move {
        let client = connect(&env, options).await?;
        let laid_out = Scene::lay_out(&client).await;
        client.close().await;
        laid_out
    });
    let (scene, ledger) = laid_out.map_err(|error| format!("before any fault: {error}"))?;
    let cache = believes_for(seed);
    let shared = Rc::new(Shared::new(seed, scene, ledger, config.timeout, cache));
    let clients = config.cluster.clients;
    (0..clients).for_each(|id| start_worker(cluster, seed, id, config, &shared));
    report.faults = plan_faults(cluster, seed, config, &shared);
    let in_time = world.run_until_true(world.now() + WORK_MAX, || shared.done.get() == usize::from(clients));
    let totals = shared.totals.take();
    report.operations = totals.operations;
    report.acknowledged = totals.acknowledged;
    report.refused = totals.refused;
    report.unknown = totals.unknown;
    report.kinds = totals.kinds;
    report.history = totals.history;
    report.violations.append(&mut shared.violations.borrow_mut());
    if !in_time {
        return Err(format!("{} of {clients} clients ended within {WORK_MAX:?}", shared.done.get()));
    }
    world.run_for(REST);
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
    report.registers = found.registers;
    report.registers_skipped = found.registers_skipped;
    Ok(())
}

/// How long the clients of a seed believe names and attributes: in every fourth run as is usual, else not at all, so that
/// what is seen is what is.
fn believes_for(seed: u64) -> Duration {
    Duration::from_millis(if seed % 4 == 3 { 100 } else { 0 })
}

fn start_worker(cluster: &Cluster, seed: u64, id: u16, config: &RunConfig, shared: &Rc<Shared>) {
    let (mut options, shared) = (cluster.options(), shared.clone());
    options.timeout = config.timeout;
    (options.name_cache, options.attr_cache) = (shared.cache, shared.cache);
    let operations = config.operations;
    cluster.start_client(id, |env| async move {
        match connect(&env, options).await {
            Ok(client) => {
                Worker::new(id, 0, env, client, shared, seed).work(operations).await;
            }
            Err(error) => shared.violations.borrow_mut().push(format!("client {id} cannot connect: {error}")),
        }
    });
}

/// Faults, at moments within the first part of the work.
fn plan_faults(cluster: &Cluster, seed: u64, config: &RunConfig, shared: &Rc<Shared>) -> Vec<String> {
    let world = &cluster.world;
    let mut rng = Rng::new(seed, 1);
    let mut faults = Vec::new();
    let kinds = [
        (config.crashes, Fault::Crash),
        (config.power_cuts, Fault::PowerCut),
        (config.partitions, Fault::Partition),
        (config.pauses, Fault::Pause),
    ];
    // A client's operation takes some milliseconds with its pause; so all faults fall into the work.
    let span_us = config.operations.max(10) * 3_000;
    for (count, fault) in kinds {
        for _ in 0..count {
            let at = world.now() + Duration::from_micros(20_000 + rng.below(span_us));
            let lasts = Duration::from_millis(50 + rng.below(2_000));
            let server = rng.below(u64::from(cluster.server_count())) as u16;
            let client = rng.below(u64::from(config.cluster.clients)) as u16;
            faults.push((at, fault.plan(cluster, at, lasts, (server, client), shared)));
        }
    }
    faults.sort();
    faults.into_iter().map(|(at, words)| format!("{:>12} ns: {words}", at.0)).collect()
}

#[derive(Clone, Copy)]
enum Fault {
    Crash,
    PowerCut,
    Partition,
    Pause,
}

impl Fault {
    fn plan(
        self,
        cluster: &Cluster,
        at: Instant,
        lasts: Duration,
        (server, client): (u16, u16),
        shared: &Rc<Shared>,
    ) -> String {
        let (world, target) = (&cluster.world, cluster.server(server).clone());
        let restart = {
            let target = target.clone();
            move |world: &World| target.start(world)
        };
        match self {
            Fault::Crash => {
                // Another fault may have it down already.
                let shared = shared.clone();
                world.at(at, move |world| {
                    shared.kills.set(shared.kills.get() + 1);
                    world.crash(target.process);
                });
                world.at(at + lasts, restart_if_down(cluster, server, restart));
                format!("server {server} is killed for {lasts:?}")
            }
            Fault::PowerCut => {
                let shared = shared.clone();
                world.at(at, move |world| {
                    shared.cuts.set(shared.cuts.get() + 1);
                    shared.kills.set(shared.kills.get() + 1);
                    world.power_cut(target.machine);
                });
                world.at(at + lasts, restart_if_down(cluster, server, restart));
                format!("server {server} loses its power for {lasts:?}")
            }
            Fault::Partition => {
                let other = cluster.client_machine(client);
                let machine = target.machine;
                world.at(at, move |world| world.partition(machine, other, true));
                world.at(at + lasts, move |world| world.partition(machine, other, false));
                format!("server {server} and client {client} do not reach each other for {lasts:?}")
            }
            Fault::Pause => {
                world.at(at, move |world| {
                    if world.is_alive(target.process) {
                        world.pause(target.process, lasts);
                    }
                });
                format!("server {server} is paused for {lasts:?}")
            }
        }
    }
}

/// Two faults may fall together: the first restart counts.
fn restart_if_down(
    cluster: &Cluster,
    server: u16,
    restart: impl FnOnce(&World) + 'static,
) -> impl FnOnce(&World) + 'static {
    let process = cluster.server(server).process;
    move |world| {
        if !world.is_alive(process) {
            restart(world);
        }
    }
}
