//! Every decoder against hostile input.
//!
//! Input from the wire or from a disk counts as hostile: a decoder reads it or refuses it, but it never ends
//! the program, and **never takes more memory than in proportion to its input** ([`targets::within_room`]). Each
//! target is a plain function over bytes ([`TARGETS`]); two drivers feed it:
//!
//! * `cargo run -p shoal-fuzz -- --seconds 2`: seeded mutations on the stable compiler, quick enough for
//!   every test run;
//! * `fuzz/libfuzzer/`: the same functions for `cargo fuzz` on nightly, guided by coverage, for hours.
//!
//! `fuzz/corpus/<target>/` holds right inputs (`--write-corpus` writes them), and inputs that once broke
//! something; all are run first.

mod composed;
pub mod corpus;
pub mod hunt;
mod memory;
pub mod mutate;
mod objects;
mod repair;
mod sealed;
mod targets;
mod written;

pub use memory::{Counting, measured};
pub use targets::{TARGETS, Target};
