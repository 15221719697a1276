//! The command tree: every command with its help and an example. Handlers are in [`crate::commands`], one
//! file each.

mod care;
mod composed;
mod containers;
mod files;
mod keys;
mod running;
mod serving;

pub use care::{Fsck, Ping, Status, Sync};
pub use composed::{Composed, ExtractComposed, LsComposed, MapComposed, OneComposed, PackComposed};
pub use containers::{Container, Extract, MapContainer, One, RecoverContainer};
pub use files::{Cat, Cp, Layout, LayoutKind, Ls, Map, Stat};
pub use keys::{AddKey, ExportKey, Keys, OneCluster, RevokeKey, Rotate};
pub use running::Run;
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
    /// Run a program over file systems without a mount.
    Run(Run),
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
    /// Look at composed directories (many files in one), check them, copy trees in and out, give space back.
    #[command(subcommand)]
    Composed(Composed),
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
    /// Show, add, revoke, separate and replace the keys of a file system.
    #[command(subcommand, name = "key")]
    Key(Keys),
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

// The pages name the laboratory's commands, too.
#[cfg(all(test, feature = "lab"))]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;
    use std::collections::BTreeSet;

    /// The pages for users and operators.
    fn pages() -> Vec<(PathBuf, String)> {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut pages = vec![root.join("README.md"), root.join("SECURITY.md")];
        for folder in ["docs", "docs/using", "docs/operating", "docs/reference"] {
            let entries = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
            pages.extend(entries.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
        }
        pages.into_iter().map(|page| (page.clone(), std::fs::read_to_string(page).unwrap())).collect()
    }

    /// Texts in code: lines between fences, and what is between backticks.
    fn code(page: &str) -> Vec<&str> {
        let (mut found, mut is_fenced) = (Vec::new(), false);
        for line in page.lines() {
            if line.trim_start().starts_with("```") {
                is_fenced = !is_fenced;
            } else if is_fenced {
                found.push(line.trim());
            } else {
                found.extend(line.split('`').skip(1).step_by(2));
            }
        }
        found
    }

    /// The arguments of a command line, without the comment and what the shell does with its output.
    fn arguments(line: &str) -> Vec<String> {
        let line = ["  ", " #", " | ", " > ", " && "]
            .iter()
            .fold(line, |line, end| line.split_once(end).map_or(line, |(command, _)| command));
        line.split(' ').filter(|word| *word != "…").map(|word| word.trim_matches('"').to_owned()).collect()
    }

    /// A command that a text only names has not all that it requires.
    fn is_only_named(error: &clap::Error) -> bool {
        match error.kind() {
            ErrorKind::InvalidValue => error.to_string().contains("a value is required"),
            kind => !matches!(
                kind,
                ErrorKind::UnknownArgument
                    | ErrorKind::InvalidSubcommand
                    | ErrorKind::ValueValidation
                    | ErrorKind::ArgumentConflict
            ),
        }
    }

    #[test]
    fn commands_and_options_of_the_pages_exist() {
        fn longs(command: &clap::Command, found: &mut BTreeSet<String>) {
            found.extend(command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))));
            command.get_subcommands().for_each(|one| longs(one, found));
        }
        let mut known = BTreeSet::from(["--help".to_owned(), "--version".to_owned()]);
        longs(&Cli::command(), &mut known);
        // Of cargo, git and docker.
        let others = ["--release", "--locked", "--device", "--cap-add"];
        let (mut wrong, mut commands) = (Vec::new(), 0);
        for (page, text) in pages() {
            for line in code(&text) {
                let line = line.strip_prefix("./target/release/").unwrap_or(line);
                if line.starts_with("--") {
                    let option = line.split([' ', '=']).next().unwrap_or(line);
                    if !known.contains(option) && !others.contains(&option) {
                        wrong.push(format!("{}: {option}", page.display()));
                    }
                } else if line.starts_with("shoal ") && !line.contains("COMMAND") && !line.contains('·') {
                    commands += 1;
                    let error = Cli::try_parse_from(arguments(line)).err();
                    if let Some(error) = error.filter(|error| !is_only_named(error)) {
                        wrong.push(format!("{}: {line}: {error}", page.display()));
                    }
                }
            }
        }
        assert!(commands > 50, "the pages are read");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}
