//! Machines as files, and the best possible rates of operations on them.
//!
//! A *machine* ([`Machine`]) is a file: links, disks, the cost of durability, processor time per message.
//! An *operation* is counts ([`Counts`]): messages, round trips one after the other, bytes each way, syncs,
//! disk accesses. Machines and operations are independent of each other. A *bound* ([`Bound`]) combines a
//! machine with an operation. It has the least of the rates that the resources allow, the name of the
//! resource that *binds* (gives the least rate), and the arithmetic in words.
//!
//! ```text
//!   lab/machines/*.toml ──► Machine ─────────┐
//!                                            ├─ Bound::of ──► terms, least first: the first binds
//!   operations, chapter4 ─► Counts, Setting ─┘
//! ```
//!
//! * [`machine`]: the file, its units, its checks. [`builtin`] gives the machines that come with the
//!   program.
//! * [`bound`]: the arithmetic.
//! * [`operations`]: the costs of each operation in the baseline, the paper's set and ours
//!   (docs/lab/COUNTS.md).
//! * [`chapter4`]: the formulas and figures of chapter 4 of the thesis, as instances of [`bound`]. The term
//!   *estimated upper bound* comes from there.
//!
//! Source: J. Kunkel, *Performance Analysis of the PVFS2 Persistency Layer*, chapter 4.
//!
//! **Invariant: a bound never grows when a cost grows** (tests:
//! `a_bound_never_grows_when_a_cost_of_the_machine_grows`, `a_bound_never_grows_when_a_count_grows`).
//! Measurements of one quantity at several sizes are one cost: its values grow together.

pub mod bound;
pub mod chapter4;
pub mod counts;
pub mod curve;
pub mod machine;
pub mod operations;
pub mod published;
mod words;

pub use bound::{Access, Bound, Caching, Limit, Part, Servers, Setting, Term, waiting};
pub use counts::{Counts, Share};
pub use curve::{Curve, Figure};
pub use machine::{Machine, MachineError, builtin};
pub use operations::{Operation, Set};
pub use published::{Compared, Published, compare};
pub use words::short;
