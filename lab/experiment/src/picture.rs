//! Draws an outcome: our curves with their spread, their bounds as dashed lines, and the paper's points as
//! rings.

use crate::file::Experiment;
use crate::outcome::{ExperimentOutcome, FigureSeries, Point};
use crate::place::AxisPlace;
use shoal_bench::plot::chart::{Chart, Line, Style, svg};

/// The picture as SVG; `None` where there is nothing to draw.
///
/// # Errors
/// When it cannot be drawn.
pub fn draw(experiment: &Experiment, outcome: &ExperimentOutcome) -> Result<Option<String>, String> {
    let categories = categories(outcome);
    let at = |x: &AxisPlace| match x {
        AxisPlace::Number(number) => Some(*number),
        AxisPlace::Word(word) => categories.iter().position(|known| known == word).map(|at| at as f64),
    };
    let of = |curve: &FigureSeries, value: fn(&Point) -> Option<f64>| -> Vec<(f64, f64)> {
        curve.points.iter().filter_map(|point| Some((at(&point.x)?, value(point)?))).collect()
    };
    let mut lines = Vec::new();
    for (colour, curve) in outcome.curves.iter().enumerate() {
        let mut line = |style, name: String, points: Vec<(f64, f64)>, spread: Vec<(f64, f64)>| {
            if !points.is_empty() {
                lines.push(Line { name, colour, style, points, spread });
            }
        };
        let spread = curve.points.iter().filter_map(|p| Some((p.ours?.min, p.ours?.max))).collect();
        line(Style::Solid, curve.name.clone(), of(curve, |p| Some(p.ours?.median)), spread);
        let bound = |p: &Point| Some(p.bound.as_ref()?.value);
        line(Style::Dashed, format!("{}: bound", curve.name), of(curve, bound), Vec::new());
        line(Style::Rings, format!("{}: published", curve.name), of(curve, |p| p.published), Vec::new());
    }
    if lines.is_empty() {
        return Ok(None);
    }
    let mode = outcome.mode.map_or("computed", |mode| mode.word());
    let chart = Chart {
        title: format!("{} ({mode}, {})", experiment.title, on(outcome)),
        x_label: experiment.axis.label.clone(),
        y_label: experiment.axis.value_label.clone(),
        is_log: experiment.axis.log,
        categories,
        lines,
    };
    svg(&chart).map(Some).map_err(|error| format!("{error:#}"))
}

fn on(outcome: &ExperimentOutcome) -> String {
    match outcome.machine.as_str() {
        "" => "this machine".to_owned(),
        machine => machine.to_owned(),
    }
}

fn categories(outcome: &ExperimentOutcome) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for point in outcome.curves.iter().flat_map(|curve| &curve.points) {
        if let AxisPlace::Word(word) = &point.x
            && !all.contains(word)
        {
            all.push(word.clone());
        }
    }
    all
}
