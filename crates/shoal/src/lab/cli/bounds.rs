//! The arguments of `shoal bounds`.

use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `shoal bounds`.
#[derive(Args, Debug)]
#[command(after_help = "\
Example:  shoal bounds                                       (measures this machine, under a minute, and keeps it as `this`)
          shoal bounds --machine this --explain
          shoal bounds --machine thesis-cluster --curves ./figures
          shoal bounds --hold                                (two minutes: is no figure above its bound, and no bound too loose?)
          shoal bounds --validate ./figures                  (a quarter of an hour: is a simulated `this` as fast as the real one?)
A machine is a TOML file; docs/lab/BOUNDS.md explains it and the bounds.")]
pub struct Bounds {
    /// Do not measure: take this machine. A name that --list shows, or a file.
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = ["out"])]
    pub machine: Option<String>,
    /// Show which machines there are.
    #[arg(long, conflicts_with_all = ["machine", "quick", "out", "folder", "curves", "explain", "servers", "quiet"])]
    pub list: bool,
    /// Show the arithmetic of every bound.
    #[arg(long)]
    pub explain: bool,
    /// Write the curves of the thesis's figures 4.1 to 4.6 for this machine into a folder, as CSV and SVG.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub curves: Option<PathBuf>,
    /// Measure, and compare the bounds of creates, stats, small writes and reads, removes and listings with
    /// the rates of 1 and 16 clients of servers that keep nothing, all in memory, and all on disk. Exit
    /// status 1 where a figure is above its bound, or a bound is more than three times the rate of servers
    /// that keep nothing.
    #[arg(long, conflicts_with_all = ["list", "machine", "curves", "validate"])]
    pub hold: bool,
    /// Compare the simulated machine with the real one: creates, stats, removes, small and large reads and
    /// writes, at 1 to 8 servers and 1 to 16 clients; CSV and SVG into a folder. The machine is measured
    /// meanwhile, unless --machine names one. Exit status 1 where it is too far off.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["list", "curves", "explain", "servers"])]
    pub validate: Option<PathBuf>,
    /// With --validate: how much each rate moves with each parameter of the model, 50 % less and more.
    #[arg(long, requires = "validate")]
    pub sensitivity: bool,
    /// Measure once and shortly: some seconds, figures that wander.
    #[arg(long)]
    pub quick: bool,
    /// A folder on the disk that is meant; nothing stays there.
    #[arg(long, value_name = "DIR", default_value = ".", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Keep this machine's measurements here [default: $XDG_DATA_HOME/shoal/machines/this.toml].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Servers, each with metadata and data [default: the machine's; 4 where it is measured].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub servers: Option<u32>,
    /// No progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}
