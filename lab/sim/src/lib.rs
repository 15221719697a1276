//! The simulator: a cluster in one process under virtual time, with servers, clients, faults, and checks of
//! the promises.
//!
//! ```text
//!   run(seed) ─▶ World ─┬─ machine of server 0 … n: `shoal_server::serve` over `disk` on a simulated disk
//!                       ├─ machine of client 0 … m: workload ─▶ ledger (own names; bytes, attributes)
//!                       │                                    └▶ registers (contended names and attributes)
//!                       ├─ faults at seeded moments: crash, power cut, partition … ([`Faults`]), all drawn
//!                       └─ afterwards a fresh client: the tree, all bytes, the servers' rows ─▶ violations
//! ```
//!
//! **One seed, one run**: everything that can differ comes from the [`World`](shoal_env::sim::World)'s seed,
//! so a violation is repeated by its seed alone ([`RunReport::trace_hash`] shows that it was the same run).
//! **A violation is a sentence**, not a panic: a run reports all it found.
//!
//! The checks of the run:
//!
//! * [`ledger`]: acknowledged changes are there, and refused changes did not happen; an operation without
//!   an answer happened wholly or not at all; removed names do not return;
//! * [`contents`]: each byte that is read has a possible value; synced writes survive power cuts, and
//!   acknowledged writes survive crashes; an append is there once, at the returned place;
//! * [`facts`]: attributes and extended attributes are as they were set;
//! * [`register`]: each contended name and attribute is linearizable;
//! * [`losses`]: a loss is excused only where the server that held the change had a fault that may take it,
//!   in the modes in force;
//! * [`listing`]: a listing gives every entry that is there all the time exactly once;
//! * [`check`]: the namespace is a tree: every directory is reached once, link counts are right, nothing is
//!   left over on any server;
//! * `pools`: each datafile that was made ahead of need is in one pool, belongs to one file, or is used up;
//! * `bounds`: at rest, the servers' queues are empty and their memory is bounded;
//! * every operation ends by its deadline.
//!
//! [`machine`] is the other half of this crate: the speed of the same cluster on the hardware that a
//! machine's file describes.

mod bounds;
pub mod check;
mod cluster;
pub mod combinations;
pub mod contents;
pub mod crossing;
pub mod deferred;
pub mod directed;
pub mod facts;
mod faults;
pub mod idle;
mod judge;
pub mod known;
pub mod ledger;
pub mod listing;
pub mod locking;
pub mod losses;
pub mod machine;
pub mod moving;
pub mod pages;
mod pools;
pub mod register;
pub mod removed;
mod rng;
mod run;
mod soak;
mod workload;

pub use cluster::{Cluster, ClusterConfig};
pub use faults::{Fault, Faults, Outcome};
pub use run::{RunConfig, RunReport, run, run_with};
pub use shoal_env::crash_point::{self, CrashPoint};
#[cfg(feature = "mutants")]
pub use shoal_env::mutant::Mutant;
pub use shoal_env::sim::CrashPointCounts;
pub use shoal_store::{DataSync, MetadataSync, SyncModes};
pub use soak::{guarded, repeat, soak};
pub use workload::modes_words;
