//! Arguments of `shoal torture`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `shoal torture`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal torture --rounds 50
          shoal torture /var/tmp/torture --servers 4 --mounts 2 --rounds 10 --seconds 6 --keep
First several clients do concurrent operations, and each check says whether their results are as promised. Then, in
each round, clients run a load while servers are killed, stopped and filled, and mounts and clients killed; afterwards
all acknowledged changes must be there. Exit status: 0 nothing is wrong, 1 something is.
Mounts need /dev/fuse (--mounts 0 does without); a server on a small disk that is filled needs root and loop devices.")]
pub struct Torture {
    /// Folder for all of it, empty or new [default: a new one in the temporary folder].
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: Option<PathBuf>,
    /// How many servers, each a process.
    #[arg(long, default_value_t = 4)]
    pub servers: u16,
    /// How many mounts, each a process.
    #[arg(long, default_value_t = 2)]
    pub mounts: usize,
    /// How often the concurrent checks of several clients are done; 1 takes a quarter of a minute; 0: not at
    /// all.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub together: usize,
    /// How often something is killed.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub rounds: usize,
    /// Seconds of load in each round.
    #[arg(long, value_name = "S", default_value_t = 4)]
    pub seconds: u64,
    /// Processes on each mount, and native clients, that make the load.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub clients: usize,
    /// Seconds after which an operation that no server answers fails, which none may.
    #[arg(long, value_name = "S", default_value_t = 30)]
    pub timeout: u64,
    /// Draws the load and the faults; moments are not repeated by it [default: drawn].
    #[arg(long)]
    pub seed: Option<u64>,
    /// Keep the folder; it is also kept when something is wrong.
    #[arg(long)]
    pub keep: bool,
    /// No progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// The report as JSON.
    #[arg(long)]
    pub json: bool,
}
