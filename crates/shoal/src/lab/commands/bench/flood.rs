//! `shoal bench flood`: compares plain files with composed files. P processes at once make F files of S
//! bytes each. Then all files are read back.
//!
//! ```text
//!   bytes alone       one file a process, written by large calls: the bound of the other rows
//!   plain             all files in one directory
//!   plain, apart      a directory for each process
//!   composed, …       all files in one composed directory, a row for each setting
//! ```
//! A round has each row once, in turn, with directories (or a ShoalFS) of its own. Processes connect to their
//! file system first; then the clock runs until the last of them has closed its last file and disconnected.
//! Readers are new processes; each reads its part of all files, and compares every byte.

mod worker;

use super::cluster::{Cluster, Scratch};
use super::median;
use super::running::this_program;
use crate::bytes_size::human;
use crate::lab::cli::BenchFlood;
use crate::lab::native::served;
use crate::out;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use shoal_bench::compare::order;
use shoal_bench::workload::WORKERS_MAX;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Instant;
use worker::{Flood, Job, Side, Spread};

/// Bytes of a call of the row without files.
const BLOCK: u64 = 1 << 20;
/// Rounds, at most.
const ROUNDS_MAX: usize = 1000;
/// Files of one process, at most.
const FILES_MAX: u64 = 10_000_000;
/// Bytes of a file, at most: a process has two in memory.
const SIZE_MAX: u64 = 1 << 30;

/// The work of a process.
pub fn process() -> Result<ExitCode> {
    worker::main()?;
    Ok(ExitCode::SUCCESS)
}

/// A row of the table.
struct Row {
    name: &'static str,
    spread: Spread,
    /// The words of a composed directory's settings.
    composed: Option<&'static str>,
}

const ROWS: [Row; 7] = [
    Row { name: "bytes alone", spread: Spread::Bytes, composed: None },
    Row { name: "plain", spread: Spread::Together, composed: None },
    Row { name: "plain, apart", spread: Spread::Apart, composed: None },
    Row { name: "composed", spread: Spread::Together, composed: Some("") },
    Row { name: "composed, names=own", spread: Spread::Together, composed: Some("names=own") },
    Row { name: "composed, buffer=block", spread: Spread::Together, composed: Some("buffer=block") },
    Row {
        name: "composed, buffer=block, names=own",
        spread: Spread::Together,
        composed: Some("buffer=block,names=own"),
    },
];
/// The row that others are bounded by, and the one that they are compared with.
const BYTES: usize = 0;
const PLAIN: usize = 1;

/// One row in one round.
struct Taken {
    /// Files a second, until the last process has left; of the calls alone.
    create: f64,
    calls: f64,
    /// Files a second, for each number of readers.
    reads: Vec<f64>,
    /// Seconds until the slowest reader had reached the file system.
    reach: f64,
    cold: Option<f64>,
    /// Files and directories in the directory below; messages a file.
    below: Option<u64>,
    messages: Option<f64>,
}

/// Measure.
pub fn run(mut args: BenchFlood) -> Result<ExitCode> {
    if args.quick {
        (args.processes, args.files, args.readers, args.repeat) = (4, 50, vec![1, 4], 1);
    }
    check(&args)?;
    let rows: Vec<&Row> = ROWS.iter().filter(|row| is_possible(row, &args)).collect();
    let mut taken: Vec<Vec<Taken>> = rows.iter().map(|_| Vec::new()).collect();
    for round in 1..=args.repeat {
        for at in order(rows.len(), round) {
            let one =
                measure(&args, rows[at]).with_context(|| format!("{}, round {round}", rows[at].name))?;
            taken[at].push(one);
        }
    }
    show(&args, &rows, &taken)?;
    Ok(ExitCode::SUCCESS)
}

fn check(args: &BenchFlood) -> Result<()> {
    if !args.directory.is_dir() {
        bail!("{} is no directory: make it first", args.directory.display());
    }
    let is_crew = |n: usize| (1..=WORKERS_MAX).contains(&n);
    if !is_crew(args.processes) {
        bail!("--processes {}: processes are between 1 and {WORKERS_MAX}", args.processes);
    }
    if let Some(wrong) = args.readers.iter().find(|n| !is_crew(**n)) {
        bail!("--readers {wrong}: readers are between 1 and {WORKERS_MAX}");
    }
    if !(1..=FILES_MAX).contains(&args.files) {
        bail!("--files {}: files are between 1 and {FILES_MAX}", args.files);
    }
    if !(1..=SIZE_MAX).contains(&args.size.0) {
        bail!("--size {}: a file has between 1 byte and {}", args.size.0, human(SIZE_MAX));
    }
    if !(1..=ROUNDS_MAX).contains(&args.repeat) {
        bail!("--repeat {}: rounds are between 1 and {ROUNDS_MAX}", args.repeat);
    }
    Ok(())
}

