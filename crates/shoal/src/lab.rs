//! The commands that study file systems: bounds, benchmarks, papers' experiments, simulation, torture.
//!
//! They are in the feature `lab`, which is on by default. Without it the program is the product alone: it
//! links no crate of the folder `lab/`, and nothing outside this module names one (`tests/house.rs`).
//!
//! * [`cli`]: the arguments.
//! * [`commands`]: the commands, one file each.
//! * [`native`]: the client as a target of benchmarks.
//! * [`torture`]: the work of `shoal torture`.

pub mod cli;
pub mod commands;
mod native;
mod torture;
