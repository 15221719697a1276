//! `shoal up`: servers with their data in a folder and, if requested, a mount, in this process.
//!
//! The folder holds `cluster.toml`, `key`, `key.admin`, `key.server`, `lock` (locked while this process runs)
//! and `server-N/`. A server's port is chosen when the server is made, and kept, because clients know it. Its
//! Unix socket is in its folder; if the data folder was moved, the address of the socket changes.

use crate::address::{CommandTarget, ShoalAddress};
use crate::cli::Up;
use crate::cluster_file::{ClusterFile, CollectionEntry, FILE_NAME, check_servers};
use crate::commands::init::new_collection;
use crate::embed::{Embedded, ShownAs};
use crate::node::{Missing, Node, Spans};
use crate::out;
use crate::renewal::Given;
use crate::stop::{self, Event};
use anyhow::{Context as _, Result, bail};
use clap::parser::ValueSource;
use rustix::fs::FlockOperation;
use serde_json::json;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

/// Servers of a new file system where nothing else is said.
const SERVERS: u16 = 4;
/// Ports that are looked at: below those the kernel gives to outgoing connections.
const PORTS: std::ops::Range<u16> = 17_000..32_000;
/// Longest path of a Unix socket, less its end.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Start, report that, and run until stopped.
pub fn run(args: Up, given: Option<&clap::ArgMatches>) -> Result<ExitCode> {
    let begin = Instant::now();
    let (events, happened) = channel();
    stop::watch(events.clone())?;
    must_be_there_to_be_given_up(&args)?;
    let folder = prepare_folder(&args.folder)?;
    apart(&folder, args.mount.as_deref())?;
    let _lock = lock(&folder)?;
    let is_new = !folder.join(FILE_NAME).is_file();
    let mut cluster = if is_new { new(&folder, &args)? } else { existing(&folder, &args, given)? };
    let is_protected_anew = args.mac.is_some_and(|mac| cluster.mac.replace(mac) != Some(mac));
    let ids: Vec<u16> = (0..cluster.server.len() as u16).collect();
    let given_up = Given { anew: &args.new_store, older: &args.accept_older, here: &ids };
    let node = Node::start_given(&cluster, &ids, given_up, Spans::default(), &events)
        .with_context(|| format!("cannot start the file system in {}", args.folder.display()))?;
    if is_protected_anew {
        // Only now: servers of this file that run elsewhere would not start again with those that do not.
        cluster.save()?;
    }
    node.say_missing();
    let place = place(&cluster, node.missing())?;
    let has_root = node.missing().iter().all(|missing| missing.server != 0);
    if let Some(at) = args.mount.as_ref().filter(|_| !has_root) {
        eprintln!("shoal: {} is not mounted: server 0 holds the root directory", at.display());
    }
    let mount = match args.mount.as_ref().filter(|_| has_root) {
        None => None,
        Some(at) => match Embedded::start(&place, ShownAs::Usual, at, &args.options, &events) {
            Ok(mount) => Some(mount),
            Err(error) => {
                node.stop()?;
                return Err(error);
            }
        },
    };
    say_ready(&args, &cluster, &node, &place, (is_new, begin));
    let (mount, failed) = wait(&happened, mount);
    let unmounted = mount.map_or(Ok(()), Embedded::stop);
    let stopped = node.stop();
    if let Some(words) = failed {
        bail!(words);
    }
    unmounted.and(stopped)?;
    if !args.json {
        out::tell("shoal: stopped; all data is durable");
    }
    Ok(ExitCode::SUCCESS)
}

/// Wait for a reason to stop.
fn wait(happened: &Receiver<Event>, mut mount: Option<Embedded>) -> (Option<Embedded>, Option<String>) {
    loop {
        match happened.recv() {
            Ok(Event::Unmounted) => {
                if let Some(gone) = mount.take() {
                    eprintln!(
                        "shoal: {} was unmounted; the servers go on (Ctrl-C stops)",
                        gone.mountpoint().display()
                    );
                    if let Err(error) = gone.stop() {
                        return (None, Some(format!("{error:#}")));
                    }
                }
            }
            Ok(Event::Failed(id, words)) => return (mount, Some(format!("server {id} failed: {words}"))),
            Ok(Event::Signal) | Err(_) => return (mount, None),
        }
    }
}

/// Stores are given up of a file system that is there; a new one has none.
fn must_be_there_to_be_given_up(args: &Up) -> Result<()> {
    let wants = !args.new_store.is_empty() || !args.accept_older.is_empty();
    if wants && !args.folder.join(FILE_NAME).is_file() {
        bail!(
            "{} holds no file system (there is no {FILE_NAME}): --new-store and --accept-older are for one that is there; is its \
             disk mounted?",
            args.folder.display()
        );
    }
    Ok(())
}

