//! ShoalFS's command line program.
//!
//! * [`cli`]: the command tree.
//! * [`commands`]: the commands, one file each.
//! * [`address`]: the meaning of a path or address.
//! * [`cluster_file`] and [`secret`]: the files of a cluster.
//! * [`node`]: servers in threads of this process.
//! * [`embed`]: a mount in this process.
//! * [`connect`]: a client for one command.
//! * [`stop`]: the signals that end a command.
//! * [`out`]: standard output.
//!
//! **Invariant: every error names the action that failed, the reason, and, if there is one, the remedy**
//! (tests: `crates/shoal/tests/input`).

mod cli;
mod commands;
mod connect;
mod copy;
mod embed;
#[cfg(feature = "lab")]
mod lab;
mod laid;
mod log_file;
mod mount_options;
mod node;
mod older_copy;
mod out;
mod panics;
mod renewal;
mod stop;
mod subfiles;
mod trace;
mod words;

use clap::{CommandFactory as _, FromArgMatches as _};
use shoal_config::{address, bytes_size, cluster_file, secret, store_record};
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

/// Servers and clients make and drop many small objects on several threads: the C library's allocator spends
/// a tenth of their time on that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Memory that is free for so long goes back to the kernel; `MIMALLOC_PURGE_DELAY` says otherwise. Tables of
/// rows come and go every few seconds where changes flow: at the allocator's second the memory of each is
/// cleared anew, page by page.
const FREE_MEMORY_KEPT_MS: std::ffi::c_long = 60_000;

fn main() -> ExitCode {
    let called: Vec<_> = std::env::args_os().collect();
    if let Some(arguments) = mount_options::helper_arguments(&called) {
        return as_helper(arguments);
    }
    keep_free_memory();
    // The allocator asks for huge pages, and each that is first touched, for a buffer of some KiB, is cleared
    // whole: 2 MiB, which on a virtual machine takes milliseconds of a server's one thread. Where the kernel
    // cannot do without, it is only slower.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let matches = cli::Cli::command().get_matches();
    let cli = match cli::Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    panics::watch();
    trace::start(cli.verbose, commands::is_simulation(&cli.command));
    let failed = commands::exit_code_of_failure(&cli.command);
    match commands::run(cli.command, &matches) {
        Ok(code) => code,
        // The reader of our output has read enough (`shoal cat … | head`).
        Err(error) if out::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("shoal: {error:#}");
            failed
        }
    }
}

/// mount(8) calls us under another name: become the command that it means.
fn as_helper(arguments: anyhow::Result<Vec<OsString>>) -> ExitCode {
    let become_it = |arguments: Vec<OsString>| {
        let program = std::env::current_exe().map_err(anyhow::Error::from)?;
        anyhow::Ok(Command::new(program).args(arguments).exec())
    };
    match arguments {
        Ok(arguments) if arguments.is_empty() => ExitCode::SUCCESS,
        arguments => {
            let error = arguments.and_then(become_it).map_or_else(|error| error, anyhow::Error::from);
            eprintln!("shoal: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn keep_free_memory() {
    // `mi_option_purge_delay`, for which the crate has no name.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    // SAFETY: no other thread is there yet that could read or set an option.
    unsafe { libmimalloc_sys::mi_option_set_default(PURGE_DELAY, FREE_MEMORY_KEPT_MS) };
}
