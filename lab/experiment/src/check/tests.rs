//! Tests every check of every experiment with two curves: a curve that is made to satisfy the check, and a
//! curve that is made to break it.

use super::*;
use crate::builtin;
use crate::file::Metric;
use crate::made;
use shoal_bench::Spread;
use std::collections::BTreeMap;

/// Curves of one check.
struct Made<'a> {
    experiment: &'a Experiment,
    values: BTreeMap<(String, String), (AxisPlace, f64)>,
    bound: f64,
    binds: String,
}

impl Made<'_> {
    fn put(&mut self, series: &str, x: &AxisPlace, value: f64) {
        self.values.insert((series.to_owned(), x.to_string()), (x.clone(), value));
    }

    /// A value of one series, and 100 of another.
    fn beside(&mut self, of: &str, to: &str, x: &AxisPlace, value: f64) {
        self.put(to, x, 100.0);
        self.put(of, x, value);
    }

    /// A value that reaches such a share of its bound.
    fn reaching(&mut self, series: &str, x: &AxisPlace, share: f64) {
        let value = if self.metric(series).is_time() { 100.0 / share } else { 100.0 * share };
        self.put(series, x, value);
    }

    /// Values at the two ends of a curve.
    fn ends(&mut self, series: &str, from: (&AxisPlace, f64), until: (&AxisPlace, f64)) {
        self.put(series, from.0, from.1);
        self.put(series, until.0, until.1);
    }

    fn metric(&self, series: &str) -> Metric {
        self.experiment.series(series).expect(series).metric
    }

    /// The places of the experiment, from one to another.
    fn places(&self, from: &AxisPlace, until: &AxisPlace) -> Vec<AxisPlace> {
        let all = &self.experiment.axis.values;
        let at = |x: &AxisPlace| all.iter().position(|known| known == x);
        match (at(from), at(until)) {
            (Some(from), Some(until)) => all[from.min(until)..=from.max(until)].to_vec(),
            _ => vec![from.clone(), until.clone()],
        }
    }

    fn outcome(self, mode: Mode) -> ExperimentOutcome {
        let curve = |series: &crate::file::Series| {
            let own = self.values.iter().filter(|((name, _), _)| *name == series.name);
            let mut points: Vec<Point> = own
                .map(|(_, (x, value))| Point {
                    x: x.clone(),
                    ours: Spread::of(&[*value]),
                    bound: Some(made::bound(self.bound, &self.binds)),
                    published: self.experiment.published(&series.name, x).map(|point| point.value),
                })
                .collect();
            points.sort_by(|a, b| a.x.number().unwrap_or(0.0).total_cmp(&b.x.number().unwrap_or(0.0)));
            FigureSeries { name: series.name.clone(), metric: series.metric, points, per_second: Vec::new() }
        };
        made::outcome(&self.experiment.name, mode, self.experiment.series.iter().map(curve).collect())
    }
}

/// Curves that satisfy a shape, or break it, by a hundredth.
fn made<'a>(experiment: &'a Experiment, shape: &Shape, is_right: bool) -> Made<'a> {
    let mut made = Made { experiment, values: BTreeMap::new(), bound: 100.0, binds: String::new() };
    let more = if is_right { 1.01 } else { 0.99 };
    let less = 2.0 - more;
    let everywhere = experiment.axis.values.clone();
    match shape {
        Shape::AtLeast(r) => made.beside(&r.of, &r.to, &r.x, 100.0 * r.ratio * more),
        Shape::AtMost(r) => made.beside(&r.of, &r.to, &r.x, 100.0 * r.ratio * less),
        Shape::Widens(p) => {
            made.beside(&p.of, &p.to, &p.from, 100.0);
            made.beside(&p.of, &p.to, &p.until, 100.0 * more);
        }
        Shape::Crosses(p) => {
            made.beside(&p.of, &p.to, &p.from, 100.0 * less);
            made.beside(&p.of, &p.to, &p.until, 100.0 * more);
        }
        Shape::BoundedBy(a) => {
            for x in &everywhere {
                made.beside(&a.of, &a.by, x, 50.0);
            }
            made.put(&a.of, &everywhere[0], (100.0 + a.percent) * less);
        }
        Shape::Rises(s) => made.ends(&s.series, (&s.from, 100.0), (&s.until, 100.0 * s.ratio * more)),
        Shape::RisesAtMost(s) => made.ends(&s.series, (&s.from, 100.0), (&s.until, 100.0 * s.ratio * less)),
        Shape::Falls(s) => made.ends(&s.series, (&s.from, 100.0 * s.ratio * more), (&s.until, 100.0)),
        Shape::FlatWithin(w) => {
            for x in made.places(&w.from, &w.until) {
                made.put(&w.series, &x, 100.0);
            }
            if !is_right {
                made.put(&w.series, &w.until, 100_000.0);
            }
        }
        Shape::Linear(w) => {
            let grows = w.until.number().expect("a number") / w.from.number().expect("a number");
            let last = 100.0 * grows * (1.0 + w.percent / 100.0 * less);
            made.ends(&w.series, (&w.from, 100.0), (&w.until, last));
        }
        Shape::Within(n) => {
            let published = experiment.published(&n.series, &n.x).expect("published").value;
            made.put(&n.series, &n.x, published * (1.0 + n.percent / 100.0 * less));
        }
        Shape::Binds(b) => {
            made.put(&b.series, &b.x, 100.0);
            made.binds = if is_right { b.limit.clone() } else { "another".to_owned() };
        }
        Shape::BelowBound(s) => {
            made.reaching(&s.series, &everywhere[0], (1.0 + s.percent / 100.0) * less);
        }
        Shape::Reaches(n) => made.reaching(&n.series, &n.x, n.percent / 100.0 * more),
    }
    made
}

