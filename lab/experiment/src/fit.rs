//! Fits a machine's costs by simulation to published values, and shows the effect of each fitted cost.
//!
//! With `[[fit]]` an experiment names the costs of its machine that are to be found, each with the published
//! row that determines it: as many unknowns as equations. Only the series of these rows are run, so nothing
//! else can be fitted on.
//!
//! ```text
//!   costs c ─▶ simulated rates r(c)           find c with r(c) = published
//!   ln c ← ln c − J⁻¹ · ln (r ÷ published)    J: the derivatives of ln r by ln c, by one run for each cost;
//!                                             later steps improve J by secants (Broyden)
//! ```
//! All values are logarithms: costs stay positive, and a residual of 0.01 is one per cent. *Residuals* are
//! reported for every published row of the series that were run, also for rows on which nothing was fitted.
//! *Sensitivity* is the change of each rate, in per cent, when one cost alone is half as large, and when it
//! is half as large again.

use crate::cost;
use crate::file::{Experiment, Metric};
use crate::outcome::ExperimentOutcome;
use crate::place::AxisPlace;
use serde::{Deserialize, Serialize};
use shoal_model::{Machine, short};
use std::fmt::Write as _;

/// A cost to be found, and the published row that determines it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit {
    /// Its key in the machine's file.
    pub cost: String,
    /// The row's series.
    pub series: String,
    /// The row's place.
    pub x: AxisPlace,
}

/// A cost that was found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FittedCost {
    /// Its key.
    pub cost: String,
    /// The value in the machine's file.
    pub before: f64,
    /// The value fitted to the published row.
    pub after: f64,
}

/// A published row and its simulated value with the fitted costs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Residual {
    /// Its series.
    pub series: String,
    /// Its place.
    pub x: AxisPlace,
    /// The published value.
    pub published: f64,
    /// The simulated value.
    pub simulated: f64,
    /// Percent that it is above.
    pub percent: f64,
    /// The cost that was fitted on it; empty: none was.
    pub cost: String,
}

/// The result of a fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fitted {
    /// The costs.
    pub costs: Vec<FittedCost>,
    /// The rows.
    pub rows: Vec<Residual>,
    /// Simulated runs that it took.
    pub runs: u32,
    /// Every row that was fitted on is as near as was requested. Else the costs are only the last ones that
    /// were tried.
    pub is_near: bool,
}

/// A rate, and its values when one cost alone is changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Moved {
    /// Its series.
    pub series: String,
    /// Its place.
    pub x: AxisPlace,
    /// Its value.
    pub value: f64,
    /// Percent by which it moves with each cost, half as large and half as large again.
    pub percent: Vec<(f64, f64)>,
}

/// How all rates of an experiment move.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sensitivity {
    /// The costs, by their keys.
    pub costs: Vec<String>,
    /// The rates.
    pub rows: Vec<Moved>,
}

/// Runs an experiment on a machine.
pub type Simulate<'a> = &'a mut dyn FnMut(&Experiment, &Machine) -> Result<ExperimentOutcome, String>;

/// Steps, at most.
const STEPS_MAX: u32 = 8;
/// Near enough: the largest residual, in logarithms.
const NEAR: f64 = 0.01;
/// A step changes no cost by more than this, in logarithms.
const STEP_MAX: f64 = 0.7;
/// Each cost is made so many times as large to see which rates move.
const TRIAL: f64 = 1.25;
/// Half as large, and half as large again.
const FACTORS: [f64; 2] = [0.5, 1.5];

