//! `shoal add-server`: adds a server to a running file system. Server 0 assigns the id and makes the new
//! map; then the command changes the cluster file.

use crate::address::{CommandTarget, ShoalAddress};
use crate::cli::AddServer;
use crate::cluster_file::{ClusterFile, Role, ServerEntry};
use crate::{connect, out};
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use shoal_client::Client;
use shoal_env::Address;
use std::process::ExitCode;

/// Add it to each file system of the cluster, then to the file.
pub fn run(args: AddServer) -> Result<ExitCode> {
    let mut cluster = ClusterFile::load(&args.config)?;
    let _lock = cluster.lock()?;
    cluster = ClusterFile::load(&args.config)?;
    let id = cluster.server.len();
    let roles = if args.role.is_empty() { vec![Role::Metadata, Role::Data] } else { args.role.clone() };
    let entry = ServerEntry {
        moved: 0,
        listen: args.listen.clone(),
        roles,
        folder: args.folder.clone(),
        streams: args.streams.clone(),
        audit: args.audit.clone(),
        audit_bytes_max: None,
    };
    let bits = entry.role_bits();
    let before = cluster.clone();
    cluster.server.push(entry);
    cluster.check().context("this server does not go with the others")?;
    for one in &before.collection {
        let place = place(&before, &one.name)?;
        let listen = args.listen.clone();
        let add = |_, client: Client| async move {
            let there = client.map().servers.len();
            // One that was added before, by a command that was interrupted, is not added again.
            let known = |info: &shoal_proto::ServerInfo| info.addresses.iter().any(|a| listen.contains(&a.0));
            if let Some(info) = client.map().servers.iter().find(|info| known(info)) {
                return Ok(usize::from(info.id.0));
            }
            if there != id {
                bail!(
                    "the running file system has {there} servers, the cluster file {id}: take over the newest file first"
                );
            }
            let map = client.add_server(listen.clone(), bits).await?;
            Ok(map.servers.len() - 1)
        };
        let given = connect::with_admin_within(&place, shoal_client::TIMEOUT, add)
            .with_context(|| format!("cannot add a server to file system `{}`", one.name))?;
        if given != id {
            bail!("file system `{}` knows this address as server {given}, here it would be {id}", one.name);
        }
    }
    cluster.save_to(&ClusterFile::path_of(&args.config))?;
    if args.audit.is_none() && before.server.iter().any(|other| other.audit.is_some()) {
        eprintln!(
            "shoal: server {id} has no audit log, and other servers have one: add `audit = \"audit.log\"` to its [[server]] in {} \
             before it begins",
            ClusterFile::path_of(&args.config).display()
        );
    }
    let config = args.config.display();
    if args.json {
        let names: Vec<&str> = cluster.collection.iter().map(|one| one.name.as_str()).collect();
        let config = config.to_string();
        out::json_line(
            &json!({ "server": id, "listen": args.listen, "file_systems": names, "config": config }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    out::line(format!(
        "server {id} is in the map; new directories and files use it as soon as it is served"
    ))?;
    out::line(format!("  next: shoal serve --config {config} --server {id}      (or the next `shoal up`)"))?;
    Ok(ExitCode::SUCCESS)
}

/// How to reach the servers that are there.
fn place(cluster: &ClusterFile, name: &str) -> Result<CommandTarget> {
    let servers = cluster.server.iter().map(|s| s.addresses()).collect::<Result<Vec<_>>>()?;
    let servers = servers.into_iter().flatten().filter(|a| !matches!(a, Address::Local(_))).collect();
    let address = ShoalAddress { servers, name: name.to_owned(), path: "/".to_owned() };
    Ok(CommandTarget { address, key: cluster.path(&cluster.key) })
}
