//! `shoal bench` and its arguments.

use super::{BenchPatterns, BenchTail};
use crate::bytes_size::ByteSize;
use crate::cli::Key;
use crate::cluster_file::{MetadataSyncName, ModuleName, SwitchWords};
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `shoal bench`.
#[derive(Subcommand, Debug)]
pub enum Bench {
    /// The paper's nine phases: mkdir, create, readdir + stat, write, read, readdir + stat, close, remove,
    /// rmdir.
    #[command(after_help = "\
Example:  shoal bench small --target native:shoal-data --target dir:/tmp --files 2000 --size 8k --workers 4
          shoal bench small --target native:shoal-data --many 64
Targets:  native:PLACE  the native client       dir:DIR          any directory
          mount:DIR     a directory on a mount  passthrough:DIR  a FUSE pass-through over a directory
          over:DIR      `shoal mount --over` of a directory")]
    Small(BenchSmall),
    /// Large files: sequential and random, one file a worker or one for all.
    #[command(after_help = "Example:  shoal bench io --target dir:mnt --total 256M --block 1M --workers 2")]
    Io(BenchIo),
    /// A checkpoint: many writers of one file beside as many files, and both read back.
    #[command(after_help = "\
Example:  shoal bench checkpoint ./mnt                       (any directory: a mount, a container, a local disk)
          shoal bench checkpoint ./mnt --writers 8 --record 47008 --each 32M --rounds 7 --json")]
    Checkpoint(BenchCheckpoint),
    /// A flood of small files: many processes create, write and close them at once, composed beside plain
    /// ones; then all are read back.
    #[command(after_help = "\
Example:  shoal bench flood /scratch                         (composed directories beside plain ones, on any file system)
          sudo shoal bench flood /scratch --cold             (and once with empty caches)
          shoal bench flood /scratch --preload               (unchanged processes under `shoal run`)
          shoal bench flood /scratch --servers 4 --quick     (over a ShoalFS, whose data lies there)
Each row stands beside its bound: as many bytes by large writes into one file a process.")]
    Flood(super::BenchFlood),
    /// The price of a call under `shoal run`: outside and inside its directory, at a start, and on a ShoalFS
    /// beside native clients.
    #[command(after_help = "\
Example:  shoal bench preload                                (on /dev/shm; starts a file system of its own)
          shoal bench preload --quick --json
The price that is asked stands beside each row, met or not.")]
    Preload(super::BenchPreload),
    /// Whole small files by the native client, each figure beside its bound: 1, 16 and 64 clients, cores idle
    /// and awake.
    #[command(after_help = "\
Example:  shoal bench native                                 (starts a file system of its own)
          shoal bench native --folder /srv/test --clients 1,16 --explain
What is asked of the native client is said at the end, met or not.")]
    Native(BenchNative),
    /// The five techniques of the small-file paper, each alone and all together, against the baseline.
    #[command(after_help = "\
Example:  shoal bench techniques --clients 1,4,14 --markdown techniques.md
          shoal bench techniques --short                     (small, for a first look)")]
    Techniques(BenchTechniques),
    /// Create, stat and remove through mounts (servers in its process, and over TCP), beside a pass-through
    /// mount.
    #[command(after_help = "\
Example:  shoal bench mount                                  (starts file systems of its own; needs /dev/fuse)
          shoal bench mount --folder /srv/test --processes 1,4 --sync reply --explain
What is asked of a mount is said at the end, met or not, with what binds.")]
    Mount(BenchMount),
    /// One directory with very many files: filled by several clients, listed, and emptied.
    #[command(after_help = "\
Example:  shoal bench directory                              (a million files, some minutes)
          shoal bench directory --folder /srv/test --files 50000 --clients 8
What is asked of such a directory is said at the end, met or not.")]
    Directory(BenchDirectory),
    /// Whole small files on a server that already stores very much, beside an empty one.
    #[command(after_help = "\
Example:  shoal bench stored                                 (a terabyte of small files that is not written)
          shoal bench stored --folder /srv/test --segments 8192 --clients 64
What is asked of a server that stores much is said at the end, met or not.")]
    Stored(BenchStored),
    /// One file by blocks of every size, powers of two: no size may fall below half of it; and eager I/O on
    /// and off.
    #[command(after_help = "\
Example:  shoal bench sweep                                  (starts file systems of its own; some minutes)
          shoal bench sweep --from 64k --to 512k --repeat 30 --no-eager
Every rate has an interval of 95 %, from --repeat 6 on; neighbours are compared round by round.")]
    Sweep(BenchSweep),
    /// Patterns of one file by several clients: structured calls against one call a record, and contiguous
    /// transfers beside them.
    #[command(after_help = "\
Example:  shoal bench patterns                               (starts a file system of its own; some minutes)
          shoal bench patterns --quick
          shoal bench patterns --shapes interleaved --records 8,64,512 --clients 16 --total 1G
What is asked of interleaved records is said at the end, met or not.")]
    Patterns(BenchPatterns),
    /// Two revisions of this project, or two programs, by the same benchmark in turn: which is faster, if
    /// that can be decided.
    #[command(after_help = "\
Example:  shoal bench compare main~10 HEAD                   (builds both; run it in the project's folder)
          shoal bench compare --a ./shoal-old --b ./shoal-new --repeat 20 -- small --whole --files 500 --workers 16
Behind -- stand the words of `shoal bench small` or `io`; servers and client are both of the side that is measured.")]
    Compare(BenchCompare),
    /// The slowest creates while checkpoints and cleaning run, next to a bare probe of the disk.
    #[command(after_help = "\
Example:  shoal bench tail --folder /var/tmp --clients 16 --seconds 20
A server of its own, with small segments and tables, works in the folder; nothing stays there.")]
    Tail(BenchTail),
    /// Render a file of results into the page of current figures.
    #[command(after_help = "\
Example:  shoal bench page docs/lab/results/current.toml docs/lab/PERFORMANCE.md
          shoal bench native --json > native.json
          shoal bench page results.toml PERFORMANCE.md --run \"shoal bench native=native.json\"
With --run the file of results is written anew: it has the verdicts of these outputs, and this program's commit, build and machine.")]
    Page(BenchPage),
    /// The machine's limits: round trips, syncs, a copy through TCP.
    #[command(after_help = "Example:  shoal bench limits --folder /tmp")]
    Limits {
        /// A folder on the disk that is meant.
        #[arg(long, default_value = ".", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

/// The common arguments of all benchmarks.
#[derive(Args, Debug, Clone)]
pub struct BenchCommon {
    /// The target to measure; repeat to compare, interleaved.
    #[arg(long = "target", value_name = "KIND:WHERE", required = true)]
    pub targets: Vec<String>,
    /// Workers at once.
    #[arg(long, default_value_t = 4)]
    pub workers: usize,
    /// Workers are processes (else threads); of directories only.
    #[arg(long)]
    pub processes: bool,
    /// Repetitions; medians are shown.
    #[arg(long, default_value_t = 5)]
    pub repeat: usize,
    /// Target that the others are compared with [default: the first].
    #[arg(long, value_name = "N")]
    pub reference: Option<usize>,
    /// Milliseconds that names and attributes of a pass-through, or of over:DIR, are cached.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub attr_timeout: u64,
    /// Run once for each line that is read, and report each run in a line of JSON: turns of some
    /// milliseconds, by another program. With --unbound servers are not asked for their counts.
    #[arg(long, conflicts_with_all = ["repeat", "json", "explain"])]
    pub stepwise: bool,
    /// Measure no echo and no syncs beside native targets.
    #[arg(long)]
    pub unbound: bool,
    /// Show the arithmetic of every bound.
    #[arg(long)]
    pub explain: bool,
    /// Make each operation of native targets take so much longer, for a comparison to find
    /// (`compare --prove`).
    #[arg(long, hide = true, value_name = "PERCENT", default_value_t = 0.0)]
    pub plant: f64,
    /// Which key.
    #[command(flatten)]
    pub key: Key,
    /// How it reports.
    #[command(flatten)]
    pub tell: BenchTell,
}

/// How a benchmark reports.
#[derive(Args, Debug, Clone)]
pub struct BenchTell {
    /// No progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal bench page`.
#[derive(Args, Debug)]
pub struct BenchPage {
    /// The file of results.
    #[arg(value_hint = ValueHint::FilePath)]
    pub results: PathBuf,
    /// The page: the part between its marks is renewed.
    #[arg(value_hint = ValueHint::FilePath)]
    pub page: PathBuf,
    /// An output of a benchmark with --json, and its command.
    #[arg(long = "run", value_name = "COMMAND=FILE")]
    pub runs: Vec<String>,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal bench small`.
#[derive(Args, Debug)]
pub struct BenchSmall {
    /// Targets and repetitions.
    #[command(flatten)]
    pub common: BenchCommon,
    /// Files of each worker.
    #[arg(long, default_value_t = 1000)]
    pub files: usize,
    /// Bytes of each file.
    #[arg(long, default_value = "8k")]
    pub size: ByteSize,
    /// Whole files: create + write + close, stat, open + read + close, remove; not the paper's phases.
    #[arg(long)]
    pub whole: bool,
    /// Each verb one by one and for N files at once (`create_many` and its kin), by one client; not the
    /// paper's phases.
    #[arg(long, value_name = "N", conflicts_with_all = ["whole", "workers"])]
    pub many: Option<usize>,
}

/// `shoal bench io`.
#[derive(Args, Debug)]
pub struct BenchIo {
    /// Targets and repetitions.
    #[command(flatten)]
    pub common: BenchCommon,
    /// Bytes in all, for each worker.
    #[arg(long, default_value = "256M")]
    pub total: ByteSize,
    /// Bytes of one request.
    #[arg(long, default_value = "1M")]
    pub block: ByteSize,
    /// In random order.
    #[arg(long)]
    pub random: bool,
    /// One file for all workers.
    #[arg(long)]
    pub shared: bool,
    /// fsync before the clock stops.
    #[arg(long)]
    pub fsync: bool,
    /// Bypass the page cache (directories).
    #[arg(long)]
    pub direct: bool,
}

/// The course of a benchmark with a file system of its own.
#[derive(Args, Debug, Clone)]
pub struct BenchOwn {
    /// Folder on the disk to measure; files made in it are removed [default: the temporary folder].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: Option<PathBuf>,
    /// How it reports.
    #[command(flatten)]
    pub tell: BenchTell,
}

/// How figures are held against this machine's bounds.
#[derive(Args, Debug)]
pub struct BenchHeld {
    /// Show the arithmetic of every bound.
    #[arg(long)]
    pub explain: bool,
}

/// `shoal bench native`.
#[derive(Args, Debug)]
pub struct BenchNative {
    /// Servers.
    #[arg(long, default_value_t = 4)]
    pub servers: u16,
    /// The storage module of the files.
    #[arg(long, value_enum, default_value_t)]
    pub module: ModuleName,
    /// Clients at once, several to be measured one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64")]
    pub clients: Vec<usize>,
    /// Files in each repetition, all clients together; a lone client makes a fourth of them.
    #[arg(long, default_value_t = 16_000)]
    pub files: usize,
    /// Bytes of each file.
    #[arg(long, default_value = "8k")]
    pub size: ByteSize,
    /// Files at once of a lone client, against the same one by one; 0: not measured.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub many: usize,
    /// Repetitions; medians are shown.
    #[arg(long, default_value_t = 5)]
    pub repeat: usize,
    /// Show the arithmetic of every bound.
    #[arg(long)]
    pub explain: bool,
    /// Where, and how it reports.
    #[command(flatten)]
    pub own: BenchOwn,
}

/// `shoal bench stored`.
#[derive(Args, Debug)]
pub struct BenchStored {
    /// Sealed segments of the journal, of 32 MiB each, in which small files live. They are files of one block
    /// each.
    #[arg(long, default_value_t = 32_768, value_parser = clap::value_parser!(u64).range(1..=65_535))]
    pub segments: u64,
    /// Clients at once.
    #[arg(long, default_value_t = 16)]
    pub clients: usize,
    /// Files in each repetition, all clients together.
    #[arg(long, default_value_t = 8_000)]
    pub files: usize,
    /// Bytes of each file.
    #[arg(long, default_value = "8k")]
    pub size: ByteSize,
    /// Repetitions; medians are shown.
    #[arg(long, default_value_t = 10)]
    pub repeat: usize,
    /// Where, and how it reports.
    #[command(flatten)]
    pub own: BenchOwn,
}

/// `shoal bench techniques`.
#[derive(Args, Debug)]
pub struct BenchTechniques {
    /// Servers: threads of a `shoal up` of its own, made anew for each combination and repetition.
    #[arg(long, default_value_t = 8)]
    pub servers: u16,
    /// The storage module of the files.
    #[arg(long, value_enum, default_value_t)]
    pub module: ModuleName,
    /// Clients at once, several to be measured one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1,4,14")]
    pub clients: Vec<usize>,
    /// Files in each repetition, all clients together.
    #[arg(long, default_value_t = 2800)]
    pub files: usize,
    /// Repetitions; medians are shown.
    #[arg(long, default_value_t = 5)]
    pub repeat: usize,
    /// Small: few files, 2 servers, 1 and 4 clients, 1 repetition, nothing checked but that all is there.
    #[arg(long)]
    pub short: bool,
    /// Write the tables into this file, as Markdown.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub markdown: Option<PathBuf>,
    /// Beside the machine's bounds.
    #[command(flatten)]
    pub held: BenchHeld,
    /// Where, and how it reports.
    #[command(flatten)]
    pub own: BenchOwn,
}

/// `shoal bench mount`.
#[derive(Args, Debug)]
pub struct BenchMount {
    /// Servers.
    #[arg(long, default_value_t = 4)]
    pub servers: u16,
    /// Processes at once, several to be measured one after the other.
    #[arg(long, value_delimiter = ',', default_value = "1,4")]
    pub processes: Vec<usize>,
    /// Files in each repetition, all processes together.
    #[arg(long, default_value_t = 4000)]
    pub files: usize,
    /// Instead: files of 4 to 30 KiB are read in random order, twice, next to a pass-through that leaves the
    /// kernel its pages.
    #[arg(long)]
    pub epochs: bool,
    /// When metadata is durable, several to be measured one after the other.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "reply,fsync")]
    pub sync: Vec<MetadataSyncName>,
    /// Milliseconds that names and attributes are cached, by all mounts.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub attr_timeout: u64,
    /// The folder that the pass-through shows; files made in it are removed [default: next to the file
    /// systems' data].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub through: Option<PathBuf>,
    /// Repetitions; medians are shown.
    #[arg(long, default_value_t = 5)]
    pub repeat: usize,
    /// Show the arithmetic of every bound.
    #[arg(long)]
    pub explain: bool,
    /// Where, and how it reports.
    #[command(flatten)]
    pub own: BenchOwn,
}

/// `shoal bench directory`.
#[derive(Args, Debug)]
pub struct BenchDirectory {
    /// Servers.
    #[arg(long, default_value_t = 4)]
    pub servers: u16,
    /// The storage module of the files.
    #[arg(long, value_enum, default_value_t)]
    pub module: ModuleName,
    /// Which techniques are used, as for `shoal up`.
    #[arg(long, default_value_t, value_name = "WORDS")]
    pub switches: SwitchWords,
    /// Clients that fill and empty it.
    #[arg(long, default_value_t = 8)]
    pub clients: usize,
    /// Files in it.
    #[arg(long, default_value_t = 1_000_000)]
    pub files: u64,
    /// Do not list through a mount.
    #[arg(long)]
    pub no_mount: bool,
    /// Beside the machine's bounds.
    #[command(flatten)]
    pub held: BenchHeld,
    /// Where, and how it reports.
    #[command(flatten)]
    pub own: BenchOwn,
}

/// `shoal bench compare`.
#[derive(Args, Debug)]
pub struct BenchCompare {
    /// Two revisions, A and B; they are built.
    #[arg(value_name = "REV", num_args = 0..=2)]
    pub revisions: Vec<String>,
    /// A program instead of the first revision.
    #[arg(long, value_name = "PROGRAM", requires = "b", conflicts_with = "revisions", value_hint = ValueHint::FilePath)]
    pub a: Option<PathBuf>,
    /// A program instead of the second.
    #[arg(long, value_name = "PROGRAM", requires = "a", value_hint = ValueHint::FilePath)]
    pub b: Option<PathBuf>,
    /// Prove it on this program: compare it so many times with itself, and as often with itself slowed down;
    /// how often is it detected? A single client makes, reads and removes small files on servers that keep
    /// all in memory.
    #[arg(long, value_name = "TIMES", conflicts_with_all = ["revisions", "a", "b", "mounted", "up", "words"])]
    pub prove: Option<usize>,
    /// The slowdown planted by --prove, percent of each operation's time.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    pub planted: f64,
    /// A difference of so much or less is none, percent: equal programs differ a little by where they lie in
    /// memory.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub least: f64,
    /// Rounds, each of both sides; an interval of 95 % takes 6 [default: 10; 1000 with --prove].
    #[arg(long, value_name = "N")]
    pub repeat: Option<usize>,
    /// Rounds for which both file systems stay up before they are made anew [default: 1; 250 with --prove].
    /// Then clients stay, too, and turns may be some milliseconds long; a first one does not count. For
    /// benchmarks without delayed work: late writes of a disk are no part of the next turn.
    #[arg(long, value_name = "N")]
    pub turns: Option<usize>,
    /// Servers of a file system.
    #[arg(long, default_value_t = 4)]
    pub servers: u16,
    /// A further word of `shoal up`, such as --up=--metadata-sync=fsync; repeat for more.
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    pub up: Vec<String>,
    /// Through a mount in the servers' process; else by the native client.
    #[arg(long)]
    pub mounted: bool,
    /// The project's folder.
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub repo: PathBuf,
    /// How revisions are built.
    #[arg(long, value_name = "PROFILE", default_value = "release")]
    pub profile: String,
    /// Where they are built, kept for the next time [default: in a folder that is removed].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub target_dir: Option<PathBuf>,
    /// Where, and how it reports.
    #[command(flatten)]
    pub own: BenchOwn,
    /// The benchmark.
    #[arg(last = true, value_name = "WORDS", default_values = ["small", "--files", "500"])]
    pub words: Vec<String>,
}

/// `shoal bench sweep`.
#[derive(Args, Debug)]
pub struct BenchSweep {
    /// Servers.
    #[arg(long, default_value_t = 4)]
    pub servers: u16,
    /// The storage module of the files.
    #[arg(long, value_enum, default_value_t)]
    pub module: ModuleName,
    /// The smallest block.
    #[arg(long, default_value = "1k")]
    pub from: ByteSize,
    /// The largest block.
    #[arg(long, default_value = "8M")]
    pub to: ByteSize,
    /// Bytes of the file.
    #[arg(long, default_value = "256M")]
    pub total: ByteSize,
    /// Blocks of one measurement, at most.
    #[arg(long, default_value_t = 2000)]
    pub blocks: u64,
    /// Times each size is measured; medians are shown.
    #[arg(long, default_value_t = 15)]
    pub repeat: usize,
    /// Leave out the sizes around the eager limit with eager I/O on and off.
    #[arg(long)]
    pub no_eager: bool,
    /// Beside the machine's bounds.
    #[command(flatten)]
    pub held: BenchHeld,
    /// Where, and how it reports.
    #[command(flatten)]
    pub own: BenchOwn,
}

/// `shoal bench checkpoint`.
#[derive(Args, Debug)]
pub struct BenchCheckpoint {
    /// Where the files are made, and removed afterwards.
    #[arg(value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// Writers at the same time.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub writers: u64,
    /// Bytes of a record.
    #[arg(long, value_name = "BYTES", default_value = "47008")]
    pub record: ByteSize,
    /// Bytes of each writer.
    #[arg(long, value_name = "BYTES", default_value = "16M")]
    pub each: ByteSize,
    /// Rounds.
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Each writer makes its bytes durable before it closes.
    #[arg(long)]
    pub sync: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}
