//! `shoal bench directory`: several clients fill, list and empty one directory with very many files.
//!
//! The benchmark makes a file system of its own. Each client is a thread with a connection of its own and one
//! create under way; a bare probe of the disk runs concurrently. Each timed listing is made by a process of
//! its own, so that its memory is measured alone. The timed listing by the native client also reports how
//! many entries each shard has. A further listing, while other clients create and remove files, is only
//! checked.

use super::cluster::Cluster;
use super::held::{self, Figure, Kept, Run};
use super::listing::{self, Wanted};
use super::running::this_program;
use crate::address::CommandTarget;
use crate::cluster_file::ModuleName;
use crate::lab::cli::BenchDirectory;
use crate::lab::native;
use crate::lab::native::Native;
use crate::{connect, out};
use anyhow::{Context as _, Result, anyhow, bail};
use clap::ValueEnum as _;
use serde_json::json;
use shoal_bench::crowd::{self, CrowdReport, FsckLook, Rightness, Seen};
use shoal_bench::seconds::{Seconds, Splits, Watch};
use shoal_bench::workload::WORKERS_MAX;
use shoal_bench::{Progress, Target as _, Worker};
use shoal_env::real;
use shoal_model::{Operation, Set};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

/// The directory.
const DIR: &str = "crowd";
/// Clients that create and remove while another lists.
const PASSING: usize = 2;
/// How long the mount's names and attributes are cached, milliseconds: longer than any listing of them.
const ATTR_TIMEOUT_MS: &str = "3600000";
/// The steps, one after the other.
const STEPS: u64 = 7;
/// The most files.
const FILES_MAX: u64 = 100_000_000;

/// Measure.
pub fn run(args: BenchDirectory) -> Result<ExitCode> {
    if args.clients == 0 || args.clients > WORKERS_MAX {
        bail!("--clients {}: clients are between 1 and {WORKERS_MAX}", args.clients);
    }
    if args.files == 0 || args.files > FILES_MAX {
        bail!("--files {}: files are between 1 and {FILES_MAX}", args.files);
    }
    let is_mounted = !args.no_mount;
    if is_mounted && !Path::new("/dev/fuse").exists() {
        bail!("there is no /dev/fuse here: use --no-mount");
    }
    let kept = Kept::read()?;
    let report = measure(&args, is_mounted)?;
    let verdicts = report.verdicts();
    let held = kept.hold(figures(&args, &report));
    if args.own.tell.json {
        out::json(&json!({ "report": report, "verdicts": verdicts, "bounds": held }))?;
        return Ok(ExitCode::SUCCESS);
    }
    out::bytes(report.to_table().as_bytes())?;
    held::tell(&held, args.held.explain)?;
    super::say(&verdicts)?;
    Ok(ExitCode::SUCCESS)
}

fn figures(args: &BenchDirectory, report: &CrowdReport) -> Vec<Figure> {
    let is_durable = matches!(args.module, ModuleName::Disk);
    let all = Run { servers: args.servers, clients: args.clients, is_durable };
    let alone = Run { clients: 1, ..all };
    let rate = |done: u64, took_s: f64| done as f64 / took_s;
    let figure = |what: &str, per_s: f64, operation, run| Figure::of(what, per_s, operation, Set::Ours, run);
    let (created, listed, removed) = (&report.created, &report.natively, &report.removed);
    vec![
        figure("create", rate(created.done, created.took_s), Operation::Create, all),
        figure("remove", rate(removed.done, removed.took_s), Operation::Remove, all),
        figure("list, an entry", rate(listed.entries, listed.took_s), Operation::ListEntry, alone),
    ]
}