#[test]
fn each_check_of_each_experiment_fails_when_fed_a_wrong_curve() {
    let mut seen = 0;
    for experiment in builtin::all().expect("all are experiments") {
        for check in &experiment.check {
            let mode = check.only.unwrap_or(Mode::Real);
            let verdict = |is_right| check.verdict(&made(&experiment, &check.shape, is_right).outcome(mode));
            let (right, wrong) = (verdict(true), verdict(false));
            let about = format!("{}: {}", experiment.name, check.claim);
            assert!(matches!(right, Verdict::Holds(_)), "{about}: {right:?}");
            assert!(wrong.is_failure(), "{about}: {wrong:?}");
            seen += 1;
        }
    }
    assert!(seen > 0);
}

#[test]
fn what_was_not_run_is_no_failure() {
    for experiment in builtin::all().expect("all are experiments") {
        for check in &experiment.check {
            let nothing =
                Made { experiment: &experiment, values: BTreeMap::new(), bound: 1.0, binds: String::new() };
            let verdict = check.verdict(&nothing.outcome(check.only.unwrap_or(Mode::Real)));
            assert!(matches!(verdict, Verdict::NotSeen(_)), "{}: {verdict:?}", check.claim);
        }
    }
}

#[test]
fn a_check_of_one_mode_says_nothing_of_the_other() {
    let experiment = builtin::find("pvfs-3a").expect("it is there");
    let check = experiment.check.iter().find(|check| check.only == Some(Mode::Simulated)).expect("one");
    let wrong = made(&experiment, &check.shape, false).outcome(Mode::Real);
    assert!(matches!(check.verdict(&wrong), Verdict::NotSeen(_)));
}

/// Kinds that no file may use at a time are checked all the same.
#[test]
fn every_kind_of_shape_holds_and_fails() {
    let mut experiment = builtin::find("pvfs-3a").expect("it is there");
    let text = r#"
shapes = [
  { at_least = { of = "ours", to = "baseline", x = 1, ratio = 2 } },
  { at_most = { of = "baseline", to = "ours", x = 1, ratio = 0.5 } },
  { widens = { of = "ours", to = "baseline", from = 1, until = 14 } },
  { crosses = { of = "ours", to = "baseline", from = 1, until = 14 } },
  { bounded_by = { of = "baseline", by = "ours", percent = 5 } },
  { rises = { series = "ours", from = 1, until = 14, ratio = 3 } },
  { rises_at_most = { series = "ours", from = 1, until = 14, ratio = 3 } },
  { falls = { series = "ours", from = 1, until = 14, ratio = 3 } },
  { flat_within = { series = "ours", from = 2, until = 12, percent = 20 } },
  { linear = { series = "ours", from = 1, until = 8, percent = 20 } },
  { within = { series = "precreate, stuffing", x = 14, percent = 10 } },
  { binds = { series = "ours", x = 1, limit = "sync" } },
  { below_bound = { series = "ours", percent = 10 } },
  { reaches = { series = "ours", x = 1, percent = 80 } },
]
"#;
    #[derive(Deserialize)]
    struct All {
        shapes: Vec<Shape>,
    }
    experiment.check.clear();
    for shape in toml::from_str::<All>(text).expect("TOML").shapes {
        for is_right in [true, false] {
            let outcome = made(&experiment, &shape, is_right).outcome(Mode::Simulated);
            let verdict = shape.holds(&outcome).expect("all is there");
            assert_eq!(verdict.is_failure(), !is_right, "{shape:?}: {verdict:?}");
        }
    }
}
