//! Composed directories: `shoal composed`.

use clap::{Args, Subcommand, ValueHint};
use shoal_transform::Wishes;
use std::path::PathBuf;

/// Look at composed directories, check them, copy trees in and out, and give space back.
#[derive(Subcommand, Debug)]
#[command(after_help = "\
Example:  shoal mount --over /scratch/run17 --transform composed ./run17        (a million small files are a few large ones)
          shoal composed map /scratch/run17
          shoal composed extract /scratch/run17 ./plain                         (plain files again)")]
pub enum Composed {
    /// List the files.
    #[command(after_help = "Example:  shoal composed ls /scratch/run17 rank-000 --recursive")]
    Ls(LsComposed),
    /// Show which writer has which blocks, and how much of them lives.
    #[command(after_help = "Example:  shoal composed map /scratch/run17 --svg blocks.svg")]
    Map(MapComposed),
    /// Look at each block. Exit status: 0 whole, 1 damaged, 2 it could not be checked.
    #[command(after_help = "Example:  shoal composed check /scratch/run17")]
    Check(OneComposed),
    /// Copy files out, as plain files. Files that are there with the same size and modification
    /// time are skipped, others are replaced.
    #[command(after_help = "\
Example:  shoal composed extract /scratch/run17 ./plain --path rank-000

A file has its name only when it is whole. If the command was killed, run it again: it completes the tree.
A file that was under way is called .shoal-copy.* until then.")]
    Extract(ExtractComposed),
    /// Copy a tree of plain files in. Files that are there with the same size and modification
    /// time are skipped, others are replaced. The composed directory is made if its directory is empty.
    #[command(after_help = "\
Example:  shoal composed pack ./plain /scratch/run17 --settings block=4M

A file has its name only when it is whole. If the command was killed, run it again: it completes the tree.
A file that was under way is called .shoal-copy.* until then.")]
    Pack(PackComposed),
    /// Give back the space of what was removed and overwritten. Writers may run: their blocks stay.
    #[command(after_help = "Example:  shoal composed compact /scratch/run17")]
    Compact(OneComposed),
}

/// One composed directory.
#[derive(Args, Debug)]
pub struct OneComposed {
    /// The directory below the mount.
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// No progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal composed ls`.
#[derive(Args, Debug)]
pub struct LsComposed {
    /// The directory below the mount.
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// A directory in it [default: all].
    pub path: Option<PathBuf>,
    /// Directories in it too.
    #[arg(short, long)]
    pub recursive: bool,
    /// A line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// `shoal composed map`.
#[derive(Args, Debug)]
pub struct MapComposed {
    /// The directory below the mount.
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Draw it too.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub svg: Option<PathBuf>,
    /// Blocks that are shown, at most.
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub blocks: usize,
    /// No progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal composed extract`.
#[derive(Args, Debug)]
pub struct ExtractComposed {
    /// The directory below the mount.
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// A directory for the files; made if it is missing.
    #[arg(value_hint = ValueHint::DirPath)]
    pub target: PathBuf,
    /// Only this directory in it.
    #[arg(long, value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// No progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `shoal composed pack`.
#[derive(Args, Debug)]
pub struct PackComposed {
    /// The directory of plain files.
    #[arg(value_hint = ValueHint::DirPath)]
    pub source: PathBuf,
    /// The directory below the mount.
    #[arg(value_hint = ValueHint::DirPath)]
    pub dir: PathBuf,
    /// Settings of a new one: block=SIZE, files=N.
    #[arg(long, value_name = "WORDS", default_value = "", value_parser = Wishes::parse, hide_default_value = true)]
    pub settings: Wishes,
    /// No progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}
