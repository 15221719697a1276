//! `shoal ping`: the checks that the thesis describes. All servers must have the same configuration and
//! hold the intended file system, and exactly one server must own its root. The command also shows how long
//! a message takes.

use crate::address::CommandTarget;
use crate::cli::Ping;
use crate::words::Unserved;
use crate::{connect, out, words};
use anyhow::{Result, bail};
use bytes::Bytes;
use serde::Serialize;
use shoal_client::{Client, Options};
use shoal_env::{Address, Env};
use shoal_proto::op::Answer;
use shoal_proto::{ClusterMap, Handle, Op, ServerId, Status};
use shoal_server::keys;
use std::process::ExitCode;
use std::time::Duration;

/// The answer of one server.
#[derive(Serialize)]
struct Told {
    server: u16,
    addresses: Vec<String>,
    /// Why it said nothing.
    error: Option<Unserved>,
    epoch: Option<u32>,
    /// Its map is the newest one, word for word.
    agrees: bool,
    owns_root: bool,
    min_us: Option<f64>,
    median_us: Option<f64>,
}

/// An address at which no server answers.
#[derive(Serialize)]
struct Unreached {
    address: String,
    error: String,
}

#[derive(Serialize)]
struct Report {
    file_system: String,
    id: String,
    epoch: u32,
    servers: Vec<Told>,
    /// Addresses that were given, at which no server answers; and why.
    unreached: Vec<Unreached>,
    well: bool,
    complaints: Vec<String>,
}

