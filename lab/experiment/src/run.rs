//! Runs all cells of an experiment, one after the other. A *cell* is one series at one place of the axis;
//! it runs as often as its repetitions require.
//!
//! Series that differ only in the reported phase share a run. So do experiments of one call of the program
//! that need the same run ([`Memo`]). Repetitions go through all runs in turn, so that drift affects all
//! alike.

use crate::bound;
use crate::file::{Experiment, Metric, Series};
use crate::outcome::{ExperimentOutcome, FigureSeries, Point};
use crate::place::AxisPlace;
use crate::provenance::{self, Size};
use crate::seat::{Phase, Plan, Took, together};
use crate::setting::Setting;
use crate::workload::{Clock, Workload};
use serde::{Deserialize, Serialize};
use shoal_bench::{Progress, Spread};
use shoal_model::Machine;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Where a run takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// On servers of this machine.
    Real,
    /// Under virtual time.
    Simulated,
}

impl Mode {
    /// In a word.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Real => "real",
            Mode::Simulated => "simulated",
        }
    }
}

/// How much is run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Amount {
    /// Share of the paper's amount; else the file's value.
    pub scale: Option<f64>,
    /// Application processes; else the file's value.
    pub processes: Option<u32>,
    /// As short as can be.
    pub quick: bool,
    /// Repetitions of real runs; else the file's value.
    pub repeat: Option<u32>,
}

/// Where plans are run.
pub trait Ground {
    /// Which kind it is.
    fn mode(&self) -> Mode;
    /// The machine of the bounds, where it is known.
    fn machine(&self) -> Option<&Machine>;
    /// Run a plan on a fresh file system.
    ///
    /// # Errors
    /// The failure, in words.
    fn run(&mut self, plan: &Plan) -> Result<Vec<Took>, String>;
}

/// A machine under virtual time.
#[derive(Clone, Debug)]
pub struct SimulatedGround {
    /// Which.
    pub machine: Machine,
    /// The seed of random numbers.
    pub seed: u64,
}

impl Ground for SimulatedGround {
    fn mode(&self) -> Mode {
        Mode::Simulated
    }

    fn machine(&self) -> Option<&Machine> {
        Some(&self.machine)
    }

    fn run(&mut self, plan: &Plan) -> Result<Vec<Took>, String> {
        crate::simulated::run(plan, &self.machine, self.seed)
    }
}

/// The phases of one run, by name.
type Phases = Vec<(String, Phase)>;

/// The runs so far, on any machines.
#[derive(Default)]
pub struct Memo(BTreeMap<String, Vec<Phases>>);

/// Why an experiment ended without an outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It does not run in this mode.
    #[error("{name} has no {mode} runs: {why}")]
    Skipped {
        /// Which experiment.
        name: String,
        /// Which mode.
        mode: &'static str,
        /// Why.
        why: String,
    },
    /// Its parameters make no sense together.
    #[error("{name}, {series} at {x}: {why}")]
    Setting {
        /// Which experiment.
        name: String,
        /// Which series.
        series: String,
        /// Where.
        x: String,
        /// The error.
        why: String,
    },
    /// A run failed.
    #[error("{name}, {what}: {why}")]
    Failed {
        /// Which experiment.
        name: String,
        /// Which run.
        what: String,
        /// Why.
        why: String,
    },
    /// Nothing to compute from.
    #[error("{name}: the machine {machine} has no figure {figure} of chapter 4")]
    NoFigure {
        /// Which experiment.
        name: String,
        /// Which machine.
        machine: String,
        /// Which figure.
        figure: String,
    },
}

/// An experiment to be run.
pub struct Run<'a> {
    /// Which.
    pub experiment: &'a Experiment,
    /// How much of it.
    pub amount: Amount,
    /// One run of a workload must end within this, by the real clock.
    pub patience: Duration,
}

/// One value to be measured.
struct Cell<'a> {
    series: &'a Series,
    x: &'a AxisPlace,
    setting: Setting,
    key: String,
}

