//! The cost of FUSE alone on this machine: the small-file workload over a directory and over a pass-through
//! mount of the directory, next to the machine's own limits.
//!
//! ```text
//! cargo run --release -p shoal-bench --example passthrough -- DIRECTORY [WORKERS [FILES [REPETITIONS]]]
//! ```

use std::path::Path;

use anyhow::{Context, Result, bail};
use shoal_bench::passthrough::{PassthroughOptions, files_max, spawn};
use shoal_bench::probe::ProbeOptions;
use shoal_bench::{
    CompareOptions, Concurrency, Directory, SmallOptions, Team, WorkerCommand, Workload, compare, progress,
    worker_process_main,
};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "worker") {
        return worker_process_main(|spec| bail!("{spec} is no directory"));
    }
    let number = |index: usize, otherwise: u64| match args.get(index) {
        Some(arg) => arg.parse().with_context(|| format!("{arg} is no number")),
        None => Ok(otherwise),
    };
    let base = Path::new(args.first().context("name a directory to work in")?);
    let (workers, files, repetitions) = (number(1, 4)? as usize, number(2, 2000)?, number(3, 3)? as usize);
    let most = files_max() / workers.max(1) as u64;
    if files > most {
        bail!("{workers} workers may have {most} files each open in a pass-through mount here, not {files}");
    }
    let home = base.join(format!("passthrough.{}", std::process::id()));
    let result = measure(&home, workers, files, repetitions);
    std::fs::remove_dir_all(&home)?;
    result
}

fn measure(home: &Path, workers: usize, files: u64, repetitions: usize) -> Result<()> {
    let [source, cached, direct, bare, plain] =
        ["source", "cached", "direct", "bare", "plain"].map(|name| home.join(name));
    for dir in [&source, &cached, &direct, &bare, &plain] {
        std::fs::create_dir_all(dir)?;
    }
    let usual = PassthroughOptions::default();
    let mounts = [
        spawn(&source, &cached, &usual)?,
        spawn(&source, &direct, &PassthroughOptions { direct_io: true, ..usual.clone() })?,
        spawn(&source, &bare, &PassthroughOptions { xattr: false, ..usual })?,
    ];
    let targets = [
        Directory::new("directory", plain),
        Directory::new("FUSE cached", cached),
        Directory::new("FUSE direct", direct),
        Directory::new("FUSE without xattr", bare),
    ];
    let options = CompareOptions {
        team: Team {
            workers,
            concurrency: Concurrency::Processes(WorkerCommand::this_program(&["worker"])?),
        },
        repetitions,
        reference: Some("FUSE cached".to_owned()),
        probe: Some(ProbeOptions { dir: home.to_owned(), ..ProbeOptions::default() }),
        settings: Vec::new(),
    };
    let workload = Workload::Small(SmallOptions { files, ..SmallOptions::default() });
    let targets = targets.each_ref().map(|target| target as _);
    let report = compare(&targets, &workload, &options, progress::bar())?;
    println!("{}", report.to_table());
    for mount in mounts {
        mount.unmount()?;
    }
    Ok(())
}
