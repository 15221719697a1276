//! The arguments of `shoal bench patterns`.

use super::bench::BenchOwn;
use crate::bytes_size::ByteSize;
use crate::cluster_file::ModuleName;
use clap::{Args, ValueEnum};

/// `shoal bench patterns`.
#[derive(Args, Debug)]
pub struct BenchPatterns {
    /// Servers.
    #[arg(long, default_value_t = 4)]
    pub servers: u16,
    /// The storage module of the files.
    #[arg(long, value_enum, default_value_t)]
    pub module: ModuleName,
    /// Clients at once.
    #[arg(long, default_value_t = 16)]
    pub clients: usize,
    /// Bytes of the file.
    #[arg(long, default_value = "256M")]
    pub total: ByteSize,
    /// Bytes of a record, each size.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values = ["64", "512", "4k", "64k"])]
    pub records: Vec<ByteSize>,
    /// Which patterns [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    pub shapes: Vec<PatternShape>,
    /// Single calls of a client, at most.
    #[arg(long, default_value_t = 500)]
    pub calls: u64,
    /// Rounds; medians are shown.
    #[arg(long, default_value_t = 7)]
    pub repeat: usize,
    /// A first look: 4 clients, a file of 8 MiB, records of 64 and 4,096 bytes, 1 round.
    #[arg(long, conflicts_with_all = ["clients", "total", "records", "calls", "repeat"])]
    pub quick: bool,
    /// Where, and how it reports.
    #[command(flatten)]
    pub own: BenchOwn,
}

/// The patterns by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PatternShape {
    /// Every client has the whole file.
    Broadcast,
    /// Each client has one region.
    Partitioned,
    /// Record after record, the clients in turn.
    Interleaved,
    /// A tile of a matrix for each client.
    Nested,
    /// Records at places without a rule.
    List,
    /// A column of a square matrix for each client: one record of every row.
    Column,
    /// A block of a cube for each client, half of each row.
    Block,
}
