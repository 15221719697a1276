//! The parts around the curves of every figure: the sheet, its title, the axes with their words, and the
//! legend.
//!
//! ```text
//!             title
//!   y label │ · · · · · · · · ┌ legend ┐
//!     marks │ · · · · · · · · └────────┘
//!           └───────────────────────────
//!             marks, x label
//! ```
//! The caller adds the curves before the legend is drawn, because the legend names them.

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::ops::Range;

/// Width and height.
const SIZE: (u32, u32) = (900, 560);

/// Where curves are put.
pub(super) type Plot<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// See the module's page.
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    pub(super) title_size: i32,
    /// The label of the horizontal axis.
    pub(super) x_label: &'a str,
    /// The label of the vertical axis.
    pub(super) y_label: &'a str,
    /// How many marks there are below, about.
    pub(super) x_marks: usize,
    /// A mark's words.
    pub(super) x_words: &'a dyn Fn(f64) -> String,
    /// The same for the vertical axis.
    pub(super) y_words: &'a dyn Fn(f64) -> String,
    /// Where the legend is.
    pub(super) legend: SeriesLabelPosition,
    pub(super) legend_size: i32,
}

/// The error, in words.
pub(super) fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Frame<'_> {
    /// Draw it, with its contents.
    pub(super) fn draw(
        &self,
        text: &mut String,
        across: Range<f64>,
        up: Range<f64>,
        put: impl FnOnce(&mut Plot<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        area.fill(&WHITE).map_err(words)?;
        let mut plot: Plot<'_> = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", self.title_size))
            .margin(12)
            .margin_right(28)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(across, up)
            .map_err(words)?;
        plot.configure_mesh()
            .x_desc(self.x_label)
            .y_desc(self.y_label)
            .x_labels(self.x_marks)
            .x_label_formatter(&|x| (self.x_words)(*x))
            .y_label_formatter(&|y| (self.y_words)(*y))
            .label_style(("sans-serif", 13))
            .light_line_style(WHITE)
            .draw()
            .map_err(words)?;
        put(&mut plot)?;
        plot.configure_series_labels()
            .position(self.legend.clone())
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(200, 200, 200))
            .label_font(("sans-serif", self.legend_size))
            .draw()
            .map_err(words)?;
        area.present().map_err(words)
    }
}
