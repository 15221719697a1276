//! `shoal bench native`: measures whole small files by the native client, and the bound of each rate.
//!
//! It makes a file system (metadata and data durable at reply). For each number of clients it measures four
//! phases without caches: create + write + close, stat, open + read + close, and remove. Next to each phase
//! it measures two references: plain echo between processes in the same layout, and syncs of as many bytes. A
//! single client is measured twice: with idle cores, and with cores kept awake. The difference is the time of
//! the wake-up, which bounds a single client. If `--many` is not 0, one more run with a single client
//! compares batches of files with the same files one by one. The end of the output states the requirements of
//! the native client and whether they were met.

use super::cluster::Cluster;
use super::setting;
use crate::lab::cli::BenchNative;
use crate::lab::native::Native;
use crate::out;
use anyhow::{Result, bail};
use clap::ValueEnum as _;
use serde_json::json;
use shoal_bench::awake::Awake;
use shoal_bench::beside::TargetSetting;
use shoal_bench::demands::{self, DemandVerdict};
use shoal_bench::many;
use shoal_bench::workload::WORKERS_MAX;
use shoal_bench::{
    CompareOptions, Concurrency, ManyOptions, Report, Target, Team, WholeOptions, Workload, compare,
};
use std::process::ExitCode;

/// A lone client makes so much less.
const LONE: usize = 4;

/// Measure.
pub fn run(args: BenchNative) -> Result<ExitCode> {
    if let Some(wrong) = args.clients.iter().find(|&&n| n == 0 || n > WORKERS_MAX) {
        bail!("--clients {wrong}: clients are between 1 and {WORKERS_MAX}");
    }
    if args.many > 0 {
        batches(&args)?.validate(1)?;
    }
    let module = args.module.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
    let words = ["--module", &module, "--data-sync", "reply"];
    let cluster = Cluster::start(args.own.folder.as_deref(), args.servers, &words)?;
    let place = cluster.place()?;
    let setting = setting::of(&place, Some(&cluster.data()))?;
    let target = Native::new("native", place).uncached().served_by(cluster.pids());
    let mut reports = Vec::new();
    for &clients in &args.clients {
        let measure = || measure(&args, &target, &setting, clients, &whole(&args, clients)?);
        reports.push((clients, false, measure()?));
        if clients == 1 {
            let awake = Awake::all();
            reports.push((clients, true, measure()?));
            drop(awake);
        }
    }
    if args.many > 0 {
        reports.push((1, false, measure(&args, &target, &setting, 1, &batches(&args)?)?));
    }
    cluster.stop()?;
    let verdicts: Vec<DemandVerdict> = reports.iter().flat_map(judge).collect();
    match args.own.tell.json {
        true => out::json(&as_json(&reports, &verdicts))?,
        false => show(&args, &reports, &verdicts)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn whole(args: &BenchNative, clients: usize) -> Result<Workload> {
    let files = if clients == 1 { args.files / LONE } else { args.files / clients };
    Ok(Workload::Whole(WholeOptions { files: files.max(1) as u64, bytes: super::bytes(args.size)? }))
}

fn batches(args: &BenchNative) -> Result<Workload> {
    let files = (args.files / LONE).max(1) as u64;
    Ok(Workload::Many(ManyOptions { files, bytes: super::bytes(args.size)?, batch: args.many }))
}

fn measure(
    args: &BenchNative,
    target: &Native,
    setting: &TargetSetting,
    clients: usize,
    workload: &Workload,
) -> Result<Report> {
    let options = CompareOptions {
        team: Team { workers: clients, concurrency: Concurrency::Threads },
        repetitions: args.repeat,
        settings: vec![(target.name(), setting.clone())],
        ..CompareOptions::default()
    };
    compare(&[target], workload, &options, super::draw(&args.own.tell))
}

fn judge((clients, is_awake, report): &Measured) -> Vec<DemandVerdict> {
    match &report.workload {
        Workload::Many(options) => demands::many(report, options.batch),
        _ => demands::native(report, *clients, *is_awake),
    }
}

type Measured = (usize, bool, Report);

fn title(clients: usize, is_awake: bool) -> String {
    match (clients, is_awake) {
        (1, false) => "1 client, cores idle between its requests".to_owned(),
        (1, true) => "1 client, cores kept awake".to_owned(),
        (n, _) => format!("{n} clients"),
    }
}

fn show(args: &BenchNative, reports: &[Measured], verdicts: &[DemandVerdict]) -> Result<()> {
    for (clients, is_awake, report) in reports {
        out::line(format!("{}: {}", title(*clients, *is_awake), report.workload.describe()))?;
        out::bytes(report.held_table().as_bytes())?;
        if args.explain {
            out::bytes(report.explain().as_bytes())?;
        }
        if let Workload::Many(options) = &report.workload {
            out::line(many::gains_line(report, options.batch))?;
        }
        out::line("")?;
    }
    super::say(verdicts)
}

fn as_json(reports: &[Measured], verdicts: &[DemandVerdict]) -> serde_json::Value {
    let one = |(clients, is_awake, report): &Measured| {
        let gains = matches!(report.workload, Workload::Many(_)).then(|| many::gains(report));
        json!({ "clients": clients, "awake": is_awake, "report": report, "gains": gains })
    };
    json!({ "runs": reports.iter().map(one).collect::<Vec<_>>(), "verdicts": verdicts })
}
