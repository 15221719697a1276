//! The commands, one file each.

pub mod add_server;
pub mod cat;
pub mod completions;
pub mod composed;
pub mod container;
pub mod cp;
pub mod fsck;
pub mod init;
pub mod key;
pub mod layout;
pub mod ls;
pub mod map;
pub mod mount;
pub mod move_server;
pub mod ping;
pub mod run;
pub mod serve;
pub mod stat;
pub mod status;
pub mod sync;
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
        Command::Run(args) => run::run(args),
        Command::Ls(args) => ls::run(args),
        Command::Cat(args) => cat::run(args),
        Command::Stat(args) => stat::run(args),
        Command::Cp(args) => cp::run(args),
        Command::Layout(args) => layout::run(args),
        Command::Map(args) => map::run(args),
        Command::Container(command) => container::run(command),
        Command::Composed(command) => composed::run(command),
        Command::AddServer(args) => add_server::run(args),
        Command::MoveServer(args) => move_server::run(args),
        Command::Sync(args) => sync::run(args),
        Command::Key(command) => key::run(command),
        Command::Completions { shell } => completions::completions(shell),
        Command::Man { folder, json } => completions::man(&folder, json),
        Command::Ping(args) => ping::run(args),
        Command::Fsck(args) => fsck::run(args),
        Command::Status(args) => status::run(args),
        #[cfg(feature = "lab")]
        Command::Study(study) => crate::lab::commands::run(study),
    }
}

/// The exit status when a command fails as a whole: `fsck` distinguishes damage (1) from a failed check (2).
pub fn exit_code_of_failure(command: &Command) -> ExitCode {
    ExitCode::from(if matches!(command, Command::Fsck(_)) { 2 } else { 1 })
}

/// Whether the log would be of simulated servers, whose failures are made on purpose.
pub fn is_simulation(command: &Command) -> bool {
    #[cfg(feature = "lab")]
    if let Command::Study(crate::lab::cli::Study::Sim(_)) = command {
        return true;
    }
    let _ = command;
    false
}
