//! `shoal bench stored`: compares operations on whole small files at a server that already stores very many
//! bytes with the same operations at an empty server.
//!
//! It makes two file systems of one server each, in one folder. The store of the first server gets
//! additional segments of the journal with a terabyte of live small files ([`shoal_store::aged`]). A change
//! reads the list of these segments, and a checkpoint writes their counts, as with real segments. The rows
//! of these files do not exist. So two costs are not measured: the cost of a larger table, and the cost of
//! a cache that holds a smaller part of it. The two file systems take turns; the ratio is computed round by
//! round.

use super::cluster::Cluster;
use crate::cluster_file::ClusterFile;
use crate::lab::cli::BenchStored;
use crate::lab::native::Native;
use crate::node::collection_config;
use crate::{bytes_size, out};
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use shoal_bench::demands::DemandVerdict;
use shoal_bench::interval::Interval;
use shoal_bench::whole::names;
use shoal_bench::workload::WORKERS_MAX;
use shoal_bench::{CompareOptions, Concurrency, Report, Target, Team, WholeOptions, Workload, compare};
use shoal_proto::ServerId;
use std::path::Path;
use std::process::ExitCode;

/// The targets.
const EMPTY: &str = "empty";
const STORED: &str = "stored";
/// A server that stores much makes at least this share of the changes of an empty one.
const SHARE: f64 = 0.9;
/// The phases that make changes.
const CHANGES: [&str; 2] = [names::CREATE, names::REMOVE];

/// Measure.
pub fn run(args: BenchStored) -> Result<ExitCode> {
    if args.clients == 0 || args.clients > WORKERS_MAX {
        bail!("--clients {}: clients are between 1 and {WORKERS_MAX}", args.clients);
    }
    let start = || Cluster::start(args.own.folder.as_deref(), 1, &["--data-sync", "reply"]);
    // Both are started twice, so that they differ in nothing else.
    let empty = start()?.between_starts(|_| Ok(()))?;
    let mut bytes = 0;
    let stored = start()?.between_starts(|data| {
        bytes = fill(data, args.segments)?;
        Ok(())
    })?;
    let targets = [
        Native::new(EMPTY, empty.place()?).uncached().served_by(empty.pids()),
        Native::new(STORED, stored.place()?).uncached().served_by(stored.pids()),
    ];
    let targets: Vec<&dyn Target> = targets.iter().map(|target| target as &dyn Target).collect();
    [&empty, &stored].into_iter().for_each(Cluster::rest);
    let files = (args.files / args.clients).max(1) as u64;
    let workload = Workload::Whole(WholeOptions { files, bytes: super::bytes(args.size)? });
    let options = CompareOptions {
        team: Team { workers: args.clients, concurrency: Concurrency::Threads },
        repetitions: args.repeat,
        ..CompareOptions::default()
    };
    let report = compare(&targets, &workload, &options, super::draw(&args.own.tell))?;
    empty.stop()?;
    stored.stop()?;
    let verdicts: Vec<DemandVerdict> = CHANGES.iter().filter_map(|phase| judge(&report, phase)).collect();
    if args.own.tell.json {
        out::json(&json!({ "stored_bytes": bytes, "report": report, "verdicts": verdicts }))?;
        return Ok(ExitCode::SUCCESS);
    }
    out::line(format!(
        "{STORED}: {} segments of the journal with {} of small files",
        args.segments,
        bytes_size::human(bytes)
    ))?;
    out::bytes(report.to_table().as_bytes())?;
    super::say(&verdicts)?;
    Ok(ExitCode::SUCCESS)
}

/// Add the segments to the store of the only server; their bytes.
fn fill(data: &Path, segments: u64) -> Result<u64> {
    let cluster = ClusterFile::load(data)?;
    let (server, entry) =
        cluster.server.first().zip(cluster.collection.first()).context("there is no server")?;
    let folder = cluster.path(&server.folder).join(&entry.name);
    let config = collection_config(entry, &cluster.map(entry)?, ServerId(0), folder)?;
    let bytes = config.segment_bytes.saturating_mul(segments);
    let filled = shoal_env::real::run("shoal", |env| async move {
        shoal_store::aged::add_segments(&env, &config, segments).await
    });
    filled.context("cannot add segments to the store")?;
    Ok(bytes)
}

/// The ratio of one phase, round by round.
fn judge(report: &Report, phase: &str) -> Option<DemandVerdict> {
    let rates = |name: &str| -> Vec<f64> {
        let runs = report.target(name).into_iter().flat_map(|target| &target.runs);
        let rate = |run: &shoal_bench::RunResult| {
            run.phases
                .iter()
                .find(|result| result.phase == phase)
                .and_then(shoal_bench::PhaseResult::rate_wall)
        };
        runs.filter_map(rate).collect()
    };
    let (empty, stored) = (rates(EMPTY), rates(STORED));
    let ratio = Interval::of_ratio(&stored, &empty)?;
    let median = |rates: &[f64]| Interval::of_median(rates).map_or(0.0, |median| median.value);
    Some(DemandVerdict {
        demand: format!("{phase}, at least {SHARE} of what an empty server makes"),
        measured: format!("{}, {:.0}/s beside {:.0}/s", ratio.as_ratio(), median(&stored), median(&empty)),
        is_met: ratio.value >= SHARE,
    })
}
