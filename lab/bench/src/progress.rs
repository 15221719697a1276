//! The progress output of a long measurement.
//!
//! The library calls a function with each [`Progress`]. [`bar`] makes a function that draws a line on
//! standard error; `|_| {}` shows nothing. The function is never called while a clock runs.

use indicatif::{ProgressBar, ProgressStyle};

/// One step of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The whole has this many steps.
    Begin {
        /// Steps to come.
        steps: u64,
    },
    /// A step begins.
    Step {
        /// From 0.
        step: u64,
        /// The subject of the measurement: a target's name or `machine`.
        what: String,
        /// The repetition it belongs to, from 1.
        repetition: usize,
    },
    /// All is measured.
    End,
}

/// A function that draws progress as one line, and clears it at the end. Draws nothing where standard error
/// is no terminal.
pub fn bar() -> impl FnMut(Progress) {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {pos}/{len} {msg} {wide_bar:.dim} {elapsed}") {
        bar.set_style(style);
    }
    move |progress| match progress {
        Progress::Begin { steps } => bar.set_length(steps),
        Progress::Step { step, what, repetition } => {
            bar.set_position(step);
            bar.set_message(format!("{what}, repetition {repetition}"));
        }
        Progress::End => bar.finish_and_clear(),
    }
}
