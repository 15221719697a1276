//! The arguments of `shoal bench flood`.

use crate::bytes_size::ByteSize;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `shoal bench flood`.
#[derive(Args, Debug)]
pub struct BenchFlood {
    /// Where the files are made, and removed afterwards; of a ShoalFS: where its servers keep their data.
    #[arg(value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Over a ShoalFS of so many servers, made anew for each row and round. Default: over the directory
    /// itself.
    #[arg(long, value_name = "N", conflicts_with = "preload", value_parser = clap::value_parser!(u16).range(1..))]
    pub servers: Option<u16>,
    /// Unchanged processes under `shoal run`: the preload library is the writer. Default: the library within
    /// this program.
    #[arg(long)]
    pub preload: bool,
    /// Processes at the same time.
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub processes: usize,
    /// Files of each process.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub files: u64,
    /// Bytes of each file.
    #[arg(long, value_name = "BYTES", default_value = "8k")]
    pub size: ByteSize,
    /// Processes that read all files back, several to be measured one after the other.
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,4,16")]
    pub readers: Vec<usize>,
    /// Rounds; medians are shown.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub repeat: usize,
    /// Each file is durable before it is closed, on all sides. Default: on none.
    #[arg(long)]
    pub sync: bool,
    /// Also read the whole set once from the disk, by as many processes as wrote it. For that the kernel's
    /// caches of the whole machine are dropped, which only root may do.
    #[arg(long)]
    pub cold: bool,
    /// A first look: 4 processes, 50 files each, 1 and 4 readers, 1 round.
    #[arg(long)]
    pub quick: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}
