//! Tests on simulated clusters. All of them are one program, so that a build links only once.

mod clocks;
mod conformance;
mod ended_clients;
mod followed;
mod followed_ends;
mod galley;
mod patterns;
mod runs;
