//! This machine, measured: the probes of [`shoal_bench::fit`], and what an operation costs our servers and clients.
//!
//! The costs are of throwaway file systems: clients make empty files, stat and remove them, and list them with attributes;
//! processor time of both sides, divided by the operations. One is durable at fsync, so a slow disk costs no time here; one
//! keeps everything in memory, and what the first takes more is the journal's. There one client alone tells what sleeping and
//! waking cost, and large files what bytes do.

use super::super::bench::cluster::{Cluster, Scratch};
use crate::cli::Bounds;
use crate::native::Native;
use anyhow::{Context as _, Result};
use shoal_bench::fit::{Costs, Fit, FitOptions, OperationCosts};
use shoal_bench::io::{IoOptions, IoPhase};
use shoal_bench::whole::names;
use shoal_bench::{
    Concurrency, PhaseResult, Progress, SmallOptions, Spread, Team, WholeOptions, WorkerCommand, Workload,
    progress,
};
use shoal_env::{AlignedBuf, File, OpenOptions, real};
use shoal_model::Machine;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// Servers where nothing is said.
const SERVERS: u32 = 4;
/// Clients that keep cores busy while costs are measured.
const CLIENTS: usize = 64;
/// Some clients: as costs usually are.
const FEW: usize = 8;
/// A call to a file costs no more than so many times what it costs by itself: else something else was measured.
const FILE_TIMES_MAX: f64 = 5.0;
/// Clients that list, each a directory of its own.
const LISTING: usize = 4;
/// The phase of `SmallOptions` that lists with attributes.
const LIST: &str = "readdirplus, written";
/// The phases of `IoOptions`.
const WRITE: &str = "write";
const READ: &str = "read";

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
            costs_most: seconds(14),
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
    let rounds = rounds(&extent, &folder, servers, &mut *told)?;
    fit.measure(first, &mut *told)?;
    told(Progress::End);
    fit.machine(title(), &rounds.costs(Pick::Least)?, &rounds.costs(Pick::Usual)?)
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

/// What the phases of all rounds cost.
struct Phases(Vec<PhaseResult>);

impl Phases {
    /// An operation, of the rounds.
    fn us(&self, name: &str, pick: Pick, of: impl Fn(&PhaseResult) -> Option<f64>) -> Result<f64> {
        let of_name = self.0.iter().filter(|phase| phase.phase == name && phase.ops > 0);
        pick.of(of_name.filter_map(|phase| Some(of(phase)? / phase.ops as f64)), name)
    }

    fn cpu_us(&self, name: &str, pick: Pick, side: Side) -> Result<f64> {
        self.us(name, pick, |phase| Some(side(phase.counts.as_ref()?) as f64))
    }

    /// The cheapest that changes something.
    fn change_us(&self, pick: Pick, side: Side) -> Result<f64> {
        Ok(self.cpu_us(names::CREATE_EMPTY, pick, side)?.min(self.cpu_us(names::REMOVE, pick, side)?))
    }

    /// 10^6 bytes.
    fn megabyte_us(&self, name: &str, pick: Pick, side: Side) -> Result<f64> {
        let of_name = self.0.iter().filter(|phase| phase.phase == name && phase.bytes > 0);
        let each = of_name.filter_map(|p| Some(side(p.counts.as_ref()?) as f64 / (p.bytes as f64 / 1e6)));
        pick.of(each, name)
    }
}

/// Which of the rounds counts.
#[derive(Clone, Copy)]
enum Pick {
    /// The least: it is to bound.
    Least,
    /// The median: it is to be simulated.
    Usual,
}

impl Pick {
    /// Many clients cost least, each; some, what is usual.
    fn crowd<T>(self, many: T, few: T) -> T {
        match self {
            Pick::Least => many,
            Pick::Usual => few,
        }
    }

    fn of(self, rounds: impl Iterator<Item = f64>, name: &str) -> Result<f64> {
        let rounds: Vec<f64> = rounds.collect();
        let spread =
            Spread::of(&rounds).with_context(|| format!("`{name}` was not measured: this is a bug"))?;
        Ok(match self {
            Pick::Least => spread.min,
            Pick::Usual => spread.median,
        })
    }
}

/// One side's processor time.
type Side = fn(&shoal_bench::Counts) -> u64;

/// A throwaway file system, its servers, and what clients did on it.
struct Measured {
    cluster: Cluster,
    target: Native,
    phases: Phases,
}

