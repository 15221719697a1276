//! A rate second by second, and the disk's rate in each second.
//!
//! The workers count operations. Each second, a thread of its own reads that count, the count of a bare probe
//! that repeatedly makes 4 KiB durable ([`SyncProbe`]), and the number of directories that were split. So a
//! slow second of the workers can be distinguished from a slow second of the disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};

use crate::demands::DemandVerdict;
use crate::spread::Spread;
use crate::tail::SyncProbe;
use shoal_model::short;

/// A look each.
const SECOND: Duration = Duration::from_secs(1);
/// How often the thread looks whether it is to end.
const GLANCE: Duration = Duration::from_millis(20);
/// A second is low below this share of the median.
const LOW: f64 = 0.5;

/// One second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Operations.
    pub per_s: f64,
    /// Syncs of the probe, its rests left out.
    pub probe_per_s: f64,
    /// Directories that were split.
    pub splits: u64,
}

/// A rate, and its seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// Operations in all.
    pub done: u64,
    /// Seconds in all.
    pub took_s: f64,
    /// Whole seconds in their order, without the first, in which all begins.
    pub seconds: Vec<Second>,
}

/// Asks the servers how many directories they have split so far.
pub type Splits = Box<dyn FnMut() -> u64>;

/// A thread that looks each second.
pub struct Watch {
    count: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Second>>,
    probe: Arc<SyncProbe>,
    begun: Instant,
}

impl Watch {
    /// Begin, with a probe in `folder`; the workers add to `count`; `splits` is made on the thread that calls
    /// it.
    pub fn start(
        folder: &Path,
        count: &Arc<AtomicU64>,
        splits: impl FnOnce() -> Result<Splits> + Send + 'static,
    ) -> Result<Watch> {
        let probe = Arc::new(SyncProbe::start(folder)?);
        let stop = Arc::new(AtomicBool::new(false));
        let look = {
            let (probe, count, stop) = (probe.clone(), count.clone(), stop.clone());
            move || look(&probe, &count, &stop, splits)
        };
        let thread = std::thread::Builder::new().name("seconds".into()).spawn(look);
        let thread = thread.context("cannot start the thread that looks each second")?;
        Ok(Watch { count: count.clone(), stop, thread, probe, begun: Instant::now() })
    }

    /// End, and return the results.
    pub fn finish(self) -> Result<Seconds> {
        let took_s = self.begun.elapsed().as_secs_f64();
        self.stop.store(true, Ordering::Relaxed);
        let seconds =
            self.thread.join().map_err(|_| anyhow!("the thread that looks each second panicked"))?;
        let probe = Arc::into_inner(self.probe).context("the probe is still used")?;
        probe.finish()?;
        Ok(Seconds {
            done: self.count.load(Ordering::Relaxed),
            took_s,
            seconds: seconds.into_iter().skip(1).collect(),
        })
    }
}

fn look(
    probe: &SyncProbe,
    count: &AtomicU64,
    stop: &AtomicBool,
    splits: impl FnOnce() -> Result<Splits>,
) -> Vec<Second> {
    // Servers that do not say have split nothing that is known of.
    let mut splits = splits().unwrap_or_else(|_| Box::new(|| 0));
    let mut now = || (Instant::now(), count.load(Ordering::Relaxed), probe.so_far(), splits());
    let mut before = now();
    let mut seconds = Vec::new();
    loop {
        while before.0.elapsed() < SECOND {
            if stop.load(Ordering::Relaxed) {
                return seconds;
            }
            std::thread::sleep(GLANCE);
        }
        let after = now();
        let (syncs, busy_us) = (after.2.0 - before.2.0, after.2.1 - before.2.1);
        seconds.push(Second {
            per_s: (after.1 - before.1) as f64 / (after.0 - before.0).as_secs_f64(),
            // A probe whose write outlasts the second counts none.
            probe_per_s: if busy_us > 0 { syncs as f64 * 1e6 / busy_us as f64 } else { 0.0 },
            splits: after.3.saturating_sub(before.3),
        });
        before = after;
    }
}

impl Seconds {
    /// Operations a second, over all.
    pub fn per_s(&self) -> f64 {
        self.done as f64 / self.took_s.max(1e-9)
    }

    /// Whether no second is low, but in a split or where the probe is low likewise.
    pub fn is_steady(&self, what: &str) -> DemandVerdict {
        let of = |pick: fn(&Second) -> f64| Spread::of(&self.seconds.iter().map(pick).collect::<Vec<_>>());
        let medians = of(|second| second.per_s).zip(of(|second| second.probe_per_s));
        let demand = format!(
            "{what}: no second below {:.0} % of the median rate, but in a split or where a bare sync probe dips likewise",
            LOW * 100.0
        );
        let Some((rate, probe)) = medians else {
            return DemandVerdict {
                demand,
                measured: "no whole second was seen: too short".into(),
                is_met: false,
            };
        };
        let low: Vec<&Second> = self.seconds.iter().filter(|s| s.per_s < LOW * rate.median).collect();
        let in_split = low.iter().filter(|second| second.splits > 0).count();
        let is_excused = |second: &Second| second.splits > 0 || second.probe_per_s < LOW * probe.median;
        let excused = low.iter().filter(|second| is_excused(second)).count();
        let measured = format!(
            "{} of {} seconds below half of {}/s, the lowest {}/s; {in_split} in a split, {} with the probe",
            low.len(),
            self.seconds.len(),
            short(rate.median),
            short(rate.min),
            excused - in_split
        );
        DemandVerdict { demand, measured, is_met: low.len() == excused }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(of: &[(f64, f64, u64)]) -> Seconds {
        let second = |&(per_s, probe_per_s, splits): &(f64, f64, u64)| Second { per_s, probe_per_s, splits };
        Seconds { done: 1, took_s: 1.0, seconds: of.iter().map(second).collect() }
    }

    #[test]
    fn a_low_second_is_excused_by_a_split_or_by_the_disk() {
        let usual = [(1000.0, 5000.0, 0); 5];
        let with = |low| seconds(&[&usual[..], &[low]].concat()).is_steady("creates");
        assert!(with((600.0, 5000.0, 0)).is_met);
        assert!(!with((400.0, 5000.0, 0)).is_met, "{}", with((400.0, 5000.0, 0)));
        assert!(with((400.0, 5000.0, 1)).is_met);
        let disk = with((400.0, 2000.0, 0));
        assert!(disk.is_met && disk.measured.contains("0 in a split, 1 with the probe"), "{disk}");
        assert!(!seconds(&[]).is_steady("creates").is_met, "nothing was seen");
    }

    #[test]
    fn what_is_done_is_seen_second_by_second() {
        let folder = tempfile::tempdir().expect("a folder");
        let splits = || -> Result<Splits> {
            let mut n = 0;
            Ok(Box::new(move || {
                n += 1;
                n
            }))
        };
        let count = Arc::new(AtomicU64::new(0));
        let watch = Watch::start(folder.path(), &count, splits).expect("started");
        while !watch.thread.is_finished() && watch.begun.elapsed() < SECOND * 5 / 2 {
            count.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(GLANCE);
        }
        let seen = watch.finish().expect("finished");
        assert!(seen.done > 0 && seen.per_s() > 0.0);
        // A busy machine may have slept through one.
        for second in &seen.seconds {
            assert!(second.per_s > 0.0 && second.splits == 1, "{second:?}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0);
    }
}
