//! The commands of the laboratory, one file each.

pub mod bench;
pub mod bench_tail;
pub mod bounds;
pub mod paper;
pub mod sim;
pub mod torture;

use super::cli::Study;
use anyhow::Result;
use std::process::ExitCode;

/// Run a command.
pub fn run(study: Study) -> Result<ExitCode> {
    match study {
        Study::Bounds(args) => bounds::run(args),
        Study::Bench(args) => bench::run(args),
        Study::Paper(args) => paper::run(args),
        Study::Sim(args) => sim::run(args),
        Study::Torture(args) => torture::run(args),
        Study::BenchWorker => bench::worker(),
        Study::BenchEcho => bench::echo(),
        Study::BenchList => bench::list(),
        Study::BenchFlood => bench::flooding(),
        Study::BenchPreload => bench::calling(),
        Study::TortureHand => torture::hand(),
    }
}
