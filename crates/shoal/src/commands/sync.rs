//! `shoal sync`: make everything durable now, or change when changes become durable. Each server carries
//! the command out by itself. If some servers do not answer, the command names them and the exit status is
//! 1; the other servers have carried the command out.

use crate::address::{self, CommandTarget};
use crate::cli::Sync;
use crate::cluster_file::{ClusterFile, FILE_NAME};
use crate::{connect, out};
use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use rustix::io::Errno;
use serde_json::json;
use shoal_client::{Client, OfServers};
use shoal_proto::Status;
use std::path::Path;
use std::process::ExitCode;

/// Do it on all servers.
pub fn run(args: Sync) -> Result<ExitCode> {
    let place = CommandTarget::find(&args.place, args.key.key.as_deref())?;
    let word = |name: Option<String>| name.unwrap_or_default();
    let (metadata, data) = (word(args.metadata.as_ref().map(name_of)), word(args.data.as_ref().map(name_of)));
    let coalescing = args.coalescing.map(|policy| policy.to_string());
    let only_now = metadata.is_empty() && data.is_empty() && coalescing.is_none();
    let mountpoint = if only_now { address::mountpoint_of(&args.place)? } else { None };
    let coalescing_word = coalescing.as_deref().unwrap_or_default();
    let of = match &mountpoint {
        // The mount knows the writes through it, and so whether any of them is lost.
        Some(mountpoint) => sync_mounted(mountpoint, &place, &args)?,
        None => {
            let work = |_, client: Client| async move {
                Ok(match only_now {
                    true => client.sync_each().await,
                    false => client.set_sync_each(&metadata, &data, coalescing_word).await,
                })
            };
            match only_now {
                true => connect::with_client_within(&place, args.limit.span(), work)?,
                false => connect::with_admin_within(&place, args.limit.span(), work)?,
            }
        }
    };
    if of.failed.iter().any(|error| error.status == Status::Forbidden) && place.admin_key()?.is_none() {
        bail!(connect::needs_admin_key(&place));
    }
    if !of.failed.is_empty() {
        return Err(not_all(&args, only_now, &of)?);
    }
    if only_now {
        match args.json {
            true => out::json_line(&json!({ "durable": true }))?,
            false => out::line("everything is durable")?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    note(&args, &place)?;
    if args.json {
        out::json_line(&json!({
            "metadata": args.metadata.as_ref().map(name_of),
            "data": args.data.as_ref().map(name_of),
            "coalescing": args.coalescing.map(|policy| policy.to_string()),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for (what, name) in
        [("metadata", args.metadata.as_ref().map(name_of)), ("data", args.data.as_ref().map(name_of))]
    {
        if let Some(name) = name {
            out::line(format!("from now on {what} is durable: {name}"))?;
        }
    }
    if let Some(policy) = args.coalescing {
        out::line(format!("from now on changes share syncs: {policy}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// By the mount. It answers with an error number, so the servers are asked which of them it means.
fn sync_mounted(mountpoint: &Path, place: &CommandTarget, args: &Sync) -> Result<OfServers> {
    let Err(error) = shoal_fuse::sync_all(mountpoint) else { return Ok(OfServers::default()) };
    let ask = |_, client: Client| async move { Ok(client.sync_each().await) };
    let of = connect::with_client_within(place, args.limit.span(), ask).unwrap_or_default();
    let failed = failed(mountpoint, &error);
    match (of.failed.is_empty(), Errno::from_io_error(&error)) {
        (true, _) => Err(failed),
        // Its error is reported once, so it comes first.
        (false, Some(Errno::IO)) => Err(anyhow!("{failed}; {}", words(&of))),
        (false, _) => Ok(of),
    }
}

/// Which servers have not done it, and which have.
fn words(of: &OfServers) -> String {
    let failed = of.failed.iter().map(|error| match error.server {
        Some(server) if error.is_silence() => format!("server {server} does not answer ({error})"),
        _ => error.to_string(),
    });
    let failed: Vec<String> = failed.collect();
    let done: Vec<String> = of.done.iter().map(ToString::to_string).collect();
    let done = match done.as_slice() {
        [] => "no server has done it".to_owned(),
        [id] => format!("server {id} has done it"),
        ids => format!("servers {} have done it", ids.join(", ")),
    };
    format!("{}; {done}", failed.join("; "))
}

/// The error where some servers have done it, and others have not.
fn not_all(args: &Sync, only_now: bool, of: &OfServers) -> Result<anyhow::Error> {
    if args.json {
        let failed = of.failed.iter();
        let failed: Vec<_> = failed
            .map(|error| json!({ "server": error.server.map(|server| server.0), "error": error.to_string() }))
            .collect();
        let done: Vec<u16> = of.done.iter().map(|server| server.0).collect();
        let mut value = json!({ "done": done, "failed": failed });
        if only_now {
            value["durable"] = false.into();
        }
        out::json_line(&value)?;
    }
    let what = if only_now { "not everything is durable" } else { "not all servers have the new modes" };
    Ok(anyhow!("{what}: {}; see `shoal status`, and run this again when all servers answer", words(of)))
}

fn failed(mountpoint: &Path, error: &std::io::Error) -> anyhow::Error {
    let at = mountpoint.display();
    match Errno::from_io_error(error) {
        Some(Errno::IO) => anyhow!(
            "not everything is durable: a server failed, or lost its memory since it was written to through {at}, and what no \
             fsync had covered may be gone; see the mount's log and `shoal status`, write it again, and sync again"
        ),
        Some(Errno::NOTTY) => {
            anyhow!("the mount at {at} was made by an older program: mount it again, and sync again")
        }
        _ => anyhow!("cannot sync {at}: {error}"),
    }
}

/// The servers keep it; where a cluster file was named, it records that too.
fn note(args: &Sync, place: &CommandTarget) -> Result<()> {
    let folder = Path::new(&args.place);
    if args.place.starts_with("shoal://") || !folder.join(FILE_NAME).is_file() {
        return Ok(());
    }
    let mut cluster = ClusterFile::load(folder)?;
    if let Some(one) = cluster.collection.iter_mut().find(|c| c.name == place.address.name) {
        one.metadata_sync = args.metadata.unwrap_or(one.metadata_sync);
        one.data_sync = args.data.unwrap_or(one.data_sync);
        one.switches.0.coalescing = args.coalescing.unwrap_or(one.switches.0.coalescing);
        cluster.save()?;
    }
    Ok(())
}

fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}
