//! `shoal bench`: workloads over several targets in one run, and the machine's own limits.

use crate::address::Place;
use crate::bytes_size::ByteSize;
use crate::cli::{Bench, BenchCommon, BenchIo, BenchSmall};
use crate::native::Native;
use crate::{connect, out};
use anyhow::{Context as _, Result, bail};
use shoal_bench::passthrough::{Mounted, PassthroughOptions};
use shoal_bench::probe::{ProbeOptions, probe};
use shoal_bench::{
    CompareOptions, Concurrency, Directory, IoOptions, Progress, SharedLayout, SmallOptions, Target, Team,
    WorkerCommand, Workload, compare, progress, worker_process_main,
};
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

/// What a process of a benchmark does.
pub fn worker() -> Result<ExitCode> {
    worker_process_main(|spec| Ok(Box::new(Native::from_spec(spec)?)))?;
    Ok(ExitCode::SUCCESS)
}

fn small(args: BenchSmall) -> Result<ExitCode> {
    let BenchSmall { common, files, size } = args;
    let workload =
        Workload::Small(SmallOptions { files: files as u64, bytes: bytes(size)?, ..SmallOptions::default() });
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
    let options = CompareOptions {
        team: Team { workers: common.workers, concurrency },
        repetitions: common.repeat,
        reference,
        probe: None,
    };
    let report = match common.quiet {
        true => compare(&targets, &workload, &options, |_: Progress| {})?,
        false => compare(&targets, &workload, &options, progress::bar())?,
    };
    match common.json {
        true => out::line(report.to_json()?)?,
        false => out::bytes(report.to_table().as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A target, and what it needs while it is measured.
struct Opened {
    target: Box<dyn Target>,
    _scratch: Option<Scratch>,
}

/// A pass-through mount over a folder made for it; the mount goes first, then the folders.
struct Scratch {
    _mounted: Mounted,
    _folders: Folders,
}

/// Folders that are removed at the end.
struct Folders([PathBuf; 2]);

impl Drop for Folders {
    fn drop(&mut self) {
        for folder in &self.0 {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn open(text: &str, common: &BenchCommon) -> Result<Opened> {
    let Some((kind, place)) = text.split_once(':') else {
        bail!("`{text}` is no target: write native:PLACE, dir:DIR, mount:DIR or passthrough:DIR");
    };
    let plain = |target: Box<dyn Target>| Opened { target, _scratch: None };
    match kind {
        "dir" | "mount" => {
            if kind == "mount" && Place::find_mounted(place, common.key.key.as_deref())?.is_none() {
                bail!("{place} is on no mounted ShoalFS: mount one there, or write dir:{place}");
            }
            Ok(plain(Box::new(Directory::new(text, place))))
        }
        "native" => {
            let place = Place::find(place, common.key.key.as_deref())?;
            // Fails here rather than in each worker.
            connect::with_client_within(&place, connect::IMPATIENT, |_, _| async { Ok(()) })?;
            Ok(plain(Box::new(Native::new(text, place))))
        }
        "passthrough" => passthrough(text, Path::new(place), common),
        kind => bail!("`{kind}` is no kind of target: use native, dir, mount or passthrough"),
    }
}

fn passthrough(text: &str, folder: &Path, common: &BenchCommon) -> Result<Opened> {
    let name = |what: &str| folder.join(format!("passthrough-{what}.{}", std::process::id()));
    // Beside each other: a mount must not lie in what it shows.
    let folders = Folders([name("source"), name("mount")]);
    let [source, at] = &folders.0;
    for folder in [source, at] {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let ttl = Duration::from_millis(common.attr_timeout);
    let options = PassthroughOptions { ttl, ..PassthroughOptions::default() };
    let mounted = shoal_bench::passthrough::spawn(source, at, &options)?;
    let target = Box::new(Directory::new(text, at));
    Ok(Opened { target, _scratch: Some(Scratch { _mounted: mounted, _folders: folders }) })
}
