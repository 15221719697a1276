//! For the tests: made-up outcomes without a run.

use crate::outcome::{BoundHere, ExperimentOutcome, FigureSeries};
use crate::run::Mode;

/// A bound, in one word.
pub(crate) fn bound(value: f64, binds: &str) -> BoundHere {
    BoundHere { value, binds: binds.to_owned(), binds_words: binds.to_owned(), arithmetic: String::new() }
}

/// Curves as of one whole run.
pub(crate) fn outcome(name: &str, mode: Mode, curves: Vec<FigureSeries>) -> ExperimentOutcome {
    ExperimentOutcome {
        name: name.to_owned(),
        mode: Some(mode),
        machine: String::new(),
        scale: 1.0,
        fewer: None,
        quick: false,
        repeat: 1,
        seconds: 0.0,
        sizes: Vec::new(),
        provenance: None,
        curves,
        checks: Vec::new(),
    }
}
