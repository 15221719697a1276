//! Containers in a directory: `shoal container`.

use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// Look at containers, check them, and put them in order.
#[derive(Subcommand, Debug)]
#[command(after_help = "\
Example:  shoal mount --over /scratch/me --transform container ./checkpoints        (each file is a container in /scratch/me)
          shoal container stat /scratch/me/step-000100
          shoal container ls s3://bucket/runs/me                            (in a bucket: the AWS_ variables name store and credentials)")]
pub enum Container {
    /// List the containers of a directory.
    #[command(after_help = "Example:  shoal container ls /scratch/me")]
    Ls(One),
    /// Show size, writers, and how much is stored.
    #[command(after_help = "Example:  shoal container stat /scratch/me/step-000100")]
    Stat(One),
    /// Show which writer wrote which bytes.
    #[command(after_help = "Example:  shoal container map /scratch/me/step-000100 --svg writers.svg")]
    Map(MapContainer),
    /// Look for damage, of a directory in all containers below it. Exit status: 0 whole, 1 damaged, 2 it, or
    /// a part of it, could not be checked.
    #[command(after_help = "\
Example:  shoal container check /scratch/me/step-000100
          shoal container check /scratch/me                   (all below it, and what killed programs left)")]
    Check(One),
    /// Gather the indexes of all closed writers in one file, so that an open reads one.
    #[command(after_help = "Example:  shoal container flatten /scratch/me/step-000100")]
    Flatten(One),
    /// Make one log of a container's, without bytes that were overwritten or cut, while others may read it.
    /// No writer may have it open.
    #[command(after_help = "Example:  shoal container compact /scratch/me/log.txt")]
    Compact(One),
    /// Close the writers that were killed, and delete what is left of killed removals. Nothing is given up
    /// without `--lossy`.
    #[command(after_help = "\
Example:  shoal container recover /scratch/me                 (what is left of killed creations and removals)
          shoal container recover /scratch/me/step-000100     (its killed writers)")]
    Recover(RecoverContainer),
    /// Copy a container's bytes to a plain file, which gets its name when it is whole.
    #[command(after_help = "Example:  shoal container extract /scratch/me/step-000100 ./step-000100")]
    Extract(Extract),
}

/// `shoal container recover`.
#[derive(Args, Debug)]
pub struct RecoverContainer {
    /// The container, or the directory, below the mount.
    #[arg(value_hint = ValueHint::DirPath)]
    pub path: PathBuf,
    /// Give up bytes that are damaged or not proven, and keep the rest. `check` says what was given up.
    #[arg(long)]
    pub lossy: bool,
    /// The writers have ended, also those of other hosts and PID namespaces, which this host cannot see.
    #[arg(long)]
    pub ended: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// One container.
#[derive(Args, Debug)]
pub struct One {
    /// The container, in the directory below the mount; for `ls` and `check` also that directory.
    #[arg(value_hint = ValueHint::DirPath)]
    pub path: PathBuf,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal container map`.
#[derive(Args, Debug)]
pub struct MapContainer {
    /// The container, in the directory below the mount.
    #[arg(value_hint = ValueHint::DirPath)]
    pub path: PathBuf,
    /// Draw it too.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Parts that are shown, at most.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub parts: usize,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal container extract`.
#[derive(Args, Debug)]
pub struct Extract {
    /// The container, in the directory below the mount.
    #[arg(value_hint = ValueHint::DirPath)]
    pub path: PathBuf,
    /// The new file; it must not exist.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}
