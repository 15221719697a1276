//! Checks of the shape of curves: a paper's claims, as data. Each check can fail.
//!
//! A check names values (`of`, `to`, `series`) at places (`x`, `from`, `until`) by the names of its file. If
//! a place was not run (a short run, a mode with fewer places), the verdict is *not seen*.
//!
//! Every check states its [`Kind`]: fitted values, identities and comparisons with a bound of our own are not
//! counted with a paper's findings.

mod kind;

pub use kind::Kind;

use crate::file::Experiment;
use crate::outcome::{ExperimentOutcome, FigureSeries, Point};
use crate::place::AxisPlace;
use crate::run::{Amount, Mode};
use serde::{Deserialize, Serialize};
use shoal_model::short;

/// A check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The paper's claim.
    pub claim: String,
    /// Its meaning when it holds.
    pub kind: Kind,
    /// The same of real runs, where that differs.
    #[serde(default)]
    pub kind_real: Option<Kind>,
    /// The required shape.
    pub shape: Shape,
    /// Only in this mode: the other's machine is not the paper's.
    #[serde(default)]
    pub only: Option<Mode>,
    /// The reason why it does not hold here, where that is known: it is printed, and the check still fails.
    #[serde(default)]
    pub why: String,
}

/// The required shape.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Shape {
    /// One series is at least so many times another.
    AtLeast(Ratio),
    /// One series is at most so many times another.
    AtMost(Ratio),
    /// It gains on the other along the axis: the ratio of both is larger at `until` than at `from`.
    Widens(Pair),
    /// One series is below another at `from` and above it at `until`.
    Crosses(Pair),
    /// No value of a series is above another's at the same place by more than so many percent.
    BoundedBy(Above),
    /// A series is at least so many times larger at `until` than at `from`.
    Rises(Span),
    /// A series is at most so many times larger at `until` than at `from`.
    RisesAtMost(Span),
    /// A series is at least so many times smaller at `until` than at `from`.
    Falls(Span),
    /// From `from` to `until` a series differs from its mean by at most so many percent.
    FlatWithin(Wander),
    /// From `from` to `until` a series grows as the axis does, within so many percent.
    Linear(Wander),
    /// A value is the published one, within so many percent.
    Within(Near),
    /// This binds the value's bound.
    Binds(Binding),
    /// No value of a series is better than its bound by more than so many percent.
    BelowBound(Slack),
    /// A value is at least so many percent of its bound.
    Reaches(Near),
}

/// Two series at a place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// Of this series.
    pub of: String,
    /// To this one.
    pub to: String,
    /// Where.
    pub x: AxisPlace,
    /// So many times.
    pub ratio: f64,
}

/// Two series at two places.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// Of this series.
    pub of: String,
    /// To this one.
    pub to: String,
    /// From here.
    pub from: AxisPlace,
    /// To here.
    pub until: AxisPlace,
}

/// Two series everywhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Above {
    /// Of this series.
    pub of: String,
    /// By this one.
    pub by: String,
    /// So much more is no more, percent.
    pub percent: f64,
}

/// One series at two places.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// Which.
    pub series: String,
    /// From here.
    pub from: AxisPlace,
    /// To here.
    pub until: AxisPlace,
    /// So many times.
    pub ratio: f64,
}

/// One series from one place to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wander {
    /// Which.
    pub series: String,
    /// From here.
    pub from: AxisPlace,
    /// To here.
    pub until: AxisPlace,
    /// So much, percent.
    pub percent: f64,
}

/// A value next to its published one, or next to its bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Near {
    /// Which series.
    pub series: String,
    /// Where.
    pub x: AxisPlace,
    /// So much, percent.
    pub percent: f64,
}

/// A value's bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    /// Which series.
    pub series: String,
    /// Where.
    pub x: AxisPlace,
    /// The limit that binds, as [`shoal_model::Limit::word`] says it.
    pub limit: String,
}

/// A series next to its bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slack {
    /// Which.
    pub series: String,
    /// So much better is no better, percent.
    pub percent: f64,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "words")]
pub enum Verdict {
    /// It is so: with which numbers.
    Holds(String),
    /// It is not.
    Fails(String),
    /// Its subject was not run.
    NotSeen(String),
}

impl Verdict {
    fn of(holds: bool, words: String) -> Verdict {
        if holds { Verdict::Holds(words) } else { Verdict::Fails(words) }
    }

