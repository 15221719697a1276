//! `shoal bench preload`: the price of a call under `shoal run`, beside the same call without it.
//!
//! ```text
//!   outside   open, read and close a file elsewhere     bare process      under the library
//!   inside    read 4 KiB of an open file, passed on     bare process      under the library
//!   start     start a process that does nothing         bare process      under the library
//!   ShoalFS   stat, and open + read + close             native clients    under the library, without a mount
//! ```
//! In a round both sides of each row run in turn, each in a new process ([`worker`]). The price that
//! is asked of a row stands beside it, met or not.

mod worker;

use super::cluster::{Cluster, Scratch};
use super::median;
use super::running::this_program;
use crate::lab::cli::BenchPreload;
use crate::out;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use shoal_bench::workload::WORKERS_MAX;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use worker::{BYTES, Call, Share, Work};

/// Rounds, at most.
const ROUNDS_MAX: usize = 1000;
/// Calls of a measure, at most.
const CALLS_MAX: u64 = 1_000_000_000;
/// Files, at most.
const FILES_MAX: u64 = 10_000_000;
/// A start is so much slower than a call.
const CALLS_A_START: u64 = 500;

/// The work of a process.
pub fn process() -> Result<ExitCode> {
    worker::main()?;
    Ok(ExitCode::SUCCESS)
}

/// The price that is asked.
#[derive(Clone, Copy)]
enum Asked {
    /// At most so many nanoseconds more.
    More(f64),
    /// At most so many nanoseconds more, or so many times as much.
    MoreOr(f64, f64),
    /// At most so many times as much.
    Times(f64),
}

impl Asked {
    fn is_met(self, base: f64, with: f64) -> bool {
        match self {
            Asked::More(ns) => with - base <= ns,
            Asked::MoreOr(ns, times) => with - base <= ns || with <= base * times,
            Asked::Times(times) => with <= base * times,
        }
    }

    fn words(self) -> String {
        match self {
            Asked::More(ns) => format!("{} more", human_ns(ns)),
            Asked::MoreOr(ns, times) => format!("{} more, or {times:.2} ×", human_ns(ns)),
            Asked::Times(times) => format!("{times:.2} ×"),
        }
    }
}

/// A row: the same work by two sides.
struct Row {
    name: String,
    base: Work,
    with: Work,
    /// Calls of each side.
    calls: u64,
    asked: Asked,
}

/// Where it is measured.
struct Stage {
    folder: Scratch,
    cluster: Cluster,
    address: String,
    key: PathBuf,
}