/// Ask all servers; 0 if all is well.
pub fn run(args: Ping) -> Result<ExitCode> {
    if args.count == 0 {
        bail!("--count 0 measures nothing: use 1 or more");
    }
    let place = CommandTarget::find(&args.place, args.key.key.as_deref())?;
    let given = if args.place.starts_with("shoal://") { place.address.servers.clone() } else { Vec::new() };
    let known = place.servers_known_here();
    let (options, all) = (connect::options(&place)?, place.clone().or_at(&known));
    let report = connect::with_admin_within(&all, connect::IMPATIENT, |env, client| async move {
        let unreached = unreached(&env, &options, &given).await;
        ask_all(client, args.count, unreached).await
    });
    let report = report.map_err(|error| match known.is_empty() {
        true => error.context(
            "no server answers at the given address, and no other of this file system is known here: give several \
             (shoal://HOST:PORT,HOST:PORT/NAME), or the folder of the cluster file",
        ),
        false => error,
    })?;
    match args.json {
        true => out::json(&report)?,
        false => show(&report)?,
    }
    Ok(if report.well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Those of the given addresses at which no server of the file system answers.
async fn unreached(env: &Env, options: &Options, given: &[Address]) -> Vec<Unreached> {
    let asked = given.iter().map(|at| async move { (at, Client::who_listens(env, options, at).await) });
    let told = futures_util::future::join_all(asked).await;
    let error = |(at, told): (&Address, Result<_, shoal_client::Error>)| {
        let error = told.err()?.words;
        Some(Unreached { address: at.to_string(), error })
    };
    told.into_iter().filter_map(error).collect()
}

async fn ask_all(client: Client, count: u32, unreached: Vec<Unreached>) -> Result<Report> {
    let known = client.map();
    let asked = known.servers.iter().map(|info| ask(&client, info.id, count));
    let told = futures_util::future::join_all(asked).await;
    let newest = told.iter().flatten().map(|(map, ..)| map).max_by_key(|map| map.epoch).unwrap_or(&known);
    let newest = ClusterMap::clone(newest);
    let mut servers = Vec::new();
    for (info, told) in known.servers.iter().zip(told) {
        let addresses = info.addresses.iter().map(|a| a.0.clone()).collect();
        let mut one = Told {
            server: info.id.0,
            addresses,
            error: None,
            epoch: None,
            agrees: false,
            owns_root: false,
            min_us: None,
            median_us: None,
        };
        match told {
            Err(error) => one.error = Some(Unserved::of_any(&error)),
            Ok((map, owns_root, mut times)) => {
                times.sort();
                let us = |at: usize| times.get(at).map(|t| t.as_nanos() as f64 / 1e3);
                (one.min_us, one.median_us) = (us(0), us(times.len() / 2));
                (one.epoch, one.agrees, one.owns_root) = (Some(map.epoch), map.agrees(&newest), owns_root);
            }
        }
        servers.push(one);
    }
    let mut complaints = complaints(&servers, &newest);
    complaints.extend(unreached.iter().map(|one| {
        format!(
            "no server answers at the given address {}: another one was asked ({})",
            one.address, one.error
        )
    }));
    Ok(Report {
        file_system: newest.name.0.clone(),
        id: crate::cluster_file::hex(&newest.fs_id),
        epoch: newest.epoch,
        well: complaints.is_empty(),
        servers,
        unreached,
        complaints,
    })
}

/// A server's map, whether it has the root, and the times of round trips.
async fn ask(client: &Client, server: ServerId, count: u32) -> Result<(ClusterMap, bool, Vec<Duration>)> {
    let (answer, _) = client.request(server, Op::Map {}, Bytes::new()).await?;
    let Answer::Map { map } = answer else { bail!("its answer is no map") };
    let owns_root = owns_root(client, server).await?;
    let mut times = Vec::new();
    for _ in 0..count {
        times.push(client.ping(server).await?);
    }
    Ok((map, owns_root, times))
}

/// Whether a server has the root's row. A mount key reads no rows: with it only the server of the root's
/// handle can be seen to own it.
async fn owns_root(client: &Client, server: ServerId) -> Result<bool> {
    match client.rows(server, &keys::inode(Handle::ROOT), &[], 1).await {
        Ok((rows, _)) => return Ok(!rows.is_empty()),
        Err(error) if error.status == Status::Forbidden => {}
        Err(error) => return Err(error.into()),
    }
    if server != Handle::ROOT.server() {
        return Ok(false);
    }
    match client.request(server, Op::Getattr { object: Handle::ROOT }, Bytes::new()).await {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.status, Status::Stale | Status::NotFound) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn complaints(servers: &[Told], newest: &ClusterMap) -> Vec<String> {
    let mut complaints = Vec::new();
    for one in servers {
        match (&one.error, one.epoch) {
            (Some(error), _) => complaints.push(format!("DEGRADED: server {} {error}", one.server)),
            (None, Some(epoch)) if !one.agrees => complaints.push(format!(
                "server {} has another configuration (epoch {epoch}, the newest is {}): it takes the newest when its \
                 peers reach it, or when it is started again with the present cluster file",
                one.server, newest.epoch
            )),
            _ => {}
        }
    }
    let owners: Vec<String> = servers.iter().filter(|s| s.owns_root).map(|s| s.server.to_string()).collect();
    let silent = servers.iter().any(|s| s.error.is_some());
    match owners.len() {
        1 => {}
        0 if silent => complaints.push("no server that answers owns the root directory".to_owned()),
        0 => complaints.push("no server owns the root directory: a folder was lost or exchanged".to_owned()),
        _ => complaints.push(format!("several servers own the root directory: {}", owners.join(", "))),
    }
    complaints
}

fn show(report: &Report) -> Result<()> {
    out::line(format!("file system  {}   id {}   epoch {}", report.file_system, report.id, report.epoch))?;
    let mut table = words::table(&["server", "min", "median", "configuration", "root", "address"]);
    for one in &report.servers {
        let us = |t: Option<f64>| t.map_or("–".to_owned(), |t| format!("{t:.0} µs"));
        let configuration = match (&one.error, one.agrees) {
            (Some(_), _) => "no answer",
            (None, true) => "agrees",
            (None, false) => "differs",
        };
        table.add_row([
            one.server.to_string(),
            us(one.min_us),
            us(one.median_us),
            configuration.to_owned(),
            if one.owns_root { "owns it" } else { "" }.to_owned(),
            one.addresses.last().cloned().unwrap_or_default(),
        ]);
    }
    out::line(words::plain(&table))?;
    match report.well {
        true => out::line("all is well"),
        false => report.complaints.iter().try_for_each(out::line),
    }
}