/// Fit the machine on the rows that the experiment names.
///
/// # Errors
/// When it names none, a run fails, or the rows do not distinguish the costs.
pub fn fit(experiment: &Experiment, machine: &Machine, simulate: Simulate<'_>) -> Result<Fitted, String> {
    let fits = &experiment.fit;
    if fits.is_empty() {
        return Err(format!(
            "{} names nothing to fit: write [[fit]] with cost, series and x",
            experiment.name
        ));
    }
    let few = of_series(experiment, |name| fits.iter().any(|fit| fit.series == name));
    let mut runs = 0;
    let mut rates = |machine: &Machine| {
        runs += 1;
        simulate(&few, machine)
    };
    let mut here = machine.clone();
    let mut outcome = rates(&here)?;
    let mut off = residuals(experiment, &outcome)?;
    let mut slopes = Vec::new();
    for fit in fits {
        let tried = residuals(experiment, &rates(&cost::scaled(&here, &fit.cost, TRIAL)?)?)?;
        slopes.push(off.iter().zip(&tried).map(|(before, after)| (after - before) / TRIAL.ln()).collect());
    }
    let mut slopes = transposed(&slopes);
    for _ in 0..STEPS_MAX {
        if largest(&off) < NEAR {
            break;
        }
        let wanted: Vec<f64> = off.iter().map(|off| -off).collect();
        let step =
            solved(slopes.clone(), wanted).ok_or("the rows do not tell the costs apart: fit fewer costs")?;
        let step: Vec<f64> = step.iter().map(|step| step.clamp(-STEP_MAX, STEP_MAX)).collect();
        for (fit, step) in fits.iter().zip(&step) {
            here = cost::scaled(&here, &fit.cost, step.exp())?;
        }
        outcome = rates(&here)?;
        let now = residuals(experiment, &outcome)?;
        learn(&mut slopes, &step, &off, &now);
        off = now;
    }
    let found = |fit: &Fit| {
        let (before, after) = (cost::of(machine, &fit.cost)?, cost::of(&here, &fit.cost)?);
        Ok::<FittedCost, String>(FittedCost { cost: fit.cost.clone(), before, after })
    };
    let costs = fits.iter().map(found).collect::<Result<_, _>>()?;
    Ok(Fitted { costs, rows: rows(experiment, &outcome), runs, is_near: largest(&off) < NEAR })
}

/// How all rates of an experiment move with the costs that its machine was fitted with; of an axis of numbers
/// at its last place.
///
/// # Errors
/// When a run fails.
pub fn sensitivity(
    experiment: &Experiment,
    costs: &[String],
    machine: &Machine,
    simulate: Simulate<'_>,
) -> Result<Sensitivity, String> {
    let mut one = of_series(experiment, |_| true);
    if let Some(last) = experiment.axis.values.last().filter(|place| place.number().is_some()) {
        one.simulated.values = vec![last.clone()];
    }
    let rates = |outcome: &ExperimentOutcome| -> Vec<(String, AxisPlace, f64)> {
        let points =
            outcome.curves.iter().flat_map(|curve| curve.points.iter().map(move |point| (curve, point)));
        points.filter_map(|(curve, p)| Some((curve.name.clone(), p.x.clone(), p.ours?.median))).collect()
    };
    let usual = rates(&simulate(&one, machine)?);
    let new = |(series, x, value): &(String, AxisPlace, f64)| Moved {
        series: series.clone(),
        x: x.clone(),
        value: *value,
        percent: Vec::new(),
    };
    let mut rows: Vec<Moved> = usual.iter().map(new).collect();
    for key in costs {
        let mut at = |factor| Ok::<_, String>(rates(&simulate(&one, &cost::scaled(machine, key, factor)?)?));
        let (less, more) = (at(FACTORS[0])?, at(FACTORS[1])?);
        for row in &mut rows {
            let percent = |rates: &[(String, AxisPlace, f64)]| {
                let rate = rates.iter().find(|(series, x, _)| *series == row.series && *x == row.x);
                let rate = rate
                    .ok_or_else(|| format!("{} at {} has no rate with another {key}", row.series, row.x))?;
                Ok::<f64, String>((rate.2 / row.value - 1.0) * 100.0)
            };
            let both = (percent(&less)?, percent(&more)?);
            row.percent.push(both);
        }
    }
    Ok(Sensitivity { costs: costs.to_vec(), rows })
}

/// The experiment with these series alone, and nothing to be checked.
fn of_series(experiment: &Experiment, keeps: impl Fn(&str) -> bool) -> Experiment {
    let mut few = experiment.clone();
    few.series.retain(|series| keeps(&series.name));
    few.published.retain(|point| keeps(&point.series));
    few.check.clear();
    few
}

fn simulated(outcome: &ExperimentOutcome, series: &str, x: &AxisPlace) -> Option<f64> {
    let point = outcome.curve(series)?.points.iter().find(|point| point.x == *x)?;
    Some(point.ours?.median)
}

/// By how much each row is above its published value, in logarithms.
fn residuals(experiment: &Experiment, outcome: &ExperimentOutcome) -> Result<Vec<f64>, String> {
    let of = |fit: &Fit| {
        let ours = simulated(outcome, &fit.series, &fit.x).filter(|ours| *ours > 0.0);
        let published = experiment.published(&fit.series, &fit.x).map(|point| point.value);
        let both = ours.zip(published).map(|(ours, published)| (ours / published).ln());
        both.ok_or_else(|| format!("{} at {} has nothing to fit on", fit.series, fit.x))
    };
    experiment.fit.iter().map(of).collect()
}

