//! The machine's own rates at this moment: the limits that everything else is compared with.
//!
//! * [`echo`]: round trips over loopback TCP with one server thread, the shape of a metadata server and its
//!   clients;
//! * [`sync`]: the time until four kilobytes are durable, written as by a journal and as by an append;
//! * [`layout`]: round trips with the clients, servers and message sizes of a real run;
//! * [`group`]: durable writes of the size of a journal write, and the disk's total rate;
//! * [`copy`]: a copy of a file through one connection: the limit of a network client with a large file;
//! * [`stream`]: bytes from memory to memory through one connection, and the cost for each side's core;
//! * [`disk`]: a disk and its cache, large accesses and small ones.
//!
//! A [`Probe`] is measured in rounds, so that it can take turns with the measurement that it is compared to.

pub mod copy;
pub mod disk;
pub mod echo;
pub mod group;
pub mod layout;
pub mod stream;
pub mod sync;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::report::plain_table;
use crate::spread::Spread;
use copy::CopyFiles;
use echo::EchoKind;
use shoal_model::short;
use sync::{SyncFiles, SyncMethod};

/// The measurements of the machine.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeOptions {
    /// Where files are written: a directory on the file system the servers use. The probe makes a directory
    /// of its own in it and removes that at the end.
    pub dir: PathBuf,
    /// How long each measurement but the copy lasts in each round.
    pub duration: Duration,
    /// Connections of the echo measurements, one measurement each.
    pub connections: Vec<usize>,
    /// Bytes of an echoed message.
    pub message: usize,
    /// Concurrent writers of the sync measurements, one measurement each.
    pub writers: Vec<usize>,
    /// Bytes copied through one connection; 0: no copy.
    pub copy_bytes: u64,
}

impl Default for ProbeOptions {
    fn default() -> ProbeOptions {
        ProbeOptions {
            dir: std::env::temp_dir(),
            duration: Duration::from_millis(300),
            connections: vec![1, 16],
            message: 64,
            writers: vec![1, 4],
            copy_bytes: 256 << 20,
        }
    }
}

/// Loopback TCP round trips.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EchoResult {
    /// Concurrent connections, one thread each; the server is one thread.
    pub connections: usize,
    /// Whether both sides sleep while they wait or poll without sleep. A sleeping pair on idle cores is bound
    /// by waking up, so the two differ much for one connection.
    pub kind: EchoKind,
    /// Round trips a second, all connections together.
    pub round_trips_per_s: Spread,
}

/// Four kilobytes made durable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncResult {
    /// How.
    pub method: SyncMethod,
    /// Concurrent writers, each in a file of its own.
    pub writers: usize,
    /// Syncs a second, all writers together; `None` where the file system does not offer the method.
    pub syncs_per_s: Option<Spread>,
    /// The median time of one sync, microseconds.
    pub latency_us: Option<Spread>,
}

/// A file through one connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopyResult {
    /// Bytes copied.
    pub bytes: u64,
    /// 10^6 bytes a second, the source in the page cache, no sync.
    pub mb_per_s: Spread,
}

/// The machine's limits: medians over the rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// Rounds measured.
    pub rounds: usize,
    /// Round trips.
    pub echo: Vec<EchoResult>,
    /// Syncs.
    pub sync: Vec<SyncResult>,
    /// The copy, if it was requested.
    pub copy: Option<CopyResult>,
}

impl ProbeReport {
    /// The report as text for a terminal.
    pub fn to_table(&self) -> String {
        let mut table =
            plain_table(["this machine", "median", "smallest – largest"].map(str::to_owned).to_vec());
        for echo in &self.echo {
            let what = format!("TCP round trips, {}, {}", count(echo.connections, "connection"), echo.kind);
            table.add_row(row(what, Some(echo.round_trips_per_s), "/s"));
        }
        for sync in &self.sync {
            let what = format!("{} of 4 KiB, {}", sync.method, count(sync.writers, "writer"));
            table.add_row(row(what.clone(), sync.syncs_per_s, "/s"));
            table.add_row(row(format!("{what}, each"), sync.latency_us, "µs"));
        }
        if let Some(copy) = &self.copy {
            let what = format!("copy of {} MiB through one connection", copy.bytes >> 20);
            table.add_row(row(what, Some(copy.mb_per_s), "MB/s"));
        }
        format!("{table}\n")
    }

