//! File systems over object stores: the suite of all file systems, files, races, crashes, stores that fail.
//!
//! One program, so that what all of them use is compiled once.

mod conformance;
mod containers;
mod crashes;
mod files;
mod held;
mod interrupts;
mod known;
mod mishaps;
mod others;
mod outages;
mod races;
mod scene;
mod stores;
