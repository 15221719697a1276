//! Arguments of the commands that observe and maintain a file system: `shoal ping`, `status`, `fsck`, `sync`.

// `--help` shows these comments as they are: brackets in them are no links.
#![allow(rustdoc::broken_intra_doc_links)]

use super::{Key, TimeLimit};
use crate::cluster_file::{DataSyncName, MetadataSyncName};
use clap::{Args, ValueHint};
use shoal_proto::Coalescing;
use std::path::PathBuf;

/// `shoal ping`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal ping shoal://127.0.0.1:7441/demo
Where no server answers at the given address, those are asked that this machine knows: from a mount of the file system, and from the
cluster file beside the key.")]
pub struct Ping {
    /// The file system [default: ./shoal-data].
    #[arg(default_value = "shoal-data")]
    pub place: String,
    /// Round trips to each server.
    #[arg(short, long, default_value_t = 5)]
    pub count: u32,
    /// Which key.
    #[command(flatten)]
    pub key: Key,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal status`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal status --counters
DEGRADED: a server does not answer, or does not serve. NOT WELL: the disk of a server has too little room; new files and data are
refused, or soon will be. Each such server is named with the reason and the remedy.
Exit status: 0 healthy, 1 otherwise.")]
pub struct Status {
    /// The file system [default: ./shoal-data].
    #[arg(default_value = "shoal-data")]
    pub place: String,
    /// Every count: messages, system calls, syncs, copies, bytes.
    #[arg(long)]
    pub counters: bool,
    /// Again every so many seconds.
    #[arg(long, value_name = "S")]
    pub watch: Option<f64>,
    /// Which key.
    #[command(flatten)]
    pub key: Key,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal fsck`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal fsck shoal://127.0.0.1:7441/demo             (looks, and changes nothing)
          shoal fsck shoal://127.0.0.1:7441/demo --repair
It runs while programs use the file system: a problem in one look and not in the next was a change under way.
A repair loses no written byte: objects and bytes without a name go to /lost+found, rows that cannot be
right into the file of --save. It reports made-up values (an owner, a mode). Where two states could be right,
it changes nothing, and says what you can do.
Exit status: 0 clean (or all repaired), 1 damage found (or left), 2 could not check.")]
pub struct Fsck {
    /// The file system [default: ./shoal-data].
    #[arg(default_value = "shoal-data")]
    pub place: String,
    /// Repair the problems that are found; without it nothing is changed.
    #[arg(long)]
    pub repair: bool,
    /// Repair also where a store was given up: names of the objects lost with it are removed, and lost parts
    /// of files become holes.
    #[arg(long, requires = "repair")]
    pub lost_stores: bool,
    /// Where rows go that a repair removes [default: ./fsck-NAME-SECONDS.jsonl].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub save: Option<PathBuf>,
    /// No progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// Which key.
    #[command(flatten)]
    pub key: Key,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal sync`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal sync                               make everything durable now
          shoal sync /mnt/demo                     the same, and fail if something written through the mount was lost
          shoal sync --metadata fsync              from now on, metadata is durable at fsync
          shoal sync --coalescing watermark:1:8    from now on, changes share syncs as in PVFS
Names, attributes and bytes that were changed before, by any client, are on the disks of all servers when it returns.
Linux does not pass sync(2) and syncfs(2) on to a FUSE mount, so `sync -f` is not enough: use this. Stores in a shared
mapping are written to the servers first; only msync(2) and fsync(2) promise that they are durable.
A server that does not answer does not stop the others: it is named, and the exit status is 1. By a path on a mount the mount's
own time limit counts first.")]
pub struct Sync {
    /// The file system, or any path on its mount [default: ./shoal-data].
    #[arg(default_value = "shoal-data")]
    pub place: String,
    /// When metadata changes are durable from now on.
    #[arg(long, value_enum)]
    pub metadata: Option<MetadataSyncName>,
    /// When data writes are durable from now on.
    #[arg(long, value_enum)]
    pub data: Option<DataSyncName>,
    /// Which metadata changes share a sync from now on: per-op, watermark[:LOW:HIGH], pipelined.
    #[arg(long)]
    pub coalescing: Option<Coalescing>,
    /// How long it waits.
    #[command(flatten)]
    pub limit: TimeLimit,
    /// Which key.
    #[command(flatten)]
    pub key: Key,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}
