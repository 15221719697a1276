//! The command tree: every command with its help and an example. Handlers are in [`crate::commands`], one
//! file each.

mod care;
mod containers;
mod files;
mod serving;

pub use care::{Fsck, Ping, Status, Sync};
pub use containers::{Container, Extract, MapContainer, One};
pub use files::{Cat, Cp, Layout, Ls, Map, Stat};
pub use serving::{
    AddServer, Init, Mount, MountOptions, MoveServer, NewFileSystem, Serve, Transform, Umount, Up,
};

use clap::{Args, Parser, Subcommand, ValueHint};
use std::path::PathBuf;
use std::time::Duration;

/// ShoalFS: a parallel file system in user space, fast at very many small files and at one file of very many
/// writers.
#[derive(Parser, Debug)]
#[command(
    name = "shoal",
    version,
    long_version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SHOAL_COMMIT"), "; build ", env!("SHOAL_BUILD"), ")"),
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

    /// Log more: -v events, -vv every operation. SHOAL_LOG takes a filter, e.g. SHOAL_LOG=shoal_server=debug.
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
    /// Look at containers in a directory below a mount, check them, and put them in order.
    #[command(subcommand)]
    Container(Container),
    /// Check that every server answers, and agrees with the others.
    Ping(Ping),
    /// Show the state of the servers, and their counters.
    Status(Status),
    /// Check the whole file system while it runs, and repair it.
    Fsck(Fsck),
    /// Add a server to a running file system.
    AddServer(AddServer),
    /// Change the address of a server, also while the file system runs.
    MoveServer(MoveServer),
    /// Change when metadata and data are made durable.
    Sync(Sync),
    /// Study file systems.
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Study(crate::lab::cli::Study),
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
}

/// Where a command finds its file system.
#[derive(Args, Debug, Clone)]
pub struct Key {
    /// The key file. Default: the mount's, $SHOAL_KEY, ./shoal-data/key, ~/.config/shoal/key or
    /// /etc/shoal/key.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub key: Option<PathBuf>,
}

/// How long a command, or a mount, waits for servers.
#[derive(Args, Debug, Clone, Copy)]
pub struct TimeLimit {
    /// Seconds after which an operation that no server answers fails.
    #[arg(
        long,
        value_name = "S",
        default_value_t = shoal_client::TIMEOUT.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    pub timeout: u64,
}

impl TimeLimit {
    /// The same as a span.
    pub fn span(self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