/// The folder, made if missing; refused if it holds something else.
fn prepare_folder(given: &Path) -> Result<PathBuf> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(given)
        .with_context(|| format!("cannot make the folder {}", given.display()))?;
    let folder = given.canonicalize().with_context(|| format!("cannot find {}", given.display()))?;
    if folder.join(FILE_NAME).is_file() {
        return Ok(folder);
    }
    // The possible remains of a start that was interrupted before the cluster file existed. A key may be the
    // only copy of one that is used elsewhere.
    let ours = ["lock", "key.new", "cluster.new"];
    let entries =
        std::fs::read_dir(&folder).with_context(|| format!("cannot look into {}", given.display()))?;
    let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>()?;
    names.sort();
    if let Some(name) = names.iter().find(|name| name.to_string_lossy().starts_with("server-")) {
        bail!(
            "{} holds servers' folders (`{}`) of a file system whose {FILE_NAME} is missing: restore {FILE_NAME} and `key` from a \
             copy; nothing was changed",
            given.display(),
            name.to_string_lossy()
        );
    }
    for name in names {
        if !ours.iter().any(|own| name == *own) {
            let remedy = match ["key", "key.admin", "key.server"].iter().any(|key| name == *key) {
                true => "remove that key if it belongs to no file system, or give an empty or new folder",
                false => "give an empty or new folder",
            };
            bail!(
                "cannot use {} for data: it holds something else (`{}`) and no {FILE_NAME}; {remedy}",
                given.display(),
                name.to_string_lossy()
            );
        }
    }
    Ok(folder)
}

/// Data on its own mount could never be reached.
fn apart(folder: &Path, mount: Option<&Path>) -> Result<()> {
    let Some(mount) = mount else { return Ok(()) };
    let at = std::path::absolute(mount)?;
    let at =
        at.parent().and_then(|above| Some(above.canonicalize().ok()?.join(at.file_name()?))).unwrap_or(at);
    if folder.starts_with(&at) || at.starts_with(folder) {
        bail!(
            "cannot mount at {}: the data folder {} and the mount must not lie within each other",
            mount.display(),
            folder.display()
        );
    }
    Ok(())
}

/// Hold the folder; the lock ends with this process.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .with_context(|| format!("cannot make {}", path.display()))?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let mut pid = String::new();
        let _ = file.read_to_string(&mut pid);
        bail!(
            "{} is up already, in process {}: stop that one (kill -TERM), or use another folder",
            folder.display(),
            pid.trim()
        );
    }
    file.set_len(0)?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())?;
    Ok(file)
}

/// A new file system.
fn new(folder: &Path, args: &Up) -> Result<ClusterFile> {
    let mut cluster = ClusterFile {
        key: "key".into(),
        server_key: None,
        mac: args.mac,
        server: Vec::new(),
        collection: vec![new_collection(&args.new, 1)?],
        base: folder.to_path_buf(),
    };
    check_audit(args)?;
    grow(&mut cluster, args.servers.unwrap_or(SERVERS))?;
    settle_audit(&mut cluster, args)?;
    cluster.draw_keys()?;
    cluster.save()?;
    ClusterFile::load(folder)
}

/// A file system that is there; servers are added if more are wanted.
fn existing(folder: &Path, args: &Up, given: Option<&clap::ArgMatches>) -> Result<ClusterFile> {
    let mut cluster = ClusterFile::load(folder)?;
    let moved = follow_sockets(&mut cluster);
    check_audit(args)?;
    let audited = settle_audit(&mut cluster, args)?;
    let changed = settle_settings(&mut cluster, args, given)? || moved || audited;
    let there = cluster.server.len();
    match args.servers.map(usize::from) {
        Some(wanted) if wanted < there => bail!(
            "{} has {there} servers, and servers are never taken away: use --servers {there}, or leave it out",
            args.folder.display()
        ),
        Some(wanted) if wanted > there => grow(&mut cluster, wanted as u16)?,
        _ if !changed => return Ok(cluster),
        _ => {}
    }
    cluster.save()?;
    ClusterFile::load(folder)
}

/// The audit logs of `up` lie in the servers' folders, beside their stores.
fn check_audit(args: &Up) -> Result<()> {
    let Some(audit) = &args.audit else { return Ok(()) };
    let is_name = audit.file_name() == Some(audit.as_os_str());
    if !is_name || audit.as_os_str() == args.new.name.as_str() {
        bail!(
            "--audit {}: give a name, as audit.log, for a file in each server's folder, which is not the file system's name (another \
             place: `audit` in {FILE_NAME})",
            audit.display()
        );
    }
    Ok(())
}