/// The preload library buffers no blocks: a program that ends gives it no moment to write them.
fn is_possible(row: &Row, args: &BenchFlood) -> bool {
    !(args.preload && row.composed.is_some_and(|words| words.contains("buffer=block")))
}

/// The pieces of a row: with files that are synced one by one, the bytes alone are synced as often.
fn flood(args: &BenchFlood, row: &Row) -> Flood {
    let (processes, sync) = (args.processes as u64, args.sync);
    let (mut pieces, mut bytes) = (args.files, args.size.0);
    if row.spread == Spread::Bytes && !sync && bytes < BLOCK {
        let all = pieces * bytes;
        pieces = all.div_ceil(BLOCK);
        bytes = all.div_ceil(pieces);
    }
    Flood { spread: row.spread, processes, pieces, bytes, sync }
}

/// Where a row is measured; it goes at the end.
enum Stage {
    Folder(Scratch),
    Servers(Box<Cluster>),
}

impl Stage {
    fn make(args: &BenchFlood) -> Result<Stage> {
        let Some(servers) = args.servers else {
            return Ok(Stage::Folder(Scratch::new(Some(&args.directory))?));
        };
        let promise = if args.sync { "reply" } else { "fsync" };
        let cluster = Cluster::start(Some(&args.directory), servers, &["--metadata-sync", promise])?;
        if !args.quick {
            cluster.rest();
        }
        Ok(Stage::Servers(Box::new(cluster)))
    }

    fn side(&self, row: &Row, preload: bool) -> Result<Side> {
        Ok(match (self, row.composed) {
            (Stage::Folder(folder), Some(words)) if !preload => {
                Side::Composed(folder.path().to_owned(), words.to_owned())
            }
            (Stage::Folder(folder), _) => Side::Directory(folder.path().to_owned()),
            (Stage::Servers(cluster), composed) => {
                let place = cluster.place()?;
                let (address, key) = (place.address.to_string(), std::path::absolute(&place.key)?);
                match composed {
                    None => Side::Shoal(address, key),
                    Some(words) => Side::ShoalComposed(address, key, words.to_owned()),
                }
            }
        })
    }

    /// Requests that the servers took until now.
    fn requests(&self) -> Result<u64> {
        match self {
            Stage::Folder(_) => Ok(0),
            Stage::Servers(cluster) => Ok(served(&cluster.place()?)?.requests),
        }
    }

    fn end(self) -> Result<()> {
        match self {
            Stage::Folder(_) => Ok(()),
            Stage::Servers(cluster) => cluster.stop(),
        }
    }
}

fn measure(args: &BenchFlood, row: &Row) -> Result<Taken> {
    let stage = Stage::make(args)?;
    let (flood, side) = (flood(args, row), stage.side(row, args.preload)?);
    let files = (args.files * args.processes as u64) as f64;
    let start = |count: u64, is_write: bool| Crew::start(args, row, &side, flood, count, is_write);
    let writers = start(flood.processes, true)?;
    let before = stage.requests()?;
    // The request for the counts is itself counted.
    let asking = stage.requests()? - before;
    let written = writers.run()?;
    let requests = stage.requests()?.saturating_sub(before + 2 * asking);
    let (mut reads, mut reach) = (Vec::new(), 0_f64);
    for &readers in &args.readers {
        let read = start(readers as u64, false)?.run()?;
        reads.push(files / read.all);
        reach = reach.max(read.reach);
    }
    let cold = match args.cold && drop_caches() {
        // Names come from the disk too: a composed directory's when it is reached.
        true => {
            let read = start(flood.processes, false)?.run()?;
            Some(files / (read.reach + read.all))
        }
        false => None,
    };
    let (below, messages) = match &stage {
        Stage::Folder(folder) => (Some(entries(folder.path())?), None),
        Stage::Servers(_) => (None, Some(requests as f64 / files)),
    };
    stage.end()?;
    let (create, calls) = (files / written.all, files / written.calls);
    Ok(Taken { create, calls, reads, reach, cold, below, messages })
}

