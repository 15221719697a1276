//! `shoal bounds --hold`: every bound of a small operation compared with the servers' rates.
//!
//! ```text
//!   round   probes │ module null: 1, 16 clients │ module memory: 1, 16 clients │ module disk: 1, 16 clients
//! ```
//! After the probes, every second round takes the turns in reverse order. All file systems are up together
//! and take turns with the probes, so that the machine's costs are measured in the same minutes as the
//! figures. A bound is computed from the least cost over the rounds. A figure is the median of the rounds'
//! rates. The bounds for `null` and `memory` contain no sync, no disk and no journal record.

use super::measure::{self, Extent, Measuring, SERVERS};
use super::shelf;
use crate::lab::cli::Bounds;
use crate::lab::commands::bench::cluster::Cluster;
use crate::lab::native::Native;
use crate::{out, words};
use anyhow::{Context as _, Result};
use serde_json::json;
use shoal_bench::compare::order;
use shoal_bench::holding::{Figure, verdict};
use shoal_bench::progress::Progress;
use shoal_bench::whole::names;
use shoal_bench::{Concurrency, PhaseResult, SmallOptions, Team, WholeOptions, Workload};
use shoal_model::machine::Disk;
use shoal_model::{Bound, Machine, Operation, Servers, Set};
use std::process::ExitCode;

const MODULES: [&str; 3] = ["null", "memory", "disk"];
const CLIENTS: [u32; 2] = [1, 16];
/// Rounds: enough for an interval.
const ROUNDS: usize = 9;
/// Files of all clients together, in each phase.
const FILES: u64 = 1600;
/// The same where a look is enough.
const FILES_QUICK: u64 = 160;
/// Listings with attributes.
const LIST: &str = "readdirplus, written";

/// The measured operation, and its phase.
const OPERATIONS: [(Operation, &str); 6] = [
    (Operation::Create, names::CREATE_EMPTY),
    (Operation::Stat, names::STAT),
    (Operation::Write, "write"),
    (Operation::Read, "read"),
    (Operation::Remove, names::REMOVE),
    (Operation::ListEntry, LIST),
];

/// The rates of one file system and number of clients: by operation, all rounds.
type Rates = [Vec<f64>; OPERATIONS.len()];

/// Measure, and judge.
pub fn run(args: &Bounds) -> Result<ExitCode> {
    let place = shelf::place(args.out.as_deref())?;
    let mut told = super::draw(args);
    let mut measuring = Measuring::start(args, Extent::among_others(args.quick))?;
    let servers = args.servers.unwrap_or(SERVERS);
    let systems = MODULES.map(|module| start(args, module, servers));
    let systems = systems.into_iter().collect::<Result<Vec<_>>>()?;
    let rounds = if args.quick { 1 } else { ROUNDS };
    told(Progress::Begin { steps: (rounds * (1 + systems.len() * CLIENTS.len())) as u64 });
    let mut step = 0;
    let mut tell = |what: String, repetition: usize| {
        told(Progress::Step { step, what, repetition });
        step += 1;
    };
    let turns: Vec<(usize, usize)> = (0..systems.len())
        .flat_map(|system| (0..CLIENTS.len()).map(move |clients| (system, clients)))
        .collect();
    let mut rates: Vec<Rates> = turns.iter().map(|_| Rates::default()).collect();
    for round in 1..=rounds {
        tell("machine".to_owned(), round);
        measuring.round(&mut |_| ())?;
        for at in order(turns.len(), round) {
            let (system, clients) = (turns[at].0, CLIENTS[turns[at].1]);
            tell(format!("{}, {clients} clients", MODULES[system]), round);
            measure(&systems[system], clients, args.quick, &mut rates[at])?;
        }
    }
    told(Progress::End);
    systems.into_iter().try_for_each(Cluster::stop)?;
    let machine = measuring.machine()?;
    shelf::keep(&machine, &measure::remark(), &place)?;
    let mut figures = Vec::new();
    for (at, (operation, phase)) in OPERATIONS.iter().enumerate() {
        for ((system, clients), rates) in turns.iter().zip(&rates) {
            let (module, clients) = (MODULES[*system], CLIENTS[*clients]);
            let bound = bound(*operation, &machine, module, clients, servers);
            let what = (operation.name(), module, clients);
            let figure = Figure::judged(what, &rates[at], &bound, module == "null");
            figures.push(figure.with_context(|| format!("`{phase}` was not measured: this is a bug"))?);
        }
    }
    report(args, &machine, &figures)
}

fn start(args: &Bounds, module: &str, servers: u32) -> Result<Cluster> {
    let cluster = Cluster::start(Some(&args.folder), u16::try_from(servers)?, &["--module", module])?;
    cluster.rest();
    Ok(cluster)
}

/// All operations once.
fn measure(cluster: &Cluster, clients: u32, quick: bool, rates: &mut Rates) -> Result<()> {
    let target = Native::new("native", cluster.place()?).uncached();
    let team = Team { workers: clients as usize, concurrency: Concurrency::Threads };
    let files = (if quick { FILES_QUICK } else { FILES } / u64::from(clients)).max(1);
    let small = SmallOptions { files, readdirplus: true, ..SmallOptions::default() };
    let mut phases = team.run(&target, &Workload::Small(small))?.phases;
    // Of both workloads: whole files come first, where names are the same.
    let whole = team.run(&target, &Workload::Whole(WholeOptions { files, bytes: 0 }))?.phases;
    phases.splice(0..0, whole);
    cluster.rest();
    for ((_, name), rates) in OPERATIONS.iter().zip(rates) {
        let phase = phases.iter().find(|phase| phase.phase == *name);
        rates.extend(phase.and_then(PhaseResult::rate_wall));
    }
    Ok(())
}

/// The bound of servers with such a module.
fn bound(operation: Operation, machine: &Machine, module: &str, clients: u32, servers: u32) -> Bound {
    let mut machine = machine.clone();
    if module != "disk" {
        // Nothing is waited for at a disk, and nothing is journaled.
        machine.sync.clear();
        machine.disk = Disk::default();
        machine.cpu.client.record_us = 0.0;
        machine.cpu.server.record_us = 0.0;
    }
    operation.bound(Set::Ours, &machine, clients, Servers::Both(servers), clients > 1)
}

fn report(args: &Bounds, machine: &Machine, figures: &[Figure]) -> Result<ExitCode> {
    let are_well = figures.iter().all(|figure| figure.verdict.is_well());
    if args.json {
        let with_percent = |figure: &Figure| json!({ "percent": figure.percent(), "figure": figure });
        out::json(&json!({
            "machine": machine,
            "figures": figures.iter().map(with_percent).collect::<Vec<_>>(),
            "holds": are_well,
        }))?;
    } else {
        let header = [
            "operation",
            "module",
            "clients",
            "measured/s",
            "95 %",
            "bound/s",
            "of it",
            "verdict (what binds)",
        ];
        let mut table = words::table(&header);
        for figure in figures {
            table.add_row(figure.row());
        }
        out::line(words::plain(&table))?;
        if args.explain {
            for figure in figures {
                out::line(format!(
                    "{}, {}, {}:",
                    figure.operation,
                    figure.module,
                    words::many(figure.clients.into(), "client")
                ))?;
                figure.arithmetic.iter().try_for_each(|line| out::line(format!("    {line}")))?;
            }
        }
        out::line(verdict(figures))?;
    }
    // A short look at few files says nothing about the model.
    Ok(if args.quick || are_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
