//! Measures the rate with blocks of every size. If the rate falls although the blocks grow, the measured
//! program changes its method at that size.
//!
//! One worker writes and reads one file by blocks of a power of two, size after size, over one target or
//! several in turn. The whole file is written before the measurement, so that no block makes it grow; small
//! blocks use only its beginning. Rounds go through the sizes forwards and backwards, so that each size is
//! measured next to its neighbour, and the two are compared round by round ([`crate::interval`]).
//!
//! Source: the thesis found that PVFS2 lost throughput at 128 KiB, the size at which its transfers changed
//! their method. ShoalFS changes its method at three sizes: the limit of eager data (which rides in the
//! request), the chunk of a flow (data that follows in parts), and the strip.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::buffer::Buffer;
use crate::compare::order;
use crate::demands::DemandVerdict;
use crate::interval::Interval;
use crate::io::BLOCK_MAX;
use crate::progress::Progress;
use crate::report::plain_table;
use crate::target::{FileId, OpenMode, Target, Worker};
use shoal_model::short;

/// A block may be so much slower than one of half its size, percent.
pub const DIP_MAX: f64 = 15.0;
/// The file of a sweep.
const FILE: &str = "sweep";
/// Blocks it is first written by.
const FILL: usize = 1 << 20;
/// The most rounds.
const ROUNDS_MAX: usize = 1000;

/// The measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepOptions {
    /// The smallest block, bytes.
    pub from: usize,
    /// The largest.
    pub to: usize,
    /// Bytes of the file, and of a measurement at most.
    pub total: u64,
    /// Blocks of a measurement, at most.
    pub blocks: u64,
    /// Times each size is measured.
    pub rounds: usize,
}

impl SweepOptions {
    /// The sizes, from the smallest on.
    pub fn sizes(&self) -> Vec<usize> {
        let larger = |size: &usize| size.checked_mul(2);
        std::iter::successors(Some(self.from), larger).take_while(|size| *size <= self.to).collect()
    }

    /// Refuses settings that cannot be measured, naming the option.
    pub fn validate(&self) -> Result<()> {
        let is_size = |size: usize| size.is_power_of_two() && size <= BLOCK_MAX;
        if !is_size(self.from) || !is_size(self.to) || self.from > self.to {
            bail!(
                "blocks go from a power of two to a larger one of at most {BLOCK_MAX} bytes, not from {} to {}",
                self.from,
                self.to
            );
        }
        if self.total < self.to as u64 || self.blocks == 0 {
            bail!("a measurement has at least one block of {} bytes: make the file larger", self.to);
        }
        if self.rounds == 0 || self.rounds > ROUNDS_MAX {
            bail!("rounds must be between 1 and {ROUNDS_MAX}, not {}", self.rounds);
        }
        Ok(())
    }
}

/// Rates with one size of blocks, 10^6 bytes a second, round by round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Bytes of a block.
    pub block: usize,
    /// Every round's.
    pub rounds: Vec<f64>,
    /// Their median.
    pub mb_per_s: Option<Interval>,
    /// How many times the rate of blocks half as large; of the smallest nothing.
    pub to_half: Option<Interval>,
}

/// All sizes on one target, in one direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// The target.
    pub target: String,
    /// `write` or `read`.
    pub direction: String,
    /// From the smallest size on.
    pub points: Vec<Point>,
}

/// The results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepReport {
    /// How.
    pub options: SweepOptions,
    /// A target after the other, `write` before `read`.
    pub curves: Vec<Curve>,
}

const DIRECTIONS: [&str; 2] = ["write", "read"];

