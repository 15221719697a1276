//! Measures this machine: the probes of [`shoal_bench::fit`], and the cost of an operation for our servers
//! and clients ([`costs`]).
//!
//! The measurement is done in rounds, each of which measures everything once. Other measurements may run
//! between two rounds ([`super::validate`], [`super::hold`]). Then the medians over the rounds describe the
//! usual speed of the machine in the time of these measurements. Bounds need the least processor time
//! instead; the machine's file has both.

mod call;
mod costs;

use crate::lab::cli::Bounds;
use anyhow::{Context as _, Result};
use costs::{Pick, Rounds};
use shoal_bench::fit::{Fit, FitOptions};
use shoal_bench::{Progress, WorkerCommand};
use shoal_model::Machine;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

/// Servers where nothing is said.
pub const SERVERS: u32 = 4;

/// How long everything takes.
#[derive(Clone, Copy)]
pub struct Extent {
    rounds: usize,
    duration: Duration,
    disk_bytes: u64,
    /// Files of each client while costs are measured.
    files: u64,
    /// No round but the first begins after so long: a slow disk must not make it last.
    most: Duration,
}

impl Extent {
    fn of(quick: bool) -> Extent {
        let whole = Extent {
            rounds: 5,
            duration: Duration::from_millis(350),
            disk_bytes: 128 << 20,
            files: 80,
            most: Duration::from_secs(42),
        };
        if quick { Extent { rounds: 1, ..Extent::short() } } else { whole }
    }

    /// Of a round among many.
    pub fn among_others(quick: bool) -> Extent {
        let some = Extent { duration: Duration::from_millis(120), disk_bytes: 64 << 20, ..Extent::of(false) };
        if quick { Extent::short() } else { some }
    }

    fn short() -> Extent {
        Extent { duration: Duration::from_millis(60), disk_bytes: 16 << 20, files: 20, ..Extent::of(false) }
    }
}

/// The probes, and their targets.
pub struct Measuring {
    extent: Extent,
    folder: PathBuf,
    costs: Rounds,
    fit: Fit,
}

impl Measuring {
    /// Make the files and start the servers that are needed.
    pub fn start(args: &Bounds, extent: Extent) -> Result<Measuring> {
        let servers = args.servers.unwrap_or(SERVERS);
        let options = FitOptions {
            folder: args.folder.clone(),
            echo: WorkerCommand::this_program(&["bench-echo"])?,
            servers: servers as usize,
            duration: extent.duration,
            disk_bytes: extent.disk_bytes,
        };
        let fit = Fit::new(options).context("cannot measure this machine")?;
        let costs = Rounds::start(&args.folder, servers, extent.files)?;
        Ok(Measuring { extent, folder: args.folder.clone(), costs, fit })
    }

    /// Steps of a round.
    pub fn steps(&self) -> u64 {
        self.fit.steps() + 1
    }

    /// Measure everything once; `tell` receives the next step.
    pub fn round(&mut self, tell: &mut dyn FnMut(String)) -> Result<()> {
        tell("operations".to_owned());
        self.costs.round(&self.folder, self.extent.duration)?;
        self.fit.round(tell)
    }

    /// The machine: medians over the rounds.
    pub fn machine(self) -> Result<Machine> {
        let (least, usual) = (self.costs.costs(Pick::Least)?, self.costs.costs(Pick::Usual)?);
        self.costs.end()?;
        self.fit.machine(title(), &least, &usual)
    }
}

/// Measure it.
pub fn machine(args: &Bounds) -> Result<Machine> {
    let extent = Extent::of(args.quick);
    let begun = Instant::now();
    let mut told = super::draw(args);
    let mut measuring = Measuring::start(args, extent)?;
    told(Progress::Begin { steps: extent.rounds as u64 * measuring.steps() });
    let mut step = 0;
    for repetition in 1..=extent.rounds {
        if repetition > 1 && begun.elapsed() >= extent.most {
            break;
        }
        measuring.round(&mut |what| {
            told(Progress::Step { step, what, repetition });
            step += 1;
        })?;
    }
    told(Progress::End);
    measuring.machine()
}

/// The source of every value in the file.
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
