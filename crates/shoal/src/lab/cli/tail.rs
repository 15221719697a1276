//! The arguments of `shoal bench tail`.

use crate::bytes_size::ByteSize;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `shoal bench tail`.
#[derive(Args, Debug)]
pub struct BenchTail {
    /// A folder on the disk that is meant.
    #[arg(long, default_value = ".", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Clients at once.
    #[arg(long, default_value_t = 16)]
    pub clients: usize,
    /// Seconds.
    #[arg(long, default_value_t = 20)]
    pub seconds: u64,
    /// Bytes of each file.
    #[arg(long, default_value = "8k")]
    pub size: ByteSize,
    /// Bytes of a journal segment: with each, a table is checkpointed.
    #[arg(long, default_value = "8M")]
    pub segment: ByteSize,
    /// Rows of a table before it is checkpointed.
    #[arg(long, default_value_t = 10_000)]
    pub rows: usize,
    /// Of a hundred files, so many stay; the others are removed soon, so that segments have to be cleaned.
    #[arg(long, default_value_t = 30)]
    pub keep: u64,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Beside the machine's bounds.
    #[command(flatten)]
    pub held: super::bench::BenchHeld,
}
