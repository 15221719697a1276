//! Counts of the hot operations: messages, syncs, system calls for sockets, bytes on the wire and bytes
//! copied. The tests compare them with the allowed costs in [`table`]. With `--nocapture` they print the rows
//! of the table in `docs/lab/COUNTS.md`.
//!
//! Counts only, never times. Messages are exact. Counts that batching may change have upper limits.

mod cluster;
mod containers;
mod cost;
mod forks;
mod galley;
mod galley_clients;
#[path = "../galley_programs/mod.rs"]
mod galley_programs;
mod hot;
mod many;
mod out_of_core;
mod sets;
mod table;
mod together;