    /// It does not hold.
    pub fn is_failure(&self) -> bool {
        matches!(self, Verdict::Fails(_))
    }

    /// In words.
    pub fn words(&self) -> String {
        match self {
            Verdict::Holds(words) => format!("holds: {words}"),
            Verdict::Fails(words) => format!("DOES NOT HOLD: {words}"),
            Verdict::NotSeen(words) => format!("not seen: {words}"),
        }
    }
}

/// A value that was not measured, in words.
type Missing = String;

impl Check {
    /// Whether it is so.
    pub fn verdict(&self, outcome: &ExperimentOutcome) -> Verdict {
        if let (Some(only), Some(mode)) = (self.only, outcome.mode)
            && only != mode
        {
            return Verdict::NotSeen(format!("it is of {} runs", only.word()));
        }
        self.shape.holds(outcome).unwrap_or_else(Verdict::NotSeen)
    }

    /// All it speaks of is in the file, and in every mode that it is for.
    pub(crate) fn refers(&self, experiment: &Experiment) -> Result<(), String> {
        if self.claim.is_empty() {
            return Err("say what is claimed".to_owned());
        }
        self.suits(experiment)?;
        for series in self.shape.series() {
            experiment.series(series).ok_or_else(|| format!("there is no series `{series}` in this file"))?;
        }
        for mode in [Mode::Real, Mode::Simulated] {
            let is_run =
                experiment.amounts(mode).skip.is_empty() && self.only.is_none_or(|only| only == mode);
            let values = experiment.values(mode, &Amount::default());
            for place in self.shape.places().into_iter().filter(|_| is_run) {
                if !values.contains(place) {
                    return Err(format!("nothing is run at {place} in {} runs", mode.word()));
                }
            }
        }
        match &self.shape {
            Shape::Within(near) if experiment.published(&near.series, &near.x).is_none() => {
                Err(format!("nothing was published of `{}` at {}", near.series, near.x))
            }
            Shape::Binds(binding) if !crate::bound::LIMITS.contains(&binding.limit.as_str()) => Err(format!(
                "`{}` is no limit: write one of {}",
                binding.limit,
                crate::bound::LIMITS.join(", ")
            )),
            _ => Ok(()),
        }
    }
}

impl Shape {
    /// The series that it speaks of.
    pub fn series(&self) -> Vec<&str> {
        match self {
            Shape::AtLeast(r) | Shape::AtMost(r) => vec![&r.of, &r.to],
            Shape::Widens(p) | Shape::Crosses(p) => vec![&p.of, &p.to],
            Shape::BoundedBy(a) => vec![&a.of, &a.by],
            Shape::Rises(s) | Shape::RisesAtMost(s) | Shape::Falls(s) => vec![&s.series],
            Shape::FlatWithin(w) | Shape::Linear(w) => vec![&w.series],
            Shape::Within(n) | Shape::Reaches(n) => vec![&n.series],
            Shape::Binds(b) => vec![&b.series],
            Shape::BelowBound(s) => vec![&s.series],
        }
    }

    /// The places that it speaks of.
    pub fn places(&self) -> Vec<&AxisPlace> {
        match self {
            Shape::AtLeast(r) | Shape::AtMost(r) => vec![&r.x],
            Shape::Widens(p) | Shape::Crosses(p) => vec![&p.from, &p.until],
            Shape::BoundedBy(_) | Shape::BelowBound(_) => Vec::new(),
            Shape::Rises(s) | Shape::RisesAtMost(s) | Shape::Falls(s) => vec![&s.from, &s.until],
            Shape::FlatWithin(w) | Shape::Linear(w) => vec![&w.from, &w.until],
            Shape::Within(n) | Shape::Reaches(n) => vec![&n.x],
            Shape::Binds(b) => vec![&b.x],
        }
    }

