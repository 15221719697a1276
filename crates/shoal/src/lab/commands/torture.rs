//! `shoal torture`: the command. [`crate::lab::torture`] has its operations and its checks.

use crate::cluster_file::random;
use crate::commands::up::free_port;
use crate::lab::cli::Torture;
use crate::lab::torture::report::Report;
use crate::lab::torture::site::Wish;
use crate::lab::torture::{Plan, hand, torture};
use crate::out;
use crate::stop::{self, Event};
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::Duration;

/// The lease of the servers under load: as it is by default, since servers are stopped for some seconds.
const LEASE_S: u64 = 60;

/// Do it. 0: nothing is wrong.
pub fn run(args: Torture) -> Result<ExitCode> {
    if args.servers == 0 || args.clients == 0 {
        bail!("there is no torture without a server and a client");
    }
    if args.mounts > 0 && !Path::new("/dev/fuse").exists() {
        bail!("no /dev/fuse, so nothing can be mounted: --mounts 0 does without");
    }
    let seed = args.seed.map_or_else(|| random().map(u64::from_le_bytes), Ok)?;
    let folder = make_folder(args.folder.as_deref(), seed)?;
    let (events, happened) = channel();
    stop::watch(events)?;
    let plan = Plan {
        wish: Wish {
            folder: folder.clone(),
            mounts: args.mounts,
            timeout_s: args.timeout.max(1),
            lease_s: LEASE_S,
        },
        together: args.together,
        rounds: args.rounds,
        span: Duration::from_secs(args.seconds),
        clients: args.clients,
        seed,
    };
    // Ports are held until all are chosen.
    let ports = (0..args.servers).map(|_| free_port()).collect::<Result<Vec<_>>>()?;
    let listen =
        ports.iter().map(|port| Ok(format!("tcp:{}", port.local_addr()?))).collect::<Result<Vec<_>>>()?;
    drop(ports);
    let mut report = Report::new(&plan);
    let end = || match happened.try_recv() {
        Ok(Event::Signal) => bail!("stopped by a signal"),
        _ => Ok(()),
    };
    let tell = |words: &str| {
        if !args.quiet {
            eprintln!("{words}");
        }
    };
    let done = torture(&plan, &listen, &mut report, &end, &tell);
    report.kept = args.keep || done.is_err() || !report.violations.is_empty();
    match args.json {
        true => out::json(&report)?,
        false => out::bytes(report.to_table().as_bytes())?,
    }
    if !report.kept {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    done?;
    Ok(if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The work of a client's process.
pub fn hand() -> Result<ExitCode> {
    hand::main()?;
    Ok(ExitCode::SUCCESS)
}

fn make_folder(folder: Option<&Path>, seed: u64) -> Result<PathBuf> {
    let folder = match folder {
        Some(folder) => std::path::absolute(folder)?,
        None => std::env::temp_dir().join(format!("shoal-torture-{}-{seed:x}", std::process::id())),
    };
    let words = || format!("cannot make {}", folder.display());
    std::fs::create_dir_all(&folder).with_context(words)?;
    if std::fs::read_dir(&folder)?.next().is_some() {
        bail!("{} is not empty: give an empty or new folder", folder.display());
    }
    // As the mount table has it.
    folder.canonicalize().with_context(words)
}
