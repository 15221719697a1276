//! The arguments of `shoal paper`.

// `--help` shows these comments as they are: brackets in them are no links.
#![allow(rustdoc::broken_intra_doc_links)]

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `shoal paper`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal paper --list
          shoal paper pvfs-3a                            (simulated, on the machine of the paper)
          shoal paper pvfs-3a --real --folder /mnt/disk  (servers and clients on this machine)
          shoal paper --all --reproduction docs/lab/REPRODUCTION.md
          shoal paper --all --real --quick --json > real.json     (real runs, on a quiet machine; and the document, whenever:)
          shoal paper --all --simulated --beside real.json --reproduction docs/lab/REPRODUCTION.md
An experiment is a TOML file; docs/lab/EXPERIMENTS.md explains it. The exit status is 1 where a claim does not hold.")]
pub struct Paper {
    /// Which experiments: names that --list shows, or files.
    #[arg(value_name = "NAME|FILE", required_unless_present_any = ["list", "all"])]
    pub names: Vec<String>,
    /// Show which experiments there are.
    #[arg(long, conflicts_with_all = ["names", "all"])]
    pub list: bool,
    /// All that come with the program.
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// On servers of this machine, and clients, a thread each.
    #[arg(long)]
    pub real: bool,
    /// Under virtual time, on the experiment's machine [default; with --reproduction both].
    #[arg(long)]
    pub simulated: bool,
    /// Simulate another machine than the experiment's: a name that `shoal bounds --list` shows, or a file.
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// Files, bytes and look-ups as a share of the paper's, 1 being all [default: as the experiment says].
    #[arg(long, value_name = "S", value_parser = share)]
    pub scale: Option<f64>,
    /// Application processes, where an experiment has more of them than clients [default: as the experiment
    /// says].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub processes: Option<u32>,
    /// Fit the machine on the published points that an experiment names for that ([[fit]]), and report the
    /// residual; nothing else is run.
    #[arg(long, conflicts_with_all = ["all", "real", "sensitivity", "reproduction"])]
    pub fit: bool,
    /// After the simulated runs, make each cost that the machine was fitted with half as large, and half as
    /// large again, and report how the rates move (of an axis of numbers at its last place).
    #[arg(long, conflicts_with = "real")]
    pub sensitivity: bool,
    /// As short as possible: the checks' results are reported, and decide nothing.
    #[arg(long)]
    pub quick: bool,
    /// Real runs of each, of which the middle counts [default: as the experiment says, 3].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99))]
    pub repeat: Option<u32>,
    /// Seconds that one run of a workload may take.
    #[arg(long, value_name = "S", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub patience: u64,
    /// Where CSV and SVG are written.
    #[arg(long, value_name = "DIR", default_value = "shoal-paper", value_hint = ValueHint::DirPath)]
    pub out: PathBuf,
    /// Write the document of all runs to this file, its pictures into `figures` next to it. Of a document
    /// that has all these experiments already only they are renewed.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub reproduction: Option<PathBuf>,
    /// In that document also the outcomes of an earlier run, from its output with --json: of the kind, real
    /// or simulated, that is not run now.
    #[arg(long, value_name = "FILE", requires = "reproduction", value_hint = ValueHint::FilePath)]
    pub beside: Option<PathBuf>,
    /// A folder on the disk that real servers use; nothing stays there [default: the temporary folder].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: Option<PathBuf>,
    /// A folder in memory, for real runs on tmpfs; nothing stays there.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm", value_hint = ValueHint::DirPath)]
    pub tmpfs: PathBuf,
    /// No progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// A share: above 0, at most 100.
fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share <= 100.0 => Ok(share),
        _ => Err("write a number above 0 and up to 100; 1 is the paper's amount".to_owned()),
    }
}
