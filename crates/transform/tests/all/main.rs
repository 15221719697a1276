//! Containers and composed directories over real and simulated file systems. Tests that set limits of their
//! process, or measure it, are programs of their own beside this one.

mod composed;
mod composed_conformance;
mod composed_input;
mod composed_programs;
mod conformance;
mod container;
mod federation;
mod federation_mishaps;
mod folding;
mod group;
mod index;
mod power;
mod recovery;
mod replaced;
#[path = "../../../../tests/skipped.rs"]
mod skipped;