impl Run<'_> {
    /// Run all of it.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn go(
        &self,
        ground: &mut dyn Ground,
        memo: &mut Memo,
        draw: &mut dyn FnMut(Progress),
    ) -> Result<ExperimentOutcome, RunError> {
        let (experiment, mode, begin) = (self.experiment, ground.mode(), Instant::now());
        let skip = &experiment.amounts(mode).skip;
        if !skip.is_empty() {
            let (name, why) = (experiment.name.clone(), skip.clone());
            return Err(RunError::Skipped { name, mode: mode.word(), why });
        }
        let repeat = experiment.repeat(mode, &self.amount).max(1);
        let cells = self.cells(ground)?;
        self.measure(ground, &cells, repeat as usize, memo, draw)?;
        let machine = ground.machine().cloned();
        let curve = |series: &Series| {
            let own = || cells.iter().filter(|cell| cell.series.name == series.name);
            let points = own().map(|cell| self.point(cell, memo, mode, machine.as_ref())).collect();
            let per_second = own().filter_map(|cell| per_second(experiment, cell, memo)).max_by_key(Vec::len);
            self.with_published(FigureSeries {
                name: series.name.clone(),
                metric: series.metric,
                points,
                per_second: per_second.unwrap_or_default(),
            })
        };
        let mut outcome = ExperimentOutcome {
            name: experiment.name.clone(),
            mode: Some(mode),
            machine: machine.as_ref().map_or_else(String::new, |machine| machine.name.clone()),
            scale: experiment.scale(mode, &self.amount),
            fewer: experiment.fewer_processes(mode, &self.amount),
            quick: self.amount.quick,
            repeat,
            seconds: 0.0,
            sizes: self.sizes(&cells)?,
            provenance: None,
            curves: experiment.series.iter().map(curve).collect(),
            checks: Vec::new(),
        };
        outcome.judge(&experiment.check);
        outcome.seconds = begin.elapsed().as_secs_f64();
        Ok(outcome)
    }

    /// The amounts of all cells, next to the paper's.
    fn sizes(&self, cells: &[Cell<'_>]) -> Result<Vec<Size>, RunError> {
        let of = |cell: &Cell<'_>| {
            let paper = self.experiment.setting_of_the_paper(cell.series, cell.x);
            Ok((cell.setting.clone(), paper.map_err(|why| self.wrong(cell.series, cell.x, why))?))
        };
        let settings = cells.iter().map(of).collect::<Result<Vec<_>, _>>()?;
        Ok(provenance::sizes(self.experiment, &settings))
    }

    fn wrong(&self, series: &Series, x: &AxisPlace, why: String) -> RunError {
        let (name, series) = (self.experiment.name.clone(), series.name.clone());
        RunError::Setting { name, series, x: x.to_string(), why }
    }

    fn cells(&self, ground: &dyn Ground) -> Result<Vec<Cell<'_>>, RunError> {
        let (experiment, mode) = (self.experiment, ground.mode());
        // All of it: a machine with another cost has the same name.
        let machine = ground.machine().map(|machine| format!("{machine:?}")).unwrap_or_default();
        let mut cells = Vec::new();
        for series in &experiment.series {
            for x in experiment.values(mode, &self.amount) {
                let setting = experiment.setting(mode, &self.amount, series, x);
                let setting = setting.map_err(|why| self.wrong(series, x, why))?;
                let key = format!("{} {machine} {} {setting:?}", mode.word(), experiment.workload.word());
                cells.push(Cell { series, x, setting, key });
            }
        }
        Ok(cells)
    }

    /// Run the settings that were not run yet.
    fn measure(
        &self,
        ground: &mut dyn Ground,
        cells: &[Cell<'_>],
        repeat: usize,
        memo: &mut Memo,
        draw: &mut dyn FnMut(Progress),
    ) -> Result<(), RunError> {
        let mut turns: Vec<&Cell<'_>> = Vec::new();
        for cell in cells {
            if !memo.0.contains_key(&cell.key) && !turns.iter().any(|turn| turn.key == cell.key) {
                turns.push(cell);
            }
        }
        draw(Progress::Begin { steps: (turns.len() * repeat) as u64 });
        let mut runs: BTreeMap<&str, Vec<Phases>> = BTreeMap::new();
        let mut step = 0;
        for repetition in 1..=repeat {
            for cell in &turns {
                let what = format!("{} at {}", cell.series.name, cell.x);
                let told = format!("{} {}: {what}", self.experiment.name, ground.mode().word());
                draw(Progress::Step { step, what: told, repetition });
                step += 1;
                let plan = Plan::new(&self.experiment.workload, &cell.setting, self.patience);
                let failed =
                    |why| RunError::Failed { name: self.experiment.name.clone(), what: what.clone(), why };
                let all = ground.run(&plan).map_err(failed)?;
                let phases = together(&plan.workload, &all).map_err(failed)?;
                runs.entry(&cell.key).or_default().push(phases);
            }
        }
        draw(Progress::End);
        memo.0.extend(runs.into_iter().map(|(key, phases)| (key.to_owned(), phases)));
        Ok(())
    }

    fn point(&self, cell: &Cell<'_>, memo: &Memo, mode: Mode, machine: Option<&Machine>) -> Point {
        let Run { experiment, .. } = self;
        let (workload, metric) = (&experiment.workload, cell.series.metric);
        let phase = experiment.phase(cell.series, cell.x);
        let processes = cell.setting.process_count();
        let value = |phases: &Phases| {
            let of = |name: &str| {
                let (_, phase) = phases.iter().find(|(known, _)| known == name)?;
                value(phase, metric, workload.clock(), mode, processes)
            };
            let less = if cell.series.less.is_empty() { Some(0.0) } else { of(&cell.series.less) };
            Some(of(phase)? - less?)
        };
        let values: Vec<f64> = memo.0.get(&cell.key).into_iter().flatten().filter_map(value).collect();
        let bound = |machine| bound::of(workload, phase, metric, &cell.setting, machine);
        Point {
            x: cell.x.clone(),
            ours: Spread::of(&values),
            bound: machine.and_then(bound).filter(|_| cell.series.less.is_empty()),
            published: experiment.published(&cell.series.name, cell.x).map(|point| point.value),
        }
    }

    /// Published values without a run are listed, too.
    fn with_published(&self, mut curve: FigureSeries) -> FigureSeries {
        for published in self.experiment.published.iter().filter(|point| point.series == curve.name) {
            if !curve.points.iter().any(|point| point.x == published.x) {
                let (x, published) = (published.x.clone(), Some(published.value));
                curve.points.push(Point { x, ours: None, bound: None, published });
            }
        }
        let number = |point: &Point| point.x.number().unwrap_or(f64::MAX);
        curve.points.sort_by(|a, b| number(a).total_cmp(&number(b)));
        curve
    }

    /// An experiment of which nothing is run: the curves of chapter 4.
    ///
    /// # Errors
    /// When there is no such figure.
    pub fn compute(&self, machine: &Machine) -> Result<ExperimentOutcome, RunError> {
        let experiment = self.experiment;
        let Workload::Chapter4 { figure: number } = &experiment.workload else {
            return Err(RunError::NoFigure {
                name: experiment.name.clone(),
                machine: machine.name.clone(),
                figure: experiment.workload.word().to_owned(),
            });
        };
        let figure = bound::chapter4_figure(machine, number).ok_or_else(|| RunError::NoFigure {
            name: experiment.name.clone(),
            machine: machine.name.clone(),
            figure: number.clone(),
        })?;
        let curve = |series: &Series| {
            let known = figure.curve(&series.phase);
            let point = |x: &AxisPlace| {
                let value = known.zip(x.number()).and_then(|(curve, x)| interpolated(&curve.points, x));
                Point {
                    x: x.clone(),
                    ours: value.and_then(|value| Spread::of(&[value])),
                    bound: None,
                    published: experiment.published(&series.name, x).map(|point| point.value),
                }
            };
            let points = experiment.axis.values.iter().map(point).collect();
            self.with_published(FigureSeries {
                name: series.name.clone(),
                metric: series.metric,
                points,
                per_second: Vec::new(),
            })
        };
        let mut outcome = ExperimentOutcome {
            name: experiment.name.clone(),
            mode: None,
            machine: machine.name.clone(),
            scale: 1.0,
            fewer: None,
            quick: false,
            repeat: 1,
            seconds: 0.0,
            sizes: Vec::new(),
            provenance: None,
            curves: experiment.series.iter().map(curve).collect(),
            checks: Vec::new(),
        };
        outcome.judge(&experiment.check);
        Ok(outcome)
    }
}