/// Write everything back, and have the kernel forget files, names and pages; `false`: it is not allowed.
fn drop_caches() -> bool {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// Files and directories below a directory.
fn entries(dir: &Path) -> Result<u64> {
    let mut count = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        count += 1;
        if entry.file_type()?.is_dir() {
            count += entries(&entry.path())?;
        }
    }
    Ok(count)
}

/// Processes that are ready.
struct Crew {
    hands: Vec<Hand>,
    reach: f64,
}

/// Seconds: all of it, the slowest process's calls, the slowest one's way to the file system.
struct Ran {
    all: f64,
    calls: f64,
    reach: f64,
}

struct Hand {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Crew {
    fn start(
        args: &BenchFlood,
        row: &Row,
        side: &Side,
        flood: Flood,
        count: u64,
        is_write: bool,
    ) -> Result<Crew> {
        let part = |n: u64| flood.all() * n / count..flood.all() * (n + 1) / count;
        let job = |n: u64| Job { side: side.clone(), flood, part: part(n), is_write };
        let begin = |n: u64| Hand::start(command(args, row, side)?, &job(n));
        let mut hands = (0..count).map(begin).collect::<Result<Vec<_>>>()?;
        let mut reach = 0_f64;
        for hand in &mut hands {
            reach = reach.max(hand.hear("ready")?);
        }
        Ok(Crew { hands, reach })
    }

    fn run(mut self) -> Result<Ran> {
        let begun = Instant::now();
        for hand in &mut self.hands {
            hand.input.write_all(b"go\n").context("a process has ended")?;
            hand.input.flush()?;
        }
        let mut calls = 0_f64;
        for hand in &mut self.hands {
            calls = calls.max(hand.hear("done")?);
        }
        let all = begun.elapsed().as_secs_f64();
        self.hands.into_iter().try_for_each(Hand::end)?;
        Ok(Ran { all, calls, reach: self.reach })
    }
}

/// A process, under `shoal run` where the preload library shows the composed directory.
fn command(args: &BenchFlood, row: &Row, side: &Side) -> Result<Command> {
    let program = this_program()?;
    let mut command = Command::new(&program);
    if let (true, Some(words), Side::Directory(root)) = (args.preload, row.composed, side) {
        let comma = if words.is_empty() { "" } else { "," };
        command.arg("run").arg("--over").arg(format!("{}=composed{comma}{words}", root.display()));
        command.arg("--").arg(&program);
    }
    command.arg("bench-flood");
    Ok(command)
}

impl Hand {
    fn start(mut command: Command, job: &Job) -> Result<Hand> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a process")?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (input, output) = input.zip(output).context("a process has no pipes")?;
        let mut hand = Hand { child, input, output: BufReader::new(output) };
        let mut line = serde_json::to_vec(job)?;
        line.push(b'\n');
        hand.input.write_all(&line).context("a process has ended")?;
        hand.input.flush()?;
        Ok(hand)
    }

    /// The seconds in a line that begins with this word.
    fn hear(&mut self, word: &str) -> Result<f64> {
        let mut line = String::new();
        self.output.read_line(&mut line).context("cannot hear a process")?;
        let seconds = line.trim_end().strip_prefix(word).and_then(|rest| rest.trim().parse().ok());
        seconds.with_context(|| format!("a process ended before it was {word}; its words are above"))
    }

    fn end(mut self) -> Result<()> {
        let status = self.child.wait().context("cannot wait for a process")?;
        if !status.success() {
            bail!("a process ended with {status}");
        }
        Ok(())
    }
}