impl Measured {
    fn start(folder: &Path, servers: u32, words: &[&str]) -> Result<Measured> {
        let cluster = Cluster::start(Some(folder), u16::try_from(servers)?, words)?;
        let target = Native::new("native", cluster.place()?).uncached().served_by(cluster.pids());
        Ok(Measured { cluster, target, phases: Phases(Vec::new()) })
    }

    fn run(&self, workers: usize, workload: Workload) -> Result<Vec<PhaseResult>> {
        Ok(Team { workers, concurrency: Concurrency::Threads }.run(&self.target, &workload)?.phases)
    }

    fn end(self) -> Result<Phases> {
        self.cluster.stop()?;
        Ok(self.phases)
    }

    /// Run it; beside it how often servers' threads went to sleep, an operation.
    fn sleeping(&self, workers: usize, workload: Workload) -> Result<(Vec<PhaseResult>, f64)> {
        let slept = self.sleeps();
        let phases = self.run(workers, workload)?;
        let asked: u64 = phases.iter().map(|phase| phase.ops).sum();
        Ok((phases, (self.sleeps() - slept) as f64 / asked.max(1) as f64))
    }

    fn sleeps(&self) -> u64 {
        self.cluster.pids().iter().map(|&pid| shoal_bench::counts::sleeps_of(pid)).sum()
    }
}

/// All rounds.
struct Rounds {
    /// On disk, durable at fsync.
    disk: Phases,
    /// The same, and durable at reply: some clients.
    unsynced: Phases,
    synced: Phases,
    /// In memory: many clients, some, and one.
    memory: Phases,
    few: Phases,
    alone: Phases,
    /// How often a server's thread went to sleep, an operation, when many asked, and some.
    sleeps: Vec<(f64, f64)>,
    file: FileCall,
}

impl Rounds {
    fn costs(&self, pick: Pick) -> Result<Costs> {
        Ok(Costs {
            client: self.side(pick, |counts| counts.client_cpu_us, WRITE, READ)?,
            server: self.side(pick, |counts| counts.server_cpu_us, READ, WRITE)?,
            alone_us: self.alone.us(names::STAT, pick, |phase| Some(phase.wall_ns as f64 / 1e3))?,
            server_sleeps: pick
                .of(self.sleeps.iter().map(|sleeps| pick.crowd(sleeps.0, sleeps.1)), "sleeps")?,
            file_us: self.file_us(pick)?,
            file_alone_us: self.file.alone_us,
        })
    }

    /// What a file's call that another thread makes costs: by itself at least; usually what a group of changes takes more
    /// where it is made durable, as the thread that serves awakes for it, too.
    fn file_us(&self, pick: Pick) -> Result<f64> {
        let least_us = self.file.cpu_us;
        let Pick::Usual = pick else { return Ok(least_us) };
        let groups =
            self.synced.us(names::CREATE_EMPTY, pick, |phase| Some(phase.counts.as_ref()?.groups as f64))?;
        let of = |phases: &Phases| phases.cpu_us(names::CREATE_EMPTY, pick, |counts| counts.server_cpu_us);
        let further_us = of(&self.synced)? - of(&self.unsynced)?;
        Ok(if groups > 0.0 {
            (further_us / groups).clamp(least_us, FILE_TIMES_MAX * least_us)
        } else {
            least_us
        })
    }

    fn side(&self, pick: Pick, side: Side, write: &str, read: &str) -> Result<OperationCosts> {
        let crowd = pick.crowd(&self.memory, &self.few);
        let change_us = crowd.change_us(pick, side)?;
        Ok(OperationCosts {
            look_us: crowd.cpu_us(names::STAT, pick, side)?,
            change_us,
            record_us: (pick.crowd(&self.disk, &self.unsynced).change_us(pick, side)? - change_us).max(0.0),
            entry_us: self.disk.cpu_us(LIST, pick, side)?,
            alone_us: self.alone.cpu_us(names::STAT, pick, side)?,
            megabyte_us: (
                self.memory.megabyte_us(write, pick, side)?,
                self.memory.megabyte_us(read, pick, side)?,
            ),
            // Of a server; nobody asks it of a client.
            megabyte_cached_us: self.disk.megabyte_us(WRITE, pick, side)?,
        })
    }
}

