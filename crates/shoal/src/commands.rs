//! What each command does, one file each.

pub mod cat;
pub mod fsck;
pub mod init;
pub mod ls;
pub mod mount;
pub mod ping;
pub mod serve;
pub mod stat;
pub mod status;
pub mod umount;
pub mod up;

use crate::cli::Command;
use anyhow::Result;
use std::process::ExitCode;

/// Run a command. `matches` knows which settings were given and which are the customary ones.
pub fn run(command: Command, matches: &clap::ArgMatches) -> Result<ExitCode> {
    match command {
        Command::Up(args) => up::run(args, matches.subcommand_matches("up")),
        Command::Init(args) => init::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Mount(args) => mount::run(args),
        Command::Umount(args) => umount::run(args),
        Command::Ls(args) => ls::run(args),
        Command::Cat(args) => cat::run(args),
        Command::Stat(args) => stat::run(args),
        Command::Ping(args) => ping::run(args),
        Command::Fsck(args) => fsck::run(args),
        Command::Status(args) => status::run(args),
        _ => anyhow::bail!("this command comes with the next change"),
    }
}

/// The exit status when a command fails as a whole: `fsck` tells damage (1) from what could not be checked (2).
pub fn exit_code_of_failure(command: &Command) -> ExitCode {
    ExitCode::from(if matches!(command, Command::Fsck(_)) { 2 } else { 1 })
}
