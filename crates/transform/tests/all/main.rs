//! Containers, federations and composed directories: the suite of all file systems, random programs against
//! plain files, mishaps, power cuts.
//!
//! One program, so that what all of them use is compiled once. Tests that change limits of their process, and
//! processes that are groups, are programs of their own (`full`, `group`).

mod composed;
mod composed_conformance;
mod composed_copies;
mod composed_input;
mod composed_mishaps;
mod composed_names;
mod composed_programs;
mod conformance;
mod container;
mod federation;
mod federation_mishaps;
mod folding;
mod index;
mod mishaps;
mod permissions;
mod power;
mod recovery;
mod replaced;
mod scene;

#[path = "../../../../tests/skipped.rs"]
mod skipped;
