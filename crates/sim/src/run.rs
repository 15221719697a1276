//! A run: a cluster, clients at work, faults at seeded moments, and the judgement at the end.

use crate::check;
use crate::cluster::{Cluster, ClusterConfig, connect};
use crate::faults::{Faults, Plan, Told};
use crate::ledger::Ledger;
use crate::register::{EVENTS_MAX, Event, Seen, is_linearizable};
use crate::rng::Rng;
use crate::workload::{DIRECTORIES, OWNER, Shared, WANDERERS, Worker};
use shoal_client::{Client, Error};
use shoal_env::Instant;
use shoal_env::point::Point;
use shoal_env::sim::{Met, ProcessId, World};
use shoal_proto::{Handle, Name};
use std::cell::{Cell, RefCell};
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
    /// What is done to the cluster meanwhile; `None`: the mix that the seed draws.
    pub faults: Option<Faults>,
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
            operations: 80,
            faults: None,
            timeout: Duration::from_secs(30),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }
}

/// What a run was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// How much of what was done to the cluster.
    pub mix: Faults,
    /// Each fault: when it began, and what it was.
    pub faults: Vec<String>,
    /// How often the steps that must survive a stop were come to, and how often a stop fell just behind them.
    pub points: BTreeMap<Point, Met>,
    /// The end of the timeline: virtual nanoseconds, and what happened.
    pub timeline: Vec<(u64, String)>,
    /// Virtual time it took.
    pub took: Duration,
    /// What was broken of what is promised. None: the run is good.
    pub violations: Vec<String>,
}

/// The run of a seed: 4 servers, 8 clients, and the faults that it draws.
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
    #[cfg(feature = "mutants")]
    shoal_env::mutant::choose(config.mutant);
    let cluster = Cluster::new(seed, &config.cluster);
    let mix = config.faults.clone().unwrap_or_else(|| Faults::drawn(seed));
    let mut report = RunReport { seed, mix, ..RunReport::default() };
    if let Err(words) = body(&cluster, seed, config, &mut report) {
        report.violations.push(words);
    }
    report.violations.extend(cluster.failures());
    report.points = cluster.world.points();
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
        let laid_out = lay_out(&client).await;
        client.close().await;
        laid_out.map(|laid_out| (env, laid_out))
    });
    let (teller, (directories, wanderers)) =
        laid_out.map_err(|error| format!("before any fault: {error}"))?;
    let shared = Rc::new(Shared {
        teller,
        directories,
        wanderers,
        timeout: config.timeout,
        cuts: Cell::default(),
        done: Cell::default(),
        totals: RefCell::default(),
        registers: RefCell::default(),
        ledgers: RefCell::default(),
        violations: RefCell::default(),
    });
    let clients = config.cluster.clients;
    let start_client = Rc::new(worker_starter(cluster, seed, config, &shared));
    (0..clients).for_each(|id| start_client(world, id));
    let counted = shared.clone();
    let tell = move |told| match told {
        Told::PowerCut => counted.cuts.set(counted.cuts.get() + 1),
        Told::Kill | Told::SyncFails | Told::DiskFull => {}
    };
    let plan = Plan {
        cluster,
        hardware: &config.cluster.world,
        clients,
        // A client's operation takes some milliseconds with its pause; so all faults fall into the work.
        span: Duration::from_millis(config.operations.max(10) * 3),
        restart_client: start_client,
        tell: Rc::new(tell),
    };
    report.faults = plan.all(seed, &report.mix);
    let in_time = world.run_until_true(world.now() + WORK_MAX, || shared.done.get() == usize::from(clients));
    let totals = *shared.totals.borrow();
    report.operations = totals.operations;
    report.acknowledged = totals.acknowledged;
    report.refused = totals.refused;
    report.unknown = totals.unknown;
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
        let violations = judge(&client, servers, &judged, env.now().0).await;
        client.close().await;
        violations
    });
    report.violations.extend(found.map_err(|error| format!("after all faults: {error}"))?);
    Ok(())
}

/// The directories that all share.
async fn lay_out(client: &Client) -> Result<(Vec<Handle>, Vec<Handle>), Error> {
    let (mut directories, mut wanderers) = (Vec::new(), Vec::new());
    for (count, word, made) in [(DIRECTORIES, "dir", &mut directories), (WANDERERS, "wander", &mut wanderers)]
    {
        for index in 0..count {
            let name = format!("{word}{index}");
            made.push(client.mkdir_at(format!("/{name}").as_bytes(), OWNER).await?.handle);
        }
    }
    Ok((directories, wanderers))
}

/// What starts a client's lives: in each it connects anew, and works.
fn worker_starter(
    cluster: &Cluster,
    seed: u64,
    config: &RunConfig,
    shared: &Rc<Shared>,
) -> impl Fn(&World, u16) + use<> {
    let mut options = cluster.options();
    options.timeout = config.timeout;
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
                    let rng = Rng::new(seed, 1000 + u64::from(id) + (life << 32));
                    let ledger = Ledger::default();
                    let worker = Worker { id, env, client, shared, rng, ledger, names: life << 32 };
                    worker.work(operations).await;
                }
                Err(error) => {
                    shared.violations.borrow_mut().push(format!("client {id} cannot connect: {error}"));
                }
            }
        });
    }
}

/// Hold everything against what is there now.
async fn judge(client: &Client, servers: u16, shared: &Shared, now: u64) -> Result<Vec<String>, Error> {
    let tree = check::walk(client).await?;
    let mut violations = tree.violations.clone();
    violations.extend(check::leftovers(client, servers, &tree).await?);
    let ledgers = shared.ledgers.take();
    for ledger in &ledgers {
        violations
            .extend(ledger.judge(|slot| tree.entries.get(&(slot.0, slot.1.clone().into_bytes())).copied()));
        for (slot, file) in &ledger.live {
            let Ok(name) = Name::new(slot.1.as_bytes()) else { continue };
            let read = client.read_small(Handle(slot.0), &name, 1 << 20).await;
            let content = read.map(|(_, content)| content.unwrap_or_default());
            let cuts = shared.cuts.get();
            let judged = content.map_err(|error| error.to_string());
            if let Err(why) = judged.and_then(|content| ledger.files[*file].judge(&content, cuts)) {
                violations.push(format!("{slot:?} at the end: {why}"));
            }
        }
    }
    for (which, object) in shared.wanderers.iter().enumerate() {
        if !tree.objects.contains_key(&object.0) {
            violations.push(format!("the wandering directory {which} ({object}) is nowhere"));
        }
    }
    for ((dir, leaf), mut history) in shared.registers.take() {
        let found = tree.entries.get(&(dir, leaf.clone().into_bytes()));
        let seen = found.map_or(Seen::Missing, |handle| Seen::Found(*handle));
        history.push(Event { client: u16::MAX, asked: "the end", called: now, returned: now + 1, seen });
        if history.len() <= EVENTS_MAX && !is_linearizable(&history) {
            violations.push(format!("{leaf} in {} is not linearizable: {}", Handle(dir), told(&history)));
        }
    }
    Ok(violations)
}

fn told(history: &[Event]) -> String {
    let mut events: BTreeMap<(u64, u16), &Event> = BTreeMap::new();
    events.extend(history.iter().map(|event| ((event.called, event.client), event)));
    let words = |event: &Event| {
        format!("{}–{} c{} {} {:x?}", event.called, event.returned, event.client, event.asked, event.seen)
    };
    events.into_values().map(words).collect::<Vec<_>>().join("; ")
}
