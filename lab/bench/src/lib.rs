//! Workloads, and the limits with which they are compared.
//!
//! A figure alone says little: machines differ, and the same machine differs from hour to hour. So everything
//! here is measured *next to* something else in the same run. A workload runs over several [`Target`]s in
//! turn, repetition by repetition, and the [`Report`] gives medians, spreads and ratios to a chosen target.
//! The [`probe`]s measure the machine itself at that moment (round trips, syncs, a copy through one
//! connection). [`passthrough`] is a FUSE mount that only forwards calls, the upper bound of every FUSE
//! mount.
//!
//! ```text
//!   Workload (small, io…) ──► Team (threads | processes) ──► Worker of a Target (directory | native client)
//!        phases                 barriers, clocks               mkdir, create, write, read, stat, …
//! ```
//!
//! * [`small`]: the nine phases of the small-file paper, timed by both of its algorithms.
//! * [`whole`]: small files, each written or read by one call.
//! * [`many`]: small files in batches, compared with the same files one by one.
//! * [`io`]: large files, in order and at random; one shared file, or one file for each worker.
//! * [`mod@sweep`]: blocks of every size, and the sizes at which a rate falls although blocks grow.
//! * [`patterns`]: structured requests, compared with single calls and with contiguous transfers.
//! * [`interval`]: the confidence interval of a figure.
//! * [`crowd`]: very many files in one directory, with a rate for each of its [`seconds`].
//! * [`sides`]: two programs that run the same benchmark, and the decision whether one is faster.
//! * [`tail`]: the slowest of many latencies, next to the latencies of a bare probe of the disk.
//! * [`mod@compare`]: several targets, interleaved, k repetitions.
//! * [`bounds`]: the best possible rate, from the probes of the same run.
//! * [`holding`]: bounds compared with figures.
//! * [`fit`]: a description of this machine, made from the probes.
//! * [`plot`]: figures as SVG.
//!
//! This crate measures real machines, so it reads the real clock and opens real files by itself, without
//! `env`.

pub mod awake;
pub mod beside;
pub mod bounds;
mod buffer;
mod clock;
pub mod compare;
pub mod counts;
pub mod crowd;
pub mod demands;
pub mod directory;
pub mod epochs;
pub mod fit;
pub mod holding;
pub mod interval;
pub mod io;
pub mod many;
pub mod passthrough;
pub mod patterns;
pub mod plot;
pub mod probe;
pub mod progress;
pub mod report;
pub mod seconds;
pub mod sides;
pub mod small;
pub mod spread;
pub mod sweep;
pub mod tail;
pub mod target;
pub mod team;
pub mod techniques;
pub mod validation;
pub mod whole;
pub mod workload;

pub use compare::{CompareOptions, compare};
pub use counts::{Counts, Edge};
pub use directory::Directory;
pub use epochs::EpochsOptions;
pub use interval::Interval;
pub use io::{IoOptions, IoPhase, SharedLayout};
pub use many::ManyOptions;
pub use patterns::{PatternsOptions, PatternsReport};
pub use progress::Progress;
pub use report::{PhaseResult, PhaseSummary, Report, RunResult, TargetSummary, Unit};
pub use small::SmallOptions;
pub use spread::Spread;
pub use sweep::{SweepOptions, SweepReport, sweep};
pub use tail::{Quantiles, SyncProbe, TailReport};
pub use target::{Batches, FileId, ListingResult, OpenMode, Stat, Target, Worker};
pub use team::process::{WorkerCommand, worker_process_main};
pub use team::{Concurrency, Team};
pub use whole::WholeOptions;
pub use workload::Workload;