    fn holds(&self, outcome: &ExperimentOutcome) -> Result<Verdict, Missing> {
        match self {
            Shape::AtLeast(r) => {
                let (ratio, words) = ratio(outcome, &r.of, &r.to, &r.x)?;
                Ok(Verdict::of(ratio >= r.ratio, format!("{words}, at least {}", factor(r.ratio))))
            }
            Shape::AtMost(r) => {
                let (ratio, words) = ratio(outcome, &r.of, &r.to, &r.x)?;
                Ok(Verdict::of(ratio <= r.ratio, format!("{words}, at most {}", factor(r.ratio))))
            }
            Shape::Widens(p) => {
                let (first, from) = ratio(outcome, &p.of, &p.to, &p.from)?;
                let (last, until) = ratio(outcome, &p.of, &p.to, &p.until)?;
                Ok(Verdict::of(last > first, format!("{from}; {until}")))
            }
            Shape::Crosses(p) => {
                let (first, from) = ratio(outcome, &p.of, &p.to, &p.from)?;
                let (last, until) = ratio(outcome, &p.of, &p.to, &p.until)?;
                Ok(Verdict::of(first < 1.0 && last > 1.0, format!("{from}; {until}")))
            }
            Shape::BoundedBy(a) => bounded_by(outcome, a),
            Shape::Rises(s) => {
                let (first, last, words) = span(outcome, &s.series, &s.from, &s.until)?;
                let words = format!("{words}: {}, at least {}", factor(last / first), factor(s.ratio));
                Ok(Verdict::of(last >= first * s.ratio, words))
            }
            Shape::RisesAtMost(s) => {
                let (first, last, words) = span(outcome, &s.series, &s.from, &s.until)?;
                let words = format!("{words}: {}, at most {}", factor(last / first), factor(s.ratio));
                Ok(Verdict::of(last <= first * s.ratio, words))
            }
            Shape::Falls(s) => {
                let (first, last, words) = span(outcome, &s.series, &s.from, &s.until)?;
                let words = format!("{words}: {}, at least {}", factor(first / last), factor(s.ratio));
                Ok(Verdict::of(first >= last * s.ratio, words))
            }
            Shape::FlatWithin(w) => flat_within(outcome, w),
            Shape::Linear(w) => linear(outcome, w),
            Shape::Within(n) => within(outcome, n),
            Shape::Binds(b) => binds(outcome, b),
            Shape::BelowBound(s) => below_bound(outcome, s),
            Shape::Reaches(n) => reaches(outcome, n),
        }
    }
}

fn factor(ratio: f64) -> String {
    format!("{ratio:.2} times")
}

fn curve<'a>(outcome: &'a ExperimentOutcome, series: &str) -> Result<&'a FigureSeries, Missing> {
    outcome.curve(series).ok_or_else(|| format!("`{series}` was not run"))
}

fn point<'a>(outcome: &'a ExperimentOutcome, series: &str, x: &AxisPlace) -> Result<&'a Point, Missing> {
    let found = curve(outcome, series)?.points.iter().find(|point| point.x == *x);
    found.ok_or_else(|| format!("`{series}` was not run at {x}"))
}

fn value(outcome: &ExperimentOutcome, series: &str, x: &AxisPlace) -> Result<f64, Missing> {
    let ours = point(outcome, series, x)?.ours;
    ours.map(|spread| spread.median).ok_or_else(|| format!("`{series}` was not run at {x}"))
}

fn ratio(outcome: &ExperimentOutcome, of: &str, to: &str, x: &AxisPlace) -> Result<(f64, String), Missing> {
    let (a, b) = (value(outcome, of, x)?, value(outcome, to, x)?);
    let ratio = a / b;
    Ok((ratio, format!("at {x} {of} {} to {to} {} is {}", short(a), short(b), factor(ratio))))
}

fn span(
    outcome: &ExperimentOutcome,
    series: &str,
    from: &AxisPlace,
    until: &AxisPlace,
) -> Result<(f64, f64, String), Missing> {
    let (first, last) = (value(outcome, series, from)?, value(outcome, series, until)?);
    Ok((first, last, format!("{series} {} at {from}, {} at {until}", short(first), short(last))))
}

/// The values of a series from one place to another, with their places.
fn between<'a>(outcome: &'a ExperimentOutcome, w: &Wander) -> Result<Vec<(&'a AxisPlace, f64)>, Missing> {
    let _ = (value(outcome, &w.series, &w.from)?, value(outcome, &w.series, &w.until)?);
    let points = &curve(outcome, &w.series)?.points;
    let at = |x: &AxisPlace| points.iter().position(|point| point.x == *x).unwrap_or(0);
    let (first, last) = (at(&w.from).min(at(&w.until)), at(&w.from).max(at(&w.until)));
    Ok(points[first..=last].iter().filter_map(|p| Some((&p.x, p.ours?.median))).collect())
}