/// Measure targets in turn; each must be empty of a file called `sweep`.
pub fn sweep(
    targets: &[&dyn Target],
    options: &SweepOptions,
    mut progress: impl FnMut(Progress),
) -> Result<SweepReport> {
    options.validate()?;
    for target in targets {
        fill(&mut *target.worker(0)?, options.total)?;
    }
    let sizes = options.sizes();
    // By target, direction and size.
    let mut seen = vec![[vec![Vec::new(); sizes.len()], vec![Vec::new(); sizes.len()]]; targets.len()];
    progress(Progress::Begin { steps: options.rounds as u64 });
    for round in 1..=options.rounds {
        let what = format!("{} sizes of {} targets", sizes.len(), targets.len());
        progress(Progress::Step { step: round as u64 - 1, what, repetition: round });
        let mut open = targets.iter().map(|target| Open::new(*target)).collect::<Result<Vec<_>>>()?;
        for at in order(sizes.len(), round) {
            for index in order(targets.len(), round) {
                for (direction, seen) in seen[index].iter_mut().enumerate() {
                    let rate = open[index].measure(direction == 0, sizes[at], options);
                    seen[at].push(rate.with_context(|| format!("blocks of {} bytes", sizes[at]))?);
                }
            }
        }
        open.into_iter().try_for_each(Open::close)?;
    }
    progress(Progress::End);
    for target in targets {
        target.worker(0)?.remove(FILE)?;
    }
    let curve = |target: &&dyn Target, direction: &str, rounds: Vec<Vec<f64>>| Curve {
        target: target.name(),
        direction: direction.to_owned(),
        points: points(&sizes, rounds),
    };
    let curves = targets.iter().zip(seen).flat_map(|(target, both)| {
        let both = DIRECTIONS.iter().zip(both).map(|(way, rounds)| curve(target, way, rounds));
        both.collect::<Vec<_>>()
    });
    Ok(SweepReport { options: options.clone(), curves: curves.collect() })
}

fn points(sizes: &[usize], rounds: Vec<Vec<f64>>) -> Vec<Point> {
    let half = |at: usize| at.checked_sub(1).map(|half| &rounds[half]);
    let point = |(at, &block): (usize, &usize)| Point {
        block,
        mb_per_s: Interval::of_median(&rounds[at]),
        to_half: half(at).and_then(|half| Interval::of_ratio(&rounds[at], half)),
        rounds: rounds[at].clone(),
    };
    sizes.iter().enumerate().map(point).collect()
}

fn fill(worker: &mut dyn Worker, total: u64) -> Result<()> {
    let file = worker.create(FILE)?;
    let data = Buffer::filled(FILL, 1);
    let mut offset = 0;
    while offset < total {
        let len = FILL.min(usize::try_from(total - offset).unwrap_or(FILL));
        worker.write(file, offset, &data.as_ref()[..len])?;
        offset += len as u64;
    }
    worker.fsync(file)?;
    worker.close(file)
}

/// A target's file, open for a round.
struct Open {
    worker: Box<dyn Worker>,
    file: FileId,
}

impl Open {
    fn new(target: &dyn Target) -> Result<Open> {
        let mut worker = target.worker(0)?;
        let file = worker.open(FILE, OpenMode { write: true, direct: false })?;
        Ok(Open { worker, file })
    }

    /// 10^6 bytes a second.
    fn measure(&mut self, writes: bool, block: usize, options: &SweepOptions) -> Result<f64> {
        let blocks = (options.total / block as u64).min(options.blocks);
        let mut data = Buffer::filled(block, 1);
        let begun = Instant::now();
        for index in 0..blocks {
            let offset = index * block as u64;
            if writes {
                self.worker.write(self.file, offset, data.as_ref())?;
            } else if self.worker.read(self.file, offset, data.as_mut())? != block {
                bail!("a read at {offset} came back short");
            }
        }
        Ok((blocks * block as u64) as f64 / 1e6 / begun.elapsed().as_secs_f64().max(1e-9))
    }

    fn close(mut self) -> Result<()> {
        self.worker.close(self.file)
    }
}

impl SweepReport {
    fn curve(&self, target: &str, direction: &str) -> Option<&Curve> {
        self.curves.iter().find(|curve| curve.target == target && curve.direction == direction)
    }

