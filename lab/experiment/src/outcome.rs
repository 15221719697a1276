//! The outcome of an experiment. For each series and each place on the axis it has our value, the upper
//! bound, the resource that limits the bound, and the published value. It also has the result of each check.

use crate::check::{Check, Kind, Verdict};
use crate::file::Metric;
use crate::place::AxisPlace;
use crate::provenance::{Provenance, Size};
use crate::run::Mode;
use serde::{Deserialize, Serialize};
use shoal_bench::Spread;

/// The bound of one value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundHere {
    /// In the series' unit: of a rate the most, of a time the least.
    pub value: f64,
    /// The limit that binds, in a word.
    pub binds: String,
    /// The same for people.
    pub binds_words: String,
    /// The arithmetic.
    pub arithmetic: String,
}

/// One place of a series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where.
    pub x: AxisPlace,
    /// The measured value; `None`: not run, but published.
    pub ours: Option<Spread>,
    /// Its bound.
    pub bound: Option<BoundHere>,
    /// The paper's value.
    pub published: Option<f64>,
}

impl Point {
    /// How much of the bound was reached.
    pub fn percent(&self, metric: Metric) -> Option<f64> {
        let (ours, bound) = (self.ours?.median, self.bound.as_ref()?.value);
        let share = if metric.is_time() { bound / ours } else { ours / bound };
        share.is_finite().then_some(share * 100.0)
    }
}

/// One series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureSeries {
    /// Its name.
    pub name: String,
    /// The metric.
    pub metric: Metric,
    /// Along the axis.
    pub points: Vec<Point>,
    /// Operations in each second of the longest run, where the workload reports them.
    pub per_second: Vec<u64>,
}

/// A check, and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The check.
    pub check: Check,
    /// Of which kind it is in this mode.
    pub counts_as: Kind,
    /// Its result.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// The result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentOutcome {
    /// Of which experiment.
    pub name: String,
    /// How it was run; `None`: nothing is run, all is computed.
    pub mode: Option<Mode>,
    /// On which machine, for the bounds.
    pub machine: String,
    /// Share of the paper's amount.
    pub scale: f64,
    /// Application processes, where they are fewer than the paper's.
    pub fewer: Option<i64>,
    /// A short run.
    pub quick: bool,
    /// Repetitions.
    pub repeat: u32,
    /// Real seconds that it took.
    pub seconds: f64,
    /// How much was run; empty: nothing was, or it was not recorded.
    #[serde(default)]
    pub sizes: Vec<Size>,
    /// Of which program, when and where; `None`: it was not recorded.
    #[serde(default)]
    pub provenance: Option<Provenance>,
    /// The series.
    pub curves: Vec<FigureSeries>,
    /// The checks. Of an outcome that was kept they are made anew ([`Outcome::judge`]): the experiment may
    /// ask for others by now.
    #[serde(skip_deserializing)]
    pub checks: Vec<Checked>,
}

impl ExperimentOutcome {
    /// A series by its name.
    pub fn curve(&self, name: &str) -> Option<&FigureSeries> {
        self.curves.iter().find(|curve| curve.name == name)
    }

    /// Check the shape.
    pub fn judge(&mut self, checks: &[Check]) {
        self.checks = checks
            .iter()
            .map(|check| Checked {
                check: check.clone(),
                counts_as: check.kind_in(self.mode),
                verdict: check.verdict(self),
            })
            .collect();
    }

    /// The checks that do not hold.
    pub fn failures(&self) -> impl Iterator<Item = &Checked> {
        self.checks.iter().filter(|checked| checked.verdict.is_failure())
    }
}
