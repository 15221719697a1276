//! `shoal sync`: make everything durable now, or change when it becomes so.

use crate::address::{self, Place};
use crate::cli::Sync;
use crate::cluster_file::{ClusterFile, FILE_NAME};
use crate::{connect, out};
use anyhow::{Result, anyhow};
use clap::ValueEnum;
use serde_json::json;
use shoal_client::Client;
use std::path::Path;
use std::process::ExitCode;

/// Do it on all servers.
pub fn run(args: Sync) -> Result<ExitCode> {
    let place = Place::find(&args.place, args.key.key.as_deref())?;
    let word = |name: Option<String>| name.unwrap_or_default();
    let (metadata, data) = (word(args.metadata.as_ref().map(name_of)), word(args.data.as_ref().map(name_of)));
    let coalescing = args.coalescing.map(|policy| policy.to_string());
    let only_now = metadata.is_empty() && data.is_empty() && coalescing.is_none();
    let mountpoint = if only_now { address::mountpoint_of(&args.place)? } else { None };
    match mountpoint {
        // The mount knows what was written through it, and so whether something of it is lost.
        Some(mountpoint) => shoal_fuse::sync_all(&mountpoint).map_err(|error| failed(&mountpoint, &error))?,
        None => {
            let work = |_, client: Client| async move {
                match only_now {
                    true => client.sync_all().await?,
                    false => {
                        client.set_sync(&metadata, &data, coalescing.as_deref().unwrap_or_default()).await?
                    }
                }
                Ok(())
            };
            connect::with_client_within(&place, args.limit.span(), work)?;
        }
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

fn failed(mountpoint: &Path, error: &std::io::Error) -> anyhow::Error {
    const EIO: i32 = 5;
    const ENOTTY: i32 = 25;
    let at = mountpoint.display();
    match error.raw_os_error() {
        Some(EIO) => anyhow!(
            "not everything is durable: a server failed, or lost its memory since it was written to through {at}, and what no \
             fsync had covered may be gone; see the mount's log and `shoal status`, write it again, and sync again"
        ),
        Some(ENOTTY) => {
            anyhow!("the mount at {at} was made by an older program: mount it again, and sync again")
        }
        _ => anyhow!("cannot sync {at}: {error}"),
    }
}

/// The servers keep it; where a cluster file was named, it says so too.
fn note(args: &Sync, place: &Place) -> Result<()> {
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