    /// Whether no size is slower than the one below it.
    pub fn dips(&self) -> Vec<DemandVerdict> {
        self.curves.iter().filter_map(Curve::dips).collect()
    }

    /// Every size next to the one below it.
    pub fn to_table(&self) -> String {
        let mut header = vec!["block".to_owned()];
        for curve in &self.curves {
            header.extend([format!("{}, MB/s", curve.direction), "to half the size".to_owned()]);
        }
        let mut table = plain_table(header);
        for (at, size) in self.options.sizes().into_iter().enumerate() {
            let cells = |curve: &Curve| {
                let point = &curve.points[at];
                [rate(point.mb_per_s), point.to_half.map_or(String::new(), |ratio| ratio.as_ratio())]
            };
            let row = std::iter::once(bytes(size)).chain(self.curves.iter().flat_map(cells));
            table.add_row(row.collect::<Vec<_>>());
        }
        format!("{table}\n")
    }

    /// One target as a multiple of another, size by size; every row has a write and a read.
    pub fn against(&self, target: &str, base: &str) -> Vec<Against> {
        let both = |direction: &str| Some((self.curve(target, direction)?, self.curve(base, direction)?));
        let of = |direction: &&str| {
            let (ours, theirs) = both(direction)?;
            let row = |(ours, theirs): (&Point, &Point)| {
                Some(Against {
                    block: ours.block,
                    direction: (*direction).to_owned(),
                    mb_per_s: ours.mb_per_s?,
                    base_mb_per_s: theirs.mb_per_s?,
                    times: Interval::of_ratio(&ours.rounds, &theirs.rounds)?,
                })
            };
            Some(ours.points.iter().zip(&theirs.points).filter_map(row).collect::<Vec<_>>())
        };
        DIRECTIONS.iter().filter_map(of).flatten().collect()
    }
}

/// One size on two targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// Bytes of a block.
    pub block: usize,
    /// `write` or `read`.
    pub direction: String,
    /// The one.
    pub mb_per_s: Interval,
    /// The other.
    pub base_mb_per_s: Interval,
    /// How many times the other.
    pub times: Interval,
}

/// Two targets side by side, as text.
pub fn against_table(rows: &[Against], target: &str, base: &str) -> String {
    let header = ["block", "", base, target, "times"].map(str::to_owned).to_vec();
    let mut table = plain_table(header);
    for row in rows {
        let rates = [row.base_mb_per_s, row.mb_per_s].map(|interval| rate(Some(interval)));
        let [theirs, ours] = rates;
        table.add_row([bytes(row.block), row.direction.clone(), theirs, ours, row.times.as_ratio()]);
    }
    format!("{table}\n")
}

/// Whether one target is slower than another with blocks of at most `limit` bytes.
pub fn never_slower(rows: &[Against], target: &str, base: &str, limit: usize) -> Vec<DemandVerdict> {
    let of = |direction: &&str| {
        let within = rows.iter().filter(|row| row.direction == **direction && row.block <= limit);
        let worst = within.min_by(|a, b| a.times.value.total_cmp(&b.times.value))?;
        Some(DemandVerdict {
            demand: format!("{direction}, {target} is not slower than {base} up to {}", bytes(limit)),
            measured: format!("at worst {} with {}", worst.times.as_ratio(), bytes(worst.block)),
            is_met: !worst.times.is_below(1.0),
        })
    };
    DIRECTIONS.iter().filter_map(of).collect()
}

