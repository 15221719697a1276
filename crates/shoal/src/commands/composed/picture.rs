//! The picture of a composed directory: its blocks in rows. Each writer has a colour, which is dark where
//! bytes are in use.

use shoal_transform::WriterId;
use shoal_transform::composed::tools::Block;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Blocks in a row, and sizes in pixels.
const ROW: u64 = 64;
const CELL: f64 = 14.0;
const MARGIN: f64 = 30.0;
/// Rows that are drawn, at most.
const ROWS_MAX: u64 = 4096;

/// The blocks as SVG.
pub(super) fn svg(name: &str, block: u32, blocks: &[Block]) -> String {
    let mut rows: BTreeMap<(u16, u64), usize> = BTreeMap::new();
    for found in blocks {
        let next = rows.len();
        rows.entry((found.file, found.number / ROW)).or_insert(next);
    }
    let mut writers: BTreeMap<WriterId, usize> = BTreeMap::new();
    let height = MARGIN * 2.0 + CELL * (rows.len() as u64).min(ROWS_MAX) as f64;
    let width = MARGIN * 2.0 + CELL * ROW as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<text x=\"{MARGIN}\" y=\"18\">{}: {} blocks of {block} bytes, a colour a writer</text>\n",
        name.replace('&', "&amp;").replace('<', "&lt;"),
        blocks.len()
    );
    for found in blocks {
        let next = writers.len();
        let hue = *writers.entry(found.writer).or_insert(next) * 47 % 360;
        let row = rows.get(&(found.file, found.number / ROW)).copied().unwrap_or(0);
        if row as u64 >= ROWS_MAX {
            continue;
        }
        let (x, y) = (MARGIN + CELL * (found.number % ROW) as f64, MARGIN + CELL * row as f64);
        let (used, live) = (found.used as f64 / f64::from(block), found.live as f64 / f64::from(block));
        let side = CELL - 2.0;
        for (part, light) in [(used, 80), (live, 45)] {
            let tall = side * part.min(1.0);
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{:.2}\" width=\"{side}\" height=\"{tall:.2}\" fill=\"hsl({hue},60%,{light}%)\"/>",
                y + side - tall
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}