    /// The report as indented JSON.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).context("cannot write the report as JSON")
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn row(what: String, spread: Option<Spread>, unit: &str) -> [String; 3] {
    match spread {
        Some(s) => {
            [what, format!("{} {unit}", short(s.median)), format!("{} – {}", short(s.min), short(s.max))]
        }
        None => [what, "–".to_owned(), "not offered here".to_owned()],
    }
}

/// Measurements in rounds; [`Probe::report`] makes medians of them.
pub struct Probe {
    options: ProbeOptions,
    home: Home,
    sync_files: SyncFiles,
    copy_files: Option<CopyFiles>,
    rounds: usize,
    echo: Vec<(usize, EchoKind, Vec<f64>)>,
    sync: Vec<(usize, SyncMethod, Vec<sync::Sample>)>,
    copy: Vec<f64>,
}

impl Probe {
    /// Makes the files the measurements need.
    pub fn new(options: &ProbeOptions) -> Result<Probe> {
        if options.message == 0 || options.message > echo::MESSAGE_MAX {
            bail!("message must be between 1 and {} bytes, not {}", echo::MESSAGE_MAX, options.message);
        }
        let most = options.connections.iter().chain(&options.writers).copied().max().unwrap_or(0);
        if most > 1024 || options.connections.contains(&0) || options.writers.contains(&0) {
            bail!("connections and writers must be between 1 and 1024");
        }
        let home = Home::new(&options.dir)?;
        let sync_files = SyncFiles::new(&home.0, options.writers.iter().copied().max().unwrap_or(0))?;
        let copy_files =
            (options.copy_bytes > 0).then(|| CopyFiles::new(&home.0, options.copy_bytes)).transpose()?;
        let one = options.connections.contains(&1).then_some((1, EchoKind::Polling));
        let sleeping = options.connections.iter().map(|&n| (n, EchoKind::Sleeping));
        let syncs = [SyncMethod::DirectDsync, SyncMethod::AppendFdatasync];
        Ok(Probe {
            echo: sleeping.chain(one).map(|(n, kind)| (n, kind, Vec::new())).collect(),
            sync: syncs
                .iter()
                .flat_map(|&m| options.writers.iter().map(move |&n| (n, m, Vec::new())))
                .collect(),
            options: options.clone(),
            home,
            sync_files,
            copy_files,
            rounds: 0,
            copy: Vec::new(),
        })
    }

    /// Measures everything once.
    pub fn round(&mut self) -> Result<()> {
        for (connections, kind, samples) in &mut self.echo {
            samples.push(echo::measure(*connections, self.options.message, *kind, self.options.duration)?);
        }
        for (writers, method, samples) in &mut self.sync {
            samples.extend(self.sync_files.measure(*method, *writers, sync::WRITE, self.options.duration)?);
        }
        if let Some(files) = &self.copy_files {
            self.copy.push(files.measure()?);
        }
        self.rounds += 1;
        Ok(())
    }

    /// Medians over the rounds so far; removes the files.
    pub fn report(self) -> ProbeReport {
        let echo = self.echo.into_iter().filter_map(|(connections, kind, samples)| {
            Spread::of(&samples).map(|round_trips_per_s| EchoResult { connections, kind, round_trips_per_s })
        });
        let sync = self.sync.into_iter().map(|(writers, method, samples)| {
            let of = |f: fn(&sync::Sample) -> f64| Spread::of(&samples.iter().map(f).collect::<Vec<_>>());
            SyncResult { method, writers, syncs_per_s: of(|s| s.per_s), latency_us: of(|s| s.median_us) }
        });
        let bytes = self.options.copy_bytes;
        let copy = Spread::of(&self.copy).map(|mb_per_s| CopyResult { bytes, mb_per_s });
        let report = ProbeReport { rounds: self.rounds, echo: echo.collect(), sync: sync.collect(), copy };
        drop(self.home);
        report
    }
}

/// Measures the machine in `rounds` rounds.
pub fn probe(options: &ProbeOptions, rounds: usize) -> Result<ProbeReport> {
    let mut probe = Probe::new(options)?;
    for _ in 0..rounds.max(1) {
        probe.round()?;
    }
    Ok(probe.report())
}

/// A directory that lives as long as the probe.
pub(crate) struct Home(pub(crate) PathBuf);

impl Home {
    pub(crate) fn new(dir: &std::path::Path) -> Result<Home> {
        static HOMES: AtomicU64 = AtomicU64::new(0);
        let name = format!("probe.{}-{}", std::process::id(), HOMES.fetch_add(1, Ordering::Relaxed));
        let home = dir.join(name);
        std::fs::create_dir(&home)
            .with_context(|| format!("cannot make the directory {}", home.display()))?;
        Ok(Home(home))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