/// The metric of a phase.
fn value(phase: &Phase, metric: Metric, clock: Clock, mode: Mode, processes: u32) -> Option<f64> {
    let ns = match (clock, mode) {
        (Clock::First, _) => phase.first_ns,
        // Where processes outnumber cores one may end before another begins: only wall-clock time is right.
        (Clock::Longest, Mode::Real) => phase.wall_ns,
        (Clock::Longest, Mode::Simulated) => phase.longest_ns,
    };
    let seconds = ns as f64 / 1e9;
    if phase.ops == 0 || ns == 0 {
        return None;
    }
    Some(match metric {
        Metric::PerS => phase.ops as f64 / seconds,
        Metric::MbPerS => phase.bytes as f64 / 1e6 / seconds,
        Metric::S => seconds,
        Metric::Us => seconds * 1e6 * f64::from(processes) / phase.ops as f64,
    })
}

fn per_second(experiment: &Experiment, cell: &Cell<'_>, memo: &Memo) -> Option<Vec<u64>> {
    let phases = memo.0.get(&cell.key)?.first()?;
    let name = experiment.phase(cell.series, cell.x);
    let (_, phase) = phases.iter().find(|(known, _)| known == name)?;
    (!phase.per_second.is_empty()).then(|| phase.per_second.clone())
}

/// The value of a curve at a place within it.
fn interpolated(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let at = points.windows(2).find(|pair| (pair[0].0..=pair[1].0).contains(&x))?;
    let ((x0, y0), (x1, y1)) = (at[0], at[1]);
    Some(if x1 > x0 { y0 + (y1 - y0) * (x - x0) / (x1 - x0) } else { y0 })
}

#[cfg(test)]
mod tests;
