//! Simulated clusters. One program: a build of it is one link.

mod clocks;
mod conformance;
mod ended_clients;
mod followed;
mod followed_ends;
mod galley;
mod patterns;
mod runs;