fn flat_within(outcome: &ExperimentOutcome, w: &Wander) -> Result<Verdict, Missing> {
    let values = between(outcome, w)?;
    let mean = values.iter().map(|(_, y)| y).sum::<f64>() / values.len() as f64;
    let off = |y: f64| (y - mean).abs() / mean * 100.0;
    let (x, worst) = values.iter().fold(
        (&w.from, 0.0),
        |most, (x, y)| {
            if off(*y) > most.1 { (*x, off(*y)) } else { most }
        },
    );
    let words = format!(
        "{} is {worst:.0} % off its mean of {} at {x}, at most {} %",
        w.series,
        short(mean),
        w.percent
    );
    Ok(Verdict::of(worst <= w.percent, words))
}

fn linear(outcome: &ExperimentOutcome, w: &Wander) -> Result<Verdict, Missing> {
    let (first, last, words) = span(outcome, &w.series, &w.from, &w.until)?;
    let (Some(from), Some(until)) = (w.from.number(), w.until.number()) else {
        return Err("names have no distance".to_owned());
    };
    let off = ((last / first) / (until / from) - 1.0) * 100.0;
    let words = format!("{words}: {off:+.0} % of growing as the axis does, at most {} %", w.percent);
    Ok(Verdict::of(off.abs() <= w.percent, words))
}

fn within(outcome: &ExperimentOutcome, n: &Near) -> Result<Verdict, Missing> {
    let ours = value(outcome, &n.series, &n.x)?;
    let published = point(outcome, &n.series, &n.x)?.published;
    let published = published.ok_or_else(|| format!("nothing was published at {}", n.x))?;
    let off = (ours / published - 1.0) * 100.0;
    let words = format!(
        "{} at {}: {}, published {}: {off:+.0} %, at most {} %",
        n.series,
        n.x,
        short(ours),
        short(published),
        n.percent
    );
    Ok(Verdict::of(off.abs() <= n.percent, words))
}

fn bounded_by(outcome: &ExperimentOutcome, a: &Above) -> Result<Verdict, Missing> {
    let mut worst: Option<(f64, &AxisPlace)> = None;
    for point in &curve(outcome, &a.of)?.points {
        if let (Some(ours), Ok(by)) = (point.ours, value(outcome, &a.by, &point.x)) {
            let over = (ours.median / by - 1.0) * 100.0;
            worst = Some(worst.filter(|(most, _)| *most >= over).unwrap_or((over, &point.x)));
        }
    }
    let (over, x) = worst.ok_or_else(|| format!("`{}` and `{}` were not run at one place", a.of, a.by))?;
    let words = format!("{} is {over:+.0} % of {} at {x} at most, allowed {} %", a.of, a.by, a.percent);
    Ok(Verdict::of(over <= a.percent, words))
}

fn binds(outcome: &ExperimentOutcome, b: &Binding) -> Result<Verdict, Missing> {
    let bound = point(outcome, &b.series, &b.x)?.bound.as_ref();
    let bound = bound.ok_or_else(|| format!("nothing bounds `{}` at {}", b.series, b.x))?;
    let words = format!("{} at {}: {} binds, claimed is {}", b.series, b.x, bound.binds, b.limit);
    Ok(Verdict::of(bound.binds == b.limit, words))
}

fn below_bound(outcome: &ExperimentOutcome, s: &Slack) -> Result<Verdict, Missing> {
    let curve = curve(outcome, &s.series)?;
    let percents = curve.points.iter().filter_map(|point| Some((point.percent(curve.metric)?, &point.x)));
    let worst = percents.max_by(|a, b| a.0.total_cmp(&b.0));
    let (percent, x) = worst.ok_or_else(|| format!("nothing bounds `{}`", s.series))?;
    let words = format!("{} reaches {percent:.0} % of its bound at {x}", s.series);
    Ok(Verdict::of(percent <= 100.0 + s.percent, words))
}

fn reaches(outcome: &ExperimentOutcome, n: &Near) -> Result<Verdict, Missing> {
    let metric = curve(outcome, &n.series)?.metric;
    let percent = point(outcome, &n.series, &n.x)?.percent(metric);
    let percent = percent.ok_or_else(|| format!("nothing bounds `{}` at {}", n.series, n.x))?;
    let words = format!("{} at {} is {percent:.0} % of its bound, at least {} %", n.series, n.x, n.percent);
    Ok(Verdict::of(percent >= n.percent, words))
}

#[cfg(test)]
mod tests;