/// Both sides' processor time, and what a client alone waits for. Replies wait for no sync: what is measured is the cores.
fn rounds(extent: &Extent, folder: &Path, servers: u32, told: &mut dyn FnMut(Progress)) -> Result<Rounds> {
    let begun = Instant::now();
    let mut disk = Measured::start(folder, servers, &["--metadata-sync", "fsync"])?;
    let mut synced = Measured::start(folder, servers, &[])?;
    disk.cluster.rest();
    synced.cluster.rest();
    let mut memory = Measured::start(folder, servers, &["--module", "memory"])?;
    let (mut few, mut alone, mut unsynced) = (Phases(Vec::new()), Phases(Vec::new()), Phases(Vec::new()));
    let mut sleeps = Vec::new();
    let whole = |files| Workload::Whole(WholeOptions { files, bytes: 0 });
    for round in 0..extent.rounds {
        if round > 0 && begun.elapsed() >= extent.costs_most {
            break;
        }
        told(Progress::Step { step: round as u64, what: "operations".to_owned(), repetition: round + 1 });
        let small =
            SmallOptions { files: extent.files, bytes: 0, readdirplus: true, ..SmallOptions::default() };
        let phases = disk.run(CLIENTS, whole(extent.files))?;
        disk.phases.0.extend(phases);
        let some = || whole(extent.files * (CLIENTS / FEW) as u64);
        let phases = disk.run(FEW, some())?;
        unsynced.0.extend(phases);
        let phases = synced.run(FEW, some())?;
        synced.phases.0.extend(phases);
        let listed = disk.run(LISTING, Workload::Small(small))?;
        disk.phases.0.extend(listed.into_iter().filter(|phase| phase.phase == LIST));
        let (phases, slept_many) = memory.sleeping(CLIENTS, whole(extent.files))?;
        memory.phases.0.extend(phases);
        let (phases, slept_few) = memory.sleeping(FEW, some())?;
        few.0.extend(phases);
        sleeps.push((slept_many, slept_few));
        let large = IoOptions {
            bytes: 16 << 20,
            phases: vec![IoPhase::Write, IoPhase::Read],
            ..IoOptions::default()
        };
        let phases = disk.run(1, Workload::Io(large.clone()))?;
        disk.phases.0.extend(phases);
        let phases = memory.run(1, Workload::Io(large))?;
        memory.phases.0.extend(phases);
        let phases = memory.run(1, whole(extent.files * CLIENTS as u64 / 8))?;
        alone.0.extend(phases);
    }
    let file = FileCall::measure(folder, extent.duration)?;
    let (disk, synced, memory) = (disk.end()?, synced.end()?, memory.end()?);
    Ok(Rounds { disk, unsynced, synced, memory, few, alone, sleeps, file })
}

/// Bytes of the file whose writes another thread makes.
const FILE_BYTES: u64 = 4 << 20;
/// Writes at once: a disk that goes to sleep between lone ones would have its awaking counted.
const FILE_CALLS: u64 = 4;

/// A durable write that another thread makes for the one that serves, as a journal's.
struct FileCall {
    /// Processor time of each, microseconds.
    cpu_us: f64,
    /// How long one waits, alone.
    alone_us: f64,
}

impl FileCall {
    fn measure(folder: &Path, span: Duration) -> Result<FileCall> {
        let scratch = Scratch::new(Some(folder))?;
        let path = scratch.path().join("file");
        std::fs::write(&path, vec![1; FILE_BYTES as usize])
            .context("cannot write a file to measure calls with")?;
        let runtime = real::Runtime::new("bounds");
        let env = runtime.env();
        runtime.block_on(async move {
            let options = OpenOptions { direct: true, dsync: true, ..OpenOptions::default() };
            let file = env.open(&path, options).await?;
            let (cpu_us, _) = FileCall::calls(&file, FILE_CALLS, span).await?;
            let (_, alone_us) = FileCall::calls(&file, 1, span).await?;
            anyhow::Ok(FileCall { cpu_us, alone_us })
        })
    }

    /// So many at once, again and again: processor time of a call, and how long those at once took.
    async fn calls(file: &File, at_once: u64, span: Duration) -> Result<(f64, f64)> {
        let (begun, used_us, mut calls) = (Instant::now(), shoal_bench::counts::cpu_us_here(), 0_u64);
        while begun.elapsed() < span || calls == 0 {
            let write = |at: u64| file.write_aligned(at, AlignedBuf::zeroed(AlignedBuf::ALIGN));
            let places = (calls..calls + at_once).map(|call| call * AlignedBuf::ALIGN as u64 % FILE_BYTES);
            for (_, written) in futures_util::future::join_all(places.map(write)).await {
                written?;
            }
            calls += at_once;
        }
        let cpu_us = (shoal_bench::counts::cpu_us_here() - used_us) as f64 / calls as f64;
        Ok((cpu_us, begun.elapsed().as_secs_f64() * 1e6 * at_once as f64 / calls as f64))
    }
}
