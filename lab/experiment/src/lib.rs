//! The experiments of papers as files, run on real servers or under virtual time, and compared with the
//! published values.
//!
//! An *experiment* ([`Experiment`]) is a TOML file in `lab/experiments/`: a workload and its parameters, a
//! machine, the parameter along the axis, the series, the points that were published, and *checks of the
//! shape*. Later work adds files, no code.
//!
//! ```text
//!   lab/experiments/*.toml ─► Experiment ─► Cell (series, place) ─► Setting ─► Ground ─┬─ real: threads, native clients, loopback
//!                              │                                                   └─ simulated: shoal_sim, virtual time
//!                              ├─ published points ─┐                                        │ the same workload code
//!                              └─ shape checks ─────┴─► Outcome: ours, bound, what binds, published; verdicts ◄┘
//! ```
//!
//! * [`file`]: the format and its refusals; [`builtin`]: those that come with the program.
//! * [`setting`]: the parts of one run.
//! * [`workload`]: the workloads under their own names, written once as asynchronous code over a client and a
//!   barrier.
//! * [`seat`]: one process of a workload, its barriers and its clocks; [`real`] and [`simulated`] give seats.
//! * [`bound`]: the estimated upper bound of a phase, by `model`.
//! * [`check`]: the kinds of checks; each can fail, and a test feeds each check of each experiment a curve
//!   that makes it fail.
//! * [`run`], [`outcome`], [`provenance`]: all cells of an experiment, their outcomes, and their program and
//!   amounts; [`tell`], [`picture`], [`totals`], [`reproduction`]: tables, CSV, SVG, the sums of all checks
//!   by their kinds, and the document.
//!
//! **Invariant: a published point is a number that the paper's text or table prints.** A curve that is only
//! in a picture has no points; the file says so.

pub mod bound;
pub mod builtin;
pub mod check;
pub mod cost;
pub mod file;
pub mod fit;
#[cfg(test)]
mod made;
pub mod outcome;
pub mod picture;
pub mod place;
pub mod provenance;
pub mod real;
pub mod reproduction;
pub mod run;
pub mod seat;
pub mod setting;
pub mod simulated;
pub mod tell;
pub mod totals;
pub mod workload;

pub use check::{Check, Kind, Verdict};
pub use file::{Experiment, FileError};
pub use outcome::{Outcome, Point};
pub use place::Place;
pub use provenance::Provenance;
pub use run::{Amount, Ground, Mode, Run, RunError};
pub use setting::Setting;