impl Stage {
    fn make(args: &BenchPreload, base: &Path) -> Result<Stage> {
        let folder = Scratch::new(Some(base))?;
        for name in ["inside", "shoal"] {
            folder.folder(name)?;
        }
        for name in ["outside", "inside/file"] {
            let path = folder.path().join(name);
            std::fs::write(&path, [7; BYTES]).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let cluster = Cluster::start(Some(base), args.servers, &["--metadata-sync", "fsync"])?;
        let place = cluster.place()?;
        let (address, key) = (place.address.to_string(), std::path::absolute(&place.key)?);
        let stage = Stage { folder, cluster, address, key };
        let fill = Work::Fill(stage.address.clone(), stage.key.clone(), args.files);
        run_one(Command::new(this_program()?), &fill).context("cannot make the files")?;
        if !args.quick {
            stage.cluster.rest();
        }
        Ok(stage)
    }

    fn rows(&self, args: &BenchPreload) -> Vec<Row> {
        let path = |name: &str| self.folder.path().join(name);
        let calls = args.calls;
        let same = |name: &str, work: Work, calls: u64, asked: Asked| Row {
            name: name.to_owned(),
            base: work.clone(),
            with: work,
            calls,
            asked,
        };
        let mut rows = vec![
            // Three calls, 20 ns each.
            same(
                "outside: open, read, close",
                Work::Opens(path("outside"), calls),
                calls,
                Asked::MoreOr(60.0, 1.03),
            ),
            same("inside: read", Work::Reads(path("inside/file"), calls), calls, Asked::More(2e3)),
        ];
        let starts = (calls / CALLS_A_START).max(1);
        rows.push(same("start of a process", Work::Starts(starts), starts, Asked::More(2e6)));
        // As fast as four fifths of as many native clients.
        for (threads, asked) in [(1, Asked::Times(1.2)), (args.threads, Asked::Times(1.25))] {
            for (words, call) in [("stat", Call::Stat), ("open, read, close", Call::Read)] {
                let share = Share { files: args.files, threads };
                let (address, key) = (self.address.clone(), self.key.clone());
                rows.push(Row {
                    name: format!("ShoalFS, {threads} at once: {words}"),
                    base: Work::Native(address, key, call, share),
                    with: Work::Files(path("shoal"), call, share),
                    calls: args.files * threads as u64,
                    asked,
                });
            }
        }
        rows
    }

    /// A process under the library that shows all directories of the measure.
    fn under(&self) -> Result<Command> {
        let program = this_program()?;
        let mut command = Command::new(&program);
        command.arg("run").arg("--key").arg(&self.key);
        command.arg("--over").arg(format!("{}=plain", self.folder.path().join("inside").display()));
        command.arg("--over").arg(format!("{}={}", self.folder.path().join("shoal").display(), self.address));
        command.arg("--").arg(&program);
        Ok(command)
    }

    /// Nanoseconds of a call.
    fn measure(&self, row: &Row, is_under: bool) -> Result<f64> {
        let (command, work) = match is_under {
            true => (self.under()?, &row.with),
            false => (Command::new(this_program()?), &row.base),
        };
        Ok(run_one(command, work)? * 1e9 / row.calls as f64)
    }
}

/// One process's work. The seconds that it took.
fn run_one(mut command: Command, work: &Work) -> Result<f64> {
    command.arg("bench-preload").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start a process")?;
    let mut line = serde_json::to_vec(work)?;
    line.push(b'\n');
    // A process that has ended says why by its status.
    let _ = child.stdin.take().context("a process has no input")?.write_all(&line);
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("a process ended with {}; its words are above", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().with_context(|| format!("a process said `{}`", text.trim()))
}

/// Measure.
pub fn run(mut args: BenchPreload) -> Result<ExitCode> {
    if args.quick {
        (args.calls, args.files, args.threads, args.repeat) = (2000, 50, 4, 1);
    }
    check(&args)?;
    let base = args.directory.clone().unwrap_or_else(|| PathBuf::from("/dev/shm"));
    if !base.is_dir() {
        bail!("{} is no directory: make it first", base.display());
    }
    let stage = Stage::make(&args, &base)?;
    let rows = stage.rows(&args);
    let mut taken: Vec<Vec<[f64; 2]>> = rows.iter().map(|_| Vec::new()).collect();
    for round in 0..args.repeat {
        for (at, row) in rows.iter().enumerate() {
            let with = |is_under| {
                stage.measure(row, is_under).with_context(|| format!("{}, round {}", row.name, round + 1))
            };
            // Either side begins every other round.
            let pair = if round % 2 == 0 {
                [with(false)?, with(true)?]
            } else {
                let under = with(true)?;
                [with(false)?, under]
            };
            taken[at].push(pair);
        }
    }
    stage.cluster.stop()?;
    show(&args, &base, &rows, &taken)
}

fn check(args: &BenchPreload) -> Result<()> {
    for (name, given, most) in [
        ("calls", args.calls, CALLS_MAX),
        ("files", args.files, FILES_MAX),
        ("threads", args.threads as u64, WORKERS_MAX as u64),
        ("repeat", args.repeat as u64, ROUNDS_MAX as u64),
    ] {
        if !(1..=most).contains(&given) {
            bail!("--{name} {given}: it is between 1 and {most}");
        }
    }
    Ok(())
}

fn human_ns(ns: f64) -> String {
    match ns.abs() {
        small if small < 1e3 => format!("{ns:.0} ns"),
        middle if middle < 1e6 => format!("{:.2} µs", ns / 1e3),
        _ => format!("{:.2} ms", ns / 1e6),
    }
}

/// A row as it came out. The ratio and the difference are medians of the rounds' own.
fn as_json(row: &Row, rounds: &[[f64; 2]]) -> Value {
    let of = |figure: fn(&[f64; 2]) -> f64| median(rounds.iter().map(figure).collect());
    let (base, with) = (of(|pair| pair[0]), of(|pair| pair[1]));
    let (times, more) = (of(|pair| pair[1] / pair[0]), of(|pair| pair[1] - pair[0]));
    json!({
        "name": row.name, "without_ns": base, "with_ns": with, "times": times, "more_ns": more,
        "asked": row.asked.words(), "met": row.asked.is_met(base, base * times) || row.asked.is_met(base, base + more),
    })
}

fn show(args: &BenchPreload, base: &Path, rows: &[Row], taken: &[Vec<[f64; 2]>]) -> Result<ExitCode> {
    let found: Vec<Value> = rows.iter().zip(taken).map(|(row, rounds)| as_json(row, rounds)).collect();
    if args.json {
        out::json(&json!({
            "directory": base, "calls": args.calls, "files": args.files, "threads": args.threads,
            "servers": args.servers, "rounds": args.repeat, "rows": found,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    out::line(format!("{}: {} calls, {} rounds; a call", base.display(), args.calls, args.repeat))?;
    for row in &found {
        let number = |field: &str| row[field].as_f64().unwrap_or(0.0);
        out::line(format!(
            "  {:36} {:>10} without, {:>10} with: {:>6.2} ×, {:>10} more   asked {}: {}",
            row["name"].as_str().unwrap_or(""),
            human_ns(number("without_ns")),
            human_ns(number("with_ns")),
            number("times"),
            human_ns(number("more_ns")),
            row["asked"].as_str().unwrap_or(""),
            if row["met"].as_bool() == Some(true) { "met" } else { "NOT met" },
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
