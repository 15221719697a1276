//! `shoal move-server`: change the address of a server.
//!
//! The steps have this order, so that the same command completes an interrupted move:
//!
//! 1. All servers that answer report their maps. Each map, and the cluster file, has the number of
//!    times that the server was moved. The greatest number is the newest state. If the newest state already
//!    has the requested address, the number stays the same. Otherwise the move gets the next number.
//! 2. At a new address the server itself must listen, or no process at all.
//! 3. Each server that answers takes the new address, durably; the server that moves is the first.
//! 4. The cluster file is changed.
//!
//! Servers that do not answer get the address from the others (`shoal_server`'s maps). If two commands run at
//! once, all servers end with the map of one of them, and the other command fails.

use crate::address::{CommandTarget, ShoalAddress};
use crate::cli::MoveServer;
use crate::cluster_file::{ClusterFile, ServerEntry, check_address};
use crate::{connect, out};
use anyhow::{Context as _, Result, anyhow, bail};
use futures_util::future::join_all;
use serde::Serialize;
use shoal_client::Client;
use shoal_env::{Address, real};
use shoal_proto::{ClusterMap, ServerId, Status};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The move as it was sent to the servers of one file system.
#[derive(Serialize)]
struct Told {
    name: String,
    told: Vec<u16>,
    not_told: Vec<u16>,
}

#[derive(Serialize)]
struct Report {
    server: u16,
    addresses: Vec<String>,
    moved: u32,
    file_systems: Vec<Told>,
    config: Option<String>,
    /// New addresses whose host names do not resolve on this machine.
    unresolved: Vec<String>,
}

/// Where the server went last, as far as is known.
struct Known {
    addresses: Vec<String>,
    moved: u32,
}

/// A file system, and its servers' answers.
struct FileSystem {
    place: CommandTarget,
    /// `None`: no server answers.
    heard: Option<Heard>,
}

struct Heard {
    map: ClusterMap,
    answered: Vec<ServerId>,
}

/// Move it in each file system of the cluster, then in the file.
pub fn run(args: MoveServer) -> Result<ExitCode> {
    let new = args.addresses.iter().map(|text| address(args.id, text)).collect::<Result<Vec<_>>>()?;
    let path = ClusterFile::path_of(Path::new(&args.place));
    let mut cluster = None;
    let mut lock = None;
    if path.is_file() {
        lock = Some(ClusterFile::load(&path)?.lock()?);
        cluster = Some(ClusterFile::load(&path)?);
    }
    let mut all = Vec::new();
    for place in places(&args, cluster.as_ref())? {
        let heard = ask_all(&place, &new)?;
        all.push(FileSystem { place, heard });
    }
    if cluster.is_none() && all.iter().all(|one| one.heard.is_none()) {
        bail!(
            "no server of {} answers: name the cluster file, which can be changed without them",
            args.place
        );
    }
    let (listen, moved) = next(&args, &new, cluster.as_ref(), &all)?;
    if let Some(cluster) = &mut cluster {
        let entry = entry(&mut cluster.server, args.id)?;
        (entry.listen, entry.moved) = (listen.clone(), moved);
        cluster.check().context("this address does not go with the others")?;
    }
    for (one, heard) in all.iter().filter_map(|one| Some((one, one.heard.as_ref()?))) {
        new.iter().try_for_each(|at| refuse_others(&one.place, heard, args.id, at))?;
    }
    let mut told = Vec::new();
    for one in &all {
        let words = || format!("cannot move server {} of file system `{}`", args.id, one.place.address.name);
        told.push(tell_all(one, args.id, &listen, moved).with_context(words)?);
    }
    if let Some(cluster) = &cluster {
        let saved = cluster.save_to(&path);
        saved
            .context("the servers have the new address, the cluster file not yet: run this command again")?;
    }
    drop(lock);
    let config = cluster.map(|_| path.display().to_string());
    let (server, unresolved) = (args.id, warn_unresolved(args.id, &new)?);
    show(&args, Report { server, addresses: listen, moved, file_systems: told, config, unresolved })
}

fn address(id: u16, text: &str) -> Result<Address> {
    let address: Address = text.parse().map_err(|words: String| anyhow!(words))?;
    check_address(usize::from(id), &address)?;
    if matches!(address, Address::Local(_)) {
        bail!(
            "{address} leads no other process anywhere: name the address by which clients reach the server"
        );
    }
    Ok(address)
}

