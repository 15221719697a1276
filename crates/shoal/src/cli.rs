//! The command tree: every command with its help and an example. Handlers are in [`crate::commands`], one file each.

mod bench;
mod bounds;
mod paper;
mod sim;
mod tail;

pub use bench::{
    Bench, BenchCommon, BenchCompare, BenchDirectory, BenchIo, BenchMount, BenchNative, BenchSmall,
    BenchSweep, BenchTechniques, BenchTell,
};
pub use bounds::Bounds;
pub use paper::Paper;
#[cfg(feature = "mutants")]
pub use sim::SimMutants;
pub use sim::{Sim, SimSetup, SimSoak};
pub use tail::BenchTail;

use crate::bytes_size::ByteSize;
use crate::cluster_file::{DataSyncName, DistributionName, MetadataSyncName, ModuleName, Role, SwitchWords};
use clap::{Args, Parser, Subcommand, ValueHint};
use shoal_proto::Coalescing;
use std::path::PathBuf;

/// ShoalFS: a parallel file system in user space, fast at very many small files and at one file of very many writers.
#[derive(Parser, Debug)]
#[command(
    name = "shoal",
    version,
    propagate_version = true,
    max_term_width = 100,
    after_help = "\
Start here:  shoal up ./shoal-data --servers 4 --mount ./mnt
A file system is named by its address (shoal://HOST:PORT/NAME), by a path on its mount, or by the folder of `shoal up`."
)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,

    /// Say more: -v what happens, -vv every operation. SHOAL_LOG takes a filter, e.g. SHOAL_LOG=shoal_server=debug.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// A command.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Start a file system in this process: servers, data in a folder, and a mount.
    Up(Up),
    /// Write a new cluster file and key.
    Init(Init),
    /// Serve the servers of a cluster file.
    Serve(Serve),
    /// Mount a file system.
    Mount(Mount),
    /// Unmount.
    Umount(Umount),
    /// List a directory.
    Ls(Ls),
    /// Copy files in, out, or within.
    Cp(Cp),
    /// Write files to standard output.
    Cat(Cat),
    /// Show all that is known of a file.
    Stat(Stat),
    /// Show or set how files are laid out over the servers.
    #[command(subcommand)]
    Layout(Layout),
    /// Show which bytes of a file are on which server.
    Map(Map),
    /// Check that every server answers, and agrees with the others.
    Ping(Ping),
    /// Show the state of the servers, and what they count.
    Status(Status),
    /// Check the whole file system while it runs, and mend it.
    Fsck(Fsck),
    /// Add a server to a running file system.
    AddServer(AddServer),
    /// Change when metadata and data are made durable.
    Sync(Sync),
    /// What could this machine, or another, reach at best? Measure it, and compute the bound of every operation.
    Bounds(Bounds),
    /// Measure.
    #[command(subcommand)]
    Bench(Bench),
    /// Run the experiments of papers, on real servers or under virtual time, and hold them against what was published.
    Paper(Paper),
    /// Run whole clusters with faults in virtual time, and see that every promise is kept.
    #[command(subcommand)]
    Sim(Sim),
    /// Torture a throwaway file system: many clients at once, killed servers; and check what was promised.
    Torture(Torture),
    /// Print completions for a shell.
    #[command(
        after_help = "Example:  shoal completions bash > ~/.local/share/bash-completion/completions/shoal"
    )]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the man pages of all commands into a folder.
    #[command(after_help = "Example:  shoal man ~/.local/share/man/man1 && man shoal-up")]
    Man {
        /// The folder.
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// A process of a benchmark (started by `shoal bench`).
    #[command(hide = true)]
    BenchWorker,
    /// Echo servers of a benchmark (started by `shoal bench`).
    #[command(hide = true)]
    BenchEcho,
    /// A process that lists for a benchmark (started by `shoal bench`).
    #[command(hide = true)]
    BenchList,
    /// A client's process (started by `shoal torture`).
    #[command(hide = true)]
    TortureHand,
}

