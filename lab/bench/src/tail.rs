//! The tail of latencies, next to the latencies of a bare probe of the disk in the same run.
//!
//! The time of the slowest of a thousand durable changes says little by itself: the disk has slow moments of
//! its own. So while the changes are made, [`SyncProbe`] repeatedly writes 4 KiB into prewritten space of the
//! same disk, past the page cache and durable when the write returns, and the two are compared.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::buffer::Buffer;
use crate::report::plain_table;
use shoal_model::short;

/// Bytes of one write of the probe.
const WRITE: usize = 4096;
/// Prewritten space it goes round in, bytes.
const PREWRITTEN: u64 = 1 << 20;
/// The probe rests between its writes: it is to see the disk's latency, not to use up its rate.
const REST: Duration = Duration::from_millis(1);

/// How latencies are spread, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// How many there were.
    pub count: usize,
    /// Half of them were shorter.
    pub p50_us: f64,
    /// Of a hundred, one was longer.
    pub p99_us: f64,
    /// Of a thousand, one was longer.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Quantiles {
    /// Of these latencies, in microseconds; all zero of none.
    pub fn of(mut latencies_us: Vec<f64>) -> Quantiles {
        latencies_us.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (latencies_us.len() as f64 * share).ceil() as usize;
            latencies_us.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        Quantiles {
            count: latencies_us.len(),
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: at(1.0),
        }
    }
}

/// A thread that repeatedly makes 4 KiB durable until its results are requested.
pub struct SyncProbe {
    stop: Arc<AtomicBool>,
    so_far: Arc<[AtomicU64; 2]>,
    thread: JoinHandle<Result<Vec<f64>>>,
    path: PathBuf,
}

impl SyncProbe {
    /// Begin, with a file of its own in `folder`.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn start(folder: &Path) -> Result<SyncProbe> {
        let path = folder.join("sync-probe");
        let words = || format!("cannot write {}", path.display());
        let file = File::create(&path).with_context(words)?;
        file.write_all_at(&vec![0; PREWRITTEN as usize], 0).with_context(words)?;
        file.sync_all().with_context(words)?;
        let open =
            |flags: OFlags| OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(&path);
        // Some file systems have no direct writes.
        let file =
            open(OFlags::DIRECT | OFlags::DSYNC).or_else(|_| open(OFlags::DSYNC)).with_context(words)?;
        let (stop, so_far) = (Arc::new(AtomicBool::new(false)), Arc::<[AtomicU64; 2]>::default());
        let (stopped, counted) = (stop.clone(), so_far.clone());
        let thread = std::thread::Builder::new()
            .name("sync-probe".into())
            .spawn(move || write_until(&file, &stopped, &counted))
            .context("cannot start the probe's thread")?;
        Ok(SyncProbe { stop, so_far, thread, path })
    }

    /// Writes so far, and the microseconds they took together.
    pub(crate) fn so_far(&self) -> (u64, u64) {
        let [writes, busy_us] = &*self.so_far;
        (writes.load(Ordering::Relaxed), busy_us.load(Ordering::Relaxed))
    }

    /// End, and return the results.
    ///
    /// # Errors
    /// When a write failed.
    pub fn finish(self) -> Result<Quantiles> {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.thread.join().map_err(|_| anyhow!("the probe's thread panicked"))?;
        let _ = std::fs::remove_file(&self.path);
        seen.map(Quantiles::of)
    }
}

fn write_until(file: &File, stop: &AtomicBool, so_far: &[AtomicU64; 2]) -> Result<Vec<f64>> {
    let data = Buffer::filled(WRITE, 1);
    let (mut seen_us, mut offset) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        file.write_all_at(data.as_ref(), offset).context("a write of the probe")?;
        let took = begun.elapsed();
        seen_us.push(took.as_secs_f64() * 1e6);
        so_far[0].fetch_add(1, Ordering::Relaxed);
        so_far[1].fetch_add(took.as_micros() as u64, Ordering::Relaxed);
        offset = (offset + WRITE as u64) % PREWRITTEN;
        std::thread::sleep(REST);
    }
    Ok(seen_us)
}

/// The results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TailReport {
    /// The concurrent work, in words.
    pub workload: String,
    /// Changes a second.
    pub per_s: f64,
    /// Of the changes.
    pub changes: Quantiles,
    /// Of the probe in the same run.
    pub probe: Quantiles,
    /// Of the probe alone, before.
    pub probe_alone: Quantiles,
    /// The store's background work meanwhile: names and counts.
    pub background: Vec<(String, u64)>,
}

impl TailReport {
    /// The 99.9th percentile of the changes in sync latencies (medians of the probe in the same run).
    pub fn ratio(&self) -> f64 {
        self.changes.p999_us / self.probe.p50_us.max(1.0)
    }

    /// For programs.
    ///
    /// # Errors
    /// Never, as far as is known.
    pub fn to_json(&self) -> Result<String> {
        let mut value = serde_json::to_value(self)?;
        value["ratio_p999_to_probe_p50"] = self.ratio().into();
        Ok(serde_json::to_string_pretty(&value)?)
    }

    /// For people.
    pub fn to_table(&self) -> String {
        let header = ["", "count", "p50", "p99", "p99.9", "longest"].map(str::to_owned).to_vec();
        let mut table = plain_table(header);
        let rows = [
            ("durable change", self.changes),
            ("sync probe beside it", self.probe),
            ("sync probe alone, before", self.probe_alone),
        ];
        for (name, of) in rows {
            let us = |value: f64| format!("{} µs", short(value));
            let cells = [
                name.to_owned(),
                of.count.to_string(),
                us(of.p50_us),
                us(of.p99_us),
                us(of.p999_us),
                us(of.max_us),
            ];
            table.add_row(cells.to_vec());
        }
        let background: Vec<String> =
            self.background.iter().map(|(name, n)| format!("{name} {}", short(*n as f64))).collect();
        format!(
            "{}; {}/s\n{table}\np99.9 of a change is {:.1} × the probe's median beside it ({:.1} × its p99.9)\n\
             meanwhile: {}\n",
            self.workload,
            short(self.per_s),
            self.ratio(),
            self.changes.p999_us / self.probe.p999_us.max(1.0),
            background.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_thousand_latencies_one_is_longer_than_the_last_quantile() {
        let of = Quantiles::of((1..=1000).rev().map(f64::from).collect());
        assert_eq!(
            of,
            Quantiles { count: 1000, p50_us: 500.0, p99_us: 990.0, p999_us: 999.0, max_us: 1000.0 }
        );
        assert_eq!(Quantiles::of(Vec::new()), Quantiles::default());
    }

    #[test]
    fn a_probe_tells_what_its_writes_took_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let probe = SyncProbe::start(folder.path()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(probe.finish().unwrap().count > 0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