/// Warn of names that do not resolve here: the server may be meant for a network that this machine does not
/// see, or the name has a slip. The addresses with such names.
fn warn_unresolved(id: u16, new: &[Address]) -> Result<Vec<String>> {
    real::run("shoal", |env| async move {
        let mut unresolved = Vec::new();
        for at in new {
            let Address::Host(host, _) = at else { continue };
            let words = match env.resolve(host).await {
                Ok(found) if !found.is_empty() => continue,
                Ok(_) => "it has no address".to_owned(),
                Err(error) => error.to_string(),
            };
            eprintln!(
                "shoal: WARNING: the host name `{host}` of the new address {at} does not resolve on this machine ({words}): clients \
                 and servers that cannot resolve it do not reach server {id}; if the name is wrong, run this command again with the \
                 right one"
            );
            unresolved.push(at.to_string());
        }
        Ok(unresolved)
    })
}

fn entry(servers: &mut [ServerEntry], id: u16) -> Result<&mut ServerEntry> {
    let last = servers.len().saturating_sub(1);
    servers
        .get_mut(usize::from(id))
        .with_context(|| format!("there is no server {id} in the cluster file: it has 0 to {last}"))
}

/// The file systems in which the server is.
fn places(args: &MoveServer, cluster: Option<&ClusterFile>) -> Result<Vec<CommandTarget>> {
    let Some(cluster) = cluster else {
        let place = CommandTarget::find(&args.place, args.key.key.as_deref())?;
        let (key, _) = place.open_key()?;
        let of = |name: &String| {
            let address = ShoalAddress { name: name.clone(), path: "/".to_owned(), ..place.address.clone() };
            CommandTarget { address, key: place.key.clone() }
        };
        return Ok(key.file_system.iter().map(|one| of(&one.name)).collect());
    };
    let servers = cluster.server.iter().map(ServerEntry::addresses).collect::<Result<Vec<_>>>()?;
    let servers: Vec<Address> =
        servers.into_iter().flatten().filter(|at| !matches!(at, Address::Local(_))).collect();
    let key = args.key.key.clone().unwrap_or_else(|| cluster.path(&cluster.key));
    let of = |name: &String| {
        let address = ShoalAddress { servers: servers.clone(), name: name.clone(), path: "/".to_owned() };
        CommandTarget { address, key: key.clone() }
    };
    Ok(cluster.collection.iter().map(|one| of(&one.name)).collect())
}

