//! Simulated clusters. One program: a build of it is one link.

mod clocks;
mod conformance;
mod followed;
mod galley;
mod patterns;
mod runs;
