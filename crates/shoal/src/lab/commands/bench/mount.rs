//! `shoal bench mount`: create, stat and remove through a mount, next to a pass-through mount with the same
//! cache times.
//!
//! For each sync mode it makes and mounts two file systems: the first has its servers in the mount's process,
//! the second is reached over TCP. These two and the pass-through mount take turns, with one process and with
//! several. Beside each mount two bounds are measured: plain echo between the same processes and, if changes
//! are durable when they are answered, syncs of the sizes that the servers write. The end of the output
//! states the requirements of a mount and whether they were met.

use super::cluster::Cluster;
use super::running::this_program;
use super::{Through, setting};
use crate::address::CommandTarget;
use crate::lab::cli::BenchMount;
use crate::lab::native;
use crate::out;
use anyhow::{Result, bail};
use clap::ValueEnum as _;
use serde_json::json;
use shoal_bench::beside::TargetSetting;
use shoal_bench::demands::{self, DemandVerdict, Mount};
use shoal_bench::probe::layout::{Connection, Servers};
use shoal_bench::workload::WORKERS_MAX;
use shoal_bench::{
    CompareOptions, Concurrency, Counts, Directory, Edge, EpochsOptions, Report, Target, Team, WholeOptions,
    Worker, WorkerCommand, Workload, compare,
};
use std::process::ExitCode;

/// The names of the targets.
const PASS_THROUGH: &str = "pass-through";
const NAMES: [&str; 2] = ["embedded", "networked"];

/// Measure.
pub fn run(args: BenchMount) -> Result<ExitCode> {
    if let Some(wrong) = args.processes.iter().find(|&&n| n == 0 || n > WORKERS_MAX) {
        bail!("--processes {wrong}: processes are between 1 and {WORKERS_MAX}");
    }
    if !std::path::Path::new("/dev/fuse").exists() {
        bail!("there is no /dev/fuse here: nothing can be mounted");
    }
    let mut measured = Vec::new();
    for sync in &args.sync {
        let sync = sync.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
        measured.extend(measure(&args, &sync)?);
    }
    let verdicts: Vec<DemandVerdict> = measured.iter().flat_map(|one| judge(one, args.epochs)).collect();
    if args.own.tell.json {
        let one = |(mount, sync, report): &Measured| json!({ "processes": mount.processes, "sync": sync, "report": report });
        let runs: Vec<_> = measured.iter().map(one).collect();
        out::json(&json!({ "runs": runs, "verdicts": verdicts }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for (_, sync, report) in &measured {
        out::line(format!("metadata durable at {sync}:"))?;
        out::bytes(report.to_table().as_bytes())?;
        if args.explain {
            out::bytes(report.explain().as_bytes())?;
        }
        out::line("")?;
    }
    super::say(&verdicts)?;
    Ok(ExitCode::SUCCESS)
}

/// The measurements; of its two mounts the embedded one stands for both.
type Measured = (Mount, String, Report);

fn judge((mount, _, report): &Measured, epochs: bool) -> Vec<DemandVerdict> {
    let of = |name: &str| {
        let mount = Mount { is_embedded: name == NAMES[0], ..*mount };
        match epochs {
            true => demands::epochs(report, name, mount).into_iter().collect(),
            false => demands::mount(report, name, mount),
        }
    };
    NAMES.iter().flat_map(|name| of(name)).collect()
}

/// All numbers of processes with one sync mode.
fn measure(args: &BenchMount, sync: &str) -> Result<Vec<Measured>> {
    let base = args.own.folder.as_deref();
    let attr_timeout = args.attr_timeout.to_string();
    let (settings, how) = (["--metadata-sync", sync], ["--attr-timeout", attr_timeout.as_str()]);
    let clusters = [
        Cluster::embedded(&this_program()?, base, args.servers, &[settings, how].concat())?,
        Cluster::remote(base, args.servers, &settings, &how)?,
    ];
    let through = Through::new(args.through.as_deref().or(base), args.attr_timeout, args.epochs)?;
    let mut targets: Vec<Box<dyn Target>> = vec![Box::new(through.target(PASS_THROUGH))];
    let mut beside = Vec::new();
    for ((name, cluster), connection) in NAMES.iter().zip(&clusters).zip([Connection::Queue, Connection::Tcp])
    {
        let place = cluster.place()?;
        let mut setting = setting::of(&place, Some(&cluster.data()))?;
        // Servers are threads of one process either way; by TCP alone that is not to be seen.
        (setting.layout.connection, setting.layout.place) = (connection, Servers::Threads);
        setting.way = Some(PASS_THROUGH.to_owned());
        beside.push(((*name).to_owned(), setting));
        let directory = Directory::new(*name, cluster.mountpoint());
        targets.push(Box::new(OnMount { directory, place, pids: cluster.pids() }));
    }
    let mut measured = Vec::new();
    for &processes in &args.processes {
        let report = one(args, &targets, &beside, processes)?;
        let mount = Mount { is_embedded: true, is_durable: sync == "reply", processes };
        measured.push((mount, sync.to_owned(), report));
    }
    drop((targets, through));
    clusters.into_iter().try_for_each(Cluster::stop)?;
    Ok(measured)
}

fn one(
    args: &BenchMount,
    targets: &[Box<dyn Target>],
    beside: &[(String, TargetSetting)],
    processes: usize,
) -> Result<Report> {
    let files = (args.files / processes).max(1) as u64;
    let workload = match args.epochs {
        true => Workload::Epochs(EpochsOptions { files, ..EpochsOptions::default() }),
        false => Workload::Whole(WholeOptions { files, bytes: 0 }),
    };
    let concurrency = Concurrency::Processes(WorkerCommand::this_program(&["bench-worker"])?);
    let options = CompareOptions {
        team: Team { workers: processes, concurrency },
        repetitions: args.repeat,
        reference: Some(PASS_THROUGH.to_owned()),
        probe: None,
        settings: beside.to_vec(),
    };
    let targets: Vec<&dyn Target> = targets.iter().map(AsRef::as_ref).collect();
    compare(&targets, &workload, &options, super::draw(&args.own.tell))
}

/// A directory on a mount, whose servers count.
struct OnMount {
    directory: Directory,
    place: CommandTarget,
    pids: Vec<u32>,
}

impl Target for OnMount {
    fn name(&self) -> String {
        self.directory.name()
    }

    fn worker(&self, index: usize) -> Result<Box<dyn Worker>> {
        self.directory.worker(index)
    }

    fn process_spec(&self) -> Option<String> {
        self.directory.process_spec()
    }

    fn counts(&self, edge: Edge) -> Result<Option<Counts>> {
        native::counted(&self.place, &self.pids, edge).map(Some)
    }
}
