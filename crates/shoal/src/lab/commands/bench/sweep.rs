//! `shoal bench sweep`: the native client transfers one file in blocks of every size. The benchmark also
//! shows the gain of eager I/O around its size limit. *Eager* data rides in the request itself.
//!
//! For eager I/O it makes two file systems, with and without eager I/O, and measures them in turn. Data is
//! written as a program would write it (`write(2)`, no sync), because only the transfer over the wire
//! changes with the size.

use super::cluster::Cluster;
use super::held::{self, Figure, Kept, Run};
use crate::bytes_size;
use crate::lab::cli::BenchSweep;
use crate::lab::native::Native;
use crate::out;
use anyhow::Result;
use clap::ValueEnum as _;
use serde_json::json;
use shoal_bench::sweep::{Against, against_table, never_slower};
use shoal_bench::{SweepOptions, SweepReport, Target, sweep};
use shoal_model::{Operation, Set};
use shoal_proto::limits;
use std::process::ExitCode;

/// Sizes with eager I/O on and off: from this part of the limit to as many times of it.
const AROUND: usize = 16;
/// The names of the two.
const NAMES: [&str; 2] = ["eager=off", "eager=on"];

/// Measure.
pub fn run(args: BenchSweep) -> Result<ExitCode> {
    let options = SweepOptions {
        from: super::bytes(args.from)?,
        to: super::bytes(args.to)?,
        total: args.total.0,
        blocks: args.blocks,
        rounds: args.repeat,
    };
    options.validate()?;
    let kept = Kept::read()?;
    let all = measure(&args, &["ours"], &options)?;
    let mut verdicts = all.dips();
    let eager = if args.no_eager { Vec::new() } else { eager(&args, &options)? };
    verdicts.extend(never_slower(&eager, NAMES[1], NAMES[0], limits::EAGER_BYTES_MAX));
    let held = kept.hold(figures(&args, &all));
    if args.own.tell.json {
        out::json(&json!({ "sizes": all, "eager": eager, "verdicts": verdicts, "bounds": held }))?;
        return Ok(ExitCode::SUCCESS);
    }
    out::bytes(all.to_table().as_bytes())?;
    held::tell(&held, args.held.explain)?;
    if !eager.is_empty() {
        out::line(format!(
            "eager I/O carries data in the message itself, up to {} bytes:",
            limits::EAGER_BYTES_MAX
        ))?;
        out::bytes(against_table(&eager, NAMES[1], NAMES[0]).as_bytes())?;
    }
    super::say(&verdicts)?;
    Ok(ExitCode::SUCCESS)
}

/// Each size: one client, one block under way.
fn figures(args: &BenchSweep, report: &SweepReport) -> Vec<Figure> {
    // The data is written as by write(2): nothing waits for a sync.
    let run = Run { servers: args.servers, clients: 1, is_durable: false };
    let mut figures = Vec::new();
    for curve in &report.curves {
        for point in &curve.points {
            let Some(rate) = &point.mb_per_s else { continue };
            let (block, is_write) = (point.block as f64, curve.direction == "write");
            figures.push(Figure {
                what: format!("{} by {}", curve.direction, bytes_size::human(point.block as u64)),
                per_s: rate.value * 1e6 / block,
                counts: Operation::transfer(Set::Ours, args.servers.into(), block, is_write),
                set: Set::Ours,
                run,
            });
        }
    }
    figures
}

fn eager(args: &BenchSweep, options: &SweepOptions) -> Result<Vec<Against>> {
    let (from, to) = (limits::EAGER_BYTES_MAX / AROUND, limits::EAGER_BYTES_MAX * AROUND);
    let within = SweepOptions { from, to, total: options.total.max(to as u64), ..options.clone() };
    Ok(measure(args, &NAMES, &within)?.against(NAMES[1], NAMES[0]))
}

/// One file system for each set of switches; they are called by these.
fn measure(args: &BenchSweep, switches: &[&str], options: &SweepOptions) -> Result<SweepReport> {
    let module = args.module.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
    let (mut clusters, mut targets) = (Vec::new(), Vec::new());
    for words in switches {
        let up = ["--module", &module, "--switches", words];
        let cluster = Cluster::start(args.own.folder.as_deref(), args.servers, &up)?;
        targets.push(Native::new(words, cluster.place()?));
        clusters.push(cluster);
    }
    let targets: Vec<&dyn Target> = targets.iter().map(|target| target as &dyn Target).collect();
    let report = sweep(&targets, options, super::draw(&args.own.tell))?;
    clusters.into_iter().try_for_each(Cluster::stop)?;
    Ok(report)
}