impl Curve {
    fn dips(&self) -> Option<DemandVerdict> {
        let steps = || self.points.iter().filter_map(|point| Some((point.to_half?, point.block)));
        let least = |of: fn(&Interval) -> f64| steps().min_by(|(a, _), (b, _)| of(a).total_cmp(&of(b)));
        // The certain deepest dip, and the apparent one: a wide interval hides a dip rather than excludes it.
        let sure = least(|ratio| ratio.ends.map_or(ratio.value, |(_, high)| high))?;
        let seeming = least(|ratio| ratio.value)?;
        let words = |(ratio, block): (Interval, usize)| format!("{} with {}", ratio.as_ratio(), bytes(block));
        let wide = match seeming.1 == sure.1 {
            true => String::new(),
            false => format!("; the lowest estimate {}", words(seeming)),
        };
        Some(DemandVerdict {
            demand: format!(
                "{}, no size is over {DIP_MAX:.0} % slower than half of it, beyond the interval of 95 %",
                self.direction
            ),
            measured: format!("at worst {}{wide}", words(sure)),
            is_met: !sure.0.is_below(1.0 - DIP_MAX / 100.0),
        })
    }
}

fn rate(interval: Option<Interval>) -> String {
    match interval {
        Some(Interval { value, ends: Some((low, high)) }) => {
            format!("{} ({}–{})", short(value), short(low), short(high))
        }
        Some(Interval { value, ends: None }) => short(value),
        None => "–".to_owned(),
    }
}

fn bytes(size: usize) -> String {
    match size {
        size if size >= 1 << 20 => format!("{} MiB", size >> 20),
        size if size >= 1 << 10 => format!("{} KiB", size >> 10),
        size => format!("{size} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Directory;

    fn report(rates: [f64; 4]) -> SweepReport {
        let options = SweepOptions { from: 1024, to: 8192, total: 1 << 20, blocks: 8, rounds: 8 };
        // Rounds wander by a tenth, all sizes together.
        let rounds = rates.map(|rate| (0..8).map(|i| rate * (1.0 + f64::from(i) / 80.0)).collect());
        let points = points(&options.sizes(), rounds.to_vec());
        let curve = Curve { target: "native".into(), direction: "write".into(), points };
        SweepReport { options, curves: vec![curve] }
    }

    #[test]
    fn a_size_that_falls_behind_the_one_below_it_is_found() {
        let words = |rates| report(rates).dips()[0].to_string();
        assert!(words([10.0, 20.0, 18.0, 40.0]).starts_with("met"), "{}", words([10.0, 20.0, 18.0, 40.0]));
        let dip = words([10.0, 20.0, 16.0, 40.0]);
        assert!(dip.starts_with("NOT MET") && dip.contains("0.80 × (0.80–0.80) with 4 KiB"), "{dip}");
    }

    #[test]
    fn every_size_is_measured_on_every_target_and_nothing_is_left() {
        let (one, two) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let targets = [Directory::new("one", one.path()), Directory::new("two", two.path())];
        let targets: Vec<&dyn Target> = targets.iter().map(|target| target as &dyn Target).collect();
        let options = SweepOptions { from: 1024, to: 1 << 16, total: 100_000, blocks: 3, rounds: 2 };
        let report = sweep(&targets, &options, |_| {}).expect("measured");
        assert_eq!((report.curves.len(), report.curves[3].points.len()), (4, 7));
        assert!(report.curves.iter().all(|c| c.points.iter().all(|p| p.rounds.len() == 2)));
        assert_eq!(report.dips().len(), 4);
        let rows = report.against("two", "one");
        assert_eq!(rows.len(), 14);
        assert_eq!(never_slower(&rows, "two", "one", 4096).len(), 2);
        assert!(report.to_table().contains("64 KiB") && against_table(&rows, "two", "one").contains("read"));
        assert_eq!(std::fs::read_dir(one.path()).expect("readable").count(), 0);
    }

    #[test]
    fn sizes_are_powers_of_two() {
        let options = SweepOptions { from: 1000, to: 8192, total: 1 << 20, blocks: 8, rounds: 8 };
        assert!(options.validate().is_err());
        assert!(SweepOptions { from: 16384, ..options.clone() }.validate().is_err());
        assert!(SweepOptions { from: 1024, total: 4096, ..options.clone() }.validate().is_err());
        assert_eq!(SweepOptions { from: 1024, ..options }.sizes(), [1024, 2048, 4096, 8192]);
    }
}
