//! `shoal bench`: workloads over several targets in one run, and the machine's own limits.

mod checkpoint;
pub(super) mod cluster;
mod compare;
mod directory;
mod flood;
pub mod held;
mod listing;
mod mount;
mod native;
mod page;
mod patterns;
mod preload;
mod running;
mod setting;
mod stored;
mod sweep;
mod techniques;

use crate::address::CommandTarget;
use crate::bytes_size::ByteSize;
use crate::lab::cli::{Bench, BenchCommon, BenchIo, BenchSmall, BenchTell};
use crate::lab::native::Native;
use crate::{connect, out};
use anyhow::{Context as _, Result, bail};
use cluster::Scratch;
use shoal_bench::demands::{self, DemandVerdict};
use shoal_bench::many::{self, ManyOptions};
use shoal_bench::passthrough::{Mounted, PassthroughOptions};
use shoal_bench::probe::{ProbeOptions, probe};
use shoal_bench::{
    CompareOptions, Concurrency, Directory, IoOptions, Progress, SharedLayout, SmallOptions, Target, Team,
    WholeOptions, WorkerCommand, Workload, progress, worker_process_main,
};
use shoal_fuse::{Mount, MountHandle, MountOptions};
use shoal_vfs::{Local, LocalOptions};
use std::any::Any;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Rounds of `bench limits`.
const LIMITS_ROUNDS: usize = 3;

