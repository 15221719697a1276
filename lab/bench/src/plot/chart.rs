//! A figure of three kinds of values. Measured values are solid lines with their spread, bounds are dashed
//! lines, and published values are rings.

use super::frame::{Frame, Plot, words};
use super::{COLOURS, plain};
use anyhow::{Context, Result, anyhow, bail};
use plotters::prelude::*;

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// The measured values: a line with a dot at each place.
    Solid,
    /// The bounds.
    Dashed,
    /// The published values: points without a line.
    Rings,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// Lines of one number have one colour.
    pub colour: usize,
    /// How it is drawn.
    pub style: Style,
    /// Places and values.
    pub points: Vec<(f64, f64)>,
    /// Least and greatest at each place; may be empty.
    pub spread: Vec<(f64, f64)>,
}

/// A figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The label of the horizontal axis.
    pub x_label: String,
    /// The label of the vertical axis.
    pub y_label: String,
    /// The axis below goes by powers of ten.
    pub is_log: bool,
    /// Names instead of numbers below: place 0, 1, …; empty: numbers.
    pub categories: Vec<String>,
    /// The lines.
    pub lines: Vec<Line>,
}

impl Chart {
    fn across(&self, x: f64) -> f64 {
        if self.is_log && self.categories.is_empty() { x.max(f64::MIN_POSITIVE).log10() } else { x }
    }

    fn label(&self, x: f64) -> String {
        let near = x.round();
        match (self.categories.is_empty(), self.is_log) {
            (false, _) if (x - near).abs() < 0.01 && near >= 0.0 => {
                self.categories.get(near as usize).cloned().unwrap_or_default()
            }
            (false, _) => String::new(),
            (true, true) => short(10_f64.powf(x)),
            (true, false) => short(x),
        }
    }
}

/// A number of an axis: `50 k`, `1.5 M`.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{} M", plain((value / 1e4).round() / 1e2)),
        v if v >= 1e4 => format!("{} k", plain((value / 1e1).round() / 1e2)),
        v if v >= 100.0 => plain(value.round()),
        _ => plain(value),
    }
}

/// A figure drawn.
///
/// # Errors
/// When there is nothing to draw.
pub fn svg(chart: &Chart) -> Result<String> {
    let points = || chart.lines.iter().flat_map(|line| &line.points).filter(|(_, y)| y.is_finite());
    let xs = || points().map(|(x, _)| chart.across(*x));
    let (least_x, most_x) = (xs().fold(f64::NAN, f64::min), xs().fold(f64::NAN, f64::max));
    // A bound far above all that was measured would press the rest to the ground.
    let measured = chart.lines.iter().filter(|line| line.style != Style::Dashed);
    let seen = measured.flat_map(|line| line.points.iter().chain(&line.spread)).map(|(_, y)| *y);
    let seen = seen.filter(|y| y.is_finite()).fold(f64::NAN, f64::max);
    let most_y = points().map(|(_, y)| *y).fold(f64::NAN, f64::max);
    let most_y = if seen > 0.0 { most_y.min(seen * 2.5) } else { most_y };
    if !(most_x >= least_x && most_y > 0.0) {
        bail!("`{}` has nothing to draw", chart.title);
    }
    let margin = ((most_x - least_x) * 0.03).max(if chart.categories.is_empty() { 1e-3 } else { 0.3 });
    let mut text = String::new();
    let frame = Frame {
        title: &chart.title,
        title_size: 16,
        x_label: &chart.x_label,
        y_label: &chart.y_label,
        // Names stand at whole numbers: enough marks that each is met.
        x_marks: if chart.categories.is_empty() { 10 } else { 4 * chart.categories.len() },
        x_words: &|x| chart.label(x),
        y_words: &short,
        legend: SeriesLabelPosition::UpperLeft,
        legend_size: 12,
    };
    let put = |plot: &mut Plot<'_>| chart.lines.iter().try_for_each(|line| put(chart, line, plot));
    frame
        .draw(&mut text, least_x - margin..most_x + margin, 0.0..most_y * 1.08, put)
        .map_err(|words| anyhow!(words))
        .with_context(|| format!("cannot draw `{}`", chart.title))?;
    Ok(text)
}

fn put(chart: &Chart, line: &Line, plot: &mut Plot<'_>) -> Result<(), String> {
    let colour = COLOURS[line.colour % COLOURS.len()];
    let at = |(x, y): &(f64, f64)| (chart.across(*x), *y);
    let points: Vec<(f64, f64)> = line.points.iter().map(at).filter(|(_, y)| y.is_finite()).collect();
    match line.style {
        Style::Solid => {
            let spread = line.points.iter().map(at).zip(&line.spread).map(|((x, _), (least, most))| {
                PathElement::new(vec![(x, *least), (x, *most)], colour.stroke_width(1))
            });
            plot.draw_series(spread).map_err(words)?;
            plot.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))
                .map_err(words)?;
            plot.draw_series(LineSeries::new(points, colour.stroke_width(2)))
                .map_err(words)?
                .label(line.name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        }
        Style::Dashed => {
            plot.draw_series(DashedLineSeries::new(points, 6, 4, colour.stroke_width(1)))
                .map_err(words)?
                .label(line.name.as_str())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 6, y)], colour.stroke_width(1)));
        }
        Style::Rings => {
            plot.draw_series(points.into_iter().map(|point| Circle::new(point, 6, colour.stroke_width(2))))
                .map_err(words)?
                .label(line.name.as_str())
                .legend(move |(x, y)| Circle::new((x + 9, y), 5, colour.stroke_width(2)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        let line = |style, points: &[(f64, f64)]| Line {
            name: format!("{style:?}"),
            colour: 0,
            style,
            points: points.to_vec(),
            spread: Vec::new(),
        };
        Chart {
            title: "t".into(),
            x_label: "clients".into(),
            y_label: "creates/s".into(),
            is_log: true,
            categories: Vec::new(),
            lines: vec![
                line(Style::Solid, &[(1.0, 10.0), (100.0, 20.0)]),
                line(Style::Dashed, &[(1.0, 30.0), (100.0, 40.0)]),
                line(Style::Rings, &[(10.0, 15.0)]),
            ],
        }
    }

    #[test]
    fn all_three_styles_are_drawn() {
        let drawn = svg(&chart()).expect("drawn");
        for words in ["Solid", "Dashed", "Rings", "creates/s", "circle", "polyline"] {
            assert!(drawn.contains(words), "{words} is missing");
        }
    }

    #[test]
    fn names_stand_at_their_places() {
        let named = Chart { categories: vec!["one".into(), "two".into()], is_log: false, ..chart() };
        assert_eq!([named.label(0.0), named.label(1.0), named.label(0.5)], ["one", "two", ""]);
        assert_eq!(chart().label(3.0), "1000");
        assert_eq!([short(51_200.0), short(2.5e6), short(0.25)], ["51.2 k", "2.5 M", "0.25"]);
    }

    #[test]
    fn one_place_can_be_drawn_and_none_is_refused() {
        let mut one = chart();
        one.lines.truncate(1);
        one.lines[0].points.truncate(1);
        assert!(svg(&one).is_ok());
        one.lines.clear();
        assert!(svg(&one).is_err());
    }
}