/// The newest map of all servers that answer; `None` if none does. The server may be at its new address
/// already.
fn ask_all(place: &CommandTarget, new: &[Address]) -> Result<Option<Heard>> {
    let mut place = place.clone();
    place.address.servers.extend(new.iter().cloned());
    let asked = connect::with_client_within(&place, connect::IMPATIENT, |_, client: Client| async move {
        let known = client.map();
        let ask = |id: ServerId| {
            let client = client.clone();
            async move { client.map_of(id).await.ok().map(|map| (id, map)) }
        };
        let told = join_all(known.servers.iter().map(|info| ask(info.id))).await;
        let (mut map, mut answered) = (ClusterMap::clone(&known), Vec::new());
        for (id, told) in told.into_iter().flatten() {
            map = map.succeeded_by(&told);
            answered.push(id);
        }
        Ok(Heard { map, answered })
    });
    match asked {
        Ok(heard) => Ok(Some(heard)),
        Err(error) if is_silence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_silence(error: &anyhow::Error) -> bool {
    let status = error.chain().find_map(|cause| cause.downcast_ref::<shoal_client::Error>());
    status.is_some_and(|error| matches!(error.status, Status::Unavailable | Status::TimedOut))
}

/// Where the server listens from now on, and how often it was moved then.
fn next(
    args: &MoveServer,
    new: &[Address],
    cluster: Option<&ClusterFile>,
    all: &[FileSystem],
) -> Result<(Vec<String>, u32)> {
    let mut known = Vec::new();
    for map in all.iter().filter_map(|one| one.heard.as_ref()).map(|heard| &heard.map) {
        let (there, written) = (map.servers.len(), cluster.map_or(map.servers.len(), |c| c.server.len()));
        if there != written {
            bail!(
                "the running file system `{}` has {there} servers, the cluster file {written}: take over the newest file first",
                map.name
            );
        }
        let info = map
            .server(ServerId(args.id))
            .with_context(|| format!("there is no server {}: the map has 0 to {}", args.id, there - 1))?;
        let addresses = info.addresses.iter().map(|at| at.0.clone()).collect();
        known.push(Known { addresses, moved: info.moved });
    }
    if let Some(cluster) = cluster {
        let entry = entry(&mut cluster.server.clone(), args.id)?.clone();
        known.push(Known { addresses: entry.listen, moved: entry.moved });
    }
    let last = known.iter().max_by_key(|known| known.moved).context("the server is known nowhere")?;
    let before = ServerEntry {
        listen: last.addresses.clone(),
        moved: last.moved,
        roles: Vec::new(),
        folder: PathBuf::new(),
        streams: Vec::new(),
        audit: None,
        audit_bytes_max: None,
    };
    let listen = before.moved_to(new)?;
    // Of one that is there, nothing is counted again; but where two commands at once came to different ends
    // this one does.
    let is_there = |known: &Known| known.moved < last.moved || known.addresses == listen;
    let moved = if known.iter().all(is_there) { last.moved } else { last.moved.saturating_add(1) };
    Ok((listen, moved))
}

/// The listener at a new address must be the server.
fn refuse_others(place: &CommandTarget, heard: &Heard, id: u16, at: &Address) -> Result<()> {
    let options = connect::options(place)?;
    let asked = real::run("shoal", |env| async move { Client::who_listens(&env, &options, at).await });
    let words = match asked {
        Ok((server, _)) if server != ServerId(id) => format!("server {server} listens there"),
        Ok((_, store)) => match heard.map.server(ServerId(id)) {
            Some(info) if !info.admits(store) => {
                format!(
                    "the listener there serves from store {store}, and server {id} has store {}",
                    info.store
                )
            }
            _ => return Ok(()),
        },
        // No process listens there, or its machine does not answer: it is to be started.
        Err(error) if matches!(error.status, Status::Unavailable | Status::TimedOut) => return Ok(()),
        Err(error) => format!("another process listens there: {error}"),
    };
    bail!("server {id} cannot be at {at}: {words}; nothing was changed")
}

/// Each server that answered takes the new address: first the one that moves, which the client could not find
/// there later.
fn tell_all(one: &FileSystem, id: u16, listen: &[String], moved: u32) -> Result<Told> {
    let name = one.place.address.name.clone();
    let Some(heard) = &one.heard else {
        return Ok(Told { name, told: Vec::new(), not_told: Vec::new() });
    };
    let mut order = heard.answered.clone();
    order.sort_by_key(|server| server.0 != id);
    let mut told = connect::with_admin_within(
        &one.place,
        connect::IMPATIENT,
        |_, client: Client| async move {
            let mut told: Vec<u16> = Vec::new();
            for server in order {
                match client.move_server(server, ServerId(id), listen, moved).await {
                    Ok(_) => told.push(server.0),
                    Err(error) if error.status == Status::Conflict => bail!(
                        "server {server} knows of another move, which was made at the same time: `shoal ping` shows where server {id} \
                     is; run this command again if it shall be here"
                    ),
                    Err(error) if error.status == Status::Exists => {
                        bail!("another server is at that address: {error}")
                    }
                    Err(error) if matches!(error.status, Status::Unavailable | Status::TimedOut) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(told)
        },
    )?;
    told.sort_unstable();
    if told.is_empty() {
        bail!("no server answers any more: run this command again");
    }
    let not_told = heard.map.servers.iter().map(|info| info.id.0).filter(|id| !told.contains(id)).collect();
    Ok(Told { name, told, not_told })
}

fn show(args: &MoveServer, report: Report) -> Result<ExitCode> {
    if args.json {
        out::json_line(&report)?;
        return Ok(ExitCode::SUCCESS);
    }
    let at = report.addresses.iter().filter(|at| !at.starts_with("local:")).cloned().collect::<Vec<_>>();
    out::line(format!("server {} is at {} from now on", report.server, at.join(", ")))?;
    for one in &report.file_systems {
        out::line(match (one.told.as_slice(), one.not_told.as_slice()) {
            ([], _) => format!(
                "  {}: no server answers: they are informed when server {} begins there",
                one.name, args.id
            ),
            (told, []) => format!("  {}: written by all servers ({})", one.name, list(told)),
            (told, not) => format!(
                "  {}: written by server {}; server {} did not answer, and takes it over when it is reached again",
                one.name,
                list(told),
                list(not)
            ),
        })?;
    }
    let (config, id) = (report.config, args.id);
    out::line(match config {
        Some(config) => format!(
            "  next: stop server {id} where it was, and start it there with this file: shoal serve --config {config} --server {id}"
        ),
        None => format!(
            "  next: in its cluster file, [[server]] number {id}: listen = {:?}, moved = {}; then stop it where it was, and start it \
             there",
            report.addresses, report.moved
        ),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn list(ids: &[u16]) -> String {
    ids.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}