fn rows(experiment: &Experiment, outcome: &ExperimentOutcome) -> Vec<Residual> {
    let of = |point: &crate::file::Published| {
        let simulated = simulated(outcome, &point.series, &point.x)?;
        let fit = experiment.fit.iter().find(|fit| fit.series == point.series && fit.x == point.x);
        Some(Residual {
            series: point.series.clone(),
            x: point.x.clone(),
            published: point.value,
            simulated,
            percent: (simulated / point.value - 1.0) * 100.0,
            cost: fit.map_or(String::new(), |fit| fit.cost.clone()),
        })
    };
    experiment.published.iter().filter_map(of).collect()
}

fn largest(off: &[f64]) -> f64 {
    off.iter().map(|off| off.abs()).fold(0.0, f64::max)
}

fn transposed(columns: &[Vec<f64>]) -> Vec<Vec<f64>> {
    (0..columns.len()).map(|row| columns.iter().map(|column| column[row]).collect()).collect()
}

/// Broyden's rule: the slopes become such that they would have predicted the step's effect.
fn learn(slopes: &mut [Vec<f64>], step: &[f64], before: &[f64], after: &[f64]) {
    let length: f64 = step.iter().map(|step| step * step).sum();
    if length == 0.0 {
        return;
    }
    for ((row, before), after) in slopes.iter_mut().zip(before).zip(after) {
        let foretold: f64 = row.iter().zip(step).map(|(slope, step)| slope * step).sum();
        let missed = (after - before) - foretold;
        row.iter_mut().zip(step).for_each(|(slope, step)| *slope += missed * step / length);
    }
}

/// Gauss's elimination with the largest pivot; `None` where there is none.
fn solved(mut rows: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    const NOTHING: f64 = 1e-6;
    let n = right.len();
    for at in 0..n {
        let pivot = (at..n).max_by(|a, b| rows[*a][at].abs().total_cmp(&rows[*b][at].abs()))?;
        if rows[pivot][at].abs() < NOTHING {
            return None;
        }
        rows.swap(at, pivot);
        right.swap(at, pivot);
        let (above, below) = rows.split_at_mut(at + 1);
        let (known, pivot) = (right[at], &above[at]);
        for (row, right) in below.iter_mut().zip(&mut right[at + 1..]) {
            let share = row[at] / pivot[at];
            row.iter_mut().zip(pivot).for_each(|(value, of)| *value -= share * of);
            *right -= share * known;
        }
    }
    for at in (0..n).rev() {
        let known: f64 = (at + 1..n).map(|later| rows[at][later] * right[later]).sum();
        right[at] = (right[at] - known) / rows[at][at];
    }
    Some(right)
}

/// The fit in Markdown, which is read as plain text too.
pub fn fit_table(fitted: &Fitted) -> String {
    let mut text = "| cost | in the file | fitted |\n|---|---|---|\n".to_owned();
    for found in &fitted.costs {
        let _ = writeln!(text, "| {} | {:.1} | {:.1} |", found.cost, found.before, found.after);
    }
    text += "\n| row | published | simulated | off | fitted on it |\n|---|---|---|---|---|\n";
    for row in &fitted.rows {
        let cost = if row.cost.is_empty() { "–" } else { &row.cost };
        let (published, simulated) = (short(row.published), short(row.simulated));
        let _ = writeln!(
            text,
            "| {}, {} | {published} | {simulated} | {:+.1} % | {cost} |",
            row.series, row.x, row.percent
        );
    }
    let _ = writeln!(text, "\n{} simulated runs.", fitted.runs);
    if !fitted.is_near {
        let percent = NEAR * 100.0;
        let _ = writeln!(
            text,
            "NOT FITTED: a row is still off by more than {percent} %. Begin nearer, by what the machine's file has, or fit another cost."
        );
    }
    text
}

/// The sensitivity in Markdown: the change of each rate, in percent, with each cost at half and at half as
/// much again.
pub fn sensitivity_table(experiment: &Experiment, sensitivity: &Sensitivity) -> String {
    let mut text = format!("| series | {} | ours |", experiment.axis.label);
    for key in &sensitivity.costs {
        let _ = write!(text, " {key} −50 / +50 % |");
    }
    text += &format!("\n|---|---|---|{}\n", "---|".repeat(sensitivity.costs.len()));
    for row in &sensitivity.rows {
        let metric = experiment.series(&row.series).map_or(Metric::default(), |series| series.metric);
        let _ = write!(text, "| {} | {} | {} {} |", row.series, row.x, short(row.value), metric.unit());
        for (less, more) in &row.percent {
            let _ = write!(text, " {less:+.0} / {more:+.0} |");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests;