impl Drop for Hand {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The median over rounds of a figure of a row.
fn of(rounds: &[Taken], figure: impl Fn(&Taken) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = rounds.iter().filter_map(figure).collect();
    (!values.is_empty()).then(|| median(values))
}

/// The median over rounds of a ratio of two rows.
fn ratio(rounds: &[Taken], to: &[Taken], figure: impl Fn(&Taken) -> Option<f64>) -> Option<f64> {
    let one = |(a, b): (&Taken, &Taken)| figure(a).zip(figure(b)).map(|(a, b)| a / b);
    let values: Vec<f64> = rounds.iter().zip(to).filter_map(one).collect();
    (!values.is_empty()).then(|| median(values))
}

/// A rate of a row: its median, the bound, and how it stands to plain files.
fn held(rounds: &[Taken], taken: &[Vec<Taken>], figure: impl Fn(&Taken) -> Option<f64> + Copy) -> Value {
    json!({ "per_s": of(rounds, figure), "bound_per_s": of(&taken[BYTES], figure),
            "of_bound": ratio(rounds, &taken[BYTES], figure), "of_plain": ratio(rounds, &taken[PLAIN], figure) })
}

fn as_json(args: &BenchFlood, row: &Row, rounds: &[Taken], taken: &[Vec<Taken>]) -> Value {
    let reads = args.readers.iter().enumerate().map(|(at, readers)| {
        let mut read = held(rounds, taken, |one| one.reads.get(at).copied());
        read["readers"] = json!(readers);
        read
    });
    json!({
        "name": row.name,
        "create": held(rounds, taken, |one| Some(one.create)),
        "calls": held(rounds, taken, |one| Some(one.calls)),
        "reads": reads.collect::<Vec<_>>(),
        "cold": of(rounds, |one| one.cold).map(|_| held(rounds, taken, |one| one.cold)),
        "reach_s": of(rounds, |one| Some(one.reach)),
        "files_below": rounds.last().and_then(|one| one.below),
        "messages_a_file": of(rounds, |one| one.messages),
    })
}

/// Why nothing was read from the disk.
fn no_cold(args: &BenchFlood, taken: &[Vec<Taken>]) -> Option<&'static str> {
    let is_cold = taken.iter().flatten().all(|one| one.cold.is_some());
    match (is_cold, args.cold) {
        (true, _) => None,
        (false, false) => Some("not asked for (--cold)"),
        (false, true) => Some("only root may drop the kernel's caches here"),
    }
}

fn show(args: &BenchFlood, rows: &[&Row], taken: &[Vec<Taken>]) -> Result<()> {
    let told: Vec<Value> =
        rows.iter().zip(taken).map(|(row, rounds)| as_json(args, row, rounds, taken)).collect();
    let way = match (args.servers, args.preload) {
        (Some(_), _) => "shoalfs",
        (None, true) => "preload",
        (None, false) => "library",
    };
    let why = no_cold(args, taken);
    if args.json {
        return out::json(&json!({
            "directory": args.directory, "way": way, "servers": args.servers, "processes": args.processes,
            "files": args.files, "bytes": args.size.0, "rounds": args.repeat, "sync": args.sync,
            "not_cold": why, "rows": told,
        }));
    }
    out::line(format!(
        "{} ({way}): {} processes × {} files of {}, {} rounds, {}",
        args.directory.display(),
        args.processes,
        args.files,
        human(args.size.0),
        args.repeat,
        if args.sync { "each file synced" } else { "nothing synced" }
    ))?;
    for row in &told {
        out::line(row["name"].as_str().unwrap_or(""))?;
        line("create + write + close", &row["create"])?;
        line("  the calls alone", &row["calls"])?;
        for read in row["reads"].as_array().into_iter().flatten() {
            line(&format!("read by {}", read["readers"]), read)?;
        }
        if !row["cold"].is_null() {
            line("read, caches dropped", &row["cold"])?;
        }
        for (field, words) in
            [("files_below", "files and folders below"), ("messages_a_file", "messages a file")]
        {
            if let Some(count) = row[field].as_f64() {
                out::line(format!("  {words:24} {count:>10.2}"))?;
            }
        }
        let reach = row["reach_s"].as_f64().unwrap_or(0.0) * 1e3;
        out::line(format!("  {:24} {reach:>10.2} ms", "a reader's way to it"))?;
    }
    match why {
        Some(why) => out::line(format!("no whole set was read from the disk: {why}")),
        None if args.servers.is_some() => {
            out::line("caches dropped: the kernel's; servers keep what they have in memory")
        }
        None => Ok(()),
    }
}

fn line(name: &str, held: &Value) -> Result<()> {
    let number = |field: &str| held[field].as_f64().unwrap_or(0.0);
    out::line(format!(
        "  {name:24} {:>10.0}/s   bound {:>10.0}/s  {:>4.0} %   {:>6.2} × plain",
        number("per_s"),
        number("bound_per_s"),
        number("of_bound") * 100.0,
        number("of_plain")
    ))
}
