//! The file of an experiment. docs/lab/EXPERIMENTS.md explains its keys; an unknown key is an error.
//!
//! ```text
//!   name, title, claim          the experiment in words
//!   machine                     the machine that is simulated
//!   [source]                    paper, section, reproduces, missing
//!   [workload]                  the kind, and the keys of this kind
//!   [parameters]                a setting, the same in all runs
//!   [axis]                      varies, also, values, label, value_label, log
//!   [real] [simulated] [quick]  values, scale, repeat and parameters that differ in this mode;
//!                               `skip`: the reason why the experiment does not run in it
//!   [[series]]                  name, phase, metric, less, parameters
//!   [[published]]               series, x, value, unit, where, derived
//!   [[check]]                   claim, kind, kind_real, shape, only, why
//!   [[fit]]                     cost, series, x
//! ```

mod error;

pub use error::FileError;

use crate::check::Check;
use crate::fit::Fit;
use crate::place::AxisPlace;
use crate::run::{Amount, Mode};
use crate::setting::{CLUSTER, SCALED, Setting};
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// An experiment.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name in `shoal paper`: letters, digits and dashes.
    pub name: String,
    /// Its description, in a line.
    pub title: String,
    /// The paper's finding, in words.
    pub claim: String,
    /// Where it is from.
    pub source: Source,
    /// The machine that is simulated.
    pub machine: String,
    /// The workload.
    pub workload: Workload,
    /// The parameters common to all runs.
    #[serde(default)]
    pub parameters: toml::Table,
    /// The parameter that varies.
    pub axis: Axis,
    /// Runs on real servers.
    #[serde(default)]
    pub real: Amounts,
    /// Runs under virtual time.
    #[serde(default)]
    pub simulated: Amounts,
    /// Short runs, of either kind.
    #[serde(default)]
    pub quick: Amounts,
    /// The compared series.
    pub series: Vec<Series>,
    /// The published values.
    #[serde(default)]
    pub published: Vec<Published>,
    /// The checks of its shape.
    #[serde(default)]
    pub check: Vec<Check>,
    /// Which costs of its machine are fitted on which of its published points.
    #[serde(default)]
    pub fit: Vec<Fit>,
}

/// Where an experiment is from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Which paper: `small-files` or `thesis`, or another in words.
    pub paper: String,
    /// Section, in words.
    pub section: String,
    /// Its figures and tables that this reproduces: `figure 3a`, `table I`.
    pub reproduces: Vec<String>,
    /// The values that the text does not give, so that there are none here.
    #[serde(default)]
    pub missing: String,
}

/// The parameter that varies along the axis.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// A parameter, or `phase`; `place` on a computed curve.
    pub varies: String,
    /// Parameters that have the same value: as many servers as clients.
    #[serde(default)]
    pub also: Vec<String>,
    /// Its values.
    pub values: Vec<AxisPlace>,
    /// For people.
    pub label: String,
    /// For people: the meaning of the series' values.
    pub value_label: String,
    /// Drawn by powers of ten.
    #[serde(default)]
    pub log: bool,
}

/// How much is run in a mode.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Amounts {
    /// Values along the axis, where they differ.
    #[serde(default)]
    pub values: Vec<AxisPlace>,
    /// Files, bytes and look-ups, as a share of the paper's.
    #[serde(default)]
    pub scale: Option<f64>,
    /// Repetitions; their middle counts.
    #[serde(default)]
    pub repeat: Option<u32>,
    /// The differences.
    #[serde(default)]
    pub parameters: toml::Table,
    /// Why it does not run in this mode.
    #[serde(default)]
    pub skip: String,
}

/// The metric of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Operations a second.
    #[default]
    PerS,
    /// 10^6 bytes a second.
    MbPerS,
    /// Seconds that the phase took.
    S,
    /// Microseconds an operation, of one process.
    Us,
}

impl Metric {
    /// Its unit.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::PerS => "/s",
            Metric::MbPerS => "MB/s",
            Metric::S => "s",
            Metric::Us => "µs",
        }
    }

    /// Less is better.
    pub fn is_time(self) -> bool {
        matches!(self, Metric::S | Metric::Us)
    }
}

/// One curve.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// For people, checks and published points.
    pub name: String,
    /// The phase that is reported; the axis's where that varies phases.
    #[serde(default)]
    pub phase: String,
    /// Its metric.
    #[serde(default)]
    pub metric: Metric,
    /// A phase whose value is subtracted: the rest is the cost of the difference.
    #[serde(default)]
    pub less: String,
    /// The differences from the experiment's parameters.
    #[serde(default)]
    pub parameters: toml::Table,
}