fn measure(args: &BenchDirectory, is_mounted: bool) -> Result<CrowdReport> {
    let module = args.module.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned());
    let words = ["--module", module.as_str(), "--switches", &args.switches.to_string()];
    let mut cluster = Cluster::start(args.own.folder.as_deref(), args.servers, &words)?;
    let place = cluster.place()?;
    let target = Native::new("native", place.clone()).uncached();
    let crowd = Crowd { args, place: &place, target: &target };
    let mut draw = super::draw(&args.own.tell);
    draw(Progress::Begin { steps: STEPS });
    let mut tell =
        |step: u64, what: &str| draw(Progress::Step { step, what: what.to_owned(), repetition: 1 });
    let mut report = CrowdReport {
        files: args.files,
        clients: args.clients,
        servers: usize::from(args.servers),
        ..CrowdReport::default()
    };
    target.worker(0)?.mkdir(DIR)?;
    tell(0, "creating");
    report.created = crowd.all(&|worker, path| worker.put(path, &[]))?;
    tell(1, "listing");
    let mut address = place.address.clone();
    address.path = format!("/{DIR}");
    report.natively = listing::list(&Wanted::Natively(address.to_string(), place.key.clone()))?;
    if is_mounted {
        tell(2, "listing through a mount");
        let mount = cluster.mount(&["--attr-timeout", ATTR_TIMEOUT_MS])?;
        report.by_mount = Some(listing::list(&Wanted::Mounted(cluster.mountpoint(), DIR.to_owned()))?);
        report.mount_peak_bytes = crowd::peak_bytes(mount);
        cluster.unmount()?;
    }
    tell(3, "listing while others create and remove");
    report.among_changes = crowd.among_changes()?;
    tell(4, "checking");
    report.checked.push(check(&cluster.data(), "full")?);
    tell(5, "removing");
    report.removed = crowd.all(&|worker, path| worker.remove(path))?;
    target.worker(0)?.rmdir(DIR).context("not all is removed")?;
    tell(6, "checking");
    report.checked.push(check(&cluster.data(), "empty")?);
    draw(Progress::End);
    cluster.stop()?;
    Ok(report)
}

struct Crowd<'a> {
    args: &'a BenchDirectory,
    place: &'a CommandTarget,
    target: &'a Native,
}

impl Crowd<'_> {
    /// Something with every file, each client with its share of them.
    fn all(&self, work: &(dyn Fn(&mut dyn Worker, &str) -> Result<()> + Sync)) -> Result<Seconds> {
        let clients = self.args.clients;
        let folder = self.args.own.folder.clone().unwrap_or_else(std::env::temp_dir);
        let (count, failed) = (Arc::new(AtomicU64::new(0)), AtomicBool::new(false));
        // All wait twice: until everybody is connected, and until the watch has begun.
        let ready = Barrier::new(clients + 1);
        let share = |client: usize| {
            let worker = self.target.worker(client);
            ready.wait();
            ready.wait();
            let mut worker = worker?;
            for index in (client as u64..self.args.files).step_by(clients) {
                if failed.load(Ordering::Relaxed) {
                    break;
                }
                let done = work(&mut *worker, &format!("{DIR}/{}", crowd::name(index)));
                done.inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let share = &share;
            let threads: Vec<_> = (0..clients).map(|client| scope.spawn(move || share(client))).collect();
            ready.wait();
            let place = self.place.clone();
            let watch = Watch::start(&folder, &count, move || splits(&place));
            ready.wait();
            threads.into_iter().try_for_each(joined)?;
            watch?.finish()
        })
    }

    /// A listing while others create and remove.
    fn among_changes(&self) -> Result<Rightness> {
        let (stop, changes) = (AtomicBool::new(false), AtomicU64::new(0));
        let pass = |client: usize| {
            let mut worker = self.target.worker(client)?;
            for index in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let path = format!("{DIR}/{}", crowd::passing(client, index));
                worker.put(&path, &[])?;
                worker.remove(&path)?;
                changes.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let pass = &pass;
            let threads: Vec<_> = (0..PASSING).map(|client| scope.spawn(move || pass(client))).collect();
            let mut seen = Seen::new(self.args.files);
            let listed =
                self.target.worker(PASSING).and_then(|mut w| w.list(DIR, &mut |name| seen.show(name)));
            stop.store(true, Ordering::Relaxed);
            threads.into_iter().try_for_each(joined)?;
            listed?;
            Ok(seen.rightness(changes.load(Ordering::Relaxed)))
        })
    }
}

fn joined(thread: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|_| Err(anyhow!("a client panicked")))
}

/// How many directories the servers have split, requested repeatedly by one client.
fn splits(place: &CommandTarget) -> Result<Splits> {
    let runtime = real::Runtime::new("bench-splits");
    let options = connect::options(place)?;
    let client = runtime.block_on(connect::client(runtime.env(), place, options))?;
    Ok(Box::new(move || {
        let all = runtime.block_on(native::statuses(&client)).unwrap_or_default();
        all.iter().filter_map(|one| one["counters"]["splits"].as_u64()).sum()
    }))
}

fn check(data: &Path, when: &str) -> Result<FsckLook> {
    let begun = Instant::now();
    let checked = Command::new(this_program()?)
        .args(["fsck", "--quiet", "--json"])
        .arg(data)
        .stdout(Stdio::null())
        .status()
        .context("cannot start `shoal fsck`")?;
    let took_s = begun.elapsed().as_secs_f64();
    match checked.code() {
        Some(code @ (0 | 1)) => Ok(FsckLook { when: when.to_owned(), is_clean: code == 0, took_s }),
        _ => bail!("`shoal fsck` could not check; its output is above"),
    }
}
