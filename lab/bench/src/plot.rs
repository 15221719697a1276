//! Figures as SVG: curves over one axis, with a legend.

pub mod chart;
mod frame;

use anyhow::{Context, Result, anyhow, bail};
use frame::{Frame, Plot, words};
use plotters::prelude::*;
use shoal_model::Figure;

/// One colour per curve, in turn; also distinct for red-green colour-blind readers (Okabe and Ito's).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(0, 0, 0),
];

/// A figure drawn.
pub fn svg(figure: &Figure) -> Result<String> {
    let points = || figure.curves.iter().flat_map(|curve| &curve.points);
    let most =
        |of: fn(&(f64, f64)) -> f64| points().map(of).filter(|v| v.is_finite()).fold(f64::NAN, f64::max);
    let least_x = points().map(|p| p.0).fold(f64::NAN, f64::min);
    let (most_x, most_y) = (most(|p| p.0), most(|p| p.1));
    if !(most_x > least_x && most_y > 0.0) {
        bail!("figure {} has nothing to draw", figure.number);
    }
    let mut text = String::new();
    let frame = Frame {
        title: &figure.title,
        title_size: 18,
        x_label: &figure.x_label,
        y_label: &figure.y_label,
        x_marks: 10,
        x_words: &plain,
        y_words: &plain,
        legend: SeriesLabelPosition::MiddleRight,
        legend_size: 13,
    };
    frame
        .draw(&mut text, least_x..most_x, 0.0..most_y * 1.05, |plot| put(figure, plot))
        .map_err(|words| anyhow!(words))
        .with_context(|| format!("cannot draw figure {}", figure.number))?;
    Ok(text)
}

/// A number of an axis: as short as it is exact, to a thousandth.
fn plain(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn put(figure: &Figure, plot: &mut Plot<'_>) -> Result<(), String> {
    for (curve, colour) in figure.curves.iter().zip(COLOURS.iter().cycle()) {
        let points = curve.points.iter().copied().filter(|(_, y)| y.is_finite());
        plot.draw_series(LineSeries::new(points, colour.stroke_width(2)))
            .map_err(words)?
            .label(curve.name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_model::Curve;

    fn figure(values: [f64; 3]) -> Figure {
        let points = values.iter().enumerate().map(|(at, y)| (at as f64, *y)).collect();
        Figure {
            number: "1".into(),
            title: "A < B".into(),
            x_label: "clients".into(),
            y_label: "creates/s".into(),
            curves: vec![Curve { name: "network latency".into(), points }],
        }
    }

    #[test]
    fn a_figure_is_drawn_with_its_labels_and_its_curves() {
        let drawn = svg(&figure([1.0, 2.0, 4.0])).expect("drawn");
        assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"), "{drawn}");
        for words in ["A &lt; B", "clients", "creates/s", "network latency", "polyline"] {
            assert!(drawn.contains(words), "{words} is missing");
        }
    }

    #[test]
    fn numbers_of_an_axis_have_no_digits_that_say_nothing() {
        assert_eq!([0.0, 2.0, 0.25, 7000.0].map(plain), ["0", "2", "0.25", "7000"]);
    }

    #[test]
    fn a_figure_of_nothing_is_refused() {
        assert!(svg(&figure([0.0, 0.0, 0.0])).is_err());
        assert!(svg(&figure([f64::INFINITY; 3])).is_err());
    }
}
