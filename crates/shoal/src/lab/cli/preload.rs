//! The arguments of `shoal bench preload`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `shoal bench preload`.
#[derive(Args, Debug)]
pub struct BenchPreload {
    /// Where the files are made, and removed afterwards; the servers keep their data there, too. On a tmpfs
    /// the calls alone are measured. Default: /dev/shm.
    #[arg(value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
    /// Calls of each measure, in each round.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    pub calls: u64,
    /// Files of the ShoalFS; each is looked at, and read, once a round by each thread or client.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    pub files: u64,
    /// Threads of one process, beside as many native clients.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub threads: usize,
    /// Servers of the ShoalFS.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub servers: u16,
    /// Rounds; medians are shown.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repeat: usize,
    /// A first look: 2,000 calls, 50 files, 4 threads, 1 round.
    #[arg(long)]
    pub quick: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}
