//! `shoal init`: a new cluster file with its keys, or a further file system in a cluster file.

use crate::cli::{Init, NewFileSystem};
use crate::cluster_file::{ClusterFile, CollectionEntry, FILE_NAME, Role, ServerEntry};
use crate::out;
use crate::secret::KeyFile;
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write them.
pub fn run(args: Init) -> Result<ExitCode> {
    let cluster = if args.collection { add_collection(&args)? } else { new_cluster(&args)? };
    let path = cluster.base.join(FILE_NAME);
    if args.json {
        let names: Vec<&str> = cluster.collection.iter().map(|one| one.name.as_str()).collect();
        out::json_line(&json!({
            "config": path.display().to_string(),
            "key": cluster.path(&cluster.key).display().to_string(),
            "servers": cluster.server.len(),
            "file_systems": names,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let names = std::iter::once(path).chain(key_files(&cluster)).map(|path| path.display().to_string());
    out::line(format!("wrote {}", names.collect::<Vec<_>>().join(", ")))?;
    out::line(format!(
        "  next: copy all to each server's machine, and there: shoal serve --config {} --server ID",
        args.folder.display()
    ))?;
    out::line("  a client's machine needs `key` alone")?;
    let admin = cluster.path(&cluster.admin_key_beside());
    if admin.exists() {
        out::line(format!("  an administrator's machine needs {} beside `key`", admin.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Those that a server needs.
fn key_files(cluster: &ClusterFile) -> impl Iterator<Item = PathBuf> {
    std::iter::once(&cluster.key).chain(&cluster.server_key).map(|key| cluster.path(key))
}

fn new_cluster(args: &Init) -> Result<ClusterFile> {
    let path = args.folder.join(FILE_NAME);
    if path.exists() {
        bail!(
            "{} is there already: use another folder, or --collection to add a further file system to it",
            path.display()
        );
    }
    std::fs::create_dir_all(&args.folder)
        .with_context(|| format!("cannot make {}", args.folder.display()))?;
    let mut cluster = ClusterFile {
        key: "key".into(),
        server_key: None,
        mac: args.mac,
        server: args.servers.iter().map(|text| server(text, args.audit.as_deref())).collect::<Result<_>>()?,
        collection: vec![new_collection(&args.new, 1)?],
        base: args.folder.clone(),
    };
    cluster.check().context("these servers and settings do not go together")?;
    let own = [cluster.key.clone(), cluster.server_key_beside(), cluster.admin_key_beside()]
        .map(|key| cluster.path(&key));
    if let Some(key) = own.iter().find(|key| key.exists()) {
        bail!("{} is there already: remove it if it belongs to no file system", key.display());
    }
    cluster.draw_keys()?;
    cluster.save()?;
    Ok(cluster)
}

fn add_collection(args: &Init) -> Result<ClusterFile> {
    let mut cluster = ClusterFile::load(&args.folder)?;
    let number = cluster.collection.iter().map(|c| c.number).max().unwrap_or(0);
    cluster.collection.push(new_collection(&args.new, number.saturating_add(1))?);
    cluster.check().with_context(|| format!("cannot add file system `{}`", args.new.name))?;
    let path = cluster.path(&cluster.key);
    let mut key = KeyFile::load(&path)?;
    key.name_file_systems(&cluster);
    key.save(&path)?;
    cluster.save()?;
    Ok(cluster)
}

/// `ADDRESS=FOLDER`.
fn server(text: &str, audit: Option<&Path>) -> Result<ServerEntry> {
    let Some((address, folder)) = text.split_once('=') else {
        bail!("`{text}` is not a server: write ADDRESS=FOLDER, e.g. tcp:10.0.0.1:7441=/srv/shoal");
    };
    Ok(ServerEntry {
        moved: 0,
        listen: vec![address.to_owned()],
        roles: vec![Role::Metadata, Role::Data],
        folder: folder.into(),
        streams: Vec::new(),
        audit: audit.map(Path::to_owned),
        audit_bytes_max: None,
    })
}

/// A file system with these settings and a new id.
pub fn new_collection(new: &NewFileSystem, number: u32) -> Result<CollectionEntry> {
    let entry = CollectionEntry {
        module: new.module,
        metadata_sync: new.metadata_sync,
        data_sync: new.data_sync,
        cache: new.cache,
        distribution: new.distribution,
        strip: new.strip,
        width: new.width,
        switches: new.switches,
        ..CollectionEntry::new(&new.name, number)?
    };
    entry.check()?;
    Ok(entry)
}
