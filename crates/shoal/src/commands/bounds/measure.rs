//! This machine, measured: the probes of [`shoal_bench::fit`], and what an operation costs our servers and clients.
//!
//! The costs are of a throwaway file system: clients make empty files, stat and remove them, and list them with attributes;
//! processor time of both sides, divided by the operations. It is durable at fsync, so a slow disk costs no time here.

use super::super::bench::cluster::Cluster;
use crate::cli::Bounds;
use crate::native::Native;
use anyhow::{Context as _, Result};
use shoal_bench::fit::{Costs, Fit, FitOptions, OperationCosts};
use shoal_bench::whole::names;
use shoal_bench::{
    Concurrency, PhaseResult, Progress, SmallOptions, Team, WholeOptions, WorkerCommand, Workload, progress,
};
use shoal_model::Machine;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Servers where nothing is said.
const SERVERS: u32 = 4;
/// Clients that keep cores busy while costs are measured.
const CLIENTS: usize = 64;
/// Clients that list, each a directory of its own.
const LISTING: usize = 4;
/// The phase of `SmallOptions` that lists with attributes.
const LIST: &str = "readdirplus, written";

/// How long everything takes.
struct Extent {
    rounds: usize,
    duration: Duration,
    disk_bytes: u64,
    /// Files of each client while costs are measured.
    files: u64,
    /// No round of the costs begins after so long, and no other round after so long altogether (but the first).
    costs_most: Duration,
    all_most: Duration,
}

impl Extent {
    fn of(quick: bool) -> Extent {
        let seconds = Duration::from_secs;
        let whole = Extent {
            rounds: 5,
            duration: Duration::from_millis(350),
            disk_bytes: 128 << 20,
            files: 80,
            costs_most: seconds(10),
            all_most: seconds(45),
        };
        match quick {
            false => whole,
            true => {
                let duration = Duration::from_millis(60);
                Extent { rounds: 1, duration, disk_bytes: 16 << 20, files: 20, ..whole }
            }
        }
    }
}

/// Measure it.
pub fn machine(args: &Bounds) -> Result<Machine> {
    let extent = Extent::of(args.quick);
    let servers = args.servers.unwrap_or(SERVERS);
    let until = Instant::now() + extent.all_most;
    let folder = args.folder.clone();
    let mut told: Box<dyn FnMut(Progress)> =
        if args.quiet { Box::new(|_| {}) } else { Box::new(progress::bar()) };
    let options = FitOptions {
        folder: folder.clone(),
        echo: WorkerCommand::this_program(&["bench-echo"])?,
        servers: servers as usize,
        rounds: extent.rounds,
        until,
        duration: extent.duration,
        disk_bytes: extent.disk_bytes,
    };
    let mut fit = Fit::new(options).context("cannot measure this machine")?;
    let first = extent.rounds as u64;
    told(Progress::Begin { steps: first + fit.steps() });
    let costs = costs(&extent, &folder, servers, &mut *told)?;
    fit.measure(first, &mut *told)?;
    told(Progress::End);
    fit.machine(title(), &costs)
}

/// What stands behind every value in the file.
pub fn remark() -> String {
    format!("by `shoal bounds`, {}", today())
}

fn today() -> String {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    now.split('T').next().unwrap_or_default().to_owned()
}

fn title() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let processor = read("/proc/cpuinfo");
    let model = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("", |m| m.1);
    format!("this machine: {}, Linux {}, {}", model.trim(), kernel.trim(), today())
}

/// Both sides' processor time, the least of the rounds: it is to bound.
fn costs(extent: &Extent, folder: &Path, servers: u32, told: &mut dyn FnMut(Progress)) -> Result<Costs> {
    let begun = Instant::now();
    // Replies wait for no sync: what is measured is the cores.
    let words = ["--metadata-sync", "fsync"];
    let cluster = Cluster::start(Some(folder), u16::try_from(servers)?, &words)?;
    let target = Native::new("native", cluster.place()?).uncached().served_by(cluster.pids());
    let run = |workers, workload: Workload| {
        Team { workers, concurrency: Concurrency::Threads }.run(&target, &workload)
    };
    let mut phases: Vec<PhaseResult> = Vec::new();
    for round in 0..extent.rounds {
        if round > 0 && begun.elapsed() >= extent.costs_most {
            break;
        }
        told(Progress::Step { step: round as u64, what: "operations".to_owned(), repetition: round + 1 });
        let whole = WholeOptions { files: extent.files, bytes: 0 };
        let small =
            SmallOptions { files: extent.files, bytes: 0, readdirplus: true, ..SmallOptions::default() };
        phases.extend(run(CLIENTS, Workload::Whole(whole))?.phases);
        phases.extend(
            run(LISTING, Workload::Small(small))?.phases.into_iter().filter(|phase| phase.phase == LIST),
        );
    }
    cluster.stop()?;
    let side = |of: fn(&shoal_bench::Counts) -> u64| {
        let us = |name: &str| -> Result<f64> {
            let of_name = phases.iter().filter(|phase| phase.phase == name && phase.ops > 0);
            let each = of_name.filter_map(|phase| Some(of(phase.counts.as_ref()?) as f64 / phase.ops as f64));
            each.reduce(f64::min).with_context(|| format!("`{name}` was not measured: this is a bug"))
        };
        anyhow::Ok(OperationCosts {
            look_us: us(names::STAT)?,
            change_us: us(names::CREATE_EMPTY)?.min(us(names::REMOVE)?),
            entry_us: us(LIST)?,
        })
    };
    Ok(Costs { client: side(|counts| counts.client_cpu_us)?, server: side(|counts| counts.server_cpu_us)? })
}