/// All servers have the audit log that is wanted; whether that is new.
fn settle_audit(cluster: &mut ClusterFile, args: &Up) -> Result<bool> {
    let Some(audit) = &args.audit else { return Ok(false) };
    let before = cluster.server.clone();
    for (id, server) in cluster.server.iter_mut().enumerate() {
        let there = server.audit.get_or_insert_with(|| audit.clone());
        if there != audit {
            bail!(
                "server {id} has the audit log {}: leave --audit out, or change `audit` in {}",
                there.display(),
                cluster.base.join(FILE_NAME).display()
            );
        }
    }
    Ok(before != cluster.server)
}

/// Settings of a new file system, given for one that is there: equal is fine, the cache may change, all else
/// is refused.
fn settle_settings(cluster: &mut ClusterFile, args: &Up, given: Option<&clap::ArgMatches>) -> Result<bool> {
    let is_given = |id: &str| given.is_some_and(|m| m.value_source(id) == Some(ValueSource::CommandLine));
    let name = is_given("name").then_some(args.new.name.as_str());
    let at = match cluster.collection.iter().position(|c| name.is_none_or(|name| c.name == name)) {
        Some(at) => at,
        None => {
            cluster.find(name)?;
            return Ok(false);
        }
    };
    let there = &mut cluster.collection[at];
    let wanted = &args.new;
    let same = [
        ("module", "--module", there.module == wanted.module, "make a new file system in another folder"),
        (
            "metadata_sync",
            "--metadata-sync",
            there.metadata_sync == wanted.metadata_sync,
            "`shoal sync --metadata` changes it",
        ),
        ("data_sync", "--data-sync", there.data_sync == wanted.data_sync, "`shoal sync --data` changes it"),
        (
            "strip",
            "--strip",
            there.strip == wanted.strip,
            "`shoal layout set` changes it for a directory's new files",
        ),
        (
            "width",
            "--width",
            there.width == wanted.width,
            "`shoal layout set` changes it for a directory's new files",
        ),
        (
            "distribution",
            "--distribution",
            there.distribution == wanted.distribution,
            "`shoal layout set` changes it for a directory's new files",
        ),
        (
            "switches",
            "--switches",
            there.switches == wanted.switches,
            "make a new file system in another folder: data is laid out by them",
        ),
    ];
    for (id, option, same, remedy) in same {
        if is_given(id) && !same {
            bail!(
                "{} holds a file system made with another {option}: leave {option} out; {remedy}",
                args.folder.display()
            );
        }
    }
    if is_given("cache") && there.cache != wanted.cache {
        there.cache = wanted.cache;
        return Ok(true);
    }
    Ok(false)
}

/// Where a server's socket is, if its path is not too long for one.
fn socket(cluster: &ClusterFile, id: usize) -> Option<String> {
    let path = cluster.base.join(format!("server-{id}")).join("socket");
    Some(format!("unix:{}", path.to_str().filter(|path| path.len() <= SOCKET_PATH_BYTES_MAX)?))
}

/// After the folder was moved its sockets are in the new place; the ports stay. Whether it was.
fn follow_sockets(cluster: &mut ClusterFile) -> bool {
    let sockets: Vec<Option<String>> = (0..cluster.server.len()).map(|id| socket(cluster, id)).collect();
    let before = cluster.server.clone();
    for (server, socket) in cluster.server.iter_mut().zip(sockets) {
        let is_ours = |at: &String| at.starts_with("unix:") && at.ends_with("/socket");
        if let Some(at) = server.listen.iter().position(is_ours) {
            server.listen.splice(at..=at, socket);
        }
    }
    before != cluster.server
}

/// Add servers until there are so many, each with a port of its own.
fn grow(cluster: &mut ClusterFile, wanted: u16) -> Result<()> {
    if wanted == 0 {
        bail!("a file system has at least one server: use --servers 1 or more");
    }
    check_servers(usize::from(wanted))?;
    // All ports are held until all are chosen.
    let mut held = Vec::new();
    let fs_id = cluster.collection.first().map(|c: &CollectionEntry| c.id.clone()).unwrap_or_default();
    // A name is of a file in each server's folder; an absolute path is of one server.
    let like = cluster.server.first().filter(|first| first.audit.as_ref().is_some_and(|at| at.is_relative()));
    let (audit, audit_bytes_max) =
        like.map_or((None, None), |first| (first.audit.clone(), first.audit_bytes_max));
    for id in cluster.server.len() as u16..wanted {
        let name = format!("server-{id}");
        let mut listen = vec![format!("local:{fs_id}-{id}")];
        if let Some(socket) = socket(cluster, usize::from(id)) {
            let folder = cluster.base.join(&name);
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
            made.context("cannot make the server's folder")?;
            listen.push(socket);
        }
        let port = free_port()?;
        listen.push(format!("tcp:{}", port.local_addr()?));
        held.push(port);
        cluster.server.push(crate::cluster_file::ServerEntry {
            moved: 0,
            listen,
            roles: vec![crate::cluster_file::Role::Metadata, crate::cluster_file::Role::Data],
            folder: name.into(),
            streams: Vec::new(),
            audit: audit.clone(),
            audit_bytes_max,
        });
    }
    Ok(())
}

