//! `shoal serve`: servers of a cluster file, in this process.

use crate::cli::Serve;
use crate::cluster_file::ClusterFile;
use crate::node::{Node, Spans};
use crate::out;
use crate::renewal::Given;
use crate::stop::{self, Event};
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use shoal_env::Address;
use std::process::ExitCode;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Serve until stopped.
pub fn run(args: Serve) -> Result<ExitCode> {
    let (events, happened) = channel();
    stop::watch(events.clone())?;
    let cluster = ClusterFile::load(&args.config)?;
    let ids = match args.servers.is_empty() {
        true => (0..cluster.server.len() as u16).collect(),
        false => args.servers.clone(),
    };
    if let Some(twice) = ids.iter().enumerate().find_map(|(at, id)| ids[..at].contains(id).then_some(id)) {
        bail!("server {twice} is asked for twice: name each --server once");
    }
    let spans =
        Spans { polling: Duration::from_micros(args.polling_us), lease: Duration::from_secs(args.lease) };
    let given_up = Given { anew: &args.new_store, older: &args.accept_older, here: &ids };
    let node = Node::start_given(&cluster, &ids, given_up, spans, &events)
        .with_context(|| format!("cannot serve {}", args.config.display()))?;
    node.say_missing();
    let serves = |id: &u16| node.missing().iter().all(|missing| missing.server != *id);
    let serving: Vec<u16> = ids.iter().copied().filter(serves).collect();
    let tcp = cluster.server.iter().map(|s| s.addresses()).collect::<Result<Vec<_>>>()?;
    let tcp: Vec<String> =
        tcp.into_iter().flatten().filter(Address::is_tcp).map(|at| crate::address::host_of(&at)).collect();
    say_ready(&args, &cluster, &serving, &tcp.join(","));
    let event = happened.recv();
    let stopped = node.stop();
    if let Ok(Event::Failed(id, words)) = event {
        bail!("server {id} failed: {words}");
    }
    stopped?;
    if !args.json {
        out::tell("shoal: stopped; all data is durable");
    }
    Ok(ExitCode::SUCCESS)
}

/// One line a file system, or one of JSON for all.
fn say_ready(args: &Serve, cluster: &ClusterFile, ids: &[u16], hosts: &str) {
    let address = |name: &str| format!("shoal://{hosts}/{name}");
    let names = || cluster.collection.iter().map(|one| one.name.as_str());
    if args.json {
        let all: Vec<_> = names().map(|name| json!({ "name": name, "address": address(name) })).collect();
        let key = cluster.path(&cluster.key).display().to_string();
        out::tell_json(&json!({ "ready": true, "servers": ids, "file_systems": all, "key": key }));
        return;
    }
    let ids: Vec<String> = ids.iter().map(u16::to_string).collect();
    for name in names() {
        out::tell(format!(
            "shoal {} · ready: server {} · file system {name} · {}",
            env!("CARGO_PKG_VERSION"),
            ids.join(", "),
            address(name)
        ));
    }
}
