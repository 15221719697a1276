//! Experiments that reproduce the figures and tables of papers. Each experiment is one file. It is run on
//! real servers or under virtual time, and its results are compared with the published values.
//!
//! An *experiment* ([`Experiment`]) is a TOML file in `lab/experiments/`. It names a workload and its
//! parameters, a machine, the parameter along the horizontal axis, the series (the curves), the published
//! points, and *checks of the shape* of the curves. A new experiment is a new file. It needs no code, apart
//! from a line in [`builtin`] if it comes with the program.
//!
//! ```text
//!   lab/experiments/*.toml ─► Experiment ─► Cell ─► Setting ─► Ground ─┬─ real: threads and native clients
//!                              │                                       └─ simulated: shoal_sim, virtual time
//!                              │                                                 │ results of a run
//!                              ├─ published points ─┐                            │
//!                              └─ shape checks ─────┴─► Outcome ◄────────────────┘
//! ```
//! A *cell* is one point of one series. A *setting* has the parameters of a run of this cell. A *ground*
//! ([`Ground`]) is the place where runs are executed: real servers, or a simulated machine under virtual
//! time. The workload code is the same. The *outcome* contains for each cell the measured value, its upper
//! bound, the resource that sets this bound, and the published value. It also contains the result of each
//! check.
//!
//! * [`mod@file`]: the format of the files, and the errors for invalid files.
//! * [`builtin`]: the experiments that come with the program.
//! * [`setting`]: the parameters of one run.
//! * [`workload`]: the workloads by name, written as asynchronous code over a client and a barrier.
//! * [`seat`]: one process of a workload, with its barriers and its clocks.
//! * [`real`]: seats on real servers.
//! * [`simulated`]: seats under virtual time.
//! * [`bound`]: the upper bound of a phase, as the crate `model` estimates it.
//! * [`check`]: the kinds of shape checks. A test feeds each check a wrong curve, and the check must fail.
//! * [`run`]: runs all cells of an experiment.
//! * [`outcome`]: the results of an experiment.
//! * [`provenance`]: the program, the machine and the amount of work that produced an outcome.
//! * [`tell`]: an outcome as tables and CSV.
//! * [`picture`]: an outcome as SVG.
//! * [`totals`]: the results of all checks, counted by kind.
//! * [`reproduction`]: the document about all outcomes.
//!
//! **Invariant: a published point is a number that the paper prints in its text or in a table, or a number
//! calculated from such numbers** (then `derived` states the calculation). If the paper shows a curve only as
//! a picture, the experiment has no published points for it, and the file says so.

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
pub use outcome::{ExperimentOutcome, Point};
pub use place::AxisPlace;
pub use provenance::Provenance;
pub use run::{Amount, Ground, Mode, Run, RunError};
pub use setting::Setting;