/// A free port on loopback, held by listening.
pub fn free_port() -> Result<TcpListener> {
    let count = u32::from(PORTS.end - PORTS.start);
    let start = u32::from_le_bytes(crate::cluster_file::random()?) % count;
    let at = |i: u32| PORTS.start + ((start + i) % count) as u16;
    let free = (0..count).find_map(|i| TcpListener::bind((Ipv4Addr::LOCALHOST, at(i))).ok());
    free.context("no free port on 127.0.0.1")
}

/// How this process's own mount finds the file system, and others too: the TCP address of the first server
/// that serves.
fn place(cluster: &ClusterFile, missing: &[Missing]) -> Result<CommandTarget> {
    let serves = |id: &u16| missing.iter().all(|missing| missing.server != *id);
    let first = (0..cluster.server.len() as u16).find(serves).unwrap_or(0);
    let first = cluster.server[usize::from(first)].addresses()?;
    let tcp = first.iter().find(|at| at.is_tcp()).or(first.first());
    let servers = tcp.cloned().into_iter().collect();
    let address = ShoalAddress { servers, name: cluster.collection[0].name.clone(), path: "/".to_owned() };
    Ok(CommandTarget { address, key: cluster.path(&cluster.key) })
}

fn say_ready(
    args: &Up,
    cluster: &ClusterFile,
    node: &Node,
    place: &CommandTarget,
    (is_new, begin): (bool, Instant),
) {
    let (count, seconds) = (cluster.server.len(), begin.elapsed().as_secs_f64());
    let up = count - node.missing().len();
    if args.json {
        let mount = args.mount.as_ref().map(|m| m.display().to_string());
        let ready = json!({
            "ready": true,
            "new": is_new,
            "servers": count,
            "missing": node.missing().iter().map(|missing| missing.server).collect::<Vec<_>>(),
            "seconds": seconds,
            "folder": args.folder.display().to_string(),
            "mountpoint": mount,
            "address": place.address.to_string(),
            "key": place.key.display().to_string(),
        });
        out::tell_json(&ready);
        return;
    }
    let mounted = args.mount.as_ref().map_or(String::new(), |at| format!(" · mounted at {}", at.display()));
    out::tell(format!(
        "shoal {} · {}: {up} server{} up in {seconds:.1} s · {} {}{mounted} · {}",
        env!("CARGO_PKG_VERSION"),
        if up == count { "ready" } else { "ready, DEGRADED" },
        if up == 1 { "" } else { "s" },
        if is_new { "a new file system in" } else { "data in" },
        args.folder.display(),
        place.address,
    ));
    let (folder, shoal) = (args.folder.display(), own_command());
    let first = match &args.mount {
        Some(at) => format!("cp -a /usr/include {}/", at.display()),
        None => format!("{shoal} cp -r /usr/include {}/", place.address),
    };
    let look = match &args.mount {
        Some(at) => format!("{shoal} map {}/include/stdio.h", at.display()),
        None => format!("{shoal} ls {}/", place.address),
    };
    out::tell(format!("  try:  {first}\n        {look}\n        {shoal} status {folder}\n  Ctrl-C stops"));
}

/// This program as a person can type it here: `shoal` where the shell finds it so, else its path.
fn own_command() -> String {
    let Ok(own) = std::env::current_exe() else { return "shoal".to_owned() };
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let here = std::env::current_dir().unwrap_or_default();
    command_of(&own, &std::env::split_paths(&paths).collect::<Vec<_>>(), &here)
}

/// The command that runs the program `own` in the folder `here` with these folders in `PATH`.
fn command_of(own: &Path, paths: &[PathBuf], here: &Path) -> String {
    let name = own.file_name().unwrap_or(own.as_os_str());
    let found = paths.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_some_and(|path| path.canonicalize().is_ok_and(|path| path == own)) {
        return name.to_string_lossy().into_owned();
    }
    match own.strip_prefix(here) {
        Ok(below) => format!("./{}", below.display()),
        Err(_) => own.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_that_are_suggested_work_as_typed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (bin, other) = (root.join("bin"), root.join("other"));
        for at in [&bin, &other] {
            std::fs::create_dir(at).unwrap();
            std::fs::write(at.join("shoal"), "").unwrap();
        }
        let own = bin.join("shoal");
        assert_eq!(command_of(&own, &[root.join("none"), bin.clone()], &root), "shoal");
        assert_eq!(
            command_of(&own, &[other.clone(), bin.clone()], &root),
            "./bin/shoal",
            "another one is found first"
        );
        assert_eq!(command_of(&own, &[], &root), "./bin/shoal");
        assert_eq!(command_of(&own, &[], &other), own.display().to_string());
    }
}
