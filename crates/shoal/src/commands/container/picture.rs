//! The picture of a container: each writer has a row, which shows the file from left to right.

use shoal_transform::WriterId;
use shoal_transform::container::tools::Part;
use std::fmt::Write as _;

/// Size of the picture, in pixels.
const WIDTH: f64 = 960.0;
const ROW: f64 = 14.0;
const MARGIN: f64 = 30.0;

/// The parts of a file as SVG. `number` gives a writer's row.
pub(super) fn svg(
    name: &str,
    size: u64,
    parts: &[Part],
    number: impl Fn(WriterId) -> Option<usize>,
) -> String {
    let rows = parts.iter().filter_map(|part| number(part.writer?)).max().map_or(1, |last| last + 1);
    let height = MARGIN * 2.0 + ROW * rows as f64;
    let width = WIDTH + MARGIN * 2.0;
    let scale = WIDTH / size.max(1) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<text x=\"{MARGIN}\" y=\"18\">{}: {size} bytes, {rows} writers, a row each</text>\n",
        escaped(name)
    );
    for part in parts {
        let Some(row) = part.writer.and_then(&number) else { continue };
        let (x, y) = (MARGIN + part.logical as f64 * scale, MARGIN + ROW * row as f64);
        let long = (part.len as f64 * scale).max(0.5);
        let hue = row * 47 % 360;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.2}\" y=\"{y}\" width=\"{long:.2}\" height=\"{}\" fill=\"hsl({hue},60%,50%)\"/>",
            ROW - 2.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
