//! Commands on files and directories: `shoal ls`, `cp`, `cat`, `stat`, `layout`, `map`.

use super::{Key, TimeLimit};
use crate::bytes_size::ByteSize;
use crate::cluster_file::DistributionName;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// `shoal ls`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal ls -l shoal://127.0.0.1:7441/demo/include
          shoal ls --plus --with-data shoal://127.0.0.1:7441/demo/labels")]
pub struct Ls {
    /// The directory to list: an address with a path, or a path on a mount.
    pub place: String,
    /// Long: mode, links, owner, size, time.
    #[arg(short, long)]
    pub long: bool,
    /// With attributes, fetched with the entries (readdirplus).
    #[arg(long)]
    pub plus: bool,
    /// With the contents of small files (at most 16 KiB), which come in the same messages: in JSON whole, as
    /// `data` or, if they are no text, as `data_hex`; else their first line.
    #[arg(long)]
    pub with_data: bool,
    /// In the order of the directory, unsorted: begins at once.
    #[arg(short = 'U', long)]
    pub unsorted: bool,
    /// How long it waits.
    #[command(flatten)]
    pub limit: TimeLimit,
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
          shoal cp shoal://127.0.0.1:7441/demo/big.bin ./big.bin
          shoal cp -r --over /scratch/me/out=composed /scratch/me/out/run-7 shoal://127.0.0.1:7441/demo")]
pub struct Cp {
    /// The sources: local paths, addresses or paths on a mount (these use the native client).
    #[arg(required = true)]
    pub sources: Vec<String>,
    /// Where to.
    pub target: String,
    /// A directory of this machine, and what paths below it show: DIR=container (each file is a container in
    /// DIR) or DIR=composed (all files share one physical file in DIR). DIR is absolute. May be given several
    /// times.
    #[arg(long, value_name = "DIR=WHAT")]
    pub over: Vec<String>,
    /// Directories with all they hold.
    #[arg(short, long)]
    pub recursive: bool,
    /// Keep mode, owner, times and extended attributes: those of `user.`, as root of `trusted.` and
    /// `security.` too.
    #[arg(short, long)]
    pub preserve: bool,
    /// Copy a symbolic link that is named here as a link, not its target; in trees it is always so.
    #[arg(short = 'P', long)]
    pub no_dereference: bool,
    /// Files under way at once.
    #[arg(short, long, default_value_t = 16)]
    pub jobs: usize,
    /// No progress bar.
    #[arg(short, long)]
    pub quiet: bool,
    /// How long it waits.
    #[command(flatten)]
    pub limit: TimeLimit,
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
    /// How long it waits.
    #[command(flatten)]
    pub limit: TimeLimit,
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
    /// How long it waits.
    #[command(flatten)]
    pub limit: TimeLimit,
    /// Which key.
    #[command(flatten)]
    pub key: Key,
    /// JSON lines.
    #[arg(long)]
    pub json: bool,
}

/// Kinds of layouts that a directory can have.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LayoutKind {
    /// Files are dealt to datafiles.
    #[default]
    Striped,
    /// The application deals its data to subfiles.
    Forked,
    /// Each writer of a file appends to a log of its own.
    Container,
    /// All files lie in blocks of one.
    Composed,
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
    /// `forked`: make a forked file, with all its subfiles, or make an empty directory into one. `container`,
    /// `composed`: of a directory that is empty, or is made; its mounts and clients follow, and it cannot be
    /// changed again.
    #[command(after_help = "\
Example:  shoal layout set mnt/checkpoints --strip 4M --width 2
          shoal layout set mnt/matrix forked --subfiles 8 --on 1,3
          shoal layout set mnt/ckpt container
          shoal layout set mnt/many composed
          shoal layout set mnt/one.bin --distribution basic")]
    Set {
        /// File or directory.
        place: String,
        /// The kind of layout.
        #[arg(value_enum, default_value_t)]
        layout: LayoutKind,
        /// Subfiles of a forked file: 1 to 512. Their number is fixed.
        #[arg(long, value_name = "N")]
        subfiles: Option<u16>,
        /// Servers of the subfiles, in turn; without it all servers that hold metadata and data, in turn.
        #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
        on: Vec<u16>,
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