/// Measure.
pub fn run(args: Bench) -> Result<ExitCode> {
    match args {
        Bench::Small(args) => small(args),
        Bench::Io(args) => io(args),
        Bench::Checkpoint(args) => checkpoint::run(args),
        Bench::Flood(args) => flood::run(args),
        Bench::Preload(args) => preload::run(args),
        Bench::Tail(args) => super::bench_tail::run(args),
        Bench::Native(args) => native::run(args),
        Bench::Mount(args) => mount::run(args),
        Bench::Sweep(args) => sweep::run(args),
        Bench::Patterns(args) => patterns::run(args),
        Bench::Directory(args) => directory::run(args),
        Bench::Stored(args) => stored::run(args),
        Bench::Compare(args) => compare::run(args),
        Bench::Techniques(args) => techniques::run(args),
        Bench::Page(args) => page::run(args),
        Bench::Limits { folder, json } => {
            let report = probe(&ProbeOptions { dir: folder, ..ProbeOptions::default() }, LIMITS_ROUNDS)?;
            match json {
                true => out::line(report.to_json()?)?,
                false => out::bytes(report.to_table().as_bytes())?,
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The work of a process of a benchmark.
pub fn worker() -> Result<ExitCode> {
    worker_process_main(|spec| Ok(Box::new(Native::from_spec(spec)?)))?;
    Ok(ExitCode::SUCCESS)
}

/// The work of a process that lists.
pub fn list() -> Result<ExitCode> {
    listing::main()
}

/// The work of a process of a flood.
pub fn flooding() -> Result<ExitCode> {
    flood::process()
}

/// The work of a process that calls.
pub fn calling() -> Result<ExitCode> {
    preload::process()
}

/// The work of a process of echo servers.
pub fn echo() -> Result<ExitCode> {
    shoal_bench::probe::layout::echo_server_main()?;
    Ok(ExitCode::SUCCESS)
}

fn small(args: BenchSmall) -> Result<ExitCode> {
    let BenchSmall { mut common, files, size, whole, many } = args;
    let (files, bytes) = (files as u64, bytes(size)?);
    let workload = match (many, whole) {
        (Some(batch), _) => Workload::Many(ManyOptions { files, bytes, batch }),
        (None, true) => Workload::Whole(WholeOptions { files, bytes }),
        (None, false) => Workload::Small(SmallOptions { files, bytes, ..SmallOptions::default() }),
    };
    if many.is_some() {
        common.workers = 1;
    }
    measure(&common, workload)
}

fn io(args: BenchIo) -> Result<ExitCode> {
    let BenchIo { common, total, block, random, shared, fsync, direct } = args;
    let mut options = IoOptions {
        bytes: total.0,
        block: bytes(block)?,
        shared: shared.then_some(SharedLayout::Strided),
        fsync,
        direct,
        ..IoOptions::default()
    };
    use shoal_bench::IoPhase::{RandomRead, RandomWrite, Read, Write};
    options.phases = if random { vec![Write, RandomWrite, RandomRead] } else { vec![Write, Read] };
    measure(&common, Workload::Io(options))
}

fn bytes(size: ByteSize) -> Result<usize> {
    usize::try_from(size.0).context("the size is larger than this machine's memory can be")
}

fn measure(common: &BenchCommon, workload: Workload) -> Result<ExitCode> {
    // The mounts of pass-through targets live as long as the measurement.
    let opened = common.targets.iter().map(|text| open(text, common)).collect::<Result<Vec<_>>>()?;
    let targets: Vec<&dyn Target> = opened.iter().map(|one| one.target.as_ref()).collect();
    let reference = match common.reference {
        None => None,
        Some(n) => {
            let at = n.checked_sub(1).and_then(|n| targets.get(n));
            let at = at.with_context(|| {
                format!("--reference is 1 to {}: the number of a --target", targets.len())
            })?;
            Some(at.name())
        }
    };
    let concurrency = match common.processes {
        false => Concurrency::Threads,
        true => Concurrency::Processes(WorkerCommand::this_program(&["bench-worker"])?),
    };
    let mut settings = Vec::new();
    if !common.unbound && !matches!(workload, Workload::Io(_)) {
        for (text, one) in common.targets.iter().zip(&opened) {
            if let Some(place) = &one.native {
                let folder = text.strip_prefix("native:").map(Path::new).filter(|folder| folder.is_dir());
                settings.push((one.target.name(), setting::of(place, folder)?));
            }
        }
    }
    let options = CompareOptions {
        team: Team { workers: common.workers, concurrency },
        repetitions: if common.stepwise { 1 } else { common.repeat },
        reference,
        probe: None,
        settings,
    };
    if common.stepwise {
        return stepwise(&targets, &workload, &options);
    }
    let report = shoal_bench::compare(&targets, &workload, &options, draw(&common.tell))?;
    let verdicts = match &workload {
        Workload::Many(options) => demands::many(&report, options.batch),
        _ => Vec::new(),
    };
    if common.tell.json {
        let mut told = serde_json::to_value(&report)?;
        told["gains"] = serde_json::to_value(many::gains(&report))?;
        told["verdicts"] = serde_json::to_value(&verdicts)?;
        out::json(&told)?;
        return Ok(ExitCode::SUCCESS);
    }
    out::bytes(report.to_table().as_bytes())?;
    if common.explain {
        out::bytes(report.explain().as_bytes())?;
    }
    if let Workload::Many(options) = &workload {
        out::line(many::gains_line(&report, options.batch))?;
    }
    say(&verdicts)?;
    Ok(ExitCode::SUCCESS)
}

/// Once for each line of standard input, until it ends.
fn stepwise(targets: &[&dyn Target], workload: &Workload, options: &CompareOptions) -> Result<ExitCode> {
    for line in std::io::stdin().lines() {
        line.context("cannot read when to run again")?;
        let report = shoal_bench::compare(targets, workload, options, |_| {})?;
        out::line(serde_json::to_string(&report)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Each demand, met or not.
/// The median of some values; of none, 0.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn say(verdicts: &[DemandVerdict]) -> Result<()> {
    verdicts.iter().try_for_each(|verdict| out::line(verdict.to_string()))
}

/// Progress, if it is wanted.
fn draw(tell: &BenchTell) -> Box<dyn FnMut(Progress)> {
    if tell.quiet { Box::new(|_| {}) } else { Box::new(progress::bar()) }
}

/// A target, and its resources while it is measured.
struct Opened {
    target: Box<dyn Target>,
    /// The place of a native target.
    native: Option<CommandTarget>,
    /// Its mount.
    _held: Option<Box<dyn Any>>,
}

/// A mount of a folder made for it, by the mount of any file system; the mount goes first, then the folders.
struct OverMount {
    _mounted: MountHandle<Local>,
    at: PathBuf,
    _folder: Scratch,
}

impl OverMount {
    /// Over a new folder in `base`; the kernel caches names and attributes so many milliseconds.
    fn new(base: &Path, attr_timeout: u64) -> Result<OverMount> {
        let folder = Scratch::new(Some(base))?;
        let (source, at) = (folder.folder("source")?, folder.folder("mount")?);
        let options = MountOptions { cache: Duration::from_millis(attr_timeout), ..MountOptions::default() };
        let mounted = Mount::start(LocalOptions::new(source), &at, &options)?;
        Ok(OverMount { _mounted: mounted, at, _folder: folder })
    }
}

/// A pass-through mount over a folder made for it; the mount goes first, then the folders.
struct Through {
    _mounted: Mounted,
    at: PathBuf,
    _folder: Scratch,
}

impl Through {
    /// Over a new folder in `base`; the kernel caches names and attributes so many milliseconds, and keeps a
    /// file's pages over opens, or not.
    fn new(base: Option<&Path>, attr_timeout: u64, keep_cache: bool) -> Result<Through> {
        let folder = Scratch::new(base)?;
        // Next to each other: a mount must not be inside the folder that it shows.
        let (source, at) = (folder.folder("source")?, folder.folder("mount")?);
        let ttl = Duration::from_millis(attr_timeout);
        let options = PassthroughOptions { ttl, keep_cache, ..PassthroughOptions::default() };
        let mounted = shoal_bench::passthrough::spawn(&source, &at, &options)?;
        Ok(Through { _mounted: mounted, at, _folder: folder })
    }

    fn target(&self, name: &str) -> Directory {
        Directory::new(name, &self.at)
    }
}

fn open(text: &str, common: &BenchCommon) -> Result<Opened> {
    let Some((kind, place)) = text.split_once(':') else {
        bail!("`{text}` is no target: write native:PLACE, dir:DIR, mount:DIR, over:DIR or passthrough:DIR");
    };
    let plain = |target: Box<dyn Target>| Opened { target, native: None, _held: None };
    match kind {
        "dir" | "mount" => {
            if kind == "mount" && CommandTarget::find_mounted(place, common.key.key.as_deref())?.is_none() {
                bail!("{place} is on no mounted ShoalFS: mount one there, or write dir:{place}");
            }
            Ok(plain(Box::new(Directory::new(text, place))))
        }
        "native" => {
            let place = CommandTarget::find(place, common.key.key.as_deref())?;
            // Fails here rather than in each worker.
            connect::with_client_within(&place, connect::IMPATIENT, |_, _| async { Ok(()) })?;
            let pids = setting::pids(&place)?;
            let target = Native::new(text, place.clone()).served_by(pids).planted(common.plant);
            // Bounds are made of counts; short turns without bounds need none.
            let is_bare = common.stepwise && common.unbound;
            let target = Box::new(if is_bare { target.uncounted() } else { target });
            Ok(Opened { target, native: Some(place), _held: None })
        }
        "passthrough" => {
            let through = Through::new(Some(Path::new(place)), common.attr_timeout, false)?;
            let target = Box::new(through.target(text));
            Ok(Opened { target, native: None, _held: Some(Box::new(through)) })
        }
        "over" => {
            let over = OverMount::new(Path::new(place), common.attr_timeout)?;
            let target = Box::new(Directory::new(text, &over.at));
            Ok(Opened { target, native: None, _held: Some(Box::new(over)) })
        }
        kind => bail!("`{kind}` is no kind of target: use native, dir, mount, over or passthrough"),
    }
}
