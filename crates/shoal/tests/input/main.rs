//! Bad input: the program reports the error, its place and the remedy, and no undamaged data is lost. One
//! file a family; `docs/reference/BADINPUT.md` is the table of all.

mod audit;
mod composed;
mod config;
mod containers;
mod coordinator;
mod crowd;
mod disks;
mod folders;
mod followed;
mod frames;
mod full;
mod keys;
mod lost;
mod middle;
mod month;
mod moved;
mod network;
mod preload;
mod program;
mod silent;
mod sizes;
#[path = "../../../../tests/skipped.rs"]
mod skipped;
