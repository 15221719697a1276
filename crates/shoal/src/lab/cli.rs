//! The laboratory's part of the command tree.

mod bench;
mod bounds;
mod flood;
mod paper;
mod patterns;
mod preload;
mod sim;
mod tail;
mod torture;

pub use bench::{
    Bench, BenchCheckpoint, BenchCommon, BenchCompare, BenchDirectory, BenchIo, BenchMount, BenchNative,
    BenchPage, BenchSmall, BenchStored, BenchSweep, BenchTechniques, BenchTell,
};
pub use bounds::Bounds;
pub use flood::BenchFlood;
pub use paper::Paper;
pub use patterns::{BenchPatterns, PatternShape};
pub use preload::BenchPreload;
#[cfg(feature = "mutants")]
pub use sim::SimMutants;
pub use sim::{Sim, SimSetup, SimSoak};
pub use tail::BenchTail;
pub use torture::Torture;

use clap::Subcommand;

/// A command that studies file systems.
#[derive(Subcommand, Debug)]
pub enum Study {
    /// The best possible rates of this machine, or of another: measure it, and compute the bound of every
    /// operation.
    Bounds(Bounds),
    /// Measure.
    #[command(subcommand)]
    Bench(Bench),
    /// Run the experiments of papers, on real servers or under virtual time, and compare them with the
    /// published figures.
    Paper(Paper),
    /// Run whole clusters with faults in virtual time, and see that every promise is kept.
    #[command(subcommand)]
    Sim(Sim),
    /// Torture a throwaway file system: many clients at once, killed servers; and check the promises.
    Torture(Torture),
    /// A process of a benchmark (started by `shoal bench`).
    #[command(hide = true)]
    BenchWorker,
    /// Echo servers of a benchmark (started by `shoal bench`).
    #[command(hide = true)]
    BenchEcho,
    /// A process that lists for a benchmark (started by `shoal bench`).
    #[command(hide = true)]
    BenchList,
    /// A process of a flood (started by `shoal bench flood`).
    #[command(hide = true)]
    BenchFlood,
    /// A process of a measure (started by `shoal bench preload`).
    #[command(hide = true)]
    BenchPreload,
    /// A client's process (started by `shoal torture`).
    #[command(hide = true)]
    TortureHand,
}