/// A published point.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Of which series.
    pub series: String,
    /// At which place.
    pub x: AxisPlace,
    /// The number.
    pub value: f64,
    /// Its unit, as the series' metric has it.
    pub unit: String,
    /// Where it is printed.
    #[serde(rename = "where")]
    pub place: String,
    /// The text gives it by arithmetic: how.
    #[serde(default)]
    pub derived: String,
}

impl Experiment {
    /// From a file.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn read(path: &Path) -> Result<Experiment, FileError> {
        let file = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Experiment::parse(&text, &file),
            Err(why) => Err(FileError::Unreadable { file, why }),
        }
    }

    /// From the text of `file`.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn parse(text: &str, file: &str) -> Result<Experiment, FileError> {
        let malformed = |e: toml::de::Error| FileError::Malformed {
            file: file.to_owned(),
            why: e.to_string().trim_end().to_owned(),
        };
        let experiment: Experiment = toml::from_str(text).map_err(malformed)?;
        experiment.check().map_err(|(what, remedy)| FileError::Value {
            file: file.to_owned(),
            what,
            remedy,
        })?;
        Ok(experiment)
    }

    /// How much is run in a mode.
    pub fn amounts(&self, mode: Mode) -> &Amounts {
        match mode {
            Mode::Real => &self.real,
            Mode::Simulated => &self.simulated,
        }
    }

    /// The places on the axis in a mode.
    pub fn values(&self, mode: Mode, amount: &Amount) -> &[AxisPlace] {
        let quick = if amount.quick { self.quick.values.as_slice() } else { &[] };
        let of_mode = &self.amounts(mode).values;
        [quick, of_mode, &self.axis.values].into_iter().find(|values| !values.is_empty()).unwrap_or(&[])
    }

    /// The share of the paper's amount that is run.
    pub fn scale(&self, mode: Mode, amount: &Amount) -> f64 {
        let quick = self.quick.scale.filter(|_| amount.quick);
        amount.scale.or(quick).or(self.amounts(mode).scale).unwrap_or(1.0)
    }

    /// Application processes, where a run has fewer than the paper.
    pub fn fewer_processes(&self, mode: Mode, amount: &Amount) -> Option<i64> {
        let of = |table: &toml::Table| table.get(PROCESSES).and_then(toml::Value::as_integer);
        let quick = of(&self.quick.parameters).filter(|_| amount.quick);
        let run = amount.processes.map(i64::from).or(quick).or(of(&self.amounts(mode).parameters));
        run.zip(of(&self.parameters)).filter(|(run, paper)| run < paper).map(|(run, _)| run)
    }

    /// Repetitions.
    pub fn repeat(&self, mode: Mode, amount: &Amount) -> u32 {
        let usual = match mode {
            Mode::Simulated => 1,
            Mode::Real => self.real.repeat.unwrap_or(3),
        };
        if amount.quick { 1 } else { amount.repeat.unwrap_or(usual) }
    }

    /// The setting of a run of a series at a place.
    ///
    /// # Errors
    /// The error of the parameters, in words.
    pub fn setting(
        &self,
        mode: Mode,
        amount: &Amount,
        series: &Series,
        x: &AxisPlace,
    ) -> Result<Setting, String> {
        let mut table = self.parameters.clone();
        let mut over = |other: &toml::Table| table.extend(other.iter().map(|(k, v)| (k.clone(), v.clone())));
        over(&self.amounts(mode).parameters);
        if amount.quick {
            over(&self.quick.parameters);
        }
        over(&series.parameters);
        if let Some(processes) = amount.processes {
            table.insert(PROCESSES.to_owned(), toml::Value::Integer(processes.into()));
        }
        self.settled(table, self.scale(mode, amount), x)
    }

    /// The setting of the paper's own run of a series at a place.
    ///
    /// # Errors
    /// The error of the parameters, in words.
    pub fn setting_of_the_paper(&self, series: &Series, x: &AxisPlace) -> Result<Setting, String> {
        let mut table = self.parameters.clone();
        table.extend(series.parameters.iter().map(|(k, v)| (k.clone(), v.clone())));
        self.settled(table, 1.0, x)
    }

    fn settled(&self, mut table: toml::Table, scale: f64, x: &AxisPlace) -> Result<Setting, String> {
        let varies = self.axis.varies.as_str();
        for key in SCALED.iter().filter(|key| **key != varies) {
            if let Some(toml::Value::Integer(paper)) = table.get(*key) {
                let scaled = (*paper as f64 * scale).round().max(1.0) as i64;
                table.insert((*key).to_owned(), toml::Value::Integer(scaled));
            }
        }
        if varies != PHASE && varies != PLACE {
            table.insert(varies.to_owned(), x.value());
        }
        for key in &self.axis.also {
            table.insert(key.clone(), x.value());
        }
        let mut setting = Setting::of(&table)?;
        self.workload.settle(&mut setting);
        Ok(setting)
    }

    /// The phase of a series at a place.
    pub fn phase<'a>(&self, series: &'a Series, x: &'a AxisPlace) -> &'a str {
        match x {
            AxisPlace::Word(word) if self.axis.varies == PHASE => word,
            _ => &series.phase,
        }
    }

    /// A series by its name.
    pub fn series(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|series| series.name == name)
    }

    /// The published value of a series at a place.
    pub fn published(&self, series: &str, x: &AxisPlace) -> Option<&Published> {
        self.published.iter().find(|point| point.series == series && point.x == *x)
    }

    fn check(&self) -> Result<(), (String, String)> {
        let wrong = |what: String, remedy: &str| Err((what, remedy.to_owned()));
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if self.name.is_empty() || !self.name.chars().all(is_word) {
            return wrong(format!("name `{}`", self.name), "write letters, digits and dashes");
        }
        if self.series.is_empty() || self.axis.values.is_empty() {
            return wrong("series or axis.values".to_owned(), "write one at least");
        }
        self.check_parameters()?;
        for (at, series) in self.series.iter().enumerate() {
            if self.series[..at].iter().any(|other| other.name == series.name) {
                return wrong(format!("series `{}`", series.name), "give each a name of its own");
            }
            self.check_series(series)?;
        }
        for point in &self.published {
            let what = || format!("published point of `{}` at {}", point.series, point.x);
            let Some(series) = self.series(&point.series) else {
                return wrong(what(), "name a series of this file");
            };
            if point.unit != series.metric.unit() {
                return wrong(what(), &format!("its series has the unit {}", series.metric.unit()));
            }
            if point.place.is_empty() || !point.value.is_finite() {
                return wrong(what(), "say where it is printed, and a number");
            }
        }
        for check in &self.check {
            check.refers(self).map_err(|remedy| (format!("check `{}`", check.claim), remedy))?;
        }
        for (at, fit) in self.fit.iter().enumerate() {
            let what = format!("fit of `{}`", fit.cost);
            if self.published(&fit.series, &fit.x).is_none() {
                return wrong(what, "name the series and the place of a published point");
            }
            if self.fit[..at].iter().any(|other| other.cost == fit.cost) {
                return wrong(what, "a cost cannot be fitted twice");
            }
        }
        Ok(())
    }

    /// Every parameter is one that this workload reads.
    fn check_parameters(&self) -> Result<(), (String, String)> {
        let own =
            [&self.parameters, &self.real.parameters, &self.simulated.parameters, &self.quick.parameters];
        let all = own.into_iter().chain(self.series.iter().map(|series| &series.parameters));
        let used = self.workload.uses();
        let axis = Some(&self.axis.varies).filter(|varies| *varies != PHASE);
        let axis = axis.filter(|varies| *varies != PLACE || !self.workload.is_computed());
        let axis = axis.into_iter().chain(&self.axis.also);
        for key in all.flat_map(|table| table.keys()).chain(axis) {
            if !CLUSTER.contains(&key.as_str()) && !used.contains(&key.as_str()) {
                let words = format!(
                    "the workload {} does not use it; it uses {}, and every one {}",
                    self.workload.word(),
                    used.join(", "),
                    CLUSTER.join(", ")
                );
                return Err((format!("parameter `{key}`"), words));
            }
        }
        Ok(())
    }

    fn check_series(&self, series: &Series) -> Result<(), (String, String)> {
        let what = || format!("series `{}`", series.name);
        let phases = self.workload.phases();
        let is_phase = |name: &str| phases.iter().any(|phase| phase == name);
        let remedy = format!("the phases of {} are {}", self.workload.word(), phases.join(", "));
        for mode in [Mode::Real, Mode::Simulated] {
            for quick in [false, true] {
                let amount = Amount { quick, ..Amount::default() };
                for x in self.values(mode, &amount) {
                    let name = self.phase(series, x);
                    if !is_phase(name) {
                        return Err((format!("{}, phase `{name}`", what()), remedy));
                    }
                    self.setting(mode, &amount, series, x).map_err(|words| (what(), words))?;
                }
            }
        }
        if !series.less.is_empty() && (!is_phase(&series.less) || !series.metric.is_time()) {
            return Err((
                format!("{}, less `{}`", what(), series.less),
                format!("{remedy}; times are taken off"),
            ));
        }
        Ok(())
    }
}

/// The parameter that says how many application processes there are.
const PROCESSES: &str = "processes";
/// The parameter of an axis over phases.
pub const PHASE: &str = "phase";
/// The parameter of an axis along which nothing is run: the place on a computed curve.
pub const PLACE: &str = "place";

#[cfg(test)]
mod tests;