/// Where a command finds its file system.
#[derive(Args, Debug, Clone)]
pub struct Key {
    /// The key file. Default: the mount's, $SHOAL_KEY, ./shoal-data/key, ~/.config/shoal/key or /etc/shoal/key.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key: Option<PathBuf>,
}

/// Settings of a new file system.
#[derive(Args, Debug, Clone)]
pub struct NewFileSystem {
    /// Name of the file system.
    #[arg(long, default_value = "demo")]
    pub name: String,
    /// What keeps it.
    #[arg(long, value_enum, default_value_t)]
    pub module: ModuleName,
    /// When metadata changes are durable: at reply, at fsync (a killed server loses nothing), never (scratch).
    #[arg(long, value_enum, default_value_t)]
    pub metadata_sync: MetadataSyncName,
    /// When data writes are durable: at fsync, at reply.
    #[arg(long, value_enum, default_value_t)]
    pub data_sync: DataSyncName,
    /// Bytes of a strip: what a file may grow to before it is spread over servers.
    #[arg(long, default_value = "1M")]
    pub strip: ByteSize,
    /// Datafiles of a file; 0: one on every data server.
    #[arg(long, default_value_t = 0)]
    pub width: u16,
    /// How bytes are dealt to datafiles.
    #[arg(long, value_enum, default_value_t)]
    pub distribution: DistributionName,
    /// Memory for cached rows and data, on each server.
    #[arg(long, default_value = "64M")]
    pub cache: ByteSize,
    /// Which techniques are used: ours, paper or baseline, and what differs from the set (for study): paper,eager=off.
    /// Switches: precreate, stuffing, readdirplus, compound (on, off); eager (on, off, bytes); split (on, off, entries);
    /// placement (colocated, spread); coalescing (pipelined, watermark, watermark:LOW:HIGH, per-op).
    #[arg(long, default_value_t, value_name = "WORDS")]
    pub switches: SwitchWords,
}

/// `shoal up`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal up ./shoal-data --servers 4 --mount ./mnt
          cp -a /usr/include mnt/        (in another terminal; Ctrl-C stops and unmounts)
A second `up` on the same folder goes on with its data; settings of a new file system are taken only when there is none.
The line with `ready` names the address, so that others can:  shoal mount ADDRESS DIR --key FOLDER/key")]
pub struct Up {
    /// Folder of the data; made if missing.
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// How many servers [default: 4 for a new file system]. More than there are: servers are added.
    #[arg(long)]
    pub servers: Option<u16>,
    /// Mount here.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub mount: Option<PathBuf>,
    /// Settings of a new file system.
    #[command(flatten)]
    pub new: NewFileSystem,
    /// How it is mounted.
    #[command(flatten)]
    pub options: MountOptions,
    /// One line of JSON instead of words when ready.
    #[arg(long)]
    pub json: bool,
}

/// `shoal init`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal init ./cluster --server tcp:10.0.0.1:7441=/srv/shoal --server tcp:10.0.0.2:7441=/srv/shoal
          shoal serve --config ./cluster --server 0        (on the first machine; 1 on the second)")]
