//! `shoal bench checkpoint`: compares N writers of one file with N writers that each write a file of their
//! own. Both write the same bytes, in the same directory and in the same run.
//!
//! ```text
//!   one file    0 1 2 … 7 0 1 2 … 7 …      records of the writers in turn, not aligned to anything
//!   own files   0 0 0 …   1 1 1 …          the same records, one after the other
//! ```
//! Then N readers read the bytes back. Each reader reads the records of one writer (*same*), or one N-th of
//! the file from end to end (*other*). A round does each phase once, in turn; figures are medians over the
//! rounds, and so are ratios. Every record is checked when it is read. Writers are threads with descriptors
//! of their own.

use super::median;
use crate::bytes_size::human;
use crate::lab::cli::BenchCheckpoint;
use crate::out;
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// The phases of a round, in this order.
const PHASES: [&str; 5] = ["write one", "write own", "read one, same", "read own", "read one, other"];

/// One checkpoint's shape.
struct Shape {
    dir: PathBuf,
    writers: u64,
    record: u64,
    turns: u64,
    sync: bool,
}

/// Measure.
pub fn run(args: BenchCheckpoint) -> Result<ExitCode> {
    let record = args.record.0;
    if record == 0 || args.writers == 0 || args.rounds == 0 {
        bail!("records, writers and rounds must be at least 1");
    }
    let turns = args.each.0 / record;
    if turns == 0 {
        bail!("--each {} is less than one record of {record} bytes", args.each.0);
    }
    let name = format!("shoal-checkpoint.{}", std::process::id());
    let dir = args.directory.join(name);
    std::fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let shape = Shape { dir, writers: args.writers, record, turns, sync: args.sync };
    let measured = (0..args.rounds).map(|_| shape.round()).collect::<Result<Vec<_>>>();
    std::fs::remove_dir_all(&shape.dir).with_context(|| format!("cannot remove {}", shape.dir.display()))?;
    show(&args, &shape, &measured?)?;
    Ok(ExitCode::SUCCESS)
}

impl Shape {
    fn bytes(&self) -> u64 {
        self.writers * self.record * self.turns
    }

    fn one(&self) -> PathBuf {
        self.dir.join("one")
    }

    fn own(&self, writer: u64) -> PathBuf {
        self.dir.join(format!("own.{writer}"))
    }

    /// Bytes a second of each phase.
    fn round(&self) -> Result<[f64; PHASES.len()]> {
        let stride = self.writers * self.record;
        let one = self.one();
        File::create(&one).context("cannot make the file of all")?;
        let at_one = |writer: u64, turn: u64| turn * stride + writer * self.record;
        let at_own = |_: u64, turn: u64| turn * self.record;
        let rates = [
            self.time(|writer| self.write(&one, writer, at_one))?,
            self.time(|writer| self.write(&self.own(writer), writer, at_own))?,
            self.time(|writer| self.read(&one, writer, at_one))?,
            self.time(|writer| self.read(&self.own(writer), writer, at_own))?,
            self.time(|reader| self.read_part(&one, reader))?,
        ];
        std::fs::remove_file(&one)?;
        (0..self.writers).try_for_each(|writer| std::fs::remove_file(self.own(writer)))?;
        Ok(rates)
    }

    /// All writers at once: bytes a second.
    fn time(&self, work: impl Fn(u64) -> Result<()> + Sync) -> Result<f64> {
        let (begin, work) = (Instant::now(), &work);
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..self.writers).map(|writer| scope.spawn(move || work(writer))).collect();
            all.into_iter().try_for_each(|one| one.join().expect("a writer does not panic"))
        })?;
        Ok(self.bytes() as f64 / begin.elapsed().as_secs_f64())
    }

    /// A record: its number in each of its words.
    fn fill(&self, record: &mut [u8], writer: u64, turn: u64) {
        let number = (turn * self.writers + writer + 1).to_le_bytes();
        record.chunks_mut(8).for_each(|word| word.copy_from_slice(&number[..word.len()]));
    }

    fn write(&self, path: &Path, writer: u64, place: impl Fn(u64, u64) -> u64) -> Result<()> {
        // Read and written, as IOR and MADbench open their files.
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut record = vec![0; self.record as usize];
        for turn in 0..self.turns {
            self.fill(&mut record, writer, turn);
            file.write_all_at(&record, place(writer, turn))?;
        }
        if self.sync {
            file.sync_all()?;
        }
        Ok(())
    }

    fn read(&self, path: &Path, writer: u64, place: impl Fn(u64, u64) -> u64) -> Result<()> {
        let file = File::open(path)?;
        let (mut read, mut wanted) = (vec![0; self.record as usize], vec![0; self.record as usize]);
        for turn in 0..self.turns {
            file.read_exact_at(&mut read, place(writer, turn))?;
            self.fill(&mut wanted, writer, turn);
            if read != wanted {
                bail!(
                    "{}: record {turn} of writer {writer} has other bytes than were written",
                    path.display()
                );
            }
        }
        Ok(())
    }

    /// An N-th of the file, from end to end.
    fn read_part(&self, path: &Path, reader: u64) -> Result<()> {
        let file = File::open(path)?;
        let (mut read, mut wanted) = (vec![0; self.record as usize], vec![0; self.record as usize]);
        for number in reader * self.turns..(reader + 1) * self.turns {
            let (turn, writer) = (number / self.writers, number % self.writers);
            file.read_exact_at(&mut read, number * self.record)?;
            self.fill(&mut wanted, writer, turn);
            if read != wanted {
                bail!("{}: record {number} has other bytes than were written", path.display());
            }
        }
        Ok(())
    }
}

fn show(args: &BenchCheckpoint, shape: &Shape, rounds: &[[f64; PHASES.len()]]) -> Result<()> {
    let rate = |phase: usize| median(rounds.iter().map(|round| round[phase]).collect());
    let ratio = |of: usize, to: usize| median(rounds.iter().map(|round| round[of] / round[to]).collect());
    let ratios = [("write", ratio(0, 1)), ("read, same", ratio(2, 3)), ("read, other", ratio(4, 3))];
    if args.json {
        let rates = (0..PHASES.len()).map(|phase| (PHASES[phase].to_owned(), json!(rate(phase))));
        let ratios = ratios.iter().map(|(name, ratio)| ((*name).to_owned(), json!(ratio)));
        return out::json(&json!({
            "directory": args.directory, "writers": shape.writers, "record_bytes": shape.record,
            "bytes": shape.bytes(), "rounds": rounds.len(), "sync": shape.sync,
            "bytes_per_second": rates.collect::<serde_json::Map<_, _>>(),
            "one_of_own": ratios.collect::<serde_json::Map<_, _>>(),
        }));
    }
    out::line(format!(
        "{}: {} writers, records of {} bytes, {} in all, {} rounds",
        args.directory.display(),
        shape.writers,
        shape.record,
        human(shape.bytes()),
        rounds.len()
    ))?;
    for (phase, name) in PHASES.iter().enumerate() {
        out::line(format!("  {name:16} {:>12}/s", human(rate(phase) as u64)))?;
    }
    for (name, ratio) in ratios {
        out::line(format!("  one file of own files, {name:12} {ratio:.2}"))?;
    }
    Ok(())
}