pub struct Init {
    /// Folder for cluster.toml and key.
    #[arg(value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// A server: ADDRESS=FOLDER. Repeat for each, in order of their ids.
    #[arg(long = "server", value_name = "ADDRESS=FOLDER", required_unless_present = "collection")]
    pub servers: Vec<String>,
    /// Add a further file system to an existing cluster file instead.
    #[arg(long, conflicts_with = "servers")]
    pub collection: bool,
    /// Settings of the file system.
    #[command(flatten)]
    pub new: NewFileSystem,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal serve`.
#[derive(Args, Debug)]
#[command(after_help = "Example:  shoal serve --config /etc/shoal/cluster.toml --server 0")]
pub struct Serve {
    /// The cluster file, or its folder.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    /// Which servers run in this process [default: all].
    #[arg(long = "server", value_name = "ID")]
    pub servers: Vec<u16>,
    /// Microseconds to poll before sleeping; for cores with nothing else to do.
    #[arg(long, value_name = "US", default_value_t = 0)]
    pub polling_us: u64,
    /// One line of JSON instead of words when ready.
    #[arg(long)]
    pub json: bool,
}

/// How a file system is mounted.
#[derive(Args, Debug, Clone)]
pub struct MountOptions {
    /// Milliseconds that names and attributes are believed; 0: strict, every look asks.
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub attr_timeout: u64,
    /// Bypass the page cache.
    #[arg(long)]
    pub direct: bool,
    /// Threads that read requests from the kernel.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub threads: usize,
    /// Seconds after which an operation that no server answers fails.
    #[arg(long, value_name = "S", default_value_t = 30)]
    pub timeout: u64,
    /// Let other users in (root mounts do anyway).
    #[arg(long)]
    pub allow_other: bool,
}

/// `shoal mount`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal mount shoal://127.0.0.1:7441/demo ./mnt --key ./shoal-data/key
Stays in the foreground; Ctrl-C, SIGTERM or `shoal umount` end it. --background returns when it is mounted.")]
pub struct Mount {
    /// Address of the file system.
    pub address: String,
    /// Where.
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Which key.
    #[command(flatten)]
    pub key: Key,
    /// How.
    #[command(flatten)]
    pub options: MountOptions,
    /// Return when it is mounted, and go on in the background.
    #[arg(long)]
    pub background: bool,
    /// One line of JSON instead of words when ready.
    #[arg(long)]
    pub json: bool,
}

/// `shoal umount`.
#[derive(Args, Debug)]
#[command(after_help = "Example:  shoal umount ./mnt")]
pub struct Umount {
    /// The mount point.
    #[arg(value_hint = ValueHint::DirPath)]
    pub mountpoint: PathBuf,
    /// Detach it now; programs that still use it go on until they close their files.
    #[arg(long)]
    pub lazy: bool,
}

/// `shoal ls`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal ls -l shoal://127.0.0.1:7441/demo/include
          shoal ls --plus --with-data shoal://127.0.0.1:7441/demo/labels")]
pub struct Ls {
    /// What to list: an address with a path, or a path on a mount.
    pub place: String,
    /// Long: mode, links, owner, size, time.
    #[arg(short, long)]
    pub long: bool,
    /// With attributes, fetched with the entries (readdirplus).
    #[arg(long)]
    pub plus: bool,
    /// With the contents of small files (at most 16 KiB), which come in the same messages: in JSON whole, as `data` or, if they
    /// are no text, as `data_hex`; else their first line.
    #[arg(long)]
    pub with_data: bool,
    /// In the order of the directory, unsorted: begins at once.
    #[arg(short = 'U', long)]
    pub unsorted: bool,
    /// Which key.
    #[command(flatten)]
    pub key: Key,
    /// JSON lines.
    #[arg(long)]
    pub json: bool,
}

/// `shoal cp`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal cp -r /usr/include shoal://127.0.0.1:7441/demo/include
          shoal cp shoal://127.0.0.1:7441/demo/big.bin ./big.bin")]
pub struct Cp {
    /// What to copy: local paths, addresses or paths on a mount (these go by the native client).
    #[arg(required = true)]
    pub sources: Vec<String>,
    /// Where to.
    pub target: String,
    /// Directories with all they hold.
    #[arg(short, long)]
    pub recursive: bool,
    /// Keep mode, owner, times and extended attributes: those of `user.`, as root of `trusted.` and `security.` too.
    #[arg(short, long)]
    pub preserve: bool,
    /// Copy a symbolic link that is named here as a link, not what it leads to; in trees it is always so.
    #[arg(short = 'P', long)]
    pub no_dereference: bool,
    /// Files under way at once.
    #[arg(short, long, default_value_t = 16)]
    pub jobs: usize,
    /// No progress bar.
    #[arg(short, long)]
    pub quiet: bool,
    /// Which key.
    #[command(flatten)]
    pub key: Key,
    /// The totals as JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal cat`.
#[derive(Args, Debug)]
#[command(after_help = "Example:  shoal cat shoal://127.0.0.1:7441/demo/include/stdio.h | head")]
pub struct Cat {
    /// Files.
    #[arg(required = true)]
    pub places: Vec<String>,
    /// Which key.
    #[command(flatten)]
    pub key: Key,
}

/// `shoal stat`.
#[derive(Args, Debug)]
#[command(after_help = "Example:  shoal stat mnt/big.bin")]
pub struct Stat {
    /// Files.
    #[arg(required = true)]
    pub places: Vec<String>,
    /// Which key.
    #[command(flatten)]
    pub key: Key,
    /// JSON lines.
    #[arg(long)]
    pub json: bool,
}

/// `shoal layout`.
#[derive(Subcommand, Debug)]
pub enum Layout {
    /// Show the layout of a file, or that of a directory's new files.
    #[command(after_help = "Example:  shoal layout get mnt/checkpoints")]
    Get {
        /// File or directory.
        place: String,
        /// Which key.
        #[command(flatten)]
        key: Key,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Set the layout of a directory's new files, or of a file that is still empty (made if missing).
    #[command(after_help = "\
Example:  shoal layout set mnt/checkpoints --strip 4M --width 2
          shoal layout set mnt/one.bin --distribution basic")]
    Set {
        /// File or directory.
        place: String,
        /// How bytes are dealt to datafiles.
        #[arg(long, value_enum)]
        distribution: Option<DistributionName>,
        /// Bytes of a strip.
        #[arg(long)]
        strip: Option<ByteSize>,
        /// Datafiles; 0: one on every data server.
        #[arg(long)]
        width: Option<u16>,
        /// Which key.
        #[command(flatten)]
        key: Key,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

/// `shoal map`.
#[derive(Args, Debug)]
#[command(after_help = "Example:  shoal map mnt/big.bin --svg big.svg")]
pub struct Map {
    /// The file.
    pub place: String,
    /// Draw the picture into this file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Which key.
    #[command(flatten)]
    pub key: Key,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal ping`.
#[derive(Args, Debug)]
#[command(after_help = "Example:  shoal ping shoal://127.0.0.1:7441/demo")]
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
#[command(after_help = "Example:  shoal status --counters")]
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
It runs beside programs that use the file system: what is wrong in one look and not in the next was a change under way.
A repair loses no byte that somebody wrote: objects and bytes without a name go to /lost+found, rows that cannot be
right into the file of --save. What had to be made up (an owner, a mode) is said. Where two things could be right,
nothing is done, and it is said what you can do.
Exit status: 0 clean (or all mended), 1 damage found (or left), 2 could not check.")]
pub struct Fsck {
    /// The file system [default: ./shoal-data].
    #[arg(default_value = "shoal-data")]
    pub place: String,
    /// Mend what is found; without it nothing is changed.
    #[arg(long)]
    pub repair: bool,
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

/// `shoal add-server`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal add-server --config ./cluster --listen tcp:10.0.0.3:7441 --folder /srv/shoal
          shoal serve --config ./cluster --server 2        (on the new machine, with the new cluster.toml and the key)
New directories and files use it; nothing is moved.")]
pub struct AddServer {
    /// The cluster file, or its folder.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub config: PathBuf,
    /// Where the new server listens.
    #[arg(long, required = true)]
    pub listen: Vec<String>,
    /// Folder of its data.
    #[arg(long, value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// What it holds [default: both].
    #[arg(long, value_enum)]
    pub role: Vec<Role>,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal sync`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal sync                               make everything durable now
          shoal sync --metadata fsync              from now on, metadata is durable at fsync
          shoal sync --coalescing watermark:1:8    from now on, changes share syncs as in PVFS")]
pub struct Sync {
    /// The file system [default: ./shoal-data].
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
    /// Which key.
    #[command(flatten)]
    pub key: Key,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal torture`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal torture --rounds 50
          shoal torture /var/tmp/torture --servers 4 --mounts 2 --rounds 10 --seconds 6 --keep
First several clients do at once what they may do, and each check says whether what they see is what is promised. Then, in
each round, clients run a load while servers are killed, stopped and filled, and mounts and clients killed; afterwards
everything that was acknowledged must be there. Exit status: 0 nothing is wrong, 1 something is.
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
    /// How often what several clients do at once is done; 1 takes a quarter of a minute; 0: not at all.
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
